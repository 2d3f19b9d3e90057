"""What the balance says beside our own count: compared only at quiet points, when nothing is in flight.

While calls are in flight, or colleagues use the same key, a drop of the balance
cannot name a row. Between two quiet points it must be what was billed for sure
and what may have been billed: whatever lies between the first and the sum of
both is explained. A charge is laid to a call only when exactly one is in doubt
and the figures leave no other reading. That a call was *not* billed is never
concluded: a service may be at work on it still, and bill it later.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from speechframe.old_batch.progress import counted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Quiet(Generic[T]):
    """What a quiet point told.

    Attributes
    ----------
    drift
        Characters the balance fell beyond what is explained; negative when it fell less or was topped up.
    billed
        The one call that was in doubt, where the figures say that it was billed.
    """

    drift: int
    billed: T | None = None


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
    >>> drift.quiet(850)
    Quiet(drift=0, billed='row 7')
    """

    balance: int | None = None
    total: int = 0
    """Drift of all quiet points so far."""
    _lowest: int | None = None
    _billed: float = 0
    _doubts: int = 0
    _call: T | None = None
    _doubted: float = 0

    @property
    def has_doubt(self) -> bool:
        """Whether a call since the last quiet point may or may not have been billed."""
        return self._doubts > 0

    def billed(self, characters: float) -> None:
        """Count a call that was surely billed; a price in seconds may be a part of a character."""
        self._billed += characters

    def doubtful(self, call: T, characters: float) -> None:
        """Count a call that may have been billed."""
        self._doubts += 1
        self._doubted += characters
        self._call = call

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
            What is left, where it is sure to be newer than every doubt: asked for now, or in the answer to
            a call that was alone from its beginning to its end. Without it the lowest balance seen is
            taken, and no charge is laid to any call.
        """
        now = balance if balance is not None else self._lowest
        if now is None:
            return None
        found = None
        if self.balance is not None:
            found = self._compared(self.balance - now - self._billed, is_sure=balance is not None)
            self.total += found.drift
        self.balance, self._lowest, self._billed = now, None, 0
        self._doubts, self._doubted, self._call = 0, 0, None
        return found

    def _compared(self, beyond: float, *, is_sure: bool) -> Quiet[T]:
        # Balances are whole characters: what is less than one is no difference.
        if is_sure and self._doubts == 1 and self._doubted > 0 and abs(beyond - self._doubted) < 1:
            return Quiet(0, self._call)
        return Quiet(int(beyond if beyond < 0 else max(0.0, beyond - self._doubted)))


def explained(drift: int) -> str:
    """Return a drift in words.

    Examples
    --------
    >>> explained(-5)
    'the balance fell by 5 characters less than this run explains (topped up, or a call that cost nothing?)'
    """
    more, why = "more", "colleagues on the key?"
    if drift < 0:
        more, why = "less", "topped up, or a call that cost nothing?"
    return f"the balance fell by {counted(abs(drift), 'character')} {more} than this run explains ({why})"
