"""One balance that nothing explains ends no run: it counts when something newer says so, too."""

import random

import pytest
from budget_lab import call
from faulty import check_books, statuses
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.batch.budget import Budget
from speechframe.spec.billing import CREDIT, billed_characters

LINES = [f"This is line {i:02d}." for i in range(30)]
EACH = billed_characters(LINES[0])


# -- the arithmetic ----------------------------------------------------------------------


def doubtful():
    """Return a budget of 1,000 characters, of which one answer alone says that 3 are left."""
    budget = Budget()
    budget.note_balance(1000)
    call(budget, 10, remaining=3)
    return budget


def test_a_fall_that_nothing_explains_holds_calls_up_until_one_tells():
    budget = doubtful()
    assert (budget.left, budget.is_in_doubt) == (3 * CREDIT, True)
    assert not budget.reserve(10 * CREDIT)
    call(budget, 10, remaining=980, in_doubt=True)
    assert (budget.left, budget.is_in_doubt) == (980 * CREDIT, False)


def test_a_second_answer_confirms_the_fall():
    budget = Budget()
    budget.note_balance(1000)
    call(budget, 10, remaining=23)
    call(budget, 10, remaining=13)
    assert (budget.left, budget.is_in_doubt) == (13 * CREDIT, False)
    assert not budget.reserve(14 * CREDIT, in_doubt=True)


def test_the_service_s_own_page_confirms_it_or_not():
    for said, left in ((990, 990), (3, 3), (0, 0)):
        budget = doubtful()
        budget.note_balance(said, budget.mark(), is_sure=True)
        assert (budget.left, budget.is_in_doubt) == (left * CREDIT, False)


def test_answers_of_calls_sent_before_it_was_seen_neither_confirm_nor_clear_it():
    for said in (980, 3):
        budget = Budget()
        budget.note_balance(1000)
        late = budget.mark()
        budget.reserve(10 * CREDIT)
        call(budget, 10, remaining=3)
        budget.note_balance(said, late, 10 * CREDIT)
        budget.settle(reserved=10 * CREDIT, spent=10 * CREDIT)
        assert (budget.left < 10 * CREDIT, budget.is_in_doubt) == (True, True)


def test_an_odd_balance_right_after_a_colleague_s_call_confirms_that_call_only():
    budget = Budget()
    budget.note_balance(1000)
    call(budget, 10, remaining=900)
    call(budget, 10, remaining=0)
    assert (budget.left, budget.is_in_doubt) == (0, True)
    call(budget, 10, remaining=880, in_doubt=True)
    assert (budget.left, budget.is_in_doubt) == (880 * CREDIT, False)


def test_a_call_that_cost_more_than_was_left_tells_even_where_it_says_no_balance():
    budget = doubtful()
    mark = budget.mark()
    assert budget.reserve(10 * CREDIT, in_doubt=True)
    budget.balance.note_success(mark, 10 * CREDIT)
    budget.settle(reserved=10 * CREDIT, spent=10 * CREDIT)
    assert (budget.left, budget.is_in_doubt) == (980 * CREDIT, False)


def test_a_small_call_that_says_no_balance_tells_nothing():
    budget = doubtful()
    mark = budget.mark()
    assert budget.reserve(1 * CREDIT)
    budget.balance.note_success(mark, 1 * CREDIT)
    budget.settle(reserved=1 * CREDIT, spent=1 * CREDIT)
    assert (budget.left, budget.is_in_doubt) == (2 * CREDIT, True)


@given(
    quota=st.integers(0, 600),
    width=st.integers(1, 6),
    prices=st.lists(st.integers(1, 60), min_size=1, max_size=60),
    colleague=st.one_of(st.none(), st.tuples(st.integers(0, 60), st.integers(1, 600))),
    odd=st.one_of(st.none(), st.tuples(st.integers(0, 60), st.integers(1, 600))),
    has_page=st.booleans(),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=400)
