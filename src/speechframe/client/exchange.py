"""One exchange of bytes over aiohttp's pool of connections, and what is known of it when it fails.

aiohttp gives the pool, name lookup, TLS, proxies and the parser. What is said on a connection is said here:
so it is known whether a byte of a request may have left, nothing is repeated behind the caller's back, no
redirect is followed, and a connection on which anything odd happened is not used again.

Asked of aiohttp by private or little-known names are a connection's `protocol` (`set_response_params`,
`read`, `should_close`, `force_close`) and a pool's `connect`, all of them in this file.
"""

import asyncio
import functools
import select
import ssl
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.http import HttpProcessingError, StreamWriter
from yarl import URL

from speechframe._version import __version__
from speechframe.client.limits import KIB
from speechframe.client.reading import Admit, CutOffError, read_error, read_good
from speechframe.client.upload import Body
from speechframe.errors import AudioError, BadAnswer, ConnectionFailed, SettingsError, TimedOut
from speechframe.settings import is_loopback

__all__ = ["Exchange", "Incoming", "Reply"]

T = TypeVar("T")

KEEPALIVE_S = 4.0
"""Idle connections are closed by us after this. Common servers close theirs after 5 s, and nobody can tell
whether a request that was written to a connection just then was billed."""

CLOSE_S = 2.0
"""Longest wait for the other end's half of closing a WebSocket."""

_READ_BUFFER_BYTES = 256 * KIB
_MOST_ORIGINS = 256
_SWITCHING = 101
_IN_DOUBT = frozenset({_SWITCHING, 408, *range(500, 600)} - {503})
"""After these the other end may still be busy with the request: the connection is not used again."""


class _NoAnswerError(Exception):
    """What came is no answer; the words go after the name of the other end."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of any status, its body unpacked; of an error, as much of the body as came."""

    status: int
    # Neither headers nor body are shown: they may echo what was sent.
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    drop: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Makes sure that the connection it came on is not used again, for an answer that turns out to be odd."""

    @property
    def ok(self) -> bool:
        """Whether the request was carried out."""
        return self.status // 100 == 2  # noqa: PLR2004


class Incoming:
    """A good answer that is read as it comes."""

    def __init__(self, headers: Mapping[str, str], stream: aiohttp.StreamReader, attempt: "_Attempt") -> None:
        self.headers = headers
        self._stream, self._attempt = stream, attempt

    async def read(self) -> bytes:
        """Return what has come, at least a byte; nothing at the end.

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
            raise CutOffError("the connection ended within the stream") from None
        return data

    def close(self) -> None:
        """Close the connection at once, unless the answer was read to its end."""
        self._attempt.leave()


