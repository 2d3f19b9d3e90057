"""However a program ends while a run is live: what is in flight is kept, in real processes with real signals."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Future

import pytest
from faulty import RATE_HZ, check_audio, check_books, statuses

import speechframe as spf
from speechframe import _ending, aio
from speechframe._loop import background_loop, run_sync

LINES = [f"This is line {i}." for i in range(24)]
SYNC = ["wait", "loop", "body", "asleep"]
ASYNC = ["await verb", "await live", "async for", "async body", "async verb beside"]


@pytest.fixture
def slow(make_faulty):
    """A service without any of our additions: what is lost stays lost."""
    return make_faulty(idempotent=None, delay_s=0.4)


@pytest.fixture
def spawn(lab, tmp_path):
    """Start a client as a process of its own, as a person does in a terminal."""
    clients = []

    def start(server, way, **options):
        clients.append(lab.start(LINES, server.settings, tmp_path / "run", way=way, **options))
        return clients[-1]

    yield start
    for client in clients:
        client.signal(signal.SIGKILL)
        client.end()


def in_motion(server):
    server.until(lambda s: len(s.seen) >= 6 and s.in_flight >= 4)


def seconds_until_stopped(server, folder, began):
    """Seconds since `began` after which the run has stopped; the interpreter's own end is none of ours."""
    server.until(lambda _: spf.open_run(folder).status == "stopped")
    return time.monotonic() - began


def check_nothing_is_lost(speak, server):
    """All that was sent is kept, and the run can go on."""
    run = spf.open_run(speak.folder)
    states = list(statuses(run).values())
    sent = len(server.seen)
    assert 6 <= sent < len(LINES)
    assert (states.count("done"), states.count("pending")) == (sent, len(LINES) - sent)
    assert (run.status, run.stopped_because) == ("stopped", "interrupted")
    check_audio(run)
    check_books(run, server)


@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
def test_one_ctrl_c_loses_nothing(slow, spawn, speak, way):
    process = spawn(slow, way)
    in_motion(slow)
    began = time.monotonic()
    process.signal(signal.SIGINT)
    _, err, code = process.end()
    # Where the end of the interpreter imports something, Python forgets that it was Ctrl-C.
    assert code in ({-signal.SIGINT, 1} if way in {"body", "asleep"} else {-signal.SIGINT})
    assert "KeyboardInterrupt" in err
    assert time.monotonic() - began < 5
    check_nothing_is_lost(speak, slow)


@pytest.mark.parametrize("way", ["await live", "async for", "async body"])
def test_ctrl_c_while_the_service_rests_waits_for_nothing(slow, spawn, way):
    slow.forever = dict.fromkeys(LINES[4:], (503, 30))
    process = spawn(slow, way)
    slow.until(lambda s: len(s.seen) >= 5 and s.in_flight == 0)
    time.sleep(0.2)
    began = time.monotonic()
    process.signal(signal.SIGINT)
    process.end()
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
def test_sigterm_loses_nothing(slow, spawn, speak, way):
    process = spawn(slow, way)
    in_motion(slow)
    process.signal(signal.SIGTERM)
    out, err, code = process.end()
    assert (out, code) == ("", 143)
    assert "Traceback" not in err
    check_nothing_is_lost(speak, slow)


@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
def test_sigterm_waits_no_longer_than_its_limit(slow, spawn, speak, way):
    slow.forever = {LINES[5]: "hang billed"}
    process = spawn(slow, way, term_drain_s=1.0)
    in_motion(slow)
    began = time.monotonic()
    process.signal(signal.SIGTERM)
    assert 0.9 < seconds_until_stopped(slow, speak.folder, began) < 4
    assert process.end()[2] == 143
    states = list(statuses(spf.open_run(speak.folder)).values())
    assert (states.count("done"), states.count("charged_unknown")) == (len(slow.seen) - 1, 1)


