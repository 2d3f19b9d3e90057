"""One exchange on a pooled connection: what is written, what is read, and what is known when it fails.

Everything aiohttp's parts are asked for by name stands in this file and in `transport`: a connection and its
`protocol` (`set_response_params`, `read`, `should_close`, `force_close`, and what a StreamWriter drains),
which hands over each answer as a message and a stream.
"""

import asyncio
import contextlib
import functools
import re
import select
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
from aiohttp.http import HttpProcessingError, StreamWriter
from yarl import URL

from speechframe._version import __version__
from speechframe.client.upload import Body
from speechframe.errors import BadAnswer
from speechframe.wire.bodies import balance_in
from speechframe.wire.encoding import BadEncodingError, TooLargeError, unpack
from speechframe.wire.errors import trace_id_of

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

_USER_AGENT = f"speechframe/{__version__}"
_FRAMING = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "expect"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


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


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent."""

    method: str
    url: URL
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | Body | None = field(repr=False)
    is_proxied: bool = False
    """Whether it is written to a proxy; on the way to https that is a tunnel, and the proxy sees nothing."""


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


_OWNERS: "weakref.WeakKeyDictionary[Any, Attempt]" = weakref.WeakKeyDictionary()
"""The exchange that last had a connection."""


class Attempt:
    """One exchange, and what is known of it while it runs."""

    __slots__ = ("__weakref__", "_connection", "_protocol", "_transport", "wrote")

    def __init__(self) -> None:
        self.wrote = False
        """Whether a byte of the request may have left."""
        self._connection: aiohttp.connector.Connection | None = None
        self._protocol: Any = None
        self._transport: asyncio.Transport | None = None

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
            fresh = _OWNERS.get(protocol) is None
            if protocol is not None and not protocol.should_close and (fresh or _is_quiet(connection)):
                break
            connection.close()
            if fresh:
                raise NoAnswerError("spoke before it was asked")
        self._connection, self._protocol, self._transport = connection, protocol, connection.transport
        _OWNERS[protocol] = self

    async def make(self, request: Request, target: aiohttp.ClientRequest, limits: Limits) -> Reply:
        """Write the request and return the answer; the connection goes back to the pool or is closed."""
        try:
            connection = self._ready()
            status, headers, stream = await self._asked_once(request, target)
            if status // 100 == 2:  # noqa: PLR2004
                body = await _read_good(status, headers, stream, limits.max_bytes)
            else:
                body = await _read_error(headers, stream, limits.max_error_bytes)
            if stream.is_eof():
                # The pool closes it all the same when anything about it is odd.
                connection.release()
            return Reply(status, headers, body, self.drop)
        finally:
            self.leave()

    async def begin(
        self, request: Request, target: aiohttp.ClientRequest, max_error_bytes: int
    ) -> "Reply | Incoming":
        """Write the request and return a good answer that is still to be read, or any other answer whole."""
        incoming: Incoming | None = None
        try:
            self._ready()
            status, headers, stream = await self._asked_once(request, target)
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
        if self._connection is not None:
            self._connection.release()

    def _ready(self) -> aiohttp.connector.Connection:
        assert self._connection is not None  # noqa: S101 - for the type: `connect` comes first
        self._protocol.set_response_params(
            read_until_eof=True, auto_decompress=False, read_bufsize=READ_BUFFER_BYTES
        )
        return self._connection

    async def _asked_once(
        self, request: Request, target: aiohttp.ClientRequest
    ) -> tuple[int, Mapping[str, str], aiohttp.StreamReader]:
        status, headers, stream = await self._asked(request, target)
        if status in _CONNECTION_IN_DOUBT or not self._is_written():
            self._protocol.force_close()
        return status, headers, stream

    def leave(self) -> None:
        """Close the connection, without effect once it was given back."""
        connection = self._connection
        if connection is not None:
            # Aborted, not closed politely: nobody is to wait for it.
            if not connection.closed:
                self.drop()
            connection.close()

    def drop(self) -> None:
        """Close the connection for good, unless the pool gave it to another exchange in the meantime."""
        if self._transport is not None and _OWNERS.get(self._protocol) is self:
            self._transport.abort()

    async def _asked(
        self, request: Request, target: aiohttp.ClientRequest
    ) -> tuple[int, Mapping[str, str], aiohttp.StreamReader]:
        """Write the request and return how the answer begins."""
        transport, body = self._transport, request.body
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionError
        if not isinstance(body, Body):
            self.wrote = True
            transport.write(_head_of(request, target) + (body or b""))
            return await _head(self._protocol)
        writing = asyncio.create_task(self._write_pieces(_head_of(request, target), body, transport))
        reading = asyncio.create_task(_head(self._protocol))
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

    def _is_written(self) -> bool:
        return self._transport is not None and not self._transport.get_write_buffer_size()


def _is_quiet(connection: aiohttp.connector.Connection) -> bool:
    """Return whether nothing lies in the kernel that the loop has not seen yet, an end included."""
    socket = None if connection.transport is None else connection.transport.get_extra_info("socket")
    if socket is None:
        return False
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return not poll.poll(0)


def _head_of(request: Request, target: aiohttp.ClientRequest) -> bytes:
    """Return the request line and headers.

    Raises
    ------
    ValueError
        A header that would be more than one, or that says where the request ends.
    """
    url = request.url
    path, further = url.raw_path_qs, ""
    if request.is_proxied and url.scheme == "http":
        path = str(url.with_fragment(None))
        password = target.headers.get("Proxy-Authorization")
        further = f"Proxy-Authorization: {password}\r\n" if password else ""
    if not (path.isascii() and path.isprintable()) or " " in path:
        raise ValueError("the path of a request holds characters that cannot stand in a request line")
    for name, value in request.headers.items():
        if not _is_ours(name) or "\n" in value or "\r" in value or "\0" in value:
            raise ValueError(
                f"the header {name!r} cannot be sent: it frames the message, or breaks its lines"
            )
    lines = "".join([f"{name}: {value}\r\n" for name, value in request.headers.items()])
    size = request.body.size_bytes if isinstance(request.body, Body) else len(request.body or b"")
    length = "" if request.body is None else f"Content-Length: {size}\r\n"
    return (
        f"{request.method} {path} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        f"User-Agent: {_USER_AGENT}\r\n{further}{lines}{length}\r\n"
    ).encode()


@functools.lru_cache(256)
def _is_ours(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None and name.lower() not in _FRAMING


async def _head(protocol: Any) -> tuple[int, Mapping[str, str], aiohttp.StreamReader]:
    for _ in range(MAX_INTERIM + 1):
        message, stream = await protocol.read()
        if message.code // 100 != 1 or message.code == _SWITCHING:
            return message.code, message.headers, stream
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
            if await _collect(stream, chunks, max_bytes):
                return unpack(b"".join(chunks), headers.get("Content-Encoding", ""), max_bytes=max_bytes)
            problem = f"the answer is too large: more than {max_bytes:,} bytes"
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError):
            problem = "the answer is truncated: the connection ended within its body"
        except (TooLargeError, BadEncodingError) as error:
            problem = str(error)
    # What came may hold the balance all the same.
    raise BadAnswer(problem, trace_id=trace_id_of(headers), remaining_characters=balance_in(b"".join(chunks)))


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
