"""The calls of a run: those put back, those whose delay is over, then the plan's, read as needed."""

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from speechframe.batch.backend import Request
from speechframe.batch.budget import Budget
from speechframe.errors import SpeechframeError
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
    began: float | None = None  # monotonic time of the first attempt
    retakes: int = 0  # how many takes before this one were suspect


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
    stopped, stopped_by
        Why no more calls are handed out, and the error behind it; None while they are.
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
        call = self._next()
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
        if self._out:
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
        event = self._changed
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()

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
        if self.stopped is not None:
            return None
        if self._later and self._later[0][0] <= time.monotonic():
            return heapq.heappop(self._later)[2]
        if self._front:
            return self._front.popleft()
        call = None if self._is_read else next(self._calls, None)
        self._is_read = call is None
        return call

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
