"""Lanes: where calls may go, how many of them, and when.

A lane is one address that takes calls with one key. It shares its permits with the other processes of the
machine (`slots`), and rests while its service cannot be reached. How many calls it takes, at once or per
second, it learns from what is refused. A refusal tells the cap: it is the number of calls that were in flight
beside the refused one. So the number grows by one with each answer until a call is refused, then stays, and
now and then one call more is tried (a probe). A service that limits calls per second refuses what no cap
explains. From then on calls begin at even distances: the pace grows with each call that passes, faster and
faster, and is cut by a refusal.
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
from speechframe.slots import Slots
from speechframe.spec.limits import LARGEST_CONCURRENCY, LEAST_CONCURRENCY

MOST_CALLS = 256
"""Calls in flight where nobody sets an end and nothing is refused."""
SHORTEST_GAP, FIRST_GAP, LONGEST_GAP = 3, 20, 128
"""Answers between two probes. One refused probe in 128 answers is below 1 % of the calls."""
ENOUGH_PROBES = 5
"""So many probes must pass in a row before the number grows: one may have slipped in between two calls."""
FALL = 0.7
"""What is left of the number when calls are refused again before any has passed: the cap has fallen, and one
refusal for each step down would be too many."""
FALLS, FALLS_WITHIN, FALLS_APART = 4, 100, 10
"""So often, within so many calls that passed, and at least so many apart, a number falls that is no cap: the
service limits calls per second."""
LONE = 2
"""It also does if calls are refused with no other in flight, and no more than so many passed between two."""
GROWTH, FASTEST, LEAD = 3e-6, 0.1, 100
"""The pace grows by this share, times the square of the calls passed since the last cut; at most. The first
pace is that of calls which waited for each other: until it is refused it grows as if more had passed."""
CUT, GUESS_CUT, STOOD = 0.95, 0.7, 10
"""What a refusal multiplies the pace by: one at which so many calls have passed, and one that was a guess."""
USELESS, WORST_GUESS, PAUSE_S = 0.3, 0.01, 60.0
"""Below this share of the best pace, or of the first guess, spacing calls does not help: the service does not
limit calls per second. After such a mistake no pacing for so long."""
SEEN_S, SHORTEST_SEEN_S = 3.0, 0.1
"""The first pace is that of the calls passed in the last seconds."""
SHARE_S = 0.25
"""Seconds between two calls of :meth:`Lane.share_out`."""
FIRST_REST_S, LONGEST_REST_S, REST_AFTER = 0.25, 300.0, 3
"""A lane rests after so many unavailable calls in a row: one may be a row's trouble."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 30.0
"""After a refusal that leaves the number of calls in flight as it is; twice as long after each further."""
LONGEST_TOLD_S = 86_400.0
"""A Retry-After beyond a day is not believed in full."""
SPARE_WORKERS = 2
"""Workers that wait for their turn while calls are paced."""


class Ticket(NamedTuple):
    """When a call began, how many others were in flight, and what the cap had learned until then."""

    began_s: float
    place: int
    passes: int
    cuts: int


