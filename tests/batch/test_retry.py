"""What an error means for its row: the table of decisions, the waits, and each retried answer on a real port."""

import time

import pytest
from faulty import check_audio, check_books, statuses

import speechframe as spf
from speechframe.errors import BadAnswer, ConnectionFailed, EngineError, TimedOut, service_error
from speechframe.old_batch.retry import FIRST_DELAY_S, LONGEST_DELAY_S, Charge, Verdict, decide, delay_s
from speechframe.spec.codes import Status

FREE = {"repeat_is_free": True, "retry_unknown": False}
DEAR = {"repeat_is_free": False, "retry_unknown": False}
DARING = {"repeat_is_free": False, "retry_unknown": True}

VERDICTS = {
    400: Verdict.FAIL,
    402: Verdict.STOP,
    403: Verdict.STOP,
    408: Verdict.AGAIN_LATER,
    429: Verdict.AGAIN_FIRST,
    500: Verdict.AGAIN_LATER,
    503: Verdict.AGAIN_LATER,
}


def test_every_status_of_the_document_has_its_verdict():
    assert {s.value for s in Status if s.value >= 400} <= {*VERDICTS, 401, 404, 405, 413}
    for status, verdict in VERDICTS.items():
        for ways in (FREE, DEAR, DARING):
            decision = decide(service_error("no", status=status), **ways)
            assert (decision.verdict, decision.charge) == (verdict, Charge.NONE), status
            assert decision.pauses_lane == (status == 503)


@pytest.mark.parametrize("status", [401, 404, 405, 413, 302, 418])
def test_what_no_repeat_can_mend_is_not_repeated(status):
    assert decide(service_error("no", status=status), **FREE).verdict in {Verdict.FAIL, Verdict.STOP}


@pytest.mark.parametrize(
    ("error", "ways", "verdict", "charge"),
    [
        (ConnectionFailed("", sent=False), DEAR, Verdict.UNREACHED, Charge.NONE),
        (TimedOut("", sent=False), DEAR, Verdict.UNREACHED, Charge.NONE),
        (ConnectionFailed("", sent=True), DEAR, Verdict.UNKNOWN, Charge.UNKNOWN),
        (TimedOut("", sent=True), DEAR, Verdict.UNKNOWN, Charge.UNKNOWN),
        (TimedOut("", sent=True), FREE, Verdict.AGAIN_LATER, Charge.UNKNOWN),
        (TimedOut("", sent=True), DARING, Verdict.AGAIN_LATER, Charge.UNKNOWN),
        (service_error("no", status=502), DEAR, Verdict.UNKNOWN, Charge.UNKNOWN),
        (service_error("no", status=504), FREE, Verdict.AGAIN_LATER, Charge.UNKNOWN),
        (service_error("no", status=501), DEAR, Verdict.UNKNOWN, Charge.UNKNOWN),
        (service_error("no", status=524), DARING, Verdict.AGAIN_LATER, Charge.UNKNOWN),
        (BadAnswer("cut"), DEAR, Verdict.AGAIN_LATER, Charge.COMPUTED),
        (BadAnswer("cut"), FREE, Verdict.AGAIN_LATER, Charge.COMPUTED),
        (EngineError("no"), FREE, Verdict.FAIL, Charge.NONE),
    ],
)
def test_what_came_without_a_usable_answer(error, ways, verdict, charge):
    decision = decide(error, **ways)
    assert (decision.verdict, decision.charge) == (verdict, charge)


def test_waits_grow_and_are_capped_and_never_shorter_than_told():
    for attempt in (1, 2, 3, 10, 1000):
        bound_s = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** min(attempt - 1, 20))
        drawn = [delay_s(attempt) for _ in range(200)]
        assert 0 <= min(drawn) < bound_s / 2 < max(drawn) <= bound_s
    assert delay_s(1, told_s=40.0) == 40.0
    assert delay_s(3, told_s=0.0) >= 0.0


