"""Hold figures and their targets, and format the table and its remarks."""

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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

TABLE_HEADER = "| | what | figure (of all rounds) | target | met | reference |\n|---|---|---|---|---|---|"

BUSY_SHARE = 0.98
"""Share of a core from which on a service limits the pace of its callers."""


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
    """One line of the table, with the measure, its value in each round, and its reference."""

    what: str
    rounds: Sequence[float]
    unit: str
    target: Target | None
    reference: str

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds)

    @property
    def is_met(self) -> bool:
        """Whether the rounded value meets its target. A figure without a target meets it."""
        if self.target is None:
            return True
        digits = 2 if self.unit == "x" else 3 if self.unit == "share" else 1
        value = round(self.value, digits)
        return value <= self.target.bound if self.target.sign == "<=" else value >= self.target.bound

    def format_line(self, row: str) -> str:
        """Return the line of the table in the order of :data:`TABLE_HEADER`. `row` is the name of the row."""
        target, met = "", ""
        if self.target is not None:
            target = f"{self.target.sign} {_format_value(self.target.bound, self.unit)}"
            met = "yes" if self.is_met else "NO"
        value = _format_value(self.value, self.unit)
        ends = [_format_value(end, self.unit) for end in (min(self.rounds), max(self.rounds))]
        if ends[0] != ends[1]:
            value += f" ({' - '.join(ends)})"
        return f"| {row} | {self.what} | {value} | {target} | {met} | {self.reference} |"


def _format_value(value: float, unit: str) -> str:
    return _VALUE_FORMATS[unit].format(value)


def describe_machine() -> str:
    """Return the machine, the system and the load on one line."""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load {os.getloadavg()[0]:.2f}"
    )
