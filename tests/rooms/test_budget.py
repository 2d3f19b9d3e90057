"""Budgets of a run and of a month."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rooms.scripted import begun, make

import speechframe as spf
from speechframe.batch.queue import Budget
from speechframe.store.month import MonthFile, month_of

A_MONTH_S = 31 * 86_400
SPENDS = """
import sys
sys.path.insert(0, sys.argv[1])
from rooms.scripted import make
import speechframe as spf
spf.configure(max_credits_per_month=40)
print(make(sys.argv[2], [f"line {number}" for number in range(40)]).stats["done"])
"""


@pytest.fixture(autouse=True)
def _own_ledger(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))


@settings(max_examples=40)
@given(
    st.integers(0, 5000), st.integers(0, 3000),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 100), st.sampled_from([0, 0, 0, A_MONTH_S]))),
)  # fmt: skip
def test_no_order_of_calls_passes_a_limit_and_each_month_counts_what_it_cost(limit, month_limit, calls):
    with tempfile.TemporaryDirectory() as folder:
        month, under_way, now_s, cost = MonthFile(Path(folder), "account", "run"), [], [1.8e9], {}
        budget = Budget(limit, 0, month, month_limit=month_limit, clock=lambda: now_s[0])
        for price, percent, passed_s in calls:
            now_s[0] += passed_s
            name = month_of(now_s[0])
            fits_run = budget.spent + budget.reserved + price <= limit
            fits = fits_run and cost.get(name, 0) + price <= month_limit
            assert budget.reserve(price) == (fits or not price)
            if fits:
                under_way.append((name, price, price * percent // 100))
                # Until it has ended, a call counts with its price in the month that it began in.
                cost[name] = cost.get(name, 0) + price
            if percent % 2 and under_way:
                began, reserved, spent = under_way.pop(0)
                budget.settle(reserved, spent)
                if began == budget.month_name:
                    cost[began] -= reserved - spent
            assert budget.spent + budget.reserved <= limit
        budget.close()
        for name, least in cost.items():
            assert least <= month.total(name) <= month_limit


def test_processes_together_spend_the_month_s_limit_and_no_more(tmp_path):
    here = Path(__file__).parents[1]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDS, here, tmp_path / name], stdout=subprocess.PIPE, text=True
        )
        for name in "abc"
    ]
    assert 40 - 3 <= sum(int(run.communicate(timeout=60)[0]) for run in runs) <= 40


def test_a_killed_run_keeps_its_allotment_until_it_is_opened_again(tmp_path, monkeypatch):
    spf.configure(max_credits_per_month=400)
    live = begun(tmp_path / "killed", ["line", "slow"], 1)
    # As a kill would leave it: two calls, one of which may have been billed.
    shutil.copytree(tmp_path / "killed", tmp_path / "copy")
    shutil.copytree(tmp_path / "ledger", tmp_path / "kept")
    live.stop(drain=False)
    live.wait()
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "kept"))
    lines = [f"line {number}" for number in range(420)]
    other = make(tmp_path / "other", lines)
    assert 370 < other.stats["done"] < 398
    assert "max_credits_per_month=400: 400 spent" in other.summary()
    make(tmp_path / "copy", ["line"])
    assert make(other.path, lines).stats["done"] == 398


@pytest.mark.parametrize("limit", ["max_credits", "max_credits_per_month"])
def test_what_stopped_a_run_names_the_limit_and_the_way_out(tmp_path, limit):
    spf.configure(**{limit: 2})
    run = make(tmp_path / "run", ["a", "b", "c", "d"])
    assert (run.stats["done"], run.stopped_because) == (2, "budget")
    assert f"{limit}=2: 2 spent or set aside" in run.summary()
    assert f"with a higher {limit}" in run.summary()


def test_a_damaged_file_is_a_named_error(tmp_path):
    spf.configure(max_credits_per_month=40)
    make(tmp_path / "run", ["a"])
    (file,) = (tmp_path / "ledger").glob("*.sqlite3")
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(spf.StoreError, match="SPEECHFRAME_LEDGER"):
        make(tmp_path / "again", ["a"])
