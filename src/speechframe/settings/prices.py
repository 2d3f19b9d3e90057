"""What credits cost in money: ``prices.toml``, with a date and a unit for each price."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from speechframe.errors import SettingsError, nearest
from speechframe.settings import read
from speechframe.settings.typed import read_toml

FILE_NAME = "prices.toml"
OPERATIONS = ("generate", "translate", "change_voice", "dub")
"""Of our verbs; a run of a backend of one's own may have another."""


def _operation(name: str) -> str:
    if name not in OPERATIONS and (guess := nearest(name, OPERATIONS)):
        raise ValueError(f"{guess}allowed: {', '.join(OPERATIONS)}")
    return name


@dataclass(frozen=True, slots=True)
class Price:
    """What a number of units costs from a day on, of one operation and service or of all (empty)."""

    valid_from: Annotated[date, Field(alias="from")]
    unit: Literal["credit", "character", "second", "minute", "request"]
    price: Annotated[Decimal, Field(ge=0)]
    per: Annotated[Decimal, Field(gt=0)] = Decimal(1)
    operation: Annotated[str, AfterValidator(_operation)] = ""
    service: str = ""
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def amount(self, quantities: Mapping[str, Decimal]) -> Decimal | None:
        """Return what quantities cost, by unit (minutes as seconds); None where the price has another one."""
        unit, size = ("second", 60 * self.per) if self.unit == "minute" else (self.unit, self.per)
        return self.price * quantities[unit] / size if unit in quantities else None


def _specificity(entry: Price) -> tuple[bool, bool, date]:
    return entry.service != "", entry.operation != "", entry.valid_from


@dataclass(frozen=True)
class Prices:
    """Dated prices in one currency."""

    currency: Annotated[str, Field(min_length=1)]
    entries: Annotated[tuple[Price, ...], Field(alias="price")] = ()
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

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
    prices = read_toml(path, Prices)
    places = [(price.valid_from, price.operation, price.service) for price in prices.entries]
    for place in places:
        if places.count(place) > 1:
            raise SettingsError(f"{path} has two prices from {place[0]} on for the same calls; keep one")
    return prices
