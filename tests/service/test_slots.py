"""Slots of a key: handed from one to the next, first come first, and never lost by whoever gives up waiting."""

import asyncio
import contextlib
import random

import pytest

from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.slots import NoSlot, RequestSlots
from speechframe.spec import chosen
from speechframe.spec.limits import Pool


def key(concurrency=1, name=b"k"):
    return Key(name, "f", 1_000_000, concurrency)


class Floor:
    """Slots of one key, and who came in, in order."""

    def __init__(self, concurrency=1):
        self.slots, self.key = RequestSlots("global"), key(concurrency)
        self.came, self.inside, self.most = [], 0, 0

    async def visit(self, name, leave=None):
        async with self.slots.hold_slot(self.key, Pool.OTHER, waits=True):
            self.came.append(name)
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                if leave is not None:
                    await leave.wait()
            finally:
                self.inside -= 1

    def start(self, name, leave=None):
        return asyncio.ensure_future(self.visit(name, leave))

    def is_clean(self):
        return self.slots.idle.is_set() and not self.slots._taken and not self.slots._queues


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def short_wait(monkeypatch):
    monkeypatch.setattr(chosen, "MAX_QUEUE_SECONDS", 0.05)


async def test_a_slot_is_handed_over_and_nobody_slips_in_between():
    floor, leave, stay = Floor(1), asyncio.Event(), asyncio.Event()
    held = floor.start("held", leave)
    await settle()
    waiting = floor.start("waiting", stay)
    await settle()
    leave.set()
    await held
    # The slot was given back a moment ago, and whoever waits has not yet run.
    with pytest.raises(NoSlot):
        await floor.slots.hold_slot(floor.key, Pool.OTHER).__aenter__()
    stay.set()
    await waiting
    assert floor.came == ["held", "waiting"]
    assert floor.is_clean()


@pytest.mark.usefixtures("short_wait")
async def test_who_waits_too_long_is_sent_away_and_leaves_the_queue():
    floor, leave = Floor(1), asyncio.Event()
    held = floor.start("held", leave)
    await settle()
    with pytest.raises(NoSlot):
        await floor.visit("late")
    assert floor.came == ["held"]
    leave.set()
    await held
    assert floor.is_clean()
    await floor.visit("next")
    assert floor.came == ["held", "next"]


async def test_who_gives_up_after_the_slot_was_handed_over_hands_it_on():
    floor = Floor(2)
    places = [floor.slots.hold_slot(floor.key, Pool.OTHER) for _ in range(2)]
    for place in places:
        await place.__aenter__()
    first, second = floor.start("first"), floor.start("second")
    await settle()
    await places[0].__aexit__(None, None, None)
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert first.cancelled()
    assert floor.came == ["second"]
    await places[1].__aexit__(None, None, None)
    assert floor.is_clean()


@pytest.mark.usefixtures("short_wait")
@pytest.mark.parametrize("seed", range(5))
async def test_whatever_happens_the_cap_holds_and_no_slot_is_lost(seed):
    rng = random.Random(seed)
    cap = rng.randint(1, 4)
    floor = Floor(cap)
    outcomes = []

    async def visitor():
        await asyncio.sleep(rng.random() * 0.1)
        leave = asyncio.Event()
        asyncio.get_running_loop().call_later(rng.random() * 0.06, leave.set)
        try:
            await floor.visit("x", leave)
            outcomes.append("in")
        except NoSlot:
            outcomes.append("away")

    visitors = [asyncio.ensure_future(visitor()) for _ in range(40)]
    for one in rng.sample(visitors, 15):
        asyncio.get_running_loop().call_later(rng.random() * 0.15, one.cancel)
    done = await asyncio.gather(*visitors, return_exceptions=True)
    assert all(result is None or isinstance(result, asyncio.CancelledError) for result in done)
    assert floor.most <= cap
    assert floor.is_clean()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(cap):
            await stack.enter_async_context(floor.slots.hold_slot(floor.key, Pool.OTHER))
        with pytest.raises(NoSlot):
            await floor.slots.hold_slot(floor.key, Pool.OTHER).__aenter__()
    assert "in" in outcomes


def test_bodies_on_disk_are_as_many_as_may_run_and_wait_and_of_one_key_alone():
    slots = RequestSlots("global")
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(slots.count_upload(key(2)))
        with pytest.raises(NoSlot) as full, slots.count_upload(key(2)):
            pass
        assert full.value.concurrency == 2
        with slots.count_upload(key(1, b"other")):
            pass
        # What is read takes no slot: it may stall.
        assert slots.idle.is_set()
    with slots.count_upload(key(2)):
        pass
    assert not slots._uploads
