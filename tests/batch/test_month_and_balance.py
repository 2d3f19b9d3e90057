"""The month's limit over runs and processes, and the stop before 402: never passed, and nothing left behind."""

import asyncio
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from budget_lab import Calls, call
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from month_lab import NOVEMBER, WHO

from speechframe.errors import BudgetExceeded, StoreError
from speechframe.old_batch.allowance import allowance
from speechframe.old_batch.balance import START
from speechframe.old_batch.books import Before
from speechframe.old_batch.budget import Budget
from speechframe.old_batch.month import MonthBudget
from speechframe.old_store.spending import Account, Spending
from speechframe.settings.rules import SpendingRules
from speechframe.spec.billing import CREDIT

LAB = Path(__file__).with_name("month_lab.py")
ACCOUNT = Account(*WHO.values(), "2026-11")
DECEMBER = Account(*WHO.values(), "2026-12")


class Clock:
    def __init__(self):
        self.now = NOVEMBER

    def __call__(self):
        return self.now


def month_budget(spending, run_id="a", limit=None, clock=lambda: NOVEMBER, **more):
    return MonthBudget(spending, **WHO, run_id=run_id, limit=limit, clock=clock, **more)


@pytest.fixture
def spending(tmp_path):
    with Spending(tmp_path / "ledger") as found:
        yield found


async def test_cancelled_while_the_count_is_opened_it_is_closed_again(tmp_path, monkeypatch):
    begun, go_on, closed = threading.Event(), threading.Event(), []
    real = Spending.correct, Spending.close

    def slow(it, *args):
        begun.set()
        assert go_on.wait(60)
        return real[0](it, *args)

    monkeypatch.setattr(Spending, "correct", slow)
    monkeypatch.setattr(Spending, "close", lambda it: closed.append(real[1](it)))
    connection = SimpleNamespace(identity="here", key_fingerprint="0f3a", is_local=False, balance=None)
    rules = SpendingRules(None, "", 10, "settings", tmp_path / "ledger")

    async def held():
        async with allowance(connection, rules, Before(), folder=tmp_path, run_id="a", max_credits=None):
            pytest.fail("it was cancelled before")

    task = asyncio.create_task(held())
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.sleep(0.05)
    ended_before = task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended_before
    assert len(closed) == 1


# -- the month ---------------------------------------------------------------------------


def test_the_runs_of_a_key_share_the_month_and_what_one_gives_back_another_takes(spending):
    one, two = (Budget(month=month_budget(spending, run, 1000)) for run in "ab")
    assert one.reserve(600)
    assert not two.reserve(401)
    assert two.reserve(400)
    one.settle(reserved=600, spent=250)
    # What a run has in hand is its own until it ends.
    assert not two.reserve(1)
    one.close()
    assert two.reserve(350)
    assert not two.reserve(1)
    two.settle(reserved=750, spent=750)
    two.close()
    assert spending.total(ACCOUNT) == 1000
    assert [m.held_millis for m in spending.months()] == [0]


def test_a_refusal_sets_nothing_aside_anywhere(spending):
    budget = Budget(limit=1000, month=month_budget(spending, limit=500))
    budget.note_balance(800)
    for amount in (501, 801, 1001):
        assert not budget.reserve(amount)
        assert (budget.reserved, budget.balance.reserved, spending.total(ACCOUNT)) == (0, 0, 0)
    assert budget.reserve(500)


def test_no_more_is_taken_in_advance_than_the_run_may_spend(spending):
    budget = Budget(limit=1000, month=month_budget(spending))
    for _ in range(10):
        assert budget.reserve(100)
        assert spending.total(ACCOUNT) <= 1000
    budget.month._take_in(wait=True)
    assert spending.total(ACCOUNT) == 1000


def test_it_asks_the_count_seldom(spending, monkeypatch):
    asked, real = [], spending.lease
    monkeypatch.setattr(spending, "lease", lambda *args, **kw: asked.append(1) or real(*args, **kw))
    budget = Budget(month=month_budget(spending, limit=10**12))
    for _ in range(20_000):
        assert budget.reserve(50_000)
        budget.settle(reserved=50_000, spent=50_000)
    budget.close()
    assert spending.total(ACCOUNT) == 20_000 * 50_000
    assert len(asked) < 20_000 / 100


