"""patience_s and Retry-After: no row takes longer, none is sent earlier than it was told."""

import time

import pytest
from faulty import Faulty, check_books, statuses
from tenacity import wait_fixed

from speechframe.old_batch import retry

LINES = [f"This is line {i}." for i in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_row_that_is_told_to_wait_for_longer_than_it_may_take_ends_unsent(faulty, speak, quick, status):
    faulty.scripts = {LINES[1]: [(status, 30)]}
    run = speak(faulty, LINES, patience_s=0.4, max_concurrency=2)
    assert (faulty.early, faulty.sends(LINES[1])) == ([], 1)
    # Where nothing else was answered in that time, it is the service that puts off everybody.
    ended = (statuses(run)[LINES[1]], run.stopped_because)
    assert ended in {("failed", None), ("pending", "unavailable")}
    check_books(run, faulty)


@pytest.mark.slow
def test_a_run_ends_in_time_where_every_row_is_told_to_wait_for_longer(faulty, speak, quick):
    faulty.forever = {"*": (429, 30)}
    run = speak(faulty, LINES, patience_s=0.3)
    assert (run.status, run.stopped_because, faulty.early) == ("stopped", "unavailable", [])
    assert set(statuses(run).values()) == {"pending"}


def test_no_wait_between_attempts_goes_beyond_the_patience(faulty, speak, monkeypatch):
    monkeypatch.setattr(retry, "_backoff", wait_fixed(60))
    faulty.forever = {LINES[0]: 500}
    began = time.monotonic()
    run = speak(faulty, LINES[:2], patience_s=0.3, max_attempts=1000)
    assert time.monotonic() - began < 30
    assert (statuses(run), faulty.sends(LINES[0])) == ({LINES[0]: "failed", LINES[1]: "done"}, 2)


def test_a_service_that_is_gone_ends_a_run_in_time_however_many_attempts_a_row_has(faulty, speak, quick):
    faulty.held = LINES
    live = speak(faulty, LINES, wait=False, patience_s=0.3, max_attempts=100_000)
    faulty.until(lambda server: server.in_flight)
    faulty.down()
    run = live.wait(30)
    assert (run.status, run.stopped_because) == ("stopped", "unreachable")


def test_rows_that_are_always_refused_hold_no_other_up(faulty, speak, quick):
    refused = LINES[1:3]
    faulty.forever = dict.fromkeys(refused, 429)
    run = speak(faulty, LINES, patience_s=0.1, max_concurrency=1)
    assert statuses(run) == {text: "failed" if text in refused else "done" for text in LINES}
    assert (run.status, set(run.failed["error_status"])) == ("finished", {429})


class Recovering(Faulty):
    """Refuses everybody until a second row asks; the rest is scripted."""

    def _step(self, text):
        return 429 if {seen.text for seen in self.seen} == {LINES[0]} else super()._step(text)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("status", "times"), [(503, 1), (429, 4)])
def test_a_long_refusal_that_is_over_leaves_a_run_as_patient_as_before(speak, quick, status, times):
    lines = LINES + [f"This is row {i}." for i in range(6)]
    service = Recovering(scripts={text: [status] for text in lines[4 : 4 + times]})
    service.up()
    try:
        run = speak(service, lines, patience_s=0.3, max_concurrency=1)
    finally:
        service.down()
    assert (run.status, set(statuses(run).values())) == ("finished", {"done"})
    assert service.sends(LINES[0]) > 2


@pytest.mark.slow
def test_a_row_that_is_told_to_wait_for_longer_than_it_may_take_ends_no_run_alone(faulty, speak, quick):
    faulty.scripts = {LINES[0]: [(429, 30)]}
    run = speak(faulty, LINES, patience_s=0.3, max_concurrency=1)
    assert statuses(run) == {text: "done" if text != LINES[0] else "failed" for text in LINES}
    assert (run.status, faulty.early, faulty.sends(LINES[0])) == ("finished", [], 1)
    check_books(run, faulty)