class Exchange:
    """One pool of connections, made on first use in the loop that uses it.

    Parameters
    ----------
    connect_s
        Limit for making a connection.
    max_connections
        Connections open at once; further requests wait for one.
    trust_env
        Use the proxies of the environment, except for addresses on this machine: plain http with a key in it
        would leave the machine.
    ca_file
        Certificate authorities to trust instead of the system's.
    """

    def __init__(
        self,
        *,
        connect_s: float = 10.0,
        max_connections: int = 256,
        trust_env: bool = True,
        ca_file: Path | None = None,
    ) -> None:
        self._connect = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        self._max_connections = max_connections
        self._trust_env = trust_env
        self._ssl: ssl.SSLContext | bool = True if ca_file is None else _trusting(ca_file)
        self._targets: dict[URL, aiohttp.ClientRequest] = {}
        # Looked up once for each origin.
        self._proxy_of = functools.lru_cache(_MOST_ORIGINS)(_proxy_of_environment)
        self._session: aiohttp.ClientSession | None = None
        self._unpacking = asyncio.Lock()
        self._closed = False

    async def ask(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | Body | None = None,
        timeout_s: float,
        max_bytes: int,
        max_error_bytes: int,
        admit: Admit | None = None,
    ) -> Reply:
        """Send one request once and return the answer, whatever its status.

        Parameters
        ----------
        method, url, headers, body
            The request. The URL is sent as it is spelled; a :class:`Body` is read while it is sent.
        timeout_s
            Limit of the whole exchange.
        max_bytes, max_error_bytes
            The largest body of a good answer, packed or unpacked; and what is read of any other.
        admit
            Awaited before so many more bytes of a good answer are read.

        Raises
        ------
        ConnectionFailed, TimedOut
            No answer; ``sent`` is False only when it is certain that no byte of the request was written.
        BadAnswer
            A good status with a body that is too large or wrongly encoded; CutOffError for a truncated one.
        AudioError
            The file of a body cannot be read, or has changed; the request was not completed.
        """

        async def read(attempt: _Attempt, status: int, headers: Mapping[str, str], stream: Any) -> Reply:
            if status // 100 == 2:  # noqa: PLR2004
                admitted = attempt.unhurried(admit)
                data = await read_good(status, headers, stream, max_bytes, admitted, self._unpacking)
            else:
                data = await read_error(headers, stream, max_error_bytes)
            (attempt.done if stream.is_eof() else attempt.leave)()
            return Reply(status, headers, data, attempt.drop)

        return await self._attempted(method, url, headers, body, timeout_s, read)

    async def begin(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        max_error_bytes: int,
    ) -> Reply | Incoming:
        """Send one request once and return a good answer as soon as it begins, or any other answer whole.

        Parameters and errors are those of :meth:`ask`; `timeout_s` ends when the answer begins.
        """

        async def read(
            attempt: _Attempt, status: int, headers: Mapping[str, str], stream: Any
        ) -> Reply | Incoming:
            if status // 100 == 2:  # noqa: PLR2004
                return Incoming(headers, stream, attempt)
            data = await read_error(headers, stream, max_error_bytes)
            attempt.leave()
            return Reply(status, headers, data)

        return await self._attempted(method, url, headers, body, timeout_s, read)

    async def connect(
        self, url: URL, *, headers: Mapping[str, str], timeout_s: float, max_message_bytes: int
    ) -> aiohttp.ClientWebSocketResponse | Reply:
        """Open a WebSocket, or return the answer that refuses it.

        Nothing is compressed, since Base64 audio does not shrink, and there are no pings: a service that
        waits for its slow reader answers none.

        Raises
        ------
        ConnectionFailed, TimedOut
            There is no connection; nothing was asked for yet, so ``sent`` is False.
        """
        session, proxy = self._opened(), self._proxy(url)
        try:
            async with asyncio.timeout(timeout_s):
                return await session.ws_connect(
                    url,
                    headers=headers,
                    proxy=proxy,
                    compress=0,
                    max_msg_size=max_message_bytes,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_S),
                )
        except _RedirectedError as redirected:
            return Reply(redirected.status, redirected.headers, b"")
        except aiohttp.WSServerHandshakeError as error:
            if error.status != _SWITCHING:
                return Reply(error.status, error.headers or {}, b"")
            words = f"{_place(url)} answered the upgrade with what is no WebSocket"
            failure = ConnectionFailed(words, sent=False)
        except TimeoutError:
            failure = TimedOut(f"no WebSocket to {_place(url)} within {timeout_s:g} s", sent=False)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            failure = ConnectionFailed(_words(error, url, proxy, wrote=False), sent=False)
        raise failure.with_traceback(None) from None

    async def close(self) -> None:
        """Close every connection; further exchanges raise RuntimeError."""
        self._closed = True
        self._targets.clear()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _attempted(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        body: bytes | Body | None,
        timeout_s: float,
        read: "Callable[[_Attempt, int, Mapping[str, str], aiohttp.StreamReader], Awaitable[T]]",
    ) -> T:
        """Take a connection, send the request, have its answer read, and say of every failure what it is."""
        session = self._opened()
        attempt = _Attempt()
        proxy: URL | None = None
        # Raised after the except blocks: an error chained to aiohttp's would carry its URL and headers.
        try:
            # A limit of our own: aiohttp's does not end every request on a connection in a bad state.
            async with asyncio.timeout(timeout_s) as attempt.limit:
                proxy = self._proxy(url)
                target = self._target(session, url, proxy)
                head = _head_of(method, url, headers, body, target if proxy is not None else None)
                await attempt.connect(session, target, self._connect)
                try:
                    return await read(attempt, *await attempt.asked(head, body))
                except BaseException:
                    attempt.leave()
                    raise
        except TimeoutError as error:
            words = "no answer from" if attempt.wrote else "no connection to"
            early = isinstance(error, aiohttp.ConnectionTimeoutError)
            limit_s = self._connect.sock_connect if early else timeout_s
            failure: Exception = TimedOut(f"{words} {_place(url)} within {limit_s:g} s", sent=attempt.wrote)
        except (BadAnswer, AudioError) as error:
            failure = error
        except (aiohttp.ClientError, HttpProcessingError, _NoAnswerError, OSError) as error:
            failure = ConnectionFailed(_words(error, url, proxy, wrote=attempt.wrote), sent=attempt.wrote)
        raise failure.with_traceback(None) from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._max_connections,
                    keepalive_timeout=KEEPALIVE_S,
                    ssl=self._ssl,
                    ttl_dns_cache=60,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Proxies are looked up here; aiohttp would also add keys of ~/.netrc.
                trust_env=False,
                trace_configs=[_refusing_redirects()],
            )
        elif self._session._loop is not asyncio.get_running_loop():  # noqa: SLF001 - `loop` is deprecated
            raise RuntimeError("a client belongs to the event loop that first used it; make one for each")
        return self._session

    def _target(self, session: aiohttp.ClientSession, url: URL, proxy: URL | None) -> aiohttp.ClientRequest:
        """Return what the pool has to know to find a connection."""
        origin = url.origin()
        target = self._targets.get(origin)
        if target is None or proxy is not None:
            loop = asyncio.get_running_loop()
            target = aiohttp.ClientRequest("GET", origin, loop=loop, session=session, proxy=proxy)
            # A proxy's password is added to the target when it is connected: such a target serves once.
            if proxy is None and len(self._targets) < _MOST_ORIGINS:
                self._targets[origin] = target
        return target

    def _proxy(self, url: URL) -> URL | None:
        return self._proxy_of(url.scheme, url.host, url.port) if self._trust_env else None


