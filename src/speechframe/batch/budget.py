"""What a run may spend: reserved before each call, settled after it, never passed.

Two limits hold at once: the run's own, and the month's over all runs of a key. All amounts are whole
thousandths of a credit.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from speechframe.errors import BudgetExceeded
from speechframe.spec.billing import to_credits
from speechframe.store.month import MonthFile, month_of

SHARE = 20
"""A run takes one part in so many of what is left of the month at a time, instead of each call's price."""


@dataclass(slots=True)
class _Allotment:
    """What this process may spend of one month."""

    month: str
    free: int = 0
    reserved: int = 0


class Month:
    """The limit of a calendar month (UTC) over all runs of a key on this machine, as one run uses it.

    Parameters
    ----------
    folder
        Of the month's files (``SPEECHFRAME_LEDGER``).
    account
        What tells this key of this service from others, without being the key.
    run
        Id of the run.
    limit
        Thousandths of a credit.
    spent
        What the run's ledger says it has spent so far, by month: this replaces what a process that was
        killed had been allotted.
    rule_from
        Where the limit was set, in words.
    clock
        Unix time.

    Raises
    ------
    StoreError
        When the file cannot be used: nothing must be sent. So do all methods.
    """

    def __init__(
        self,
        folder: Path,
        account: str,
        run: str,
        *,
        limit: int,
        spent: Mapping[str, int],
        rule_from: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limit, self.rule_from, self._clock = limit, rule_from, clock
        self._file = MonthFile(folder, account, run)
        self._file.correct(spent)
        self._allotments = [_Allotment(month_of(clock()))]

    @property
    def name(self) -> str:
        """The month that calls are reserved in now, such as ``2026-11``."""
        return self._allotments[-1].month

    def reserve(self, price: int) -> bool:
        """Set `price` aside in the month it is now, if it fits."""
        if (month := month_of(self._clock())) != self.name:
            # Calls under way stay in the month they were reserved in.
            self._give_back()
            self._allotments.append(_Allotment(month))
        now = self._allotments[-1]
        if price > now.free:
            now.free += self._file.allot(month, price - now.free, limit=self.limit, share=SHARE)
        if price > now.free:
            return False
        now.free -= price
        now.reserved += price
        return True

    def settle(self, reserved: int, cost: int) -> None:
        """Replace what was set aside for a call by what it has cost.

        Of calls under way at the end of a month, those that end first count as its calls.
        """
        for allotment in self._allotments:
            part = min(reserved, allotment.reserved)
            paid = min(part, cost)
            allotment.reserved -= part
            allotment.free += part - paid
            reserved, cost = reserved - part, cost - paid
        self._allotments[-1].free -= cost  # a call that cost more than its price
        if len(self._allotments) > 1:
            self._give_back()
            self._allotments[:-1] = [old for old in self._allotments[:-1] if old.reserved]

    def spent(self) -> int:
        """Return what all runs of the key have spent or set aside this month."""
        return self._file.total(self.name) - self._allotments[-1].free

    def close(self) -> None:
        """Give back what was allotted and not spent; what is still reserved stays counted."""
        self._give_back()

    def _give_back(self) -> None:
        for allotment in self._allotments:
            if allotment.free:
                self._file.give_back(allotment.month, allotment.free)
                allotment.free = 0


class Budget:
    """The limit of a run over all its calls so far, and the month's.

    Parameters
    ----------
    limit
        Thousandths of a credit; None for no limit.
    spent_before
        What the run has spent so far.
    month
        The month's limit; None without one.
    rule_from
        Where the rule ``max_credits_per_run`` was set, in words, if the limit comes from it.

    Attributes
    ----------
    spent, reserved
        What the run has spent, and what is set aside for calls under way.

    Examples
    --------
    >>> budget = Budget(10_000, spent_before=0)
    >>> budget.reserve(6_000), budget.reserve(6_000)
    (True, False)
    >>> budget.settle(6_000, 3_000)
    >>> budget.left
    7000
    """

    def __init__(
        self, limit: int | None, spent_before: int, month: Month | None = None, *, rule_from: str = ""
    ) -> None:
        self.spent, self.reserved = spent_before, 0
        self._limit, self._month, self._rule_from = limit, month, rule_from
        self._refused_by_month = False

    @property
    def left(self) -> int | None:
        """What may still be reserved of the run's limit; None without one."""
        return None if self._limit is None else self._limit - self.spent - self.reserved

    def reserve(self, price: int) -> bool:
        """Set `price` aside for a call; False where it does not fit. A free call always fits."""
        if price and self.left is not None and price > self.left:
            self._refused_by_month = False
            return False
        if price and self._month is not None and not self._month.reserve(price):
            self._refused_by_month = True
            return False
        self.reserved += price
        return True

    def settle(self, reserved: int, cost: int) -> None:
        """Replace what was set aside for a call by what it has cost."""
        self.reserved -= reserved
        self.spent += cost
        if self._month is not None:
            self._month.settle(reserved, cost)

    def why_not(self, price: int) -> BudgetExceeded:
        """Return the error that names the limit which :meth:`reserve` refused last.

        Parameters
        ----------
        price
            Of all calls that are still to be made.
        """
        if self._month is not None and self._refused_by_month:
            month, limit, spent = self._month, self._month.limit, self._month.spent()
            name, by = "max_credits_per_month", f" by all runs of this key in {month.name} (UTC)"
            where = f" ({month.rule_from})" if month.rule_from else ""
            advice = f"resume the run next month, or with a higher max_credits_per_month{where}"
        else:
            limit, spent, by = self._limit or 0, self.spent + self.reserved, ""
            name = "max_credits_per_run" if self._rule_from else "max_credits"
            advice = f"resume the run with a higher {name}"
            if self._rule_from:
                advice = f"have the rule changed ({self._rule_from}), then resume the run"
        left = max(0, limit - spent)
        return BudgetExceeded(
            f"{name}={to_credits(limit):.15g}: {to_credits(spent):,.15g} spent or set aside{by}, "
            f"{to_credits(left):,.15g} left, and the rest of the run costs {to_credits(price):,.15g}. "
            f"Everything that was made is kept; {advice}.",
            limit="month" if by else "run",
            max_credits=to_credits(limit),
            spent_credits=to_credits(spent),
            needed_credits=to_credits(price),
        )

    def close(self) -> None:
        """Give back what was allotted of the month's limit and not spent.

        Raises
        ------
        StoreError
            When the month's file cannot be used. It then counts too much, until the run is opened again.
        """
        if self._month is not None:
            self._month.close()
