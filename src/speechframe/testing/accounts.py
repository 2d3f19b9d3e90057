"""Whose call it is: quota to the character, known idempotency keys, pace, and what is in flight where."""

import hashlib
from collections.abc import Mapping, Sequence

from speechframe.settings import fingerprint
from speechframe.testing.books import Gauge, Keeper
from speechframe.testing.journal import Bill, Journal

__all__ = ["Account", "Bank", "OtherBodyError", "QuotaUsedUpError"]

UNLIMITED = 10**12
"""The quota that answers count down from when there is none."""
_MARK_BYTES = 16


class OtherBodyError(Exception):
    """An ``Idempotency-Key`` came again with another request."""


class QuotaUsedUpError(Exception):
    """The call would cost more characters than are left."""


class Account:
    """One key.

    Parameters
    ----------
    key
        The key; only its fingerprint is kept.
    gauges
        Region to what is in flight there.
    """

    def __init__(self, key: str, gauges: dict[str, Gauge]) -> None:
        self.fingerprint = fingerprint(key)
        self.gauges = gauges
        self.used = 0
        self.marks: dict[str, str] = {}
        self._tokens = 0.0
        self._at_s: float | None = None

    def remaining(self, quota: int | None) -> int:
        """Return the characters left of a quota, never below 0."""
        return max(0, (UNLIMITED if quota is None else quota) - self.used)

    def may_pass(self, rate: float, burst: int, now_s: float) -> bool:
        """Take a token out of the bucket; False when there is none.

        Parameters
        ----------
        rate
            Tokens a second.
        burst
            The most tokens there can be, and those there are at first.
        now_s
            A clock that never runs back.
        """
        passed_s = float("inf") if self._at_s is None else now_s - self._at_s
        self._tokens = min(float(burst), self._tokens + passed_s * rate)
        self._at_s = now_s
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Bank:
    """Every key's account, over one journal.

    Parameters
    ----------
    keys
        The keys that are let in.
    regions
        The regions there are.
    cap
        Of every gauge, at first.
    journal
        Read back at once.
    keeper
        Told of every bill, those read back included.
    """

    def __init__(
        self, keys: Sequence[str], regions: Sequence[str], cap: int | None, journal: Journal, keeper: Keeper
    ) -> None:
        self._by_key = {key: Account(key, {region: Gauge(cap) for region in regions}) for key in keys}
        self._by_fingerprint = {account.fingerprint: account for account in self._by_key.values()}
        self._regions = tuple(regions)
        self._journal = journal
        self._keeper = keeper
        for bill in journal.bills():
            self._count(bill)

    def account(self, key: str | None) -> Account | None:
        """Return the account of a key, None for a wrong one."""
        return self._by_key.get(key) if key is not None else None

    def gauges(self) -> dict[str, list[Gauge]]:
        """Return the gauges of each region."""
        accounts = self._by_key.values()
        return {region: [account.gauges[region] for account in accounts] for region in self._regions}

    def remaining(self, quota: int | None) -> dict[str, int]:
        """Return the characters left by key fingerprint; empty without a quota."""
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
        """Bill a call, on disk when this returns; False when it was paid for before.

        Parameters
        ----------
        account
            Who pays.
        characters_of
            Tag of each text to its billed characters.
        quota
            The characters the key has, None for any number.
        mark
            The ``Idempotency-Key`` and what it stands for; None without one.

        Raises
        ------
        OtherBodyError, QuotaUsedUpError
            Nothing was billed.
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
        self._keeper.bill(bill.tag, bill.characters)
        account = self._by_fingerprint.get(bill.key)
        # The journal may know keys that a service with other keys over the same folder does not.
        if account is not None:
            account.used += bill.characters
            if bill.mark:
                account.marks[bill.mark] = bill.body


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_MARK_BYTES).hexdigest()
