"""Lanes: how many calls may be in flight, and where.

A lane is a key, a region and a pool of the service (section 8: contexts and
streams share one pool, everything else the other). It learns its cap
(:mod:`speechframe.old_batch.cap`) and, where that does not explain what is refused,
a rate (:mod:`speechframe.old_batch.rate`); its places may be shared by all
processes of the machine that use the key (:mod:`speechframe.old_batch.permits`).
"""

import asyncio
import logging
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from uuid import uuid4

from speechframe.old_batch.cap import Cap, Ticket
from speechframe.old_batch.news import FEW, News
from speechframe.old_batch.permits import POLL_S, SharedPermits
from speechframe.old_batch.rate import Rate
from speechframe.old_batch.retry import LONGEST_DELAY_S, delay_s
from speechframe.spec.limits import Pool

log = logging.getLogger(__name__)

MOST_CONCURRENCY = 256
"""Calls in flight where nobody says an end and nothing is refused."""

_LOOK_EVERY_S = 0.05
"""Seconds between two looks at who else takes places, and what they have learned. A look for every call
would cost more than all the rest of a lane."""

_STAND_BY_S = 0.05
STARVED_S = 5.0
"""How long a run may be without any place before it says so."""

_ASK_AGAIN_S = 30.0
"""So long after the last refusal a lane asks for more, however many were refused before, however few go."""

_ALONE_MOST = 5
"""Refusals in a row of calls that were alone, after which pacing is no help either."""


