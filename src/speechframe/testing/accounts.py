"""The accounts of keys: quotas in characters, known idempotency keys, rates, and calls in flight."""

import hashlib
from collections.abc import Mapping, Sequence

from speechframe.settings import fingerprint
from speechframe.testing.books import Counters, InFlightMeter
from speechframe.testing.journal import Bill, BillsFile

__all__ = ["Account", "Bank", "OtherBodyError", "QuotaUsedUpError"]

UNLIMITED = 10**12
"""Quota from which answers count down if no quota is set."""
_MARK_BYTES = 16


class OtherBodyError(Exception):
    """An ``Idempotency-Key`` was used again for another request."""


class QuotaUsedUpError(Exception):
    """The call would cost more characters than the quota has left."""


class Account:
    """The account of one key. It has the key's fingerprint, and for each region a meter of its calls."""

    def __init__(self, key: str, meters: dict[str, InFlightMeter]) -> None:
        self.fingerprint = fingerprint(key)
        self.meters = meters
        self.used = 0
        self.marks: dict[str, str] = {}
        self._tokens = 0.0
        self._at_s: float | None = None

    def remaining(self, quota: int | None) -> int:
        """Return the characters left of a quota, at least 0."""
        return max(0, (UNLIMITED if quota is None else quota) - self.used)

    def may_pass(self, rate: float, burst: int, now_s: float) -> bool:
        """Take a token of the rate limit. Return False if none is left.

        The bucket gains `rate` tokens a second, up to `burst`, and starts full. `now_s` is a monotonic time.
        """
        passed_s = float("inf") if self._at_s is None else now_s - self._at_s
        self._tokens = min(float(burst), self._tokens + passed_s * rate)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Bank:
    """The accounts of all keys over one journal. Every bill is counted, also those read from the journal.

    `cap` is the initial cap of every meter.
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
        for bill in journal.bills():
            self._count(bill)

    def account(self, key: str | None) -> Account | None:
        """Return the account of a key. None for a wrong key."""
        return self._by_key.get(key) if key is not None else None

    def meters(self) -> dict[str, list[InFlightMeter]]:
        """Return the meters of each region."""
        accounts = self._by_key.values()
        return {region: [account.meters[region] for account in accounts] for region in self._regions}

    def remaining(self, quota: int | None) -> dict[str, int]:
        """Return the characters left by key fingerprint. Empty without a quota."""
        if quota is None:
            return {}
        return {name: account.remaining(quota) for name, account in self._by_fingerprint.items()}

    def pay(
        self,
        account: Account,
        characters_of: Mapping[int, int],
        *,
        quota: int | None,
        mark: tuple[str, bytes] | None,
    ) -> bool:
        """Write the bill of a call to disk. Return False if the call was paid before.

        `characters_of` maps the tag of each text to its billed characters. `mark` is the ``Idempotency-Key``
        and the content of its request. OtherBodyError and QuotaUsedUpError mean that nothing was billed.
        """
        name, body = ("", "") if mark is None else (_digest(mark[0].encode("latin-1")), _digest(mark[1]))
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
        self._counters.bill(bill.tag, bill.characters)
        account = self._by_fingerprint.get(bill.key)
        # The journal may contain keys of an earlier service in the same folder.
        if account is not None:
            account.used += bill.characters
            if bill.mark:
                account.marks[bill.mark] = bill.body


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_MARK_BYTES).hexdigest()
