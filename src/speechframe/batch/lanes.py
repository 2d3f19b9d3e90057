"""Lanes: where calls may go, how many of them, and when.

A lane is one address that takes calls with one key. It knows a cap or a pace (`cap`), shares its permits with
the other processes of the machine (`slots`), and rests while its service cannot be reached.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from speechframe import errors
from speechframe.batch.backend import Answer, LaneSpec
from speechframe.batch.cap import MOST_CALLS, Cap, Pace, Ticket
from speechframe.errors import SpeechframeError
from speechframe.slots import Slots
from speechframe.spec.limits import LARGEST_CONCURRENCY, LEAST_CONCURRENCY

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