def test_a_count_that_fails_in_mid_run_ends_in_an_error_with_nothing_set_aside(spending):
    budget = Budget(month=month_budget(spending, limit=10**9))
    assert budget.reserve(10)
    spending.close()
    with pytest.raises(StoreError):
        list(iter(lambda: budget.reserve(10), False))
    assert budget.reserved == budget.month._now.reserved > 10


def test_a_call_belongs_to_the_month_it_was_reserved_in(spending):
    clock = Clock()
    budget = Budget(month=month_budget(spending, limit=1000, clock=clock))
    assert budget.month.month == "2026-11"
    assert budget.reserve(700)
    assert not budget.reserve(400)
    clock.now = datetime(2026, 12, 1, tzinfo=UTC).timestamp() - 0.001
    assert not budget.reserve(400)
    clock.now += 0.002
    assert budget.reserve(400)
    assert budget.month.month == "2026-12"
    # One lease lasts for the whole of December.
    december = budget.month._now
    assert budget.reserve(0)
    assert budget.month._now is december
    budget.settle(reserved=700, spent=650)
    budget.settle(reserved=400, spent=400)
    budget.close()
    assert (spending.total(ACCOUNT), spending.total(DECEMBER)) == (650, 400)
    assert [m.held_millis for m in spending.months()] == [0, 0]
    clock.now = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    assert not budget.reserve(601)
    clock.now += 1
    assert budget.reserve(601)
    assert budget.month.month == "2027-01"


