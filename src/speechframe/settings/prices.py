"""What credits cost in money: ``prices.toml``, with a date and a unit for each price."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from speechframe.errors import SettingsError, nearest
from speechframe.settings import read
from speechframe.settings.typed import toml_tables

FILE_NAME = "prices.toml"
UNITS = ("credit", "character", "second", "minute", "request")
OPERATIONS = ("generate", "translate", "change_voice")
"""Of our verbs; a run of a backend of one's own may have another."""
_NAMES = ("from", "unit", "operation", "service", "price", "per")


@dataclass(frozen=True, slots=True)
class Price:
    """What a number of units costs from a day on, of one operation and service or of all (empty)."""

    valid_from: date
    unit: str
    price: Decimal
    operation: str = ""
    service: str = ""

    def amount(self, quantities: Mapping[str, Decimal]) -> Decimal:
        """Return what quantities cost, by unit; minutes are found as seconds."""
        if self.unit == "minute":
            return self.price * quantities["second"] / 60
        return self.price * quantities[self.unit]


def _specificity(entry: Price) -> tuple[bool, bool, date]:
    return entry.service != "", entry.operation != "", entry.valid_from


@dataclass(frozen=True)
class Prices:
    """Dated prices in one currency."""

    currency: str | None = None
    entries: tuple[Price, ...] = ()

    def of(self, operation: str | None, service: str | None, day: date) -> Price | None:
        """Return the price of an operation of a service on a day; None where there is none.

        An entry for the service or the operation beats one for all; of equal ones the newest holds.
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
    """Return the prices of the settings' file, or of ``prices.toml`` here; else those of the local service.

    The local service costs no money.

    Parameters
    ----------
    service
        Settings that were handed in; the file they name goes before that of the settings in force.

    Raises
    ------
    SettingsError
        When the file cannot be read, or says what is not allowed.
    """
    named = getattr(service, "prices", None) or read().prices
    path = Path(FILE_NAME) if named is None else named
    if named is None and not path.exists():
        return Prices("USD", (Price(date(2026, 1, 1), "credit", Decimal(0), service="local"),))
    return read_prices(path)


def read_prices(path: Path) -> Prices:
    """Return the prices of a file.

    Raises
    ------
    SettingsError
        When it cannot be read, or says what is not allowed.
    """
    content, tables = toml_tables(path, "price", _NAMES, beside=("currency",), parse_float=Decimal)
    currency = content.get("currency")
    if not isinstance(currency, str) or not currency:
        raise SettingsError(f'{path} says no currency; it begins with one, as currency = "USD"')
    found = tuple(_price(where, entry) for where, entry in tables)
    places = [(price.valid_from, price.operation, price.service) for price in found]
    for place in places:
        if places.count(place) > 1:
            raise SettingsError(f"{path} has two prices from {place[0]} on for the same calls; keep one")
    return Prices(currency, found)


def _price(where: str, entry: Mapping[str, Any]) -> Price:
    valid_from, unit = entry.get("from"), entry.get("unit")
    if type(valid_from) is not date:
        raise SettingsError(f"{where}: from={valid_from!r}; allowed: a date, 2026-01-01")
    if unit not in UNITS:
        raise SettingsError(f"{where}: unit={unit!r}; allowed: {', '.join(UNITS)}")
    price, per = (_positive(where, name, entry.get(name, 1)) for name in ("price", "per"))
    if "price" not in entry or not per:
        raise SettingsError(f"{where} needs a price, and a per that is not 0")
    operation, service = (entry.get(name, "") for name in ("operation", "service"))
    if not isinstance(operation, str) or not isinstance(service, str):
        raise SettingsError(f"{where}: operation and service are texts")
    if guess := "" if operation in OPERATIONS else nearest(operation, OPERATIONS):
        raise SettingsError(f"{where}: operation={operation!r}; {guess}allowed: {', '.join(OPERATIONS)}")
    return Price(valid_from, unit, price / per, operation, service)


def _positive(where: str, name: str, value: Any) -> Decimal:
    try:
        # True is a number to Python.
        is_number = isinstance(value, (int, str, Decimal)) and not isinstance(value, bool)
        found = Decimal(value) if is_number else Decimal("nan")
    except InvalidOperation:
        found = Decimal("nan")
    if not found.is_finite() or found < 0:
        raise SettingsError(f"{where}: {name}={value!r}; allowed: a number, 0 or more")
    return found