class _Attempt:
    """One exchange on a connection, and what is known of it while it runs."""

    __slots__ = ("_connection", "_protocol", "_transport", "drop", "limit", "wrote")

    def __init__(self) -> None:
        self.wrote = False
        """Whether a byte of the request may have left."""
        self._connection: aiohttp.connector.Connection | None = None
        # Cleared at the end, so that an answer that somebody keeps does not keep the connection.
        self._protocol: Any = None
        self._transport: asyncio.Transport | None = None
        self.drop: Callable[[], None] = lambda: None
        """Makes sure that the connection is not used again, for an answer that turns out to be odd."""
        self.limit: asyncio.Timeout | None = None
        """What ends it."""

    async def connect(
        self, session: aiohttp.ClientSession, target: aiohttp.ClientRequest, limit: aiohttp.ClientTimeout
    ) -> None:
        """Take a connection of the pool on which nothing came in while it was idle.

        A stray second answer on a connection would be taken for the answer to the next request: a row would
        get its neighbour's audio without an error. And whether a connection that the other end has closed
        took the request, nobody could tell.
        """
        connector = session.connector
        assert connector is not None  # noqa: S101 - for the type: the session was made with one
        while True:
            try:
                connection = await connector.connect(target, traces=[], timeout=limit)
            except TimeoutError:
                raise aiohttp.ConnectionTimeoutError from None
            protocol = connection.protocol
            is_new = protocol not in _USED
            if (
                protocol is not None
                and not protocol.should_close
                and (is_new or _is_quiet(connection.transport))
            ):
                break
            connection.close()
            if is_new:
                raise _NoAnswerError("spoke before it was asked")
        self._connection, self._protocol, self._transport = connection, protocol, connection.transport
        _USED.add(protocol)
        # The pool closes such a connection when it is given back, and `connect` where it lies in the pool: so
        # nothing happens to another exchange that has it meanwhile, and any thread may call this.
        self.drop = protocol.force_close

    async def asked(
        self, head: bytes, body: bytes | Body | None
    ) -> tuple[int, Mapping[str, str], aiohttp.StreamReader]:
        """Write the request and return how the answer begins."""
        transport, protocol = self._transport, self._protocol
        protocol.set_response_params(
            read_until_eof=True, auto_decompress=False, read_bufsize=_READ_BUFFER_BYTES
        )
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionError
        if isinstance(body, Body):
            message, stream = await self._asked_in_pieces(head, body, transport)
        else:
            self.wrote = True
            transport.write(head + body if body else head)
            message, stream = await self._answer()
        if message.code in _IN_DOUBT or transport.get_write_buffer_size():
            protocol.force_close()
        return message.code, message.headers, stream

    async def _answer(self) -> tuple[Any, aiohttp.StreamReader]:
        """Return how the final answer begins: aiohttp's message, and the body as a stream."""
        message, stream = await self._protocol.read()
        while message.code // 100 == 1 and message.code != _SWITCHING:
            message, stream = await self._protocol.read()
        return message, stream

    async def _asked_in_pieces(
        self, head: bytes, body: Body, transport: asyncio.Transport
    ) -> tuple[Any, aiohttp.StreamReader]:
        """Write the request while the answer may come: a service may refuse a file before it has read it."""
        writing = asyncio.create_task(self._write_pieces(head, body, transport))
        reading = asyncio.create_task(self._answer())
        try:
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
        # The first pieces go with the head: a file that cannot be read is found before a byte has left.
        waiting = head + await anext(pieces)
        async for piece in pieces:
            self.wrote = True
            transport.write(waiting)
            await writer.drain()
            waiting = piece
        self.wrote = True
        transport.write(waiting)
        await writer.drain()

    def done(self) -> None:
        """Give the connection back after an answer that was read to its end."""
        connection, self._connection, self._protocol = self._connection, None, None
        if connection is not None:
            # The pool closes it all the same when anything about it is odd.
            connection.release()

    def leave(self) -> None:
        """Close the connection, unless it was given back."""
        connection, self._connection, self._protocol = self._connection, None, None
        if connection is not None:
            # Aborted, not closed politely: nobody is to wait for it.
            if connection.transport is not None:
                connection.transport.abort()
            connection.close()

    def unhurried(self, admit: Admit | None) -> Admit | None:
        """Return `admit` so that its waits do not count as time of the service: they are for room of ours."""
        limit, loop = self.limit, asyncio.get_running_loop()
        if admit is None or limit is None:
            return admit

        async def admitted(count: int) -> None:
            left_s = (limit.when() or loop.time()) - loop.time()
            limit.reschedule(None)
            await admit(count)
            limit.reschedule(loop.time() + left_s)

        return admitted


