"""A lane and a service on a clock that jumps: an hour of calls in a second, and the same at every run."""

import asyncio
import contextlib
import heapq
import random
import selectors
import sys
from dataclasses import dataclass, field
from itertools import accumulate
from types import SimpleNamespace

from speechframe.old_batch import learned, limiter, news, permits, turns
from speechframe.old_batch.connection import first_cap
from speechframe.old_batch.limiter import Lane
from speechframe.old_batch.permits import SharedPermits

ANSWER_S = 0.0005
"""What a refusal takes, beside its way."""


class Clock(selectors.SelectSelector):
    """Stands still while something runs, and jumps to what is due next."""

    now_s = 0.0

    def select(self, timeout=None):
        assert timeout is not None, "everybody waits for nothing"
        self.now_s += timeout
        return super().select(0)


def jumping_loop():
    clock = Clock()
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now_s
    return loop


@dataclass
class Way:
    """What a call meets; times are seconds, and nothing happens but by the dice.

    Parameters
    ----------
    jitter_s
        Mean of what a call and an answer are late by: calls that start together arrive in any order.
    caps
        Calls the service lets in at once, and for how many seconds.
    rate, burst
        Calls it lets in a second.
    odd
        Share of calls it refuses whatever is in flight.
    latency_s
        Mean time of a call that is let in.
    """

    seed: int
    jitter_s: float = 0.0
    caps: tuple[tuple[int, float], ...] = ()
    rate: float | None = None
    burst: int = 1
    odd: float = 0.0
    latency_s: float = 0.1
    inside: int = 0
    tokens: float = 0.0
    seen_s: float = 0.0
    began_s: float | None = None
    dice: random.Random = field(init=False)

    def __post_init__(self):
        self.dice, self.tokens = random.Random(self.seed), float(self.burst)

    async def pass_along(self):
        await asyncio.sleep(ANSWER_S + self.dice.expovariate(1) * self.jitter_s)

    def lets_in(self, now_s):
        """Say whether a call that arrives now is let in; as a bucket of tokens where there is a rate."""
        if self.dice.random() < self.odd or (self.caps and self.inside >= self.cap_at(now_s)):
            return False
        if self.rate is not None:
            self.tokens = min(self.burst, self.tokens + (now_s - self.seen_s) * self.rate)
            self.seen_s = now_s
            if self.tokens < 1:
                return False
            self.tokens -= 1
        return True

    def cap_at(self, now_s):
        self.began_s = now_s if self.began_s is None else self.began_s
        ends_s = accumulate((lasts_s for _, lasts_s in self.caps), initial=self.began_s)
        return next(cap for (cap, _), end_s in zip(self.caps, list(ends_s)[1:], strict=True) if now_s < end_s)

    async def call(self, now_s):
        """Return whether the call was let in, when its answer has come back."""
        await self.pass_along()
        is_let_in = self.lets_in(now_s())
        if is_let_in:
            self.inside += 1
            await asyncio.sleep(self.latency_s * self.dice.uniform(0.5, 1.5))
            self.inside -= 1
        await self.pass_along()
        return is_let_in


@dataclass
class Trip:
    """What came of some calls."""

    refused: int = 0
    lasted_s: float = 0.0


def made(calls, way, *, most, told_s=1.0):
    """Make so many calls through one lane; a refused one waits as long as it is told and comes again."""
    with _jumping(way.seed) as runner:
        lane = Lane("here", first_cap(None, most), width=most or sys.maxsize)
        return runner.run(_made(calls, way, runner.get_loop().time, lane, told_s))


def made_by_several(runs, way, folder, *, told_s=1.0):
    """Make the calls of several runs that share a key: when each begins, its calls, and `most` of it."""
    with _jumping(way.seed) as runner:

        async def begun(begins_s, calls, most):
            # Hands are older than now.
            await asyncio.sleep(1 + begins_s)
            lane = Lane(
                "here", first_cap(None, most), width=most or limiter.MOST_CONCURRENCY,
                permits=SharedPermits(folder, name="key"),
            )  # fmt: skip
            return await _made(calls, way, runner.get_loop().time, lane, told_s)

        async def all_of_them():
            return await asyncio.gather(*(begun(*run) for run in runs))

        return runner.run(all_of_them())


@contextlib.contextmanager
def _jumping(seed):
    loop, modules = jumping_loop(), (limiter, news, permits, learned, turns)
    before = [module.time for module in modules]
    clock = SimpleNamespace(monotonic=loop.time, time=loop.time, monotonic_ns=lambda: int(1e9 * loop.time()))
    for module in modules:
        module.time = clock
    # How long a lane pauses is drawn.
    random.seed(seed)
    try:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            yield runner
    finally:
        for module, time in zip(modules, before, strict=True):
            module.time = time


async def _made(calls, way, now_s, lane, told_s):
    trip, began_s, waiting, left, due = Trip(), now_s(), calls, calls, []
    changed, finished = asyncio.Event(), asyncio.Event()

    async def is_taken():
        """Take a call that is due, or wait for one; say whether there was any."""
        nonlocal waiting
        while not finished.is_set():
            while due and due[0] <= now_s():
                heapq.heappop(due)
                waiting += 1
            if waiting:
                waiting -= 1
                return True
            changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due[0] if due else None):
                    await changed.wait()
        return False

    async def work():
        nonlocal left, waiting
        while await is_taken() and (place := await lane.enter(finished)) is not None:
            if not lane.takes_turn():
                waiting += 1
                lane.leave(place, None)
                continue
            ticket = lane.begin()
            if await way.call(now_s):
                lane.passed(ticket)
                left -= 1
            else:
                trip.refused += 1
                lane.refused(ticket, told_s=told_s)
                heapq.heappush(due, now_s() + told_s)
            if not left:
                finished.set()
                lane.wake_all()
            changed.set()
            lane.leave(place, ticket)

    await asyncio.gather(*(work() for _ in range(min(lane.width, limiter.MOST_CONCURRENCY))))
    lane.close()
    trip.lasted_s = now_s() - began_s
    return trip