@dataclass
class Cap:
    """A number of calls that may be in flight, as far as it is known."""

    held: int
    most: int
    grows: bool = True  # each answer adds one, until a call is refused
    probes: bool = False  # one call more than `held` may be in flight, to try
    passes: int = 0
    cuts: int = 0
    _until_probe: int = FIRST_GAP
    _gap: int = FIRST_GAP
    _probes_passed: int = 0
    _before: int = 0  # the number before a refusal that the next probe is to check; 0 without one
    _is_falling: bool = False  # lowered by a refusal, and no call has passed since
    _falls: deque[int] = field(default_factory=lambda: deque([-FALLS_WITHIN], FALLS))  # `passes` at each
    _lone_at: int = -FALLS_WITHIN  # `passes` at the last lone refusal

    def passed(self, ticket: Ticket) -> None:
        """Learn from a call that was not refused."""
        self.passes += 1
        self._until_probe -= 1
        if ticket.cuts == self.cuts:  # what happens to a call from before the last cut says nothing about it
            self._is_falling = False
            if self.grows:
                # Where fewer calls run than may, their success says nothing about more.
                if ticket.place >= self.held // 2:
                    self.held = min(self.held + 1, self.most)
            elif ticket.place >= self.held and self._before:
                self.held, self._before, self._until_probe = self._before, 0, self._gap
            elif ticket.place >= self.held:
                self._until_probe = SHORTEST_GAP
                self._probes_passed += 1
                self.grows = self._probes_passed >= ENOUGH_PROBES
        self.probes = not self.grows and self._until_probe <= 0 and self.held < self.most

    def refused(self, ticket: Ticket, beside: int, *, is_lone: bool) -> bool:
        """Learn from a refusal that came while `beside` other calls were in flight; `is_lone`: none ever was.

        True means that no cap explains what is refused: the service limits calls per second.
        """
        # The service judged the call between its begin and now: those passed since may have been in flight.
        reached = max(1, beside, min(beside + self.passes - ticket.passes, ticket.place))
        if ticket.cuts == self.cuts:
            is_probe = not self.grows and ticket.place >= self.held
            stands = is_probe and not self._before and reached >= self.held
            has_fallen = self._is_falling and not stands
            # One call of many was refused. Services refuse some whatever is in flight, and to lower the
            # number for it would cost much: it counts only if the next probe is refused too.
            is_in_doubt = not (has_fallen or self.grows or is_probe) and reached < self.held
            if (has_fallen or (self.grows and self.cuts)) and self.passes >= self._falls[-1] + FALLS_APART:
                self._falls.append(self.passes)
            if has_fallen:
                reached = max(1, int(FALL * reached))
            self._gap = min(2 * self._gap, LONGEST_GAP) if stands else min(FIRST_GAP, 4 * reached)
            self._before = max(self._before, self.held) if is_in_doubt else 0
            self._until_probe = 0 if is_in_doubt else self._gap
            self.grows, self.probes, self._is_falling = has_fallen, is_in_doubt, is_in_doubt or has_fallen
            self._probes_passed = 0
            self.cuts += 1
        self.held = min(self.held, reached)
        is_limited = len(self._falls) == FALLS and self._falls[0] > self.passes - FALLS_WITHIN
        if is_lone:
            is_limited |= self.passes - self._lone_at <= LONE
            self._lone_at = self.passes
        return is_limited

    def adopt(self, held: int, *, is_least: bool) -> None:
        """Take over what another process has learned; `is_least` if nothing was refused there."""
        held = max(1, min(held, self.most))
        if not is_least:
            self.held, self.grows, self.probes, self._is_falling = held, False, False, False
            self.cuts += 1  # what calls under way will tell is older than this
            self._until_probe, self._probes_passed, self._before = self._gap, 0, 0
        elif self.grows and not self.cuts:
            self.held = max(self.held, held)


@dataclass
class Pace:
    """When the next call may begin. All times are seconds of one clock."""

    per_second: float | None = None  # of all processes together; None while calls are not paced
    processes: int = 1  # each begins its part of the calls
    next_s: float = -math.inf
    passes: deque[float] = field(default_factory=lambda: deque(maxlen=500))  # when the last calls passed
    _is_used: bool = True  # the last call began as soon as it might
    _changed_s: float = 0.0
    _passed: int = 0  # calls since the last cut
    _lead: int = 0
    _least: float = 0.0  # where the pace falls below this, spacing calls does not help
    _not_before_s: float = -math.inf

    @property
    def gap_s(self) -> float:
        """Mean seconds between the last calls that passed."""
        return (self.passes[-1] - self.passes[0]) / len(self.passes) if self.passes else 0.0

    def start(self, now_s: float) -> None:
        """Begin with the pace of the last calls that passed."""
        seen = [at for at in self.passes if at >= now_s - SEEN_S]
        if len(seen) > 1 and now_s >= self._not_before_s:
            self._lead = LEAD
            self.adopt(self.processes * len(seen) / max(now_s - seen[0], SHORTEST_SEEN_S), now_s)

    def begin(self, now_s: float) -> None:
        """Note that a call begins at this pace."""
        # From now, not from when it was due: some services refuse the call after one that came late.
        gap_s = self.processes / (self.per_second or math.inf)
        self._is_used = now_s - self.next_s < gap_s / 4
        self.next_s = now_s + gap_s

    def passed(self) -> None:
        """Note a call that was not refused at this pace."""
        self._passed += 1
        if self.per_second is None or not self._is_used:
            return  # calls begin more slowly than they may: that says nothing about a faster pace
        if self._passed >= STOOD:
            self._least = max(self._least, USELESS * self.per_second)
        self.per_second *= 1 + min(GROWTH * (self._passed + self._lead) ** 2, FASTEST)

    def refused(self, now_s: float, began_s: float) -> None:
        """Note a call that was refused at this pace."""
        if self.per_second is not None and began_s >= self._changed_s:
            self._lead = 0
            self.adopt(self.per_second * (CUT if self._passed >= STOOD else GUESS_CUT), now_s)
            if self.per_second < self._least:
                self.per_second, self._not_before_s = None, now_s + PAUSE_S

    def adopt(self, per_second: float, now_s: float) -> None:
        """Begin with a pace, lower it, or take over the one that another process has found."""
        if self.per_second is None:
            self._least = WORST_GUESS * per_second
        if self.per_second is None or per_second < self.per_second:
            self._changed_s, self._passed, self.next_s = now_s, 0, now_s + self.processes / per_second
        self.per_second = per_second


