"""Compare budgets that apply to many runs with the ledger (the record of all attempts and their costs)."""

import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.settings import read_settings
from speechframe.settings.spending import read_budgets, read_spending_rules
from speechframe.spec.billing import convert_to_credits
from speechframe.spending.ledger import open_ledgers
from speechframe.store.budgets import BUDGET_COLUMNS, find_earliest_start, sum_spending

if TYPE_CHECKING:
    from os import PathLike

FINE, ALERT, OVER = "fine", "alert", "over"
"""States of a budget, from best to worst: below all alert thresholds, at a threshold, above the budget."""


def check_budgets(path: "str | PathLike[str] | None" = None, source: Any = None) -> tuple[list[str], str]:
    """Return a line of text for each budget, and the worst state: ``fine``, ``alert`` or ``over``.

    The last line contains the time until which the ledger is complete.

    Parameters
    ----------
    path
        File of budgets. The default is the file that the settings name, or else ``budgets.toml`` in the
        working folder. If there is no budget, the result has no lines and the state ``fine``.
    source
        Runs or ledgers, as for :func:`usage`. The default is the ledger folder of all runs.

    Raises
    ------
    SettingsError, StoreError
        If the file or the ledger cannot be read.

    Examples
    --------
    >>> lines, state = check_budgets("budgets.toml")  # doctest: +SKIP
    """
    rules = read_spending_rules(read_settings()).budgets if path is None else read_budgets(Path(path))
    if not rules:
        return [], FINE
    ledgers, now = open_ledgers(source), time.time()
    spent: Counter[str] = Counter()
    for batch in ledgers.batches(BUDGET_COLUMNS, find_earliest_start(rules, now)):
        for rule in rules:
            for (period, _), millis in sum_spending(rule, batch).items():
                if period == rule.find_period_start(now):
                    spent[rule.name] += millis
    lines, states = [], []
    for rule in rules:
        since, used = rule.find_period_start(now), spent[rule.name]
        is_alert = rule.alerts and used >= rule.alerts[0] * rule.millicredits > 0
        states.append(OVER if used > rule.millicredits else ALERT if is_alert else FINE)
        when, then = ("in all", "") if since == date.min else (f"since {since} (UTC)", " since then")
        unmatched = "" if rule.name in spent else f", and it matches no call of the ledger{then}"
        amounts = f"{convert_to_credits(used):,.15g} of {rule.max_credits:,.15g}"
        lines.append(f"{rule.name}: {amounts} {when}, {states[-1]}{unmatched}")
    return [*lines, ledgers.describe_completeness()], max(states, key=(FINE, ALERT, OVER).index)
