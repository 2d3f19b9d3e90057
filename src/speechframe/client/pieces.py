"""Text that is still being written, piece by piece, whoever writes it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import aclosing
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

__all__ = ["Pieces", "pieces_of"]

Pieces = str | Iterable[str] | AsyncIterable[str]
"""One text, or an iterable of pieces of one: a list, a generator, an async generator."""

_END: Any = object()
"""Stands for the end: StopIteration cannot come out of a thread."""


async def pieces_of(pieces: Pieces) -> AsyncGenerator[str, None]:
    """Yield the pieces of a text; TypeError for what is neither text nor an iterable.

    A generator that blocks is waited for in a thread, so that audio is heard meanwhile. One that blocks for
    ever holds up nobody, neither other texts nor the end of the program.
    """
    if isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
    elif isinstance(pieces, str | list | tuple):
        for piece in [pieces] if isinstance(pieces, str) else pieces:
            yield piece
    elif isinstance(pieces, Iterable):
        async with aclosing(_in_thread(iter(pieces))) as found:
            async for piece in found:
                yield piece
    else:
        raise TypeError(f"text is a str or an iterable of str, not {type(pieces).__name__}")


async def _in_thread(iterator: Iterator[str]) -> AsyncGenerator[str, None]:
    asked: SimpleQueue[Future[str] | None] = SimpleQueue()

    def answer() -> None:
        while (future := asked.get()) is not None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(next(iterator, _END))
                except BaseException as error:  # noqa: BLE001 - whoever waits is to know
                    future.set_exception(error)

    # Not one of asyncio's threads, which are few and which the interpreter waits for at its end; and one for
    # all pieces: what a generator holds may belong to the thread that made it.
    run = copy_context().run
    threading.Thread(target=run, args=(answer,), name="speechframe-pieces", daemon=True).start()
    try:
        while True:
            future: Future[str] = Future()
            asked.put(future)
            if (piece := await asyncio.wrap_future(future)) is _END:
                return
            yield piece
    finally:
        asked.put(None)
