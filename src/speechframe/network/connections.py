"""Limits on the connections of a server, on the time for a header section, and on repeated log lines.

The local service and a served listening test use this module. aiohttp limits neither the number of
connections nor the time for a header section. It answers invalid HTTP in plain text and logs a traceback.
`_Connection` is a subclass of aiohttp's connection class that changes this behaviour.

If a server is full, it closes the connection that has been idle for the longest time. If no connection is
idle, a new connection gets 503.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, Protocol
from weakref import WeakSet

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler

from speechframe.network.descriptors import MAX_DESCRIPTORS

RETRY_AFTER_S = 1.0
"""Seconds in the Retry-After of a 503 from a full server. A connection may become idle at any time."""

_MAX_CONNECTIONS = MAX_DESCRIPTORS // 2
"""Largest number of connections of a server, if the process may open twice as many files and sockets."""
_HANDLER_OPTIONS: dict[str, Any] = {
    "keepalive_timeout": 75.0,
    "lingering_time": 5.0,
    "access_log": None,
    # Do not decompress bodies here, because a client without a key could block the event loop. A handler that
    # accepts a body decompresses it up to a limit.
    "auto_decompress": False,
}
_REFUSAL_WAIT_S = 1.0
"""Seconds to wait for the request of a refused connection. An answer before the request may get lost."""
_ACCEPTED_AT_ONCE = 16
"""Number of connections that asyncio accepts in one step. The limit may be exceeded by this number."""
_KERNEL_QUEUE_CONNECTIONS = 512
"""Number of connections in the queue of the kernel."""
_REPEAT_PERIOD_S = 60.0
"""Seconds for which a repeated log line is only counted."""
_MAX_COUNTED_LINES = 1000
"""Largest number of different log lines whose repeats are counted."""

RefusalFactory = Callable[[HTTPStatus, str], web.Response]


class ConnectionWatcher(Protocol):
    """Interface of an object that is called for each new and each lost connection."""

    def add(self, connection: asyncio.BaseProtocol, transport: asyncio.BaseTransport) -> None:
        """Record a new connection."""

    def remove(self, connection: asyncio.BaseProtocol) -> None:
        """Record the loss of a connection."""


class Connections:
    """The open connections of one server, with their limit.

    Parameters
    ----------
    server
        The aiohttp server that handles requests.
    refusal
        Function that returns the answer for a status and a message, if no handler does. The status is 400 for
        invalid HTTP, 408 for a late header section, 500 for a failure outside of the handlers, and 503 for a
        full server.
    header_timeout_s
        Allowed seconds from the first byte of a request to the end of its header section.
    log
        Logger for failures.
    watcher
        Object that is called for each new and each lost connection (default: none).
    """

    def __init__(
        self,
        server: web.Server,
        *,
        refusal: RefusalFactory,
        header_timeout_s: float,
        log: logging.Logger,
        watcher: ConnectionWatcher | None = None,
    ) -> None:
        self.server, self.refusal, self.header_timeout_s, self.log = server, refusal, header_timeout_s, log
        self.watcher = watcher
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Use half of the file descriptors. Files, databases, child processes and requests need the others.
        self.max_open = (
            _MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else min(_MAX_CONNECTIONS, soft // 2)
        )
        # Keep weak references, because `connection_lost` is not called if a connection fails early.
        self._open: WeakSet[_Connection] = WeakSet()
        self._refused: WeakSet[_RefusedConnection] = WeakSet()

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Accept connections on a bound socket. Return the asyncio server, which is already listening."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._accept, sock=listener, backlog=_ACCEPTED_AT_ONCE)
        # `backlog` sets the number of connections that are accepted in one step, and the queue of the kernel.
        # So set the queue again.
        listener.listen(_KERNEL_QUEUE_CONNECTIONS)
        return server

    def forget(self, connection: "_Connection | _RefusedConnection") -> None:
        """Remove a closed connection from the counted connections."""
        if isinstance(connection, _Connection):
            self._open.discard(connection)
        else:
            self._refused.discard(connection)

    def _accept(self) -> asyncio.BaseProtocol:
        if len(self._open) >= self.max_open:
            idle = [one for one in self._open if one.idle_until_s is not None]
            if not idle:
                may_wait = len(self._refused) < self.max_open // 4
                refused = _RefusedConnection(self, _REFUSAL_WAIT_S if may_wait else 0.0)
                self._refused.add(refused)
                return refused
            min(idle, key=lambda one: one.idle_until_s or 0.0).drop()
        connection = _Connection(self)
        self._open.add(connection)
        return connection

    def encode_refusal(self, status: HTTPStatus, message: str) -> bytes:
        """Return a refusal as the bytes of an HTTP answer, for a connection without a parsed request."""
        response = self.refusal(status, message)
        body = response.body if isinstance(response.body, bytes) else b""
        response.headers[hdrs.CONTENT_LENGTH] = str(len(body))
        response.headers[hdrs.CONNECTION] = "close"
        head = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        return f"HTTP/1.1 {response.status} {response.reason}\r\n{head}\r\n".encode() + body


class _Connection(RequestHandler):
    """An accepted connection with a limit of header time."""

    __slots__ = ("__weakref__", "_connections", "_header_timer")

    def __init__(self, connections: Connections) -> None:
        super().__init__(
            connections.server, loop=asyncio.get_running_loop(), logger=connections.log, **_HANDLER_OPTIONS
        )
        self._connections = connections
        self._header_timer: asyncio.TimerHandle | None = None

    @property
    def idle_until_s(self) -> float | None:
        """Time at which an idle connection is closed, on the clock of the event loop. None if it is busy."""
        waits = self._waiter is not None and not self._waiter.done() and self._header_timer is None
        return self._next_keepalive_close_time if waits else None

    def drop(self) -> None:
        """Close the connection at once, and discard unsent data."""
        transport = self.transport
        self._connections.forget(self)
        self.force_close()
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass the new connection to the watcher and to aiohttp."""
        if self._connections.watcher is not None:
            self._connections.watcher.add(self, transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes to aiohttp. The header timer runs from the first byte of a header to its end."""
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self._stop_timer()
        elif self._header_timer is None and self._waiter is not None and not self._waiter.done():
            # aiohttp waits for a request, so these bytes are the beginning of a header section.
            self._header_timer = self._loop.call_later(
                self._connections.header_timeout_s, self._refuse_late_header
            )

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timer, and remove the connection from the count and from the watcher."""
        self._stop_timer()
        self._connections.forget(self)
        if self._connections.watcher is not None:
            self._connections.watcher.remove(self)
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse_late_header(self) -> None:
        self._header_timer = None
        if self.transport is not None:
            message = f"the header section did not arrive within {self._connections.header_timeout_s:g} s"
            self.transport.write(self._connections.encode_refusal(HTTPStatus.REQUEST_TIMEOUT, message))
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the answer to invalid HTTP, or to an exception that the application did not catch."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun, so it can only be cut off")
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            refusal_message = f"the request is not valid HTTP: {type(exc).__name__}"
            response = self._connections.refusal(HTTPStatus.BAD_REQUEST, refusal_message)
        else:
            self._connections.log.error("a request failed outside of the application", exc_info=exc)
            response = self._connections.refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the service failed")
        response.force_close()
        return response


