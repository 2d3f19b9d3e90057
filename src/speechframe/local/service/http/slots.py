"""Slots: the right of a key to have one request in flight, counted in this process.

A request takes a slot after all checks of its body, so stalled and invalid requests never hold one. It gives
the slot back when its answer is ready, or, for an answer with audio, when the client has read the audio.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from speechframe.local.service.books.keys import Key
from speechframe.spec import chosen
from speechframe.spec.limits import REGIONS, Pool


class NoSlot(Exception):
    """All slots of the key are taken.

    Parameters
    ----------
    concurrency
        The number of slots of the key.
    """

    def __init__(self, concurrency: int) -> None:
        super().__init__(concurrency)
        self.concurrency = concurrency


class RequestSlots:
    """The slots of all keys, counted for each key and pool (streaming, and all other calls).

    Parameters
    ----------
    region
        The region whose streaming concurrency is the cap of keys without their own concurrency.
    """

    def __init__(self, region: str) -> None:
        self._region = region
        self._taken: Counter[tuple[bytes, Pool]] = Counter()
        self._uploads: Counter[bytes] = Counter()
        self._queues: dict[tuple[bytes, Pool], deque[asyncio.Future[None]]] = {}
        self.idle = asyncio.Event()
        """Set while no slot is taken."""
        self.idle.set()

    def cap(self, key: Key, pool: Pool) -> int:
        """Return the largest number of requests that `key` may have in flight in `pool`."""
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
            All slots are taken. The error is raised at once, without a wait.
        """
        place = self._take(key, pool)
        try:
            yield
        finally:
            self._give(place)

    @contextmanager
    def uploading(self, key: Key) -> Iterator[None]:
        """Count an upload for the length of a block, while its file is on disk.

        Raises
        ------
        NoSlot
            The key has twice as many uploads as slots. These may be in flight or wait for a slot. A further
            upload would take disk space and would then be refused.
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
        """Take a slot and return True, or return False if all are taken. :meth:`give_one` gives it back."""
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
        """Hold a slot for the length of a block. If all slots are taken, wait for one, in order of arrival.

        Raises
        ------
        NoSlot
            No slot became free within :data:`chosen.QUEUE_SECONDS`, or as many requests already wait as the
            key has slots.
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
        """Wait until :meth:`_give` passes a slot on. Such a slot stays counted as taken."""
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
                # `_give` may have removed this turn already, because it skips turns that are cancelled.
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
