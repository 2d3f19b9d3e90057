"""What is left on a key, learned from answers that come out of order, so that a run stops before 402."""

from dataclasses import dataclass
from typing import NamedTuple

from speechframe.spec.billing import CREDIT, Millicredits


class Mark(NamedTuple):
    """A moment of a run, as the balances that are told later need it.

    Attributes
    ----------
    settled
        What had been taken from the balance by then.
    told
        How many balances had been told by then.
    """

    settled: Millicredits
    told: int


START = Mark(0, 0)


@dataclass
class KnownBalance:
    """What is left on the key, as far as the answers tell; thousandths of a character.

    An answer says what was left at some moment between its sending and its
    arrival. All that was settled before it was sent is surely in the figure,
    and nothing that was sent after it arrived; of what lies between, nobody
    knows. So each answer gives bounds, from `low` to `high`, for what the run
    may take from the key in all, from its first call on, and these bounds
    meet as long as nobody else uses the key: the highest `low` counts. It is
    exact from the start where the balance was told before the first call, and
    otherwise from the answer to the call that was billed first.

    Bounds that do not meet show that somebody else spent, or that the key was
    topped up. Then the newer ones count. Answers come out of order, and which
    is newer is only certain for one that was sent after the other came: a rise
    is not believed of an answer that was sent before a fall was seen, nor a
    fall of one that was sent before a rise was seen. The next answer tells.
    """

    low: Millicredits | None = None
    high: Millicredits = 0
    settled: Millicredits = 0
    reserved: Millicredits = 0
    _told: int = 0
    _fell: int = 0
    _rose: int = 0

    def covers(self, amount: Millicredits) -> bool:
        """Whether another `amount` fits; it always does while no balance is known."""
        return self.low is None or not amount or self.settled + self.reserved + amount <= self.low

    @property
    def left(self) -> Millicredits | None:
        """What may still be reserved; None while no balance is known."""
        return None if self.low is None else max(0, self.low - self.settled - self.reserved)

    def note(self, remaining_characters: int, mark: Mark, charged: Millicredits) -> None:
        """Take in what an answer said; see :meth:`Budget.note_balance`."""
        if remaining_characters < 0:
            # An account that is overdrawn and goes on answering: its service does not refuse at zero.
            return
        remaining = remaining_characters * CREDIT
        low = remaining + mark.settled + charged
        # The service counts in thousandths too and says whole characters.
        high = max(low, remaining + self.settled + self.reserved) + CREDIT - 1
        self._told += 1
        if self.low is None:
            self.low, self.high = low, high
        elif low > self.high:
            if mark.told >= self._fell:
                self.low, self.high, self._rose = low, high, self._told
        elif high < self.low:
            if mark.told >= self._rose:
                self.low, self.high, self._fell = low, high, self._told
        else:
            self.low, self.high = max(self.low, low), min(self.high, high)

    def mark(self) -> Mark:
        """Return this moment."""
        return Mark(self.settled, self._told)
