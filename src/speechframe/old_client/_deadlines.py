"""Time limits of many exchanges at once, over one timer of the loop.

`asyncio.timeout` sets a timer for each block and takes it back at the end, and nearly none of them ever
rings: a batch would do it for every row. Here the loop has one timer, for whoever must end first.
"""

import asyncio
import math
from types import TracebackType


class Deadlines:
    """The limits that are running in a loop.

    Parameters
    ----------
    loop
        The loop; nothing here may be used from another one.
    """

    __slots__ = ("_timer", "loop", "rings_s", "running")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.running: set[Deadline] = set()
        self.rings_s = math.inf
        """When the timer rings, by the clock of the loop."""
        self._timer: asyncio.TimerHandle | None = None

    def set(self, when_s: float) -> None:
        """Let the timer ring at a time, and not when it would have."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.rings_s = self.loop.call_at(when_s, self._ring), when_s

    def close(self) -> None:
        """Take the timer back, unless somebody's limit is still running."""
        if self._timer is not None and not self.running:
            self._timer.cancel()
            self._timer, self.rings_s = None, math.inf

    def _ring(self) -> None:
        self._timer, self.rings_s = None, math.inf
        now_s = self.loop.time()
        for deadline in [one for one in self.running if one.ends_s <= now_s]:
            self.running.discard(deadline)
            deadline.end()
        if self.running:
            self.set(min([one.ends_s for one in self.running]))


class Deadline:
    """A block of the current task that ends with a TimeoutError when it takes longer than it may.

    Parameters
    ----------
    deadlines
        Those of the loop.
    timeout_s
        What the block may take, in seconds from now.

    Examples
    --------
    >>> async def main() -> None:
    ...     with Deadline(Deadlines(asyncio.get_running_loop()), 0.01):
    ...         await asyncio.sleep(5)
    >>> asyncio.run(main())
    Traceback (most recent call last):
    TimeoutError
    """

    __slots__ = ("_all", "_cancelling", "_is_over", "_task", "ends_s")

    def __init__(self, deadlines: Deadlines, timeout_s: float) -> None:
        task = asyncio.current_task(deadlines.loop)
        if task is None:
            raise RuntimeError("a limit is for what a task does")
        self._all = deadlines
        self._task, self._cancelling, self._is_over = task, task.cancelling(), False
        self.ends_s = deadlines.loop.time() + timeout_s

    def __enter__(self) -> None:
        """Begin to watch."""
        self._all.running.add(self)
        if self.ends_s < self._all.rings_s:
            self._all.set(self.ends_s)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no longer, and say so when it took too long; the timer stays, for those that follow."""
        self._all.running.discard(self)
        # As in `asyncio.timeout`: who was cancelled by somebody else as well stays cancelled.
        if self._is_over and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """End the block: its time is up."""
        self._is_over = True
        self._task.cancel()
