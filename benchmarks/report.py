"""Hold figures and their targets, and format the table and its remarks."""

import importlib.metadata
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_VALUE_FORMATS = {
    "x": "{:.2f}x",
    "share": "{:.3f}",
    "%": "{:.1f} %",
    "MB": "{:.0f} MB",
    "us": "{:.1f} us",
    "s": "{:.2f} s",
    "count": "{:.0f}",
}
"""Formats of values in the table, by unit."""

_LIBRARIES = ("speechframe", "aiohttp", "pandas", "pyarrow", "pydantic", "tenacity", "orjson", "pybase64")


@dataclass(frozen=True)
class Target:
    """The bound of a figure, which is a maximum (``<=``) or a minimum (``>=``)."""

    sign: str
    bound: float


def at_most(bound: float) -> Target:
    """Return a target with a maximum."""
    return Target("<=", bound)


def at_least(bound: float) -> Target:
    """Return a target with a minimum."""
    return Target(">=", bound)


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    `id` is the name of the row, such as U15, and `what` describes the figure. `value` is the median of the rounds, or
    None without rounds. `spread` is the minimum and the maximum of the rounds. `reference` describes what the figure
    is compared with. `service_share` is the share of one core that the service used in its busiest round. Near 1, the
    service limits the pace of the callers.
    """

    id: str
    what: str
    value: float | None
    unit: str
    target: Target | None
    reference: str
    spread: tuple[float, float] | None = None
    service_share: float = 0.0

    @classmethod
    def from_rounds(
        cls,
        id: str,
        what: str,
        rounds: Sequence[float],
        unit: str,
        target: Target | None,
        reference: str,
        service_shares: Iterable[float] = (),
    ) -> Self:
        """Return the figure with the values of all rounds. Without rounds its value is None."""
        value, spread = (statistics.median(rounds), (min(rounds), max(rounds))) if rounds else (None, None)
        return cls(id, what, value, unit, target, reference, spread, max(service_shares, default=0.0))

    @property
    def is_met(self) -> bool:
        """Whether the rounded value meets its target. A figure without a target or a value meets it."""
        if self.target is None or self.value is None:
            return True
        digits = 2 if self.unit == "x" else 3 if self.unit == "share" else 1
        value = round(self.value, digits)
        return value <= self.target.bound if self.target.sign == "<=" else value >= self.target.bound

    def format_cells(self) -> list[str]:
        """Return the cells of the figure's line in the table, in the order of :data:`TABLE_HEADER`."""
        target, met = "", ""
        if self.target is not None:
            target = f"{self.target.sign} {_format_value(self.target.bound, self.unit)}"
            met = "" if self.value is None else "yes" if self.is_met else "NO"
        value = "not there" if self.value is None else _format_value(self.value, self.unit)
        if self.spread is not None and len(set(self.spread)) > 1:
            value += f" ({' - '.join(_format_value(end, self.unit) for end in self.spread)})"
        service = f"{100 * self.service_share:.0f} %" if self.service_share else ""
        return [self.id, self.what, value, target, met, self.reference, service]

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id, "what": self.what, "value": self.value, "unit": self.unit,
            "target": None if self.target is None else f"{self.target.sign} {self.target.bound}",
            "met": self.is_met, "reference": self.reference, "spread": self.spread,
            "service_share": self.service_share,
        }  # fmt: skip


def _format_value(value: float, unit: str) -> str:
    return _VALUE_FORMATS[unit].format(value)


TABLE_HEADER = "| | what | figure (of all rounds) | target | met | reference | service's CPU |\n|---|---|---|---|---|---|---|"


def format_table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


BUSY_SHARE = 0.98
"""Share of a core from which on a service limits the pace of its callers."""


def list_remarks(figures: Sequence[Figure], load_before: float) -> list[str]:
    """Return remarks on a busy machine and on services that set the pace, which make figures invalid."""
    found = []
    if load_before > 0.5:
        found.append(
            f"The machine was busy. The load was {load_before:.1f} on {os.cpu_count()} cores at the start. "
            "Ratios of CPU are valid, but figures of time, pace and refusals are not."
        )
    for figure in figures:
        if figure.service_share > BUSY_SHARE:
            share = f"{100 * figure.service_share:.0f} %"
            found.append(f"{figure.id} ({figure.what}): the service used {share} of a core and set the pace.")
    return found


def describe_machine() -> str:
    """Return the machine, the system and the versions of libraries on one line."""
    fields = (line.partition(":") for line in Path("/proc/meminfo").read_text("ascii").splitlines())
    memory_kb = next(int(value.split()[0]) for name, _, value in fields if name == "MemTotal")
    versions = ", ".join(f"{name} {_get_version(name)}" for name in _LIBRARIES)
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {memory_kb / 2**20:.0f} GB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}; {versions}"
    )


def _get_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