def test_whatever_one_answer_says_the_run_ends_where_the_balance_does(
    quota, width, prices, colleague, odd, has_page, seed
):
    chance, budget = random.Random(seed), Budget()
    on_key, is_refused, answers, probes = quota, False, 0, 0
    budget.note_balance(quota)
    queue, sent, billed = list(prices), [], []
    while queue or sent or billed:
        if queue and len(sent) + len(billed) < width and budget.reserve(queue[0] * CREDIT):
            sent.append((queue.pop(0), budget.mark()))
        elif sent and (not billed or chance.random() < 0.5):
            price, mark = sent.pop(chance.randrange(len(sent)))
            if price > on_key:
                is_refused = True
                break
            on_key -= price
            billed.append((price, mark, on_key))
        elif billed:
            price, mark, left = billed.pop(chance.randrange(len(billed)))
            # One answer says less than there is, and somebody else spends at some time.
            said = max(0, left - odd[1]) if odd is not None and answers == odd[0] else left
            if colleague is not None and answers == colleague[0]:
                on_key -= min(on_key, colleague[1])
            answers += 1
            budget.note_balance(said, mark, price * CREDIT)
            budget.settle(reserved=price * CREDIT, spent=price * CREDIT)
        elif budget.is_in_doubt:
            # As the engine does it: the service is asked, or one call finds out.
            if has_page:
                budget.note_balance(on_key, budget.mark(), is_sure=True)
                assert not budget.is_in_doubt
            if not budget.reserve(queue[0] * CREDIT, in_doubt=True):
                break
            probes += 1
            sent.append((queue.pop(0), budget.mark()))
        else:
            break
    if colleague is None:
        assert not is_refused
        # It gave up where the balance ended, and not because one answer said so.
        assert not queue or queue[0] > on_key
        assert probes <= 1
    assert is_refused or budget.reserved == 0


# -- on a real port ------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, None])
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("said", [0, 3])
def test_one_odd_balance_leaves_its_neighbours_alone(make_faulty, speak, idempotent, width, said):
    server = make_faulty(idempotent=idempotent, delay_s=0.005)
    server.odd_balances = {LINES[9]: said}
    run = speak(server, LINES, max_concurrency=width)
    assert (run.status, run.stopped_because) == ("finished", None)
    assert set(statuses(run).values()) == {"done"}
    assert set(server.billed.values()) == {1}
    check_books(run, server)


def test_several_odd_balances_apart_from_each_other_end_nothing(make_faulty, speak):
    server = make_faulty(idempotent=None, delay_s=0.005)
    server.odd_balances = dict.fromkeys(LINES[4::6], 0)
    run = speak(server, LINES)
    assert (run.status, len(server.seen)) == ("finished", 30)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("left", [0, EACH - 1, 3 * EACH])
def test_what_a_colleague_takes_ends_the_run_before_it_is_refused(make_faulty, speak, width, left):
    server = make_faulty(quota=10**6, delay_s=0.005)
    server.colleagues = {LINES[9]: 10**6 - 13 * EACH - left}
    run = speak(server, LINES, max_concurrency=width)
    assert (run.status, run.stopped_because) == ("stopped", "quota")
    assert server.refused == 0
    assert server.characters + server.used_by_colleagues <= server.quota
    done = list(statuses(run).values()).count("done")
    assert done == len(server.seen)
    # Of calls that overtake each other the answers tell no exact balance, only what there is at least.
    assert 13 + (left // EACH if width == 1 else 0) <= done <= 13 + left // EACH


@pytest.mark.parametrize("width", [1, 4])
def test_a_service_without_a_page_is_asked_by_one_call(make_faulty, speak, width):
    server = make_faulty(quota=10**6, idempotent=None, delay_s=0.005)
    server.colleagues = {LINES[9]: 10**6 - 13 * EACH}
    run = speak(server, LINES, max_concurrency=width)
    assert (run.status, run.stopped_because) == ("stopped", "quota")
    assert server.refused <= 1
    assert server.characters + server.used_by_colleagues <= server.quota
    assert list(statuses(run).values()).count("done") == 13
