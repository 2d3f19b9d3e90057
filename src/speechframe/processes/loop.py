"""Run asynchronous code for synchronous callers.

The code runs on one event loop in one background thread. So the same function works in a script, in a
notebook (which runs an event loop of its own) and inside an asynchronous program.
"""

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, ParamSpec, TypeVar

from speechframe.processes import ending
from speechframe.processes.ending import Terminated, get_running_loop, raise_on_sigterm, wait_for_ends

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPT_MESSAGE = "interrupted from the keyboard"
"""Message of the cancellation after Ctrl-C. A coroutine that is cancelled with this message may return its
results so far."""

_MAX_PATIENT_INTERRUPTS = 2
"""Number of signals after which :func:`run_sync` still waits for the end of its coroutine."""


class _LoopThread:
    """Holder of the background event loop, which is created at the first use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None


_LOOP_THREAD = _LoopThread()


def _renew_after_fork() -> None:
    # A forked child inherits this object, but not the thread that runs the loop. So create a new object.
    global _LOOP_THREAD  # noqa: PLW0603 - the lock may have been held by a thread that no longer exists
    _LOOP_THREAD = _LoopThread()


os.register_at_fork(after_in_child=_renew_after_fork)


def get_background_loop() -> asyncio.AbstractEventLoop:
    """Return the background event loop. Start it in a daemon thread if it does not run yet."""
    with _LOOP_THREAD.lock:
        if _LOOP_THREAD.loop is None or _LOOP_THREAD.loop.is_closed():
            _LOOP_THREAD.loop = asyncio.new_event_loop()
            threading.Thread(
                target=_LOOP_THREAD.loop.run_forever, name="speechframe-loop", daemon=True
            ).start()
        return _LOOP_THREAD.loop


def start_in_background(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Start `coroutine` on the background loop and return a future of its result at once."""
    return asyncio.run_coroutine_threadsafe(coroutine, get_background_loop())


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` to its end on the background loop and return its result.

    After Ctrl-C the coroutine is cancelled, and this function **waits until the coroutine has finished**. So
    its files are complete when ``KeyboardInterrupt`` is raised. If the coroutine returns a result in spite of
    its cancellation, as a run that stops in good order does, this function returns the result. A second
    Ctrl-C cancels again. A third Ctrl-C ends the wait. SIGTERM also cancels the coroutine, and cancels it
    again after :data:`speechframe.processes.ending.TERM_DRAIN_S` seconds. The process then ends with exit
    code 143.

    Raises
    ------
    RuntimeError
        If the caller runs in the thread of the background loop, because the thread would wait for itself.
    """
    loop = get_background_loop()
    if get_running_loop() is loop:
        coroutine.close()
        raise RuntimeError(
            "a synchronous call was made from speechframe's own loop. Await the async version."
        )
    tasks: list[asyncio.Task[T]] = []
    done: Future[T] = Future()

    def start() -> None:
        if not tasks:
            tasks.append(loop.create_task(coroutine))
            tasks[0].add_done_callback(functools.partial(_copy_result, done))

    def cancel() -> None:
        start()
        tasks[0].cancel(INTERRUPT_MESSAGE)

    with raise_on_sigterm():
        return _wait_for_result(loop, start, cancel, done)


def _wait_for_result(
    loop: asyncio.AbstractEventLoop,
    start: Callable[[], None],
    cancel: Callable[[], None],
    done: "Future[T]",
) -> T:
    """Return the result of the task that `start` begins. A signal cancels the task and waits for its end."""
    interrupts, ends = 0, None
    while True:
        try:
            # Start the task inside the try block, because Ctrl-C may come between the start and the wait.
            loop.call_soon_threadsafe(start)
            wait_for_ends([done])
            result = done.result()
        except (KeyboardInterrupt, Terminated) as interrupt:
            interrupts += 1
            if interrupts > _MAX_PATIENT_INTERRUPTS:
                raise
            loop.call_soon_threadsafe(cancel)
            if isinstance(interrupt, Terminated):
                ends = interrupt
                # The sender of SIGTERM will soon kill the process, so cancel again after this time.
                loop.call_soon_threadsafe(loop.call_later, ending.TERM_DRAIN_S, cancel)
        except (asyncio.CancelledError, CancelledError):
            if not interrupts:
                raise
            raise ends or KeyboardInterrupt from None
        else:
            if ends is not None:
                raise ends
            return result


def _copy_result(done: "Future[T]", task: "asyncio.Task[T]") -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def make_sync(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a synchronous version of an async function, with the same signature and docstring."""

    @functools.wraps(function)
    def call_sync(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_sync(function(*args, **kwargs))

    # With `__wrapped__`, inspect.iscoroutinefunction returns True, and notebooks offer to await the function.
    del call_sync.__wrapped__
    call_sync.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return call_sync