@pytest.mark.parametrize(
    "way", ["wait", "loop", "await live", "left", "async for", "async body", "async left"]
)
def test_ctrl_c_in_the_middle_of_the_end_cancels_what_is_in_flight(slow, spawn, speak, way):
    slow.forever = {LINES[5]: "hang billed"}
    process = spawn(slow, way)
    in_motion(slow)
    if way not in {"left", "async left"}:
        process.signal(signal.SIGINT)
    slow.until(lambda s: s.in_flight == 1)
    time.sleep(0.3)
    assert process.lives
    began = time.monotonic()
    process.signal(signal.SIGINT)
    assert seconds_until_stopped(slow, speak.folder, began) < 4
    _, err, code = process.end()
    if way != "left":
        assert code == -signal.SIGINT
        assert "KeyboardInterrupt" in err
        assert "never retrieved" not in err
        assert "pending" not in err
        # Who has asked for the end is told nothing.
        assert ("the program ends" in err) == (way in {"async body", "async left"})
    states = list(statuses(spf.open_run(speak.folder)).values())
    assert (states.count("done"), states.count("charged_unknown")) == (len(slow.seen) - 1, 1)


# -- who waits in a loop ---------------------------------------------------------------------


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
    check_nothing_is_lost(speak, slow)


async def test_cancelled_twice_who_waits_for_a_live_run_cancels_its_calls(slow, live):
    slow.forever = {"*": "hang"}
    run = await live()
    waiting = asyncio.ensure_future(run)
    await asyncio.to_thread(slow.until, lambda s: s.in_flight == 4)
    for _ in range(2):
        waiting.cancel()
        await asyncio.sleep(0.1)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(statuses(run).values()) == ["charged_unknown"] * 4 + ["pending"] * 20


async def test_a_timeout_around_a_loop_over_outcomes_loses_nothing(slow, speak, live):
    run = await live()
    await asyncio.to_thread(in_motion, slow)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(_followed(run), 0.1)
    assert slow.in_flight == 0
    check_nothing_is_lost(speak, slow)


async def test_cancelled_twice_a_loop_over_outcomes_cancels_the_calls(slow, live):
    slow.forever = {"*": "hang"}
    run = await live()
    following = asyncio.create_task(_followed(run))
    await asyncio.to_thread(slow.until, lambda s: s.in_flight == 4)
    for _ in range(2):
        following.cancel()
        await asyncio.sleep(0.1)
    with pytest.raises(asyncio.CancelledError):
        await following
    assert sorted(statuses(run).values()) == ["charged_unknown"] * 4 + ["pending"] * 20


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


# -- the end of a program -------------------------------------------------------------------


@pytest.mark.parametrize("way", ["left", "broken off", "async left"])
def test_a_program_that_ends_with_a_live_run_keeps_what_is_in_flight_and_says_so(slow, spawn, speak, way):
    process = spawn(slow, way)
    out, err, code = process.end()
    assert (out, code) == ("", 0)
    (line,) = err.splitlines()
    assert "live" in line
    assert str(speak.folder) in line
    run = spf.open_run(speak.folder)
    sent = len(slow.seen)
    assert list(statuses(run).values()).count("done") == sent < len(LINES)
    check_books(run, slow)
    slow.delay_s = 0
    assert set(statuses(speak(slow, LINES)).values()) == {"done"}
    assert set(slow.billed.values()) == {1}


@pytest.mark.parametrize("way", ["left", "async left"])
def test_the_end_of_a_program_waits_no_longer_than_its_limit(slow, spawn, speak, way):
    slow.forever = {LINES[5]: "hang billed"}
    process = spawn(slow, way, term_drain_s=1.0)
    in_motion(slow)
    began = time.monotonic()
    assert seconds_until_stopped(slow, speak.folder, began) < 4
    assert process.end()[2] == 0
    states = list(statuses(spf.open_run(speak.folder)).values())
    assert (states.count("done"), states.count("charged_unknown")) == (len(slow.seen) - 1, 1)


class Stuck:
    """Work that does not end, as a run that writes to a disk that gives no answer."""

    def __init__(self):
        self.loop, self.ended, self.told = background_loop(), Future(), []

    def end(self, *, drain):
        self.told.append(drain)


def test_what_its_limit_could_not_end_is_not_waited_for_again(capsys):
    work = Stuck()
    _ending.hold(work)
    _ending.end_in_order([work], 0.1)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    began = time.monotonic()
    _ending.end_unfinished()
    assert time.monotonic() - began < 1
    assert (work.told, capsys.readouterr().err) == ([True, False], "")


