"""A queue of WebSocket frames for a client that may read more slowly than the service makes them."""

import asyncio
from collections import deque

from speechframe.local.service.http.readers import Reader
from speechframe.spec.chosen import MAX_WAITING_SOCKET_BYTES


class Outbox:
    """A queue of frames that wait to be sent. The frame ``None`` marks the end.

    The queue accepts every frame. Code that makes many frames must await :meth:`wait_for_room` before it
    makes them.

    Parameters
    ----------
    reader
        The client. It counts the waiting bytes.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._frames: deque[str | None] = deque()
        self._bytes = 0
        self._has_frames = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, frame: str | None) -> None:
        """Add a frame to the end of the queue."""
        self._frames.append(frame)
        self._add_bytes(len(frame or ""))
        self._has_frames.set()
        if self._bytes >= MAX_WAITING_SOCKET_BYTES:
            self._room.clear()

    async def get(self) -> str | None:
        """Wait for the next frame and return it."""
        while not self._frames:
            self._has_frames.clear()
            await self._has_frames.wait()
        frame = self._frames.popleft()
        self._add_bytes(-len(frame or ""))
        if self._bytes < MAX_WAITING_SOCKET_BYTES:
            self._room.set()
        return frame

    def _add_bytes(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self._reader.hold(size_bytes)

    async def wait_for_room(self) -> None:
        """Wait until the queue contains less than :data:`MAX_WAITING_SOCKET_BYTES` (half a megabyte)."""
        await self._room.wait()
