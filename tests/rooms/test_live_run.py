"""A live run: who follows it, who waits for it, and what Ctrl-C, SIGTERM and cancellation do."""

import asyncio
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

import speechframe as spf


class Slow(spf.Backend):
    """Calls that take `seconds`, one after the other; the row "bad" fails."""

    operation, service = "slow", "slow/1"
    arguments = ("text",)
    columns = pa.schema([("said", pa.string())])

    def __init__(self, seconds):
        self.seconds = seconds

    async def open(self):
        return spf.Opened((spf.LaneSpec("here", f"slow {id(self)}", published=1),))

    async def close(self):
        pass

    def check(self, values):
        body = values["text"].encode()
        return spf.Request(body, body, price=1000, characters=1)

    async def send(self, request, attempt):
        await asyncio.sleep(self.seconds)
        if request.body == b"bad":
            raise spf.BadRequest("bad", status=400)
        return spf.Answer(request.body.decode())

    def records(self, request, answer):
        return [spf.Record({"said": answer.data})]


class Large(Slow):
    """Three calls at once, of whose answers two find room."""

    async def open(self):
        return spf.Opened((spf.LaneSpec("here", f"large {id(self)}", published=3),))

    async def send(self, request, attempt):
        await attempt.admit(100 << 20)
        return await super().send(request, attempt)


@pytest.fixture
def begin(tmp_path):
    return lambda *given, **options: start(tmp_path / "run", *given, **options)


async def start(folder, seconds, rows=8, **options):
    """Return a live run when its first call is in flight."""
    rows = [f"row {number}" for number in range(rows)] if isinstance(rows, int) else rows
    given = {"run_dir": folder, "progress": False, "wait": False, **options}
    run = await spf.aio.run(Slow(seconds), rows, **given)
    await asyncio.sleep(0.3)
    return run


def follow(run, seen):
    async def reader():
        async for outcome in run.outcomes():
            seen.append(int(outcome.row_id))

    return asyncio.create_task(reader())


def ended(run):
    counts = run.progress
    return run.status, run.stopped_because, 1 <= counts.done < counts.total, counts.unknown


IN_ORDER = "stopped", "interrupted", True, 0


async def test_readers_that_come_at_any_time_get_every_outcome_once(begin):
    run = await begin(0.02, rows=40)
    early, late = [], []
    first = follow(run, early)
    await asyncio.sleep(0.05)
    thread = asyncio.create_task(asyncio.to_thread(lambda: [int(o.row_id) for o in run.outcomes()]))
    await asyncio.gather(first, thread)
    await follow(run, late)
    assert early == late == thread.result() == list(range(40))
    assert (await run) is run


async def test_waiting_in_the_loop_of_the_run_is_refused_and_an_ended_run_is_not_waited_for(begin):
    run = await begin(0.1)
    with pytest.raises(RuntimeError, match="use `await run`"):
        run.wait()
    with pytest.raises(RuntimeError, match="use `async for`"):
        next(iter(run.outcomes()))
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(run.wait, 0.01)
    await run
    assert run.wait() is run


@pytest.mark.parametrize("others", [False, True])
async def test_a_reader_that_is_cancelled_stops_a_run_that_nobody_else_follows(begin, others):
    run = await begin(0.2)
    waiting = asyncio.create_task(asyncio.to_thread(run.wait)) if others else None
    reader = follow(run, [])
    await asyncio.sleep(0.1)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    if waiting is None:
        assert ended(run) == IN_ORDER
    else:
        await waiting
        assert run.progress.done == 8


async def test_a_timeout_around_await_lets_calls_in_flight_finish_and_a_shielded_one_only_leaves(begin):
    run = await begin(0.2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await asyncio.shield(run)
    assert run.status == "running"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await run
    assert ended(run) == IN_ORDER


async def test_cancelled_twice_who_waits_cancels_calls_in_flight(begin):
    run = await begin(60)
    waiting = asyncio.ensure_future(run)
    for _ in range(2):
        await asyncio.sleep(0.05)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended(run) == ("stopped", "interrupted", False, 1)


async def test_what_ended_a_run_is_raised_to_all_who_wait(begin):
    run = await begin(0.5, rows=["bad"], on_error="raise")
    for who in [asyncio.ensure_future(run), asyncio.create_task(asyncio.to_thread(run.wait))]:
        with pytest.raises(spf.BadRequest):
            await who


# -- the same in programs of their own ------------------------------------------------


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def awaited(way, folder, seconds):
    run = await start(folder, seconds)
    say("begun")
    try:
        if way == "await":
            await run
        else:
            async for _ in run.outcomes():
                pass
    finally:
        say(*ended(run))
    say("went on")


def main(way, folder, seconds):
    if way == "closed loop":
        loop = asyncio.new_event_loop()
        run = loop.run_until_complete(start(folder, seconds))
        loop.close()
        say("begun")
        for wait in (run.wait, lambda: list(run.outcomes())):
            try:
                wait()
            except RuntimeError as error:
                say(error)
        return
    if way in {"await", "async for"}:
        asyncio.run(awaited(way, folder, seconds))
        return
    run = spf.run(Slow(seconds), list("abcdefgh"), run_dir=folder, progress=False, wait=False)
    time.sleep(0.3)
    say("begun")
    try:
        if way == "wait":
            run.wait()
        elif way == "for":
            list(run.outcomes())
        else:
            time.sleep(60)
    finally:
        say(*ended(run))
    say("went on")


def program(folder, way, seconds=2.0):
    command = [sys.executable, __file__, way, f"{folder}/run", str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.2)
    return process


@pytest.mark.slow
def test_a_run_whose_loop_was_closed_is_not_waited_for_for_ever(tmp_path):
    process = program(tmp_path, "closed loop", seconds=60)
    # Not communicate(): the lines may have come together with the first one, which was read.
    said = process.stdout.read()
    process.communicate(timeout=30)
    assert said.count("was closed before the run had ended; resume() makes the rest") == 2


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wait", "for", "await", "async for"])
def test_ctrl_c_lets_the_call_in_flight_finish(tmp_path, way):
    process = program(tmp_path, way)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert out == "stopped interrupted True 0\n"
    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in err
    assert "never retrieved" not in err


@pytest.mark.slow
def test_a_second_ctrl_c_cancels_the_call_in_flight(tmp_path):
    process = program(tmp_path, "for", seconds=60)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, _ = process.communicate(timeout=30)
    assert out == "stopped interrupted False 1\n"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["await", "wait", "for", "async for", "asleep"])
def test_sigterm_lets_the_call_in_flight_finish_and_ends_the_process(tmp_path, way):
    process = program(tmp_path, way)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in err
    assert out == "stopped interrupted True 0\n"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wait", "await"])
def test_sigterm_waits_for_no_more_than_eight_seconds(tmp_path, way):
    process = program(tmp_path, way, seconds=600)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert 7 < time.monotonic() - began < 20
    assert process.returncode == 128 + signal.SIGTERM
    assert out == "stopped interrupted False 1\n"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))


@pytest.mark.timeout(30)
async def test_a_run_that_is_stopped_while_an_answer_waits_for_room_ends(tmp_path):
    run = await spf.aio.run(Large(0.5), list("abcdef"), run_dir=tmp_path, progress=False, wait=False)
    await asyncio.sleep(0.3)
    run.stop()
    assert (await run).to_pandas()["status"].tolist() == ["done"] * 3 + ["pending"] * 3
