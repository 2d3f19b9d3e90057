"""A service that bills after the client has given a call up: the call stays in doubt, and is never paid twice unasked."""

import time

import pytest

import speechframe as spf
from speechframe.testing import FaultyService


def test_a_call_that_timed_out_and_is_billed_later_is_not_settled_as_unbilled_and_paid_twice(tmp_path):
    texts = ["This answer comes late.", *(f"Line number {number} comes at once." for number in range(3))]
    with FaultyService(idempotent=False, quota=10**6, latency=2.5) as service:
        run = spf.generate(
            texts, voice="en-US-nora", run_dir=tmp_path / "run", service=service.settings,
            max_concurrency=1, timeout_s=1.0, progress=False, wait=False,
        )  # fmt: skip
        while not service.books().in_flight:
            time.sleep(0.01)
        service.set(latency=0)
        run.wait(60)
        while service.books().in_flight:  # the service goes on with what the client gave up
            time.sleep(0.01)
        assert run.ledger["credits"].sum() >= service.books().billed_characters
        spf.resume(run, service=service.settings, progress=False)
        assert not service.books().duplicates


@pytest.mark.slow
def test_a_call_that_was_cancelled_and_is_billed_later_is_not_settled_as_unbilled_and_paid_twice(tmp_path):
    with FaultyService(idempotent=False, quota=10**6, latency=2.5) as service:
        run = spf.generate(
            ["This answer comes late."], voice="en-US-nora", run_dir=tmp_path / "run",
            service=service.settings, progress=False, wait=False,
        )  # fmt: skip
        while not service.books().requests:
            time.sleep(0.01)
        run.stop(drain=False)
        run.wait(60)
        while service.books().in_flight:
            time.sleep(0.01)
        assert run.ledger["credits"].sum() >= service.books().billed_characters
        spf.resume(run, service=service.settings, progress=False)
        assert not service.books().duplicates


@pytest.mark.slow
def test_a_balance_from_before_a_lost_call_does_not_settle_it_as_unbilled(tmp_path):
    slow, lost = "This answer comes in drops.", "This one is billed, and lost."
    with FaultyService(
        idempotent=False,
        quota=10**6,
        slow_s=1.5,
        latency=0.2,
        scripts={slow: ["slow_bytes"], lost: ["reset_after"]},
    ) as service:
        # The slow answer is billed first and says what was left then; the other is billed while it still comes.
        run = spf.generate(
            [slow, lost], voice="en-US-nora", run_dir=tmp_path / "run", service=service.settings,
            max_concurrency=2, progress=False,
        )  # fmt: skip
        assert run.ledger["credits"].sum() >= service.books().billed_characters
        spf.resume(run, service=service.settings, progress=False)
        assert not service.books().duplicates
