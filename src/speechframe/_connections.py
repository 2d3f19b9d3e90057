"""The connections of a server: how many there may be, how long they may take, and what its log says of them.

Both servers of the project listen with this: the local service, and a listening test that is served. aiohttp
has no bound on connections, no time limit for a header section, and answers broken HTTP in plain text with a
traceback in the log; all of this is decided in its connection class, so ours is made from it. Where there is
no room for a new connection, the one that has been idle for longest is closed; where none is idle, the new
one gets 503.
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

__all__ = ["RETRY_S", "Connections", "raise_descriptor_limit", "repeats_counted"]

RETRY_S = 1.0
"""What a 503 tells for want of room: the next connection to be idle is closed at once."""

_MOST = 4096
"""Connections of one server, where the process may have twice as many descriptors."""
_LIMITS: dict[str, Any] = {
    "keepalive_timeout": 75.0,
    "lingering_time": 5.0,
    "access_log": None,
    # Bodies arrive as they were sent. The rest of a refused body is thrown away, and unpacking it first would
    # let anybody without a key keep the loop busy. A handler that accepts a body unpacks it within a bound.
    "auto_decompress": False,
}
_REFUSED_S = 1.0
"""How long a connection that finds no room is given to send its request: earlier answers get lost."""
_ACCEPTED_AT_ONCE = 16
"""By asyncio, before it looks at what becomes of them: so many may be beyond the bound for a moment."""
_WAITING_TO_BE_ACCEPTED = 512
_REPEAT_S = 60.0
_REMEMBERED_LINES = 1000

Refusal = Callable[[HTTPStatus, str], web.Response]


class Watcher(Protocol):
    """Is told of every connection with which something can be sent."""

    def add(self, connection: asyncio.BaseProtocol, transport: asyncio.BaseTransport) -> None:
        """Take that a connection was made."""

    def remove(self, connection: asyncio.BaseProtocol) -> None:
        """Take that a connection is lost."""


def raise_descriptor_limit() -> None:
    """Let this process have as many descriptors as the most connections need, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MOST if hard == resource.RLIM_INFINITY else min(2 * _MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Connections:
    """The connections of one server.

    Parameters
    ----------
    server
        What handles their requests.
    refusal
        Makes the answer where no handler does: 400 for what is no HTTP, 408 for a header section that is
        late, 500 for a failure outside of the handlers, 503 where there is no room.
    header_timeout_s
        Seconds from the first byte of a request to the end of its header section.
    log
        Where failures are told.
    watcher
        Told of each connection, where somebody is to be.
    """

    def __init__(
        self,
        server: web.Server,
        *,
        refusal: Refusal,
        header_timeout_s: float,
        log: logging.Logger,
        watcher: Watcher | None = None,
    ) -> None:
        self.server, self.refusal, self.header_timeout_s, self.log = server, refusal, header_timeout_s, log
        self.watcher = watcher
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        # The other half is for files, databases, child processes and what requests lead to.
        self.most = _MOST if soft == resource.RLIM_INFINITY else min(_MOST, soft // 2)
        # Weak: a connection that fails before it is made is never told to be lost.
        self._open: WeakSet[_Connection] = WeakSet()
        self._refused: WeakSet[_Refused] = WeakSet()

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Accept the connections of a bound socket."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._made, sock=listener, backlog=_ACCEPTED_AT_ONCE)
        # asyncio has one number for how many it accepts at once and how many may wait in the kernel.
        listener.listen(_WAITING_TO_BE_ACCEPTED)
        return server

    def forget(self, connection: "_Connection | _Refused") -> None:
        """Take that a connection is closed."""
        if isinstance(connection, _Connection):
            self._open.discard(connection)
        else:
            self._refused.discard(connection)

    def _made(self) -> asyncio.BaseProtocol:
        if len(self._open) >= self.most:
            idle = [one for one in self._open if one.idle_until_s is not None]
            if not idle:
                patient = len(self._refused) < self.most // 4
                refused = _Refused(self, _REFUSED_S if patient else 0.0)
                self._refused.add(refused)
                return refused
            min(idle, key=lambda one: one.idle_until_s or 0.0).drop()
        connection = _Connection(self)
        self._open.add(connection)
        return connection

    def raw_refusal(self, status: HTTPStatus, words: str) -> bytes:
        """Return a refusal as bytes, for a connection that has no request to answer."""
        response = self.refusal(status, words)
        body = response.body if isinstance(response.body, bytes) else b""
        response.headers[hdrs.CONTENT_LENGTH] = str(len(body))
        response.headers[hdrs.CONNECTION] = "close"
        head = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        return f"HTTP/1.1 {response.status} {response.reason}\r\n{head}\r\n".encode() + body


class _Connection(RequestHandler):
    """A connection that there is room for."""

    __slots__ = ("__weakref__", "_all", "_header_timer")

    def __init__(self, connections: Connections) -> None:
        super().__init__(
            connections.server, loop=asyncio.get_running_loop(), logger=connections.log, **_LIMITS
        )
        self._all = connections
        self._header_timer: asyncio.TimerHandle | None = None

    @property
    def idle_until_s(self) -> float | None:
        """When it is closed for being idle, by the loop's clock; None while it is at something."""
        waits = self._waiter is not None and not self._waiter.done() and self._header_timer is None
        return self._next_keepalive_close_time if waits else None

    def drop(self) -> None:
        """Close it now, whatever it has still to send: another one gets its place."""
        transport = self.transport
        self._all.forget(self)
        self.force_close()
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have it watched."""
        if self._all.watcher is not None:
            self._all.watcher.add(self, transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on, and watch the clock while they are no request yet."""
        before = self._request_count
        super().data_received(data)
        if self._request_count != before:
            self._stop_timer()
        elif self._header_timer is None and self._waiter is not None and not self._waiter.done():
            # Nobody handles a request, so these bytes are the beginning of a header section.
            self._header_timer = self._loop.call_later(self._all.header_timeout_s, self._header_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the clock, and be forgotten."""
        self._stop_timer()
        self._all.forget(self)
        if self._all.watcher is not None:
            self._all.watcher.remove(self)
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_late(self) -> None:
        self._header_timer = None
        if self.transport is not None:
            words = f"the header section did not arrive within {self._all.header_timeout_s:g} s"
            self.transport.write(self._all.raw_refusal(HTTPStatus.REQUEST_TIMEOUT, words))
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer broken HTTP, and whatever the application let through."""
        del message
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; it can only be cut off")
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            words = f"the request is not valid HTTP: {type(exc).__name__}"
            response = self._all.refusal(HTTPStatus.BAD_REQUEST, words)
        else:
            self._all.log.error("a request failed outside of the application", exc_info=exc)
            response = self._all.refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "the service failed")
        response.force_close()
        return response


class _Refused(asyncio.Protocol):
    """A connection that there is no room for: it gets 503 when its request comes, and is closed soon."""

    def __init__(self, connections: Connections, patience_s: float) -> None:
        self._all, self._patience_s = connections, patience_s
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request, for a short while."""
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - what TCP sockets have
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._end)

    def data_received(self, data: bytes) -> None:
        """Answer what comes first; what comes behind it is read, or closing would take the answer back."""
        del data
        self._answer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Be forgotten."""
        del exc
        self._timer.cancel()
        self._all.forget(self)

    def _answer(self) -> None:
        if not self._answered:
            self._answered = True
            words = f"all {self._all.most:,} connections are in use; try again in {RETRY_S:g} s"
            self._transport.write(self._all.raw_refusal(HTTPStatus.SERVICE_UNAVAILABLE, words))
            with contextlib.suppress(OSError):  # the other end may have gone by now
                self._transport.write_eof()

    def _end(self) -> None:
        self._answer()
        self._transport.abort()


@contextlib.contextmanager
def repeats_counted(*loggers: str) -> Iterator[None]:
    """Have each warning and error of some loggers told once a minute, and how often it came meanwhile."""
    repeats = _Repeats()
    for name in loggers:
        logging.getLogger(name).addFilter(repeats)
    try:
        yield
    finally:
        for name in loggers:
            logging.getLogger(name).removeFilter(repeats)
        repeats.tell(float("inf"))


class _Repeats(logging.Filter):
    """Passes a line that it has not seen for a while, and counts the others."""

    def __init__(self) -> None:
        super().__init__()
        # Line to when it was passed and how often it came since.
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a line is passed."""
        if record.levelno < logging.WARNING:
            return True
        now_s = time.monotonic()
        self.tell(now_s)
        line = (record.name, record.levelno, record.getMessage())
        if line in self._seen:
            told_s, count = self._seen[line]
            self._seen[line] = (told_s, count + 1)
            return False
        if len(self._seen) >= _REMEMBERED_LINES:
            self.tell(float("inf"))
        self._seen[line] = (now_s, 0)
        return True

    def tell(self, now_s: float) -> None:
        """Forget the lines that were told a while ago, and say how often each came since."""
        for line, (told_s, count) in list(self._seen.items()):
            if told_s + _REPEAT_S <= now_s and line in self._seen:
                del self._seen[line]
                name, level, words = line
                if count:
                    logging.getLogger(name).log(level, "%s (%d times more)", words, count)
