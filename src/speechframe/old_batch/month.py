"""One run's part in the month's count of its key."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from speechframe.old_store.spending import Account, Spending, month_of
from speechframe.spec.billing import Millicredits

AHEAD_CALLS = (16, 256)
"""For how many calls is taken in advance: at first, and at most; twice as many each time."""

FEW_CALLS = 4
"""Where less was granted than for so many calls, nothing is asked for before it is needed."""


@dataclass
class _Lease:
    """What a run took of one month."""

    account: Account
    ends: float
    held: Millicredits = 0
    free: Millicredits = 0
    spent: Millicredits = 0

    @property
    def reserved(self) -> Millicredits:
        return self.held - self.free - self.spent

    def settle(self, reserved: Millicredits, spent: Millicredits) -> None:
        self.free += reserved - spent
        self.spent += spent


class MonthBudget:
    """One run's part in the month's count, taken in advance for many calls at once.

    A call belongs to the month it was reserved in. Of calls under way while a
    month ends, the first to be settled count as the older ones: their sum is
    exact, a swap between two of them is possible.

    Parameters
    ----------
    spending
        The count; closed by whoever opened it.
    service, key_fingerprint, run_id
        Who spends.
    limit
        Thousandths of a credit all runs of the key may spend in a calendar month (UTC); None counts only.
    where
        Where the limit was set, in words.
    clock
        Unix time.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder, Spending(Path(folder)) as spending:
    ...     month = MonthBudget(
    ...         spending, service="api.example.com", key_fingerprint="0f3a", run_id="r", limit=100_000
    ...     )
    ...     month.reserve(60_000), month.reserve(60_000)
    (True, False)
    """

    def __init__(
        self,
        spending: Spending,
        *,
        service: str,
        key_fingerprint: str,
        run_id: str,
        limit: Millicredits | None,
        where: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spending = spending
        self.service = service
        self.key_fingerprint = key_fingerprint
        self.run_id = run_id
        self.limit = limit
        self.where = where
        self._clock = clock
        self._ahead = AHEAD_CALLS[0]
        self._low = 0
        self._thread: ThreadPoolExecutor | None = None
        self._asked: tuple[Future[Millicredits], Millicredits] | None = None
        self._past: list[_Lease] = []
        self._now = self._lease_of(clock())

    @property
    def month(self) -> str:
        """The month that calls are counted in now."""
        return self._now.account.month

    def reserve(self, amount: Millicredits, *, most: Millicredits | None = None) -> bool:
        """Set `amount` aside for one call; False where the month's limit does not allow it.

        Parameters
        ----------
        amount
            Thousandths of a credit.
        most
            What the run may still spend at all: it takes no more in advance.

        Raises
        ------
        StoreError
            When the count cannot be used: the call must not be made.
        """
        if (moment := self._clock()) >= self._now.ends:
            self._turn(moment)
        self._take_in(wait=self._now.free < amount)
        lease = self._now
        if lease.free < amount:
            wanted = self._wanted(amount, most)
            granted = self._ask(lease.account, amount - lease.free, wanted)
            self._take(granted, amount)
            if not granted:
                return False
        lease.free -= amount
        if lease.free < self._low and self._asked is None:
            self._ask_ahead(amount, self._wanted(amount, None if most is None else most - amount))
        return True

    def settle(self, *, reserved: Millicredits, spent: Millicredits) -> None:
        """Give a reservation back and count what the call really cost, `reserved` at most."""
        for lease in self._past:
            part = min(reserved, lease.reserved)
            cost = min(spent, part)
            lease.settle(part, cost)
            reserved, spent = reserved - part, spent - cost
        self._now.settle(reserved, spent)

    def total(self) -> Millicredits:
        """Return what all runs of the key have spent or set aside this month."""
        self._take_in(wait=True)
        return self.spending.total(self._now.account) - self._now.free

    def _wanted(self, amount: Millicredits, most: Millicredits | None) -> Millicredits:
        wanted = self._ahead * amount
        return wanted if most is None else min(wanted, most - self._now.free)

    def _ask(self, account: Account, needed: Millicredits, wanted: Millicredits) -> Millicredits:
        return self.spending.lease(account, self.run_id, needed, wanted=wanted, limit=self.limit)

    def _ask_ahead(self, amount: Millicredits, wanted: Millicredits) -> None:
        """Ask for more in a thread, before it is needed: calls under way must not wait for a disk."""
        if 0 < amount <= wanted:
            self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="speechframe-month")
            asked = self._thread.submit(self._ask, self._now.account, amount, wanted)
            self._asked = asked, amount

    def _take_in(self, *, wait: bool) -> None:
        """Take what was asked for ahead, if it has come, or after waiting for it."""
        if self._asked is not None and (wait or self._asked[0].done()):
            (asked, amount), self._asked = self._asked, None
            self._take(asked.result(), amount)

    def _take(self, granted: Millicredits, amount: Millicredits) -> None:
        self._now.held += granted
        self._now.free += granted
        self._ahead = min(2 * self._ahead, AHEAD_CALLS[1])
        # Where no more than a few calls were granted the limit is near: the rest is left to whoever needs it.
        self._low = granted // 2 if granted > FEW_CALLS * amount else 0

    def close(self) -> None:
        """Write down what was spent and give back what was not; what is still reserved stays counted.

        Raises
        ------
        StoreError
            When the count cannot be used. It then holds an upper bound, until the run's next start.
        """
        try:
            self._take_in(wait=True)
        finally:
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None
        for lease in (*self._past, self._now):
            self._give_back(lease)
        self._past = [lease for lease in self._past if lease.reserved]

    def _give_back(self, lease: _Lease) -> None:
        if lease.held != lease.reserved:
            self.spending.settle(lease.account, self.run_id, spent=lease.spent, given_back=lease.free)
            lease.held, lease.free, lease.spent = lease.reserved, 0, 0

    def _turn(self, moment: float) -> None:
        """Begin a new month; what is reserved stays in the one it was reserved in."""
        self._take_in(wait=True)
        self._past.append(self._now)
        self._now, self._low = self._lease_of(moment), 0
        for lease in [lease for lease in self._past if not lease.reserved]:
            self._give_back(lease)
            self._past.remove(lease)

    def _lease_of(self, moment: float) -> _Lease:
        start = datetime.fromtimestamp(moment, UTC)
        ends = datetime(start.year + start.month // 12, start.month % 12 + 1, 1, tzinfo=UTC)
        return _Lease(Account(self.service, self.key_fingerprint, month_of(start)), ends.timestamp())
