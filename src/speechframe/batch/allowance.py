"""What one drive of a run may spend: its own limit, its part in the month's count, the balance of the key."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from speechframe.batch.books import Before
from speechframe.batch.budget import Budget
from speechframe.batch.connection import Connection
from speechframe.batch.month import MonthBudget
from speechframe.errors import StoreError
from speechframe.settings.rules import SpendingRules
from speechframe.spec.billing import CREDIT, Millicredits
from speechframe.store.spending import Spending

log = logging.getLogger(__name__)


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
    connection: Connection, rules: SpendingRules, before: Before, *, run_id: str, max_credits: float | None
) -> AsyncIterator[Budget]:
    """Hold the budget of a drive; at its end what was taken of the month and not spent is given back.

    Parameters
    ----------
    connection, run_id
        Where the run goes, and its name in the month's count.
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
    spending = await asyncio.to_thread(_opened, connection, rules, before, run_id)
    month = None if spending is None else _month(spending, connection, rules, run_id)
    budget = Budget(limit=_millis(rules.of_run(max_credits)), settled=before.spent_millis, month=month)
    budget.note_balance(connection.balance)
    try:
        yield budget
    finally:
        if spending is not None:
            await asyncio.shield(asyncio.to_thread(_close, budget, spending))


def _opened(connection: Connection, rules: SpendingRules, before: Before, run_id: str) -> Spending | None:
    limited = rules.max_credits_per_month is not None
    if connection.is_local and not limited:
        # Nobody pays for the embedded service.
        return None
    try:
        spending = Spending(rules.ledger)
        try:
            spending.correct(connection.identity, run_id, before.spent_by_month)
        except BaseException:
            spending.close()
            raise
    except StoreError as error:
        if limited:
            raise
        log.warning("this run is missing in the month's count: %s", error)
        return None
    return spending


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
    return None if limit is None else round(limit * CREDIT)
