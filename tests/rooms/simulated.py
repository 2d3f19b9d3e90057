"""A service with a cap or a rate, and runs that call it, in simulated time: an hour takes a second."""

import heapq
import itertools
import random

from speechframe import Answer
from speechframe.batch.lanes import SHARING_PERIOD_S, choose_lanes
from speechframe.errors import make_service_error

WAY_S = 0.001
"""From a run to the service, and back."""


def refused(wait_s):
    return make_service_error("too many calls", status=429, retry_after_s=wait_s)


PASSED, REFUSED, UNAVAILABLE = Answer(None), refused(None), make_service_error("down", status=503)


class Service:
    """Lets in so many calls at once, and so many per second; answers them after `latency_s` or so."""

    def __init__(self, world, *, caps=((0.0, None),), rate=None, burst=1, latency_s=0.2, seed=0):
        self.world, self.caps, self.rate, self.latency_s = world, caps, rate, latency_s
        self.tokens, self.burst, self.filled_s = burst, burst, 0.0
        self.in_flight = self.most_in_flight = self.passed = self.refused = 0
        self.random = random.Random(seed)

    def cap_at(self, now):
        return [cap for since, cap in self.caps if since <= now][-1]

    def lets_in(self):
        now = self.world.now
        cap = self.cap_at(now)
        if cap is not None and self.in_flight >= cap:
            return False
        if self.rate is not None:
            self.tokens = min(self.burst, self.tokens + (now - self.filled_s) * self.rate)
            self.filled_s = now
            if self.tokens < 1:
                return False
            self.tokens -= 1
        return True

    def call(self):
        """One call, as steps of seconds; returns its outcome."""
        yield WAY_S
        if not self.lets_in():
            self.refused += 1
            yield WAY_S
            return REFUSED
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        yield self.latency_s * self.random.lognormvariate(0, 0.3) / 1.046
        self.in_flight -= 1
        self.passed += 1
        yield WAY_S
        return PASSED


class World:
    """A clock, and what is to go on at which time."""

    def __init__(self):
        self.now, self._order, self._due = 0.0, itertools.count(), []

    def clock(self):
        return self.now

    def start(self, steps, at=None):
        heapq.heappush(self._due, (self.now if at is None else at, next(self._order), steps))

    def run(self, until_s=3600.0):
        while self._due and self._due[0][0] <= until_s:
            self.now, _, steps = heapq.heappop(self._due)
            for wait_s in steps:
                self.start(steps, self.now + wait_s)
                break


class Run:
    """What a run does with its lanes: workers that each make one call after the other."""

    def __init__(self, world, lanes, call_of, rows, *, starts_s=0.0):
        self.world, self.lanes, self.call_of, self.rows = world, lanes, call_of, rows
        self.ended_s = None
        self.outcomes = []
        world.start(self.tick(), at=starts_s)

    def tick(self):
        while self.rows or any(lane.workers for lane in self.lanes):
            for lane in self.lanes:
                lane.share_learned()
            self.staff()
            yield SHARING_PERIOD_S
        for lane in self.lanes:
            lane.close()

    def staff(self):
        for lane in choose_lanes(self.lanes):
            while lane.workers_to_add > 0 and self.rows:
                lane.workers += 1
                self.world.start(self.work(lane))

    def work(self, lane):
        slot = None
        while self.rows and (more := lane.workers_to_add) >= 0:
            if more > 0:
                self.staff()
            if (slot := lane.take_permit(slot)) is None:
                yield SHARING_PERIOD_S
            elif wait_s := lane.compute_wait_s():
                yield min(wait_s, SHARING_PERIOD_S)
            else:
                self.rows -= 1
                ticket = lane.begin(slot)
                outcome = yield from self.call_of(lane.name)
                lane.end(ticket, outcome)
                self.outcomes.append((self.world.now, lane.name, outcome))
                self.rows += outcome is not PASSED
                self.ended_s = self.world.now
        lane.workers -= 1
        if slot is not None:
            lane.give_permit_back(slot)
