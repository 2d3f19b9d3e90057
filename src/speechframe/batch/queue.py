"""The calls of a run: which is next, what all may cost, and what becomes of one whose attempt failed."""

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from speechframe import errors
from speechframe.batch.backend import Request
from speechframe.errors import BudgetExceeded, ConnectionFailed, ServiceError, SpeechframeError
from speechframe.spec.billing import to_credits
from speechframe.store.month import MonthFile, month_of
from speechframe.store.schema import StopReason


@dataclass(slots=True)
class Call:
    """A call on its way."""

    request: Request
    is_unknown: bool = False  # an attempt of it may have been billed, and no answer has told yet
    is_paid: bool = False  # ... and the service bills a repeat once: the ledger has its price already
    noted: bytes | None = None  # what an earlier attempt noted
    reserved: int = 0  # thousandths of a credit set aside for it
    sends: int = 0  # attempts made; each stands in the ledger
    failures: int = 0  # those among them that count against max_attempts
    began: float = 0.0  # monotonic time of the first attempt
    retakes: int = 0  # how many takes before this one were suspect


class Verdict(Enum):
    """What becomes of a call."""

    NOW = "refused by a cap: to the front of the queue"
    LATER = "failed for now, and surely not billed: again after a delay"
    FAIL = "refused for good: its row fails, the others go on"
    LOST = "sent without an answer: it may have been billed"
    UNUSABLE = "billed, and its answer is of no use"
    STOP = "would fail every row: the run stops and keeps what it has"


VERDICTS: tuple[tuple[type[SpeechframeError], Verdict], ...] = (
    (errors.RateLimited, Verdict.NOW),
    (errors.RequestTimeout, Verdict.LATER),
    (errors.ServerError, Verdict.LATER),
    (errors.Unavailable, Verdict.LATER),
    (errors.PaymentRequired, Verdict.STOP),
    (errors.PermissionDenied, Verdict.STOP),
    (errors.ServiceError, Verdict.FAIL),
    (errors.BadAnswer, Verdict.UNUSABLE),
    (errors.SpeechframeError, Verdict.FAIL),
)

GATEWAYS = frozenset({502, 504, 520, 522, 524})
"""Whoever answers with one of these does not know what the service behind it did."""


def verdict_of(error: SpeechframeError) -> Verdict:
    """Return what becomes of a call whose attempt ended with `error`."""
    if isinstance(error, ConnectionFailed):
        return Verdict.LOST if error.sent else Verdict.LATER
    if isinstance(error, ServiceError) and error.status in GATEWAYS:
        return Verdict.LOST
    return next(verdict for kind, verdict in VERDICTS if isinstance(error, kind))


SHARE = 20
"""A run takes one part in so many of what is left of the month at a time, instead of each call's price."""


