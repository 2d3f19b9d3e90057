"""SIGTERM while runs are live: calls in flight get eight seconds to finish, then the process ends.

A live run is held here from its beginning to its end, so that the handler of the signal finds it wherever
the main thread is. Where a program ends in any other way, the next process finds everything that was paid.
"""

import asyncio
import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from types import FrameType
from typing import Protocol

TERM_DRAIN_S = 8.0
"""Seconds calls in flight are given after SIGTERM: containers are killed ten seconds after it."""

_WAKE_S = 0.1


class Terminated(SystemExit):
    """SIGTERM came; the process ends when live runs have stopped in good order."""


class Unfinished(Protocol):
    """Work that goes on in an event loop after the call that began it.

    Attributes
    ----------
    loop
        Where it is done.
    ended
        Done when it has ended.
    """

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def ended(self) -> "Future[None]": ...

    def end(self, *, drain: bool) -> None:
        """Begin nothing more; what is in flight finishes, or (no `drain`) is cancelled. From any thread."""


_unfinished: set[Unfinished] = set()
_endings: dict[asyncio.AbstractEventLoop, "asyncio.Task[None]"] = {}
_blocks = 0


def hold(work: Unfinished) -> None:
    """Let SIGTERM end `work` in good order, until it is released."""
    _unfinished.add(work)
    if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def release(work: Unfinished) -> None:
    """Forget work that has ended."""
    _unfinished.discard(work)
    _restore_default()


def end_in_order(works: Collection[Unfinished], limit_s: float | None) -> None:
    """End `works` and wait: what is in flight finishes, until `limit_s` or Ctrl-C; then it is cancelled.

    Parameters
    ----------
    works
        What is to end.
    limit_s
        Seconds, None for no limit. As long again is waited for the end of what was cancelled.

    Raises
    ------
    KeyboardInterrupt
        At a second Ctrl-C, which waits for nothing.
    """
    for work in works:
        work.end(drain=True)
    with contextlib.suppress(KeyboardInterrupt):
        if _have_ended(works, limit_s):
            return
    for work in works:
        work.end(drain=False)
    _have_ended(works, limit_s)


def _have_ended(works: Collection[Unfinished], limit_s: float | None) -> bool:
    end = None if limit_s is None else time.monotonic() + limit_s
    left = {work.ended for work in works}
    while left and (end is None or time.monotonic() < end):
        # Short waits: a lock held without a time limit would keep Ctrl-C waiting on some platforms.
        left = wait_for(left, timeout=_WAKE_S).not_done
    return not left


@contextlib.contextmanager
def gentle_termination() -> Iterator[None]:
    """Raise :class:`Terminated` at SIGTERM during the block, where nobody else handles that signal."""
    global _blocks  # noqa: PLW0603 - as the handler of a signal is one of the process
    if not _is_main() or signal.getsignal(signal.SIGTERM) not in {signal.SIG_DFL, _terminated}:
        yield
        return
    signal.signal(signal.SIGTERM, _terminated)
    _blocks += 1
    try:
        yield
    finally:
        _blocks -= 1
        _restore_default()


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _restore_default() -> None:
    if _blocks or _unfinished or not _is_main():
        return
    if signal.getsignal(signal.SIGTERM) is _terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(number: int, frame: FrameType | None) -> None:
    del frame
    works = tuple(_unfinished)
    if not _blocks and not works:
        # Left from work that has ended since, in a thread that cannot restore the default.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        return
    order, loop = Terminated(128 + number), _running_loop()
    if loop is not None and not _blocks and any(work.loop is loop for work in works):
        # Raised here, it would end the event loop that calls in flight need.
        for work in works:
            work.end(drain=True)
        loop.call_soon_threadsafe(_end_here, loop, order, works)
        return
    if not _blocks:
        end_in_order(works, TERM_DRAIN_S)
    raise order


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _end_here(loop: asyncio.AbstractEventLoop, order: BaseException, works: Collection[Unfinished]) -> None:
    if loop not in _endings:
        _endings[loop] = task = loop.create_task(_end_all(works), name="speechframe-ending")
        task.add_done_callback(functools.partial(_raise, loop, order))


async def _end_all(unfinished: Collection[Unfinished]) -> None:
    works = {asyncio.wrap_future(work.ended): work for work in unfinished}
    left = set(works)
    for drain in (True, False):
        for future in left:
            works[future].end(drain=drain)
        if left:
            _, left = await asyncio.wait(left, timeout=TERM_DRAIN_S)
    for future in works.keys() - left:
        # Whoever waits for the work is told of its error; without this line asyncio would report it as well.
        future.exception()


def _raise(loop: asyncio.AbstractEventLoop, order: BaseException, task: "asyncio.Task[None]") -> None:
    del task
    _endings.pop(loop, None)
    raise order


async def until_terminated() -> None:
    """Wait for the end of the program, where SIGTERM has begun it; otherwise return at once.

    Whoever waits for a run would go on as if the run had ended by itself.
    """
    ending = _endings.get(asyncio.get_running_loop())
    if ending is not None:
        await asyncio.wait({ending})


def _after_fork() -> None:
    global _blocks  # noqa: PLW0603 - as above
    # What is under way is the parent's.
    _blocks = 0
    _unfinished.clear()
    _endings.clear()


os.register_at_fork(after_in_child=_after_fork)
