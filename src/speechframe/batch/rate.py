"""Pacing for a service that limits calls a second, not calls in flight.

Such a limit refuses whatever is in flight, so a learned cap falls again and
again before anything passes. When that repeats, calls are spaced at the rate
that was answered, a little faster every second without a refusal, slower after
one.
"""

from collections import deque
from dataclasses import dataclass, field

FALLS = 3
"""Falls of the learned cap within :data:`FALLS_WITHIN_S` that tell a rate limit from a changed cap."""
FALLS_WITHIN_S = 15.0

_SEEN_S = 3.0
_SLOWER, _SLOWER_AFTER_S = 0.97, 0.5
_FASTER, _FASTER_AFTER_S = 1.02, 1.0
_WRONG = 0.4


@dataclass
class Rate:
    """Calls a second, as far as refusals tell; times are seconds of one clock.

    Attributes
    ----------
    per_second
        Calls a second that are begun; None while nothing says that there is such a limit.

    Examples
    --------
    >>> rate = Rate()
    >>> for tenth in range(30):
    ...     rate.passed(tenth / 10)
    >>> for _ in range(FALLS):
    ...     rate.fell(3.0)
    >>> rate.per_second is None, rate.wait_s(3.0), round(rate.per_second)
    (False, 0.0, 10)
    """

    per_second: float | None = None
    _first: float = 0.0
    _passes: deque[float] = field(default_factory=deque)
    _falls: deque[float] = field(default_factory=deque)
    _next: float = 0.0
    _changed: float = 0.0

    def passed(self, now: float) -> None:
        """Note an answer that is no refusal."""
        self._passes.append(now)
        while self._passes[0] < now - _SEEN_S:
            self._passes.popleft()
        if self.per_second is not None and now - self._changed >= _FASTER_AFTER_S:
            self._changed = now
            self.per_second *= _FASTER

    def fell(self, now: float) -> None:
        """Note that the learned cap fell again before anything passed."""
        self._falls.append(now)
        while self._falls[0] < now - FALLS_WITHIN_S:
            self._falls.popleft()
        if self.per_second is None and len(self._falls) >= FALLS and self._passes:
            self._first = self.per_second = self._seen_rate(now)
            self._next = self._changed = now

    def refused(self, now: float) -> None:
        """Note a refusal while calls are paced."""
        if self.per_second is None or now - self._changed < _SLOWER_AFTER_S:
            return
        self._changed = now
        self.per_second = _SLOWER * min(self.per_second, self._seen_rate(now))
        if self.per_second < _WRONG * self._first:
            # Spacing does not help, so it was no rate limit.
            self.per_second = None
            self._falls.clear()

    def _seen_rate(self, now: float) -> float:
        return len(self._passes) / max(now - self._passes[0], _SLOWER_AFTER_S) if self._passes else 0.0

    def wait_s(self, now: float) -> float:
        """Return seconds until the next call may begin."""
        return 0.0 if self.per_second is None else max(0.0, self._next - now)

    def begin(self, now: float) -> None:
        """Note that a call begins."""
        if self.per_second is not None:
            # Time that was not used is not made up for by a burst.
            self._next = max(self._next, now - 1 / self.per_second) + 1 / self.per_second
