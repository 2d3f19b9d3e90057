"""The month's count: never over the limit, however many processes; an upper bound after a kill, then exact."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spending_lab import ACCOUNT

from speechframe.errors import StoreError
from speechframe.old_store.spending import FILE_NAME, LAYOUT, SHARE, Account, Spending, month_of

LAB = Path(__file__).with_name("spending_lab.py")


@pytest.fixture
def spending(tmp_path):
    with Spending(tmp_path / "new" / "ledger") as found:
        yield found


# -- what is counted -------------------------------------------------------------------


def test_the_limit_is_one_for_all_runs_of_a_key_and_month(spending):
    assert spending.lease(ACCOUNT, "a", 600, limit=1000) == 600
    assert spending.lease(ACCOUNT, "b", 500, limit=1000) == 0
    assert spending.lease(ACCOUNT, "b", 400, limit=1000) == 400
    assert spending.total(ACCOUNT) == 1000
    for other in (
        ("else", "0f3a", "2026-11"),
        ("api.example.com", "77aa", "2026-11"),
        ("api.example.com", "0f3a", "2026-12"),
    ):
        assert spending.lease(Account(*other), "a", 1000, limit=1000) == 1000


def test_what_is_given_back_can_be_taken_by_others(spending):
    spending.lease(ACCOUNT, "a", 1000, limit=1000)
    spending.settle(ACCOUNT, "a", spent=300, given_back=700)
    assert spending.total(ACCOUNT) == 300
    assert spending.lease(ACCOUNT, "b", 700, limit=1000) == 700
    (month,) = spending.months()
    assert (month.spent_millis, month.held_millis, month.runs, month.credits) == (300, 700, 2, 1.0)


def test_in_advance_only_a_share_of_what_is_left_is_taken(spending):
    assert spending.lease(ACCOUNT, "a", 10, wanted=500, limit=8000) == 500
    assert spending.lease(ACCOUNT, "a", 10, wanted=5000, limit=8000) == 7500 // SHARE
    left = 8000 - spending.total(ACCOUNT)
    while left >= 10:
        granted = spending.lease(ACCOUNT, "a", 10, wanted=5000, limit=8000)
        assert granted == max(10, left // SHARE)
        left -= granted
    assert spending.lease(ACCOUNT, "a", 10, wanted=5000, limit=8000) == 0
    assert spending.lease(ACCOUNT, "a", left, limit=8000) == left


def test_without_a_limit_it_counts(spending):
    assert spending.lease(ACCOUNT, "a", 1, wanted=10**15, limit=None) == 10**15
    assert spending.total(ACCOUNT) == 10**15


def test_the_months_are_listed_by_service_and_key(spending):
    for service, key, month, run in (
        ("b.example", "k1", "2026-10", "r1"), ("b.example", "k1", "2026-11", "r1"),
        ("b.example", "k2", "2026-11", "r2"), ("a.example", "k1", "2026-11", "r3"),
        ("b.example", "k1", "2026-11", "r4"),
    ):  # fmt: skip
        spending.lease(Account(service, key, month), run, 1500, limit=None)
        spending.settle(Account(service, key, month), run, spent=1500, given_back=0)
    assert [(m.account, m.credits, m.runs) for m in spending.months()] == [
        (Account("a.example", "k1", "2026-11"), 1.5, 1),
        (Account("b.example", "k1", "2026-11"), 3.0, 2),
        (Account("b.example", "k2", "2026-11"), 1.5, 1),
        (Account("b.example", "k1", "2026-10"), 1.5, 1),
    ]
    assert {m.account.service for m in spending.months("b.example")} == {"b.example"}
    assert spending.months("c.example") == []


def test_a_month_is_one_of_utc():
    assert month_of(datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)) == "2026-11"
    assert month_of(datetime(2026, 11, 30, 23, 59, tzinfo=timezone(timedelta(hours=-5)))) == "2026-12"


# -- what a run's own ledger says --------------------------------------------------------


def test_the_ledger_of_a_killed_run_puts_its_row_right(spending):
    spending.lease(ACCOUNT, "killed", 900, limit=None)
    spending.lease(ACCOUNT, "other", 50, limit=None)
    december = Account("api.example.com", "0f3a", "2026-12")
    spending.correct("api.example.com", "killed", {("0f3a", "2026-11"): 420, ("0f3a", "2026-12"): 7})
    assert (spending.total(ACCOUNT), spending.total(december)) == (470, 7)
    spending.correct("api.example.com", "killed", {("0f3a", "2026-11"): 420, ("0f3a", "2026-12"): 7})
    assert (spending.total(ACCOUNT), spending.total(december)) == (470, 7)


def test_what_is_held_for_another_key_of_the_run_is_put_right_too(spending):
    old = Account("api.example.com", "0ld0", "2026-11")
    spending.lease(old, "a", 900, limit=None)
    spending.correct("api.example.com", "a", {("0f3a", "2026-11"): 30})
    assert (spending.total(old), spending.total(ACCOUNT)) == (0, 30)


def test_a_run_that_was_made_elsewhere_counts_from_its_first_start_here(spending):
    spending.correct("api.example.com", "moved", {("0f3a", "2026-11"): 900})
    assert spending.lease(ACCOUNT, "a", 200, limit=1000) == 0
    assert spending.lease(ACCOUNT, "a", 100, limit=1000) == 100


def test_an_older_copy_of_a_folder_takes_nothing_back(spending):
    spending.lease(ACCOUNT, "a", 500, limit=None)
    spending.settle(ACCOUNT, "a", spent=400, given_back=100)
    spending.lease(ACCOUNT, "a", 80, limit=None)
    spending.correct("api.example.com", "a", {("0f3a", "2026-11"): 100})
    assert spending.total(ACCOUNT) == 400
    spending.correct("api.example.com", "a", {})
    assert spending.total(ACCOUNT) == 400


# -- arithmetic ---------------------------------------------------------------------------

steps = st.tuples(
    st.integers(0, 2), st.sampled_from("abc"), st.integers(1, 60), st.integers(0, 400), st.integers(0, 100)
)


@given(st.integers(0, 500), st.lists(steps, max_size=40))
@settings(max_examples=60)
def test_whatever_runs_do_the_sum_is_theirs_and_within_the_limit(limit, events):
    spent, held = dict.fromkeys("abc", 0), dict.fromkeys("abc", 0)
    with tempfile.TemporaryDirectory() as folder, Spending(Path(folder)) as spending:
        for what, run, needed, wanted, percent in events:
            left = limit - sum(spent.values()) - sum(held.values())
            if what == 0:
                granted = spending.lease(ACCOUNT, run, needed, wanted=wanted, limit=limit)
                assert granted == 0 if needed > left else needed <= granted <= max(needed, wanted)
                held[run] += granted
            elif what == 1:
                cost = held[run] * percent // 100
                spending.settle(ACCOUNT, run, spent=cost, given_back=held[run] - cost)
                spent[run] += cost
                held[run] = 0
            else:
                # Killed: what it held is gone with it, its ledger knows what was spent of it.
                spent[run] += held[run] * percent // 100
                held[run] = 0
                spending.correct(ACCOUNT.service, run, {(ACCOUNT.key_fingerprint, ACCOUNT.month): spent[run]})
            assert spending.total(ACCOUNT) == sum(spent.values()) + sum(held.values()) <= limit
        for run, most in held.items():
            spending.settle(ACCOUNT, run, spent=0, given_back=most)
        assert spending.total(ACCOUNT) == sum(spent.values())
        assert sum(m.held_millis for m in spending.months()) == 0


# -- many processes -------------------------------------------------------------------------


def spender(folder, run_id, limit, seed, *ways, stdin):
    return subprocess.Popen(
        [sys.executable, LAB, folder, run_id, str(limit), str(seed), *ways],
        stdin=stdin, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def start(processes, opened):
    """Let them go on when all are ready."""
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    os.close(opened)


def figures(process):
    with process.stdout:
        return parsed(process.stdout.readlines())


def parsed(lines):
    return [tuple(map(int, line.split())) for line in lines]


def test_many_processes_never_pass_the_limit_together_and_use_all_of_it(tmp_path):
    limit, folder = 20_000, tmp_path / "ledger"
    # They make the file at the same moment, too: one gate, that opens for all.
    gate, opened = os.pipe()
    processes = [spender(folder, f"run-{i}", limit, i, "hold", stdin=gate) for i in range(5)]
    os.close(gate)
    start(processes, opened)
    said = [figures(process) for process in processes]
    assert [process.wait(60) for process in processes] == [0] * 5
    with Spending(folder) as spending:
        total = spending.total(ACCOUNT)
    assert total == sum(granted for lines in said for granted, _ in lines)
    # Each stopped for want of fewer than 40.
    assert limit - 40 < total <= limit
    # Whoever starts late may find nothing left; alone, nobody was.
    assert sum(map(bool, said)) >= 2


@pytest.mark.slow
def test_a_killed_process_leaves_an_upper_bound_and_its_ledger_makes_it_exact(tmp_path):
    limit, folder = 10**9, tmp_path / "ledger"
    gate, opened = os.pipe()
    processes = [spender(folder, f"run-{i}", limit, i, *["hold"] * (i % 2), stdin=gate) for i in range(4)]
    os.close(gate)
    start(processes, opened)
    spent = {}
    for i, process in enumerate(processes):
        first = [process.stdout.readline() for _ in range(10 + 7 * i)]
        os.kill(process.pid, signal.SIGKILL)
        spent[f"run-{i}"] = sum(cost for _, cost in [*parsed(first), *figures(process)])
        assert process.wait(60) == -signal.SIGKILL
    with Spending(folder) as spending:
        assert sum(spent.values()) < spending.total(ACCOUNT) <= limit
        for run_id, cost in spent.items():
            spending.correct(ACCOUNT.service, run_id, {(ACCOUNT.key_fingerprint, ACCOUNT.month): cost})
        assert spending.total(ACCOUNT) == sum(spent.values())


# -- what it cannot work with --------------------------------------------------------------


def test_a_count_that_is_held_by_another_process_is_a_clear_error(tmp_path):
    with Spending(tmp_path, busy_s=0.05) as spending:
        other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"spending\.sqlite3.*nothing more is sent.*Another process"):
            spending.lease(ACCOUNT, "a", 10, limit=100)
        with pytest.raises(StoreError, match="Another process"):
            Spending(tmp_path, busy_s=0.05)
        other.execute("ROLLBACK")
        other.close()
        assert spending.lease(ACCOUNT, "a", 10, limit=100) == 10


def test_a_damaged_count_is_refused_and_says_what_to_do(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=r"spending\.sqlite3.*It is damaged: move it away"):
        Spending(tmp_path)


def test_a_count_that_is_damaged_in_mid_run_is_refused(tmp_path):
    with Spending(tmp_path) as spending:
        for i in range(200):
            spending.lease(ACCOUNT, f"run-{i}", 10, limit=None)
        size = (tmp_path / FILE_NAME).stat().st_size
        with (tmp_path / FILE_NAME).open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * (size - 4096))
        with Spending(tmp_path) as fresh, pytest.raises(StoreError, match="damaged"):
            fresh.lease(ACCOUNT, "a", 10, limit=100)


def test_a_newer_layout_is_refused_by_name(tmp_path):
    with Spending(tmp_path) as spending:
        spending._connection.execute(f"PRAGMA user_version = {LAYOUT + 1}")
    with pytest.raises(StoreError, match="newer release"):
        Spending(tmp_path)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="SPEECHFRAME_LEDGER"):
        Spending(tmp_path / "file" / "ledger")


def many_runs(spending):
    for i in range(10_000):
        spending.lease(ACCOUNT, f"run-{i}" * 50, 1, limit=None)


def test_a_full_disk_grants_nothing_and_breaks_nothing(tmp_path):
    with Spending(tmp_path) as spending:
        spending.lease(ACCOUNT, "a", 10, limit=None)
        spending._connection.execute("PRAGMA max_page_count = 2")
        with pytest.raises(StoreError, match="make room"):
            many_runs(spending)
        total = spending.total(ACCOUNT)
        spending._connection.execute("PRAGMA max_page_count = 1000000")
        assert spending.lease(ACCOUNT, "another", 1, limit=None) == 1
        assert spending.total(ACCOUNT) == total + 1


def test_it_is_closed_once_and_for_all(tmp_path):
    spending = Spending(tmp_path)
    spending.close()
    spending.close()
    with pytest.raises(StoreError):
        spending.total(ACCOUNT)
