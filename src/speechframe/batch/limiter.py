"""Lanes: how many calls may be in flight, and where.

A lane is a key, a region and a pool of the service (section 8: contexts and
streams share one pool, everything else the other). Its cap is fixed here: what
the caller says, else what the service publishes, else the document's default.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from speechframe.batch.retry import delay_s

START_CONCURRENCY = 2
"""Calls in flight where nobody says how many are allowed: the least any region of the document allows."""


@dataclass
class Lane:
    """Permits of one key in one region and pool.

    Parameters
    ----------
    region
        The region's name.
    cap
        Calls in flight at most.
    pool
        ``"other"`` or ``"streaming"``.

    Attributes
    ----------
    in_flight, most_in_flight, refusals
        Counters of calls.
    rests
        Rests in a row, each longer than the one before; 0 after an answer.
    silences
        How many of those in a row came without any answer.
    """

    region: str
    cap: int
    pool: str = "other"
    in_flight: int = 0
    most_in_flight: int = 0
    refusals: int = 0
    rests: int = 0
    silences: int = 0
    _paused_until: float = 0.0
    _rested_at: float = 0.0
    _silent_since: float = 0.0
    _free: asyncio.Semaphore = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.cap < 1:
            raise ValueError(f"a lane needs a cap of at least 1, not {self.cap}")
        self._free = asyncio.Semaphore(self.cap)

    @property
    def name(self) -> str:
        """``region/pool``, as the ``lane`` column says it."""
        return f"{self.region}/{self.pool}"

    @property
    def is_paused(self) -> bool:
        """Whether no call may start now."""
        return self._paused_until > time.monotonic()

    async def ready(self, finished: asyncio.Event) -> bool:
        """Wait until a call may start; False when `finished` was set before."""
        # A loop, because another answer may prolong the pause while this one waits.
        while not finished.is_set() and (left_s := self._paused_until - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await finished.wait()
        return not finished.is_set()

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """Wait for a free place and hold it for one attempt."""
        async with self._free:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            try:
                yield
            finally:
                self.in_flight -= 1

    def pause(self, seconds: float) -> None:
        """Start no call for `seconds`: the service asked for it, or the region is down."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def rest(self, began: float, *, told_s: float | None = None, silent: bool) -> None:
        """Start no call for a while: an attempt found the region down.

        What was in flight with that attempt fails with it; all of them are one rest.

        Parameters
        ----------
        began
            When the attempt began (``time.monotonic()``).
        told_s
            Seconds the service asked for.
        silent
            There was no answer at all.
        """
        if began >= self._rested_at:
            self._rested_at = time.monotonic()
            self.rests += 1
            if silent and not self.silences:
                self._silent_since = began
            self.silences = self.silences + 1 if silent else 0
            self.pause(delay_s(self.rests, told_s=told_s))
        self.pause(told_s or 0.0)

    @property
    def silent_s(self) -> float:
        """Seconds since the first of the attempts that all came to nothing."""
        return time.monotonic() - self._silent_since if self.silences else 0.0

    def answered(self) -> None:
        """Note that the region works."""
        self.rests = self.silences = 0
