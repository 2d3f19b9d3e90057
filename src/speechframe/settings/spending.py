"""Read limits on spending and prices of credits, from the settings, ``budgets.toml`` and ``prices.toml``."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from speechframe.errors import SettingsError, suggest_name
from speechframe.settings import Settings, find_default_ledger_folder, resolve_for_runs
from speechframe.settings.typed import read_toml
from speechframe.spec.billing import MAX_BUDGET_CREDITS

BUDGETS_FILE = "budgets.toml"
PRICES_FILE = "prices.toml"
Period = Literal["day", "week", "month", "year", "total"]
DEFAULT_ALERTS = (0.8, 1.0)
"""Shares of a limit at which an alert is sent, by default."""
_RESERVED_NAMES = ("run", "max_credits", "max_credits_per_run", "max_credits_per_month")
"""Names that a budget must not have, because errors and alerts use them for other limits."""
OPERATIONS = ("generate", "translate", "change_voice", "dub", "transcribe")
"""Operations of the public functions of speechframe. A user's own backend may have another operation."""


# -- budgets that many runs share ------------------------------------------------------


@dataclass(frozen=True)
class BudgetRule:
    """A budget: a limit on the spending of all calls with some tags in each period.

    Attributes
    ----------
    name, max_credits
        Name of the budget, and its credits for each period.
    match
        Tags that a call must have to count. If empty, all calls count.
    period, cycle_day
        ``day``, ``week`` (from Monday), ``month`` (from day `cycle_day` on), ``year`` or ``total``. All in
        UTC.
    alerts
        Shares of `max_credits` at which an alert is sent.
    hard
        True if a call that would exceed the limit is refused. False if the call is only counted.
    account
        Service and fingerprint of the key whose calls count. None for all keys.
    set_in
        Place where the budget was set, as text for messages.
    """

    name: str
    max_credits: Annotated[float, Field(ge=0, le=MAX_BUDGET_CREDITS)]
    match: Mapping[str, str] = field(default_factory=dict)
    period: Period = "month"
    cycle_day: Annotated[int, Field(ge=1, le=28)] = 1
    alerts: tuple[Annotated[float, Field(gt=0)], ...] = DEFAULT_ALERTS
    hard: bool = True
    account: tuple[str, str] | None = None
    set_in: str = ""
    # Tags are text, so convert numbers of the file to text.
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    @property
    def id(self) -> str:
        """Name under which the spending of the budget is stored.

        The name depends on which calls and periods the budget counts. It contains the account only as a hash.
        """
        counts = (*sorted(self.match.items()), self.period, self.cycle_day, self.account)
        return f"{self.name} {blake2b(repr(counts).encode(), digest_size=16).hexdigest()}"

    @property
    def millicredits(self) -> int:
        """The limit in thousandths of a credit, rounded down."""
        return math.floor(round(self.max_credits * 1000, 6))

    def matches_tags(self, tags: Mapping[str, Any]) -> bool:
        """Return whether a call with these tags counts in this budget."""
        return all(name in tags and str(tags[name]) == value for name, value in self.match.items())

    def find_period_start(self, unix_time: float) -> date:
        """Return the first day of the period that contains a time. For ``total`` return ``date.min``.

        Examples
        --------
        >>> rule = BudgetRule("ads", 100, cycle_day=15)
        >>> rule.find_period_start(datetime(2026, 3, 14, tzinfo=UTC).timestamp()).isoformat()
        '2026-02-15'
        """
        day = datetime.fromtimestamp(unix_time, UTC).date()
        if self.period == "month":
            # Before day `cycle_day`, the period began in the month before.
            return (day - timedelta(days=self.cycle_day - 1)).replace(day=self.cycle_day)
        return {
            "day": day,
            "week": day - timedelta(days=day.weekday()),
            "year": day.replace(month=1, day=1),
            "total": date.min,
        }[self.period]


@dataclass(frozen=True)
class _SpendingFile:
    budget: tuple[BudgetRule, ...] = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")


