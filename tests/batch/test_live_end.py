"""Ctrl-C and SIGTERM while a run is live: what is in flight is kept, in real processes with real signals."""

import signal
import time

import pytest
from ends import (
    ASYNC,
    LINES,
    SYNC,
    check_nothing_is_lost,
    check_one_is_in_doubt,
    in_motion,
    seconds_until_stopped,
)


@pytest.mark.sampled(2)
@pytest.mark.quiet
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
    check_nothing_is_lost(speak.folder, slow)


@pytest.mark.sampled(1)
@pytest.mark.quiet
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
def test_sigterm_loses_nothing(slow, spawn, speak, way):
    process = spawn(slow, way)
    in_motion(slow)
    process.signal(signal.SIGTERM)
    out, err, code = process.end()
    assert (out, code) == ("", 143)
    assert "Traceback" not in err
    check_nothing_is_lost(speak.folder, slow)


@pytest.mark.sampled(1)
@pytest.mark.quiet
@pytest.mark.parametrize("way", [*SYNC, *ASYNC])
def test_sigterm_waits_no_longer_than_its_limit(slow, spawn, speak, way):
    slow.forever = {LINES[5]: "hang billed"}
    process = spawn(slow, way, term_drain_s=1.0)
    in_motion(slow)
    began = time.monotonic()
    process.signal(signal.SIGTERM)
    assert 0.9 < seconds_until_stopped(slow, speak.folder, began) < 4
    assert process.end()[2] == 143
    check_one_is_in_doubt(speak.folder, slow)


@pytest.mark.sampled(1)
@pytest.mark.quiet
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
    check_one_is_in_doubt(speak.folder, slow)
