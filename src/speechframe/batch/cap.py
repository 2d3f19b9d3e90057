"""How many calls a service takes, at once or per second: learned from what it refuses.

A refusal tells the cap: it is the number of calls that were in flight beside the refused one. So the number
grows by one with each answer until a call is refused, then stays, and now and then one call more is tried (a
probe). A service that limits calls per second refuses what no cap explains. From then on calls begin at even
distances: the pace grows with each call that passes, faster and faster, and is cut by a refusal.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

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
GROWTH, FASTEST = 3e-6, 0.1
"""The pace grows by this share, times the square of the calls passed since the last cut; at most."""
CUT, GUESS_CUT, STOOD = 0.95, 0.7, 10
"""What a refusal multiplies the pace by: one at which so many calls have passed, and one that was a guess."""
USELESS, WORST_GUESS, PAUSE_S = 0.3, 0.01, 60.0
"""Below this share of the best pace, or of the first guess, spacing calls does not help: the service does not
limit calls per second. After such a mistake no pacing for so long."""
SEEN_S, SHORTEST_SEEN_S = 3.0, 0.1
"""The first pace is that of the calls passed in the last seconds."""


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
        self.per_second *= 1 + min(GROWTH * self._passed**2, FASTEST)

    def refused(self, now_s: float, began_s: float) -> None:
        """Note a call that was refused at this pace."""
        if self.per_second is not None and began_s >= self._changed_s:
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
