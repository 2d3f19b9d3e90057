"""The row queue: a lazy source, refused rows at the front, failed ones again when they are due."""

import asyncio
import contextlib
import heapq
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

STILL_S = 30.0
"""How long a run whose limit has ended goes on without any outcome, for calls that are paid for: a resume
delivers them, too."""

MOST_WAITING = 1000
"""Jobs that may wait to be due; then no new ones are read: a service that only fails must not fill memory."""


class RowQueue(Generic[T]):
    """Hands out jobs one by one; memory does not grow with the source.

    A job that is handed out is *open* until :meth:`done`, :meth:`front`,
    :meth:`later` or :meth:`hold` is called for it. :meth:`take` never waits; when
    it gives None and `finished` is not set, open jobs may still come back, and
    :meth:`changed` waits for that.

    Parameters
    ----------
    source
        Jobs in order; read only as fast as they are asked for.

    Attributes
    ----------
    finished
        Set when no job can come any more.
    """

    def __init__(self, source: Iterator[T]) -> None:
        self._source = source
        self._front: deque[T] = deque()
        self._later: list[tuple[float, int, T]] = []
        self._held: deque[T] = deque()
        self._new: list[T] = []
        self._order = itertools.count()
        self._open = 0
        self._closed = False
        self._done_at = -math.inf
        self._changed = asyncio.Event()
        self.finished = asyncio.Event()

    def take(self) -> T | None:
        """Return the next job, None when there is none now."""
        job = None if self._closed else self._ready()
        if job is not None:
            self._open += 1
        elif self._closed or not (self._later or self._held or self._open):
            self.finished.set()
            self._changed.set()
        return job

    def _ready(self) -> T | None:
        if self._new:
            return self._new.pop()
        if self._front:
            return self._front.popleft()
        if self._later and self._later[0][0] <= time.monotonic():
            return heapq.heappop(self._later)[2]
        # New jobs would end up waiting like these: the source is not emptied into memory.
        if self._held or len(self._later) >= MOST_WAITING:
            return None
        return next(self._source, None)

    async def changed(self) -> None:
        """Wait until another :meth:`take` may give more than the last one."""
        if self.finished.is_set():
            return
        self._changed.clear()
        timeout_s = self._later[0][0] - time.monotonic() if self._later else None
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            pass

    def done(self) -> None:
        """Close one open job for good."""
        self._done_at = time.monotonic()
        self._back()

    def _back(self) -> None:
        self._open -= 1
        self._changed.set()

    def front(self, job: T) -> None:
        """Put an open job back before all others."""
        self._front.appendleft(job)
        self._back()

    def split(self, jobs: Sequence[T]) -> None:
        """Put other jobs in the place of an open one, before all others."""
        self._front.extendleft(reversed(jobs))
        self._back()

    def later(self, job: T, delay_s: float) -> None:
        """Put an open job back, due in `delay_s` seconds."""
        heapq.heappush(self._later, (time.monotonic() + delay_s, next(self._order), job))
        self._back()

    def prefer_new(self) -> bool:
        """Hand out a new job of the source next, before all that came back; False where there is none."""
        self._new.extend(itertools.islice(self._source, 1))
        return bool(self._new)

    def hold(self, job: T) -> None:
        """Put an open job aside until :meth:`release`; until then only jobs that come back are handed out."""
        self._held.append(job)
        self._back()

    def release(self) -> None:
        """Hand out what is on hold before all others."""
        if self._held:
            self._front.extendleft(reversed(self._held))
            self._held.clear()
            self._changed.set()

    def close(self) -> None:
        """Hand out nothing more; whoever waits is woken, and takes None."""
        self._closed = True
        self.finished.set()
        self._changed.set()

    @contextlib.contextmanager
    def closing(self, still_s: float) -> Iterator[None]:
        """Close within the block, when no job has been done for `still_s` seconds."""
        began, loop = time.monotonic(), asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None

        def look() -> None:
            nonlocal timer
            left_s = max(began, self._done_at) + still_s - time.monotonic()
            if left_s <= 0:
                self.close()
            else:
                timer = loop.call_later(left_s, look)

        timer = loop.call_later(still_s, look)
        try:
            yield
        finally:
            timer.cancel()

    def reopen(self, is_wanted: Callable[[T], bool], *, within_s: float = math.inf) -> list[T]:
        """Hand out again what `is_wanted`, now that the queue is closed and no job open; return what is not.

        Nor is what comes due later than `within_s` seconds from now. What the source has that is not wanted
        is passed over, and not returned. Where nothing is wanted, the queue stays closed.
        """
        queued, latest = [*self._front, *self._held], time.monotonic() + within_s

        def comes_soon(entry: tuple[float, int, T]) -> bool:
            return entry[0] <= latest and is_wanted(entry[2])

        left = [job for job in queued if not is_wanted(job)]
        left += [entry[2] for entry in self._later if not comes_soon(entry)]
        self._source = filter(is_wanted, itertools.chain(self._new, self._source))
        self._new = []
        self._front = deque(filter(is_wanted, queued))
        self._later = list(filter(comes_soon, self._later))
        heapq.heapify(self._later)
        self._held.clear()
        if not (self._front or self._later):
            self._front.extend(itertools.islice(self._source, 1))
        if self._front or self._later:
            self._closed = False
            self.finished.clear()
        return left

    def waiting(self) -> list[T]:
        """Return the jobs that came back and were not handed out again."""
        return [*self._front, *self._held, *(job for _, _, job in self._later)]
