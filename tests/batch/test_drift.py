"""The balance beside our own count: named only where the figures leave no other reading."""

import pytest
from faulty import check_audio, statuses
from hypothesis import given
from hypothesis import strategies as st

import speechframe as spf
from speechframe.old_batch.drift import Drift, Quiet, explained
from speechframe.spec.billing import billed_characters

LINES = [f"This is line {i}." for i in range(12)]


@given(
    st.integers(0, 10**6),
    st.lists(
        st.tuples(st.sampled_from(["billed", "doubt, billed", "doubt, not"]), st.integers(1, 500)),
        max_size=30,
    ),
    st.integers(-300, 300),
)
def test_what_is_explained_drifts_by_nothing_and_only_one_doubt_is_named(start, calls, colleagues):
    drift, balance = Drift(start), start
    for number, (fate, price) in enumerate(calls):
        balance -= 0 if fate == "doubt, not" else price
        if fate == "billed":
            drift.billed(price)
            drift.seen(balance)
        else:
            drift.doubtful(number, price)
    balance -= colleagues
    found = drift.quiet(balance)
    doubts = [(n, fate, price) for n, (fate, price) in enumerate(calls) if fate != "billed"]
    unexplained = colleagues + sum(price for _, fate, price in doubts if fate == "doubt, billed")
    if len(doubts) == 1 and unexplained == doubts[0][2]:
        assert found == Quiet(0, doubts[0][0])
    elif unexplained < 0:
        assert found == Quiet(unexplained)
    else:
        # Any of those in doubt may have been billed: only what all of them cannot explain is somebody else's.
        assert found == Quiet(max(0, unexplained - sum(price for _, _, price in doubts)))
    assert drift.balance == balance
    assert not drift.has_doubt


def test_answers_overtake_each_other():
    drift = Drift(100)
    for price, balance in ((10, 80), (20, 70), (10, 60), (5, 65)):
        drift.billed(price)
        drift.seen(balance)
    # 60 is 5 too low: somebody else used 0 to 5 characters, whatever came last.
    assert drift.quiet() == Quiet(-5)


def test_a_service_that_does_not_say_tells_nothing():
    drift = Drift()
    drift.billed(5)
    assert drift.quiet() is None
    drift.seen(50)
    assert drift.quiet() is None
    drift.billed(5)
    drift.seen(45)
    assert drift.quiet() == Quiet(0)


def test_the_lowest_balance_seen_lays_no_charge_to_any_call():
    drift = Drift(100)
    drift.doubtful("row", 30)
    drift.seen(70)
    assert drift.quiet() == Quiet(0)


def test_the_next_quiet_point_has_no_doubts_of_the_last_one():
    drift = Drift(100)
    drift.doubtful("row", 30)
    drift.doubtful("other", 20)
    assert drift.quiet(60) == Quiet(0)
    assert drift.quiet(20) == Quiet(40)


def test_that_a_call_was_not_billed_is_never_concluded(make_faulty, speak):
    server = make_faulty(idempotent=False, quota=10_000)
    server.forever = {LINES[4]: "reset unbilled"}
    run = speak(server, LINES, max_concurrency=1)
    assert statuses(run)[LINES[4]] == "charged_unknown"
    # It is counted as if it was billed, and not sent again unasked.
    assert run.ledger["credits"].sum() == server.characters + billed_characters(LINES[4])
    assert run.stats["drift_characters"] == 0
    again = spf.resume(run, service=server.settings, progress=False)
    assert again.estimate.calls == 0
    server.forever = {}
    done = spf.resume(run, on_unknown="retry", service=server.settings, progress=False)
    assert set(statuses(done).values()) == {"done"}
    check_audio(done)


def test_a_call_in_doubt_that_was_billed_stays_in_doubt_and_is_counted(make_faulty, speak):
    server = make_faulty(idempotent=False, quota=10_000)
    server.forever = {LINES[4]: "reset billed"}
    run = speak(server, LINES, max_concurrency=1)
    assert statuses(run)[LINES[4]] == "charged_unknown"
    assert run.ledger["credits"].sum() == server.characters
    assert set(
        run.ledger.query("request_key == @key", local_dict={"key": _key(run, LINES[4])})["credits_basis"]
    ) >= {"reported"}


@pytest.mark.parametrize("other", ["reset unbilled", "reset billed"])
def test_two_in_doubt_name_nobody_and_blame_no_colleague(make_faulty, speak, other):
    server = make_faulty(idempotent=False, quota=10_000)
    server.forever = {LINES[4]: other, LINES[5]: "reset billed"}
    run = speak(server, LINES, max_concurrency=4)
    both = {statuses(run)[LINES[4]], statuses(run)[LINES[5]]}
    assert both <= {"charged_unknown", "failed"}
    # What is not certain is counted as if it was billed.
    assert run.ledger["credits"].sum() >= server.characters
    assert run.stats["drift_characters"] == 0


def test_colleagues_on_the_same_key_are_drift_and_name_no_row(make_faulty, speak):
    server = make_faulty(idempotent=False, quota=10_000)
    server.colleagues = {LINES[6]: 123}
    run = speak(server, LINES)
    assert set(statuses(run).values()) == {"done"}
    assert run.ledger["credits"].sum() == sum(map(billed_characters, LINES))
    assert run.stats["drift_characters"] == 123


def _key(run, text):
    frame = run.to_pandas()
    return frame[frame["text"] == text]["request_key"].item()


def test_both_signs_have_words():
    assert explained(5).startswith("the balance fell by 5 characters more than this run explains")
    assert explained(-1200).startswith("the balance fell by 1,200 characters less than this run explains")
    assert explained(1).startswith("the balance fell by 1 character more")