@dataclass
class Lane:
    """Places of one key in one region and pool.

    Parameters
    ----------
    region
        The region's name.
    cap
        How many calls may be in flight, of all processes with the key.
    pool
        The service's pool.
    width
        How many of them may be this run's.
    permits
        Who else takes places; nobody, when not given.
    stands_in_for
        Lanes that must all rest before this one takes a row: the global address comes last.

    Attributes
    ----------
    in_flight, most_in_flight, refusals
        Counters of calls.
    rests
        Rests in a row, each longer than the one before; 0 after an answer.
    silences
        How many of those in a row came without any answer.
    passed_at
        When the last answer came that was neither a refusal nor a rest (``time.monotonic()``).
    """

    region: str
    cap: Cap
    pool: str = Pool.OTHER
    width: int = sys.maxsize
    permits: SharedPermits = field(default_factory=lambda: SharedPermits(None, name=uuid4().hex))
    stands_in_for: "tuple[Lane, ...]" = ()
    in_flight: int = 0
    most_in_flight: int = 0
    refusals: int = 0
    rests: int = 0
    silences: int = 0
    passed_at: float = float("-inf")
    rate: Rate = field(default_factory=Rate)
    _begun_at: float = 0.0
    _starved_at: float | None = None
    _has_said: bool = False
    _paused_until: float = 0.0
    _rested_at: float = 0.0
    _silent_since: float = 0.0
    _refused_at: float = float("-inf")
    _alone: int = 0
    _taken: int = 0
    _kept: list[int] = field(default_factory=list, repr=False)
    _gives_soon: bool = False
    _is_shared: bool = False
    _look_at: float = float("-inf")
    _alarm: asyncio.TimerHandle | None = field(default=None, repr=False)
    _waiters: "deque[asyncio.Future[None]]" = field(default_factory=deque, repr=False)

    def __post_init__(self) -> None:
        self._news = News(self.cap, self.rate, self.permits)

    @property
    def name(self) -> str:
        """``region/pool``, as the ``lane`` column says it."""
        return f"{self.region}/{self.pool}"

    @property
    def limit(self) -> int:
        """How many calls of this run may be in flight now."""
        return min(self._limit_of_all, self.width)

    @property
    def _limit_of_all(self) -> int:
        return self.cap.limit if self.rate.per_second is None else self.cap.most

    @property
    def is_paused(self) -> bool:
        """Whether no call may start now."""
        return self._paused_until > time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the first of the attempts that all came to nothing."""
        return time.monotonic() - self._silent_since if self.silences else 0.0

    # -- in and out -----------------------------------------------------------------

    async def enter(self, finished: asyncio.Event) -> int | None:
        """Wait for a place and return it; None when `finished` was set before."""
        while not finished.is_set():
            now = time.monotonic()
            wait_s: float | None = self._wait_s(now)
            if not wait_s:
                if now >= self._look_at:
                    self._look_at = now + _LOOK_EVERY_S
                    self._look()
                    self._news.hear(now, is_shared=self._is_shared)
                place = self._take()
                if place is not None:
                    self._taken, self._starved_at = self._taken + 1, None
                    # Whoever waits next looks after the clock from here on.
                    self._wake()
                    return place
                self._look()
                self._note_starved(now)
                # One of ours wakes us; of others' we hear nothing.
                wait_s = POLL_S if self._is_shared or not self._taken else None
            await self._sleep(wait_s)
        return None

    @property
    def _processes(self) -> int:
        """How many use the lane now."""
        return 1 + self.permits.others() if self._is_shared else 1

    def takes_turn(self) -> bool:
        """Take this run's turn among all that pace their calls; False where a call is not to begin yet.

        Only a call takes one, right before it begins: not whoever looks for a row, or finds its answer in a
        cache. Refused, nobody enters before it is to be asked for again.
        """
        if self.rate.per_second is None or not self._is_shared:
            return True
        now = time.monotonic()
        wait_s = self.rate.wait_s(now) or self.permits.turn_s(1 / self.rate.per_second)
        self.rate.put_off(now + wait_s)
        return not wait_s

    def _note_starved(self, now: float) -> None:
        """Say once, when this run has had no place for a while, who has them all."""
        if self._taken or not self._is_shared:
            return
        if self._starved_at is None:
            self._starved_at = now + STARVED_S
        elif now >= self._starved_at and not self._has_said:
            self._has_said = True
            log.warning(
                "%s: other processes have had all %d places of the key for %.0f s, so this run waits; one "
                "that was stopped (Ctrl-Z) keeps its places until it goes on or ends",
                self.name, self._limit_of_all, STARVED_S,
            )  # fmt: skip

    def begin(self) -> Ticket:
        """Note that a call starts on the place that was taken last."""
        ticket = self.cap.start_call(self._beside() if self._is_shared else self.in_flight)
        self._begun_at = time.monotonic()
        if self.rate.per_second is not None:
            self.rate.begin(self._begun_at, ticket.number)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return ticket

    def leave(self, place: int, ticket: Ticket | None) -> None:
        """Give a place back, with the call that was on it."""
        if self._is_shared:
            self.permits.give(place)
        else:
            self._keep(place)
        self._taken -= 1
        if ticket is not None:
            self.in_flight -= 1
            if ticket.is_probe:
                self.cap.forget_probe(ticket)
        self._wake()

    def _take(self) -> int | None:
        if self._taken >= self.width:
            return None
        limit, is_probe = self._limit_of_all, False
        if self.rate.per_second is None and self.cap.doubts_one:
            # What is found out is told by one of ours, beside one of ours.
            limit, is_probe = (limit, True) if self.in_flight else (self.cap.held, False)
        if self._kept and self.permits.held_here() <= limit:
            return self._kept.pop()
        self._give_kept()
        return self.permits.try_take(limit, out_of_turn=is_probe)

    def _keep(self, place: int) -> None:
        # Whoever gives a place back nearly always takes the next row at once: to ask the kernel for the same
        # place again would cost more than all the rest of a lane.
        self._kept.append(place)
        if not self._gives_soon:
            self._gives_soon = True
            asyncio.get_running_loop().call_soon(self._give_kept)

    def _give_kept(self) -> None:
        self._gives_soon = False
        while self._kept:
            self.permits.give(self._kept.pop())

    def close(self) -> None:
        """Leave the places to others."""
        self._kept.clear()
        self.permits.close()

    def wake_all(self) -> None:
        """Let everybody who waits look again."""
        while self._waiters:
            self._wake()

    def _wait_s(self, now: float) -> float:
        if self.stands_in_for and any(not lane.is_paused for lane in self.stands_in_for):
            return _STAND_BY_S
        if now >= self._paused_until and self.rate.per_second is None:
            if not self.cap.doubts_one or not self.in_flight:
                return 0.0
            # In the middle between two others a limit of calls a second lets it in, a cap of one does not.
            return max(0.0, self._begun_at + self.rate.gap_s / (2 * self._processes) - now)
        return max(self._paused_until - now, self.rate.wait_s(now), 0.0)

    async def _sleep(self, seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        if seconds is not None:
            self._set_alarm(loop, loop.time() + seconds)
        waiter = loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            # Woken and cancelled at once: the next one must not sleep on.
            self._wake()
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        # One for all who wait: it wakes one of them, who sets it again or takes a place and wakes the next.
        if self._alarm is not None:
            if self._alarm.when() <= at:
                return
            self._alarm.cancel()
        self._alarm = loop.call_at(at, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    # -- what answers tell -----------------------------------------------------------

    def passed(self, ticket: Ticket) -> None:
        """Note an answer that is neither a refusal nor a sign that the region is down."""
        self.passed_at = now = time.monotonic()
        self.rests = self.silences = self._alone = 0
        self.rate.passed(now, ticket.number)
        if now - self._refused_at > _ASK_AGAIN_S:
            self._refused_at = now
            self.cap.ask_again()
        if self.cap.passed(ticket, beside=self._beside()):
            self.rate.doubted(now)
        if self._news.is_untold:
            self._news.tell(now, is_shared=self._is_shared)

    def refused(self, ticket: Ticket, *, told_s: float | None = None) -> None:
        """Note a refusal by a cap or a rate.

        Parameters
        ----------
        ticket
            The call's.
        told_s
            Seconds the service asked the call to wait.
        """
        self.refusals += 1
        self.rests = self.silences = 0
        self._look()
        beside, now = self._beside(), time.monotonic()
        self._news.hear(now, is_shared=self._is_shared)
        self._refused_at = now
        # Neither when it began nor now: between them, a call that ended may have had its place.
        is_alone = ticket.beside == beside == 0
        if self.rate.per_second is not None:
            self.rate.refused(now, ticket.number)
        else:
            held, begins_to_fall = self.cap.held, self.cap.refused(ticket, beside=beside)
            if is_alone:
                self.rate.refused_alone(now, held=held, processes=self._processes)
            elif begins_to_fall:
                self.rate.fell(now, ticket.beside, processes=self._processes)
            elif ticket.beside <= FEW:
                self.rate.refused_few(now, processes=self._processes)
        if is_alone:
            self._alone += 1
            if self.rate.per_second is None or self._alone > _ALONE_MOST:
                # Nothing tells when the next would be let in but what this one was told. The row of this one
                # waits for that in any case.
                self.pause(max(delay_s(min(self._alone, _ALONE_MOST)), min(told_s or 0.0, LONGEST_DELAY_S)))
        self._news.tell_refused(now, is_shared=self._is_shared)

    def _look(self) -> None:
        """See whether anybody else takes places."""
        own = self._taken + len(self._kept)
        self._is_shared = self.permits.others() > 0 or self.permits.held_here() > own
        if self._is_shared:
            self._give_kept()

    def _beside(self) -> int:
        """Return how many calls are in flight beside one of this run."""
        return (self.permits.held() if self._is_shared else self.in_flight) - 1

    def pause(self, seconds: float) -> None:
        """Start no call for `seconds`: the service asked for it, or the region is down."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    def rest(self, began: float, *, told_s: float | None = None, silent: bool) -> None:
        """Start no call for a while: an attempt found the region down.

        What was in flight with that attempt fails with it; all of them are one rest.

        Parameters
        ----------
        began
            When the attempt began (``time.monotonic()``).
        told_s
            Seconds the service asked for.
        silent
            There was no answer at all.
        """
        if began >= self._rested_at:
            self._rested_at = time.monotonic()
            self.rests += 1
            if silent and not self.silences:
                self._silent_since = began
            self.silences = self.silences + 1 if silent else 0
            self.pause(delay_s(self.rests))
        # What one call was told holds for that call; the region is looked at again before long.
        self.pause(min(told_s or 0.0, LONGEST_DELAY_S))
