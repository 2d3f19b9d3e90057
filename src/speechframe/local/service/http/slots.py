"""Slots: the right of a key to have one request in flight, counted in this process.

A request takes a slot after all checks of its body, so stalled and invalid requests never hold one. It gives
the slot back when its answer is ready, or, for an answer with audio, when the client has read the audio.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from speechframe.local.service.books.keys import Key
from speechframe.spec import chosen
from speechframe.spec.limits import REGIONS, Pool


@dataclass(eq=False)
class NoSlot(Exception):
    """All slots of the key are taken. `concurrency` is the number of these slots."""

    concurrency: int


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

    def get_cap(self, key: Key, pool: Pool) -> int:
        """Return the largest number of requests that `key` may have in flight in `pool`."""
        if key.concurrency is not None:
            return key.concurrency
        if pool is Pool.STREAMING:
            return REGIONS[self._region].streaming_concurrency or chosen.DEFAULT_CONCURRENCY
        return chosen.DEFAULT_CONCURRENCY

    @contextmanager
    def count_upload(self, key: Key) -> Iterator[None]:
        """Count an upload for the length of a block, while its file is on disk.

        Raises
        ------
        NoSlot
            The key has twice as many uploads as slots. These may be in flight or wait for a slot. A further
            upload would take disk space and would then be refused.
        """
        cap = self.get_cap(key, Pool.OTHER)
        if self._uploads[key.key_hash] >= 2 * cap:
            raise NoSlot(cap)
        self._uploads[key.key_hash] += 1
        try:
            yield
        finally:
            self._uploads[key.key_hash] -= 1
            if not self._uploads[key.key_hash]:
                del self._uploads[key.key_hash]

    def take_slot(self, key: Key, pool: Pool) -> bool:
        """Take a slot and return True, or return False if all are taken.

        :meth:`give_back_slot` gives the slot back.
        """
        if self._taken[key.key_hash, pool] >= self.get_cap(key, pool):
            return False
        self._taken[key.key_hash, pool] += 1
        self.idle.clear()
        return True

    def give_back_slot(self, key: Key, pool: Pool) -> None:
        """Pass a slot on to the request that has waited longest, or free the slot if none waits."""
        slot_key = (key.key_hash, pool)
        queue = self._queues.get(slot_key, ())
        while queue:
            if not (turn := queue.popleft()).done():
                turn.set_result(None)
                return
        self._queues.pop(slot_key, None)
        self._taken[slot_key] -= 1
        if not self._taken[slot_key]:
            del self._taken[slot_key]
        if not self._taken:
            self.idle.set()

    @asynccontextmanager
    async def hold_slot(self, key: Key, pool: Pool, *, waits: bool = False) -> AsyncIterator[None]:
        """Hold a slot for the length of a block.

        Parameters
        ----------
        waits
            Whether to wait for a slot if all are taken, in order of arrival.

        Raises
        ------
        NoSlot
            All slots are taken. A call that waits gets this error if no slot became free within
            :data:`chosen.MAX_QUEUE_SECONDS`, or if as many requests already wait as the key has slots.
        """
        if not self.take_slot(key, pool):
            if not waits:
                raise NoSlot(self.get_cap(key, pool))
            await self._wait_for_turn(key, pool)
        try:
            yield
        finally:
            self.give_back_slot(key, pool)

    async def _wait_for_turn(self, key: Key, pool: Pool) -> None:
        """Wait until :meth:`give_back_slot` passes a slot on. Such a slot stays counted as taken."""
        slot_key, cap = (key.key_hash, pool), self.get_cap(key, pool)
        queue = self._queues.setdefault(slot_key, deque())
        if len(queue) >= cap:
            raise NoSlot(cap)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            async with asyncio.timeout(chosen.MAX_QUEUE_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give_back_slot(key, pool)
            else:
                # `give_back_slot` skips turns that are cancelled, so it may have removed this turn already.
                with suppress(ValueError):
                    queue.remove(turn)
                if not queue and self._queues.get(slot_key) is queue:
                    del self._queues[slot_key]
            if isinstance(error, TimeoutError):
                raise NoSlot(cap) from None
            raise
