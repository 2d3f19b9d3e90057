"""How bytes are exchanged: the Protocol, and the only place of the toolkit that knows aiohttp."""

import asyncio
import contextlib
import ssl
import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from speechframe.errors import BadAnswer, ConnectionFailed, SettingsError, TimedOut
from speechframe.settings import is_loopback
from speechframe.wire.encoding import BadEncodingError, TooLargeError, unpack

KEEPALIVE_S = 4.0
"""Idle connections are closed by us after this. Common servers close theirs after 5 s, and a request written
to a connection that is just being closed may or may not have been billed."""

ERROR_BODY_S = 5.0
"""Longest wait for the body of an error answer; its status is known by then."""

_CONNECTION_IN_DOUBT = frozenset({408, 500, 502, 504})
"""After these the other end may still be busy with the request: the connection is not used again."""


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


class Transport(Protocol):
    """One exchange of bytes at a time, without retries, redirects, cookies and secrets of its own."""

    async def exchange(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        timeout_s: float,
        max_bytes: int,
        max_error_bytes: int,
    ) -> Reply:
        """Send one request once and return the answer, whatever its status.

        Parameters
        ----------
        method, url, headers, body
            The request. The URL is sent as it is spelled.
        timeout_s
            Limit of the whole exchange.
        max_bytes
            The largest body of a good answer, packed or unpacked.
        max_error_bytes
            What is read of the body of any other answer.

        Raises
        ------
        ConnectionFailed, TimedOut
            No answer; ``sent`` is False only when it is certain that no byte of the request was written.
        BadAnswer
            A good status with a body that is truncated, too large or wrongly encoded.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class AiohttpTransport:
    """The transport over aiohttp: one pool of connections, made on first use in the loop that uses it.

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
        self._connect_s = connect_s
        self._max_connections = max_connections
        self._trust_env = trust_env
        self._ssl: ssl.SSLContext | bool = True if ca_file is None else _trusting(ca_file)
        self._proxies: dict[tuple[str, str | None, int | None], URL | None] = {}
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    async def exchange(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        timeout_s: float,
        max_bytes: int,
        max_error_bytes: int,
    ) -> Reply:
        """Send one request once and return the answer; see :class:`Transport`."""
        session, proxy = self._opened(), self._proxy(url)
        attempt = _Attempt(has_body=body is not None)
        _ATTEMPT.set(attempt)
        # Raised after the except blocks: an error chained to aiohttp's would carry its frames, URL and
        # headers along.
        try:
            async with (
                asyncio.timeout(timeout_s),
                session.request(
                    method,
                    url,
                    data=None if body is None else _Body(body, attempt),
                    headers=headers,
                    allow_redirects=False,
                    proxy=proxy,
                ) as response,
            ):
                return await _read(response, attempt, max_bytes, max_error_bytes)
        except TimeoutError as error:
            words = "no answer from" if attempt.wrote else "no connection to"
            limit_s = self._connect_s if isinstance(error, aiohttp.ConnectionTimeoutError) else timeout_s
            failure: Exception = TimedOut(f"{words} {_place(url)} within {limit_s:g} s", sent=attempt.wrote)
        except BadAnswer as error:
            failure = error
        except (aiohttp.ClientError, OSError) as error:
            failure = ConnectionFailed(_words(error, url, proxy, attempt), sent=attempt.wrote)
        attempt.drop()
        raise failure.with_traceback(None) from None

    async def close(self) -> None:
        """Close every connection; further exchanges raise RuntimeError."""
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise RuntimeError("the client is closed")
        loop = asyncio.get_running_loop()
        if self._session is None:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=_Connector(
                    limit=self._max_connections,
                    keepalive_timeout=KEEPALIVE_S,
                    ssl=self._ssl,
                    ttl_dns_cache=60,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # The whole attempt is timed by asyncio.timeout: aiohttp's own total was seen not to end
                # some requests.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
                # Ours is bounded.
                auto_decompress=False,
                # Proxies are looked up here once an origin; aiohttp would do it a request, and add keys of
                # ~/.netrc.
                trust_env=False,
            )
        elif self._loop is not loop:
            raise RuntimeError("a client belongs to the event loop that first used it; make one for each")
        return self._session

    def _proxy(self, url: URL) -> URL | None:
        if not self._trust_env:
            return None
        origin = (url.scheme, url.host, url.port)
        if origin not in self._proxies:
            self._proxies[origin] = None if is_loopback(url.host) else _proxy_of_environment(url)
        return self._proxies[origin]


class _Attempt:
    """What is known of one exchange while it runs."""

    __slots__ = ("_owners", "_protocol", "connects", "has_body", "transport", "written", "wrote")

    def __init__(self, *, has_body: bool) -> None:
        self.has_body = has_body
        self.connects = 0
        self.transport: asyncio.Transport | None = None
        self.wrote = False
        """Whether a byte of the request may have left."""
        self.written = not has_body
        """Whether the whole body was handed over."""
        self._protocol: Any = None
        self._owners: weakref.WeakKeyDictionary[Any, int] | None = None

    def take(self, connection: Any, owners: "weakref.WeakKeyDictionary[Any, int]") -> None:
        """Note the connection this exchange runs on."""
        self.transport, self._protocol, self._owners = connection.transport, connection.protocol, owners
        self.wrote = not self.has_body
        owners[self._protocol] = id(self)

    def drop(self) -> None:
        """Close the connection for good, unless the pool gave it to another exchange in the meantime."""
        if (
            self.transport is not None
            and self._owners is not None
            and self._owners.get(self._protocol) == id(self)
        ):
            self.transport.abort()


