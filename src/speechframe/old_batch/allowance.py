"""What one drive of a run may spend: its own limit, its part in the month's count, the balance of the key."""

import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from speechframe.errors import StoreError
from speechframe.old_batch.books import Before, read_spent
from speechframe.old_batch.budget import Budget
from speechframe.old_batch.connection import Connection
from speechframe.old_batch.month import MonthBudget
from speechframe.old_batch.threads import in_thread
from speechframe.old_store.spending import Spending
from speechframe.settings.rules import SpendingRules
from speechframe.spec.billing import CREDIT, Millicredits

log = logging.getLogger(__name__)

_EXACT_DIGITS = 6
"""Of a thousandth of a credit: what lies behind them in a limit is of its arithmetic, not meant."""


def finite(credits: float | None) -> float | None:
    """Return a limit in credits; infinity is none.

    Examples
    --------
    >>> finite(float("inf")), finite(12.5)
    (None, 12.5)
    """
    return None if credits is None or math.isinf(credits) else credits


@asynccontextmanager
async def allowance(
    connection: Connection,
    rules: SpendingRules,
    before: Before,
    *,
    folder: Path,
    run_id: str,
    max_credits: float | None,
) -> AsyncIterator[Budget]:
    """Hold the budget of a drive; at its end the month's count says what the run has spent.

    With a month's limit, what a call may cost is taken from it before; without one, the count is written at
    the end only, and no trouble with it can hold a run up.

    Parameters
    ----------
    connection, folder, run_id
        Where the run goes, where it lies, and its name in the month's count.
    rules
        The house's limits.
    before
        What earlier drives spent; it corrects the month's count after a crash.
    max_credits
        The run's own limit in credits.

    Raises
    ------
    StoreError
        When a month's limit is set and its count cannot be used: nothing was sent.
    """
    limited = rules.max_credits_per_month is not None
    spending = (
        await in_thread(_opened, connection, rules, before, run_id, undo=Spending.close) if limited else None
    )
    month = None if spending is None else _month(spending, connection, rules, run_id)
    budget = Budget(
        limit=_millis(rules.of_run(max_credits)),
        settled=before.spent_millis,
        month=month,
        house_rule=rules.run_rule_from if max_credits is None else "",
    )
    budget.note_balance(connection.balance)
    try:
        yield budget
    finally:
        if spending is not None:
            await in_thread(_close, budget, spending)
        elif not connection.is_local:
            await in_thread(_write_down, connection, rules, folder, run_id)


def _opened(connection: Connection, rules: SpendingRules, before: Before, run_id: str) -> Spending:
    spending = Spending(rules.ledger)
    try:
        spending.correct(connection.identity, run_id, before.spent_by_month)
    except BaseException:
        spending.close()
        raise
    return spending


def _write_down(connection: Connection, rules: SpendingRules, folder: Path, run_id: str) -> None:
    # Nobody pays for the embedded service, and without a limit the count is a record only.
    try:
        with Spending(rules.ledger) as spending:
            spending.correct(connection.identity, run_id, read_spent(folder))
    except StoreError as error:
        log.warning("this run is missing in the month's count: %s", error)


def _month(spending: Spending, connection: Connection, rules: SpendingRules, run_id: str) -> MonthBudget:
    return MonthBudget(
        spending,
        service=connection.identity,
        key_fingerprint=connection.key_fingerprint,
        run_id=run_id,
        limit=_millis(rules.max_credits_per_month),
        where=rules.month_rule_from,
    )


def _close(budget: Budget, spending: Spending) -> None:
    try:
        budget.close()
    except StoreError as error:
        log.warning("%s (the next start of this run puts it right)", error)
    finally:
        spending.close()


def _millis(credits: float | None) -> Millicredits | None:
    limit = finite(credits)
    # Never more than was allowed; but 1.001 is 1000.9999999999999 thousandths to a computer.
    return None if limit is None else math.floor(round(limit * CREDIT, _EXACT_DIGITS))
