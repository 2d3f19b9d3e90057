"""Work that the service does by itself: the database contains it, and some of it is under way at once."""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine

log = logging.getLogger("speechframe.service")


class Background(ABC):
    """A loop that does the work which a subclass finds. No error ends the loop.

    Parameters
    ----------
    at_once
        Largest number of works under way.
    look_s
        Seconds between two searches for work. Another service process may have left some.
    """

    def __init__(self, at_once: int, look_s: float) -> None:
        self._at_once, self._look_s = at_once, look_s
        self._told = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def take(self) -> Coroutine[None, None, None] | None:
        """Return the next work, or None."""

    def wake(self) -> None:
        """Have the loop search for work at once."""
        self._told.set()

    async def run(self) -> None:
        """Work until cancelled, and then cancel the works under way."""
        try:
            while True:
                self._told.clear()
                try:
                    while len(self._under_way) < self._at_once and (work := await self.take()):
                        task = asyncio.create_task(work)
                        self._under_way.add(task)
                        task.add_done_callback(self._done)
                except Exception:
                    log.exception("the next work cannot be read; the service tries again")
                # Not wait_for, which before Python 3.12 can overlook a cancellation.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_s):
                        await self._told.wait()
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a work in the background failed; the service tries again later", exc_info=error)
