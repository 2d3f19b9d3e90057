"""How many requests of a key are in flight: its concurrency, counted in this process.

A slot is held from the moment a request is known to be good until its answer
is ready, so that nothing that stalls or cannot succeed takes one from others.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from speechframe.service.keys import Key
from speechframe.spec import chosen
from speechframe.spec.limits import REGIONS


class Pool(StrEnum):
    """What shares a cap (``spec.chosen``: pools)."""

    STREAMING = "streaming"
    OTHER = "other"


class NoSlot(Exception):
    """The key has as many requests in flight as it may.

    Parameters
    ----------
    concurrency
        The cap.
    """

    def __init__(self, concurrency: int) -> None:
        super().__init__(concurrency)
        self.concurrency = concurrency


class Slots:
    """Counts requests in flight per key and pool.

    Parameters
    ----------
    region
        The region whose streaming concurrency counts for keys without a cap of their own.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        self._taken: Counter[tuple[bytes, Pool]] = Counter()
        self.idle = asyncio.Event()
        """Set while nothing is in flight."""
        self.idle.set()

    def cap(self, key: Key, pool: Pool) -> int:
        """Return how many requests of `key` may be in flight in `pool`."""
        if key.concurrency is not None:
            return key.concurrency
        if pool is Pool.STREAMING:
            return REGIONS[self._region].streaming_concurrency or chosen.DEFAULT_CONCURRENCY
        return chosen.DEFAULT_CONCURRENCY

    @contextmanager
    def taken(self, key: Key, pool: Pool) -> Iterator[None]:
        """Hold a slot for the length of a block.

        Raises
        ------
        NoSlot
            When the key's cap is reached. Nothing waits here.
        """
        place = (key.key_hash, pool)
        cap = self.cap(key, pool)
        if self._taken[place] >= cap:
            raise NoSlot(cap)
        self._taken[place] += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._taken[place] -= 1
            if not self._taken[place]:
                del self._taken[place]
            if not self._taken:
                self.idle.set()