def read_budgets(path: Path) -> tuple[BudgetRule, ...]:
    """Read a file of budgets, and return its budgets.

    Raises
    ------
    SettingsError
        If the file cannot be read, has a value that is not allowed, or has two budgets with the same name.
    """
    taken, found = {*_RESERVED_NAMES, ""}, []
    for number, rule in enumerate(read_toml(path, _SpendingFile).budget, 1):
        where = f"{path}, budget {number}"
        if rule.name in taken:
            raise SettingsError(f"{where}: name={rule.name!r} is taken. Give each budget a name of its own.")
        taken.add(rule.name)
        found.append(replace(rule, alerts=tuple(sorted(rule.alerts)), set_in=where))
    return tuple(found)


# -- the limits that hold for a run ----------------------------------------------------


@dataclass(frozen=True)
class SpendingRules:
    """The limits on runs from the settings, as :func:`read_spending_rules` returns them.

    Attributes
    ----------
    max_credits_per_run, max_credits_per_month
        Limits in credits. None for no limit.
    run_rule_from, month_rule_from
        Places where these limits were set, as text for messages.
    budgets
        Budgets in the file of budgets.
    require_tags
        Names of tags that every run must have.
    ledger
        Folder for the attempts and costs of all runs, or its address.
    """

    max_credits_per_run: float | None
    run_rule_from: str
    max_credits_per_month: float | None
    month_rule_from: str
    ledger: Path | str
    budgets: tuple[BudgetRule, ...] = ()
    require_tags: tuple[str, ...] = ()

    def check_tags(self, tags: Iterable[str]) -> None:
        """Raise SettingsError if a run lacks a required tag."""
        if missing := [name for name in self.require_tags if name not in {*tags}]:
            raise SettingsError(
                f"this run has no tag {' and no tag '.join(missing)}, which require_tags requires. Nothing "
                f'was sent. Give tags={{"{missing[0]}": ...}}'
            )

    def find_shared_budgets(self, service: str, key_fingerprint: str) -> list[BudgetRule]:
        """Return the budgets that a run with this key on this service shares with other runs.

        ``max_credits_per_month`` is one of them.
        """
        if self.max_credits_per_month is None:
            return [*self.budgets]
        name, account = "max_credits_per_month", (service, key_fingerprint)
        month = BudgetRule(name, self.max_credits_per_month, account=account, set_in=self.month_rule_from)
        return [month, *self.budgets]

    def compute_run_limit(self, max_credits: float | None) -> float | None:
        """Return the credit limit of a run that was started with `max_credits`.

        Raises
        ------
        SettingsError
            If `max_credits` is above the limit of the settings.

        Examples
        --------
        >>> rules = SpendingRules(500.0, "configure()", None, "", Path("ledger"))
        >>> rules.compute_run_limit(None), rules.compute_run_limit(20)
        (500.0, 20)
        """
        highest = self.max_credits_per_run
        if highest is None or max_credits is None:
            return highest if max_credits is None else max_credits
        if max_credits > highest:
            raise SettingsError(
                f"max_credits={max_credits:.15g} is above "
                f"max_credits_per_run={highest:.15g} (set in {self.run_rule_from}). Nothing was sent. "
                "Give a smaller max_credits, or have that setting raised."
            )
        return max_credits

    def find_run_rule(self, max_credits: float | None) -> tuple[str, str] | None:
        """Return name and place of the setting that limits a run that was started with `max_credits`.

        Return None if only `max_credits` limits the run, because the setting allows more.
        """
        highest = self.max_credits_per_run
        if highest is None or (max_credits is not None and max_credits < highest):
            return None
        return "max_credits_per_run", self.run_rule_from


def read_spending_rules(service: Settings) -> SpendingRules:
    """Return the limits for runs on `service`. Its own values come before those of other places.

    Raises
    ------
    SettingsError
        If a file cannot be read, or a setting is not allowed.
    """
    settings, set_in = resolve_for_runs(service)
    budgets = settings.budgets or Path(BUDGETS_FILE)
    return SpendingRules(
        _remove_infinity(settings.max_credits_per_run),
        set_in.get("max_credits_per_run", ""),
        _remove_infinity(settings.max_credits_per_month),
        set_in.get("max_credits_per_month", ""),
        settings.ledger or find_default_ledger_folder(),
        budgets=read_budgets(budgets) if settings.budgets or budgets.exists() else (),
        require_tags=settings.require_tags,
    )


