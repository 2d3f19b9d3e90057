"""Outcomes as they come: one writer, any number of readers, in threads and in event loops."""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice

from speechframe._ending import until_terminated
from speechframe.old_batch.outcome import Outcome

log = logging.getLogger(__name__)

MOST_KEPT = 100_000
"""Outcomes kept for readers that come late or are slow; all of them are in the run's folder."""


class Outcomes:
    """The outcomes of a run in motion, from its first call on; ends with the run.

    Iterate over it with ``for`` or ``async for``; each iteration is a reader of
    its own. The newest 100,000 outcomes are kept for readers that are slow or
    come late; who falls behind further goes on with the oldest that is kept.

    Parameters
    ----------
    most_kept
        Outcomes kept; 0 for a run that nobody can follow.
    loop
        The loop that makes the run: there, only ``async for`` can work.

    Examples
    --------
    >>> from speechframe.old_batch.outcome import Done
    >>> outcomes = Outcomes()
    >>> outcomes.tell(Done("00ff", "7", 1, 1.5, 5000))
    >>> outcomes.close()
    >>> [outcome.row_id for outcome in outcomes]
    ['7']
    """

    def __init__(self, most_kept: int = MOST_KEPT, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.loop = loop
        self.in_order: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self.given_up: Callable[[asyncio.CancelledError], Awaitable[None]] = _let_go
        self._kept: deque[Outcome] = deque(maxlen=most_kept)
        self._told = 0
        self._closed = False
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._iterators = 0
        self._listeners: set[Callable[[], None]] = set()

    @property
    def is_kept(self) -> bool:
        """Whether anything is kept for readers."""
        return bool(self._kept.maxlen)

    def tell(self, outcome: Outcome) -> None:
        """Hand an outcome to every reader."""
        with self._lock:
            self._kept.append(outcome)
            self._told += 1
            # Of most runs nobody follows the outcomes.
            if self._waiting or self._listeners:
                self._wake()

    def close(self) -> None:
        """End every reader, when it has read what is kept."""
        with self._lock:
            self._closed = True
            self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        for listener in self._listeners:
            # A reader's loop may have ended without a word.
            with contextlib.suppress(RuntimeError):
                listener()

    def _read(self, position: int) -> tuple[list[Outcome], int]:
        """Return what is kept from `position` on, and the position after it; under the condition."""
        first = self._told - len(self._kept)
        if position < first:
            log.warning(
                "a reader of outcomes was too slow: %d are only in the run's folder", first - position
            )
        start = max(position - first, 0)
        # From the end: what is new stands there, and the middle of a deque is far from everywhere.
        found = list(islice(reversed(self._kept), len(self._kept) - start))
        return found[::-1], self._told

    def __iter__(self) -> Iterator[Outcome]:
        """Yield each outcome when it comes, waiting for it."""
        if self.loop is not None and is_running_here(self.loop):
            raise RuntimeError("this would block the loop that makes the run: use `async for`")
        position = 0
        with self._changed:
            self._iterators += 1
        try:
            while True:
                if position >= self._told:
                    with self.in_order():
                        self._await(position)
                with self._changed:
                    found, position = self._read(position)
                if not found:
                    return
                yield from found
        finally:
            with self._changed:
                self._iterators -= 1

    def _is_left(self) -> bool:
        return self.loop is not None and self.loop.is_closed()

    def _await(self, position: int) -> None:
        """Wait for what comes after `position`, or for the end."""
        with self._changed:
            while position >= self._told and not self._closed and not self._is_left():
                self._waiting += 1
                try:
                    # With a limit, or Ctrl-C would wait as well.
                    self._changed.wait(0.1)
                finally:
                    self._waiting -= 1

    async def __aiter__(self) -> AsyncIterator[Outcome]:
        """Yield each outcome when it comes, on any event loop."""
        loop, arrived, position = asyncio.get_running_loop(), asyncio.Event(), 0

        def listen() -> None:
            loop.call_soon_threadsafe(arrived.set)

        with self._changed:
            self._listeners.add(listen)
        try:
            while True:
                arrived.clear()
                with self._changed:
                    found, position = self._read(position)
                    closed = self._closed
                for outcome in found:
                    yield outcome
                if not found:
                    if closed:
                        await until_terminated()
                        return
                    try:
                        await arrived.wait()
                    except asyncio.CancelledError as order:
                        await self._cancelled(listen, order)
                        raise
        finally:
            with self._changed:
                self._listeners.discard(listen)

    async def _cancelled(self, listen: Callable[[], None], order: asyncio.CancelledError) -> None:
        with self._changed:
            self._listeners.discard(listen)
            is_followed = bool(self._listeners or self._iterators)
        if not is_followed:
            await self.given_up(order)


async def _let_go(order: asyncio.CancelledError) -> None:
    """Stop nothing."""


def is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether `loop` is the one this very code runs in."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
