"""A loop for work that no request waits for, such as dubbing jobs and webhooks.

The database stores the pieces of work. The loop runs a bounded number of them at the same time.
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine

log = logging.getLogger("speechframe.service")


class Background(ABC):
    """A loop that runs the work which a subclass finds. Only a cancellation ends the loop.

    Parameters
    ----------
    at_once
        Largest number of pieces of work that run at the same time.
    look_s
        Seconds between two searches for work. A search also finds work that another service process left.
    """

    def __init__(self, at_once: int, look_s: float) -> None:
        self._at_once, self._look_s = at_once, look_s
        self._is_woken = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def find_work(self) -> Coroutine[None, None, None] | None:
        """Return a coroutine that does the next piece of work, or None if there is no work now."""

    def wake(self) -> None:
        """Make the loop search for work now."""
        self._is_woken.set()

    async def run(self) -> None:
        """Run the work that :meth:`find_work` returns, until cancelled. Then cancel the work under way."""
        try:
            while True:
                self._is_woken.clear()
                try:
                    while len(self._under_way) < self._at_once and (work := await self.find_work()):
                        task = asyncio.create_task(work)
                        self._under_way.add(task)
                        task.add_done_callback(self._finish_task)
                except Exception:
                    log.exception("the next background work cannot be read; the service tries again")
                # Not wait_for, which before Python 3.12 can overlook a cancellation.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_s):
                        await self._is_woken.wait()
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    def _finish_task(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed; the service tries again later", exc_info=error)