def _remove_infinity(credits: float | None) -> float | None:
    return None if credits == math.inf else credits


def read_cache_rules(service: Settings) -> dict[str, Any]:
    """Return the folder and the limits of the cache for runs on `service`, as arguments of `open_cache`.

    Raises
    ------
    SettingsError
        If a file cannot be read, or a setting is not allowed.
    """
    settings, _ = resolve_for_runs(service)
    return {
        "folder": settings.cache,
        "max_gb": settings.cache_max_gb,
        "max_age_days": settings.cache_max_age_days,
    }


# -- prices ----------------------------------------------------------------------------


def _check_operation(name: str) -> str:
    if name not in OPERATIONS and (guess := suggest_name(name, OPERATIONS)):
        raise ValueError(f"{guess}allowed: {', '.join(OPERATIONS)}")
    return name


def _refuse_time(value: Any) -> Any:
    # Refuse a time, because dropping its offset could change the day.
    if isinstance(value, datetime) or (isinstance(value, str) and len(value) > len("2026-01-01")):
        raise ValueError("allowed: a day without a time, such as 2026-01-01")
    return value


@dataclass(frozen=True, slots=True)
class DatedPrice:
    """The `price` of `per` units from a day on. An empty operation or service means all of them."""

    valid_from: Annotated[date, BeforeValidator(_refuse_time), Field(alias="from")]
    unit: Literal["credit", "character", "second", "minute", "request"]
    price: Annotated[Decimal, Field(ge=0)]
    per: Annotated[Decimal, Field(gt=0)] = Decimal(1)
    operation: Annotated[str, AfterValidator(_check_operation)] = ""
    service: str = ""
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def compute_cost(self, quantities: Mapping[str, Decimal]) -> Decimal | None:
        """Return the cost of some quantities, which are given by unit, with minutes as seconds.

        Return None if `quantities` lacks the unit of this price.
        """
        unit, size = ("second", 60 * self.per) if self.unit == "minute" else (self.unit, self.per)
        return self.price * quantities[unit] / size if unit in quantities else None


def _rank_price(entry: DatedPrice) -> tuple[bool, bool, date]:
    return entry.service != "", entry.operation != "", entry.valid_from


@dataclass(frozen=True)
class Prices:
    """Dated prices in one currency."""

    currency: Annotated[str, Field(min_length=1)]
    entries: Annotated[tuple[DatedPrice, ...], Field(alias="price")] = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def find_price(self, operation: str | None, service: str | None, day: date) -> DatedPrice | None:
        """Return the price of an operation on a service on a day, or None if no price applies.

        A price for one service comes before a price for all services. Then a price for one operation comes
        before a price for all operations. Of the prices that are left, the one with the latest first day
        applies.
        """
        found = [
            entry
            for entry in self.entries
            if entry.valid_from <= day
            and entry.operation in {"", operation}
            and f"{service}/".startswith(entry.service and f"{entry.service}/")
        ]
        return max(found, key=_rank_price, default=None)


def read_prices(service: Any = None) -> Prices:
    """Return the prices in the file of the settings, or else in ``prices.toml`` in the working directory.

    If neither file exists, only the local service has a price, which is zero.

    Parameters
    ----------
    service
        Settings that were given to the call, if any. Their file of prices comes before the configured file.

    Raises
    ------
    SettingsError
        If the file cannot be read, has a value that is not allowed, or has two prices for the same calls.
    """
    named = resolve_for_runs(service)[0].prices
    path = named or Path(PRICES_FILE)
    if named is None and not path.exists():
        return Prices("USD", (DatedPrice(date(2026, 1, 1), "credit", Decimal(0), service="local"),))
    prices = read_toml(path, Prices)
    entries = [(price.valid_from, price.operation, price.service) for price in prices.entries]
    for entry in entries:
        if entries.count(entry) > 1:
            raise SettingsError(f"{path} has two prices from {entry[0]} on for the same calls. Keep one.")
    return prices
