"""One exchange on a pooled connection: what is written, what is read, and what is known when it fails.

Everything aiohttp's parts are asked for by name stands in this file and in `transport`: a connection and its
`protocol` (`set_response_params`, `read`, `should_close`, `force_close`, and what a StreamWriter drains),
which hands over each answer as a message and a stream.

Every row of a batch goes through here: the ordinary exchange, bytes that go out at once and a good answer,
is written to need few calls and few objects; whatever is odd takes a longer way.
"""

import asyncio
import contextlib
import select
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
from aiohttp.http import HttpProcessingError, StreamWriter

from speechframe._lasting import LastingTask
from speechframe.errors import BadAnswer
from speechframe.old_client._request import Request, head_of
from speechframe.old_client.upload import Body
from speechframe.spec.chosen import TRACE_HEADER
from speechframe.wire.bodies import balance_in
from speechframe.wire.encoding import BadEncodingError, TooLargeError, unpack

ERROR_BODY_S = 5.0
"""Longest wait for the body of an error answer; its status is known by then."""

MAX_INTERIM = 16
"""Interim answers (1xx) before the real one; some servers send one or two."""

READ_BUFFER_BYTES = 256 * 1024
"""What is taken of a body before it is read; one read of the socket."""

_SWITCHING = 101
_NO_BODY = frozenset({204, 304})
_CONNECTION_IN_DOUBT = frozenset({_SWITCHING, 408, *range(500, 600)} - {503})
"""After these the other end may still be busy with the request: the connection is not used again."""


class NoAnswerError(Exception):
    """What came is no answer; the words go after the name of the other end."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of any status, its body unpacked; of an error, as much of it as came."""

    status: int
    # Neither headers nor body are shown: they may echo what was sent.
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    drop: Callable[[], None] = field(default=_nothing, repr=False, compare=False)
    """Closes the connection the answer came on; for answers that turn out to be odd."""

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return self.status // 100 == 2  # noqa: PLR2004


class Limits(NamedTuple):
    """The most that is read of a good answer's body, packed or unpacked, and of any other."""

    max_bytes: int
    max_error_bytes: int


class Incoming:
    """A good answer that is read as it comes.

    Parameters
    ----------
    status, headers
        Of the answer.
    stream, attempt
        Where it comes from.
    """

    __slots__ = ("_attempt", "_stream", "headers", "status")

    def __init__(
        self, status: int, headers: Mapping[str, str], stream: aiohttp.StreamReader, attempt: "Attempt"
    ) -> None:
        self.status = status
        self.headers = headers
        self._stream = stream
        self._attempt = attempt

    async def read(self) -> bytes:
        """Return what has come, at least a byte; nothing at the end, when the connection is given back.

        Raises
        ------
        CutOffError
            The connection ended within the body.
        """
        try:
            # A chunk may be empty where the body's own chunks end.
            while not (data := await self._stream.readany()):
                if self._stream.at_eof():
                    self._attempt.done()
                    break
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, HttpProcessingError):
            self.close()
            raise CutOffError from None
        return data

    def close(self) -> None:
        """Close the connection at once, unless the answer was read to its end; doing it again is nothing."""
        self._attempt.leave()


class CutOffError(Exception):
    """The connection ended within the body of an answer."""


class _Used:
    """What is kept of a connection that had an exchange: which one was the last, and how the kernel is asked.

    Parameters
    ----------
    transport
        The connection's own.
    owner
        The exchange that has it.
    """

    __slots__ = ("_poll", "owner")

    def __init__(self, transport: asyncio.Transport | None, owner: "Attempt") -> None:
        self.owner = owner
        socket = None if transport is None else transport.get_extra_info("socket")
        self._poll: select.poll | None = None
        if socket is not None:
            self._poll = select.poll()
            self._poll.register(socket, select.POLLIN)

    def is_quiet(self) -> bool:
        """Return whether nothing lies in the kernel that the loop has not seen yet, an end included."""
        return self._poll is not None and not self._poll.poll(0)


_USED: "weakref.WeakKeyDictionary[Any, _Used]" = weakref.WeakKeyDictionary()
"""By a connection's protocol."""


