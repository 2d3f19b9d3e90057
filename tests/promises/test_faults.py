"""One bad row costs one row, whatever a service does; a service that is gone stops the run with everything kept."""

import pytest
from accounts import billed, check_audio, price, statuses, times_billed

import speechframe as spf

IMPATIENT = {"timeout_s": 1.5, "patience_s": 20.0, "max_attempts": 4, "max_concurrency": 3}
NOT_BILLED = ("408", "429", "500", "502", "503", "reset_before", "hang")
BILLED = ("reset_after", "hang_billed", "truncated", "broken_json", "broken_base64", "no_audio")


@pytest.fixture(scope="module")
def plain(services):
    """A service that promises nothing about repeats."""
    return services(idempotent=False, limits_page=False, retry_after_s=0.05, retry_after="float")


@pytest.fixture(scope="module")
def kind(services):
    """A service that bills no repeat."""
    return services(retry_after_s=0.05, retry_after="float")


@pytest.fixture
def faulty_row(speak, lines):
    """Make a run of seven rows, the fourth of which meets some steps first."""

    def make(service, *steps, **options):
        texts = lines(7, "-".join(steps))
        service.set(scripts={texts[3]: steps})
        run = speak(service, texts, **IMPATIENT | options)
        found = statuses(run)
        check_audio(run)
        assert found[:3] + found[4:] == ["done"] * 6, "rows beside it took part in its fault"
        assert billed(service, texts[:3] + texts[4:]) == price(texts[:3] + texts[4:])
        return run, texts[3]

    return make


@pytest.mark.sampled(5)
@pytest.mark.parametrize("step", [*NOT_BILLED, *BILLED, "slow_bytes"])
def test_where_no_repeat_is_billed_every_fault_is_got_over(kind, faulty_row, step):
    run, text = faulty_row(kind, step)
    assert statuses(run)[3] == "done"
    assert times_billed(kind, text) == 1
    assert run.ledger["credits"].sum() == price(run.to_pandas()["text"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", NOT_BILLED)
def test_what_was_refused_is_sent_again(plain, faulty_row, step):
    run, text = faulty_row(plain, step)
    # A request that was sent whole and got no answer of the service itself may have been billed.
    may_be_billed = step in {"hang", "reset_before", "502"}
    assert statuses(run)[3] == ("charged_unknown" if may_be_billed else "done")
    assert times_billed(plain, text) <= 1


def test_refusals_by_a_cap_are_no_failed_attempts(plain, faulty_row):
    run, text = faulty_row(plain, *["429"] * 5, "503", max_attempts=2)
    assert statuses(run)[3] == "done"
    assert times_billed(plain, text) == 1


@pytest.mark.parametrize("step", ["reset_after", "hang_billed"])
def test_what_may_have_been_billed_is_not_sent_again_until_asked(plain, faulty_row, step):
    run, text = faulty_row(plain, step)
    assert statuses(run)[3] == "charged_unknown"
    again = spf.resume(run, service=plain.settings, progress=False)
    assert statuses(again)[3] == "charged_unknown"
    assert times_billed(plain, text) == 1
    asked = spf.resume(run, on_unknown="retry", service=plain.settings, progress=False)
    assert statuses(asked)[3] == "done"
    assert times_billed(plain, text) == 2


@pytest.mark.parametrize("step", ["truncated", "broken_json", "broken_base64", "no_audio"])
def test_an_answer_that_cannot_be_used_is_paid_once(plain, faulty_row, step):
    run, text = faulty_row(plain, step, "...")
    assert statuses(run)[3] == "charged_unknown"
    spf.resume(run, service=plain.settings, progress=False)
    assert times_billed(plain, text) == 1


def test_a_link_that_is_gone_is_asked_for_again(kind, faulty_row):
    run, text = faulty_row(kind, "expired_url", encode_as_base64=False)
    assert statuses(run)[3] == "done"
    assert times_billed(kind, text) == 1


@pytest.mark.parametrize("step", ["400", "500"])
def test_a_row_that_is_always_refused_says_why_and_costs_nothing(plain, faulty_row, step):
    run, text = faulty_row(plain, step, "...")
    (row,) = run.failed.itertuples()
    assert (row.text, row.status) == (text, "failed")
    assert row.error_code
    assert row.error_message
    assert len(run.ledger[run.ledger["request_key"] == row.request_key]) == (1 if step == "400" else 4)
    assert times_billed(plain, text) == 0


def test_a_row_that_fails_ends_the_run_where_that_is_asked_for(plain, speak, lines):
    texts = lines(4)
    plain.set(scripts={texts[2]: ["400", "..."]})
    with pytest.raises(spf.BadRequest):
        speak(plain, texts, on_error="raise", max_concurrency=1)
    run = speak(plain, texts[:2])
    assert run.estimate.calls == 0
    assert statuses(run) == ["done", "done"]


def test_a_service_that_is_gone_stops_the_run_and_a_resume_makes_the_rest(services, speak, lines):
    service = services(latency=0.02)
    texts = lines(60)
    live = speak(service, texts, max_concurrency=2, patience_s=3.0, wait=False)
    for number, _ in enumerate(live.outcomes()):
        if number == 5:
            service.kill()
            break
    run = live.wait()
    assert run.status == "stopped"
    found = statuses(run)
    assert {"done", "pending"} <= set(found)
    # Two in flight, and two more on connections that were just being cut.
    assert found.count("charged_unknown") <= 4
    service.restart()
    run = spf.resume(run, service=service.settings, progress=False)
    assert statuses(run) == ["done"] * 60
    check_audio(run)
    assert billed(service, texts) == price(texts)
