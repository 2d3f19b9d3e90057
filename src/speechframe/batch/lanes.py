"""Lanes limit the number of calls to one address, at once and per second.

A lane is one address that takes calls with one key. Each call in flight holds a permit, which is one slot of
a set that all processes of the machine share (`speechframe.processes.slots`). A lane rests, so begins no
call, while its service is unreachable.

A service may cap the number of calls in flight. A lane learns this cap from refused calls: the number of
calls in flight beside a refused call is the cap. So the lane's limit grows by one with each answer until a
call is refused. Then the limit stays, and from time to time the lane tries one call more (a probe).

If no cap explains the refusals, the service limits calls per second. From then on the lane spaces its calls
evenly. The pace, in calls per second, falls with each refusal. It grows with each call that passes (is not
refused), and the growth accelerates.
"""

import contextlib
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from speechframe import errors
from speechframe.batch.backend import Answer, LaneSpec
from speechframe.errors import SpeechframeError
from speechframe.network.descriptors import count_free_descriptors
from speechframe.processes.slots import SLOT_BYTES_RANGE, USER_BYTES_RANGE, Slots
from speechframe.spec.limits import MAX_STREAMING_CONCURRENCY, MIN_STREAMING_CONCURRENCY
from speechframe.writing.files import parse_json

MAX_CALLS_PER_LANE = 1024
"""Largest number of calls that a run has in flight in a lane, even if the service allows more."""
CONNECTIONS_PER_CALL = 2
"""Number of connections to allow for each call in flight. An answer holds its connection until the answer is
judged, and meanwhile the next call opens another connection."""
SHORTEST_PROBE_GAP, FIRST_PROBE_GAP, LONGEST_PROBE_GAP = 3, 20, 128
"""Number of answers between two probes: after a probe that passed, at first, and at most. Each refused probe
doubles the gap. At the longest gap, refused probes are below 1 % of the calls."""
PROBES_BEFORE_GROWTH = 5
"""Number of probes that must pass in a row before the limit grows. A single probe may pass by luck, in the
gap between two calls."""
LIMIT_FALL_FACTOR = 0.7
"""If a call is refused again before any call passed, the cap has fallen. The limit then becomes this share of
the calls in flight, because steps of one would cost too many refusals."""
FALLS_BEFORE_PACING, FALLS_WINDOW_PASSES, MIN_PASSES_BETWEEN_FALLS = 4, 100, 10
"""A lane begins to pace its calls if its limit falls `FALLS_BEFORE_PACING` times within `FALLS_WINDOW_PASSES`
passed calls. At least `MIN_PASSES_BETWEEN_FALLS` passed calls must lie between two falls."""
MAX_PASSES_BETWEEN_LONE_REFUSALS = 2
"""A lane also begins to pace its calls if two calls are refused while no other call is in flight. At most
`MAX_PASSES_BETWEEN_LONE_REFUSALS` calls may have passed between these two."""
PACE_GROWTH, MAX_PACE_GROWTH, FIRST_PACE_LEAD = 3e-6, 0.1, 100
"""Each passed call raises the pace by a share of the pace. The share is `PACE_GROWTH` times the square of the
number of calls passed since the last cut, and at most `MAX_PACE_GROWTH`. The first pace is measured on calls
that waited for each other, so it is too low. Until a refusal it grows as if `FIRST_PACE_LEAD` more calls had
passed."""
PACE_CUT_FACTOR, FIRST_PACE_CUT_FACTOR, PASSES_OF_PROVEN_PACE = 0.95, 0.7, 10
"""A refusal multiplies the pace by `PACE_CUT_FACTOR` if `PASSES_OF_PROVEN_PACE` calls have passed at this
pace. Before that the pace is a guess, and a refusal multiplies it by `FIRST_PACE_CUT_FACTOR`."""
MIN_SHARE_OF_PROVEN_PACE, MIN_SHARE_OF_FIRST_PACE, PACING_BREAK_S = 0.3, 0.01, 60.0
"""A lane stops pacing for `PACING_BREAK_S` seconds if the pace falls below `MIN_SHARE_OF_PROVEN_PACE` of the
best proven pace, or below `MIN_SHARE_OF_FIRST_PACE` of the first pace. So low a pace shows that pacing does
not prevent refusals."""
PACE_WINDOW_S, SHORTEST_WINDOW_S = 3.0, 0.1
"""The first pace is measured on the calls that passed in the last `PACE_WINDOW_S` seconds. The time since the
first of these calls counts as at least `SHORTEST_WINDOW_S` seconds."""
SHARING_PERIOD_S = 0.25
"""Seconds between two calls of :meth:`Lane.share_learned`."""
FIRST_REST_S, LONGEST_REST_S, FAILURES_BEFORE_REST = 0.25, 300.0, 3
"""A lane rests after `FAILURES_BEFORE_REST` calls in succession found the service unavailable. A single
failure may be due to the text of a call. The rests double, from `FIRST_REST_S` to `LONGEST_REST_S`
seconds."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 30.0
"""Shortest and longest pause in seconds after a refusal that does not lower the limit. The pause doubles with
each further refusal of this kind."""
LONGEST_RETRY_AFTER_S = 86_400.0
"""Longest Retry-After in seconds that is observed: one day."""
SPARE_WORKERS = 2
"""Number of workers without a call in flight while calls are paced. They wait for the start time of a
call."""


def compute_max_calls(lane_count: int) -> int:
    """Return the largest number of calls in flight in each lane that the free file descriptors allow now."""
    return max(
        1, min(MAX_CALLS_PER_LANE, count_free_descriptors() // (CONNECTIONS_PER_CALL * max(1, lane_count)))
    )


class Ticket(NamedTuple):
    """The start time of a call, the number of other calls in flight, and two counts of :class:`Cap` then."""

    began_s: float
    other_calls: int
    passes: int
    resets: int


@dataclass
class Cap:
    """An estimate of the largest number of calls that may be in flight."""

    limit: int  # the estimate
    max_limit: int  # the largest value that `limit` may take
    is_growing: bool = True  # each answer raises the limit, until a call is refused
    is_probing: bool = False  # one call more than the limit may be in flight, as a probe
    passes: int = 0  # number of calls that were not refused
    resets: int = 0  # number of times that a refusal or another process set the limit
    _until_probe: int = FIRST_PROBE_GAP  # number of passed calls until the next probe
    _probe_gap: int = FIRST_PROBE_GAP
    _probes_passed: int = 0  # number of probes in a row that passed
    _restore_to: int = 0  # limit to restore if the next probe passes, or 0 to restore nothing
    _is_falling: bool = False  # True after a refusal that may mean a lower cap, until a later call passes
    # Values of `passes` at the last `FALLS_BEFORE_PACING` falls of the limit, and at the last refusal without
    # other calls in flight. They begin with a value that is too long ago to count.
    _passes_at_falls: deque[int] = field(
        default_factory=lambda: deque([-FALLS_WINDOW_PASSES], FALLS_BEFORE_PACING)
    )
    _passes_at_lone_refusal: int = -FALLS_WINDOW_PASSES

    def note_pass(self, ticket: Ticket) -> None:
        """Learn from a call that was not refused."""
        self.passes += 1
        self._until_probe -= 1
        if ticket.resets == self.resets:  # a call from before the last reset does not test the new limit
            self._is_falling = False
            if self.is_growing:
                # If far fewer calls run than the limit allows, their success does not justify a higher limit.
                if ticket.other_calls >= self.limit // 2:
                    self.limit = min(self.limit + 1, self.max_limit)
            elif ticket.other_calls >= self.limit and self._restore_to:
                self.limit, self._restore_to, self._until_probe = self._restore_to, 0, self._probe_gap
            elif ticket.other_calls >= self.limit:
                self._until_probe = SHORTEST_PROBE_GAP
                self._probes_passed += 1
                self.is_growing = self._probes_passed >= PROBES_BEFORE_GROWTH
        self.is_probing = not self.is_growing and self._until_probe <= 0 and self.limit < self.max_limit

    def note_refusal(self, ticket: Ticket, beside: int, *, is_lone: bool) -> bool:
        """Learn from a refusal that came while `beside` other calls were in flight.

        `is_lone` is True if no other call was in flight when the call began and when it ended, and the answer
        had no Retry-After. Return True if no cap explains the refusals. The service then limits calls per
        second.
        """
        # The service may have refused the call at any time since it began. Calls that have passed since then
        # may still have been in flight at that time.
        reached = max(1, beside, min(beside + self.passes - ticket.passes, ticket.other_calls))
        if ticket.resets == self.resets:
            is_probe = not self.is_growing and ticket.other_calls >= self.limit
            confirms_limit = is_probe and not self._restore_to and reached >= self.limit
            has_fallen = self._is_falling and not confirms_limit
            # A single refusal is in doubt, because services refuse some calls under any load, and a limit
            # that is too low is costly. So the old limit is restored if the next probe passes.
            is_in_doubt = not (has_fallen or self.is_growing or is_probe) and reached < self.limit
            is_apart = self.passes >= self._passes_at_falls[-1] + MIN_PASSES_BETWEEN_FALLS
            if is_apart and (has_fallen or (self.is_growing and self.resets)):
                self._passes_at_falls.append(self.passes)
            if has_fallen:
                reached = max(1, int(LIMIT_FALL_FACTOR * reached))
            first_gap = min(FIRST_PROBE_GAP, 4 * reached)
            self._probe_gap = min(2 * self._probe_gap, LONGEST_PROBE_GAP) if confirms_limit else first_gap
            self._restore_to = max(self._restore_to, self.limit) if is_in_doubt else 0
            self._until_probe = 0 if is_in_doubt else self._probe_gap
            self.is_growing, self.is_probing = has_fallen, is_in_doubt
            self._is_falling = is_in_doubt or has_fallen
            self._probes_passed = 0
            self.resets += 1
        self.limit = min(self.limit, reached)
        falls = self._passes_at_falls
        is_per_second = len(falls) == FALLS_BEFORE_PACING and falls[0] > self.passes - FALLS_WINDOW_PASSES
        if is_lone:
            is_per_second |= self.passes - self._passes_at_lone_refusal <= MAX_PASSES_BETWEEN_LONE_REFUSALS
            self._passes_at_lone_refusal = self.passes
        return is_per_second

    def adopt_limit(self, limit: int, *, is_least: bool) -> None:
        """Adopt the limit of another process.

        `is_least` is True if that process has seen no refusal yet, so the cap may be higher than its limit.
        """
        limit = max(1, min(limit, self.max_limit))
        if not is_least:
            self.limit, self.is_growing, self.is_probing, self._is_falling = limit, False, False, False
            self.resets += 1  # calls under way began before this limit, so they do not test it
            self._until_probe, self._probes_passed, self._restore_to = self._probe_gap, 0, 0
        elif self.is_growing and not self.resets:
            self.limit = max(self.limit, limit)


@dataclass
class CallPace:
    """The time at which the next call may begin. All times are seconds of one clock."""

    per_second: float | None = None  # calls of all processes together, or None while calls are not paced
    processes: int = 1  # number of processes, each of which begins an equal share of the calls
    next_s: float = -math.inf  # no call begins before this time
    pass_times: deque[float] = field(default_factory=lambda: deque(maxlen=500))  # end times of passed calls
    _is_binding: bool = True  # True if the last call began as soon as the pace allowed
    # Time of the last cut of the pace. Refusals of calls that began before the cut are ignored.
    _cut_s: float = 0.0
    _passes: int = 0  # calls passed since the last cut
    _lead: int = 0  # `FIRST_PACE_LEAD` from the first pace until a refusal, otherwise 0
    _least_useful: float = 0.0  # below this pace, spacing calls does not help
    _unpaced_until_s: float = -math.inf

    @property
    def gap_s(self) -> float:
        """Mean time in seconds between the ends of the last calls that passed, or 0.0 if no call passed."""
        return (self.pass_times[-1] - self.pass_times[0]) / len(self.pass_times) if self.pass_times else 0.0

    def start_pacing(self, now_s: float) -> None:
        """Begin to pace calls at the rate of the last passed calls, unless pacing has proved useless."""
        seen = [at for at in self.pass_times if at >= now_s - PACE_WINDOW_S]
        if len(seen) > 1 and now_s >= self._unpaced_until_s:
            self._lead = FIRST_PACE_LEAD
            self.set_pace(self.processes * len(seen) / max(now_s - seen[0], SHORTEST_WINDOW_S), now_s)

    def begin(self, now_s: float) -> None:
        """Note that a call begins at this pace."""
        # Count the gap from now, not from the due time of this call. If this call was late, a shorter gap
        # would make some services refuse the next call.
        gap_s = self.processes / (self.per_second or math.inf)
        self._is_binding = now_s - self.next_s < gap_s / 4
        self.next_s = now_s + gap_s

    def note_pass(self) -> None:
        """Note a call that was not refused at this pace."""
        self._passes += 1
        if self.per_second is None or not self._is_binding:
            return  # calls began later than the pace allowed, so a faster pace was not tested
        if self._passes >= PASSES_OF_PROVEN_PACE:
            self._least_useful = max(self._least_useful, MIN_SHARE_OF_PROVEN_PACE * self.per_second)
        self.per_second *= 1 + min(PACE_GROWTH * (self._passes + self._lead) ** 2, MAX_PACE_GROWTH)

    def note_refusal(self, now_s: float, began_s: float) -> None:
        """Note a call that was refused at this pace."""
        if self.per_second is not None and began_s >= self._cut_s:
            self._lead = 0
            factor = PACE_CUT_FACTOR if self._passes >= PASSES_OF_PROVEN_PACE else FIRST_PACE_CUT_FACTOR
            self.set_pace(self.per_second * factor, now_s)
            if self.per_second < self._least_useful:
                self.per_second, self._unpaced_until_s = None, now_s + PACING_BREAK_S

    def set_pace(self, per_second: float, now_s: float) -> None:
        """Set the pace: the first pace, a pace lowered by a refusal, or the pace of another process."""
        if self.per_second is None:
            self._least_useful = MIN_SHARE_OF_FIRST_PACE * per_second
        if self.per_second is None or per_second < self.per_second:
            self._cut_s, self._passes, self.next_s = now_s, 0, now_s + self.processes / per_second
        self.per_second = per_second


class Lane:
    """One address, with its current limit and the earliest start time of the next call.

    A run has at most `width` workers in a lane, and never more than `most`. If `width` is None, only `most`
    counts. Lanes with the same identity share their learned limits through files in `folder`. Without a
    folder they share nothing. `clock` returns monotonic seconds, and `wall_clock` returns Unix time.
    """

    def __init__(
        self,
        spec: LaneSpec,
        width: int | None,
        folder: Path | None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        most: int = MAX_CALLS_PER_LANE,
    ) -> None:
        self.name, self.is_fallback = spec.name, spec.is_fallback
        self.workers = self.in_flight = 0  # numbers of tasks and of calls; the engine sets `workers`
        self.has_refused = False  # True once the service refused a call of this run (status 429)
        self.stands_by = False  # True for a fall-back lane while another lane can take calls
        # Start time of the first call that found the service unavailable. Infinite after an answer.
        self.unavailable_since_s = math.inf
        self._clock, self._wall_clock = clock, wall_clock
        self._width = most if width is None else min(width, most)
        self._pace = CallPace()
        self._rest_s = 0.0  # seconds of the last rest, or 0.0 once a call has reached the service again
        self._pause_s = 0.0  # seconds of the last pause after a refusal, or 0.0 once a call has passed
        self._not_before_s = self._last_began_s = -math.inf
        self._retry_at = 0.0  # no call begins before this Unix time (Retry-After)
        self._refused_at = 0.0  # Unix time of the last refusal in any process
        self._unavailable_calls = 0  # number of calls since the last answer that found no service
        self._processes = 1
        name = blake2b(spec.identity.encode(), digest_size=16).hexdigest()
        self._slots = Slots(None if folder is None else folder / f"{name}.slots")
        self._file = None if folder is None else folder / f"{name}.json"
        self._in_file: dict[str, Any] = {}  # content of the file when it was last read or written
        self._is_limit_published = spec.published is not None
        first = (
            spec.published or spec.guess or min(width or MIN_STREAMING_CONCURRENCY, MAX_STREAMING_CONCURRENCY)
        )
        self._cap = Cap(
            first,
            first if self._is_limit_published else MAX_CALLS_PER_LANE,
            is_growing=not self._is_limit_published,
        )
        self.share_learned()

    @property
    def workers_to_add(self) -> int:
        """Number of workers that this run may add to the lane. Negative if the lane has too many."""
        # Each process has an equal share of the limit, rounded up. Every process may try a probe, but only
        # one gets the slot of the probe.
        limit = self.limit_here + self._cap.is_probing
        if self.stands_by:
            limit = 0
        elif self._rest_s:
            limit = 1
        elif self._pace.per_second is not None:
            limit = self.in_flight + SPARE_WORKERS
        return min(limit, self._width) - self.workers

    @property
    def limit_here(self) -> int:
        """Number of calls that the service now allows this process to have in flight."""
        return -(-self._cap.limit // self._processes)

    def take_permit(self, slot: int | None) -> int | None:
        """Take a free slot and return its number, which is below the limit. Return None if no slot is free.

        `slot` is the slot that the caller already holds, or None. If that slot is below the limit, the caller
        keeps it. Otherwise that slot is freed first.
        """
        cap = self._cap
        limit = cap.max_limit if self._pace.per_second is not None else cap.limit + cap.is_probing
        if slot is not None:
            if slot < limit:
                return slot
            self._slots.free_slot(slot)
        return self._slots.take_slot(limit)

    def give_permit_back(self, slot: int) -> None:
        """Free a slot that :meth:`take_permit` returned."""
        self._slots.free_slot(slot)

    @property
    def waits_until(self) -> float | None:
        """Unix time until which the service accepts no calls (Retry-After), or None."""
        return self._retry_at if self._retry_at > self._wall_clock() else None

    @property
    def is_resting(self) -> bool:
        """True if the lane rests until a call reaches the service again, or waits for Retry-After."""
        return self._rest_s > 0 or self.waits_until is not None

    def compute_wait_s(self) -> float:
        """Return the seconds until a call may begin, or 0.0. Call this method right before :meth:`begin`."""
        next_s = max(self._not_before_s, self._pace.next_s)
        if self._pace.per_second is None and self.in_flight and self._cap.limit == 1:
            # Begin a probe beside a single call some time after that call. A service that limits calls per
            # second refuses the second of two simultaneous calls, which looks like a cap of one.
            next_s = max(next_s, self._last_began_s + self._pace.gap_s / 2)
        return max(0.0, next_s - self._clock(), self._retry_at - self._wall_clock())

    def begin(self, slot: int) -> Ticket:
        """Note that a call begins, and return its ticket for :meth:`end`."""
        self._last_began_s = self._clock()
        if self._pace.per_second is not None:
            self._pace.begin(self._last_began_s)
        # The lowest free slot is taken first, so its number is the number of other calls of all processes.
        other_calls = slot if self._processes > 1 else self.in_flight
        self.in_flight += 1
        return Ticket(self._last_began_s, other_calls, self._cap.passes, self._cap.resets)

    def end(self, ticket: Ticket, outcome: Answer | SpeechframeError) -> None:
        """Learn from the end of a call.

        A Retry-After of the service usually delays only the rows of this call. It delays the whole lane if
        the lane rests, or if calls are refused again and again and no call passes.
        """
        self.in_flight -= 1
        retry_after_s = getattr(outcome, "retry_after_s", None) or 0.0
        retry_at = self._wall_clock() + min(retry_after_s, LONGEST_RETRY_AFTER_S)
        if isinstance(outcome, (errors.Unavailable, errors.ConnectionFailed)):
            self._note_unavailable(ticket, retry_at)
        elif isinstance(outcome, (Answer, errors.ServiceError, errors.BadAnswer)):
            self.unavailable_since_s, self._rest_s, self._unavailable_calls = math.inf, 0.0, 0
            if isinstance(outcome, errors.RateLimited):
                self._note_refusal(ticket, retry_at)
            else:
                self._pause_s = 0.0
                self._pace.pass_times.append(self._clock())
                if self._pace.per_second is None:
                    self._cap.note_pass(ticket)
                else:
                    self._pace.note_pass()

    def _note_refusal(self, ticket: Ticket, retry_at: float) -> None:
        self.has_refused = True
        now, self._refused_at = self._clock(), self._wall_clock()
        has_retry_after, is_again = retry_at > self._refused_at, self._pause_s > 0
        cap, limit = self._cap, self._cap.limit
        beside = self.in_flight + self._slots.count_others(SLOT_BYTES_RANGE)
        if self._pace.per_second is not None:
            self._pace.note_refusal(now, ticket.began_s)
        elif cap.note_refusal(
            ticket, beside, is_lone=beside == ticket.other_calls == 0 and not has_retry_after
        ):
            self._pace.start_pacing(now)
        if cap.limit == limit > ticket.other_calls:
            # The limit stays, so without a pause the next call would be refused, too.
            self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)
            if self._pace.per_second is None:
                self._not_before_s = now + self._pause_s
            if has_retry_after and is_again and beside == 0:
                # Delay the whole lane, because calls are refused one by one and no call in flight could pass.
                self._retry_at = max(self._retry_at, retry_at)

    def _note_unavailable(self, ticket: Ticket, retry_at: float) -> None:
        self.unavailable_since_s = min(self.unavailable_since_s, ticket.began_s)
        if ticket.began_s < self._not_before_s:
            return  # the call began before the lane's current rest, so it adds nothing new
        self._unavailable_calls += 1
        if self._rest_s or self._unavailable_calls >= FAILURES_BEFORE_REST:
            # The lane rests at least as long as the call took. A call to a service that hangs costs time, and
            # perhaps money.
            took_s = self._clock() - ticket.began_s
            self._rest_s = min(max(FIRST_REST_S, 2 * self._rest_s, took_s), LONGEST_REST_S)
            self._not_before_s = self._clock() + self._rest_s
            self._retry_at = max(self._retry_at, retry_at)

    def end_rest(self) -> None:
        """Note that the service answers although calls have timed out. End the lane's rest."""
        self.unavailable_since_s, self._rest_s, self._unavailable_calls = math.inf, 0.0, 0

    def share_learned(self) -> None:
        """Exchange learned limits with other processes. Call every :data:`SHARING_PERIOD_S` seconds.

        If the shared file is unusable, each process learns alone and the run goes on.
        """
        self._processes = self._pace.processes = 1 + self._slots.count_others(USER_BYTES_RANGE)
        if self._file is None:
            return
        cap, pace = self._cap, self._pace
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found = parse_json(self._file.read_bytes())
            if found != self._in_file:
                self._in_file, self._refused_at = found, float(found["refused_at"])
                if not self._is_limit_published:
                    cap.adopt_limit(int(found["cap"]), is_least=bool(found["is_least"]))
                if found["per_second"]:
                    pace.set_pace(float(found["per_second"]), self._clock())
                latest_retry_at = self._wall_clock() + LONGEST_RETRY_AFTER_S
                self._retry_at = max(self._retry_at, min(float(found["told_until"]), latest_retry_at))
        own_content = {
            "cap": cap.limit,
            "is_least": cap.is_growing and not cap.resets,
            "per_second": float(f"{pace.per_second or 0.0:.2g}"),
            "told_until": self._retry_at,
            # Each refusal changes this time. So the file changes, and other processes adopt the limit again
            # and delay their next probe.
            "refused_at": self._refused_at,
        }
        if own_content != self._in_file:
            temporary = self._file.with_suffix(f".{os.getpid()}")
            with contextlib.suppress(OSError):
                temporary.write_text(json.dumps(own_content))
                temporary.replace(self._file)
                self._in_file = own_content

    def close(self) -> None:
        """Write the learned limits to the shared file and free the permits."""
        self.share_learned()
        self._slots.close()


def choose_lanes(lanes: Sequence[Lane]) -> list[Lane]:
    """Return the lanes that may take calls now. Fall-back lanes stand by while another lane works."""
    works = any(not (lane.is_fallback or lane.is_resting) for lane in lanes)
    for lane in lanes:
        lane.stands_by = lane.is_fallback and works
    return [lane for lane in lanes if not (lane.stands_by or (lane.is_resting and lane.compute_wait_s()))]
