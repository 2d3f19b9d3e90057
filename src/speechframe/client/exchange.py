"""Send one request over aiohttp's pool of connections, and report whether a failed request was sent.

aiohttp provides the pool, name lookup, TLS, proxies and the parser. This file writes the request itself, so
that four rules hold. An error shows whether a byte of the request may have left. No request is repeated
unless the caller repeats it. No redirect is followed. A connection with any irregularity is not used again.

Only this file uses private or little-known names of aiohttp. They are `connect` of a pool, and `protocol` of
a connection with its `set_response_params`, `read`, `should_close` and `force_close`.
"""

import asyncio
import contextlib
import functools
import select
import ssl
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict, MultiMapping
from yarl import URL

from speechframe._version import __version__
from speechframe.client.upload import Body
from speechframe.errors import AudioError, BadAnswer, ConnectionFailed, SettingsError, TimedOut
from speechframe.settings import is_loopback
from speechframe.settings.hidden import Hidden
from speechframe.spec.chosen import CALL_STATE_HEADER, TRACE_HEADER
from speechframe.wire.answers import find_balance
from speechframe.wire.encoding import BadEncodingError, TooLargeError, decompress

Admit = Callable[[int], Awaitable[None]]
"""Awaited with a number of bytes before they are read, so that a caller can wait for free memory."""
Progress = Callable[[], None]
"""Called when the service reports that it still works on a request."""

# Close idle connections after this time. Common servers close idle connections after 5 s. If a request is
# written at that moment, the client cannot find out whether the request was billed.
KEEPALIVE_S = 4.0
# Longest wait in seconds until the service closes its side of a WebSocket.
CLOSE_S = 2.0
# Longest wait in seconds for the body of an error answer. The status has arrived by then.
ERROR_BODY_S = 5.0

_USER_AGENT = f"speechframe/{__version__}"
# Size of aiohttp's read buffer for an answer.
_READ_BUFFER_BYTES = 256 * 1024
# The first bytes of a body are read without `admit`, because most of them are in memory before `admit` could
# be awaited. If an answer does not state its length, each further call of `admit` is for `_ADMIT_STEP_BYTES`.
_UNADMITTED_BYTES, _ADMIT_STEP_BYTES = 64 * 1024, 1 << 20
# While a file is sent, the write buffer is checked at this interval, in seconds.
_DRAIN_INTERVAL_S = 0.005
# Number of origins (scheme, host and port) whose proxies and connection targets are cached.
_MAX_CACHED_ORIGINS = 256
# HTTP statuses "Switching Protocols" and "Processing".
_SWITCHING_STATUS, _PROCESSING_STATUS = 101, 102
_GOOD_STATUSES = range(200, 300)
# After these statuses the service may still work on the request, so the connection is not used again.
_STATUSES_WITHOUT_REUSE = frozenset({_SWITCHING_STATUS, 408, *range(500, 600)} - {503})
# Errors of a connection. TimeoutError is an OSError, too.
_CONNECTION_ERRORS = (aiohttp.ClientError, HttpProcessingError, OSError)
# aiohttp's protocol objects of connections that were used before. Only a used connection can hold a stray
# answer.
_USED_PROTOCOLS: "weakref.WeakSet[Any]" = weakref.WeakSet()


class CutOffError(BadAnswer):
    """The connection ended within the body of an answer."""


