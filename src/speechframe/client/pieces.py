"""Text that is still being written, piece by piece, whoever writes it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator

__all__ = ["Pieces", "pieces_of"]

Pieces = str | Iterable[str] | AsyncIterable[str]
"""One text, or an iterable of pieces of one: a list, a generator, an async generator."""


class _End:
    """Stands for the end: StopIteration cannot come out of a thread."""


async def pieces_of(pieces: Pieces) -> AsyncGenerator[str, None]:
    """Yield the pieces of a text.

    Parameters
    ----------
    pieces
        A generator that blocks is waited for in a thread, so that audio is heard meanwhile.

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
        iterator = iter(pieces)
        while not isinstance(found := await asyncio.to_thread(_next, iterator), _End):
            yield found
    else:
        raise TypeError(f"text is a str or an iterable of str, not {type(pieces).__name__}")


def _next(iterator: Iterator[str]) -> str | _End:
    return next(iterator, _End())
