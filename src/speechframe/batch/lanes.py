"""Lanes: where calls may go, how many of them, and when.

A lane is one address that takes calls with one key. It knows a cap (`cap`) or a pace (`pacing`), shares its
permits with the other processes of the machine (`slots`), and rests while its service cannot be reached. It
never waits by itself: it says how long a worker has to wait.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from hashlib import blake2b
from pathlib import Path

from speechframe.batch.backend import LaneSpec
from speechframe.batch.cap import MOST_CALLS, Cap, Ticket
from speechframe.batch.learned import Learned
from speechframe.batch.pacing import Pace
from speechframe.slots import Slots
from speechframe.spec.limits import LARGEST_CONCURRENCY, LEAST_CONCURRENCY

__all__ = ["Lane", "Lanes", "Outcome"]

SHARE_S = 0.25
"""Seconds between two calls of :meth:`Lane.share_out`."""
FIRST_REST_S, LONGEST_REST_S = 0.25, 300.0
LONGEST_ONLY_REST_S = LONGEST_PAUSE_S = 30.0
"""The longest rest while no other lane works: nothing else can be done than to ask again."""
FIRST_PAUSE_S = 0.01
"""After a refusal that leaves the number of calls in flight as it is; twice as long after each further."""
REST_AFTER = 3
"""So many calls in a row that found the service unavailable make a lane rest: one may be a row's trouble."""
LONG_CALL_S = 1.0
"""An unavailable call that took longer makes it rest at once, unless another call has passed meanwhile: each
call to a service that hangs costs much time, and perhaps money."""
TURN_S = 2.0
"""Where there are more processes than slots, each gives its slot back after so long."""
LONGEST_TOLD_S = 86_400.0
"""A Retry-After beyond a day is not believed in full."""
SPARE_WORKERS = 2
"""Workers that wait for their turn while calls are paced."""


class Outcome(Enum):
    """What a call says about its lane."""

    PASSED = "an answer, or an error that shows that the service works"
    REFUSED = "429: too many calls"
    UNAVAILABLE = "503, no connection, or no answer in time"
    OTHER = "nothing"