class Attempt:
    """One exchange, and what is known of it while it runs."""

    __slots__ = ("__weakref__", "_connection", "_protocol", "_transport", "_used", "wrote")

    def __init__(self) -> None:
        self.wrote = False
        """Whether a byte of the request may have left."""
        self._connection: aiohttp.connector.Connection | None = None
        # Let go of at the end: what is kept of a connection leads here, and must not keep it alive.
        self._protocol: Any = None
        self._transport: asyncio.Transport | None = None
        self._used: _Used | None = None

    async def connect(
        self, session: aiohttp.ClientSession, target: aiohttp.ClientRequest, limit: aiohttp.ClientTimeout
    ) -> None:
        """Take a connection of the pool on which nothing came in while it lay idle.

        A stray second answer, left on a kept-alive connection, would be taken for the answer of the next
        request: a row would get its neighbour's audio without an error. And a connection that the other end
        has closed would take the request, and nobody could tell whether it was billed.
        """
        connector = session.connector
        assert connector is not None  # noqa: S101 - for the type: the session was made with one
        while True:
            try:
                connection = await connector.connect(target, traces=[], timeout=limit)
            except TimeoutError:
                raise aiohttp.ConnectionTimeoutError from None
            protocol = connection.protocol
            used = _USED.get(protocol)
            if protocol is not None and not protocol.should_close and (used is None or used.is_quiet()):
                break
            connection.close()
            if used is None:
                raise NoAnswerError("spoke before it was asked")
        self._connection, self._protocol, self._transport = connection, protocol, connection.transport
        if used is None:
            used = _USED[protocol] = _Used(connection.transport, self)
        self._used, used.owner = used, self

    async def make(self, request: Request, target: aiohttp.ClientRequest, limits: Limits) -> Reply:
        """Write the request and return the answer; the connection goes back to the pool or is closed."""
        try:
            status, headers, stream = await self._asked(request, target)
            if status // 100 == 2:  # noqa: PLR2004
                body = await _read_good(status, headers, stream, limits.max_bytes)
            else:
                body = await _read_error(headers, stream, limits.max_error_bytes)
            if stream.is_eof():
                # The pool closes it all the same when anything about it is odd.
                self.done()
            return Reply(status, headers, body, self.drop)
        finally:
            if self._connection is not None:
                self.leave()

    async def begin(
        self, request: Request, target: aiohttp.ClientRequest, max_error_bytes: int
    ) -> "Reply | Incoming":
        """Write the request and return a good answer that is still to be read, or any other answer whole."""
        incoming: Incoming | None = None
        try:
            status, headers, stream = await self._asked(request, target)
            if status // 100 == 2:  # noqa: PLR2004
                incoming = Incoming(status, headers, stream, self)
                return incoming
            # The connection is not used again: an error is no hurry.
            return Reply(status, headers, await _read_error(headers, stream, max_error_bytes), self.drop)
        finally:
            if incoming is None:
                self.leave()

    def done(self) -> None:
        """Give the connection back after an answer that was read to its end."""
        connection, self._connection, self._protocol = self._connection, None, None
        if connection is not None:
            connection.release()

    def leave(self) -> None:
        """Close the connection, without effect once it was given back."""
        connection, self._protocol = self._connection, None
        if connection is not None:
            # Aborted, not closed politely: nobody is to wait for it.
            if not connection.closed:
                self.drop()
            connection.close()

    def drop(self) -> None:
        """Close the connection for good, unless the pool gave it to another exchange in the meantime."""
        if self._transport is not None and self._used is not None and self._used.owner is self:
            self._transport.abort()

    async def _asked(
        self, request: Request, target: aiohttp.ClientRequest
    ) -> tuple[int, Mapping[str, str], aiohttp.StreamReader]:
        """Write the request and return how the answer begins."""
        transport, protocol, body = self._transport, self._protocol, request.body
        assert self._connection is not None  # noqa: S101 - for the type: `connect` comes first
        protocol.set_response_params(
            read_until_eof=True, auto_decompress=False, read_bufsize=READ_BUFFER_BYTES
        )
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionError
        head = head_of(request, target)
        if isinstance(body, Body):
            message, stream = await self._asked_in_pieces(head, body, transport)
        else:
            self.wrote = True
            transport.write(head + body if body else head)
            message, stream = await protocol.read()
            if message.code // 100 == 1:
                message, stream = await _head(protocol, message, stream)
        if message.code in _CONNECTION_IN_DOUBT or transport.get_write_buffer_size():
            protocol.force_close()
        return message.code, message.headers, stream

    async def _asked_in_pieces(
        self, head: bytes, body: Body, transport: asyncio.Transport
    ) -> tuple[Any, aiohttp.StreamReader]:
        """Write the request while the answer may come, and return how it begins."""
        writing = LastingTask(self._write_pieces(head, body, transport), name="speechframe-writing")
        reading = LastingTask(_first_head(self._protocol), name="speechframe-reading")
        try:
            # A service may refuse a file before it has read all of it.
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                self._protocol.force_close()
            elif (error := writing.exception()) is not None:
                self._protocol.force_close()
                if not isinstance(error, OSError):
                    raise error
                # The other end reads no more: perhaps it has said why.
            return await reading
        finally:
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)

    async def _write_pieces(self, head: bytes, body: Body, transport: asyncio.Transport) -> None:
        writer = StreamWriter(self._protocol, asyncio.get_running_loop())
        pieces = body.pieces()
        # The first piece goes with the head: a file that cannot be read is found before a byte has left.
        started = head + await anext(pieces)
        async for piece in pieces:
            self.wrote = True
            transport.write(started)
            await writer.drain()
            started = piece
        self.wrote = True
        transport.write(started)
        await writer.drain()


