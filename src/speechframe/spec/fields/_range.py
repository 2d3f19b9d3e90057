"""A closed range of numbers with a default. The numeric limits of `speechframe.spec` have this type."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Range(Generic[N]):
    """A range from `low` to `high`, both included, and the default for an absent value (None for no default).

    Examples
    --------
    >>> Range(-50, 50, 0).clamp(70)
    50
    >>> 51 in Range(-50, 50, 0)
    False
    >>> print(Range(0, 5, 1))
    0 to 5
    """

    low: N
    high: N
    default: N | None = None

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def clamp(self, value: N) -> N:
        """Return the nearest value inside the range."""
        return max(self.low, min(self.high, value))

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}" if self.high != inf else f"at least {self.low:g}"
