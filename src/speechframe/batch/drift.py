"""What the balance says beside our own count: compared only at quiet points, when nothing is in flight.

While calls are in flight, or colleagues use the same key, a drop of the balance
cannot name a row. Between two quiet points it must be what was billed for sure
and what may have been billed; a charge is laid to a call only when exactly one
is in doubt and the figures leave no other reading.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Quiet(Generic[T]):
    """What a quiet point told.

    Attributes
    ----------
    drift
        Characters the balance fell beyond what is explained; negative when it fell less or was topped up.
    call, was_billed
        The one call that was in doubt and whether it was billed; None when that is not certain.
    """

    drift: int
    call: T | None = None
    was_billed: bool = False


@dataclass
class Drift(Generic[T]):
    """Compares balance and count from one quiet point to the next, in characters of the balance.

    Parameters
    ----------
    balance
        What the service said before the first call; None when it does not say.

    Examples
    --------
    >>> drift = Drift(balance=1000)
    >>> drift.billed(100)
    >>> drift.doubtful("row 7", 50)
    >>> drift.seen(850)
    >>> drift.quiet()
    Quiet(drift=0, call='row 7', was_billed=True)
    """

    balance: int | None = None
    total: int = 0
    """Drift of all quiet points so far."""
    _lowest: int | None = None
    _billed: int = 0
    _doubts: int = 0
    _call: T | None = None
    _price: int = field(default=0)

    @property
    def has_doubt(self) -> bool:
        """Whether a call since the last quiet point may or may not have been billed."""
        return self._doubts > 0

    def billed(self, characters: int) -> None:
        """Count a call that was surely billed."""
        self._billed += characters

    def doubtful(self, call: T, characters: int) -> None:
        """Count a call that may have been billed."""
        self._doubts += 1
        self._call, self._price = call, characters

    def seen(self, balance: int | None) -> None:
        """Note what an answer says is left."""
        if balance is not None:
            # Answers overtake each other: of those since the last quiet point the lowest is the newest.
            self._lowest = balance if self._lowest is None else min(self._lowest, balance)

    def quiet(self, balance: int | None = None) -> Quiet[T] | None:
        """Compare, now that nothing is in flight; None when the service said nothing since.

        Parameters
        ----------
        balance
            What is left, if it was asked just now.
        """
        now = balance if balance is not None else self._lowest
        if now is None:
            return None
        found = None if self.balance is None else self._compared(self.balance - now - self._billed)
        self.balance, self._lowest, self._billed, self._doubts, self._call = now, None, 0, 0, None
        if found is not None:
            self.total += found.drift
        return found

    def _compared(self, drift: int) -> Quiet[T]:
        if self._doubts == 1 and self._price > 0 and drift in {0, self._price}:
            return Quiet(0, self._call, was_billed=drift == self._price)
        return Quiet(drift)
