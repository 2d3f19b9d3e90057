"""The accounts of API keys: used characters, known idempotency keys, call rates, and calls in flight."""

import hashlib
from collections.abc import Mapping, Sequence

from speechframe.settings import fingerprint_key
from speechframe.testing.books import Counters, InFlightMeter
from speechframe.testing.journal import Bill, BillsFile

UNLIMITED_QUOTA = 10**12
"""Characters from which answers count down if no quota is set. More than any test uses."""
_MARK_BYTES = 16
"""Size in bytes of the hashes of idempotency keys and requests, large enough that hashes do not collide."""


class OtherBodyError(Exception):
    """Raised if an ``Idempotency-Key`` was used before for a different request."""


class QuotaUsedUpError(Exception):
    """Raised if a call costs more characters than are left of the quota."""


class Account:
    """The account of one API key.

    Attributes
    ----------
    fingerprint
        Short hash of the key.
    meters
        Meter of the key's calls in flight, by region.
    used
        Characters billed so far.
    marks
        Hash of the request, by the hash of its ``Idempotency-Key``.
    """

    def __init__(self, key: str, meters: dict[str, InFlightMeter]) -> None:
        self.fingerprint = fingerprint_key(key)
        self.meters = meters
        self.used = 0
        self.marks: dict[str, str] = {}
        self._tokens = 0.0
        self._at_s: float | None = None

    def count_remaining_characters(self, quota: int | None) -> int:
        """Return the characters left of `quota`, at least 0. None as `quota` means `UNLIMITED_QUOTA`."""
        return max(0, (UNLIMITED_QUOTA if quota is None else quota) - self.used)

    def take_rate_token(self, rate: float, burst: int, now_s: float) -> bool:
        """Take one token from the token bucket of the rate limit. Return False if the bucket is empty.

        The bucket starts full and gains `rate` tokens a second, up to `burst` tokens. `now_s` is a monotonic
        time.
        """
        passed_s = float("inf") if self._at_s is None else now_s - self._at_s
        self._tokens = min(float(burst), self._tokens + passed_s * rate)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Bank:
    """The accounts of all API keys, and the journal of their bills.

    Parameters
    ----------
    keys, regions
        All API keys, and the names of all regions.
    cap
        Largest number of calls in flight for each key and region at the start. None for no limit.
    journal
        File of bills. The bills that it contains already count as well.
    counters
        Counters that receive every bill.
    """

    def __init__(
        self,
        keys: Sequence[str],
        regions: Sequence[str],
        cap: int | None,
        journal: BillsFile,
        counters: Counters,
    ) -> None:
        self._by_key = {key: Account(key, {region: InFlightMeter(cap) for region in regions}) for key in keys}
        self._by_fingerprint = {account.fingerprint: account for account in self._by_key.values()}
        self._regions = tuple(regions)
        self._journal = journal
        self._counters = counters
        for bill in journal.read_bills():
            self._count(bill)

    def find_account(self, key: str | None) -> Account | None:
        """Return the account of a key, or None if the key is missing or wrong."""
        return self._by_key.get(key) if key is not None else None

    def group_meters(self) -> dict[str, list[InFlightMeter]]:
        """Return, for each region, the meters of all keys."""
        accounts = self._by_key.values()
        return {region: [account.meters[region] for account in accounts] for region in self._regions}

    def count_remaining_characters(self, quota: int | None) -> dict[str, int]:
        """Return the characters left for each key, by key fingerprint. Without a quota, return nothing."""
        if quota is None:
            return {}
        return {
            name: account.count_remaining_characters(quota) for name, account in self._by_fingerprint.items()
        }

    def pay(
        self,
        account: Account,
        characters_of: Mapping[int, int],
        *,
        quota: int | None,
        mark: tuple[str, bytes] | None,
    ) -> bool:
        """Write one bill for each text of a call to disk. Return False if the call was billed before.

        `characters_of` maps the tag of each text to its billed characters. `mark` contains the
        ``Idempotency-Key`` and the content of the request. None means a request without this key. If the
        method returns False or raises OtherBodyError or QuotaUsedUpError, nothing is billed.
        """
        name, body = (
            ("", "") if mark is None else (_hash_bytes(mark[0].encode("latin-1")), _hash_bytes(mark[1]))
        )
        if name:
            known = account.marks.get(name)
            if known == body:
                return False
            if known is not None:
                raise OtherBodyError
        if quota is not None and account.used + sum(characters_of.values()) > quota:
            raise QuotaUsedUpError
        for tag, characters in characters_of.items():
            bill = Bill(account.fingerprint, tag, characters, name, body)
            self._journal.write(bill)
            self._count(bill)
        return True

    def _count(self, bill: Bill) -> None:
        self._counters.count_bill(bill.tag, bill.characters)
        account = self._by_fingerprint.get(bill.key)
        # The journal may contain keys of an earlier service in the same folder.
        if account is not None:
            account.used += bill.characters
            if bill.mark:
                account.marks[bill.mark] = bill.body


def _hash_bytes(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_MARK_BYTES).hexdigest()
