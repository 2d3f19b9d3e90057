"""Count the calls and bills of a faulty service.

`Counters` and `InFlightMeter` count while the service runs. `Books` is a copy of the counts at one moment.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

_EARLY_TOLERANCE_S = 0.001
"""Tolerance in seconds. Client and service use two clocks, whose readings differ by less than this."""


class Billed(NamedTuple):
    """Number of times that a text was billed, and the sum of its billed characters."""

    times: int
    characters: int


@dataclass(frozen=True)
class Books:
    """The counts of a :class:`~speechframe.testing.FaultyService` at one moment.

    Bills are exact even after kills and restarts. All other counts begin at the last start of the service.

    Attributes
    ----------
    requests
        Number of calls for speech (generated or streamed) and translations, with refused and failed calls.
    answered
        Number of successful answers that were sent completely.
    statuses
        Number of answers by status. Resets, hangs and truncated answers have no status.
    faults
        Number of planned faults, by the name of the step (a fault or an error status).
    refused
        Number of 429 answers because of the cap or the rate. A 429 from `faults` or `scripts` is not counted.
    repeats
        Number of calls that cost nothing, because a call with the same ``Idempotency-Key`` was billed before.
    early_retries
        Number of calls that arrived before the ``Retry-After`` of an earlier refusal was over. The refusal
        was for the same text and region.
    billed
        Number of bills and of billed characters (:class:`Billed`), by the tag of the text.
    billed_characters
        Sum of the billed characters of all texts and keys.
    remaining
        Characters left for each key, by key fingerprint. Empty without a quota.
    in_flight, most_in_flight
        Number of calls in flight now, and the largest number so far.
    most_in_flight_of
        Largest number of calls in flight of any one key, by region.
    utilisation
        Mean over time of ``min(in flight, cap) / cap`` by region, averaged over the keys. Regions without a
        cap are left out.
    started_at, last_at
        Unix time in seconds of the first call and of the last answer. None before the first call or answer.
    """

    requests: int = 0
    answered: int = 0
    statuses: Mapping[int, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    repeats: int = 0
    early_retries: int = 0
    billed: Mapping[int, Billed] = field(default_factory=dict)
    billed_characters: int = 0
    remaining: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0
    most_in_flight: int = 0
    most_in_flight_of: Mapping[str, int] = field(default_factory=dict)
    utilisation: Mapping[str, float] = field(default_factory=dict)
    started_at: float | None = None
    last_at: float | None = None

    @property
    def duplicates(self) -> dict[int, int]:
        """Number of bills for each tag with more than one bill. All takes of a text have the same tag."""
        return {tag: billed.times for tag, billed in self.billed.items() if billed.times > 1}

    def to_json(self) -> dict[str, Any]:
        """Return the books as a dictionary that the `json` module can encode."""
        return asdict(self) | {"billed": {str(tag): billed for tag, billed in self.billed.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return books from the decoded JSON of :meth:`to_json`. Keys that JSON made text become numbers."""
        return cls(
            **value
            | {
                "statuses": {int(status): times for status, times in value["statuses"].items()},
                "billed": {int(tag): Billed(*billed) for tag, billed in value["billed"].items()},
            }
        )


class InFlightMeter:
    """Meter of the calls in flight of one key in one region, now and over time.

    All times are monotonic times in seconds.

    Examples
    --------
    >>> meter = InFlightMeter(cap=2)
    >>> meter.enter(10.0)
    >>> meter.leave(11.0)
    >>> meter.utilisation, meter.highest
    (0.5, 1)
    """

    __slots__ = ("_area", "_at_s", "_timed_s", "cap", "highest", "in_flight")

    def __init__(self, cap: int | None) -> None:
        self.cap = cap
        self.in_flight = 0
        self.highest = 0
        self._area = 0.0
        self._timed_s = 0.0
        self._at_s: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether the cap is reached."""
        return self.cap is not None and self.in_flight >= self.cap

    @property
    def utilisation(self) -> float | None:
        """Mean share of the cap that was in use, until the last change. None if no time with a cap passed."""
        return self._area / self._timed_s if self._timed_s else None

    def enter(self, now_s: float) -> None:
        """Add one call in flight."""
        self._advance(now_s)
        self.in_flight += 1
        self.highest = max(self.highest, self.in_flight)

    def leave(self, now_s: float) -> None:
        """Remove one call in flight."""
        self._advance(now_s)
        self.in_flight -= 1

    def set_cap(self, cap: int | None, now_s: float) -> None:
        """Change the cap. If calls are in flight, the time until now counts with the old cap."""
        # Idle time counts only if another call follows. Then `enter` counts it, with the new cap.
        if self.in_flight:
            self._advance(now_s)
        self.cap = cap

    def _advance(self, now_s: float) -> None:
        if self._at_s is not None and self.cap is not None:
            passed_s = now_s - self._at_s
            self._timed_s += passed_s
            self._area += passed_s * min(self.in_flight, self.cap) / self.cap
        self._at_s = now_s


class Counters:
    """Counters of a running service. Memory grows with the number of texts, not with the number of calls."""

    def __init__(self) -> None:
        self.requests = 0
        self.answered = 0
        self.refused = 0
        self.repeats = 0
        self.early_retries = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.billed_characters = 0
        self.statuses: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()
        self.started_at: float | None = None
        self.last_at: float | None = None
        self._billed: dict[int, list[int]] = {}
        self._due_s: dict[tuple[str, int], float] = {}

    def count_call(self) -> bool:
        """Count a new call. Return True if it is the first call."""
        self.requests += 1
        if self.started_at is not None:
            return False
        self.started_at = time.time()
        return True

    def count_retry(self, what: tuple[str, int], now_s: float) -> None:
        """Count an early retry if the waiting time of a text in a region is not over.

        `what` is the region and the tag of the text.
        """
        due_s = self._due_s.pop(what, None) if self._due_s else None
        if due_s is not None and now_s < due_s - _EARLY_TOLERANCE_S:
            self.early_retries += 1
            self._due_s[what] = due_s

    def set_wait(self, what: tuple[str, int], until_s: float) -> None:
        """Record that a text must not be sent to a region before `until_s`, a monotonic time.

        `what` is the region and the tag of the text.
        """
        self._due_s[what] = until_s

    def add_in_flight(self) -> None:
        """Add one call in flight."""
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

    def count_answer(self, status: int) -> None:
        """Count an answer by its status, and record the time."""
        self.statuses[status] += 1
        self.last_at = time.time()

    def count_bill(self, tag: int, characters: int) -> None:
        """Count the bill of a text."""
        billed = self._billed.setdefault(tag, [0, 0])
        billed[0] += 1
        billed[1] += characters
        self.billed_characters += characters

    def make_books(self, meters: Mapping[str, list[InFlightMeter]], remaining: Mapping[str, int]) -> Books:
        """Return all counts so far.

        `meters` contains the meters of all keys, by region. `remaining` contains the characters left, by key
        fingerprint.
        """
        shares = {region: [g.utilisation for g in found] for region, found in meters.items()}
        known = {region: [s for s in of if s is not None] for region, of in shares.items()}
        counts = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        counts |= {"statuses": dict(self.statuses), "faults": dict(self.faults)}
        return Books(
            **counts,
            billed={tag: Billed(*billed) for tag, billed in self._billed.items()},
            remaining=dict(remaining),
            most_in_flight_of={region: max(g.highest for g in found) for region, found in meters.items()},
            utilisation={region: sum(of) / len(of) for region, of in known.items() if of},
        )
