"""Behind the end of a limit: what was paid is delivered, its repeat costs nothing, and prices leave it out."""

import time

import pytest
from faulty import check_audio, check_books, statuses
from tenacity import wait_fixed

import speechframe as spf
from speechframe.old_batch import engine, retry
from speechframe.spec.billing import billed_characters

LINES = [f"This is line {i:02d}." for i in range(30)]
EACH = billed_characters(LINES[0])
REST = f"the 27 calls to come would cost {27 * EACH}."


@pytest.fixture
def unhurried(monkeypatch):
    """A repeat is due when the run has long come to the end of its limit."""
    monkeypatch.setattr(retry, "_backoff", wait_fixed(0.15))


def until(is_so):
    ends = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.01)


def ends_after_three(make_faulty, limit):
    """Return a service, and options, with which three rows can be paid and no fourth."""
    if limit == "balance":
        return make_faulty(quota=3 * EACH + 1), {}
    if limit == "402":
        server = make_faulty()
        server.forever = {LINES[3]: 402}
        return server, {}
    return make_faulty(), {"max_credits": 3 * EACH + 1}


# Beside the one that is refused with 402, others would be under way.
@pytest.mark.sampled(1)
@pytest.mark.parametrize(("limit", "width"), [("run", 1), ("run", 4), ("balance", 4), ("402", 1)])
def test_what_was_paid_before_a_limit_ended_the_run_is_delivered(make_faulty, speak, unhurried, limit, width):
    server, options = ends_after_three(make_faulty, limit)
    server.scripts = {LINES[0]: ["truncated"], LINES[1]: ["reset billed", (503, 0.1)], LINES[2]: ["no audio"]}
    run = speak(server, LINES, max_concurrency=width, **options)
    assert (run.status, run.stopped_because) == ("stopped", "budget" if limit == "run" else "quota")
    assert statuses(run) == {text: "done" if text in LINES[:3] else "pending" for text in LINES}
    assert server.characters == 3 * EACH
    assert not server.early
    assert REST in str(run.stopped_by)
    check_audio(run)
    check_books(run, server)


def test_a_run_that_waits_for_what_was_paid_says_why_it_ends(make_faulty, speak, capsys):
    server = make_faulty(quota=3 * EACH)
    server.scripts = {LINES[0]: ["truncated", (429, 0.8)]}
    run = speak(server, LINES, wait=False, progress=True)
    until(lambda: run.stopped_because is not None)
    assert (run.status, run.stopped_because) == ("running", "quota")
    assert spf.open_run(run.path).stopped_because == "quota"
    run.wait()
    assert (run.status, run.stopped_because, run.stats["done"]) == ("stopped", "quota", 3)
    said = capsys.readouterr().err
    assert said.count("stopping (quota): calls that are paid for are waited for") == 1
    assert "stopped (quota)" in said.partition("stopping (quota)")[2]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("told_s", [0.05, 20, 200])
def test_what_was_paid_is_waited_for_so_long_only_and_a_resume_delivers_it(
    make_faulty, speak, quick, monkeypatch, told_s
):
    monkeypatch.setattr(engine, "STILL_S", 0.4)
    server = make_faulty(delay_s=0.05)
    server.scripts, server.forever = {LINES[0]: ["truncated"]}, {LINES[0]: (429, told_s)}
    began = time.monotonic()
    run = speak(server, LINES[:6], max_credits=3 * EACH, max_concurrency=2)
    assert time.monotonic() - began < 10
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    assert statuses(run) == {text: "done" if text in LINES[1:3] else "pending" for text in LINES[:6]}
    assert not server.early
    server.forever = {}
    again = spf.resume(run, service=server.settings, progress=False)
    assert statuses(again) == {text: "done" if text in LINES[:3] else "pending" for text in LINES[:6]}
    assert server.characters == 3 * EACH
    check_books(again, server)


def test_a_free_repeat_that_the_service_refuses_ends_the_run(make_faulty, speak, unhurried):
    server = make_faulty()
    server.scripts = {LINES[0]: ["truncated"], LINES[1]: ["truncated"]}
    server.forever = {LINES[0]: 402}
    run = speak(server, LINES, max_credits=2 * EACH, max_concurrency=1)
    assert (run.status, run.stopped_because) == ("stopped", "budget")
    assert (server.sends(LINES[0]), server.sends(LINES[1])) == (2, 1)
    server.forever = {}
    again = speak(server, LINES, max_credits=2 * EACH)
    assert list(statuses(again).values()).count("done") == 2
    check_books(again, server)


def test_prices_leave_out_what_was_paid_before_and_it_is_delivered_behind_the_end_of_a_budget(
    make_faulty, speak
):
    new = "A new line that costs more than is left."
    server = make_faulty()
    server.scripts = {LINES[0]: ["reset billed"]}
    run = speak(server, [*LINES[1:3], LINES[0]], max_credits=3 * EACH + 5, max_attempts=1)
    assert statuses(run)[LINES[0]] == "charged_unknown"
    planned = spf.resume(run, dry_run=True, service=server.settings, progress=False).estimate
    assert (planned.finished, planned.calls, planned.paid, planned.credits) == (2, 1, 1, 0)
    assert "1 call, 1 of them paid before, 0 credits" in planned.line()
    assert "budget" not in planned.line()
    table = [new, *(f"{new} {i}" for i in range(3)), *LINES[1:3], LINES[0]]
    run = spf.resume(run, table=table, service=server.settings, progress=False, max_concurrency=1)
    assert (run.estimate.calls, run.estimate.paid) == (5, 1)
    assert run.estimate.credits == sum(map(billed_characters, table[:4]))
    assert run.stopped_by.needed_credits == run.estimate.credits
    assert "the 4 calls to come" in str(run.stopped_by)
    assert {text for text, status in statuses(run).items() if status == "done"} == set(LINES[:3])
    assert server.characters == 3 * EACH
    check_books(run, server)


def test_a_plan_says_what_is_not_sent_again(make_faulty, speak):
    server = make_faulty(idempotent=None)
    server.scripts = {LINES[0]: ["reset billed"]}
    speak(server, LINES[:2])
    planned = speak(server, LINES[:3], dry_run=True).estimate
    assert (planned.finished, planned.unknown, planned.calls, planned.credits) == (1, 1, 1, EACH)
    assert "1 done before, 1 perhaps billed and not sent again, 1 call" in planned.line()


@pytest.mark.parametrize("kind", ["faulty", "hosted"])
def test_changes_price_what_a_resume_would_send_and_pay_for(request, speak, kind):
    server = request.getfixturevalue(kind)
    server.scripts = {LINES[0]: ["reset billed"]}
    run = speak(server, LINES[:2], max_attempts=1)
    assert statuses(run) == {LINES[0]: "charged_unknown", LINES[1]: "done"}
    # Its repeat is free, or it is not sent again.
    assert spf.changes(run, LINES[:2], service=server.settings).credits == 0
    assert spf.changes(run, LINES[:3], service=server.settings).credits == EACH
