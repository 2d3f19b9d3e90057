"""Bound the memory for answers that clients have not read, and disconnect clients that read too slowly.

All connections are watched, whatever they carry: JSON, files, streams or WebSocket frames. The kernel counts
the bytes that a client has received, so the code that sends answers needs no counters and no clocks.
"""

import asyncio
import contextlib
import logging
import socket
import struct
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from speechframe.spec import chosen

log = logging.getLogger("speechframe.service")

_MAX_CHECK_INTERVAL_S = 1.0
"""Longest time in seconds between two checks of all readers."""
_CHECKS_PER_WINDOW = 10
"""Number of checks of each reader in one window."""
# Fields of struct tcp_info of Linux: bytes acknowledged by the client, and bytes not sent yet.
_TCP_INFO_BYTES = 148
_ACKNOWLEDGED, _NOT_SENT = struct.Struct("=120xQ"), struct.Struct("=144xI")
_LARGE_BYTES = 64 * 1024
"""Size from which the memory bound is checked before an answer is sent. Smaller answers are checked later."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""Value of SO_LINGER that resets a connection when it is closed, and discards its unsent bytes."""


@dataclass(eq=False)
class Reader:
    """The client at the other end of a connection.

    Parameters
    ----------
    transport
        The connection.
    counted
        Called with every change of `held_bytes`, in bytes.
    held_bytes
        Bytes in memory for the client, without the buffer of the transport.
    is_dropped
        True once :meth:`drop` has ended the connection.
    since_s
        Start of the current window, in seconds of the event loop's clock. None while no bytes wait.
    taken_bytes
        Bytes that the client had received at the start of the window.
    """

    transport: asyncio.Transport
    counted: Callable[[int], None]
    held_bytes: int = 0
    is_dropped: bool = False
    since_s: float | None = None
    taken_bytes: int = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes in memory that the client has not read."""
        return self.held_bytes + self.transport.get_write_buffer_size()

    def hold(self, size_bytes: int) -> None:
        """Count bytes that wait for the client. A negative size releases bytes."""
        self.held_bytes += size_bytes
        self.counted(size_bytes)

    def hold_until_deleted(self, owner: object, size_bytes: int) -> None:
        """Count bytes that wait for the client, until `owner` is deleted."""
        self.hold(size_bytes)
        weakref.finalize(owner, self.hold, -size_bytes)

    def measure_window(self, now_s: float, window_s: float) -> bool:
        """Continue or begin a window, and return whether the client was too slow in the window that ended.

        The client is too slow if it read too little in a whole window in which bytes always waited. Call this
        method often.
        """
        taken_bytes, is_behind = self._read_progress()
        if not is_behind:
            self.since_s = None
        elif self.since_s is None:
            self.since_s, self.taken_bytes = now_s, taken_bytes
        elif now_s - self.since_s >= window_s:
            slow = taken_bytes - self.taken_bytes < chosen.MIN_READER_BYTES_PER_S * (now_s - self.since_s)
            self.since_s, self.taken_bytes = now_s, taken_bytes
            return slow
        return False

    def drop(self) -> None:
        """End the connection and release its buffers in the kernel."""
        self.is_dropped = True
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        # asyncio fails if `transport.abort()` is called while a file is sent.
        self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def _socket(self) -> Any:
        found: Any = self.transport.get_extra_info("socket")
        return found

    def _read_progress(self) -> tuple[int, bool]:
        """Return the number of bytes that the client has received, and whether more bytes wait."""
        tcp_info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        not_sent_bytes = _NOT_SENT.unpack(tcp_info)[0] + self.transport.get_write_buffer_size()
        return _ACKNOWLEDGED.unpack_from(tcp_info)[0], not_sent_bytes > 0


class Readers:
    """The clients of all open connections.

    Parameters
    ----------
    window_s
        Seconds over which the reading speed of a client is measured.
    limit_bytes
        Largest number of unread bytes over all connections.
    """

    def __init__(self, window_s: float, limit_bytes: int) -> None:
        self._window_s = window_s
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._readers: dict[asyncio.BaseProtocol, Reader] = {}

    def add(self, connection: asyncio.BaseProtocol, transport: asyncio.BaseTransport) -> None:
        """Watch a new connection."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a TCP server makes
        self._readers[connection] = Reader(transport, self._add_held_bytes)

    def remove(self, connection: asyncio.BaseProtocol) -> None:
        """Stop watching a connection that is lost."""
        self._readers.pop(connection, None)

    def get_reader(self, connection: asyncio.BaseProtocol) -> Reader:
        """Return the reader of a connection. For a lost connection, return a new reader, not watched."""
        return self._readers.get(connection) or Reader(asyncio.Transport(), self._add_held_bytes)

    def make_room(self, size_bytes: int) -> None:
        """Drop the clients with the most unread bytes if an answer of this size would exceed the limit.

        Answers below 64 KB are not checked here.
        """
        if size_bytes >= _LARGE_BYTES:
            self._enforce_limit(size_bytes)

    async def watch(self) -> None:
        """Drop slow clients until cancelled. Above the limit, drop those with the most unread bytes."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_MAX_CHECK_INTERVAL_S, self._window_s / _CHECKS_PER_WINDOW))
            try:
                self._drop_slow(loop.time())
            except Exception:
                log.exception("the clients that read slowly cannot be found; the service tries again")

    def _drop_slow(self, now_s: float) -> None:
        for reader in list(self._readers.values()):
            # A closed connection raises here, and is removed soon.
            with contextlib.suppress(OSError):
                if reader.measure_window(now_s, self._window_s):
                    log.warning("a client that read too little of its answer was dropped")
                    reader.drop()
        self._enforce_limit()

    def _add_held_bytes(self, size_bytes: int) -> None:
        # Check at every growth, because workers make a hundred megabytes in a second.
        self._held_bytes += size_bytes
        if size_bytes > 0 and self._held_bytes > self._limit_bytes:
            self._enforce_limit()

    def _enforce_limit(self, further_bytes: int = 0) -> None:
        open_readers = [reader for reader in self._readers.values() if not reader.is_dropped]
        waiting = {reader: size for reader in open_readers if (size := reader.waiting_bytes)}
        total_bytes = sum(waiting.values()) + further_bytes
        for reader in sorted(waiting, key=waiting.__getitem__, reverse=True):
            if total_bytes <= self._limit_bytes:
                return
            log.warning("the client with the most unread bytes was dropped: too much was unread")
            with contextlib.suppress(OSError):
                reader.drop()
            total_bytes -= waiting[reader]
