"""How many requests of a key are in flight: its concurrency, counted in this process.

A slot is held from the moment a request is known to be good until its answer is ready (with audio in it:
until that was read), so that nothing that stalls or cannot succeed takes one from others.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from speechframe.local.service.books.keys import Key
from speechframe.spec import chosen
from speechframe.spec.limits import REGIONS, Pool


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


class RequestSlots:
    """Counts requests in flight per key and pool.

    Parameters
    ----------
    region
        The region whose streaming concurrency counts for keys without a cap of their own.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        self._taken: Counter[tuple[bytes, Pool]] = Counter()
        self._uploads: Counter[bytes] = Counter()
        self._queues: dict[tuple[bytes, Pool], deque[asyncio.Future[None]]] = {}
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
        place = self._take(key, pool)
        try:
            yield
        finally:
            self._give(place)

    @contextmanager
    def uploading(self, key: Key) -> Iterator[None]:
        """Count a body that is read to disk, for as long as it lies there.

        Raises
        ------
        NoSlot
            When as many are there as may be in flight and wait: what comes on top would fill the disk to be
            refused in the end.
        """
        cap = self.cap(key, Pool.OTHER)
        if self._uploads[key.key_hash] >= 2 * cap:
            raise NoSlot(cap)
        self._uploads[key.key_hash] += 1
        try:
            yield
        finally:
            self._uploads[key.key_hash] -= 1
            if not self._uploads[key.key_hash]:
                del self._uploads[key.key_hash]

    def take_one(self, key: Key, pool: Pool) -> bool:
        """Take a slot until :meth:`give_one`. Return False if all slots are taken."""
        try:
            self._take(key, pool)
        except NoSlot:
            return False
        return True

    def give_one(self, key: Key, pool: Pool) -> None:
        """Give a slot back that :meth:`take_one` took."""
        self._give((key.key_hash, pool))

    @asynccontextmanager
    async def waited_for(self, key: Key, pool: Pool) -> AsyncIterator[None]:
        """Hold a slot for the length of a block, after a short wait where all are taken, first come first.

        Raises
        ------
        NoSlot
            When as many wait already as may (the key's cap), or none was free within
            :data:`chosen.QUEUE_SECONDS`.
        """
        try:
            place = self._take(key, pool)
        except NoSlot as full:
            place = await self._turn(key, pool, full)
        try:
            yield
        finally:
            self._give(place)

    async def _turn(self, key: Key, pool: Pool, full: NoSlot) -> tuple[bytes, Pool]:
        """Wait for a slot that somebody gives back; it is handed over and never free in between."""
        place = (key.key_hash, pool)
        queue = self._queues.setdefault(place, deque())
        if len(queue) >= full.concurrency:
            raise full
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            async with asyncio.timeout(chosen.QUEUE_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._give(place)
            else:
                # It may be out already: a slot that came in the meantime passed over whoever had given up.
                with suppress(ValueError):
                    queue.remove(turn)
                if not queue and self._queues.get(place) is queue:
                    del self._queues[place]
            if isinstance(error, TimeoutError):
                raise full from None
            raise
        return place

    def _take(self, key: Key, pool: Pool) -> tuple[bytes, Pool]:
        place = (key.key_hash, pool)
        cap = self.cap(key, pool)
        if self._taken[place] >= cap:
            raise NoSlot(cap)
        self._taken[place] += 1
        self.idle.clear()
        return place

    def _give(self, place: tuple[bytes, Pool]) -> None:
        queue = self._queues.get(place, ())
        while queue:
            if not (turn := queue.popleft()).done():
                turn.set_result(None)
                return
        self._queues.pop(place, None)
        self._taken[place] -= 1
        if not self._taken[place]:
            del self._taken[place]
        if not self._taken:
            self.idle.set()
