"""A lane against a service that is simulated call by call: all of it is real but the clock, which jumps."""

import asyncio
import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from lane_lab import jumping_loop

from speechframe.old_batch import limiter
from speechframe.old_batch.cap import Cap
from speechframe.old_batch.limiter import Lane

RTT_S = 0.003
WIDEST = 100


@dataclass
class Simulated:
    """A service with a cap that may change and a rate, and one lane's calls."""

    true_cap: object
    loop: asyncio.AbstractEventLoop
    start: int = 2
    most: int = WIDEST
    true_rate: float | None = None
    mean_s: float = 0.2
    seed: int = 0
    width: int = WIDEST
    serving: int = 0
    sent: int = 0
    refused: int = 0
    done: int = 0
    last: float = 0.0
    used: float = 0.0
    offered: float = 0.0
    filled: float = 0.0
    held: list = field(default_factory=list)

    def __post_init__(self):
        self.lane = Lane("global", Cap(self.start, self.most), width=self.width)
        self.draw = random.Random(self.seed)
        self.tokens = (self.true_rate or 0) * 0.2

    @property
    def now(self):
        return self.loop.time()

    async def make(self, rows):
        """Make the calls of `rows` rows; whoever is refused goes again."""
        self.left, self.finished = rows, asyncio.Event()
        await asyncio.gather(*(self.work() for _ in range(min(self.most, self.width))))
        assert (self.done, self.lane.in_flight) == (rows, 0)

    async def work(self):
        while self.left and (place := await self.lane.enter(self.finished)) is not None:
            ticket = None
            if self.left:
                self.left -= 1
                ticket = self.lane.begin()
                await self.call(ticket)
            self.lane.leave(place, ticket)
        if not self.left and not self.lane.in_flight:
            self.finished.set()
            self.lane.wake_all()

    async def call(self, ticket):
        self.sent += 1
        assert self.refused <= self.done + WIDEST, "refused again and again"
        self.count()
        if self.serving >= self.true_cap(self.now) or not self.has_token():
            await asyncio.sleep(RTT_S)
            self.refused += 1
            self.left += 1
            self.lane.refused(ticket)
            return
        self.serving += 1
        await asyncio.sleep(RTT_S + self.draw.lognormvariate(math.log(self.mean_s) - 0.125, 0.5))
        self.count()
        self.serving -= 1
        self.done += 1
        self.lane.passed(ticket)

    def count(self):
        """Count what of the cap was used since the last event."""
        cap, seconds = self.true_cap(self.last), self.now - self.last
        self.used += min(self.serving, cap) * seconds
        self.offered += cap * seconds
        self.last = self.now

    def has_token(self):
        if self.true_rate is None:
            return True
        self.tokens = min(self.true_rate * 0.2, self.tokens + (self.now - self.filled) * self.true_rate)
        self.filled = self.now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    @property
    def refused_share(self):
        return self.refused / self.sent

    @property
    def utilisation(self):
        return self.used / self.offered


@pytest.fixture
def simulate(monkeypatch):
    """Make rows on a simulated service, at once."""

    def run(cap, rows, *, rate=None, **options):
        loop = jumping_loop()
        monkeypatch.setattr(limiter, "time", SimpleNamespace(monotonic=loop.time, time=loop.time))
        # How long a lane pauses is drawn.
        random.seed(options.get("seed", 0))
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            found = Simulated(cap, loop, true_rate=rate, **options)
            runner.run(found.make(rows))
        return found

    return run


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_an_unknown_cap_is_found_with_few_refusals(simulate, seed):
    told = simulate(lambda _: 15, 2000, start=15, most=15, seed=seed)
    found = simulate(lambda _: 15, 2000, seed=seed)
    assert found.refused_share <= 0.015
    assert found.now <= 1.04 * told.now
    assert found.lane.cap.held == 15
    assert told.refused == 0


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_cap_that_changes_is_followed(simulate, seed):
    def cap(now):
        return (15, 30, 5, 15)[min(int(now / 15), 3)]

    found = simulate(cap, 3500, seed=seed)
    assert found.refused_share <= 0.02
    assert found.utilisation >= 0.93


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("cap", "start"), [(1, 15), (2, 15), (5, 15), (1, 2), (60, 2), (100, 15)])
def test_any_cap_is_found_from_any_start(simulate, cap, start):
    found = simulate(lambda _: cap, 200 + 60 * cap, start=start)
    assert found.utilisation >= 0.9
    assert abs(found.lane.cap.held - cap) <= max(1, cap // 20)
    assert found.refused_share <= 0.07


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mean_s", [0.2, 0.02])
@pytest.mark.parametrize("seed", range(3))
def test_a_pure_rate_limit_is_paced(simulate, mean_s, seed):
    found = simulate(lambda _: 10**6, 2000, rate=50, mean_s=mean_s, seed=seed)
    assert found.lane.rate.per_second == pytest.approx(50, rel=0.1)
    assert found.now <= 1.15 * 2000 / 50
    assert found.refused_share <= 0.025


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("rate", "mean_s"), [(10, 0.15), (20, 0.1)])
@pytest.mark.parametrize("seed", range(4))
def test_a_rate_that_looks_like_a_cap_of_one_is_paced(simulate, rate, mean_s, seed):
    found = simulate(lambda _: 10**6, 300, rate=rate, mean_s=mean_s, seed=seed)
    assert found.lane.rate.per_second == pytest.approx(rate, rel=0.1)
    # With one call at a time it takes half as long again, and more.
    assert found.now <= 1.15 * 300 / rate


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_cap_that_changes_is_not_taken_for_a_rate(simulate, seed):
    def cap(now):
        return (15, 30, 5, 15, 40, 3)[int(now / 8) % 6]

    assert simulate(cap, 3000, seed=seed).lane.rate.per_second is None
