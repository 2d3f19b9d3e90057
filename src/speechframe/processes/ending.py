"""SIGTERM while runs are live: calls in flight get eight seconds to finish, then the process ends.

A live run is held here from its beginning to its end, so that the handler of the signal finds it wherever
the main thread is. Where a program ends in any other way, the next process finds everything that was paid.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, Protocol

TERM_DRAIN_S = 8.0
"""Seconds calls in flight are given after SIGTERM: containers are killed ten seconds after it."""

_WAKE_S = 0.1


class Terminated(SystemExit):
    """SIGTERM came; the process ends when live runs have stopped in good order."""


class Unfinished(Protocol):
    """Work that goes on in an event loop, until `ended` is done, after the call that began it."""

    loop: asyncio.AbstractEventLoop
    ended: "Future[None]"

    def end(self, *, drain: bool) -> None:
        """Begin nothing more; what is in flight finishes, or (no `drain`) is cancelled. From any thread."""


_unfinished: set[Unfinished] = set()
_endings: dict[asyncio.AbstractEventLoop, "asyncio.Task[None]"] = {}
_blocks: list[None] = []
"""One entry for each :func:`gentle_termination` that the main thread is in."""


def hold(work: Unfinished) -> None:
    """Let SIGTERM end `work` in good order, until it is released."""
    _unfinished.add(work)
    if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def release(work: Unfinished) -> None:
    """Forget work that has ended."""
    _unfinished.discard(work)
    _restore_default()


@contextlib.contextmanager
def gentle_termination() -> Iterator[None]:
    """Raise :class:`Terminated` at SIGTERM during the block, where nobody else handles that signal."""
    if not _is_main() or signal.getsignal(signal.SIGTERM) not in {signal.SIG_DFL, _terminated}:
        yield
        return
    signal.signal(signal.SIGTERM, _terminated)
    _blocks.append(None)
    try:
        yield
    finally:
        _blocks.pop()
        _restore_default()


def have_ended(futures: Collection["Future[Any]"], limit_s: float | None = None) -> bool:
    """Wait until all are done, for `limit_s` at most, and return whether they are."""
    end = None if limit_s is None else time.monotonic() + limit_s
    # Short waits: a lock held without a time limit would keep Ctrl-C waiting on some platforms.
    while (left := wait(futures, timeout=_WAKE_S).not_done) and (end is None or time.monotonic() < end):
        pass
    return not left


def end_in_order(works: Collection[Unfinished], limit_s: float | None) -> None:
    """End `works` and wait: what is in flight finishes, until `limit_s` or Ctrl-C; then it is cancelled.

    As long again is waited for the end of what was cancelled. A second Ctrl-C waits for nothing.
    """
    futures = [work.ended for work in works]
    for work in works:
        work.end(drain=True)
    with contextlib.suppress(KeyboardInterrupt):
        if have_ended(futures, limit_s):
            return
    for work in works:
        work.end(drain=False)
    have_ended(futures, limit_s)


async def until_terminated() -> None:
    """Wait for the end of the program, where SIGTERM has begun it; otherwise return at once.

    Whoever waits for a run would go on as if the run had ended by itself.
    """
    if (ending := _endings.get(asyncio.get_running_loop())) is not None:
        await asyncio.wait({ending})


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop in which this very code runs, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _restore_default() -> None:
    is_wanted = _blocks or _unfinished
    if not is_wanted and _is_main() and signal.getsignal(signal.SIGTERM) is _terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(number: int, _: FrameType | None) -> None:
    works, order, loop = tuple(_unfinished), Terminated(128 + number), running_loop()
    if _blocks:
        raise order
    if not works:
        # Left from work that has ended since, in a thread that cannot restore the default.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    elif loop is not None and any(work.loop is loop for work in works):
        # Raised here, it would end the event loop that calls in flight need.
        for work in works:
            work.end(drain=True)
        loop.call_soon_threadsafe(_end_beside, loop, works, order)
    else:
        end_in_order(works, TERM_DRAIN_S)
        raise order


def _end_beside(loop: asyncio.AbstractEventLoop, works: Collection[Unfinished], order: Terminated) -> None:
    """End `works` in a thread, since their loop goes on meanwhile; then raise `order` out of the loop."""

    async def end() -> None:
        # A thread of its own: those of the loop may all be busy.
        await loop.run_in_executor(ThreadPoolExecutor(1), end_in_order, works, TERM_DRAIN_S)

    def leave(_: object) -> None:
        del _endings[loop]
        raise order

    if loop not in _endings:
        _endings[loop] = loop.create_task(end(), name="speechframe-ending")
        _endings[loop].add_done_callback(leave)


def _after_fork() -> None:
    # What is under way is the parent's.
    for held in (_blocks, _unfinished, _endings):
        held.clear()


os.register_at_fork(after_in_child=_after_fork)