async def test_what_a_loop_could_not_end_is_not_waited_for_again(monkeypatch, capsys):
    monkeypatch.setattr(_ending, "TERM_DRAIN_S", 0.1)
    work = Stuck()
    _ending.hold(work)
    await _ending._end_all([work], (True, False))
    _ending.end_unfinished()
    assert (work.told, capsys.readouterr().err) == ([True, False], "")


def test_a_program_that_returns_after_sigterm_ends_below_no_call(slow, spawn, speak):
    process = spawn(slow, "async left while it ends")
    assert process.end()[2] == 143
    check_nothing_is_lost(speak, slow)


def test_a_child_forked_within_a_verb_dies_of_sigterm():
    children = []
    hears, tells = os.pipe()

    def fork():
        child = os.fork()
        if child == 0:
            try:
                os.write(tells, b"there")
                time.sleep(20)
            finally:
                os._exit(7)
        children.append(child)

    with _ending.gentle_termination():
        forking = threading.Thread(target=fork)
        forking.start()
        forking.join()
    assert os.read(hears, 5) == b"there"
    os.close(hears)
    os.close(tells)
    os.kill(children[0], signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == -signal.SIGTERM


def test_sigterm_in_the_middle_of_the_end_of_a_program_changes_nothing(slow, spawn, speak):
    slow.delay_s = 1.0
    process = spawn(slow, "left")
    slow.until(lambda s: len(s.seen) >= 8)
    time.sleep(0.3)
    process.signal(signal.SIGTERM)
    assert process.end()[2] == 0
    assert list(statuses(spf.open_run(speak.folder)).values()).count("done") == len(slow.seen) == 8


def test_a_program_whose_live_runs_have_ended_ends_at_once_and_says_nothing(make_faulty, spawn):
    process = spawn(make_faulty(), "ended")
    assert process.end() == ("", "", 0)


def test_sigterm_after_a_live_run_ends_a_program_as_ever(make_faulty, spawn, speak):
    server = make_faulty()
    process = spawn(server, "asleep")
    server.until(lambda s: len(s.seen) == 24 and s.in_flight == 0)
    server.until(lambda _: spf.open_run(speak.folder).status == "finished")
    time.sleep(0.5)
    process.signal(signal.SIGTERM)
    assert process.end() == ("", "", -signal.SIGTERM)


def test_a_script_of_its_own_keeps_what_is_in_flight(slow, speak):
    script = f"""
        import speechframe as spf
        from pydantic import SecretStr
        from speechframe.settings import Settings

        service = Settings(api_key=SecretStr("sk-faulty"), base_url={slow.url!r}, profile="faulty")
        live = spf.generate({LINES!r}, voice="nora", sample_rate=8000, max_concurrency=4, progress=False,
                            service=service, run_dir={str(speak.folder)!r}, wait=False)
        for outcome in live.outcomes():
            raise ValueError("a mistake of the caller")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert "a mistake of the caller" in ended.stderr
    run = spf.open_run(speak.folder)
    assert list(statuses(run).values()).count("done") == len(slow.seen) < len(LINES)
    check_books(run, slow)


def test_a_child_of_a_program_with_a_live_run_ends_at_once(slow, speak):
    run = speak(slow, LINES, wait=False)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            _ending.end_unfinished()
        finally:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert time.monotonic() - began < 2
    slow.delay_s = 0
    assert run.wait(30).status == "finished"


def test_what_a_program_does_with_sigterm_is_its_own(slow, speak):
    got = []
    signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    try:
        run = speak(slow, LINES[:4], wait=False)
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(list(run.outcomes())) == 4
        assert got == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_the_handler_of_sigterm_goes_with_the_run(slow, speak):
    run = speak(slow, LINES[:4], wait=False)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert len(list(run.outcomes())) == 4
    run.wait()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_lab_says_what_became_of_a_loop(make_faulty, spawn):
    out, err, code = spawn(make_faulty(), "loop").end()
    assert (err, code) == ("", 0)
    assert json.loads(out) == {"status": "finished", "because": None, "done": 24}
