"""Work in a thread that nobody leaves behind: who waits for it is not cancelled before it has ended."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(
    work: Callable[..., T],
    *args: Any,
    tell: Callable[[], object] = lambda: None,
    undo: Callable[[Any], object] = lambda _: None,
) -> T:
    """Return what `work` returns, called in a thread; a cancellation is raised only when it has ended.

    A thread cannot be cancelled: it goes on writing when its task has gone, and whatever the task held for it
    (the run's lock) would be let go while it does.

    Parameters
    ----------
    work, args
        The function and what it is given.
    tell
        Called when the task is cancelled: it may let `work` end sooner.
    undo
        Called with what `work` returned when nobody is left to take it.
    """
    # No task: a loop that is shut down cancels all of them, and this must not look done before it is.
    running = asyncio.get_running_loop().run_in_executor(None, copy_context().run, partial(work, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError as order:
        tell()
        while not running.done():
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:
                continue
        error = running.exception()
        if error is None:
            undo(running.result())
        raise order from error