RETRIED = [
    408,
    429,
    500,
    503,
    (429, 0.1),
    (503, 0.1),
    "truncated",
    "broken json",
    "broken base64",
    "no audio",
    "reset",
    "reset billed",
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("step", RETRIED, ids=str)
def test_a_row_that_is_retried_ends_done(faulty, speak, quick, step):
    faulty.scripts = {"the row": [step, step]}
    run = speak(faulty, ["the row", "its neighbour"])
    assert set(statuses(run).values()) == {"done"}
    frame = check_audio(run).set_index("text")
    assert frame.loc["the row", "attempts"] == faulty.sends("the row") == 3
    assert frame.loc["its neighbour", "attempts"] == 1
    assert faulty.billed == {"the row": 1, "its neighbour": 1}
    assert not faulty.early
    check_books(run, faulty)
    assert run.progress.retries == 2
    assert sum(run.progress.retried_by.values()) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("step", [408, 429, 500, 503, "truncated", "broken json", "broken base64"], ids=str)
def test_so_it_does_at_a_service_without_our_additions(hosted, speak, quick, step):
    hosted.scripts = {"the row": [step, step]}
    run = speak(hosted, ["the row", "its neighbour"])
    assert set(statuses(run).values()) == {"done"}
    check_audio(run)
    # A 200 was billed, whatever its body: what that cost is in the ledger.
    assert hosted.billed["the row"] == (1 if isinstance(step, int) else 3)
    check_books(run, hosted)
    assert not any(s.key for s in hosted.seen)


def test_a_row_fails_when_its_attempts_are_spent_and_its_neighbours_do_not(faulty, speak, quick):
    faulty.forever = {"the row": 500}
    run = speak(faulty, ["the row", *(f"line {i}" for i in range(9))], max_attempts=3)
    frame = check_audio(run).set_index("text")
    assert frame.loc["the row", ["status", "attempts", "error_status"]].tolist() == ["failed", 3, 500]
    assert (frame["status"].drop("the row") == "done").all()
    assert (run.status, run.stopped_because) == ("finished", None)
    check_books(run, faulty)


def test_a_400_fails_its_row_at_once(faulty, speak, quick):
    faulty.forever = {"the row": 400}
    run = speak(faulty, ["before", "the row", "after"])
    assert statuses(run) == {"before": "done", "the row": "failed", "after": "done"}
    assert faulty.sends("the row") == 1
    # Failed rows are tried again by the next call, finished ones are not.
    faulty.forever = {}
    again = speak(faulty, ["before", "the row", "after"])
    assert set(statuses(again).values()) == {"done"}
    assert faulty.billed == {"before": 1, "the row": 1, "after": 1}
    check_books(again, faulty)


def test_a_retry_after_is_waited_for(faulty, speak, quick):
    faulty.scripts = {"a": [(429, 0.6)], "b": [(503, 0.5)], "c": [(500, 0.4)], "d": [(408, 0.3)]}
    run = speak(faulty, ["a", "b", "c", "d", *(f"line {i}" for i in range(20))])
    assert set(statuses(run).values()) == {"done"}
    assert not faulty.early
    assert run.progress.seconds >= 0.6
    check_books(run, faulty)


@pytest.mark.quiet
@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_huge_retry_after_is_bounded_by_patience(faulty, speak, quick, status):
    faulty.forever = {"the row": (status, 86400)}
    began = time.monotonic()
    run = speak(faulty, ["the row"], patience_s=0.7)
    assert 0.7 <= time.monotonic() - began < 5
    check_put_off(run, status)
    # Not once more before the time it was told.
    assert faulty.sends("the row") == 1


def check_put_off(run, status):
    """A row that alone gets an error fails; a service that puts off everybody stops the run."""
    if status == 500:
        assert statuses(run) == {"the row": "failed"}
    else:
        assert statuses(run) == {"the row": "pending"}
        assert (run.status, run.stopped_because) == ("stopped", "unavailable")


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503])
def test_a_row_that_alone_is_put_off_fails_and_the_run_goes_on(faulty, speak, quick, status):
    faulty.forever = {"the row": (status, 0)}
    faulty.delay_s = 0.02
    run = speak(faulty, ["the row", *(f"line {i}" for i in range(150))], patience_s=0.4)
    assert statuses(run).pop("the row") == "failed"
    assert set(statuses(run).values()) == {"failed", "done"}
    check_books(run, faulty)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("status", [429, 503])
def test_an_outage_of_everything_costs_no_row(faulty, speak, quick, status):
    faulty.scripts = {"*": [status] * 60}
    run = speak(faulty, [f"line {i}" for i in range(12)], max_attempts=2)
    assert set(statuses(run).values()) == {"done"}
    check_books(run, faulty)


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503, 500])
def test_a_retry_after_of_nothing_is_no_leave_to_hammer(faulty, speak, quick, status):
    faulty.forever = {"the row": (status, 0)}
    run = speak(faulty, ["the row"], patience_s=0.5)
    check_put_off(run, status)
    assert 2 <= faulty.sends("the row") <= 120
    assert faulty.seen[-1].at - faulty.seen[0].at > 0.01


def test_on_error_raise_raises_when_everything_is_saved(faulty, speak, quick, tmp_path):
    # The first error is raised, not the last.
    faulty.forever = {"the row": 400, "a later row": 404}
    texts = ["the row", *(f"line {i}" for i in range(20)), "a later row"]
    with pytest.raises(spf.errors.BadRequest) as caught:
        speak(faulty, texts, on_error="raise")
    assert str(tmp_path / "run") in "".join(caught.value.__notes__)
    run = spf.open_run(tmp_path / "run")
    assert sorted(statuses(run).values()) == ["done"] * 20 + ["failed"] * 2
    live = speak(faulty, texts, on_error="raise", wait=False)
    with pytest.raises(spf.errors.BadRequest):
        live.wait(60)
