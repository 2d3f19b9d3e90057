"""What may be spent over many runs: ``budgets.toml``, and the month's limit of a key."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

from speechframe.errors import SettingsError
from speechframe.settings.typed import credit_limit, toml_tables

FILE_NAME = "budgets.toml"
PERIODS = ("day", "week", "month", "year", "total")
ALERTS = (0.8, 1.0)
_LATEST_CYCLE_DAY = 28
_RESERVED = ("run", "max_credits", "max_credits_per_month")
"""What errors and alerts call other limits."""
_NAMES = ("name", "match", "max_credits", "period", "cycle_day", "alerts", "hard")


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
    max_credits: float
    match: Mapping[str, str] = field(default_factory=dict)
    period: str = "month"
    cycle_day: int = 1
    alerts: tuple[float, ...] = ALERTS
    hard: bool = True
    account: tuple[str, str] | None = None
    told_by: str = ""

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


def read_budgets(path: Path) -> tuple[BudgetRule, ...]:
    """Return the budgets of a file.

    Raises
    ------
    SettingsError
        When it cannot be read, or says what is not allowed.
    """
    _, tables = toml_tables(path, "budget", _NAMES)
    found = tuple(_rule(where, entry) for where, entry in tables)
    names = [rule.name for rule in found]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"{path} has two budgets {name!r}; give each a name of its own")
    return found


def _rule(where: str, entry: Mapping[str, Any]) -> BudgetRule:
    match, cycle_day, alerts = entry.get("match", {}), entry.get("cycle_day", 1), entry.get("alerts", ALERTS)
    checks = {
        "name": (
            isinstance(entry.get("name"), str) and entry["name"] not in {"", *_RESERVED},
            f"a text, but none of {', '.join(_RESERVED)}",
        ),
        "max_credits": (entry.get("max_credits", math.inf) != math.inf, "a number of credits"),
        "match": (
            isinstance(match, dict) and all(isinstance(one, (str, int, float)) for one in match.values()),
            'tags and their values, as {team = "ads"}',
        ),
        "period": (entry.get("period", "month") in PERIODS, ", ".join(PERIODS)),
        "cycle_day": (type(cycle_day) is int and 1 <= cycle_day <= _LATEST_CYCLE_DAY, "1 to 28"),
        "alerts": (
            isinstance(alerts, (list, tuple)) and all(type(n) in {int, float} and n > 0 for n in alerts),
            "shares such as [0.5, 0.8, 1.0]",
        ),
        "hard": (isinstance(entry.get("hard", True), bool), "true or false"),
    }
    for name, (is_allowed, allowed) in checks.items():
        if not is_allowed:
            raise SettingsError(f"{where}: {name}={entry.get(name)!r}; allowed: {allowed}")
    return BudgetRule(
        name=entry["name"],
        max_credits=credit_limit(f"{where}: max_credits", entry["max_credits"]),
        match={name: str(value) for name, value in match.items()},
        period=entry.get("period", "month"),
        cycle_day=cycle_day,
        alerts=tuple(sorted(alerts)),
        hard=entry.get("hard", True),
        told_by=where,
    )
