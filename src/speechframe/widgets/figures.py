"""Hold the figures of a run's dashboard at one moment, and format them as text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from speechframe.batch.live import RUNNING, STOPPED
from speechframe.store.schema import CACHED, CHARGED_UNKNOWN, DONE, FAILED, SUSPECT, StopReason

USER_STOP_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        StopReason.STOPPED: "somebody stopped it; calls in flight have finished",
        StopReason.INTERRUPTED: "it was interrupted; finished rows are kept",
    }
)
"""Texts for stops by users, by reason. For other reasons, the run has an error message with advice."""

_COUNTER_TEXTS = (
    ("done", "done", ""),
    ("cached", "from the cache", ""),
    ("suspect", "suspect", "warn"),
    ("failed", "failed", "bad"),
    ("charged_unknown", "without an answer", "bad"),
    ("retries", "retries", ""),
)
"""Name of each counter, its text on the page, and the tone of its colour."""

_AMOUNT_TEXTS = {"balance": "Balance of the key", "budget": "Budget of the run", "price": "Still to be spent"}
"""Text for each kind of the amount left."""

_STOP_TEXTS = {"balance": "with an empty key", "budget": "at max_credits"}
"""Text for the end of a run when the amount left reaches zero, by kind of the amount."""

_MINUTE_S = 60
_NEXT_UNIT_FROM = 90
"""From this number on, seconds are shown as minutes, and minutes as hours and minutes."""

MAX_POINTS = 200
"""Largest number of points of a chart's line."""

COUNTED_OUTCOMES = (DONE, CACHED, SUSPECT, FAILED, CHARGED_UNKNOWN)
"""Outcomes of a call. Each has a counter."""


@dataclass(frozen=True)
class BurnDown:
    """The credits or characters left over time, for the chart of a dashboard.

    Parameters
    ----------
    unit
        ``characters`` for the key's balance, ``credits`` for the run's budget or price.
    of
        Kind of the amount: ``balance``, ``budget`` or ``price``.
    points
        Pairs of seconds since the start and amount left.
    forecast
        Two points that continue the line at the current rate. The second point is the end of the run, or the
        time at which the amount left reaches zero. Empty if the run has ended.
    stops_at
        The call at which the amount left reaches zero, such as ``call 37 of 80``. Empty if it suffices.
    """

    unit: str = "credits"
    of: str = "price"
    points: tuple[tuple[float, float], ...] = ()
    forecast: tuple[tuple[float, float], ...] = ()
    stops_at: str = ""

    @property
    def words(self) -> str:
        """The line as text, for users who cannot see it."""
        if not self.points:
            return "No credits have been spent yet."
        (_, first), (at, last) = self.points[0], self.points[-1]
        now = (
            f"{_AMOUNT_TEXTS[self.of]}: {_format_number(first)} {self.unit} at the start, "
            f"{_format_number(last)} after {format_duration(at)}"
        )
        if not self.forecast:
            return f"{now}."
        end, then = self.forecast[1]
        left = format_duration(end - at)
        if not self.stops_at:
            return f"{now}; at this rate {_format_number(then)} at the end, in about {left}."
        stop = f"the run stops {_STOP_TEXTS[self.of]} in about {left}"
        return f"{now}; at this rate {stop}, at about {self.stops_at}."

    def to_page(self) -> dict[str, Any]:
        """Return the amounts as plain values for the page."""
        return {
            "unit": self.unit,
            "of": self.of,
            "words": self.words,
            "points": [list(point) for point in self.points],
            "forecast": [list(point) for point in self.forecast],
        }


@dataclass(frozen=True)
class RunFigures:
    """The figures of a run at one moment.

    Parameters
    ----------
    status, because
        Values of :attr:`Run.status` and :attr:`Run.stopped_because`.
    words
        Reason for an early end, as text. Empty without an early end.
    is_here
        Whether this process runs the run, or ran it last.
    counts
        Counters, with the keys of ``run.progress.to_dict()``.
    failed_by, retried_by
        Number of failures and retries, by error code.
    unit
        What the counters count, such as ``call``.
    burn
        The amount left over time.
    """

    status: str
    because: str | None
    words: str
    is_here: bool
    counts: Mapping[str, Any]
    failed_by: Mapping[str, int] = field(default_factory=dict)
    retried_by: Mapping[str, int] = field(default_factory=dict)
    unit: str = "call"
    burn: BurnDown = field(default_factory=BurnDown)

    @property
    def is_live(self) -> bool:
        """Whether the run is still running."""
        return self.status == RUNNING

    @property
    def ended(self) -> int:
        """Number of calls with an outcome, such as done or failed."""
        return sum(self.counts[name] for name in COUNTED_OUTCOMES)

    @property
    def so_far(self) -> str:
        """Number of ended calls and of all calls, as text."""
        total = self.counts["total"]
        return f"{self.ended:,} of {_format_count(total, self.unit)}"

    @property
    def pace(self) -> str:
        """Progress, rate and spending as one line of text."""
        counts = self.counts
        parts = [self.so_far]
        if counts["rate"]:
            parts.append(f"{_format_number(counts['rate'])} a second")
        if counts["eta_s"] is not None and self.is_live:
            parts.append(f"about {format_duration(counts['eta_s'])} to go")
        budget_text = "" if counts.get("budget") is None else f" of {_format_number(counts['budget'])}"
        parts.append(f"{_format_number(counts['credits'])}{budget_text} credits")
        if counts.get("money"):
            parts.append(counts["money"])
        # With a budget, the balance would make the line too long for a narrow notebook.
        if counts["balance"] is not None and not budget_text:
            parts.append(f"{_format_count(counts['balance'], 'character')} left")
        if counts["audio_seconds"]:
            parts.append(f"{format_duration(counts['audio_seconds'])} of audio")
        return " · ".join(parts)

    def to_page(self) -> dict[str, Any]:
        """Return the figures as plain values for the page."""
        return {
            **self.counts,
            "status": self.status,
            "because": self.because,
            "words": self.words,
            "alarms": self.because is not None and self.because not in USER_STOP_TEXTS,
            "failed_by": dict(self.failed_by),
            "retried_by": dict(self.retried_by),
            "ended": self.ended,
            "so_far": self.so_far,
            "pace": self.pace,
            "tallies": [
                [name, f"{self.counts[name]:,} {text}", tone]
                for name, text, tone in _COUNTER_TEXTS
                if self.counts[name] or name == DONE
            ],
            "can_stop": self.is_live and self.is_here,
            "can_resume": self.status in {STOPPED, "planned"},
        }


def format_duration(seconds: float) -> str:
    """Return a duration as text, in seconds, minutes or hours.

    Examples
    --------
    >>> format_duration(0.2), format_duration(89), format_duration(600), format_duration(9000)
    ('1 s', '89 s', '10 min', '2 h 30 min')
    """
    if seconds < _NEXT_UNIT_FROM:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / _MINUTE_S)
    return f"{minutes} min" if minutes < _NEXT_UNIT_FROM else f"{minutes // 60} h {minutes % 60} min"


def _format_number(value: float) -> str:
    """Return a number as text, without zeros at the end of its decimals."""
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def _format_count(number: float, noun: str) -> str:
    return f"{_format_number(number)} {noun}{'' if number == 1 else 's'}"
