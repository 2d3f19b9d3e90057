"""A closed range of numbers with its default, the shape of every numeric limit in the room."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Range(Generic[N]):
    """A closed range `low..high` and the value that counts when none is given.

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