_USED: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""The protocols of connections that had an exchange."""


def _is_quiet(transport: asyncio.Transport | None) -> bool:
    """Return whether nothing lies in the kernel that the loop has not seen yet, an end included."""
    socket = None if transport is None else transport.get_extra_info("socket")
    if socket is None:
        return False
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return not poll.poll(0)


def _head_of(
    method: str,
    url: URL,
    headers: Mapping[str, str],
    body: bytes | Body | None,
    proxied: aiohttp.ClientRequest | None,
) -> bytes:
    """Return the request line and headers; `proxied` is the target of a request that goes through a proxy."""
    path, further, length = url.raw_path_qs, "", ""
    if proxied is not None and url.scheme == "http":
        path = str(url.with_fragment(None))
        password = proxied.headers.get("Proxy-Authorization")
        further = f"Proxy-Authorization: {password}\r\n" if password else ""
    # Nothing in them breaks a line: addresses, keys and idempotency keys were checked where they came in.
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if body is not None:
        length = f"Content-Length: {body.size_bytes if isinstance(body, Body) else len(body)}\r\n"
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n"
        f"User-Agent: speechframe/{__version__}\r\n{further}{lines}{length}\r\n"
    ).encode()


class _RedirectedError(Exception):
    """The upgrade to a WebSocket was answered with a redirect."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status, self.headers = status, headers


def _refusing_redirects() -> aiohttp.TraceConfig:
    """Return what makes a session refuse redirects of WebSockets, where that is no argument."""

    async def refuse(
        session: aiohttp.ClientSession,  # noqa: ARG001 - aiohttp's protocol
        context: SimpleNamespace,  # noqa: ARG001 - same
        params: aiohttp.TraceRequestRedirectParams,
    ) -> None:
        raise _RedirectedError(params.response.status, params.response.headers)

    config = aiohttp.TraceConfig()
    config.on_request_redirect.append(refuse)
    return config


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"ca_file {str(ca_file)!r} cannot be used: {error.strerror or error}") from None


def _proxy_of_environment(scheme: str, host: str | None, port: int | None) -> URL | None:
    address = getproxies().get(scheme)
    if not address or is_loopback(host) or proxy_bypass(f"{host}:{port}"):
        return None
    try:
        proxy = URL(address if "://" in address else f"http://{address}")
    except ValueError:
        proxy = URL()
    if proxy.scheme not in {"http", "https"} or not proxy.host:
        # The value itself may hold a password.
        raise SettingsError(
            f"{scheme.upper()}_PROXY is no http(s) address; correct it, or configure(trust_env=False)"
        )
    return proxy


def _place(url: URL) -> str:
    return f"{url.host}:{url.port}"


def _words(error: Exception, url: URL, proxy: URL | None, *, wrote: bool) -> str:
    """Say what failed, without aiohttp's words: they show whole URLs, signatures included."""
    place, gate = _place(url), _place(proxy or url)
    match error:
        case aiohttp.ClientHttpProxyError():
            return f"the proxy {gate} refused the way to {place}: status {error.status}"
        case aiohttp.ClientProxyConnectionError():
            text = f"the proxy {gate} cannot be reached"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            text = f"no trusted TLS connection to {place}"
        case aiohttp.ClientConnectorError():
            text = f"{place} cannot be reached"
        case HttpProcessingError():
            large = " with a header that is too large" if "more than" in error.message else ""
            return f"{place} sent what is no HTTP answer{large}"
        case _NoAnswerError():
            return f"{place} {error}"
        case _ if wrote:
            text = f"{place} closed the connection before it answered"
        case _:
            text = f"the connection to {place} was lost before the request was sent"
    return f"{text}: {_reason(error)}"


def _reason(error: BaseException) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return str(
        getattr(inner, "verify_message", None) or getattr(inner, "strerror", None) or type(inner).__name__
    )
