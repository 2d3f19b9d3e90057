"""How long a socket has brought nobody anything, and whether that says that it is dead."""

import time
from collections.abc import Iterable
from typing import Protocol

__all__ = ["Silence"]


class Waiting(Protocol):
    """A turn that the service knows of; times are those of the monotonic clock."""

    @property
    def asked_s(self) -> float:
        """When the service was last told something of it."""

    @property
    def silence_s(self) -> float:
        """How long it may be told nothing."""


class Silence:
    """The silence of a socket.

    Examples
    --------
    >>> silence = Silence()
    >>> silence.broken()
    >>> silence.awaited()
    >>> silence.is_death([])
    True
    """

    def __init__(self) -> None:
        # When something came last, and when somebody first waited after that.
        self._heard_s = self._asked_s = 0.0

    def broken(self) -> None:
        """Take that something came, or that until now nothing could."""
        self._heard_s = time.monotonic()

    def awaited(self) -> None:
        """Take that somebody waits for the service: from now on it counts, unless it does already."""
        if self._asked_s <= self._heard_s:
            self._asked_s = time.monotonic()

    def is_death(self, others: Iterable[Waiting]) -> bool:
        """Return whether a turn that was told nothing in its time shows that the socket is dead.

        One that speaks another turn for long is not dead. So the time of all others is over too, or nobody
        was told anything for twice as long: else each turn that has just begun would keep a dead socket.
        """
        now_s = time.monotonic()
        all_s = now_s - max(self._heard_s, self._asked_s)
        return all(
            now_s - max(self._heard_s, other.asked_s) >= other.silence_s or all_s >= 2 * other.silence_s
            for other in others
        )
