"""How a program ends while work is under way that must not be cut off: SIGTERM, and the interpreter's end.

Work that outlives the call that began it (a live run) is held here from its
beginning to its end. Then SIGTERM ends it in good order wherever the main
thread is, and so does the end of the program, or of the loop it is done in.
"""

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401 - its own end must be registered before ours
import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from types import FrameType
from typing import Protocol

from speechframe._lasting import LastingTask

TERM_DRAIN_S = 8.0
"""Seconds calls in flight are given after SIGTERM: containers are killed ten seconds after it."""

_WAKE_S = 0.1


class Terminated(SystemExit):
    """SIGTERM came while a verb was at work; the process ends when the verb has stopped in good order."""


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
    """Let `work` be ended in good order, however the program ends, until it is released."""
    _unfinished.add(work)
    if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def release(work: Unfinished) -> None:
    """Let go of work that has ended."""
    _unfinished.discard(work)
    _let_go()
    if not any(other.loop is work.loop for other in tuple(_unfinished)):
        _let_go_of_ctrl_c()


def end_in_order(works: Collection[Unfinished], limit_s: float | None) -> None:
    """End `works` and wait: what is in flight finishes, until `limit_s` or Ctrl-C; then it is cancelled.

    Parameters
    ----------
    works
        What is to end.
    limit_s
        Seconds, None for no limit. Once more as long is waited for the end of what was cancelled.

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
    if not _have_ended(works, limit_s):
        _give_up(works)


def _give_up(works: Collection[Unfinished]) -> None:
    """Let go of what its limit could not end: the end of the program must not wait for it once more."""
    for work in works:
        if not work.ended.done():
            release(work)


def _have_ended(works: Collection[Unfinished], limit_s: float | None) -> bool:
    end = None if limit_s is None else time.monotonic() + limit_s
    left = {work.ended for work in works}
    while left and (end is None or time.monotonic() < end):
        # Short waits: a lock held without a time limit would keep Ctrl-C waiting on some platforms.
        left = wait_for(left, timeout=_WAKE_S).not_done
    return not left


# -- SIGTERM -------------------------------------------------------------------------


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
        _let_go()


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _let_go() -> None:
    if _blocks or _unfinished or not _is_main():
        return
    if signal.getsignal(signal.SIGTERM) is _terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminated(number: int, frame: FrameType | None) -> None:
    del frame
    works = tuple(_unfinished)
    if not _blocks and not works:
        # Left from work that has ended since, in a thread that cannot take it away.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        return
    # Whatever becomes of the exception: a notebook's kernel survives it.
    for work in works:
        work.end(drain=True)
    order, loop = Terminated(128 + number), _running_loop()
    if loop is not None and not _blocks and any(work.loop is loop for work in works):
        # Raised here, it would end the very loop that the calls in flight need.
        loop.call_soon_threadsafe(_end_here, loop, order, works, (True, False))
    else:
        raise order


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _end_here(
    loop: asyncio.AbstractEventLoop, order: BaseException, works: Collection[Unfinished], ways: Sequence[bool]
) -> None:
    if loop not in _endings:
        # It lasts: a program that returns while it waits would else be ended below the calls in flight.
        _endings[loop] = task = LastingTask(_end_all(works, ways), name="speechframe-ending")
        task.add_done_callback(functools.partial(_raise, loop, order))


async def _end_all(unfinished: Collection[Unfinished], ways: Sequence[bool]) -> None:
    works = {asyncio.wrap_future(work.ended): work for work in unfinished}
    left = set(works)
    for drain in ways:
        for future in left:
            works[future].end(drain=drain)
        if left:
            _, left = await asyncio.wait(left, timeout=TERM_DRAIN_S)
    _give_up([works[future] for future in left])
    for future in works.keys() - left:
        # Who waits for the work is told of its error, nobody needs to be told here.
        future.exception()


def _raise(loop: asyncio.AbstractEventLoop, order: BaseException, task: "asyncio.Task[None]") -> None:
    del task
    _endings.pop(loop, None)
    raise order


async def until_terminated() -> None:
    """Wait for the end of the program, where SIGTERM has begun it; else return at once.

    Whoever waited for work that ended for this reason would go on as if it had ended by itself.
    """
    ending = _endings.get(asyncio.get_running_loop())
    if ending is not None:
        await asyncio.wait({ending})


# -- the end of a loop ---------------------------------------------------------------


def heed_ctrl_c() -> None:
    """Let Ctrl-C cancel what is in flight, and be raised after that, until all work has ended.

    A loop that is being ended would be left in the middle of it.
    """
    if _is_main() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    del frame
    # Another one waits for nothing.
    signal.signal(number, signal.default_int_handler)
    loop = _running_loop()
    works = tuple(work for work in tuple(_unfinished) if work.loop is loop)
    if loop is None or not works:
        raise KeyboardInterrupt
    loop.call_soon_threadsafe(_end_here, loop, KeyboardInterrupt(), works, (False,))


def _let_go_of_ctrl_c() -> None:
    if _is_main() and signal.getsignal(signal.SIGINT) is _interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# -- the interpreter's end -------------------------------------------------------------


def end_unfinished() -> None:
    """End what is under way, for the interpreter ends; says so in one line, and nothing where nothing is."""
    # Of a loop that stands still nothing can be ended.
    works = [work for work in tuple(_unfinished) if work.loop.is_running() and not work.ended.done()]
    if not works:
        return
    say_live(works)
    is_ours = _is_main() and signal.getsignal(signal.SIGTERM) in {signal.SIG_DFL, _terminated}
    if is_ours:
        # It comes to an end anyway, and within the same limit.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        end_in_order(works, TERM_DRAIN_S)
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def say_live(works: Collection[Unfinished]) -> None:
    """Say in one line what a program that ends still waits for."""
    names, runs = (
        ", ".join(sorted(map(str, works))),
        "1 run is" if len(works) == 1 else f"{len(works)} runs are",
    )
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(
            f"speechframe: the program ends while {runs} live; what is in flight has {TERM_DRAIN_S:.0f} s to "
            f"finish, resume() makes the rest: {names}\n"
        )
        sys.stderr.flush()


def _after_fork() -> None:
    global _blocks  # noqa: PLW0603 - as above
    # What is under way is the parent's.
    _blocks = 0
    _unfinished.clear()
    _endings.clear()


os.register_at_fork(after_in_child=_after_fork)

# `atexit` would come too late: by then threads take no work, and a run that ends writes in threads.
getattr(threading, "_register_atexit", atexit.register)(end_unfinished)
