"""A run while it goes: outcomes, stopping, waiting, in scripts and in async programs."""

import asyncio
import time

import pytest
from accounts import billed, check_audio, price, statuses

import speechframe as spf


@pytest.fixture(scope="module")
def service(services):
    return services(latency=0.02)


def test_outcomes_come_while_the_run_goes_each_row_once(service, speak, lines):
    texts = lines(40)
    live = speak(service, texts, wait=False, max_concurrency=4)
    assert live.status == "running"
    outcomes = list(live.outcomes())
    assert sorted(int(outcome.row_id) for outcome in outcomes) == list(range(40))
    assert {outcome.status for outcome in outcomes} == {"done"}
    run = live.wait()
    assert run.status == "finished"
    check_audio(run)


def test_stop_lets_calls_in_flight_finish_and_a_resume_makes_the_rest(service, speak, lines):
    texts = lines(60)
    live = speak(service, texts, wait=False, max_concurrency=3)
    for number, _ in enumerate(live.outcomes()):
        if number == 8:
            live.stop()
    run = live.wait()
    assert run.status == "stopped"
    found = statuses(run)
    assert set(found) == {"done", "pending"}
    done = [text for text, status in zip(texts, found, strict=True) if status == "done"]
    assert billed(service, texts) == price(done)
    assert statuses(spf.resume(run, service=service.settings, progress=False)) == ["done"] * 60
    assert billed(service, texts) == price(texts)


def test_a_live_run_is_awaited_and_iterated_in_an_async_program(service, speak, lines, tmp_path):
    async def program():
        live = await spf.aio.generate(
            lines(20), voice="en-US-nora", sample_rate=8000, run_dir=tmp_path / "run", wait=False,
            progress=False, service=service.settings,
        )  # fmt: skip
        seen = [outcome.row_id async for outcome in live.outcomes()]
        return seen, await live

    seen, run = asyncio.run(program())
    assert len(seen) == len(set(seen)) == 20
    assert statuses(run) == ["done"] * 20


def test_an_await_that_is_cancelled_stops_the_run_with_everything_kept(service, speak, lines, tmp_path):
    texts = lines(100)

    before = service.books().answered

    def until_answered(count):
        while service.books().answered < count:
            time.sleep(0.01)

    async def program():
        running = asyncio.create_task(
            spf.aio.generate(
                texts, voice="en-US-nora", sample_rate=8000, run_dir=tmp_path / "run", max_concurrency=3,
                progress=False, service=service.settings,
            )
        )  # fmt: skip
        await asyncio.to_thread(until_answered, before + 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(program())
    found = statuses(spf.open_run(tmp_path / "run"))
    assert {"pending"} < set(found) <= {"done", "pending", "charged_unknown"}
    assert statuses(speak(service, texts)) == ["done"] * len(texts)
    assert billed(service, texts) == price(texts)


def test_progress_says_what_is_done_and_spent(service, speak, lines):
    texts = lines(30)
    live = speak(service, texts, wait=False, max_concurrency=2)
    seen = []
    while live.status == "running":
        seen.append(live.progress.ended)
        time.sleep(0.02)
    live.wait()
    assert seen == sorted(seen)
    assert 0 < len(set(seen)) <= 31
    assert live.progress.ended == 30
