"""The body of an answer, read and unpacked within bounds."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import aiohttp

from speechframe.client.limits import KIB, MIB
from speechframe.errors import BadAnswer
from speechframe.spec.chosen import TRACE_HEADER
from speechframe.wire.bodies import balance_in
from speechframe.wire.encoding import BadEncodingError, TooLargeError, unpack

__all__ = ["Admit", "CutOffError", "read_error", "read_good"]

Admit = Callable[[int], Awaitable[None]]

ERROR_BODY_S = 5.0
"""Longest wait for the body of an error answer; its status is known by then."""

_ADMITTED_BYTES = 64 * KIB
"""What is read of a body without being admitted: most of it lies in memory before that could be asked."""
_STEP_BYTES = MIB
_NO_BODY = frozenset({204, 304})


class CutOffError(BadAnswer):
    """The connection ended within the body of an answer."""


async def read_good(
    status: int,
    headers: Mapping[str, str],
    stream: aiohttp.StreamReader,
    max_bytes: int,
    admit: Admit | None,
    unpacking: asyncio.Lock,
) -> bytes:
    """Return the body of a good answer, unpacked.

    Parameters
    ----------
    status, headers, stream
        The answer.
    max_bytes
        The largest body, packed or unpacked.
    admit
        Awaited before so many more bytes are read.
    unpacking
        Held while a body is unpacked.

    Raises
    ------
    BadAnswer
        The body is too large or wrongly encoded; CutOffError for a truncated one.
    """
    said = headers.get("Content-Length", "")
    encoding = headers.get("Content-Encoding", "")
    chunks: list[bytes] = []
    kind = BadAnswer
    try:
        # The parser has refused all that is no number, or more than one.
        if said.isdecimal() and int(said) > max_bytes and status not in _NO_BODY:
            raise _too_large(int(said), max_bytes)
        if admit is not None and said.isdecimal() and int(said) > _ADMITTED_BYTES:
            await admit(int(said))
            await _collect(stream, chunks, max_bytes)
        else:
            await _collect(stream, chunks, max_bytes, admit)
        packed = b"".join(chunks)
        if not encoding:
            return packed
        # One at a time: an unpacked body is in memory before it can be admitted.
        async with unpacking:
            body = unpack(packed, encoding, max_bytes=max_bytes)
            if admit is not None and len(body) > len(packed):
                await admit(len(body) - len(packed))
            return body
    except (TimeoutError, BadAnswer):
        raise
    except (aiohttp.ClientError, OSError):
        kind, problem = CutOffError, "the answer is truncated: the connection ended within its body"
    except TooLargeError as error:
        problem = f"the answer is too large: {error}"
    except BadEncodingError as error:
        problem = str(error)
    # What came may hold the balance all the same. The trace id is shortened by whoever masks it.
    raise kind(problem, trace_id=headers.get(TRACE_HEADER), remaining_characters=balance_in(b"".join(chunks)))


async def read_error(headers: Mapping[str, str], stream: aiohttp.StreamReader, max_bytes: int) -> bytes:
    """Return what can be read of the body of an error answer, never more than `max_bytes` of it."""
    chunks: list[bytes] = []
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError, TooLargeError):
        async with asyncio.timeout(ERROR_BODY_S):
            await _collect(stream, chunks, max_bytes)
    try:
        packed = b"".join(chunks)[:max_bytes]
        return unpack(packed, headers.get("Content-Encoding", ""), max_bytes=max_bytes)
    except (TooLargeError, BadEncodingError):
        return b""


def _too_large(size: int, max_bytes: int) -> TooLargeError:
    said = f"{size / 1e6:,.1f} MB, {max_bytes / 1e6:,.1f} MB are allowed"
    return TooLargeError(f"{said} for what was asked (max_answer_mb= allows more)")


async def _collect(
    stream: aiohttp.StreamReader, chunks: list[bytes], max_bytes: int, admit: Admit | None = None
) -> None:
    """Read a body to its end.

    Raises
    ------
    TooLargeError
        It has more than `max_bytes`; what was read until then is in `chunks`.
    """
    size, admitted = 0, _ADMITTED_BYTES
    while chunk := (stream.read_nowait() if stream.is_eof() else await stream.readany()):
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(size, max_bytes)
        while admit is not None and size > admitted:
            await admit(_STEP_BYTES)
            admitted += _STEP_BYTES