class Exchange:
    """One pool of connections. The pool is created on first use, and belongs to the event loop of that use.

    Requests to this machine never use the proxies of the environment (`trust_env`). Otherwise a key in plain
    http would leave the machine.
    """

    def __init__(
        self, *, connect_s: float, max_connections: int, trust_env: bool, ca_file: Path | None
    ) -> None:
        self._connect_timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        self._max_connections = max_connections
        try:
            self._ssl = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            message = f"ca_file {str(ca_file)!r} cannot be used: {error.strerror or error}"
            raise SettingsError(message) from None
        # The proxy of each origin is looked up once.
        self._proxy_of = functools.lru_cache(_MAX_CACHED_ORIGINS)(
            _find_proxy if trust_env else lambda *_: None
        )
        self._session: aiohttp.ClientSession | None = None
        self._held: set[HttpReply] = set()  # good answers that still hold a connection
        self._closed = False

    async def ask(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | Body | None = None,
        timeout_s: float,
        max_bytes: int | None,
        max_error_bytes: int,
        admit: Admit | None = None,
        progress: Progress | None = None,
        hold: bool = False,
    ) -> "HttpReply":
        """Send one request once, and return the answer with any status.

        The URL is sent as spelled. A good answer is one with a status from 200 to 299. Its body has at most
        `max_bytes`, both compressed and decompressed. If `max_bytes` is None, the body is left unread, and
        `timeout_s` covers only the time until the answer begins. `admit` is awaited with the number of
        further bytes that a good body needs in memory. This wait does not count towards `timeout_s`. The
        service may report that it still works on the request. If `progress` is given, each such report calls
        `progress` and restarts the time limit. With `hold`, no other request gets the connection of a good
        answer until :meth:`HttpReply.close`. Errors are those of :meth:`Caller.send_raw`, with CutOffError
        for a truncated body.
        """
        loop, session = asyncio.get_running_loop(), self._open_session()
        reply, proxy = HttpReply(), None

        async def wait_for_admission(count: int) -> None:
            if admit is not None and count:
                left_s = (limit.when() or loop.time()) - loop.time()
                limit.reschedule(None)
                await admit(count)
                limit.reschedule(loop.time() + left_s)

        # Raise after the except blocks. An error chained to aiohttp's would show its URL and headers.
        try:
            # Use our own timeout. aiohttp's does not end every request on a connection in a bad state.
            async with asyncio.timeout(timeout_s) as limit:
                proxy = self._proxy_of(url.scheme, url.host, url.port)
                # aiohttp adds the proxy's password to the target, so targets with a proxy are not cached.
                target = (
                    self._target(url.origin())
                    if proxy is None
                    else _make_pool_request(session, url.origin(), proxy)
                )
                head = _make_head(method, url, headers, body, target if proxy is not None else None)
                extend = functools.partial(_extend_limit, limit, timeout_s, progress)
                try:
                    await reply.connect(session, target, self._connect_timeout)
                    if isinstance(body, Body):
                        await reply.send_pieces(head, body, extend)
                    else:
                        await reply.send(head, body or b"", extend)
                    if not reply.ok:
                        await reply.read_error(max_error_bytes)
                    elif max_bytes is None:
                        return reply
                    else:
                        await reply.read_good(max_bytes, wait_for_admission, extend)
                except BaseException:
                    reply.drop()
                    reply.close()
                    raise
                if hold and reply.ok:
                    reply.keep_in(self._held)
                else:
                    reply.close()
                return reply
        except (BadAnswer, AudioError) as error:
            failure: Exception = error
        except _CONNECTION_ERRORS as error:
            is_connecting = isinstance(error, aiohttp.ServerTimeoutError)
            limit_s = self._connect_timeout.sock_connect if is_connecting else timeout_s
            failure = _make_connection_error(error, url, proxy, limit_s, wrote=reply.wrote)
        raise failure.with_traceback(None) from None

    async def open_websocket(
        self, url: URL, *, headers: Mapping[str, str], timeout_s: float, max_message_bytes: int
    ) -> "aiohttp.ClientWebSocketResponse | HttpReply":
        """Open a WebSocket, or return the answer that refuses it.

        Nothing is compressed, because Base64 audio does not shrink. No pings are sent, because a service that
        waits for a slow reader does not answer pings. ConnectionFailed and TimedOut have ``sent=False``.
        """
        session, proxy = self._open_session(), self._proxy_of(url.scheme, url.host, url.port)
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
        except _CONNECTION_ERRORS as error:
            if isinstance(error, aiohttp.WSServerHandshakeError) and error.status != _SWITCHING_STATUS:
                return HttpReply(error.status, error.headers)
            failure = _make_connection_error(error, url, proxy, timeout_s, wrote=False)
        raise failure.with_traceback(None) from None

    async def close(self) -> None:
        """Close every connection. Further exchanges raise RuntimeError."""
        self._closed = True
        for reply in [*self._held]:
            reply.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        """Return the pool of connections, created at the first call."""
        if self._closed:
            raise RuntimeError("the client is closed; make another client")
        if self._session is None:
            # Refuse redirects of WebSockets by a trace, because `ws_connect` has no argument for them.
            refuse_redirects = aiohttp.TraceConfig()
            refuse_redirects.on_request_redirect.append(_refuse_redirect)
            connector = aiohttp.TCPConnector(
                limit=self._max_connections, keepalive_timeout=KEEPALIVE_S, ssl=self._ssl, ttl_dns_cache=60
            )
            # This class looks up the proxies. With trust_env, aiohttp would also add keys of ~/.netrc.
            self._session = aiohttp.ClientSession(
                connector=connector, cookie_jar=aiohttp.DummyCookieJar(), trace_configs=[refuse_redirects]
            )
            self._target = functools.lru_cache(_MAX_CACHED_ORIGINS)(
                functools.partial(_make_pool_request, self._session)
            )
        elif self._session._loop is not asyncio.get_running_loop():  # noqa: SLF001 - `loop` is deprecated
            raise RuntimeError("a client belongs to the event loop that first used it; make one per loop")
        return self._session