_ATTEMPT: ContextVar[_Attempt] = ContextVar("_ATTEMPT")


class _Connector(aiohttp.TCPConnector):
    """A pool that hands out a connection only when nothing came in on it while it lay idle.

    A stray second answer, left on a kept-alive connection, would be taken for the answer of the next
    request: a row would get its neighbour's audio without an error.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._owners: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - aiohttp's name
        attempt = _ATTEMPT.get()
        attempt.connects += 1
        if attempt.connects > 1:
            # aiohttp repeats a GET by itself when its connection was dropped; attempts would be miscounted.
            raise aiohttp.ServerDisconnectedError
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                attempt.take(connection, self._owners)
                return connection
            fresh = protocol not in self._owners
            connection.close()
            if fresh:
                raise aiohttp.ClientConnectionError("the other end spoke before it was asked")


class _Body(aiohttp.BytesPayload):
    """A request body that notes when its first byte is about to leave."""

    def __init__(self, value: bytes, attempt: _Attempt) -> None:
        super().__init__(value, content_type="application/json")
        self._attempt = attempt

    async def write_with_length(self, writer: Any, content_length: int | None) -> None:
        self._begin()
        await super().write_with_length(writer, content_length)
        self._attempt.written = True

    async def write(self, writer: Any) -> None:
        # The entry of aiohttp before 3.12.
        self._begin()
        await super().write(writer)
        self._attempt.written = True

    def _begin(self) -> None:
        # On a closing connection the write raises without having written: the headers wait for the body.
        transport = self._attempt.transport
        self._attempt.wrote = transport is None or not transport.is_closing()


async def _read(
    response: aiohttp.ClientResponse, attempt: _Attempt, max_bytes: int, max_error_bytes: int
) -> Reply:
    status, headers = response.status, response.headers
    if status in _CONNECTION_IN_DOUBT or not attempt.written:
        _distrust(response, attempt)
    if status // 100 == 2:  # noqa: PLR2004
        body = await _read_good(response, max_bytes)
    else:
        body = await _read_error(response, max_error_bytes)
    return Reply(status, headers, body, attempt.drop)


def _distrust(response: aiohttp.ClientResponse, attempt: _Attempt) -> None:
    # A body that came together with its headers has sent the connection back to the pool already.
    connection = response.connection
    if connection is not None and connection.protocol is not None:
        connection.protocol.force_close()
    else:
        attempt.drop()


async def _read_good(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    said = response.content_length
    if said is not None and said > max_bytes:
        raise BadAnswer(f"the answer is too large: {said:,} bytes, {max_bytes:,} are allowed")
    try:
        if said is not None:
            body = await response.read()
        else:
            body, whole = await _read_bounded(response, max_bytes)
            if not whole:
                raise BadAnswer(f"the answer is too large: more than {max_bytes:,} bytes")
        return unpack(body, response.headers.get("Content-Encoding", ""), max_bytes=max_bytes)
    except TimeoutError:
        raise
    except (aiohttp.ClientError, OSError):
        problem = "the answer is truncated: the connection ended within its body"
    except (TooLargeError, BadEncodingError) as error:
        problem = str(error)
    raise BadAnswer(problem)


async def _read_error(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
        async with asyncio.timeout(ERROR_BODY_S):
            await _collect(response, chunks, max_bytes)
    packed = b"".join(chunks)[:max_bytes]
    try:
        return unpack(packed, response.headers.get("Content-Encoding", ""), max_bytes=max_bytes)
    except (TooLargeError, BadEncodingError):
        return b""


async def _read_bounded(response: aiohttp.ClientResponse, max_bytes: int) -> tuple[bytes, bool]:
    chunks: list[bytes] = []
    whole = await _collect(response, chunks, max_bytes)
    return b"".join(chunks), whole


async def _collect(response: aiohttp.ClientResponse, chunks: list[bytes], max_bytes: int) -> bool:
    size = 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            return False
    return True


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"ca_file {str(ca_file)!r} cannot be used: {error.strerror or error}") from None


def _proxy_of_environment(url: URL) -> URL | None:
    address = getproxies().get(url.scheme)
    if not address or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        proxy = URL(address if "://" in address else f"http://{address}")
    except ValueError:
        proxy = URL()
    if proxy.scheme not in {"http", "https"} or not proxy.host:
        # The value itself may hold a password.
        raise SettingsError(
            f"{url.scheme.upper()}_PROXY is no http(s) address; correct it, or configure(trust_env=False)"
        )
    return proxy


def _place(url: URL) -> str:
    return f"{url.host}:{url.port}"


def _words(error: Exception, url: URL, proxy: URL | None, attempt: _Attempt) -> str:
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
        case aiohttp.ClientResponseError():
            large = " with a header that is too large" if "more than" in error.message else ""
            return f"{place} sent what is no HTTP answer{large}"
        case _ if attempt.wrote:
            text = f"{place} closed the connection before it answered"
        case _:
            text = f"the connection to {place} was lost before the request was sent"
    return f"{text}: {_reason(error)}"


def _reason(error: BaseException) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return str(
        getattr(inner, "verify_message", None) or getattr(inner, "strerror", None) or type(inner).__name__
    )
