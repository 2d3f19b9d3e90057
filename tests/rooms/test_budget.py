"""Budgets of a run and of a month."""

import asyncio
import datetime as dt
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rooms.scripted import Scripted, begun, make

import speechframe as spf
from forked import Program
from speechframe.batch.backend import Request
from speechframe.batch.budget import Budget
from speechframe.settings.spending import BudgetRule, Period
from speechframe.store.budgets import Allowance

A_MONTH_S = 31 * 86_400
SPENDS = Program("""
import sys
sys.path.insert(0, sys.argv[1])
from rooms.scripted import make
import speechframe as spf
spf.configure(max_credits_per_month=40)
print(make(sys.argv[2], [f"line {number}" for number in range(40)]).stats["done"])
""")


@pytest.fixture(autouse=True)
def _own_ledger(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(tmp_path / "ledger"))


@settings(max_examples=15)
@given(
    st.integers(0, 5000), st.integers(0, 3000),
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 100), st.sampled_from([0, 0, 0, A_MONTH_S]))),
)  # fmt: skip
def test_no_order_of_calls_passes_a_limit_and_each_month_counts_what_it_cost(limit, month_limit, calls):
    with tempfile.TemporaryDirectory() as folder:
        under_way, now_s, cost = [], [1.8e9], {}
        rule = BudgetRule("month", month_limit / 1000)
        allowance = Allowance(rule, Path(folder), "run", lambda: now_s[0])
        budget = Budget(limit, 0, [allowance])
        for price, percent, passed_s in calls:
            now_s[0] += passed_s
            name, request = allowance.rule.find_period_start(now_s[0]), Request(b"", b"", price)
            fits_run = budget.spent + budget.reserved + price <= limit
            fits = fits_run and cost.get(name, 0) + price <= month_limit
            assert budget.reserve(request, price) == (fits or not price)
            if fits:
                under_way.append((name, request, price * percent // 100))
                # Until it has ended, a call counts with its price in the month that it began in.
                cost[name] = cost.get(name, 0) + price
            if percent % 2 and under_way:
                began, request, spent = under_way.pop(0)
                budget.settle(request, request.price, [spent])
                if began == allowance.period:
                    cost[began] -= request.price - spent
            assert budget.spent + budget.reserved <= limit
        budget.close()
        for name, least in cost.items():
            assert least <= allowance.sum_allotments(name) <= month_limit


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


def test_what_stopped_a_run_names_the_limit_and_the_way_out(tmp_path):
    spf.configure(max_credits_per_month=2)
    run = make(tmp_path / "run", ["a", "b", "c", "d"])
    assert (run.stats["done"], run.stopped_because) == (2, "budget")
    assert "max_credits_per_month=2: 2 spent or set aside" in run.summary()
    assert "with a higher max_credits_per_month" in run.summary()


def test_what_the_house_rule_for_one_run_stopped_names_the_setting_and_its_place(tmp_path):
    spf.configure(max_credits_per_run=2)
    for own in (None, 2):
        run = make(tmp_path / f"run {own}", ["a", "b", "c", "d"], max_credits=own)
        assert (run.stats["done"], run.stopped_by.limit) == (2, "max_credits_per_run")
        assert "max_credits_per_run=2: 2 spent" in run.summary()
        assert "raise max_credits_per_run (set in configure()), then resume the run" in run.summary()
    run = make(tmp_path / "own", ["a", "b", "c", "d"], max_credits=1)
    assert (run.stats["done"], run.stopped_by.limit) == (1, "run")
    assert "resume the run with a higher max_credits." in run.summary()


def test_a_count_that_is_moved_away_under_a_run_stops_it_and_is_made_anew(tmp_path):
    class Moves(Scripted):
        async def send(self, request, attempt):
            if b"line 5" in request.body:
                (tmp_path / "ledger" / "budgets.sqlite3").unlink()
            return await super().send(request, attempt)

    spf.configure(max_credits_per_month=40)
    make(tmp_path / "before", [f"before {number}" for number in range(20)])
    lines = [f"line {number}" for number in range(40)]
    with pytest.raises(spf.StoreError, match="moved away while this run went on: resume the run"):
        make(tmp_path / "run", lines, backend=Moves())
    make(tmp_path / "other", ["other"])
    run = make(tmp_path / "run", lines)
    # The answer that was not written down when the run stopped may have been billed, so it counts.
    assert (run.stats["credits"], run.stopped_by.limit) == (40 - 20 - 1, "max_credits_per_month")


def test_what_a_budget_stopped_includes_further_takes(tmp_path):
    texts = ["suspect a", *(f"line {number}" for number in range(600))]
    run = make(tmp_path / "run", texts, max_credits=1, max_retakes=1)
    assert run.stopped_by.needed_credits == 1 + 600
    assert "the rest of the run costs 601 credits" in run.summary()


def test_a_damaged_file_is_a_named_error(tmp_path):
    spf.configure(max_credits_per_month=40)
    make(tmp_path / "run", ["a"])
    (file,) = (tmp_path / "ledger").glob("*.sqlite3")
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(spf.StoreError, match="SPEECHFRAME_LEDGER"):
        make(tmp_path / "again", ["a"])


def test_a_total_is_read_while_another_process_is_about_to_write(tmp_path):
    allowance = Allowance(BudgetRule("month", 0.1), tmp_path, "run", lambda: 1.8e9)
    day = allowance.period
    assert (allowance.is_counted(), allowance.sum_allotments(day)) == (False, 0)
    assert allowance.allot(5)
    allowance.learn_spending({})
    with closing(sqlite3.connect(allowance.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE allotted SET millicredits = 1000")
        assert allowance.is_counted()
        assert allowance.sum_allotments(day) == allowance.free == 5


BUDGETS = """
[[budget]]
name = "ads"
match = {team = "ads"}
max_credits = 6
alerts = [0.5, 1.0]
[[budget]]
name = "all"
max_credits = 7
alerts = [0.9]
hard = false
"""


def test_a_call_counts_in_the_budgets_that_its_tags_match(tmp_path, monkeypatch):
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    monkeypatch.chdir(tmp_path)
    told = []
    table = pd.DataFrame({"text": list("abcdefgh"), "who": ["ads", "tv, 📺"] * 4})
    run = make(tmp_path / "run", table, tags={"team": spf.col("who")}, on_alert=told.append)
    assert run.stats["done"] == 8
    assert [(alert.budget, alert.share, alert.limit_credits) for alert in told] == [
        ("ads", 0.5, 6),
        ("all", 0.9, 7),
    ]
    ads = make(tmp_path / "ads", list("ijkl"), tags={"team": "ads"})
    assert (ads.stats["done"], ads.stopped_by.limit) == (2, "ads")
    assert "ads=6: 6 spent or set aside by all runs that this budget counts since" in ads.summary()
    assert "budgets.toml, budget 1" in ads.summary()
    assert make(tmp_path / "others", list("mnop")).stats["done"] == 4


def test_a_budget_that_is_new_counts_what_the_ledger_has_already(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "before", list("abcd"), tags={"team": "ads"})
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    assert make(tmp_path / "after", list("efgh"), tags={"team": "ads"}).stats["done"] == 2


def test_a_budget_that_is_changed_counts_anew_what_it_counts_now(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "budgets.toml").write_text(BUDGETS)
    make(tmp_path / "ads", list("abcd"), tags={"team": "ads"})
    make(tmp_path / "tv", list("efg"), tags={"team": "tv"})
    (tmp_path / "budgets.toml").write_text(BUDGETS.replace('{team = "ads"}', '{team = "tv"}'))
    assert make(tmp_path / "more", list("hijklmn"), tags={"team": "tv"}).stats["done"] == 3
    # On the first day of a month the periods of these begin on one day.
    changes = ({}, {"period": "day"}, {"cycle_day": 2}, {"account": ("service", "key")})
    assert len({BudgetRule("b", 1, **change).id for change in changes}) == len(changes)


def test_a_run_keeps_its_tags_when_it_goes_on(tmp_path):
    (tmp_path / "b.toml").write_text(BUDGETS)
    spf.configure(budgets=tmp_path / "b.toml", require_tags=["team", "who"])
    table = pd.DataFrame({"text": list("abcdefghi"), "who": "ann"})
    make(tmp_path / "run", table, tags={"team": "ads", "who": spf.col("who")}, dry_run=True)
    for more in ({}, {"table": table.assign(who="bob")}):
        run = spf.resume(tmp_path / "run", backend=Scripted(), progress=False, **more)
        assert (run.stats["done"], run.stopped_by.limit) == (6, "ads")
    spf.configure(budgets=None)
    run = spf.resume(tmp_path / "run", backend=Scripted(), progress=False, tags={"team": "tv"})
    assert [*map(dict, run.ledger["tags"])] == [
        *[{"team": "ads", "who": "ann"}] * 6,
        *[{"team": "tv", "who": "bob"}] * 3,
    ]


def test_with_a_ledger_at_an_address_what_other_machines_spend_counts_from_the_next_part_on(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SPEECHFRAME_LEDGER", "memory://ledger-of-many")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "here"))
    (tmp_path / "b.toml").write_text('[[budget]]\nname = "all"\nmax_credits = 2600\n')
    spf.configure(budgets=tmp_path / "b.toml")
    count = "select sum(millicredits) from allotted where run = ?"

    def until_others_are_known():
        # The first part has been cut, or is being so.
        with closing(sqlite3.connect(tmp_path / "here/speechframe/ledger/budgets.sqlite3")) as file:
            for _ in range(1000):
                if file.execute(count, [other[0].run_id]).fetchone() == (300_000,):
                    return
                time.sleep(0.01)

    class Meanwhile(Scripted):
        async def send(self, request, attempt):
            if b"line 2000" in request.body:
                monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "there"))
                lines = [f"other {number}" for number in range(300)]
                other.append(await asyncio.to_thread(make, tmp_path / "other", lines))
            elif b"line 2100" in request.body:
                await asyncio.to_thread(until_others_are_known)
            return await super().send(request, attempt)

    other = []
    run = make(tmp_path / "run", [f"line {number}" for number in range(2600)], backend=Meanwhile())
    # Beyond the limit is what it was allotted when it did not know of the others.
    assert 2300 - 100 < run.stats["done"] < 2300 + 100
    assert run.stopped_by.limit == "all"
    assert make(tmp_path / "more", ["line"]).stats["done"] == 0


def test_a_house_that_requires_tags_refuses_a_run_without(tmp_path):
    spf.configure(require_tags=["team", "client"])
    with pytest.raises(spf.SettingsError, match=r"no tag client.*Nothing was sent"):
        make(tmp_path / "run", ["a"], tags={"team": "ads"})
    assert not (tmp_path / "run").exists()
    assert make(tmp_path / "run", ["a"], tags={"team": "ads", "client": "x"}).stats["done"] == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("max_credits = 6", 'max_credits = "six"', "budget 1: max_credits: 'six' is not allowed"),
        ("max_credits = 6", "max_credit = 6", "did you mean 'max_credits'"),
        (
            "hard = false",
            "cycle_day = 31",
            "budget 2: cycle_day: 31 is not allowed.* less than or equal to 28",
        ),
        (
            "hard = false",
            'period = "fortnight"',
            "period: 'fortnight' is not allowed: Input should be 'day', 'week', 'month', 'year' or 'total'",
        ),
        ('name = "all"', 'name = "ads"', "budget 2: name='ads' is taken"),
        ('"ads"}', '["ads"]}', r"budget 1: team: \['ads'\] is not allowed: .* valid string"),
        ('"ads"\nmatch', "ads\nmatch", "cannot be read"),
    ],
)
def test_a_file_of_budgets_that_is_none_is_refused_before_anything_is_sent(tmp_path, old, new, words):
    (tmp_path / "mine.toml").write_text(BUDGETS.replace(old, new, 1))
    spf.configure(budgets=tmp_path / "mine.toml")
    with pytest.raises(spf.SettingsError, match=words):
        make(tmp_path / "run", ["a"])


@settings(max_examples=50)
@given(
    st.dates(dt.date(2000, 1, 1), dt.date(2100, 1, 1)), st.integers(1, 28), st.sampled_from(get_args(Period))
)
def test_each_day_is_in_the_period_that_begins_last(day, cycle_day, period):
    rule = BudgetRule("b", 1, period=period, cycle_day=cycle_day)
    at = lambda day: dt.datetime.combine(day, dt.time(12), dt.UTC).timestamp()  # noqa: E731
    start = rule.find_period_start(at(day))
    assert start <= day
    if start > dt.date.min:
        assert rule.find_period_start(at(start)) == start
        assert rule.find_period_start(at(start - dt.timedelta(days=1))) < start
    if period == "month":
        assert (start.day, (day - start).days < 31) == (cycle_day, True)
