"""Who waits for a live run in an event loop and is cancelled: what is in flight is kept."""

import asyncio

import pytest
from ends import LINES, check_nothing_is_lost, in_motion
from faulty import RATE_HZ, statuses

from speechframe import aio
from speechframe._loop import run_sync


@pytest.fixture
def live(slow, speak):
    """Start a run in the loop of the test."""

    def start(**options):
        given = {"voice": "nora", "sample_rate": RATE_HZ, "progress": False, "max_concurrency": 4}
        return aio.generate(
            LINES, service=slow.settings, run_dir=speak.folder, wait=False, **given, **options
        )

    return start


async def test_a_timeout_around_a_live_run_loses_nothing(slow, speak, live):
    run = await live()
    await asyncio.to_thread(in_motion, slow)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await run
    assert slow.in_flight == 0
    check_nothing_is_lost(speak.folder, slow)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["await", "async for"])
async def test_cancelled_twice_who_waits_for_a_live_run_cancels_its_calls(slow, live, way):
    slow.forever = {"*": "hang"}
    run = await live()
    waiting = asyncio.ensure_future(run if way == "await" else _followed(run))
    await asyncio.to_thread(slow.until, lambda s: s.in_flight == 4)
    for _ in range(2):
        waiting.cancel()
        await asyncio.sleep(0.1)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(statuses(run).values()) == ["charged_unknown"] * 4 + ["pending"] * (len(LINES) - 4)


async def test_a_timeout_around_a_loop_over_outcomes_loses_nothing(slow, speak, live):
    run = await live()
    await asyncio.to_thread(in_motion, slow)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_followed(run), 0.1)
    assert slow.in_flight == 0
    check_nothing_is_lost(speak.folder, slow)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("other", ["reader", "thread", "await", "wait"])
async def test_who_follows_a_run_beside_others_can_be_cancelled_alone(slow, live, other):
    run = await live() if other in {"reader", "await"} else await asyncio.to_thread(_live_elsewhere, live)
    others = {
        "reader": lambda: _followed(run),
        "thread": lambda: asyncio.to_thread(lambda: [outcome.row_id for outcome in run.outcomes()]),
        "await": run._wait_async,
        "wait": lambda: asyncio.to_thread(run.wait),
    }
    staying = asyncio.create_task(others[other]())
    display = asyncio.create_task(_followed(run))
    await asyncio.to_thread(in_motion, slow)
    display.cancel()
    with pytest.raises(asyncio.CancelledError):
        await display
    slow.delay_s = 0
    await staying
    assert (await run).status == "finished"


async def _followed(run):
    return [outcome.row_id async for outcome in run.outcomes()]


def _live_elsewhere(live):
    return run_sync(live())


async def test_a_shielded_wait_can_be_given_up(slow, live):
    run = await live()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await asyncio.shield(run)
    slow.delay_s = 0
    assert (await run).status == "finished"
