"""`run.outcomes()`: every outcome once, in threads and in loops, early and late, fast and slow."""

import asyncio
import signal
import threading
import time

import pytest
from faulty import statuses

import speechframe as spf
from speechframe import aio
from speechframe.old_batch.feed import Outcomes
from speechframe.old_batch.outcome import STATES, ChargedUnknown, Done, Failed
from speechframe.old_store import CallStatus

LINES = [f"This is line {i}." for i in range(30)]


def done(number):
    return Done(f"{number:032x}", str(number), 1, 1.0, 1000)


def test_a_summary_lists_every_state_that_the_store_knows():
    assert sorted(STATES) == sorted(status.value for status in CallStatus)


def test_each_row_once_while_it_happens(faulty, speak):
    faulty.delay_s, faulty.held = 0.1, LINES[15:]
    faulty.forever = {LINES[3]: 400}
    run = speak(faulty, LINES, wait=False)
    seen = []
    for outcome in run.outcomes():
        if len(seen) < 15:
            assert run.status == "running"
        seen.append(outcome)
        if len(seen) == 15:
            faulty.held = []
    assert sorted(int(o.row_id) for o in seen) == list(range(30))
    by_row = {o.row_id: o for o in seen}
    assert isinstance(by_row["3"], Failed)
    assert by_row["3"].error.status == 400
    # The frames of a call would keep its request and its answer.
    assert by_row["3"].error.__traceback__ is None
    assert {type(o) for o in seen} == {Done, Failed}
    assert all(o.audio_seconds > 0 and o.credits_millis > 0 for o in seen if isinstance(o, Done))
    assert {o.row_id: o.status for o in seen} == {str(LINES.index(t)): s for t, s in statuses(run).items()}
    # Once more, from the beginning, when it has ended.
    assert [o.row_id for o in run.outcomes()] == [o.row_id for o in seen]


async def test_async_and_in_another_loop_than_the_run(faulty, tmp_path):
    faulty.delay_s = 0.005
    options = {"voice": "nora", "sample_rate": 8000, "progress": False, "service": faulty.settings}
    run = await aio.generate(LINES, run_dir=tmp_path / "a", wait=False, **options)
    assert len([o async for o in run.outcomes()]) == 30
    with pytest.raises(RuntimeError, match="async for"):
        next(iter(run.outcomes()))
    other = spf.generate(LINES, run_dir=tmp_path / "b", wait=False, **options)
    assert len([o async for o in other.outcomes()]) == 30


def test_who_comes_late_or_is_behind_reads_on_from_what_is_kept():
    outcomes = Outcomes(most_kept=4)
    reading = iter(outcomes)
    told = [done(number) for number in range(7)]
    for outcome in told[:2]:
        outcomes.tell(outcome)
    assert [next(reading) for _ in range(2)] == told[:2]
    for outcome in told[2:]:
        outcomes.tell(outcome)
    outcomes.close()
    assert list(reading) == list(outcomes) == told[3:]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_whose_loop_was_closed_under_it_says_so(faulty, tmp_path):
    faulty.delay_s = 1.0
    loop = asyncio.new_event_loop()
    given = {"voice": "nora", "sample_rate": 8000, "progress": False, "service": faulty.settings}
    run = loop.run_until_complete(aio.generate(LINES, run_dir=tmp_path / "run", wait=False, **given))
    loop.close()
    for waits in (run.wait, lambda: list(run.outcomes()), lambda: asyncio.run(run._wait_async())):
        with pytest.raises(RuntimeError, match="was closed before the run had ended"):
            waits()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_ended_by_stop_it_ends_too(faulty, speak):
    faulty.delay_s, faulty.held = 0.1, LINES[8:]
    faulty.forever = {LINES[0]: "hang billed"}
    run = speak(faulty, LINES, wait=False)
    found = []
    for outcome in run.outcomes():
        found.append(outcome)
        if len(found) == 4:
            run.stop(drain=False)
    assert any(isinstance(o, ChargedUnknown) and o.row_id == "0" for o in found)
    assert len(found) < 30


def test_only_a_live_run_has_outcomes(faulty, speak):
    run = speak(faulty, LINES[:2])
    for opened in (run, spf.open_run(run.path)):
        with pytest.raises(RuntimeError, match="wait=False"):
            opened.outcomes()


def test_many_readers_in_threads_get_everything():
    outcomes, found = Outcomes(), [[] for _ in range(5)]

    def read(into):
        into.extend(int(o.row_id) for o in outcomes)

    threads = [threading.Thread(target=read, args=(into,)) for into in found]
    for i, thread in enumerate(threads):
        thread.start()
        for number in range(200 * i, 200 * (i + 1)):
            outcomes.tell(done(number))
    outcomes.close()
    for thread in threads:
        thread.join(60)
    assert found == [list(range(1000))] * 5


async def test_readers_in_a_loop_are_woken_from_another_thread():
    outcomes = Outcomes()

    async def read():
        return [int(o.row_id) async for o in outcomes]

    readers = [asyncio.create_task(read()) for _ in range(3)]

    def tell():
        for number in range(300):
            outcomes.tell(done(number))
            if number % 100 == 0:
                time.sleep(0.01)
        outcomes.close()

    await asyncio.to_thread(tell)
    assert await asyncio.wait_for(asyncio.gather(*readers), 60) == [list(range(300))] * 3


def test_a_reader_that_is_too_slow_goes_on_with_what_is_kept(caplog):
    outcomes = Outcomes(most_kept=10)
    reader = iter(outcomes)
    outcomes.tell(done(0))
    assert next(reader).row_id == "0"
    for number in range(1, 30):
        outcomes.tell(done(number))
    outcomes.close()
    assert [int(o.row_id) for o in reader] == list(range(20, 30))
    assert "19 are only in the run's folder" in caplog.text


def test_a_run_that_is_being_made_says_so_to_whoever_opens_it(faulty, speak):
    faulty.delay_s, faulty.held = 0.05, LINES[4:]
    live = speak(faulty, LINES, wait=False)
    faulty.until(lambda s: len(s.seen) >= 8)
    opened = spf.open_run(live.path)
    assert (opened.status, opened.stopped_because) == ("running", None)
    live.stop()
    faulty.held = []
    live.wait(60)
    assert (opened.status, spf.open_run(live.path).status) == ("stopped", "stopped")
