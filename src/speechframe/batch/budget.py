"""Limits on a run's spending. A run has its own limit, and it may share budgets with other runs."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any

from speechframe.batch.backend import Request
from speechframe.errors import BudgetExceeded
from speechframe.settings import find_default_ledger_folder
from speechframe.settings.spending import DEFAULT_ALERTS, BudgetRule
from speechframe.spec.billing import convert_to_credits
from speechframe.store.budgets import BUDGET_COLUMNS, Allowance, LedgerSums, sum_spending
from speechframe.store.folder import Folder
from speechframe.store.records import read_all_attempts, sum_millicredits
from speechframe.writing.words import format_count


@dataclass(frozen=True, slots=True)
class Alert:
    """A message that the spending of a budget has reached one of its alert thresholds.

    `budget` is ``max_credits``, or the name of a budget shared by many runs. `share` is the threshold, as a
    share of `limit_credits`. `spent_credits` includes the prices of calls under way and, in a shared budget,
    the amounts that are allotted to other runs.
    """

    budget: str
    share: float
    limit_credits: float
    spent_credits: float

    def __str__(self) -> str:
        """Return the alert in words."""
        return (
            f"{100 * self.share:.0f} % of {self.budget}={self.limit_credits:.15g} are spent or set aside: "
            f"{self.spent_credits:,.15g}"
        )


class Budget:
    """The limits on a run's spending, in thousandths of a credit.

    A price is reserved before each call and settled after the call. A call is refused if its price would
    bring the spending above `limit`, which includes `spent_before`, or above a hard budget that is shared
    with other runs. Together with other machines a hard budget may still be exceeded (:func:`open_budget`).
    A soft budget refuses no call, and only sends alerts. A row counts towards a shared budget if its tags
    match. `limit_rule` is the name of the setting that sets `limit`, and the place where it was set. It is
    None if the run's own ``max_credits`` sets the limit. Methods raise StoreError if the file of a shared
    budget is unusable. The caller must then send nothing. `alert` is called once for each threshold that a
    budget reaches.
    """

    def __init__(
        self,
        limit: int | None,
        spent_before: int,
        allowances: Sequence[Allowance] = (),
        *,
        tags: Mapping[str, Any] = MappingProxyType({}),
        limit_rule: tuple[str, str] | None = None,
    ) -> None:
        self.spent, self.reserved = spent_before, 0
        self.alert: Callable[[Alert], None] = lambda _: None
        self._limit, self._allowances, self._tags = limit, allowances, tags
        self._limit_rule = limit_rule
        self._refused_by: Allowance | None = None
        self._alerted: set[tuple[str, object, float]] = set()

    def compute_left(self, request: Request) -> int:
        """Return the largest price that a call with the tags of `request` may have now.

        Another run may allot a part of it at any moment.
        """
        found = [sys.maxsize] if self._limit is None else [self._limit - self.spent - self.reserved]
        tags = {**self._tags, **(request.facts.get("tags") or {})}
        counting = [each for each in self._allowances if each.rule.hard and each.rule.matches_tags(tags)]
        return max(0, min([*found, *(each.compute_left() for each in counting)]))

    @property
    def counts_tags(self) -> bool:
        """True if a shared budget counts rows by their tags."""
        return any(allowance.rule.match for allowance in self._allowances)

    def reserve(self, request: Request, price: int) -> bool:
        """Reserve the whole `price` of a call and return True. Return False if a limit forbids the call.

        A price of 0 is always allowed.
        """
        if not price:
            return True
        if self._limit is not None and price > self._limit - self.spent - self.reserved:
            self._refused_by = None
            return False
        shares: list[tuple[Allowance, int]] = []
        for allowance in self._allowances:
            share = self._sum_counted_amounts(allowance, request, None)
            if share and not allowance.allot(share):
                self._refused_by = allowance
                return False
            shares.append((allowance, share))
        for allowance, share in shares:
            allowance.reserve(share)
        self.reserved += price
        if self._limit is not None or self._allowances:
            self._send_alerts()
        return True

    def settle(self, request: Request, reserved: int, costs: Sequence[int]) -> None:
        """Replace the reserved price of a call by the cost of each of its rows."""
        self.reserved -= reserved
        self.spent += sum(costs)
        for allowance in self._allowances:
            share = self._sum_counted_amounts(allowance, request, None) if reserved else 0
            allowance.settle(share, self._sum_counted_amounts(allowance, request, costs))

    def _sum_counted_amounts(
        self, allowance: Allowance, request: Request, costs: Sequence[int] | None
    ) -> int:
        """Return the part of a call that counts towards a budget.

        The part is a sum over all rows with matching tags. It adds `costs` if given, otherwise prices.
        """
        total = 0
        for position, row in enumerate(request.rows):
            if allowance.rule.matches_tags({**self._tags, **(row.facts.get("tags") or {})}):
                total += row.price if costs is None else costs[position]
        return total

    def _send_alerts(self) -> None:
        """Call `alert` for each threshold that a budget has newly reached."""
        limits = [
            (one.rule.name, one.period, one.rule.alerts, one.rule.millicredits, one.used)
            for one in self._allowances
        ]
        if self._limit is not None:
            limits.append(("max_credits", date.min, DEFAULT_ALERTS, self._limit, self.spent + self.reserved))
        for name, period, shares, limit, used in limits:
            for share in shares:
                if used >= share * limit > 0 and (name, period, share) not in self._alerted:
                    self._alerted.add((name, period, share))
                    self.alert(Alert(name, share, convert_to_credits(limit), convert_to_credits(used)))

    def explain_refusal(self, price: int) -> BudgetExceeded:
        """Return the error that names the limit of the last refusal.

        `price` is the price of all remaining calls of the run, in thousandths of a credit.
        """
        name, limit, spent, by = "max_credits", self._limit or 0, self.spent + self.reserved, ""
        advice = "resume the run with a higher max_credits"
        limit_name = "run"
        if self._limit_rule is not None:
            name = limit_name = self._limit_rule[0]
            where = f" (set in {self._limit_rule[1]})" if self._limit_rule[1] else ""
            advice = f"raise {name}{where}, then resume the run"
        if (refused_by := self._refused_by) is not None:
            rule = refused_by.rule
            name, limit, period = rule.name, rule.millicredits, refused_by.period
            limit_name = name
            spent = refused_by.sum_allotments(period) - refused_by.free
            whose = "all runs of this key" if rule.account else "all runs that this budget counts"
            by = f" by {whose} since {period} (UTC)" if rule.period != "total" else f" by {whose}"
            where = f" ({rule.set_in})" if rule.set_in else ""
            later = "" if rule.period == "total" else f"next {rule.period}, or "
            advice = f"resume the run {later}with a higher {name}{where}"
        return BudgetExceeded(
            f"{name}={convert_to_credits(limit):.15g}: {convert_to_credits(spent):,.15g} spent or set "
            f"aside{by}, {convert_to_credits(max(0, limit - spent)):,.15g} left, and the rest of the run "
            f"costs {format_count(convert_to_credits(price), 'credit')}. Everything that was made is kept; "
            f"{advice}.",
            limit=limit_name,
            max_credits=convert_to_credits(limit),
            spent_credits=convert_to_credits(spent),
            needed_credits=convert_to_credits(price),
        )

    def close(self) -> None:
        """Give free amounts back to the budgets. Amounts that are still reserved stay counted."""
        for allowance in self._allowances:
            allowance.close()


def open_budget(
    run_folder: Folder,
    run_id: str,
    limit: int | None,
    rules: Sequence[BudgetRule],
    ledger: Folder,
    tags: Mapping[str, str],
    limit_rule: tuple[str, str] | None = None,
) -> tuple[Budget, Callable[[], None] | None]:
    """Return a run's budget, and a function that reads the spending of other machines from the ledger.

    The ledger is a folder with the attempts of all runs and their cost. `rules` are the budgets that many
    runs share. `limit_rule` is as for :class:`Budget`. The function is None if the ledger is a local folder.

    Processes of one machine share a budget file, so together they never exceed a hard budget. Spending that
    is not in this file is read from the ledger at the start. A remote ledger is read again each time this run
    has written a part (one Parquet file of results). So a hard budget can be exceeded only together with
    other machines. The excess is at most their spending between two parts of this run, plus the amount that
    this run is allotted at a time. This amount is what is left of the budget, divided by
    :data:`~speechframe.store.budgets.REST_DIVISOR`, or the price of a call if that is more.
    """
    attempts = read_all_attempts(run_folder, BUDGET_COLUMNS)
    is_remote = ledger.work != ledger.path
    allotments_folder = find_default_ledger_folder() if is_remote else ledger.path
    allowances = [Allowance(rule, allotments_folder, run_id, time.time) for rule in rules]
    new = [one for one in allowances if is_remote or not one.is_counted()]
    sums = LedgerSums(ledger, [one.rule for one in new], time.time())

    def update_budget() -> None:
        sums.read()
        for one in new:
            one.learn_spending(sums.get_spending(one.rule, one.period))

    update_budget()
    for one in allowances:
        by_period: Counter[Any] = Counter()
        for (period, _), spent in sum_spending(one.rule, attempts).items():
            by_period[period] += spent
        one.correct_allotments(by_period)
    budget = Budget(limit, sum_millicredits(attempts), allowances, tags=tags, limit_rule=limit_rule)
    return budget, update_budget if is_remote else None