@pytest.mark.slow
@given(
    limit=st.integers(0, 3000),
    own=st.one_of(st.none(), st.integers(0, 1500)),
    events=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["reserve", "reserve", "settle", "close", "month"]), st.integers(0, 120), st.integers(0, 100)),
        max_size=80,
    ),
)  # fmt: skip
@settings(max_examples=60)
def test_whatever_several_runs_do_no_limit_is_passed_and_nothing_leaks(limit, own, events):
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, Spending(Path(folder)) as spending:
        budgets = [Budget(limit=own, month=month_budget(spending, run, limit, clock=clock)) for run in "abc"]
        flying = {id(budget): [] for budget in budgets}
        booked = 0
        for which, what, amount, percent in events:
            budget = budgets[which]
            calls = flying[id(budget)]
            if what == "reserve":
                if budget.reserve(amount):
                    calls.append(amount)
            elif what == "settle" and calls:
                reserved = calls.pop(amount % len(calls))
                budget.settle(reserved=reserved, spent=reserved * percent // 100)
                booked += reserved * percent // 100
            elif what == "close":
                budget.close()
            elif what == "month" and percent < 30:
                clock.now += 31 * 86_400
            assert budget.reserved == sum(calls)
            assert own is None or budget.settled + budget.reserved <= own
            sums = [m.spent_millis + m.held_millis for m in spending.months()]
            assert all(total <= limit for total in sums)
            # In the count stands at least what was spent and what may be.
            assert sum(sums) >= booked + sum(map(sum, flying.values()))
        for budget in budgets:
            for reserved in flying[id(budget)]:
                budget.settle(reserved=reserved, spent=reserved)
                booked += reserved
            budget.close()
            assert budget.reserved == budget.balance.reserved == 0
        listed = spending.months()
        assert sum(m.spent_millis for m in listed) == booked == sum(b.settled for b in budgets)
        assert sum(m.held_millis for m in listed) == 0


def spender(folder, run_id, limit, seed, *last):
    return subprocess.Popen(
        [sys.executable, LAB, folder, run_id, str(limit), str(seed), *last],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_processes_share_a_month_one_is_killed_and_its_ledger_makes_the_sum_exact(tmp_path):
    limit, folder = 30_000, tmp_path / "ledger"
    processes = {f"run-{i}": spender(folder, f"run-{i}", limit, i, *["60"] * (i == 0)) for i in range(4)}
    for process in processes.values():
        assert process.stdout.readline() == "ready\n"
    for process in processes.values():
        process.stdin.write("go\n")
        process.stdin.flush()
    spent, left = {}, []
    for run_id, process in processes.items():
        with process.stdout, process.stdin:
            lines = process.stdout.readlines()
        assert process.wait(60) == (-signal.SIGKILL if run_id == "run-0" else 0)
        left += [int(line.split()[1]) for line in lines if line.startswith("left")]
        spent[run_id] = [line for line in lines if not line.startswith("left")]
    spent = {run_id: sum(map(int, lines)) for run_id, lines in spent.items()}
    with Spending(folder) as spending:
        assert len(left) == 3
        assert sum(spent.values()) <= spending.total(ACCOUNT) <= limit
        spending.correct(WHO["service"], "run-0", {(WHO["key_fingerprint"], "2026-11"): spent["run-0"]})
        assert spending.total(ACCOUNT) == sum(spent.values())
        # The last to be refused was refused for want of fewer than 40, the killed one's part aside.
        assert min(left) < 40
        # What the killed one held is free again.
        assert month_budget(spending, "late", limit).reserve(limit - sum(spent.values()))


# -- the balance -------------------------------------------------------------------------


@pytest.mark.slow
@given(
    quota=st.integers(0, 400),
    is_told_first=st.booleans(),
    width=st.integers(1, 6),
    prices=st.lists(st.integers(0, 60), max_size=60),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=400)
def test_alone_on_a_key_nobody_is_ever_refused_and_all_of_the_balance_is_used(
    quota, is_told_first, width, prices, seed
):
    chance = random.Random(seed)
    on_key, budget = quota, Budget()
    if is_told_first:
        budget.note_balance(quota)
    else:
        # Nothing is known before the first answer: the first calls must fit.
        assume(sum(sorted(prices)[-width:]) <= quota)
    calls = Calls(budget, list(prices), width, chance)
    while calls.go_on:
        if calls.send():
            continue
        if (sent := calls.arrived()) is not None:
            assert sent.price <= on_key, "402"
            fails = chance.random() < 0.2
            on_key -= 0 if fails else sent.price
            sent.said = None if fails else on_key
            calls.billed.append(sent)
        elif (sent := calls.answered()) is not None:
            cost, settles_first = sent.price * CREDIT, chance.random() < 0.5
            spent = 0 if sent.said is None else cost
            if settles_first:
                budget.settle(reserved=cost, spent=spent)
            budget.note_balance(sent.said, sent.mark, cost)
            if not settles_first:
                budget.settle(reserved=cost, spent=spent)
        else:
            # Nothing is under way and the next call was refused: it would have been by the service.
            assert calls.queue[0] > on_key
            assert budget.left == on_key * CREDIT
            error = budget.exceeded(calls.queue[0] * CREDIT, 1)
            assert (error.limit, error.left_credits) == ("balance", on_key)
            break
    assert budget.reserved == budget.balance.reserved == 0


def test_what_a_colleague_spends_shows_with_the_next_answer():
    budget = Budget()
    budget.note_balance(100)
    call(budget, 10, remaining=40)
    assert budget.left == 40 * CREDIT
    assert not budget.reserve(41 * CREDIT)


def test_a_top_up_shows_with_the_next_answer():
    budget = Budget()
    budget.note_balance(30)
    call(budget, 10, remaining=20)
    assert not budget.reserve(21 * CREDIT)
    call(budget, 5, remaining=1015)
    assert budget.reserve(1015 * CREDIT)


def test_calls_in_flight_count_against_the_balance():
    budget = Budget()
    budget.note_balance(100)
    assert budget.reserve(60 * CREDIT)
    assert not budget.reserve(41 * CREDIT)
    assert budget.reserve(40 * CREDIT)
    assert budget.left == 0


def test_an_answer_from_before_a_colleague_s_call_raises_nothing():
    budget = Budget()
    budget.note_balance(1000)
    late, soon = budget.mark(), budget.mark()
    budget.reserve(10 * CREDIT)
    budget.reserve(10 * CREDIT)
    # Billed first, at 990; then a colleague took 500, then the second was billed and answered first.
    budget.note_balance(480, soon, 10 * CREDIT)
    budget.settle(reserved=10 * CREDIT, spent=10 * CREDIT)
    budget.note_balance(990, late, 10 * CREDIT)
    budget.settle(reserved=10 * CREDIT, spent=10 * CREDIT)
    assert budget.left <= 480 * CREDIT


def test_an_answer_from_before_a_top_up_takes_nothing_back_and_the_next_one_tells():
    budget = Budget()
    budget.note_balance(100)
    late, soon = budget.mark(), budget.mark()
    budget.reserve(10 * CREDIT)
    budget.reserve(10 * CREDIT)
    budget.note_balance(1080, soon, 10 * CREDIT)
    budget.settle(reserved=10 * CREDIT, spent=10 * CREDIT)
    budget.note_balance(90, late, 10 * CREDIT)
    budget.settle(reserved=10 * CREDIT, spent=10 * CREDIT)
    # Between "before the top-up" and "a colleague took it" one answer cannot tell; one sent later can.
    assert budget.left >= 1000 * CREDIT
    call(budget, 10, remaining=60)
    assert budget.left == 60 * CREDIT


def test_the_last_balance_counts_whatever_was_told_before():
    chance = random.Random(7)
    budget, left = Budget(), 500
    budget.note_balance(left)
    for _ in range(200):
        left = max(20, left + chance.randrange(-100, 100))
        call(budget, 1, remaining=left)
        assert budget.left == left * CREDIT


def test_what_says_nothing_changes_nothing():
    budget = Budget()
    for nothing in (None, -1, -(10**9)):
        budget.note_balance(nothing)
    assert budget.left is None
    assert budget.reserve(10**15)


def test_the_repeat_of_what_was_billed_fits_an_empty_balance():
    budget = Budget()
    budget.note_balance(0)
    assert budget.reserve(0, from_balance=0)
    assert not budget.reserve(0, from_balance=1)


def test_a_lost_answer_that_will_be_repeated_keeps_its_place_in_the_balance():
    budget = Budget()
    budget.note_balance(100)
    assert budget.reserve(60 * CREDIT)
    budget.settle(reserved=60 * CREDIT, spent=60 * CREDIT, balance_reserved=0, balance_spent=0)
    # Not billed so far, says the answer to another call; its repeat will be.
    call(budget, 10, remaining=90)
    assert not budget.reserve(31 * CREDIT)
    mark = budget.mark()
    assert budget.reserve(0, from_balance=0)
    budget.note_balance(30, mark, 60 * CREDIT)
    budget.settle(reserved=0, spent=0, balance_reserved=60 * CREDIT, balance_spent=60 * CREDIT)
    assert (budget.left, budget.balance.reserved, budget.settled) == (30 * CREDIT, 0, 70 * CREDIT)


def test_a_balance_that_nothing_was_said_of_at_the_start_is_the_mark_of_the_start():
    budget = Budget()
    assert budget.mark() == START


# -- what the error says -------------------------------------------------------------------


def test_the_run_s_limit_says_what_is_left_and_what_the_rest_costs():
    budget = Budget(limit=1_234_567_000)
    assert budget.reserve(1_234_000_000)
    assert not budget.reserve(568_000)
    error = budget.exceeded(2_000_000_500, 4000)
    assert str(error).startswith(
        "max_credits=1234567: 0 are spent, 567 are left, the 4,000 calls to come would cost 2,000,000.5. "
    )
    assert "higher max_credits" in str(error)
    assert (error.limit, error.max_credits, error.spent_credits, error.left_credits, error.needed_credits) == (
        "run", 1_234_567.0, 1_234_000.0, 567.0, 2_000_000.5,
    )  # fmt: skip


def test_the_month_s_limit_counts_the_others_and_says_where_it_was_set(spending):
    spending.lease(ACCOUNT, "other", 900_000, limit=None)
    budget = Budget(
        limit=10**9, month=month_budget(spending, limit=1_000_000, where="/home/speechframe.toml")
    )
    assert budget.reserve(20_000)
    assert not budget.reserve(90_000)
    budget.settle(reserved=20_000, spent=15_000)
    error = budget.exceeded(300_000, 4)
    assert error.limit == "month"
    assert (error.max_credits, error.spent_credits, error.left_credits, error.needed_credits) == (
        1000,
        915,
        85,
        300,
    )
    words = str(error)
    assert words.startswith(
        "max_credits_per_month=1000 (/home/speechframe.toml): 915 are spent or set aside in 2026-11 (UTC)"
    )
    assert "85 are left, the 4 calls to come would cost 300." in words
    assert "next month" in words


def test_the_balance_says_what_is_left_on_the_key():
    budget = Budget()
    call(budget, 10, remaining=70)
    assert not budget.reserve(71 * CREDIT)
    error = budget.exceeded(500 * CREDIT, 9)
    assert (error.limit, error.left_credits, error.needed_credits) == ("balance", 70, 500)
    assert "402" in str(error)
    assert "70 are left, the 9 calls to come would cost 500." in str(error)
    assert "top up the key" in str(error)


def test_an_error_crosses_processes_with_its_figures_and_notes():
    error = BudgetExceeded("m", max_credits=5.0, spent_credits=7.0, needed_credits=1.0, limit="month")
    error.add_note("everything is kept")
    back = pickle.loads(pickle.dumps(error))
    assert (str(back), vars(back)) == ("m", vars(error))
    assert (back.left_credits, back.__notes__) == (0.0, ["everything is kept"])
