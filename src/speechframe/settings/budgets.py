"""What may be spent over many runs: ``budgets.toml``, and the month's limit of a key."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, Field

from speechframe.errors import SettingsError
from speechframe.settings.typed import read_toml
from speechframe.spec.billing import MOST_CREDITS

FILE_NAME = "budgets.toml"
Period = Literal["day", "week", "month", "year", "total"]
PERIODS: tuple[Period, ...] = get_args(Period)
ALERTS = (0.8, 1.0)
_RESERVED = ("run", "max_credits", "max_credits_per_month")
"""What errors and alerts call other limits."""


@dataclass(frozen=True)
class BudgetRule:
    """What runs with some tags may spend in each period.

    Attributes
    ----------
    name, max_credits
        What it is called, and credits a period.
    match
        Tags that a call must have to count; empty: every call counts.
    period, cycle_day
        ``day``, ``week`` (from Monday), ``month`` (from this day of it on), ``year`` or ``total``; in UTC.
    alerts
        Shares of `max_credits` at which somebody is told.
    hard
        Whether no call is made that would pass it; otherwise it is only counted.
    account
        Service and fingerprint of the key whose calls count; None for all keys.
    told_by
        Where it was set, in words.
    """

    name: str
    max_credits: Annotated[float, Field(ge=0, le=MOST_CREDITS)]
    match: Mapping[str, str] = field(default_factory=dict)
    period: Period = "month"
    cycle_day: Annotated[int, Field(ge=1, le=28)] = 1
    alerts: tuple[Annotated[float, Field(gt=0)], ...] = ALERTS
    hard: bool = True
    account: tuple[str, str] | None = None
    told_by: str = ""
    # A tag is text, also where it is written as a number.
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    @property
    def id(self) -> str:
        """What its count is kept under: another one where it counts other calls or in other periods.

        It tells nothing of the account.
        """
        counts = (*sorted(self.match.items()), self.period, self.cycle_day, self.account)
        return f"{self.name} {blake2b(repr(counts).encode(), digest_size=16).hexdigest()}"

    @property
    def millicredits(self) -> int:
        """Its limit in thousandths of a credit: never more than was allowed."""
        return math.floor(round(self.max_credits * 1000, 6))

    def matches(self, tags: Mapping[str, Any]) -> bool:
        """Return whether a call with these tags counts."""
        return all(name in tags and str(tags[name]) == value for name, value in self.match.items())

    def start(self, unix_time: float) -> date:
        """Return the first day of the period that a time is in; the first of all days for the total.

        Examples
        --------
        >>> rule = BudgetRule("ads", 100, cycle_day=15)
        >>> rule.start(datetime(2026, 3, 14, tzinfo=UTC).timestamp()).isoformat()
        '2026-02-15'
        """
        day = datetime.fromtimestamp(unix_time, UTC).date()
        if self.period == "month":
            # A cycle that begins on the 15th has begun in the month before until then.
            return (day - timedelta(days=self.cycle_day - 1)).replace(day=self.cycle_day)
        return {
            "day": day,
            "week": day - timedelta(days=day.weekday()),
            "year": day.replace(month=1, day=1),
            "total": date.min,
        }[self.period]


@dataclass(frozen=True)
class _File:
    budget: tuple[BudgetRule, ...] = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")


def read_budgets(path: Path) -> tuple[BudgetRule, ...]:
    """Return the budgets of a file.

    Raises
    ------
    SettingsError
        When it cannot be read, or says what is not allowed.
    """
    taken, found = {*_RESERVED, ""}, []
    for number, rule in enumerate(read_toml(path, _File).budget, 1):
        where = f"{path}, budget {number}"
        if rule.name in taken:
            raise SettingsError(f"{where}: name={rule.name!r} is taken; allowed: a name of its own")
        taken.add(rule.name)
        found.append(replace(rule, alerts=tuple(sorted(rule.alerts)), told_by=where))
    return tuple(found)
