"""Handle SIGTERM during runs: calls in flight get eight seconds to finish, then the process ends.

A live run is registered here from its beginning to its end, so the signal handler finds the run at any time.
If the program ends in another way, the next process still finds all answers that were paid.
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
"""Time in seconds that calls in flight get after SIGTERM. Containers are killed ten seconds after SIGTERM."""

_WAIT_STEP_S = 0.1
"""Length in seconds of the steps in which the main thread waits."""


class Terminated(SystemExit):
    """Exception that ends the process after SIGTERM, once live runs have stopped in good order."""


class Unfinished(Protocol):
    """Work in the event loop `loop`, such as a live run. It has ended once the future `ended` is done."""

    loop: asyncio.AbstractEventLoop
    ended: "Future[None]"

    def end(self, *, drain: bool) -> None:
        """Begin no more calls. Let calls in flight finish if `drain` is True, otherwise cancel them.

        Any thread may call this method.
        """


_unfinished: set[Unfinished] = set()
"""All registered work."""
_endings: dict[asyncio.AbstractEventLoop, "asyncio.Task[None]"] = {}
"""For each event loop that SIGTERM interrupted, the task that ends its work."""
_blocks: list[None] = []
"""One entry for each open :func:`raise_on_sigterm` of the main thread."""


def register_work(work: Unfinished) -> None:
    """Register `work`, so that SIGTERM ends it in good order."""
    _unfinished.add(work)
    if _is_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _handle_sigterm)


def unregister_work(work: Unfinished) -> None:
    """Remove `work`, which has ended, from the registered work."""
    _unfinished.discard(work)
    _restore_default_handler()


@contextlib.contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Raise :class:`Terminated` on SIGTERM within the block.

    This has no effect outside the main thread, or if the program has its own handler of SIGTERM.
    """
    if not _is_main_thread() or signal.getsignal(signal.SIGTERM) not in {signal.SIG_DFL, _handle_sigterm}:
        yield
        return
    signal.signal(signal.SIGTERM, _handle_sigterm)
    _blocks.append(None)
    try:
        yield
    finally:
        _blocks.pop()
        _restore_default_handler()


def wait_for_ends(futures: Collection["Future[Any]"], limit_s: float | None = None) -> bool:
    """Wait until all futures are done, for at most `limit_s` seconds. Return whether all are done."""
    end = None if limit_s is None else time.monotonic() + limit_s
    # Wait in short steps, because on some platforms Ctrl-C cannot end a wait without a time limit.
    while (left := wait(futures, timeout=_WAIT_STEP_S).not_done) and (end is None or time.monotonic() < end):
        pass
    return not left


def end_in_order(works: Collection[Unfinished], limit_s: float | None) -> None:
    """End all `works` and wait for their ends. After `limit_s` seconds or Ctrl-C, cancel calls in flight.

    Then wait for at most `limit_s` seconds again. A second Ctrl-C ends this wait. None means no limit.
    """
    futures = [work.ended for work in works]
    for work in works:
        work.end(drain=True)
    with contextlib.suppress(KeyboardInterrupt):
        if wait_for_ends(futures, limit_s):
            return
    for work in works:
        work.end(drain=False)
    wait_for_ends(futures, limit_s)


async def wait_until_terminated() -> None:
    """Wait for the end of the program if SIGTERM is ending it. Otherwise return at once.

    Without this wait, code that waits for a run would continue as if the run had ended normally.
    """
    if (ending := _endings.get(asyncio.get_running_loop())) is not None:
        await asyncio.wait({ending})


def get_running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _restore_default_handler() -> None:
    is_wanted = _blocks or _unfinished
    if not is_wanted and _is_main_thread() and signal.getsignal(signal.SIGTERM) is _handle_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _handle_sigterm(number: int, _: FrameType | None) -> None:
    works, termination, loop = tuple(_unfinished), Terminated(128 + number), get_running_loop()
    if _blocks:
        raise termination
    if not works:
        # The last work ended in another thread, and only the main thread can restore the default handler. Do
        # so now, and let the default handler end the process.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    elif loop is not None and any(work.loop is loop for work in works):
        # Do not raise here, because an exception would end the event loop, which calls in flight need.
        for work in works:
            work.end(drain=True)
        loop.call_soon_threadsafe(_end_in_thread, loop, works, termination)
    else:
        end_in_order(works, TERM_DRAIN_S)
        raise termination


def _end_in_thread(
    loop: asyncio.AbstractEventLoop, works: Collection[Unfinished], termination: Terminated
) -> None:
    """End `works` in a thread while their loop continues. Then raise `termination` out of the loop."""

    async def end_all() -> None:
        # Use a new thread, because all threads of the loop's own pool may be busy.
        await loop.run_in_executor(ThreadPoolExecutor(1), end_in_order, works, TERM_DRAIN_S)

    def leave_loop(_: object) -> None:
        del _endings[loop]
        raise termination

    if loop not in _endings:
        _endings[loop] = loop.create_task(end_all(), name="speechframe-ending")
        _endings[loop].add_done_callback(leave_loop)


def _forget_after_fork() -> None:
    # The registered work belongs to the parent process, not to the forked child.
    for held in (_blocks, _unfinished, _endings):
        held.clear()
    # A child that waits for a lock of a thread which the fork left behind could not run our handler.
    if signal.getsignal(signal.SIGTERM) is _handle_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget_after_fork)
