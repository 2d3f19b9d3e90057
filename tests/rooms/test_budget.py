"""Budgets of a run and of a month."""

import multiprocessing
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.batch.budget import Budget
from speechframe.errors import StoreError
from speechframe.store.month import MonthFile

NOVEMBER = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC).timestamp()
_processes = multiprocessing.get_context("spawn")


def _month(folder, run="run", spent=()):
    month = MonthFile(folder, "api.example.com/0f3a", run)
    month.correct(dict(spent))
    return month


def _budget(folder, run="run", *, limit=10_000, clock=lambda: NOVEMBER):
    return Budget(None, 0, _month(folder, run), month_limit=limit, clock=clock)


@settings(max_examples=40)
@given(
    st.integers(0, 5000), st.integers(0, 3000), st.lists(st.tuples(st.integers(0, 900), st.integers(0, 100)))
)
def test_no_order_of_calls_passes_a_limit(limit, month_limit, calls):
    with tempfile.TemporaryDirectory() as folder:
        month, under_way = _month(Path(folder)), []
        budget = Budget(limit, 0, month, month_limit=month_limit)
        for price, percent in calls:
            fits = budget.spent + budget.reserved + price <= min(limit, month_limit)
            assert budget.reserve(price) == (fits or not price)
            if fits:
                under_way.append((price, price * percent // 100))
            if percent % 2 and under_way:
                budget.settle(*under_way.pop(0))
            assert budget.spent + budget.reserved <= limit
            assert budget.spent + budget.reserved <= month.total(budget.month_name) <= month_limit
        budget.close()
        assert month.total(budget.month_name) == budget.spent + budget.reserved


def _spend(folder, run, pipe):
    budget = _budget(folder, run, limit=40_000)
    pipe.recv()
    while budget.reserve(70):
        budget.settle(70, 70)
    budget.close()
    pipe.send(budget.spent)


def test_processes_together_spend_the_month_s_limit_and_no_more(tmp_path):
    pipes = [_processes.Pipe() for _ in range(3)]
    runs = [
        _processes.Process(target=_spend, args=(tmp_path, str(n), pipe), daemon=True)
        for n, (_, pipe) in enumerate(pipes)
    ]
    for run in runs:
        run.start()
    for ours, _ in pipes:
        ours.send(None)
    spent = sum(ours.recv() for ours, _ in pipes)
    for run in runs:
        run.join()
    assert 40_000 - 3 * 70 - 40_000 // 20 <= spent <= 40_000


def test_a_killed_run_keeps_its_allotment_until_it_is_opened_again(tmp_path):
    killed = _budget(tmp_path, "killed")
    assert killed.reserve(4_000)
    killed.settle(4_000, 3_000)
    other = _budget(tmp_path, "other")
    assert not other.reserve(6_500)
    assert "max_credits_per_month=10: 4 spent" in str(other.why_not(6_500))
    assert other.why_not(6_500).limit == "month"
    _month(tmp_path, "killed", spent={"2026-11": 3_000})
    assert other.reserve(6_500)


def test_a_run_over_midnight_never_counts_less_than_each_month_has_cost(tmp_path):
    now = [NOVEMBER]
    budget = _budget(tmp_path, clock=lambda: now[0])
    assert budget.reserve(5_000)
    assert budget.reserve(4_000)
    now[0] += 2
    assert not budget.reserve(10_001)
    assert budget.reserve(8_000)
    budget.settle(5_000, 1_000)
    budget.settle(8_000, 8_000)
    budget.settle(4_000, 4_000)
    assert (budget.month_name, budget.spent) == ("2026-12", 13_000)
    budget.close()
    assert [_month(tmp_path, "other").total(name) for name in ("2026-11", "2026-12")] == [9_000, 8_000]


def test_the_error_names_the_limit_and_the_way_out():
    budget = Budget(10_000, spent_before=9_500)
    assert not budget.reserve(1_000)
    error = budget.why_not(20_000)
    assert (error.limit, error.max_credits, error.spent_credits, error.needed_credits) == ("run", 10, 9.5, 20)
    assert "max_credits=10: 9.5 spent" in str(error)
    assert "a higher max_credits" in str(error)
    assert budget.reserve(0), "what costs nothing is still made"


def test_a_damaged_file_is_a_named_error(tmp_path):
    budget = _budget(tmp_path)
    [file] = tmp_path.glob("*.sqlite3")
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="SPEECHFRAME_LEDGER"):
        budget.reserve(10)
