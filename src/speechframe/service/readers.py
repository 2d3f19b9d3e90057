"""Clients that do not read what is sent to them: what waits for them is bounded, who hardly reads is dropped.

Every connection is watched here, whatever is sent on it: JSON, files, streams,
frames of a WebSocket. How much of it a client has taken is asked of the
kernel, so that nothing that sends needs to count or to keep time.
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

_LONGEST_PAUSE_S = 1.0
_LOOKS = 10
"""In the time within which somebody must have read something."""
# Linux's struct tcp_info: bytes that the other end has acknowledged, and bytes that it has no room for yet.
_TCP_INFO_BYTES = 148
_ACKNOWLEDGED, _NOT_SENT = struct.Struct("=120xQ"), struct.Struct("=144xI")
_LARGE_BYTES = 64 * 1024
"""An answer of this size is reason to look at what waits; smaller ones wait for the next look."""
_AT_ONCE = struct.pack("ii", 1, 0)
"""For SO_LINGER: a reset, not an end that waits until everything was read."""


@dataclass(eq=False)
class Reader:
    """A connection, as the one who reads what is sent on it.

    Parameters
    ----------
    transport
        The connection.
    counted
        Called with every change of what is held.
    held_bytes
        What is in memory for it beside the transport's own buffer.
    is_dropped
        Whether it was told to go.
    since_s, taken_bytes
        Since when something waits for it, and what it had taken by then; None while it has all.
    """

    transport: asyncio.Transport
    counted: Callable[[int], None]
    held_bytes: int = 0
    is_dropped: bool = False
    since_s: float | None = None
    taken_bytes: int = 0

    @property
    def waiting_bytes(self) -> int:
        """What is in memory because it was not read."""
        return self.held_bytes + self.transport.get_write_buffer_size()

    def hold(self, size_bytes: int) -> None:
        """Count bytes that wait for the reader; negative: that wait no more."""
        self.held_bytes += size_bytes
        self.counted(size_bytes)

    def hold_while(self, there: object, size_bytes: int) -> None:
        """Count bytes that wait for the reader for as long as an object is there."""
        self.hold(size_bytes)
        weakref.finalize(there, self.hold, -size_bytes)

    def is_slow(self, now_s: float, window_s: float) -> bool:
        """Look how it reads; True once it read less than it must in all of a window."""
        taken_bytes, is_behind = self._told()
        if not is_behind:
            self.since_s = None
        elif self.since_s is None:
            self.since_s, self.taken_bytes = now_s, taken_bytes
        elif now_s - self.since_s >= window_s:
            slow = taken_bytes - self.taken_bytes < chosen.SLOWEST_READER_BYTES_S * (now_s - self.since_s)
            self.since_s, self.taken_bytes = now_s, taken_bytes
            return slow
        return False

    def drop(self) -> None:
        """End the connection, and what the kernel still holds for it."""
        self.is_dropped = True
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        # Not `transport.abort()`, at which asyncio stumbles in the middle of a file that is sent.
        self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def _socket(self) -> Any:
        found: Any = self.transport.get_extra_info("socket")
        return found

    def _told(self) -> tuple[int, bool]:
        """Return how many bytes the reader took, and whether more wait for it to have room."""
        told = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        not_sent = _NOT_SENT.unpack(told)[0] + self.transport.get_write_buffer_size()
        return _ACKNOWLEDGED.unpack_from(told)[0], not_sent > 0


class Readers:
    """The open connections.

    Parameters
    ----------
    window_s
        Within which a client for whom something waits must have read something.
    limit_bytes
        What may wait in memory for all of them together.
    """

    def __init__(self, window_s: float, limit_bytes: int) -> None:
        self._window_s = window_s
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._readers: dict[asyncio.BaseProtocol, Reader] = {}

    def add(self, connection: asyncio.BaseProtocol, transport: asyncio.BaseTransport) -> None:
        """Watch a connection that was made."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a TCP server makes
        self._readers[connection] = Reader(transport, self._count)

    def remove(self, connection: asyncio.BaseProtocol) -> None:
        """Watch a connection no more: it is lost."""
        self._readers.pop(connection, None)

    def of(self, connection: asyncio.BaseProtocol) -> Reader:
        """Return the reader of a connection, also of one that is lost."""
        return self._readers.get(connection) or Reader(asyncio.Transport(), self._count)

    def make_room(self, size_bytes: int) -> None:
        """Bound what waits, before an answer of so many bytes is sent."""
        if size_bytes >= _LARGE_BYTES:
            self._bound(size_bytes)

    async def watch(self) -> None:
        """Drop who hardly reads, and for whom most waits where it is too much; for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_LONGEST_PAUSE_S, self._window_s / _LOOKS))
            self._look(loop.time())

    def _look(self, now_s: float) -> None:
        for reader in list(self._readers.values()):
            # One that is closed is about to be lost.
            with contextlib.suppress(OSError):
                if reader.is_slow(now_s, self._window_s):
                    log.warning("a client that read too little of its answer was dropped")
                    reader.drop()
        self._bound()

    def _count(self, size_bytes: int) -> None:
        # Looked at when it grows, not only now and then: workers make a hundred megabytes in a second.
        self._held_bytes += size_bytes
        if size_bytes > 0 and self._held_bytes > self._limit_bytes:
            self._bound()

    def _bound(self, further_bytes: int = 0) -> None:
        there = [reader for reader in self._readers.values() if not reader.is_dropped]
        waiting = {reader: size for reader in there if (size := reader.waiting_bytes)}
        total_bytes = sum(waiting.values()) + further_bytes
        for reader in sorted(waiting, key=waiting.__getitem__, reverse=True):
            if total_bytes <= self._limit_bytes:
                return
            log.warning("the client for whom most waited was dropped: too much was unread")
            with contextlib.suppress(OSError):
                reader.drop()
            total_bytes -= waiting[reader]
