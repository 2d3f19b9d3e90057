"""What a run may spend: reserved before a call, settled after it, never passed."""

from dataclasses import dataclass

from speechframe.errors import BudgetExceeded
from speechframe.spec.billing import Millicredits, to_credits


@dataclass
class Budget:
    """A hard limit in our own count, whatever the concurrency.

    ``settled + reserved`` never passes ``limit``. The service's own count may
    differ by what is in flight.

    Parameters
    ----------
    limit
        Thousandths of a credit this run may spend; None for no limit.

    Examples
    --------
    >>> budget = Budget(limit=100_000)
    >>> budget.reserve(60_000), budget.reserve(60_000)
    (True, False)
    >>> budget.settle(reserved=60_000, spent=40_000)
    >>> budget.left
    60000
    """

    limit: Millicredits | None = None
    settled: Millicredits = 0
    reserved: Millicredits = 0

    def reserve(self, amount: Millicredits) -> bool:
        """Set `amount` aside for one call; False when it does not fit."""
        if self.limit is not None and self.settled + self.reserved + amount > self.limit:
            return False
        self.reserved += amount
        return True

    def settle(self, *, reserved: Millicredits, spent: Millicredits) -> None:
        """Give a reservation back and book what the call really cost."""
        self.reserved -= reserved
        self.settled += spent

    @property
    def left(self) -> Millicredits | None:
        """What may still be reserved; None without a limit."""
        return None if self.limit is None else self.limit - self.settled - self.reserved

    def exceeded(self, needed: Millicredits, remaining_rows: int) -> BudgetExceeded:
        """Return the error that says what is left and what the rest would cost."""
        limit = self.limit or 0
        spent = self.settled + self.reserved
        return BudgetExceeded(
            f"max_credits={to_credits(limit):g}: {to_credits(self.settled):g} are spent, "
            f"{to_credits(limit - spent):g} are left, the {remaining_rows} calls that remain need "
            f"{to_credits(needed):g}. Everything paid for is kept; resume the run with a higher max_credits.",
            max_credits=to_credits(limit),
            spent_credits=to_credits(spent),
            needed_credits=to_credits(needed),
        )
