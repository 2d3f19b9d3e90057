"""Compare budgets over many runs with the ledger, for regular checks, for example by cron."""

import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.settings import read
from speechframe.settings.spending import read_budgets, spending_rules
from speechframe.spec.billing import to_credits
from speechframe.spending.ledger import open_ledgers
from speechframe.store.budgets import COLUMNS, begin_of, spent_in

if TYPE_CHECKING:
    from os import PathLike

FINE, ALERT, OVER = "fine", "alert", "over"
"""States of a budget, the worst last."""


def check_budgets(path: "str | PathLike[str] | None" = None, source: Any = None) -> tuple[list[str], str]:
    """Return a line for each budget, and the worst state, which is ``fine``, ``alert`` or ``over``.

    Parameters
    ----------
    path
        The file of budgets. The default is the settings' file, or ``budgets.toml`` in the working folder.
        Without a file the result has no lines.
    source
        As for :func:`usage`. The default is the ledger folder of all runs.

    Raises
    ------
    SettingsError, StoreError
        If the file or the ledger cannot be read.

    Examples
    --------
    >>> lines, state = check_budgets("budgets.toml")  # doctest: +SKIP
    """
    rules = spending_rules(read()).budgets if path is None else read_budgets(Path(path))
    if not rules:
        return [], FINE
    ledgers, now = open_ledgers(source), time.time()
    spent: Counter[str] = Counter()
    for batch in ledgers.batches(COLUMNS, begin_of(rules, now)):
        for rule in rules:
            for (period, _), millis in spent_in(rule, batch).items():
                if period == rule.start(now):
                    spent[rule.name] += millis
    lines, states = [], []
    for rule in rules:
        since, used = rule.start(now), spent[rule.name]
        is_alert = rule.alerts and used >= rule.alerts[0] * rule.millicredits > 0
        states.append(OVER if used > rule.millicredits else ALERT if is_alert else FINE)
        when, then = ("in all", "") if since == date.min else (f"since {since} (UTC)", " since then")
        unmatched = "" if rule.name in spent else f", and it matches no call of the ledger{then}"
        amounts = f"{to_credits(used):,.15g} of {rule.max_credits:,.15g}"
        lines.append(f"{rule.name}: {amounts} {when}, {states[-1]}{unmatched}")
    return [*lines, ledgers.completeness()], max(states, key=(FINE, ALERT, OVER).index)
