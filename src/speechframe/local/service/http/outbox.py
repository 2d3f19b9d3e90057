"""Frames on their way to a client that may be slower than what makes them."""

import asyncio
from collections import deque

from speechframe.local.service.http.readers import Reader
from speechframe.spec.chosen import SOCKET_WAITING_BYTES


class Outbox:
    """Frames that wait to be sent, and whether there is room for more.

    It never refuses one: whoever makes much asks for room before. ``None`` is the end.

    Parameters
    ----------
    reader
        The client.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._frames: deque[str | None] = deque()
        self._bytes = 0
        self._there = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, frame: str | None) -> None:
        """Put a frame behind the others."""
        self._frames.append(frame)
        self._count(len(frame or ""))
        self._there.set()
        if self._bytes >= SOCKET_WAITING_BYTES:
            self._room.clear()

    async def get(self) -> str | None:
        """Return the next frame, once there is one."""
        while not self._frames:
            self._there.clear()
            await self._there.wait()
        frame = self._frames.popleft()
        self._count(-len(frame or ""))
        if self._bytes < SOCKET_WAITING_BYTES:
            self._room.set()
        return frame

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._reader.hold(size_bytes)

    async def room(self) -> None:
        """Wait until less than half a megabyte waits."""
        await self._room.wait()
