"""A live run: who follows it, who waits for it, and what Ctrl-C, SIGTERM and cancellation do."""

import asyncio
import re
import signal
import subprocess
import sys
import time

import pytest

from speechframe._loop import INTERRUPT, run_sync
from speechframe.batch.live import Live, Outcome, Run
from speechframe.batch.options import Options
from speechframe.batch.progress import Progress
from speechframe.errors import StoreError


class Calls:
    """Calls, one after the other; told to stop, the one in flight finishes or is cancelled."""

    def __init__(self, count, seconds, *, wait=False):
        self.count, self.seconds = count, seconds
        self.stopped = []
        self.made = 0
        self.cancelled = asyncio.Event()
        options = Options(wait=wait, progress=False)
        self.live = Live(stop=self.stop, progress=Progress("call", count, False, "calls"), options=options)
        # Only the live side of the run is looked at: it needs no folder.
        self.run = Run.__new__(Run)
        self.run.attach(self.live, asyncio.create_task(self.make()))

    def stop(self, drain, reason):
        self.stopped.append((drain, reason.value))
        if not drain:
            self.cancelled.set()

    async def make(self):
        for number in range(self.count):
            if self.stopped:
                break
            try:
                async with asyncio.timeout(self.seconds):
                    await self.cancelled.wait()
            except TimeoutError:
                self.made += 1
                self.live.outcome(Outcome(str(number), f"{number:02}", "done", 1, 1.0, 1000))
            else:
                self.live.outcome(Outcome(str(number), f"{number:02}", "charged_unknown", 1))
        # What a run does at its end is not to be cut off either.
        await asyncio.sleep(0.05)
        self.live.close(None)


def follow(calls, seen):
    async def reader():
        async for outcome in calls.run.outcomes():
            seen.append(outcome.row_id)

    return asyncio.create_task(reader())


async def test_readers_that_come_at_any_time_get_every_outcome_once():
    calls = Calls(40, 0.005)
    early, late = [], []
    first = follow(calls, early)
    await asyncio.sleep(0.05)
    thread = asyncio.create_task(asyncio.to_thread(lambda: [o.row_id for o in calls.run.outcomes()]))
    await asyncio.gather(first, thread)
    await follow(calls, late)
    assert early == late == thread.result() == [str(number) for number in range(40)]
    assert calls.run.progress.ended == 40
    assert (await calls.run) is calls.run


async def test_waiting_in_the_loop_of_the_run_is_refused_and_an_ended_run_is_not_waited_for():
    calls = Calls(1, 0.1)
    with pytest.raises(RuntimeError, match="use `await run`"):
        calls.run.wait()
    with pytest.raises(RuntimeError, match="use `async for`"):
        next(iter(calls.run.outcomes()))
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(calls.run.wait, 0.01)
    await calls.run
    assert calls.run.wait() is calls.run


@pytest.mark.parametrize("others", [False, True])
async def test_a_reader_that_is_cancelled_stops_a_run_that_nobody_else_follows(others):
    calls = Calls(8, 0.05)
    waiting = asyncio.create_task(asyncio.to_thread(calls.run.wait)) if others else None
    reader = follow(calls, [])
    await asyncio.sleep(0.07)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    if waiting is None:
        assert calls.live.ended.done()
        assert calls.stopped == [(True, "interrupted")]
        assert calls.run.progress.unknown == 0, "the call in flight was not waited for"
        assert calls.made < 8
    else:
        await waiting
        assert (calls.stopped, calls.made) == ([], 8)


async def test_a_timeout_around_await_lets_calls_in_flight_finish_and_a_shielded_one_only_leaves():
    calls = Calls(8, 0.05)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await asyncio.shield(calls.run)
    assert calls.stopped == []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await calls.run
    assert (calls.stopped, calls.live.ended.done()) == ([(True, "interrupted")], True)
    assert 1 <= calls.made < 8
    assert calls.run.progress.unknown == 0


