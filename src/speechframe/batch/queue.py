"""The calls of a run: those put back, those whose delay is over, then the plan's, read as needed."""

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from speechframe.batch.backend import Request
from speechframe.batch.budget import Budget
from speechframe.errors import SpeechframeError
from speechframe.store.schema import Row, StopReason


@dataclass(slots=True)
class Call:
    """A call on its way.

    Attributes
    ----------
    request
        What is asked for.
    is_paid
        It was billed, or perhaps, and the service bills a repeat once: nothing is reserved for it.
    counted
        Whether the ledger has its price already, for an attempt that may have been billed.
    is_unknown
        An attempt of it may have been billed, and no answer has told yet.
    noted
        What an earlier attempt noted.
    reserved
        Thousandths of a credit that are set aside for it.
    sends
        Attempts made; each stands in the ledger.
    failures
        Those among them that count against ``max_attempts``.
    began
        Monotonic time of the first attempt.
    retakes
        How many takes before this one were suspect.
    """

    request: Request
    is_paid: bool = False
    counted: bool = False
    is_unknown: bool = False
    noted: bytes | None = None
    reserved: int = 0
    sends: int = 0
    failures: int = 0
    began: float | None = None
    retakes: int = 0
    parts: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.parts = [
            {
                "request_key": row.key,
                "take": row.take,
                "characters": row.characters,
                "price": row.price,
                "millicredits": 0 if self.counted else row.price,
                **row.facts,
            }
            for row in self.request.rows
        ]


class Queue:
    """Hands out calls one at a time, each with its price reserved.

    Parameters
    ----------
    calls
        The plan's, read one by one.
    budget
        What may be spent.
    only_free
        Told once when the budget is used up: the plan then gives only calls that cost nothing.

    Attributes
    ----------
    stopped
        Why no more calls are handed out; None while they are.
    stopped_by
        The error behind it, if there is one.
    """

    def __init__(self, calls: Iterator[Call], budget: Budget, only_free: Callable[[], None]) -> None:
        self._calls, self._budget, self._only_free = calls, budget, only_free
        self._front: deque[Call] = deque()
        self._later: list[tuple[float, int, Call]] = []
        self._order = itertools.count()
        self._out = 0
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
        if self.is_over:
            return None
        call = self._next()
        if call is None:
            if self.is_over:
                return None
            until = self._later[0][0] - time.monotonic() if self._later else None
            await self.changed(until)
            return None
        price = 0 if call.is_paid else call.request.price
        if self._budget.reserve(price):
            call.reserved = price
            self._out += 1
            return call
        self._front.appendleft(call)
        if self._out:
            # A call under way may turn out to cost less than was set aside for it.
            await self.changed()
        else:
            self._use_up(price)
        return None

    def _use_up(self, price: int) -> None:
        """Leave what costs something pending, now that the budget is used up; go on with what is paid."""
        if self._spent is None:
            self._spent = self._budget.why_not(price)
            self._only_free()
        self._front = deque(call for call in self._front if call.is_paid)
        self._later = [entry for entry in self._later if entry[2].is_paid]
        heapq.heapify(self._later)

    async def changed(self, timeout_s: float | None = None) -> None:
        """Wait until a call ended or came back, or for so long."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass

    def back(self, call: Call, delay_s: float = 0.0) -> None:
        """Put a call back that was taken: to the front, or for later."""
        if delay_s > 0:
            heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._order), call))
        else:
            self._front.append(call)
        self.done()

    def add(self, call: Call) -> None:
        """Put a call that is not in the plan to the front."""
        self._front.append(call)
        self._wake()

    def done(self) -> None:
        """Note that a call that was taken is not under way any more."""
        self._out -= 1
        self._wake()

    def stop(self, reason: StopReason, error: SpeechframeError | None = None) -> None:
        """Hand out no more calls; what is under way ends."""
        if self.stopped is None:
            self.stopped, self.stopped_by = reason, error
            self._wake()

    def _next(self) -> Call | None:
        if self._later and self._later[0][0] <= time.monotonic():
            return heapq.heappop(self._later)[2]
        if self._front:
            return self._front.popleft()
        if self._is_read:
            return None
        call = next(self._calls, None)
        self._is_read = call is None
        return call

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