def ignore_progress() -> None:
    """Do nothing. The default of arguments of type :data:`Progress`."""


def _extend_limit(limit: asyncio.Timeout, timeout_s: float, progress: Progress | None) -> None:
    """Restart a time limit and call `progress`. Do nothing without `progress`."""
    if progress is not None and not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
        progress()


def _make_pool_request(
    session: aiohttp.ClientSession, origin: URL, proxy: URL | None = None
) -> aiohttp.ClientRequest:
    """Return a request that is never sent. aiohttp's pool needs it to find or open a connection."""
    loop = asyncio.get_running_loop()
    return aiohttp.ClientRequest("GET", origin, loop=loop, session=session, proxy=proxy)


class HttpReply:
    """One request on a connection, and its answer. The `body` of an error answer may be incomplete."""

    def __init__(self, status: int = 0, headers: MultiMapping[str] | None = None) -> None:
        self.status, self.headers, self.body = status, headers or CIMultiDict[str](), b""
        self.ok = status in _GOOD_STATUSES  # True for a status from 200 to 299
        self.wrote = False  # True once a byte of the request may have left
        # Call `drop` if the answer turns out to be wrong. The connection is then not used again.
        self.drop: Callable[[], None] = lambda: None
        # `close` clears the connection and the protocol, because an answer that is kept must not keep its
        # connection alive.
        self._connection: aiohttp.connector.Connection | None = None
        self._protocol: Any = None
        self._stream: Any = None
        self._held: set[HttpReply] = set()

    def keep_in(self, held: "set[HttpReply]") -> None:
        """Keep this answer in `held` until it is closed."""
        self._held = held
        held.add(self)

    async def connect(
        self, session: aiohttp.ClientSession, target: aiohttp.ClientRequest, limit: aiohttp.ClientTimeout
    ) -> None:
        """Take a connection from the pool that received nothing while it was idle.

        A connection with unread bytes is not used. These bytes may be a stray second answer, which would
        count as the answer to the next request. A row would then get the audio of another row without an
        error. A connection that the service has closed is not used either, because the client could not find
        out whether the service accepted the request. Raises aiohttp.ClientError if no connection can be made.
        """
        connector = session.connector
        assert connector is not None  # noqa: S101 - for the type: the session was made with one
        while True:
            try:
                connection = await connector.connect(target, traces=[], timeout=limit)
            except TimeoutError:
                raise aiohttp.ConnectionTimeoutError from None
            protocol: Any = connection.protocol
            is_new = protocol not in _USED_PROTOCOLS
            is_usable = protocol is not None and not protocol.should_close
            if is_usable and not is_new:
                # The kernel reports whether bytes, or the end of the connection, have arrived.
                poll = select.poll()
                poll.register(protocol.transport.get_extra_info("socket"), select.POLLIN)
                is_usable = not poll.poll(0)
            if is_usable:
                break
            connection.close()
            if is_new:
                raise aiohttp.ClientConnectionError
        self._connection, self._protocol = connection, protocol
        if is_new:
            _USED_PROTOCOLS.add(protocol)
        # `drop` only marks the connection. The pool closes a marked connection on its return or at its next
        # use. So `drop` cannot break an exchange that has the connection by then, and any thread may call
        # `drop`.
        self.drop = protocol.force_close

    async def send(self, head: Hidden, body: bytes, progress: Progress) -> None:
        """Write a request, or its first part, and wait until the answer begins.

        Calls `progress` for each interim answer (status 102) that reports the state of the call.
        """
        protocol, transport = self._protocol, self._protocol.transport
        protocol.set_response_params(
            read_until_eof=True, auto_decompress=False, read_bufsize=_READ_BUFFER_BYTES
        )
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionError
        self.wrote = True
        transport.write(head.encode() + body)
        status = 0
        while status // 100 <= 1 and status != _SWITCHING_STATUS:
            message, self._stream = await protocol.read()
            status, self.headers = message.code, message.headers
            if status == _PROCESSING_STATUS and CALL_STATE_HEADER in self.headers:
                progress()
        self.status, self.ok = status, status in _GOOD_STATUSES
        if status in _STATUSES_WITHOUT_REUSE or transport.get_write_buffer_size():
            self.drop()

    async def send_pieces(self, head: Hidden, body: Body, progress: Progress) -> None:
        """Write a request with a file piece by piece. Stop early if the service answers before the end."""
        pieces, transport = body.read_pieces(), self._protocol.transport
        # Send the head with the first piece, so that nothing leaves if the file cannot be read.
        reading = asyncio.create_task(self.send(head, await anext(pieces), progress))
        try:
            await asyncio.sleep(0)  # `send` has written the first piece by then
            async for piece in pieces:
                while transport.get_write_buffer_size() and not reading.done():
                    await asyncio.wait({reading}, timeout=_DRAIN_INTERVAL_S)
                if reading.done():
                    self.drop()
                    break
                transport.write(piece)
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def read_good(self, max_bytes: int, admit: Admit, progress: Progress) -> None:
        """Read and unpack the body of a good answer, see :meth:`Exchange.ask`.

        Calls `progress` for each piece, if the headers show that the service works on the answer meanwhile.
        """
        progress = progress if CALL_STATE_HEADER in self.headers else ignore_progress
        error_type, chunks, size = BadAnswer, list[bytes](), 0
        try:
            # `int` cannot fail. The parser refuses a length that is not a number, and several lengths.
            length = int(self.headers.get("Content-Length") or 0)
            if length > _UNADMITTED_BYTES:
                await admit(min(length, max_bytes))
            admitted_bytes = max(length, _UNADMITTED_BYTES)
            while not self._stream.at_eof():
                chunk = await self._stream.readany()
                chunks.append(chunk)
                size += len(chunk)
                progress()
                if max(size, length) > max_bytes:
                    raise _make_size_error(max(size, length), max_bytes)
                if size > admitted_bytes:
                    await admit(_ADMIT_STEP_BYTES)
                    admitted_bytes += _ADMIT_STEP_BYTES
            self.body = b"".join(chunks)
            if encoding := self.headers.get("Content-Encoding"):
                self.body = decompress(self.body, encoding, max_bytes=max_bytes)
                await admit(max(0, len(self.body) - size))
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError):
            error_type, message = CutOffError, "the answer is truncated: the connection ended within its body"
        except (TooLargeError, BadEncodingError) as error:
            message = str(error)
        else:
            return
        # Even an unusable body may contain the balance. The trace id is masked and shortened later.
        balance = find_balance(b"".join(chunks))
        raise error_type(message, trace_id=self.headers.get(TRACE_HEADER), remaining_characters=balance)

    async def read_error(self, max_bytes: int) -> None:
        """Read at most `max_bytes` of the body of an error answer. A failure leaves it short or empty."""
        data = b""
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(ERROR_BODY_S):
                while len(data) < max_bytes and not self._stream.at_eof():
                    data += await self._stream.readany()
        with contextlib.suppress(TooLargeError, BadEncodingError):
            encoding = self.headers.get("Content-Encoding", "")
            self.body = decompress(data[:max_bytes], encoding, max_bytes=max_bytes)

    async def read(self) -> bytes:
        """Return the next bytes of an answer that :meth:`Exchange.ask` left unread. Empty at the end.

        Raises CutOffError if the connection ends within the body.
        """
        data = b""
        try:
            # Skip empty reads. aiohttp returns one at the end of each chunk of a chunked body.
            while not data and not self._stream.at_eof():
                data = await self._stream.readany()
        except TimeoutError:
            raise
        except _CONNECTION_ERRORS:
            self.close()
            raise CutOffError("the connection ended within the stream") from None
        if not data:
            self.close()
        return data

    def close(self) -> None:
        """Return the connection to the pool if the answer was read to its end. Otherwise close it."""
        self._held.discard(self)
        connection, self._connection, self._protocol = self._connection, None, None
        if connection is None:
            return
        if self._stream is not None and self._stream.is_eof():
            # The pool still closes the connection if it was dropped, or if the answer forbids reuse.
            connection.release()
            return
        # Abort, because a graceful close would wait for the other end.
        if connection.transport is not None:
            connection.transport.abort()
        connection.close()


