"""Limits and prices of credits, from the settings, ``budgets.toml`` and ``prices.toml``."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from speechframe.errors import SettingsError, nearest
from speechframe.settings import Settings, default_ledger_folder, for_runs_on
from speechframe.settings.typed import read_toml
from speechframe.spec.billing import MOST_CREDITS

BUDGETS_FILE = "budgets.toml"
PRICES_FILE = "prices.toml"
Period = Literal["day", "week", "month", "year", "total"]
ALERTS = (0.8, 1.0)
_RESERVED = ("run", "max_credits", "max_credits_per_month")
"""Names of other limits in errors and alerts."""
OPERATIONS = ("generate", "translate", "change_voice", "dub", "transcribe")
"""Operations of our verbs. A user's own backend may have another operation."""


# -- budgets over many runs ------------------------------------------------------------


@dataclass(frozen=True)
class BudgetRule:
    """A limit on the spending, in each period, of runs with some tags.

    Attributes
    ----------
    name, max_credits
        Name of the budget, and its credits in each period.
    match
        Tags that a call needs to count. If empty, every call counts.
    period, cycle_day
        ``day``, ``week`` (from Monday), ``month`` (from day `cycle_day` on), ``year`` or ``total``. All in
        UTC.
    alerts
        Shares of `max_credits` at which an alert is sent.
    hard
        Whether a call that would pass the limit is refused. Otherwise it is only counted.
    account
        Service and key fingerprint whose calls count. None for all keys.
    set_in
        Place where the budget was set, in words.
    """

    name: str
    max_credits: Annotated[float, Field(ge=0, le=MOST_CREDITS)]
    match: Mapping[str, str] = field(default_factory=dict)
    period: Period = "month"
    cycle_day: Annotated[int, Field(ge=1, le=28)] = 1
    alerts: tuple[Annotated[float, Field(gt=0)], ...] = ALERTS
    hard: bool = True
    account: tuple[str, str] | None = None
    set_in: str = ""
    # Tags are text, so convert numbers of the file to text.
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    @property
    def id(self) -> str:
        """Name of the stored count. It changes if the budget counts other calls or other periods.

        The name contains the account only as a hash.
        """
        counts = (*sorted(self.match.items()), self.period, self.cycle_day, self.account)
        return f"{self.name} {blake2b(repr(counts).encode(), digest_size=16).hexdigest()}"

    @property
    def millicredits(self) -> int:
        """The limit in thousandths of a credit, rounded down."""
        return math.floor(round(self.max_credits * 1000, 6))

    def matches(self, tags: Mapping[str, Any]) -> bool:
        """Return whether a call with these tags counts."""
        return all(name in tags and str(tags[name]) == value for name, value in self.match.items())

    def start(self, unix_time: float) -> date:
        """Return the first day of the period at a time. The period ``total`` starts at the first date of all.

        Examples
        --------
        >>> rule = BudgetRule("ads", 100, cycle_day=15)
        >>> rule.start(datetime(2026, 3, 14, tzinfo=UTC).timestamp()).isoformat()
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
    """Return the budgets in a file.

    Raises
    ------
    SettingsError
        If the file cannot be read, or has a value that is not allowed.
    """
    taken, found = {*_RESERVED, ""}, []
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
    """The limits for runs from the settings. :func:`spending_rules` makes it.

    Attributes
    ----------
    max_credits_per_run, max_credits_per_month
        Limits in credits. None for no limit.
    run_rule_from, month_rule_from
        Place where the limit was set, in words.
    budgets
        Budgets of the file of budgets.
    require_tags
        Names of tags that every run must have.
    ledger
        Folder for the attempts of every run, or its address.
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

    def over_runs(self, service: str, key_fingerprint: str) -> list[BudgetRule]:
        """Return the budgets over many runs that apply to a key of a service."""
        if self.max_credits_per_month is None:
            return [*self.budgets]
        name, account = "max_credits_per_month", (service, key_fingerprint)
        month = BudgetRule(name, self.max_credits_per_month, account=account, set_in=self.month_rule_from)
        return [month, *self.budgets]

    def of_run(self, max_credits: float | None) -> float | None:
        """Return the credit limit of a run that was started with `max_credits`.

        Raises
        ------
        SettingsError
            If `max_credits` is above the limit of the settings.

        Examples
        --------
        >>> rules = SpendingRules(500.0, "configure()", None, "", Path("ledger"))
        >>> rules.of_run(None), rules.of_run(20)
        (500.0, 20)
        """
        most = self.max_credits_per_run
        if most is None or max_credits is None:
            return most if max_credits is None else max_credits
        if max_credits > most:
            raise SettingsError(
                f"max_credits={max_credits:.15g} is above "
                f"max_credits_per_run={most:.15g} (set in {self.run_rule_from}). Nothing was sent. "
                "Give a smaller max_credits, or have that setting raised."
            )
        return max_credits


