"""The one bridge between synchronous callers and asynchronous code.

Everything asynchronous runs on one event loop in one background thread, so the
same function works in a script, in a notebook cell (whose own loop is running)
and inside an asynchronous program. ``sync`` verbs and widget callbacks come
through here and nowhere else.
"""

import asyncio
import functools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, ParamSpec, TypeVar

from speechframe import _ending
from speechframe._ending import Terminated, gentle_termination

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPT = "interrupted from the keyboard"
"""The message of the cancellation that Ctrl-C causes: a verb that sees it returns what it has."""

_WAKE_S = 0.1
_PATIENT_INTERRUPTS = 2


class _LoopThread:
    """An event loop in a daemon thread, made on first use and made anew after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._loop.is_closed():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="speechframe-loop", daemon=True
                )
                self._thread.start()
            return self._loop

    def is_current(self) -> bool:
        return self._thread is not None and threading.current_thread() is self._thread


_LOOP = _LoopThread()


def _after_fork() -> None:
    # A forked child inherits the object, but not the thread that runs the loop.
    global _LOOP  # noqa: PLW0603 - the lock may have been held by a thread that no longer exists
    _LOOP = _LoopThread()


os.register_at_fork(after_in_child=_after_fork)


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the package's event loop, running in its own thread."""
    return _LOOP.loop()


def submit(coroutine: Coroutine[Any, Any, T]) -> Future[T]:
    """Start `coroutine` on the background loop and return its future at once."""
    return asyncio.run_coroutine_threadsafe(coroutine, background_loop())


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` to its end on the background loop and return its result.

    Ctrl-C cancels the coroutine and **waits for its finish** before
    ``KeyboardInterrupt`` is raised, so that what it was writing is whole. A
    coroutine that answers its cancellation with a result (a run that stops in
    good order does) has that result returned instead. A second Ctrl-C cancels
    once more, a third does not wait. SIGTERM does the same, cancels once more
    after :data:`speechframe._ending.TERM_DRAIN_S`, and then ends the process with exit code 143.

    Raises
    ------
    RuntimeError
        When called from the background loop's own thread, which would wait for itself.
    """
    if _LOOP.is_current():
        coroutine.close()
        raise RuntimeError("a synchronous call was made from speechframe's own loop; await its async twin")
    loop = background_loop()
    started: Future[asyncio.Task[T]] = Future()
    done: Future[T] = Future()

    def start() -> None:
        if started.done():
            return
        task = loop.create_task(coroutine)
        task.add_done_callback(functools.partial(_copy, done))
        started.set_result(task)

    with gentle_termination():
        return _through(loop, start, started, done)


def _through(
    loop: asyncio.AbstractEventLoop,
    start: Callable[[], None],
    started: "Future[asyncio.Task[T]]",
    done: "Future[T]",
) -> T:
    interrupts, asked = 0, False
    ends: Terminated | None = None
    while True:
        try:
            if not asked:
                # Inside the block: Ctrl-C may come between the start and the wait.
                loop.call_soon_threadsafe(start)
                asked = True
            result = _wait(done)
        except (KeyboardInterrupt, Terminated) as order:
            interrupts += 1
            if interrupts > _PATIENT_INTERRUPTS:
                raise
            loop.call_soon_threadsafe(start)
            _cancel(loop, started.result(), again=isinstance(order, Terminated))
            ends = order if isinstance(order, Terminated) else ends
        except (asyncio.CancelledError, CancelledError):
            if not interrupts:
                raise
            raise ends or KeyboardInterrupt from None
        else:
            if ends is not None:
                raise ends
            return result


def _cancel(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]", *, again: bool) -> None:
    loop.call_soon_threadsafe(task.cancel, INTERRUPT)
    if again:
        # Whoever sends SIGTERM does not wait for ever.
        loop.call_soon_threadsafe(loop.call_later, _ending.TERM_DRAIN_S, task.cancel, INTERRUPT)


def _wait(done: "Future[T]") -> T:
    # Short waits: a lock held without a time limit would keep Ctrl-C waiting on some platforms.
    while True:
        try:
            return done.result(timeout=_WAKE_S)
        except TimeoutError:
            if done.done():
                return done.result()


def _copy(done: "Future[T]", task: "asyncio.Task[T]") -> None:
    if task.cancelled():
        done.set_exception(asyncio.CancelledError())
    elif (error := task.exception()) is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


def sync(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return the synchronous twin of an async function: same signature and docstring."""

    @functools.wraps(function)
    def twin(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_sync(function(*args, **kwargs))

    # inspect.iscoroutinefunction must say no, or notebooks would offer to await it.
    del twin.__wrapped__
    twin.__signature__ = _signature(function)  # type: ignore[attr-defined]
    return twin


def _signature(function: Callable[..., Awaitable[Any]]) -> Any:
    import inspect

    return inspect.signature(function)