class Budget:
    """What a run may spend: reserved before each call, settled after it, in thousandths of a credit.

    Two limits are never passed: `limit`, of all calls of the run, with what it has `spent_before`, and the
    one of a calendar month (UTC) over all runs of a key on this machine. The month's count has been corrected
    by what the run has spent; `month_rule_from` says in words where its limit was set. StoreError is raised
    where the month's file cannot be used: nothing must be sent.
    """

    def __init__(
        self,
        limit: int | None,
        spent_before: int,
        month: MonthFile | None = None,
        *,
        month_limit: int = 0,
        month_rule_from: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spent, self.reserved = spent_before, 0
        self._limit, self._refused_by_month = limit, False
        self._month, self._month_limit, self._month_rule_from = month, month_limit, month_rule_from
        self._clock, self.month_name = clock, "" if month is None else month_of(clock())
        self._free = 0  # allotted to this run of the month's limit, and not reserved
        self._reserved_before = 0  # what is reserved in the months before

    def reserve(self, price: int) -> bool:
        """Set `price` aside for a call; False where it does not fit. A free call always fits."""
        fits_run = self._limit is None or price <= self._limit - self.spent - self.reserved
        fits = not price or (fits_run and (self._month is None or self._fits_month(self._month, price)))
        if fits:
            self.reserved += price
        else:
            self._refused_by_month = fits_run
        return fits

    def _fits_month(self, file: MonthFile, price: int) -> bool:
        if (month := month_of(self._clock())) != self.month_name:
            # Calls under way count with their price in the month they were reserved in.
            self.close()
            self.month_name, self._reserved_before = month, self.reserved
        if price > self._free:
            self._free += file.allot(month, price - self._free, limit=self._month_limit, share=SHARE)
        if price > self._free:
            return False
        self._free -= price
        return True

    def settle(self, reserved: int, cost: int) -> None:
        """Replace what was set aside for a call by what it has cost."""
        self.reserved -= reserved
        self.spent += cost
        before = min(reserved, self._reserved_before)
        self._reserved_before -= before
        self._free += reserved - before - max(0, cost - before)

    def why_not(self, price: int) -> BudgetExceeded:
        """Return the error that names the limit which refused last; `price` is of all further calls."""
        name, limit, spent, by = "max_credits", self._limit or 0, self.spent + self.reserved, ""
        advice = "resume the run with a higher max_credits"
        if self._month is not None and self._refused_by_month:
            name, limit = "max_credits_per_month", self._month_limit
            spent = self._month.total(self.month_name) - self._free
            by = f" by all runs of this key in {self.month_name} (UTC)"
            where = f" ({self._month_rule_from})" if self._month_rule_from else ""
            advice = f"resume the run next month, or with a higher {name}{where}"
        return BudgetExceeded(
            f"{name}={to_credits(limit):.15g}: {to_credits(spent):,.15g} spent or set aside{by}, "
            f"{to_credits(max(0, limit - spent)):,.15g} left, and the rest of the run costs "
            f"{to_credits(price):,.15g}. Everything that was made is kept; {advice}.",
            limit="month" if by else "run",
            max_credits=to_credits(limit),
            spent_credits=to_credits(spent),
            needed_credits=to_credits(price),
        )

    def close(self) -> None:
        """Give back what was allotted of the month and not spent; what is still reserved stays counted."""
        if self._month is not None and self._free:
            self._month.give_back(self.month_name, self._free)
        self._free = 0


class Queue:
    """Hands out calls one at a time, each with its price reserved: those put back, then the plan's.

    `only_free` is told once when the budget is used up: the plan then gives only calls that cost nothing.
    `stopped` and `stopped_by` are why no more calls are handed out, and the error behind it.
    """

    def __init__(self, calls: Iterator[Call], budget: Budget, only_free: Callable[[], None]) -> None:
        self._calls, self._budget, self._only_free = calls, budget, only_free
        self._front: deque[Call] = deque()
        self._later: list[tuple[float, int, Call]] = []
        self._order = itertools.count()
        self._out = 0  # calls that were taken and have not ended
        self._is_read = False
        self._changed = asyncio.Event()
        self._spent: SpeechframeError | None = None
        self.stopped: StopReason | None = None
        self.stopped_by: SpeechframeError | None = None

    @property
    def is_over(self) -> bool:
        """Whether no call will be handed out any more."""
        if self.stopped is not None:
            return True
        if not self._is_read or self._out or self._front or self._later:
            return False
        if self._spent is not None:
            self.stop(StopReason.BUDGET, self._spent)
        return True

    async def take(self) -> Call | None:
        """Return the next call as soon as there is one; None when there will be none, or after a change."""
        call: Call | None = None
        if self._later and self._later[0][0] <= time.monotonic():
            call = heapq.heappop(self._later)[2]
        elif self._front:
            call = self._front.popleft()
        elif not self._is_read:
            call = next(self._calls, None)
            self._is_read = call is None
        if call is None:
            if not self.is_over:
                await self.changed(self._later[0][0] - time.monotonic() if self._later else None)
            return None
        price = 0 if call.is_paid else call.request.price
        if self._budget.reserve(price):
            call.reserved = price
            self._out += 1
            return call
        self._front.appendleft(call)
        if self._out and self._spent is None:
            # A call under way may turn out to cost less than was set aside for it.
            await self.changed()
            return None
        # The budget is used up: what costs something stays pending, what is paid is still sent.
        if self._spent is None:
            self._spent = self._budget.why_not(price)
            self._only_free()
        self._front = deque(call for call in self._front if call.is_paid)
        self._later = [entry for entry in self._later if entry[2].is_paid]
        heapq.heapify(self._later)
        return None

    async def changed(self, timeout_s: float | None = None) -> None:
        """Wait until a call ended or came back, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    def back(self, call: Call, delay_s: float = 0.0) -> None:
        """Put a call back that was taken: to the front, or for later."""
        if delay_s > 0:
            heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._order), call))
        else:
            self._front.append(call)
        self.done()

    def done(self, instead: Iterable[Call] = ()) -> None:
        """Note that a call that was taken is not under way any more; new ones may come instead."""
        self._front.extend(instead)
        self._out -= 1
        self._tell()

    def stop(self, reason: StopReason, error: SpeechframeError | None = None) -> None:
        """Hand out no more calls; what is under way ends."""
        if self.stopped is None:
            self.stopped, self.stopped_by = reason, error
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
