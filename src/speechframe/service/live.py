"""What is open for longer than an answer takes: sockets by key, and whose turn it is at the workers."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from speechframe.service.keys import Key


class TooManySockets(Exception):
    """The key has as many sockets open as it may."""


class Live:
    """Counts open sockets, tells them when the service stops, and lets parts of streams take turns.

    Parameters
    ----------
    parts
        How many parts of streams may be with the workers or in their queue at once; the others wait here,
        first come, first served, and never fill the queue of everybody else.
    """

    def __init__(self, parts: int) -> None:
        self.turnstile = asyncio.Semaphore(parts)
        self.stopping = asyncio.Event()
        """Set once the service is asked to end."""
        self.idle = asyncio.Event()
        """Set while no socket is open."""
        self.idle.set()
        self._open: Counter[bytes] = Counter()
        self._gates: WeakValueDictionary[bytes, asyncio.Semaphore] = WeakValueDictionary()

    def gate(self, key: Key, most: int) -> asyncio.Semaphore:
        """Return what lets `most` parts of a key's contexts on to the turnstile, for as long as it is kept.

        A context that was ended holds no slot: without it, a key could have any number of them spoken at
        once, and everybody else would wait behind them.
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
