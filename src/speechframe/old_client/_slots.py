"""How many turns are active over WebSockets with a client's key."""

import weakref
from typing import Protocol

from speechframe.old_client.limits import published_cap
from speechframe.old_client.reach import Reach
from speechframe.spec.limits import LEAST_CONCURRENCY, REGIONS, Pool
from speechframe.wire.turns import Slots

__all__ = ["SharedSlots"]


class Waiting(Protocol):
    """Who waits for a slot."""

    def poke(self) -> None:
        """Look what there is to do."""


class SharedSlots(Slots):
    """The contexts that are active with a client's key, over all of its sockets.

    Examples
    --------
    >>> SharedSlots().cap
    2
    """

    def __init__(self) -> None:
        super().__init__(LEAST_CONCURRENCY)
        self._lines: weakref.WeakSet[Waiting] = weakref.WeakSet()
        self._is_known = False

    def joined(self, line: "Waiting") -> None:
        """Take that a line waits for slots."""
        self._lines.add(line)

    def free(self) -> None:
        """Give a slot back, and have everyone who waits for one look."""
        super().free()
        for line in self._lines:
            line.poke()

    def set(self, cap: int) -> None:
        """Take that so many contexts may be active."""
        self.cap, self._is_known = cap, True

    async def learn(self, reach: Reach) -> None:
        """Find out how many contexts may be active: what the service publishes, else the document.

        Raises
        ------
        ServiceError, ConnectionFailed
            The service cannot be asked.
        """
        if self._is_known:
            return
        published = published_cap(await reach.limits() or {}, Pool.STREAMING)
        if published is not None:
            self.set(published)
            return
        region = REGIONS.get(reach.regions.names[0])
        self.set(region.streaming_concurrency or self.cap if region is not None else self.cap)
