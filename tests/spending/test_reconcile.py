"""Bills and the ledger: the bridge adds up, names what it found, and refuses what is no report of this key."""

import itertools

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spending.ledgers import at, make_ledger

import speechframe as spf

NOVEMBER = {"start": "2026-11-01", "end": "2026-12-01"}


def amounts(bridge):
    return dict(zip(bridge.lines["line"], bridge.lines["credits"], strict=True))


rows = st.tuples(
    st.integers(0, 900_000),  # thousandths of a credit
    st.sampled_from(["done", "suspect", "failed", "retried", "charged_unknown"]),
    st.sampled_from(["computed", "unknown", "reported", "none"]),
    st.sampled_from([None, "ads", "tv, 📺"]),
    st.one_of(st.none(), st.integers(0, 10_000)),
)


@settings(max_examples=15)
@given(st.lists(rows, max_size=12), st.integers(0, 10_000_000))
def test_the_lines_add_up_to_the_bill_and_nobody_used_less_than_nothing(tmp_path_factory, found, reported):
    folder = make_ledger(
        tmp_path_factory.mktemp("ledger"),
        [
            {
                "time": at(n),
                "status": status,
                "credits": millis / 1000,
                "computed": millis / 1000,
                "credits_basis": basis,
                "tags": [] if team is None else [("team", team)],
                "balance_after": balance,
            }
            for n, (millis, status, basis, team, balance) in enumerate(found)
        ],
    )
    bridge = spf.reconcile(reported / 1000, **NOVEMBER, source=folder)
    lines = bridge.lines
    assert round(1000 * lines["credits"]).astype(int).sum() == reported
    assert (lines[lines["line"] != "unexplained"]["credits"] >= 0).all()


def test_others_resets_unknown_calls_and_failed_ones_have_a_line_each(tmp_path):
    balances = itertools.accumulate([9990] + [-10] * 19 + [-510] + [-10] * 9 + [8990] + [-10] * 9)
    calls = [
        {"time": at(n), "balance_after": balance, "tags": [("team", "ads" if n % 2 else "tv, 📺")]}
        for n, balance in enumerate(balances)
    ]
    lost = {"time": at(50), "status": "charged_unknown", "credits_basis": "unknown", "credits": 7.0}
    failed = {"time": at(51), "status": "failed", "credits": 3.0}
    folder = make_ledger(tmp_path, [*calls, lost, failed])
    assert amounts(spf.reconcile(905, **NOVEMBER, source=folder))["charged_unknown"] == 2.0
    bridge = spf.reconcile(920, **NOVEMBER, source=folder)
    assert amounts(bridge) == {
        "ours": 200.0,
        "billed but failed": 3.0,
        "charged_unknown": 7.0,
        "balance": 0.0,
        "other users of the key": 500.0,
        "unexplained": 10.0,
    }
    assert "the balance rose by at least 8,990 at 2026-11-01 12:00 UTC" in repr(bridge)
    assert "(UTC), without the end; complete until" in repr(bridge)
    assert len(bridge.rows("ours", team="tv, 📺")) == 20
    assert bridge.rows("charged_unknown")["credits"].tolist() == [7.0]


def test_another_price_and_clocks_an_hour_apart_are_named(tmp_path):
    balances = itertools.accumulate([-110] * 40, initial=10_000)
    calls = [
        {
            "time": at(n + 3600 * (n % 2)),
            "credits": 100.0,
            "computed": 100.0,
            "balance_after": balance,
            "host": "ab"[n % 2],
        }
        for n, balance in enumerate(balances)
    ]
    bridge = spf.reconcile(4510, **NOVEMBER, source=make_ledger(tmp_path, calls))
    assert amounts(bridge)["billed at another price"] == 400.0
    assert "1.1 times the computed price of each call" in repr(bridge)
    assert "the clocks of a and b differ by about 60 minutes" in repr(bridge)
    assert "balance went up" not in repr(bridge)


def test_what_the_service_reports_of_a_call_is_followed_and_named(tmp_path):
    calls = [
        {"time": at(n), "credits": 11.0, "reported": 11.0, "credits_basis": "reported"} for n in range(20)
    ]
    bridge = spf.reconcile(220, **NOVEMBER, source=make_ledger(tmp_path, calls))
    assert amounts(bridge) == {"ours": 220.0, "reported differs from computed": 0.0, "unexplained": 0.0}
    assert "1.1 times the computed price" in repr(bridge)


def test_a_report_by_day_is_compared_in_its_own_time_zone(tmp_path):
    # The night in which clocks go back, and an hour that Berlin counts to the next day.
    times = ["2026-10-24T21:30", "2026-10-24T22:30", "2026-10-25T22:30", "2026-10-25T23:30"]
    calls = [{"time": pd.Timestamp(time, tz="UTC"), "credits": float(2**n)} for n, time in enumerate(times)]
    folder = make_ledger(tmp_path / "ledger", calls)
    report = tmp_path / "bill.csv"
    report.write_text(
        "date,credits,operation\n2026-10-24,1,generate\n2026-10-25,6,generate\n2026-10-26,9,generate\n"
    )
    bridge = spf.reconcile(report, start="2026-10-24", end="2026-10-27", tz="Europe/Berlin", source=folder)
    assert bridge.days["ours"].tolist() == [1, 6, 8]
    assert bridge.days["difference"].tolist() == [0, 0, 1]
    assert amounts(bridge)["unexplained"] == 1