class Lane:
    """One address: how many calls it takes now, and when the next one may begin.

    Parameters
    ----------
    spec
        The address.
    width
        The most workers of this run.
    folder
        Where lanes with the same identity share what they know; None for a lane that shares nothing.
    others_work
        Whether another lane of the run works.
    clock, wall_clock
        Seconds that never run back, and Unix time.

    Attributes
    ----------
    name
        Of the spec.
    workers
        Workers of this run; counted by whoever starts and ends them.
    in_flight
        Calls of this run between :meth:`begin` and :meth:`end`.
    gone_since_s
        When the first of the calls began that found the service unavailable, with no other outcome since;
        None without one.
    """

    def __init__(
        self,
        spec: LaneSpec,
        width: int | None,
        folder: Path | None,
        *,
        others_work: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.name, self.is_fallback = spec.name, spec.is_fallback
        self.workers = self.in_flight = 0
        self.gone_since_s: float | None = None
        self._others_work, self._clock, self._wall_clock = others_work, clock, wall_clock
        self._width = MOST_CALLS if width is None else width
        self._pace = Pace()
        self._rest_s = 0.0  # length of the last rest; 0.0 once a call has shown that the service is back
        self._not_before_s = self._began_s = 0.0
        self._refused_at = self._told_until = 0.0  # Unix time, as in `Learned`
        self._passed_at_s = self._rested_at_s = self._yields_until_s = -math.inf
        self._refused_in_row = self._unavailable_in_row = 0
        self._members = 1
        self._taken_s: dict[int, float] = {}
        name = blake2b(spec.identity.encode(), digest_size=16).hexdigest()
        self._slots = Slots(None if folder is None else folder / f"{name}.slots")
        self._file = None if folder is None else folder / f"{name}.json"
        self._known = Learned.read(self._file)
        if spec.published is not None:
            self._cap = Cap(max(1, spec.published), max(1, spec.published), grows=False)
        else:
            guess = spec.guess or (LEAST_CONCURRENCY if width is None else min(width, LARGEST_CONCURRENCY))
            self._cap = Cap(guess, max(guess, MOST_CALLS))
            if self._known:
                self._cap.adopt(self._known.cap, is_least=self._known.is_least)
        if self._known:
            self._heed(self._known)
        self.share_out()

    # -- how many ----------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more workers this run may have here; negative when it has too many."""
        if self.is_fallback and self._others_work():
            return -self.workers
        if self._rest_s:
            return 1 - self.workers
        paced = self._pace.per_second is not None
        limit = self.in_flight + SPARE_WORKERS if paced else self._cap.limit
        if self._members > 1 and not paced:
            # Every process its share, and a probe beyond it to the one whose turn it is.
            limit = -(-self._cap.held // self._members) + limit - self._cap.held
        return min(limit, self._width) - self.workers

    def take_permit(self) -> int | None:
        """Return a slot of those that all processes share; None when the others hold all of them."""
        now = self._clock()
        slot = None if now < self._yields_until_s else self._slots.take(self._limit)
        if slot is not None:
            self._taken_s[slot] = now
        return slot

    def give_permit(self, slot: int) -> None:
        """Give a slot back."""
        self._slots.give(slot)

    def keeps(self, slot: int) -> bool:
        """Whether a worker may keep its slot for its next call; more processes than slots take turns."""
        now = self._clock()
        if self._members > self._limit and now >= self._taken_s[slot] + TURN_S:
            self._yields_until_s = now + 2 * SHARE_S
            return False
        return slot < self._limit

    @property
    def _limit(self) -> int:
        """How many calls of all processes may be in flight."""
        return self._cap.limit if self._pace.per_second is None else self._cap.most

    # -- when --------------------------------------------------------------------------

    @property
    def is_resting(self) -> bool:
        """Whether its service could not be reached, or asked for a wait, and has not answered since."""
        return self._rest_s > 0 or self._told_until > self._wall_clock()

    @property
    def waits_until(self) -> float | None:
        """Unix time until which the service asked for no more calls; None when it did not."""
        return self._told_until if self._told_until > self._wall_clock() else None

    def wait_s(self) -> float:
        """Return seconds until a call may begin here; to be asked right before :meth:`begin`."""
        now = self._clock()
        told_s = self._told_until - self._wall_clock()
        wait_s = max(0.0, self._not_before_s - now, told_s, self._pace.wait_s(now))
        if not wait_s and self.in_flight:
            if self._rest_s:
                return SHARE_S  # one call finds out whether the service is back
            if self._cap.held == 1:
                # A probe beside a single call begins some time after it: a service that limits calls per
                # second refuses the second of two at once, which looks like a cap of one.
                return max(0.0, self._began_s + self._pace.gap_s / 2 - now)
        return wait_s

    # -- calls -------------------------------------------------------------------------

    def begin(self, slot: int) -> Ticket:
        """Note that a call begins."""
        now = self._clock()
        self._began_s = now
        self._pace.begin(now)
        # The lowest free slot is taken first, so its number says how many calls all processes have.
        place = slot if self._members > 1 else self.in_flight
        self.in_flight += 1
        return self._cap.begin(now, place)

    def end(self, ticket: Ticket, outcome: Outcome, *, retry_after_s: float | None = None) -> None:
        """Note that a call ended.

        Parameters
        ----------
        ticket
            From :meth:`begin`.
        outcome
            What it says about the lane.
        retry_after_s
            The wait that the service asked for. It binds this call's row. The lane heeds it only when it
            rests, or when calls are refused again and again and none passes.
        """
        self.in_flight -= 1
        now, told_s = self._clock(), min(retry_after_s or 0.0, LONGEST_TOLD_S)
        if outcome is Outcome.UNAVAILABLE:
            self._unavailable(ticket, now, told_s)
        elif outcome is not Outcome.OTHER:
            self.gone_since_s, self._rest_s, self._unavailable_in_row = None, 0.0, 0
            if outcome is Outcome.REFUSED:
                self._refused(ticket, now, told_s)
            else:
                self._passed_at_s, self._refused_in_row = now, 0
                if self._pace.per_second is None:
                    self._cap.passed(ticket)
                self._pace.passed(now)

    def _refused(self, ticket: Ticket, now: float, told_s: float) -> None:
        self._refused_in_row += 1
        self._refused_at = self._wall_clock()
        if self._members > 1:
            self._hear()  # another process may just have learned the same
        beside = self.in_flight + (self._slots.held_by_others() if self._members > 1 else 0)
        held, fell = self._cap.held, False
        if self._pace.per_second is None:
            fell = self._cap.refused(ticket, beside)
            if self._cap.held == held and not ticket.is_probe:
                # There are no fewer calls in flight for this refusal, so the next call would be refused too.
                pause_s = FIRST_PAUSE_S * 2 ** min(self._refused_in_row - 1, 20)
                self._not_before_s = now + min(pause_s, LONGEST_PAUSE_S)
        is_alone = beside == ticket.place == 0
        if not (is_alone and told_s):  # such a wait binds the row, and says nothing of the others
            self._pace.refused(now, ticket.began_s, is_alone=is_alone, fell=fell)
        if beside == 0 and self._refused_in_row > 1:
            # Not this row alone: calls are refused one after the other, and none is left that could pass.
            self._wait(told_s)
        if self._members > 1:
            self._tell()

    def _unavailable(self, ticket: Ticket, now: float, told_s: float) -> None:
        if self.gone_since_s is None:
            self.gone_since_s = ticket.began_s
        if ticket.began_s <= self._rested_at_s:
            return  # it was in flight when this rest began
        self._unavailable_in_row += 1
        took_s = now - ticket.began_s
        hung = took_s >= LONG_CALL_S and self._passed_at_s < ticket.began_s
        if self._rest_s or hung or self._unavailable_in_row >= REST_AFTER:
            longest_s = LONGEST_REST_S if self._others_work() else LONGEST_ONLY_REST_S
            self._rest_s = min(max(FIRST_REST_S, 2 * self._rest_s, took_s), longest_s)
            self._rested_at_s, self._not_before_s = now, now + self._rest_s
            self._wait(told_s)

    def _wait(self, told_s: float) -> None:
        if told_s:
            self._told_until = max(self._told_until, self._wall_clock() + told_s)

    # -- other processes ---------------------------------------------------------------

    def share_out(self) -> None:
        """Look who else uses the lane and what they have learned, and tell them what this run has learned.

        To be called every :data:`SHARE_S`.
        """
        self._members = self._pace.processes = 1 + self._slots.others()
        self._hear()
        self._tell()

    def _hear(self) -> None:
        found = Learned.read(self._file)
        if found is None or found == self._known:
            return
        self._known = found
        self._refused_at = max(self._refused_at, found.refused_at)
        self._cap.adopt(found.cap, is_least=found.is_least)
        if found.per_second:
            self._pace.adopt(found.per_second, self._clock())
        self._heed(found)

    def _heed(self, found: Learned) -> None:
        if found.told_until <= self._wall_clock() + LONGEST_TOLD_S:
            self._told_until = max(self._told_until, found.told_until)

    def _tell(self) -> None:
        per_second = float(f"{self._pace.per_second or 0.0:.2g}")
        ours = Learned(self._cap.held, self._cap.is_least, per_second, self._told_until, self._refused_at)
        if ours != self._known:
            ours.write(self._file)
            self._known = ours

    def close(self) -> None:
        """Keep what was learned and free the permits."""
        self._tell()
        self._slots.close()


class Lanes:
    """All lanes of a run.

    Parameters
    ----------
    specs
        The preferred first.
    max_concurrency
        The most calls in flight in each lane; None for no end.
    folder
        Where the processes of this machine share permits: :func:`speechframe.slots.shared_folder`; None
        where they share none.
    clock, wall_clock
        Seconds that never run back, and Unix time.

    Examples
    --------
    >>> lanes = Lanes([LaneSpec("us-east", "us-east/key", published=5)], max_concurrency=3, folder=None)
    >>> [lane] = lanes.usable()
    >>> lane.room, lane.wait_s()
    (3, 0.0)
    >>> slot = lane.take_permit()
    >>> lane.end(lane.begin(slot), Outcome.PASSED)
    >>> lane.give_permit(slot)
    >>> lanes.close()
    """

    def __init__(
        self,
        specs: Sequence[LaneSpec],
        *,
        max_concurrency: int | None,
        folder: Path | None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._lanes: list[Lane] = []
        for spec in specs:
            others_work = partial(self._works_beside, spec.name)
            clocks = {"clock": clock, "wall_clock": wall_clock}
            self._lanes.append(Lane(spec, max_concurrency, folder, others_work=others_work, **clocks))

    def __iter__(self) -> Iterator[Lane]:
        """Yield all lanes."""
        return iter(self._lanes)

    def usable(self) -> list[Lane]:
        """Return the lanes that may take calls now: a fall-back only while no other lane works."""
        return [
            lane
            for lane in self._lanes
            if not (lane.is_fallback and self._works_beside(lane.name))
            and not (lane.is_resting and lane.wait_s())
        ]

    def all_gone_since(self) -> float | None:
        """Return since when no lane can be reached (``time.monotonic()``); None while one can."""
        times = [lane.gone_since_s for lane in self._lanes]
        return None if None in times else max((at for at in times if at is not None), default=None)

    def close(self) -> None:
        """Keep what was learned and free all permits."""
        for lane in self._lanes:
            lane.close()

    def _works_beside(self, name: str) -> bool:
        """Whether a lane works that is neither this one nor a fall-back."""
        others = (lane for lane in self._lanes if lane.name != name and not lane.is_fallback)
        return any(not lane.is_resting for lane in others)
