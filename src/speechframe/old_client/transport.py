"""How bytes are exchanged: the Protocol, and the transport over aiohttp's pool of connections."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.http import HttpProcessingError
from yarl import URL

from speechframe.errors import AudioError, BadAnswer, ConnectionFailed, SettingsError, TimedOut
from speechframe.old_client._deadlines import Deadline, Deadlines
from speechframe.old_client._exchange import Attempt, Incoming, Limits, NoAnswerError, Reply
from speechframe.old_client._request import Request
from speechframe.old_client._websocket import RedirectedError, Socket, opened, refusing_redirects
from speechframe.old_client.upload import Body
from speechframe.settings import is_loopback

__all__ = ["AiohttpTransport", "Incoming", "Reply", "Socket", "Transport"]

A = TypeVar("A")

KEEPALIVE_S = 4.0
"""Idle connections are closed by us after this. Common servers close theirs after 5 s, and a request written
to a connection that is just being closed may or may not have been billed."""


class Transport(Protocol):
    """One exchange of bytes at a time, without retries, redirects, cookies and secrets of its own."""

    async def exchange(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | Body | None = None,
        timeout_s: float,
        max_bytes: int,
        max_error_bytes: int,
    ) -> Reply:
        """Send one request once and return the answer, whatever its status.

        Parameters
        ----------
        method, url, headers, body
            The request. The URL is sent as it is spelled; a :class:`Body` is read while it is sent.
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
        AudioError
            The file of a body cannot be read, or is another one by now; the request was not completed.
        """
        ...

    async def begin(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        max_error_bytes: int,
    ) -> "Reply | Incoming":
        """Send one request once and return a good answer as soon as it begins, or any other answer whole.

        Parameters
        ----------
        method, url, headers, body, max_error_bytes
            As of :meth:`exchange`.
        timeout_s
            Limit until the answer begins.

        Raises
        ------
        ConnectionFailed, TimedOut
            As of :meth:`exchange`.
        """
        ...

    async def connect(
        self, url: URL, *, headers: Mapping[str, str], timeout_s: float, max_message_bytes: int
    ) -> "Socket | Reply":
        """Open a WebSocket, or return the answer that refuses it.

        Parameters
        ----------
        url, headers
            Of the upgrade; the address begins with http or https.
        timeout_s
            Limit of the upgrade.
        max_message_bytes
            A longer message ends the connection.

        Raises
        ------
        ConnectionFailed, TimedOut
            There is no connection; nothing was asked for yet, so ``sent`` is False.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class AiohttpTransport:
    """The transport over aiohttp: one pool of connections, made on first use in the loop that uses it.

    aiohttp gives what takes years to get right: the pool, names and addresses, TLS, proxies and the parser.
    What is said on a connection is said in `_exchange`: so it is known exactly when a byte of a request may
    have left, nothing is repeated behind a caller's back, and less work is done for each call.

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
        self._proxies: dict[_Origin, URL | None] = {}
        self._targets: dict[_Origin, aiohttp.ClientRequest] = {}
        self._session: aiohttp.ClientSession | None = None
        self._deadlines: Deadlines | None = None
        self._closed = False

    async def exchange(
        self,
        method: str,
        url: URL,
        *,
        headers: Mapping[str, str],
        body: bytes | Body | None = None,
        timeout_s: float,
        max_bytes: int,
        max_error_bytes: int,
    ) -> Reply:
        """Send one request once and return the answer; see :class:`Transport`."""

        def make(
            attempt: Attempt, target: aiohttp.ClientRequest, proxy: URL | None
        ) -> Coroutine[Any, Any, Reply]:
            request = Request(method, url, headers, body, is_proxied=proxy is not None)
            return attempt.make(request, target, Limits(max_bytes, max_error_bytes))

        return await self._ask(url, timeout_s, make)

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
        """Send one request once and return how its answer begins; see :class:`Transport`."""

        def make(
            attempt: Attempt, target: aiohttp.ClientRequest, proxy: URL | None
        ) -> Coroutine[Any, Any, Reply | Incoming]:
            request = Request(method, url, headers, body, is_proxied=proxy is not None)
            return attempt.begin(request, target, max_error_bytes)

        return await self._ask(url, timeout_s, make)

    async def connect(
        self, url: URL, *, headers: Mapping[str, str], timeout_s: float, max_message_bytes: int
    ) -> Socket | Reply:
        """Open a WebSocket, or return the answer that refuses it; see :class:`Transport`."""
        session, proxy = self._opened()[0], self._proxy(url)
        try:
            async with asyncio.timeout(timeout_s):
                return await opened(session, url, headers, proxy=proxy, max_message_bytes=max_message_bytes)
        except RedirectedError as redirected:
            return Reply(redirected.status, redirected.headers, b"")
        except aiohttp.WSServerHandshakeError as error:
            if error.status != _SWITCHING:
                return Reply(error.status, error.headers or {}, b"")
            words = f"{_place(url)} answered the upgrade with what is no WebSocket"
            failure = ConnectionFailed(words, sent=False)
        except TimeoutError:
            failure = TimedOut(f"no WebSocket to {_place(url)} within {timeout_s:g} s", sent=False)
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            failure = ConnectionFailed(_words(error, url, proxy, Attempt()), sent=False)
        raise failure.with_traceback(None) from None

    async def close(self) -> None:
        """Close every connection; further exchanges raise RuntimeError."""
        self._closed = True
        self._targets.clear()
        session, self._session = self._session, None
        if self._deadlines is not None:
            self._deadlines.close()
        if session is not None:
            await session.close()

    async def _ask(self, url: URL, timeout_s: float, make: "_Make[A]") -> A:
        """Take a connection, have a request made on it, and say of every failure what it is."""
        session, deadlines = self._opened()
        attempt = Attempt()
        proxy: URL | None = None
        # Raised after the except blocks: an error chained to aiohttp's would carry its frames, URL and
        # headers along.
        try:
            with Deadline(deadlines, timeout_s):
                target, proxy = self._way(session, url)
                await attempt.connect(session, target, self._connect)
                return await make(attempt, target, proxy)
        except TimeoutError as error:
            words = "no answer from" if attempt.wrote else "no connection to"
            early = isinstance(error, aiohttp.ConnectionTimeoutError)
            limit_s = self._connect.sock_connect if early else timeout_s
            failure: Exception = TimedOut(f"{words} {_place(url)} within {limit_s:g} s", sent=attempt.wrote)
        except (BadAnswer, AudioError) as error:
            failure = error
        except (aiohttp.ClientError, HttpProcessingError, NoAnswerError, OSError) as error:
            failure = ConnectionFailed(_words(error, url, proxy, attempt), sent=attempt.wrote)
        raise failure.with_traceback(None) from None

    def _opened(self) -> tuple[aiohttp.ClientSession, Deadlines]:
        if self._closed:
            raise RuntimeError("the client is closed")
        loop = asyncio.get_running_loop()
        if self._session is None or self._deadlines is None:
            self._deadlines = Deadlines(loop)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._max_connections,
                    keepalive_timeout=KEEPALIVE_S,
                    ssl=self._ssl,
                    ttl_dns_cache=60,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # Proxies are looked up here once an origin; aiohttp would do it a request, and add keys of
                # ~/.netrc.
                trust_env=False,
                # A WebSocket's upgrade is the one thing that is asked through the session.
                trace_configs=[refusing_redirects()],
            )
        elif self._deadlines.loop is not loop:
            raise RuntimeError("a client belongs to the event loop that first used it; make one for each")
        return self._session, self._deadlines

    def _way(self, session: aiohttp.ClientSession, url: URL) -> tuple[aiohttp.ClientRequest, URL | None]:
        """Return what the pool has to know to find a connection, origin and proxy; and the proxy."""
        origin = (url.scheme, url.host, url.port)
        found = self._targets.get(origin)
        if found is not None:
            return found, None
        proxy = self._proxy(url)
        target = aiohttp.ClientRequest(
            "GET", url.origin(), loop=asyncio.get_running_loop(), session=session, proxy=proxy
        )
        # A proxy's password is added to the target when it is connected: such a target serves once.
        if proxy is None and len(self._targets) < _MAX_TARGETS:
            self._targets[origin] = target
        return target, proxy

    def _proxy(self, url: URL) -> URL | None:
        if not self._trust_env:
            return None
        origin = (url.scheme, url.host, url.port)
        if origin not in self._proxies:
            proxy = None if is_loopback(url.host) else _proxy_of_environment(url)
            if len(self._proxies) >= _MAX_TARGETS:
                return proxy
            self._proxies[origin] = proxy
        return self._proxies[origin]


_Make = Callable[[Attempt, aiohttp.ClientRequest, URL | None], Awaitable[A]]
"""Makes a request on a connection, perhaps to a proxy, and returns its answer."""

_SWITCHING = 101

_Origin = tuple[str, str | None, int | None]

_MAX_TARGETS = 256
"""Origins that are remembered; answers may name any number of hosts."""


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


def _words(error: Exception, url: URL, proxy: URL | None, attempt: Attempt) -> str:
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
        case NoAnswerError():
            return f"{place} {error}"
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
