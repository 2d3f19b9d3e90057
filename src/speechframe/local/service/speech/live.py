"""The open WebSockets of each key. A WebSocket is open for longer than a request."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from speechframe.local.service.books.keys import Key


class TooManySockets(Exception):
    """The key has as many open sockets as allowed."""


class OpenSockets:
    """Counts open sockets, signals the stop of the service, and limits the parallel work of each key."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        """Set when the service begins to stop."""
        self.idle = asyncio.Event()
        """Set while no socket is open."""
        self.idle.set()
        self._open: Counter[bytes] = Counter()
        self._gates: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()

    def get_chunk_semaphore(self, key: Key, max_chunks: int) -> asyncio.Semaphore:
        """Return the semaphore that limits how many chunks of text are spoken for a key at the same time.

        A context (one text over a WebSocket) gives its slot back when the client ends it, while its last
        chunks still wait. So slots alone would not limit these chunks. All sockets of a key share one
        semaphore, which exists while one of them keeps it. `max_chunks` is used only for a new semaphore.
        """
        return self._gates.setdefault(key.key_hash, asyncio.Semaphore(max_chunks))

    @contextmanager
    def count_socket(self, key: Key, max_sockets: int) -> Iterator[None]:
        """Count a socket as open for the length of a block.

        Raises
        ------
        TooManySockets
            The key already has `max_sockets` open sockets.
        """
        if self._open[key.key_hash] >= max_sockets:
            raise TooManySockets
        self._open[key.key_hash] += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._open[key.key_hash] -= 1
            if not self._open[key.key_hash]:
                del self._open[key.key_hash]
            if not self._open:
                self.idle.set()
