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


class Fall(NamedTuple):
    """A balance that is lower than the run's own calls explain, seen once.

    Attributes
    ----------
    low, high
        The bounds it gives; see :class:`KnownBalance`.
    told
        How many balances had been told with it.
    """

    low: Millicredits
    high: Millicredits
    told: int


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

    One answer alone may be wrong, and a fall ends the run. So a fall that the
    run's own calls do not explain is a doubt first: nothing is reserved beyond
    it, but it counts only as far as something sent after it was seen says so
    too. Where it would end the run, the service is asked, or one call goes
    beyond it (`in_doubt`) to find out.
    """

    low: Millicredits | None = None
    high: Millicredits = 0
    settled: Millicredits = 0
    reserved: Millicredits = 0
    doubt: Fall | None = None
    _told: int = 0
    _fell: int = 0
    _rose: int = 0

    def covers(self, amount: Millicredits, *, in_doubt: bool = False) -> bool:
        """Whether another `amount` fits; it always does while no balance is known.

        Parameters
        ----------
        amount
            Thousandths of a character.
        in_doubt
            Go by what is known and not by the doubt.
        """
        limit = self.low if in_doubt else self.limit
        return limit is None or not amount or self.settled + self.reserved + amount <= limit

    @property
    def limit(self) -> Millicredits | None:
        """What the run may take in all; None while no balance is known."""
        return self.low if self.low is None or self.doubt is None else min(self.low, self.doubt.low)

    @property
    def left(self) -> Millicredits | None:
        """What may still be reserved; None while no balance is known."""
        return None if self.limit is None else max(0, self.limit - self.settled - self.reserved)

    def note(
        self, remaining_characters: int, mark: Mark, charged: Millicredits, *, is_sure: bool = False
    ) -> None:
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
            if mark.told >= max(self._fell, self.doubt.told if self.doubt is not None else 0):
                self.low, self.high, self.doubt, self._rose = low, high, None, self._told
        elif high < self.low:
            if is_sure:
                self.low, self.high, self.doubt, self._fell = low, high, None, self._told
            elif mark.told >= self._rose:
                self._note_fall(Fall(low, high, self._told), mark)
        else:
            self.low, self.high = max(self.low, low), min(self.high, high)
            if self._tells(mark):
                self.doubt = None

    def note_success(self, mark: Mark, charged: Millicredits) -> None:
        """Take in that a call was made whose answer says no balance: a doubt that had no room for it goes."""
        if self.doubt is not None and self._tells(mark) and mark.settled + charged > self.doubt.high:
            self.doubt = None

    def _tells(self, mark: Mark) -> bool:
        """Whether what was sent at `mark` is surely newer than the doubt."""
        return self.doubt is None or mark.told >= self.doubt.told

    def _note_fall(self, fall: Fall, mark: Mark) -> None:
        if self.doubt is None:
            self.doubt = fall
        elif not self._tells(mark):
            if fall.high < self.doubt.low:
                self.doubt = fall
        elif fall.high < self.doubt.low:
            # Both say that it fell, and so far: the rest is what only the newer one says.
            self.low, self.high, self.doubt, self._fell = self.doubt.low, self.doubt.high, fall, self._told
        else:
            self.low, self.high, self.doubt, self._fell = fall.low, fall.high, None, self._told

    def mark(self) -> Mark:
        """Return this moment."""
        return Mark(self.settled, self._told)
