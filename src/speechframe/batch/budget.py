"""What a run may spend: reserved before each call, settled after it, never passed.

Two limits hold at once: the run's own, and the one of a calendar month (UTC) over all runs of a key on this
machine. All amounts are whole thousandths of a credit.
"""

import time
from collections.abc import Callable

from speechframe.errors import BudgetExceeded
from speechframe.spec.billing import to_credits
from speechframe.store.month import MonthFile, month_of

SHARE = 20
"""A run takes one part in so many of what is left of the month at a time, instead of each call's price."""


class Budget:
    """The limits of a run. StoreError is raised where the month's file cannot be used: nothing must be sent.

    `limit` is of all calls of the run, those before it went on included (`spent_before`); None for none. The
    count of the month has been corrected by what the run has spent; `month_rule_from` says in words where its
    limit was set.
    """

    def __init__(
        self,
        limit: int | None,
        spent_before: int,
        month: MonthFile | None = None,
        *,
        month_limit: int = 0,
        month_rule_from: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spent, self.reserved = spent_before, 0
        self._limit, self._refused_by_month = limit, False
        self._month, self._month_limit, self._month_rule_from = month, month_limit, month_rule_from
        self._clock, self.month_name = clock, "" if month is None else month_of(clock())
        self._free = 0  # allotted to this run of the month's limit, and not reserved
        self._reserved_before = 0  # what is reserved in the months before

    def reserve(self, price: int) -> bool:
        """Set `price` aside for a call; False where it does not fit. A free call always fits."""
        fits_run = self._limit is None or price <= self._limit - self.spent - self.reserved
        fits = not price or (fits_run and (self._month is None or self._fits_month(self._month, price)))
        if fits:
            self.reserved += price
        else:
            self._refused_by_month = fits_run
        return fits

    def _fits_month(self, file: MonthFile, price: int) -> bool:
        if (month := month_of(self._clock())) != self.month_name:
            # Calls under way count with their price in the month they were reserved in.
            self.close()
            self.month_name, self._reserved_before = month, self.reserved
        if price > self._free:
            self._free += file.allot(month, price - self._free, limit=self._month_limit, share=SHARE)
        if price > self._free:
            return False
        self._free -= price
        return True

    def settle(self, reserved: int, cost: int) -> None:
        """Replace what was set aside for a call by what it has cost."""
        self.reserved -= reserved
        self.spent += cost
        before = min(reserved, self._reserved_before)
        self._reserved_before -= before
        self._free += reserved - before - max(0, cost - before)

    def why_not(self, price: int) -> BudgetExceeded:
        """Return the error that names the limit which refused last; `price` is of all further calls."""
        name, limit, spent, by = "max_credits", self._limit or 0, self.spent + self.reserved, ""
        advice = "resume the run with a higher max_credits"
        if self._month is not None and self._refused_by_month:
            name, limit = "max_credits_per_month", self._month_limit
            spent = self._month.total(self.month_name) - self._free
            by = f" by all runs of this key in {self.month_name} (UTC)"
            where = f" ({self._month_rule_from})" if self._month_rule_from else ""
            advice = f"resume the run next month, or with a higher {name}{where}"
        return BudgetExceeded(
            f"{name}={to_credits(limit):.15g}: {to_credits(spent):,.15g} spent or set aside{by}, "
            f"{to_credits(max(0, limit - spent)):,.15g} left, and the rest of the run costs "
            f"{to_credits(price):,.15g}. Everything that was made is kept; {advice}.",
            limit="month" if by else "run",
            max_credits=to_credits(limit),
            spent_credits=to_credits(spent),
            needed_credits=to_credits(price),
        )

    def close(self) -> None:
        """Give back what was allotted of the month and not spent; what is still reserved stays counted."""
        if self._month is not None and self._free:
            self._month.give_back(self.month_name, self._free)
        self._free = 0
