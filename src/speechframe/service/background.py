"""What a service does by itself: work that stands in the database, so much at once as there is room for."""

import asyncio
import contextlib
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Coroutine

log = logging.getLogger("speechframe.service")


class Background(ABC):
    """Does what a subclass finds to do.

    Parameters
    ----------
    at_once
        How much of it may be under way.
    look_s
        How often it is looked for what nobody told of, such as what another service process left.
    """

    def __init__(self, at_once: int, look_s: float) -> None:
        self._at_once, self._look_s = at_once, look_s
        self._told = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def take(self) -> Coroutine[None, None, None] | None:
        """Return what is next to be done; None where there is nothing."""

    def wake(self) -> None:
        """Say that there may be something to do."""
        self._told.set()

    async def run(self) -> None:
        """Work for ever; cancelled, what is under way is cancelled as well."""
        try:
            while True:
                self._told.clear()
                try:
                    while len(self._under_way) < self._at_once and (work := await self.take()):
                        task = asyncio.create_task(work)
                        self._under_way.add(task)
                        task.add_done_callback(self._done)
                except sqlite3.Error:
                    log.exception("it cannot be read what is to be done; this is tried again")
                # Not wait_for, which before Python 3.12 can overlook that it is cancelled.
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
            log.error("work could not be brought to its end; it is tried again later", exc_info=error)
