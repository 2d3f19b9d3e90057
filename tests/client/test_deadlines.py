"""Time limits over one timer: who is late ends, and nobody else."""

import asyncio
import time

import pytest

from speechframe.old_client._deadlines import Deadline, Deadlines


@pytest.fixture
async def deadlines():
    made = Deadlines(asyncio.get_running_loop())
    yield made
    made.close()


@pytest.fixture
async def move(monkeypatch):
    """Let the loop's clock stand still, but for what it is moved: no time passes where it may not."""
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now_s)

    async def moved(by_s):
        nonlocal now_s
        now_s += by_s
        for _ in range(5):
            await asyncio.sleep(0)

    return moved


async def sleeping(deadlines, timeout_s, sleep_s):
    """Return whether a block was ended."""
    try:
        with Deadline(deadlines, timeout_s):
            await asyncio.sleep(sleep_s)
    except TimeoutError:
        return True
    return False


async def test_a_block_in_time_is_left_alone_and_its_task_too(deadlines):
    with Deadline(deadlines, 30):
        await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0
    await asyncio.sleep(0)


async def test_what_comes_after_a_block_has_no_limit(deadlines, move):
    with Deadline(deadlines, 0.02):
        await move(0.01)
    await move(0.1)


async def test_a_block_that_takes_too_long_ends(deadlines):
    start_s = time.monotonic()
    assert await sleeping(deadlines, 0.02, 20)
    assert 0.02 <= time.monotonic() - start_s < 10
    assert asyncio.current_task().cancelling() == 0


@pytest.mark.parametrize("timeout_s", [0, -1.0])
async def test_no_time_at_all_ends_a_block_at_its_first_wait(deadlines, timeout_s):
    assert await sleeping(deadlines, timeout_s, 20)


async def test_each_of_many_ends_at_its_own_time_whatever_their_order(deadlines):
    limits_s = [20, 0.04, 20, 0.02, 0.06, 20]
    tasks = [asyncio.create_task(sleeping(deadlines, limit_s, 0.3)) for limit_s in limits_s]
    assert await asyncio.gather(*tasks) == [False, True, False, True, True, False]


async def test_a_later_limit_is_kept_when_an_earlier_one_was_removed(deadlines, move):
    early = asyncio.create_task(sleeping(deadlines, 0.02, 0))
    late = asyncio.create_task(sleeping(deadlines, 0.05, 20))
    await move(0)
    await move(0.03)
    assert (early.done(), late.done()) == (True, False)
    await move(0.03)
    assert await asyncio.gather(early, late) == [False, True]


async def test_many_blocks_set_one_timer(deadlines, monkeypatch):
    loop, made = asyncio.get_running_loop(), []
    call_at = loop.call_at
    monkeypatch.setattr(loop, "call_at", lambda when, *rest: made.append(when) or call_at(when, *rest))
    for _ in range(100):
        with Deadline(deadlines, 30):
            pass
    assert len(made) == 1


async def test_who_is_cancelled_stays_cancelled(deadlines):
    task = asyncio.create_task(sleeping(deadlines, 30, 20))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_is_cancelled_when_time_is_up_stays_cancelled(deadlines):
    async def late():
        with Deadline(deadlines, 0.01):
            try:
                await asyncio.sleep(20)
            finally:
                task.cancel()

    task = asyncio.create_task(late())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_inner_limit_ends_the_inner_block_alone(deadlines):
    with Deadline(deadlines, 30):
        assert await sleeping(deadlines, 0.01, 20)
        await asyncio.sleep(0)


async def test_an_outer_limit_ends_both(deadlines):
    with pytest.raises(TimeoutError), Deadline(deadlines, 0.01):
        await sleeping(deadlines, 30, 20)


async def test_an_error_within_a_block_is_that_error(deadlines):
    with pytest.raises(LookupError), Deadline(deadlines, 30):
        raise LookupError