class _RefusedConnection(asyncio.Protocol):
    """A connection to a full server. It gets 503 after its first bytes, or after `patience_s` seconds."""

    def __init__(self, connections: Connections, patience_s: float) -> None:
        self._connections, self._patience_s = connections, patience_s
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the timer of the wait for a request."""
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - true for TCP sockets
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._end)

    def data_received(self, data: bytes) -> None:
        """Answer after the first bytes, and discard all bytes. Unread bytes could destroy the answer."""
        del data
        self._answer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer, and remove the connection from the count."""
        del exc
        self._timer.cancel()
        self._connections.forget(self)

    def _answer(self) -> None:
        if not self._answered:
            self._answered = True
            message = (
                f"all {self._connections.max_open:,} connections are in use; try again in {RETRY_AFTER_S:g} s"
            )
            self._transport.write(self._connections.encode_refusal(HTTPStatus.SERVICE_UNAVAILABLE, message))
            with contextlib.suppress(OSError):  # the client may have closed the connection
                self._transport.write_eof()

    def _end(self) -> None:
        self._answer()
        self._transport.abort()


@contextlib.contextmanager
def collapse_repeats(*loggers: str) -> Iterator[None]:
    """Log equal warnings and errors of these loggers only once a minute, and then the number of repeats.

    This is a context manager. `loggers` are names of loggers.
    """
    repeats = _RepeatFilter()
    for name in loggers:
        logging.getLogger(name).addFilter(repeats)
    try:
        yield
    finally:
        for name in loggers:
            logging.getLogger(name).removeFilter(repeats)
        repeats.log_repeats(float("inf"))


class _RepeatFilter(logging.Filter):
    """Filter that drops a line that was logged in the last minute, and counts these repeats."""

    def __init__(self) -> None:
        super().__init__()
        # For each line, the time at which it was logged and the number of repeats since then.
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record must be logged. Lines below WARNING are always logged."""
        if record.levelno < logging.WARNING:
            return True
        now_s = time.monotonic()
        self.log_repeats(now_s)
        line = (record.name, record.levelno, record.getMessage())
        if line in self._seen:
            logged_s, count = self._seen[line]
            self._seen[line] = (logged_s, count + 1)
            return False
        if len(self._seen) >= _MAX_COUNTED_LINES:
            self.log_repeats(float("inf"))
        self._seen[line] = (now_s, 0)
        return True

    def log_repeats(self, now_s: float) -> None:
        """Remove lines that were logged over a minute ago, and log the number of repeats of each."""
        for line, (logged_s, count) in list(self._seen.items()):
            if logged_s + _REPEAT_PERIOD_S <= now_s and line in self._seen:
                del self._seen[line]
                name, level, message = line
                if count:
                    logging.getLogger(name).log(level, "%s (%d times more)", message, count)