def spending_rules(service: Settings) -> SpendingRules:
    """Return the limits for runs on `service`, from given or configured settings.

    Raises
    ------
    SettingsError
        If a file cannot be read, or a setting is not allowed.
    """
    settings, set_in = for_runs_on(service)
    budgets = settings.budgets or Path(BUDGETS_FILE)
    return SpendingRules(
        _limit(settings.max_credits_per_run),
        set_in.get("max_credits_per_run", ""),
        _limit(settings.max_credits_per_month),
        set_in.get("max_credits_per_month", ""),
        settings.ledger or default_ledger_folder(),
        budgets=read_budgets(budgets) if settings.budgets or budgets.exists() else (),
        require_tags=settings.require_tags,
    )


def _limit(credits: float | None) -> float | None:
    return None if credits == math.inf else credits


def cache_rules(service: Settings) -> dict[str, Any]:
    """Return folder and limits of the cache for runs on `service`, as arguments of `open_cache`.

    Raises
    ------
    SettingsError
        If a file cannot be read, or a setting is not allowed.
    """
    settings, _ = for_runs_on(service)
    return {
        "folder": settings.cache,
        "max_gb": settings.cache_max_gb,
        "max_age_days": settings.cache_max_age_days,
    }


# -- prices ----------------------------------------------------------------------------


def _operation(name: str) -> str:
    if name not in OPERATIONS and (guess := nearest(name, OPERATIONS)):
        raise ValueError(f"{guess}allowed: {', '.join(OPERATIONS)}")
    return name


def _day(value: Any) -> Any:
    # Refuse a time, because dropping its offset could change the day.
    if isinstance(value, datetime) or (isinstance(value, str) and len(value) > len("2026-01-01")):
        raise ValueError("allowed: a day without a time, such as 2026-01-01")
    return value


@dataclass(frozen=True, slots=True)
class DatedPrice:
    """A price for a number of units from a day on. An empty operation or service means all of them."""

    valid_from: Annotated[date, BeforeValidator(_day), Field(alias="from")]
    unit: Literal["credit", "character", "second", "minute", "request"]
    price: Annotated[Decimal, Field(ge=0)]
    per: Annotated[Decimal, Field(gt=0)] = Decimal(1)
    operation: Annotated[str, AfterValidator(_operation)] = ""
    service: str = ""
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def amount(self, quantities: Mapping[str, Decimal]) -> Decimal | None:
        """Return the cost of quantities by unit (minutes as seconds). None without a quantity in the unit."""
        unit, size = ("second", 60 * self.per) if self.unit == "minute" else (self.unit, self.per)
        return self.price * quantities[unit] / size if unit in quantities else None


def _specificity(entry: DatedPrice) -> tuple[bool, bool, date]:
    return entry.service != "", entry.operation != "", entry.valid_from


@dataclass(frozen=True)
class Prices:
    """Dated prices in one currency."""

    currency: Annotated[str, Field(min_length=1)]
    entries: Annotated[tuple[DatedPrice, ...], Field(alias="price")] = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def of(self, operation: str | None, service: str | None, day: date) -> DatedPrice | None:
        """Return the price of an operation of a service on a day. None if no price applies.

        A price for one service or operation comes before a price for all. Among equal prices the newest
        applies.
        """
        found = [
            entry
            for entry in self.entries
            if entry.valid_from <= day
            and entry.operation in {"", operation}
            and f"{service}/".startswith(entry.service and f"{entry.service}/")
        ]
        return max(found, key=_specificity, default=None)


def prices_in_force(service: Any = None) -> Prices:
    """Return the prices in the configured file, or in ``prices.toml`` in the working directory.

    Without either file, only the local service has a price: zero.

    Parameters
    ----------
    service
        Settings given to the call. Their file of prices comes before the configured file.

    Raises
    ------
    SettingsError
        If the file cannot be read, or has a value that is not allowed.
    """
    named = for_runs_on(service)[0].prices
    path = named or Path(PRICES_FILE)
    if named is None and not path.exists():
        return Prices("USD", (DatedPrice(date(2026, 1, 1), "credit", Decimal(0), service="local"),))
    prices = read_toml(path, Prices)
    places = [(price.valid_from, price.operation, price.service) for price in prices.entries]
    for place in places:
        if places.count(place) > 1:
            raise SettingsError(f"{path} has two prices from {place[0]} on for the same calls. Keep one.")
    return prices
