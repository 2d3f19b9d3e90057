"""Text that is still being written, piece by piece, whoever writes it."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import aclosing
from contextvars import copy_context
from queue import SimpleQueue

__all__ = ["Pieces", "pieces_of"]

Pieces = str | Iterable[str] | AsyncIterable[str]
"""One text, or an iterable of pieces of one: a list, a generator, an async generator."""


class _End:
    """Stands for the end: StopIteration cannot come out of a thread."""


_Asked = SimpleQueue["Future[str | _End] | None"]


async def pieces_of(pieces: Pieces) -> AsyncGenerator[str, None]:
    """Yield the pieces of a text.

    Parameters
    ----------
    pieces
        A generator that blocks is waited for in a thread, so that audio is heard meanwhile. One that blocks
        for ever holds up nobody, neither other texts nor the end of the program.

    Raises
    ------
    TypeError
        For what is neither text nor an iterable.

    Examples
    --------
    >>> async def joined(pieces):
    ...     return [piece async for piece in pieces_of(pieces)]
    >>> asyncio.run(joined("Hello")), asyncio.run(joined(word for word in ("a", "b")))
    (['Hello'], ['a', 'b'])
    """
    if isinstance(pieces, str):
        yield pieces
    elif isinstance(pieces, AsyncIterable):
        async for piece in pieces:
            yield piece
    elif isinstance(pieces, list | tuple):
        for piece in pieces:
            yield piece
    elif isinstance(pieces, Iterable):
        async with aclosing(_in_thread(iter(pieces))) as found:
            async for piece in found:
                yield piece
    else:
        raise TypeError(f"text is a str or an iterable of str, not {type(pieces).__name__}")


async def _in_thread(iterator: Iterator[str]) -> AsyncGenerator[str, None]:
    # Neither asyncio's threads, which are few and which the interpreter waits for at its end, nor a new one
    # for each piece: what a generator holds may belong to the thread that made it.
    asked: _Asked = SimpleQueue()
    run = copy_context().run
    threading.Thread(
        target=run, args=(_pull, iterator, asked), name="speechframe-pieces", daemon=True
    ).start()
    try:
        while True:
            answer: Future[str | _End] = Future()
            asked.put(answer)
            if isinstance(found := await asyncio.wrap_future(answer), _End):
                return
            yield found
    finally:
        asked.put(None)


def _pull(iterator: Iterator[str], asked: _Asked) -> None:
    while (answer := asked.get()) is not None:
        if not answer.set_running_or_notify_cancel():
            continue
        try:
            answer.set_result(next(iterator, _End()))
        except BaseException as error:  # noqa: BLE001 - whoever waits is to know
            answer.set_exception(error)