def _make_head(
    method: str,
    url: URL,
    headers: Mapping[str, str],
    body: bytes | Body | None,
    proxy_target: aiohttp.ClientRequest | None,
) -> Hidden:
    """Return the request line and headers. `proxy_target` is the target with a proxy, otherwise None."""
    # Headers cannot contain line breaks, because addresses, keys and idempotency keys were checked before.
    lines = ""
    for name, value in headers.items():
        lines += f"{name}: {value}\r\n"
    path = url.raw_path_qs
    if proxy_target is not None and url.scheme == "http":
        path = str(url.with_fragment(None))
        if password := proxy_target.headers.get("Proxy-Authorization"):
            lines += f"Proxy-Authorization: {password}\r\n"
    if body is not None:
        lines += f"Content-Length: {body.size_bytes if isinstance(body, Body) else len(body)}\r\n"
    host = url.host_port_subcomponent
    # Hide the text, because it contains the key. Tracebacks of a cancelled call may show local variables.
    return Hidden(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {_USER_AGENT}\r\n{lines}\r\n")


async def _refuse_redirect(
    session: aiohttp.ClientSession,  # noqa: ARG001 - aiohttp's protocol
    context: SimpleNamespace,  # noqa: ARG001 - same
    params: aiohttp.TraceRequestRedirectParams,
) -> None:
    """Raise the error of a refused WebSocket, with the status and headers of the redirect."""
    status, headers = params.response.status, params.response.headers
    raise aiohttp.WSServerHandshakeError(params.response.request_info, (), status=status, headers=headers)


def _find_proxy(scheme: str, host: str | None, port: int | None) -> URL | None:
    """Return the proxy that the environment sets for a host, or None. Hosts on this machine have none."""
    address = getproxies().get(scheme)
    if not address or is_loopback(host) or proxy_bypass(f"{host}:{port}"):
        return None
    try:
        proxy = URL(address if "://" in address else f"http://{address}")
    except ValueError:
        proxy = URL()
    if proxy.scheme not in {"http", "https"} or not proxy.host:
        # Do not show the value, because it may contain a password.
        raise SettingsError(
            f"{scheme.upper()}_PROXY must be an http(s) address; correct it, or configure(trust_env=False)"
        )
    return proxy


def _make_size_error(size: int, max_bytes: int) -> TooLargeError:
    allowed = f"{max_bytes / 1e6:,.1f} MB are allowed for this request (max_answer_mb= allows more)"
    return TooLargeError(f"the answer is too large: {size / 1e6:,.1f} MB, {allowed}")


def _make_connection_error(
    error: Exception, url: URL, proxy: URL | None, limit_s: float | None, *, wrote: bool
) -> ConnectionFailed:
    """Return our error for an error of aiohttp, whose text may show a whole URL with its signature."""
    address, proxy_address = (f"{at.host}:{at.port}" for at in (url, proxy or url))
    match error:
        case TimeoutError():
            what_failed = "no answer from" if wrote else "no connection to"
            return TimedOut(f"{what_failed} {address} within {limit_s:g} s", sent=wrote)
        case aiohttp.ClientHttpProxyError():
            text = f"the proxy {proxy_address} refused a connection to {address}: status {error.status}"
            return ConnectionFailed(text, sent=wrote)
        case HttpProcessingError() | aiohttp.WSServerHandshakeError():
            text = f"{address} sent something other than an HTTP answer"
        case aiohttp.ClientProxyConnectionError():
            text = f"the proxy {proxy_address} cannot be reached"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            text = f"no trusted TLS connection to {address}"
        case aiohttp.ClientConnectorError():
            text = f"{address} cannot be reached"
        case _ if wrote:
            text = f"{address} closed the connection before it answered"
        case _:
            text = f"the connection to {address} was lost before the request was sent"
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    reason = getattr(inner, "verify_message", None) or getattr(inner, "strerror", None)
    return ConnectionFailed(f"{text}: {reason or type(inner).__name__}", sent=wrote)