class Lane:
    """One address: how many calls it takes now, and when the next one may begin.

    A run has at most `width` workers here. Lanes of one identity share in `folder` what they have learned.
    `clock` tells seconds that never run back, `wall_clock` Unix time.
    """

    def __init__(
        self,
        spec: LaneSpec,
        width: int | None,
        folder: Path | None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.name, self.is_fallback = spec.name, spec.is_fallback
        self.workers = self.in_flight = 0  # workers are counted by whoever starts and ends them
        self.stands_by = False  # a fall-back, while another lane works
        self.gone_since_s = math.inf  # begin of the first call that found the service unavailable
        self._clock, self._wall_clock = clock, wall_clock
        self._width = MOST_CALLS if width is None else width
        self._pace = Pace()
        self._rest_s = 0.0  # length of the last rest; 0.0 once a call has shown that the service is back
        self._pause_s = 0.0  # the same after refusals; 0.0 once a call has passed
        self._not_before_s = self._began_s = -math.inf
        self._told_until = self._refused_at = 0.0  # Unix time
        self._unavailable_in_row = 0
        self._members = 1
        name = blake2b(spec.identity.encode(), digest_size=16).hexdigest()
        self._slots = Slots(None if folder is None else folder / f"{name}.slots")
        self._file = None if folder is None else folder / f"{name}.json"
        self._known: dict[str, Any] = {}  # what the file says
        self._is_published = spec.published is not None
        first = spec.published or spec.guess or min(width or LEAST_CONCURRENCY, LARGEST_CONCURRENCY)
        self._cap = Cap(first, first if self._is_published else MOST_CALLS, grows=not self._is_published)
        self.share_out()

    @property
    def room(self) -> int:
        """How many more workers this run may have here; negative when it has too many."""
        # Every process its share of the cap, and a probe beyond it to the one that gets a slot for it.
        limit = -(-self._cap.held // self._members) + self._cap.probes
        if self.stands_by:
            limit = 0
        elif self._rest_s:
            limit = 1
        elif self._pace.per_second is not None:
            limit = self.in_flight + SPARE_WORKERS
        return min(limit, self._width) - self.workers

    def permit(self, slot: int | None) -> int | None:
        """Return a slot of those that all processes share, `slot` if it may be kept; None without one."""
        limit = self._cap.most if self._pace.per_second is not None else self._cap.held + self._cap.probes
        if slot is not None:
            if slot < limit:
                return slot
            self._slots.give(slot)
        return self._slots.take(limit)

    def give_permit(self, slot: int) -> None:
        """Give a slot back."""
        self._slots.give(slot)

    @property
    def waits_until(self) -> float | None:
        """Unix time until which the service asked for no more calls; None when it did not."""
        return self._told_until if self._told_until > self._wall_clock() else None

    @property
    def is_resting(self) -> bool:
        """Whether its service could not be reached, or asked for a wait, and has not answered since."""
        return self._rest_s > 0 or self.waits_until is not None

    def wait_s(self) -> float:
        """Return seconds until a call may begin here; to be asked right before :meth:`begin`."""
        next_s = max(self._not_before_s, self._pace.next_s)
        if self._pace.per_second is None and self.in_flight and self._cap.held == 1:
            # A probe beside a single call begins some time after it: a service that limits calls per second
            # refuses the second of two at once, which looks like a cap of one.
            next_s = max(next_s, self._began_s + self._pace.gap_s / 2)
        return max(0.0, next_s - self._clock(), self._told_until - self._wall_clock())

    def begin(self, slot: int) -> Ticket:
        """Note that a call begins."""
        self._began_s = self._clock()
        if self._pace.per_second is not None:
            self._pace.begin(self._began_s)
        # The lowest free slot is taken first, so its number says how many calls all processes have.
        place = slot if self._members > 1 else self.in_flight
        self.in_flight += 1
        return Ticket(self._began_s, place, self._cap.passes, self._cap.cuts)

    def end(self, ticket: Ticket, outcome: Answer | SpeechframeError) -> None:
        """Note how a call ended.

        A wait that the service asks for binds this call's row. The lane heeds it only when it rests, or when
        calls are refused again and again and none passes.
        """
        self.in_flight -= 1
        told_s = getattr(outcome, "retry_after_s", None) or 0.0
        told_until = self._wall_clock() + min(told_s, LONGEST_TOLD_S)
        if isinstance(outcome, (errors.Unavailable, errors.ConnectionFailed)):
            self._unavailable(ticket, told_until)
        elif isinstance(outcome, (Answer, errors.ServiceError, errors.BadAnswer)):
            self.gone_since_s, self._rest_s, self._unavailable_in_row = math.inf, 0.0, 0
            if isinstance(outcome, errors.RateLimited):
                self._refused(ticket, told_until)
            else:
                self._pause_s = 0.0
                self._pace.passes.append(self._clock())
                if self._pace.per_second is None:
                    self._cap.passed(ticket)
                else:
                    self._pace.passed()

    def _refused(self, ticket: Ticket, told_until: float) -> None:
        now, self._refused_at = self._clock(), self._wall_clock()
        is_told, is_again = told_until > self._refused_at, self._pause_s > 0
        cap, held = self._cap, self._cap.held
        beside = self.in_flight + self._slots.held_by_others()
        if self._pace.per_second is not None:
            self._pace.refused(now, ticket.began_s)
        elif cap.refused(ticket, beside, is_lone=beside == ticket.place == 0 and not is_told):
            self._pace.start(now)
        if cap.held == held > ticket.place:
            # There are no fewer calls in flight for this refusal, so the next call would be refused too.
            self._pause_s = min(max(FIRST_PAUSE_S, 2 * self._pause_s), LONGEST_PAUSE_S)
            if self._pace.per_second is None:
                self._not_before_s = now + self._pause_s
            if is_told and is_again and beside == 0:
                # Not this row alone: calls are refused one after the other, and none is left that could pass.
                self._told_until = max(self._told_until, told_until)

    def _unavailable(self, ticket: Ticket, told_until: float) -> None:
        self.gone_since_s = min(self.gone_since_s, ticket.began_s)
        if ticket.began_s < self._not_before_s:
            return  # it was in flight when this rest began
        self._unavailable_in_row += 1
        if self._rest_s or self._unavailable_in_row >= REST_AFTER:
            # As long as the call took at least: each call to a service that hangs costs time, perhaps money.
            took_s = self._clock() - ticket.began_s
            self._rest_s = min(max(FIRST_REST_S, 2 * self._rest_s, took_s), LONGEST_REST_S)
            self._not_before_s = self._clock() + self._rest_s
            self._told_until = max(self._told_until, told_until)

    def share_out(self) -> None:
        """Hear what other processes have learned, and tell what this run has; each :data:`SHARE_S`.

        Where the file cannot be used each process learns by itself, which is no reason to stop a run.
        """
        self._members = self._pace.processes = 1 + self._slots.others()
        if self._file is None:
            return
        cap, pace = self._cap, self._pace
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(self._file.read_bytes())
            if found != self._known:
                self._known, self._refused_at = found, float(found["refused_at"])
                if not self._is_published:
                    cap.adopt(int(found["cap"]), is_least=bool(found["is_least"]))
                if found["per_second"]:
                    pace.adopt(float(found["per_second"]), self._clock())
                latest = self._wall_clock() + LONGEST_TOLD_S
                self._told_until = max(self._told_until, min(float(found["told_until"]), latest))
        ours = {
            "cap": cap.held,
            "is_least": cap.grows and not cap.cuts,
            "per_second": float(f"{pace.per_second or 0.0:.2g}"),
            "told_until": self._told_until,
            "refused_at": self._refused_at,  # a refusal puts off the probes of the others
        }
        if ours != self._known:
            temporary = self._file.with_suffix(f".{os.getpid()}")
            with contextlib.suppress(OSError):
                temporary.write_text(json.dumps(ours))
                temporary.replace(self._file)
                self._known = ours

    def close(self) -> None:
        """Keep what was learned and free the permits."""
        self.share_out()
        self._slots.close()


class Lanes(list[Lane]):
    """All lanes of a run, the preferred first; `max_concurrency` and `folder` are each lane's."""

    def __init__(
        self,
        specs: Sequence[LaneSpec],
        *,
        max_concurrency: int | None,
        folder: Path | None,
        **clocks: Callable[[], float],
    ) -> None:
        super().__init__(Lane(spec, max_concurrency, folder, **clocks) for spec in specs)

    def usable(self) -> list[Lane]:
        """Return the lanes that may take calls now: a fall-back only while no other lane works."""
        works = any(not (lane.is_fallback or lane.is_resting) for lane in self)
        for lane in self:
            lane.stands_by = lane.is_fallback and works
        return [lane for lane in self if not (lane.stands_by or (lane.is_resting and lane.wait_s()))]

    def all_gone_since(self) -> float:
        """Return since when no lane can be reached (``time.monotonic()``); infinite while one can."""
        return max(lane.gone_since_s for lane in self)

    def close(self) -> None:
        """Keep what was learned and free all permits."""
        for lane in self:
            lane.close()