async def test_cancelled_twice_who_waits_cancels_calls_in_flight():
    calls = Calls(8, 60)
    waiting = asyncio.ensure_future(calls.run)
    for _ in range(2):
        await asyncio.sleep(0.05)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert calls.stopped == [(True, "interrupted"), (False, "interrupted")]
    assert calls.run.progress.unknown == 1


async def test_ctrl_c_in_a_synchronous_call_gets_the_run_instead_of_a_cancellation():
    calls = Calls(8, 0.05, wait=True)
    waiting = asyncio.create_task(calls.run.hand_over())
    await asyncio.sleep(0.02)
    waiting.cancel(INTERRUPT)
    assert await waiting is calls.run
    assert calls.stopped == [(True, "interrupted")]
    assert 1 <= calls.made < 8


async def test_what_ended_a_run_is_raised_to_all_who_wait():
    calls = Calls(8, 60)
    waiting = [asyncio.ensure_future(calls.run), asyncio.create_task(asyncio.to_thread(calls.run.wait))]
    await asyncio.sleep(0.05)
    calls.live.close(StoreError("the disk is full"))
    for who in waiting:
        with pytest.raises(StoreError):
            await who


def test_a_run_whose_loop_was_closed_is_not_waited_for_for_ever():
    loop = asyncio.new_event_loop()

    async def begin():
        return Calls(8, 60)

    calls = loop.run_until_complete(begin())
    calls.run._task._log_destroy_pending = False
    loop.close()
    with pytest.raises(RuntimeError, match="was closed before the run had ended"):
        calls.run.wait()
    with pytest.raises(RuntimeError, match="was closed before the run had ended"):
        list(calls.run.outcomes())


# -- the same in programs of their own ------------------------------------------------


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def begin(count, seconds):
    return Calls(count, seconds)


async def awaited(way, count, seconds):
    calls = Calls(count, seconds)
    try:
        say("begun")
        if way == "await":
            await calls.run
        else:
            async for _ in calls.run.outcomes():
                pass
    finally:
        say(calls.made, calls.stopped, calls.live.ended.done())
    say("went on")


def main(way, count, seconds):
    if way in {"await", "async for"}:
        asyncio.run(awaited(way, count, seconds))
        return
    calls = run_sync(begin(count, seconds))
    try:
        say("begun")
        if way == "wait":
            calls.run.wait()
        elif way == "for":
            for _ in calls.run.outcomes():
                pass
        else:
            time.sleep(60)
    finally:
        say(calls.made, calls.stopped, calls.live.ended.done())
    say("went on")


def program(way, count=200, seconds=0.5):
    process = subprocess.Popen(
        [sys.executable, __file__, way, str(count), str(seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.2)
    return process


@pytest.mark.parametrize("way", ["wait", "for", "await", "async for"])
def test_ctrl_c_lets_the_call_in_flight_finish(way):
    process = program(way)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert re.fullmatch(r"[1-9] \[\(True, 'interrupted'\)\] True\n", out)
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    assert "never retrieved" not in err


def test_a_second_ctrl_c_cancels_the_call_in_flight():
    process = program("for", seconds=60)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, _ = process.communicate(timeout=30)
    assert out == "0 [(True, 'interrupted'), (False, 'interrupted')] True\n"


@pytest.mark.parametrize("way", ["wait", "for", "await", "async for", "asleep"])
def test_sigterm_lets_the_call_in_flight_finish_and_ends_the_process(way):
    process = program(way)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "went on" not in out
    assert "Traceback" not in err
    if way:
        assert re.match(r"[1-9] \[\(True, 'interrupted'\)", out)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wait", "await"])
def test_sigterm_waits_for_no_more_than_eight_seconds(way):
    process = program(way, seconds=600)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert 7 < time.monotonic() - began < 20
    assert process.returncode == 128 + signal.SIGTERM
    assert "(False, 'interrupted')" in out


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
