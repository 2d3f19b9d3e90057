"""What is open for longer than an answer takes: sockets, by key."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from speechframe.local.service.books.keys import Key


class TooManySockets(Exception):
    """The key has as many sockets open as it may."""


class OpenSockets:
    """Counts open sockets, signals that the service stops, and bounds the contexts of a key."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        """Set once the service is asked to end."""
        self.idle = asyncio.Event()
        """Set while no socket is open."""
        self.idle.set()
        self._open: Counter[bytes] = Counter()
        self._gates: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()

    def gate(self, key: Key, most: int) -> asyncio.Semaphore:
        """Return what lets `most` parts of a key's contexts be spoken at once, for as long as it is kept.

        A context that was ended holds no slot: without it, a key could have any number of them spoken at
        once.
        """
        return self._gates.setdefault(key.key_hash, asyncio.Semaphore(most))

    @contextmanager
    def opened(self, key: Key, most: int) -> Iterator[None]:
        """Count a socket for the length of a block.

        Raises
        ------
        TooManySockets
            When `most` sockets of the key are open.
        """
        if self._open[key.key_hash] >= most:
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