def test_a_time_in_a_report_keeps_its_offset(tmp_path):
    evening = pd.Timestamp("2026-11-26T23:30:00-08:00")
    folder = make_ledger(tmp_path / "ledger", [{"time": evening, "credits": 10.0}])
    report = tmp_path / "report.csv"
    window = {"start": "2026-11-20", "end": "2026-12-01", "source": folder}
    for time, tz in (
        ("2026-11-26T23:30:00-08:00", "UTC"),
        ("2026-11-27T07:30:00Z", "America/Los_Angeles"),
        ("2026-11-27 07:30", "UTC"),
    ):
        report.write_text(f"date,credits\n{time},10\n")
        (day,) = spf.reconcile(report, tz=tz, **window).days.itertuples()
        assert (str(day.date), day.difference) == ("2026-11-27" if tz == "UTC" else "2026-11-26", 0)
    # A line of 30 November that says another time zone may be outside of the window.
    report.write_text("date,credits\n2026-11-30T23:30:00-08:00,7\n2026-11-27,10\n")
    assert spf.reconcile(report, **window).days["reported"].tolist() == [10]


def test_a_report_of_another_key_or_none_at_all_is_refused(tmp_path):
    folder = make_ledger(tmp_path / "ledger", [{"time": at(0)}, {"time": at(1), "key_fingerprint": "k2"}])
    with pytest.raises(spf.AnalysisError, match=r"no calls of this key.*k1, k2") as caught:
        spf.reconcile(5, **NOVEMBER, key="sk-secret", source=folder)
    assert "sk-secret" not in str(caught.value)
    assert "calls of 2 keys: k1, k2" in repr(spf.reconcile(20, **NOVEMBER, source=folder))
    report = tmp_path / "bill.csv"
    report.write_text("date,credits\n2026-11-20,5\n")
    assert "the ledger has no calls on the report's days; check its key" in repr(
        spf.reconcile(report, **NOVEMBER, source=folder)
    )
    for text, words in (
        ("day,credits\n2026-11-20,5\n", "lacks the column date"),
        ("date,credits\n2026-11-20,many\n", "line 2.*not a number of credits"),
        ("date,credits\nyesterday,5\n", "line 2.*date such as"),
        ("date,credits\n2026-11-20,1,204\n", "line 2: '1,204' is not a number"),
    ):
        report.write_text(text)
        with pytest.raises(spf.AnalysisError, match=words):
            spf.reconcile(report, **NOVEMBER, source=folder)


def test_calls_at_once_may_answer_in_any_order_and_a_free_repeat_makes_a_lost_one_certain(tmp_path):
    overlapping = [
        {"time": at(0), "latency_ms": 3000.0, "balance_after": 970},
        {"time": at(1), "latency_ms": 3000.0, "balance_after": 990},
        {"time": at(2), "latency_ms": 3000.0, "balance_after": 980},
    ]
    key = "f" * 32
    lost = {
        "time": at(9),
        "status": "retried",
        "credits_basis": "unknown",
        "credits": 10.0,
        "request_key": key,
    }
    again = {"time": at(10), "credits": 0.0, "computed": 0.0, "balance_after": 960, "request_key": key}
    bridge = spf.reconcile(40, **NOVEMBER, source=make_ledger(tmp_path, [*overlapping, lost, again]))
    assert amounts(bridge) == {"ours": 40.0, "unexplained": 0.0}


def test_lines_of_a_report_outside_the_window_do_not_count_and_are_named(tmp_path):
    folder = make_ledger(tmp_path / "ledger", [{"time": at(0)}])
    report = tmp_path / "bill.csv"
    report.write_text("date,credits\n2026-10-31,500\n2026-11-01,10\n2026-12-01,70\n")
    bridge = spf.reconcile(report, **NOVEMBER, source=folder)
    assert amounts(bridge) == {"ours": 10.0, "report": 0.0, "unexplained": 0.0}
    assert "2 lines outside the window" in repr(bridge)


def test_a_reset_is_found_where_another_machine_goes_on_after_it(tmp_path):
    day = 86_400
    calls = [{"time": at(n), "balance_after": 1000 - 10 * n, "host": "a"} for n in range(1, 90)]
    calls += [{"time": at(day + n), "balance_after": 1000 - 10 * n, "host": "b"} for n in range(1, 90)]
    said = repr(spf.reconcile(1780, **NOVEMBER, source=make_ledger(tmp_path, calls)))
    assert "the balance rose by at least 880 at 2026-11-02 12:00 UTC" in said
    assert "clocks" not in said


def test_calls_under_way_at_a_reset_are_nobody_else_s(tmp_path):
    calls = [
        {"time": at(0), "balance_after": 100},
        {"time": at(2), "latency_ms": 9000.0, "balance_after": 990},
        {"time": at(3), "balance_after": 90},
        {"time": at(12), "balance_after": 980, "latency_ms": None},
    ]
    found = amounts(spf.reconcile(40, **NOVEMBER, source=make_ledger(tmp_path, calls)))
    assert found == {"ours": 40.0, "balance": 0.0, "unexplained": 0.0}
