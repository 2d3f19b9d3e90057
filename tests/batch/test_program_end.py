"""A program that ends while a run is live: what is in flight is kept, in real processes."""

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
from ends import LINES, check_nothing_is_lost, check_one_is_in_doubt, in_motion, seconds_until_stopped
from faulty import check_books, statuses

import speechframe as spf
from speechframe import _ending
from speechframe._loop import background_loop


@pytest.mark.sampled(1)
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


@pytest.mark.sampled(1)
@pytest.mark.quiet
@pytest.mark.parametrize("way", ["left", "async left"])
def test_the_end_of_a_program_waits_no_longer_than_its_limit(slow, spawn, speak, way):
    slow.forever = {LINES[5]: "hang billed"}
    process = spawn(slow, way, term_drain_s=1.0)
    in_motion(slow)
    began = time.monotonic()
    assert seconds_until_stopped(slow, speak.folder, began) < 4
    assert process.end()[2] == 0
    check_one_is_in_doubt(speak.folder, slow)


@pytest.fixture
def stuck():
    """Work that is held and does not end."""
    work = Stuck()
    _ending.hold(work)
    yield work
    _ending.release(work)


class Stuck:
    """Work that does not end, as a run that writes to a disk that gives no answer."""

    def __init__(self):
        self.loop, self.ended, self.told = background_loop(), Future(), []

    def end(self, *, drain):
        self.told.append(drain)


@pytest.mark.quiet
def test_what_its_limit_could_not_end_is_not_waited_for_again(stuck, capsys):
    _ending.end_in_order([stuck], 0.1)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    began = time.monotonic()
    _ending.end_unfinished()
    assert time.monotonic() - began < 1
    assert (stuck.told, capsys.readouterr().err) == ([True, False], "")


async def test_what_a_loop_could_not_end_is_not_waited_for_again(stuck, monkeypatch, capsys):
    monkeypatch.setattr(_ending, "TERM_DRAIN_S", 0.1)
    await _ending._end_all([stuck], (True, False))
    _ending.end_unfinished()
    assert (stuck.told, capsys.readouterr().err) == ([True, False], "")


def test_a_program_that_returns_after_sigterm_ends_below_no_call(slow, spawn, speak):
    process = spawn(slow, "async left while it ends")
    assert process.end()[2] == 143
    check_nothing_is_lost(speak.folder, slow)


def test_a_child_forked_within_a_verb_dies_of_sigterm():
    children = []
    hears, tells = os.pipe()

    def fork():
        child = os.fork()
        if child == 0:
            try:
                os.write(tells, b"there")
                time.sleep(60)
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
    slow.held = LINES[4:]
    process = spawn(slow, "left")
    process.until_said("the program ends", "err")
    slow.until(lambda s: s.in_flight == 4)
    process.signal(signal.SIGTERM)
    process.until_caught(signal.SIGTERM)
    time.sleep(0.2)
    slow.held = []
    assert process.end()[2] == 0
    assert list(statuses(spf.open_run(speak.folder)).values()).count("done") == len(slow.seen) == 8


@pytest.mark.quiet
def test_a_program_whose_live_runs_have_ended_ends_at_once_and_says_nothing(make_faulty, spawn):
    process = spawn(make_faulty(), "ended")
    out, err, code = process.end()
    assert time.time() - float(out) < 4
    assert (err, code) == ("", 0)


def test_sigterm_after_a_live_run_ends_a_program_as_ever(make_faulty, spawn, speak):
    server = make_faulty()
    process = spawn(server, "asleep")
    server.until(lambda s: len(s.seen) == len(LINES) and s.in_flight == 0)
    process.until_said("released")
    assert spf.open_run(speak.folder).status == "finished"
    process.signal(signal.SIGTERM)
    assert process.end() == ("released\n", "", -signal.SIGTERM)


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


@pytest.mark.quiet
def test_a_child_of_a_program_with_a_live_run_ends_at_once(slow, speak):
    run = speak(slow, LINES, wait=False)
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        code = 9
        try:
            _ending.end_unfinished()
            code = 7
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert time.monotonic() - began < 2
    slow.delay_s = 0
    assert run.wait(60).status == "finished"


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
    slow.held = LINES
    run = speak(slow, LINES[:4], wait=False)
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    slow.held = []
    assert len(list(run.outcomes())) == 4
    run.wait()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_lab_says_what_became_of_a_loop(make_faulty, spawn):
    out, err, code = spawn(make_faulty(), "loop").end()
    assert (err, code) == ("", 0)
    assert json.loads(out) == {"status": "finished", "because": None, "done": len(LINES)}