async def _first_head(protocol: Any) -> tuple[Any, aiohttp.StreamReader]:
    return await _head(protocol, *await protocol.read())


async def _head(
    protocol: Any, message: Any, stream: aiohttp.StreamReader
) -> tuple[Any, aiohttp.StreamReader]:
    """Return how the final answer begins, aiohttp's message and the body as a stream, from the first one."""
    for left in range(MAX_INTERIM, -1, -1):
        if message.code // 100 != 1 or message.code == _SWITCHING:
            return message, stream
        if left:
            message, stream = await protocol.read()
    raise NoAnswerError(f"sent more than {MAX_INTERIM} interim answers and no final one")


async def _read_good(
    status: int, headers: Mapping[str, str], stream: aiohttp.StreamReader, max_bytes: int
) -> bytes:
    said = headers.get("Content-Length", "")
    chunks: list[bytes] = []
    # The parser has refused all that is no number, or more than one.
    if said.isdecimal() and int(said) > max_bytes and status not in _NO_BODY:
        problem = f"the answer is too large: {int(said):,} bytes, {max_bytes:,} are allowed"
    else:
        try:
            if stream.is_eof():
                # Came in one piece, as most answers do.
                chunks.append(stream.read_nowait())
                fits = len(chunks[0]) <= max_bytes
            else:
                fits = await _collect(stream, chunks, max_bytes)
            if fits:
                return unpack(b"".join(chunks), headers.get("Content-Encoding", ""), max_bytes=max_bytes)
            problem = f"the answer is too large: more than {max_bytes:,} bytes"
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError):
            problem = "the answer is truncated: the connection ended within its body"
        except (TooLargeError, BadEncodingError) as error:
            problem = str(error)
    # What came may hold the balance all the same.
    # The trace id is shortened by whoever masks it, afterwards.
    trace_id = headers.get(TRACE_HEADER)
    raise BadAnswer(problem, trace_id=trace_id, remaining_characters=balance_in(b"".join(chunks)))


async def _read_error(headers: Mapping[str, str], stream: aiohttp.StreamReader, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(ERROR_BODY_S):
            await _collect(stream, chunks, max_bytes)
    packed = b"".join(chunks)[:max_bytes]
    try:
        return unpack(packed, headers.get("Content-Encoding", ""), max_bytes=max_bytes)
    except (TooLargeError, BadEncodingError):
        return b""


async def _collect(stream: aiohttp.StreamReader, chunks: list[bytes], max_bytes: int) -> bool:
    size = 0
    while chunk := await stream.readany():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            return False
    return True
