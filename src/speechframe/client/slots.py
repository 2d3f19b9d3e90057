"""How many turns are active over WebSockets with a client's key."""

import weakref
from collections.abc import Mapping
from typing import Any

from speechframe.spec.limits import LEAST_CONCURRENCY, REGIONS, Pool
from speechframe.wire.turns import Slots

__all__ = ["ContextSlots", "published_cap"]

_LARGEST_CAP = 100_000


class ContextSlots(Slots):
    """The contexts that are active with a client's key, over all of its sockets.

    `waiting` are the lines that are poked when a slot is free.

    Examples
    --------
    >>> slots = ContextSlots()
    >>> slots.learn({"pools": {"streaming": 15}}, "us-east")
    >>> slots.cap
    15
    """

    def __init__(self) -> None:
        super().__init__(LEAST_CONCURRENCY)
        self.waiting: weakref.WeakSet[Any] = weakref.WeakSet()
        self.is_known = False

    def free(self) -> None:
        """Give a slot back, and have everyone who waits for one look."""
        super().free()
        for one in self.waiting:
            one.poke()

    def set(self, cap: int) -> None:
        """Take that so many contexts may be active."""
        self.cap, self.is_known = cap, True

    def learn(self, limits: Mapping[str, Any], region: str) -> None:
        """Take what a page of limits publishes for the key, else what the document says of the region."""
        documented = REGIONS[region].streaming_concurrency if region in REGIONS else None
        self.set(published_cap(limits, Pool.STREAMING) or documented or self.cap)


def published_cap(limits: Mapping[str, Any], pool: str) -> int | None:
    """Return how many calls of a pool a page of limits allows at once; None where it does not say."""
    pools = limits.get("pools")
    said = pools.get(pool) if isinstance(pools, Mapping) else None
    # A page may hold anything; True is an int.
    return min(said, _LARGEST_CAP) if type(said) is int and said >= 1 else None
