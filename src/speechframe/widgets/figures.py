"""What a run's dashboard shows: the figures of one moment, and the same in words."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from speechframe.batch.live import RUNNING, STOPPED
from speechframe.store.schema import CACHED, CHARGED_UNKNOWN, DONE, FAILED, SUSPECT, StopReason

__all__ = ["BY_HAND", "COUNTED", "POINTS", "Burn", "Figures", "to_go"]

BY_HAND: Mapping[str, str] = MappingProxyType(
    {
        StopReason.STOPPED: "it was told to stop; calls that were in flight have finished",
        StopReason.INTERRUPTED: "it was interrupted; what was made is kept",
    }
)
"""Reasons to stop that nobody need be alarmed by, in words; others have an error that says what to do."""

_TALLIES = (
    ("done", "done", ""),
    ("cached", "from the cache", ""),
    ("suspect", "suspect", "warn"),
    ("failed", "failed", "bad"),
    ("charged_unknown", "without an answer", "bad"),
    ("retries", "retries", ""),
)
"""Counters as a page names them, and whether they are good news."""

_OF = {"balance": "Balance of the key", "budget": "Budget of the run", "price": "Still to be spent"}
_STOPS = {"balance": "with an empty key", "budget": "at max_credits"}
_A_MINUTE_S = 60
_SHORT = 90
"""Up to so many seconds, or minutes, they are not yet minutes, or hours."""

POINTS = 200
"""Of a line at most: a page has no room for more."""

COUNTED = (DONE, CACHED, SUSPECT, FAILED, CHARGED_UNKNOWN)
"""What becomes of a call, as the counters name it."""


@dataclass(frozen=True)
class Burn:
    """What is left over time.

    Parameters
    ----------
    unit
        ``characters`` of the key's balance; ``credits`` of the run's budget, or of its own price.
    of
        What the figures are of: ``balance``, ``budget`` or ``price``.
    points
        Seconds since the run began, and what was left.
    forecast
        Where the line goes on at this rate: two points, none where nothing is to come. It ends at zero.
    stops_at
        The call at which the forecast reaches zero, such as ``call 37 of 80``; empty where it does not.
    """

    unit: str = "credits"
    of: str = "price"
    points: tuple[tuple[float, float], ...] = ()
    forecast: tuple[tuple[float, float], ...] = ()
    stops_at: str = ""

    @property
    def words(self) -> str:
        """What the line shows, for who cannot see it."""
        if not self.points:
            return "Nothing was spent yet."
        (_, first), (at, last) = self.points[0], self.points[-1]
        now = f"{_OF[self.of]}: {_short(first)} {self.unit} at the start, {_short(last)} after {to_go(at)}"
        if not self.forecast:
            return f"{now}."
        end, then = self.forecast[1]
        if not self.stops_at:
            return f"{now}; at this rate {_short(then)} at the end, in about {to_go(end - at)}."
        stop = f"the run stops {_STOPS[self.of]} in about {to_go(end - at)}"
        return f"{now}; at this rate {stop}, at about {self.stops_at}."

    def to_page(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "unit": self.unit,
            "of": self.of,
            "words": self.words,
            "points": [list(point) for point in self.points],
            "forecast": [list(point) for point in self.forecast],
        }


@dataclass(frozen=True)
class Figures:
    """A run at one moment.

    Parameters
    ----------
    status, because
        As :attr:`Run.status` and :attr:`Run.stopped_because` say.
    words
        Why it ended early, in words.
    is_here
        It is made, or was made last, in this process.
    counts
        As ``run.progress.to_dict()`` has them.
    failed_by, retried_by
        Failures and retries by error code.
    burn
        What is left over time.
    """

    status: str
    because: str | None
    words: str
    is_here: bool
    counts: Mapping[str, Any]
    failed_by: Mapping[str, int] = field(default_factory=dict)
    retried_by: Mapping[str, int] = field(default_factory=dict)
    unit: str = "call"
    burn: Burn = field(default_factory=Burn)

    @property
    def is_live(self) -> bool:
        """Whether more is to come."""
        return self.status == RUNNING

    @property
    def ended(self) -> int:
        """How many calls have an outcome."""
        return sum(self.counts[name] for name in COUNTED)

    @property
    def so_far(self) -> str:
        """How far it is."""
        total = self.counts["total"]
        return f"{self.ended:,} of {_counted(total, self.unit)}"

    @property
    def pace(self) -> str:
        """How far and how fast it is, and what was spent, in a line."""
        counts = self.counts
        parts = [self.so_far]
        if counts["rate"]:
            parts.append(f"{_short(counts['rate'])} a second")
        if counts["eta_s"] is not None and self.is_live:
            parts.append(f"about {to_go(counts['eta_s'])} to go")
        of = "" if counts.get("budget") is None else f" of {_short(counts['budget'])}"
        parts.append(f"{_short(counts['credits'])}{of} credits")
        if counts.get("money"):
            parts.append(counts["money"])
        if counts["balance"] is not None:
            parts.append(f"{_counted(counts['balance'], 'character')} left")
        if counts["audio_seconds"]:
            parts.append(f"{to_go(counts['audio_seconds'])} of audio")
        return " · ".join(parts)

    def to_page(self) -> dict[str, Any]:
        """Return what goes to the page, as plain values."""
        return {
            **self.counts,
            "status": self.status,
            "because": self.because,
            "words": self.words,
            "alarms": self.because is not None and self.because not in BY_HAND,
            "failed_by": dict(self.failed_by),
            "retried_by": dict(self.retried_by),
            "ended": self.ended,
            "so_far": self.so_far,
            "pace": self.pace,
            "tallies": [
                [name, f"{self.counts[name]:,} {text}", tone]
                for name, text, tone in _TALLIES
                if self.counts[name] or name == DONE
            ],
            "can_stop": self.is_live and self.is_here,
            "can_resume": self.status in {STOPPED, "planned"},
        }


def to_go(seconds: float) -> str:
    """Return how long something takes, as people say it.

    Examples
    --------
    >>> to_go(0.2), to_go(89), to_go(600), to_go(9000)
    ('1 s', '89 s', '10 min', '2 h 30 min')
    """
    if seconds < _SHORT:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / _A_MINUTE_S)
    return f"{minutes} min" if minutes < _SHORT else f"{minutes // 60} h {minutes % 60} min"


def _short(value: float) -> str:
    """Return a number with no more digits than it needs."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _counted(number: float, noun: str) -> str:
    return f"{_short(number)} {noun}{'' if number == 1 else 's'}"
