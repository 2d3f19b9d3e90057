"""One balance that nothing explains ends no run: it counts when something newer says so, too."""

import random
from dataclasses import dataclass, field

import pytest
from budget_lab import Calls, Sent, call
from faulty import check_books, statuses
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.old_batch.budget import Budget
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


def two_under_way():
    """Return a budget of 1,000 characters and the marks of two calls that were sent together, of 10 each."""
    budget = Budget()
    budget.note_balance(1000)
    marks = [budget.mark() for _ in range(2) if budget.reserve(10 * CREDIT)]
    return budget, *marks


def answered(budget, said, mark):
    """Take in the answer to one of them."""
    budget.note_balance(said, mark, 10 * CREDIT)
    budget.settle(reserved=10 * CREDIT, spent=10 * CREDIT)


def test_a_rise_that_was_told_by_a_call_sent_before_the_fall_was_seen_ends_no_doubt():
    budget, late, soon = two_under_way()
    # Topped up when the late one was billed; then a colleague took nearly all of it.
    answered(budget, 3, soon)
    answered(budget, 5980, late)
    assert (budget.left, budget.is_in_doubt) == (0, True)
    assert not budget.reserve(10 * CREDIT)


@pytest.mark.parametrize(("first", "second"), [(500, 200), (200, 500)])
def test_of_two_falls_told_by_calls_sent_together_the_deeper_one_counts(first, second):
    budget, one, other = two_under_way()
    answered(budget, first, one)
    answered(budget, second, other)
    assert budget.is_in_doubt
    assert 170 * CREDIT < budget.left <= 200 * CREDIT


def test_an_answer_that_fits_what_was_known_ends_no_doubt_when_it_is_older():
    budget, late, soon = two_under_way()
    answered(budget, 3, soon)
    answered(budget, 990, late)
    assert budget.is_in_doubt
    assert not budget.reserve(10 * CREDIT)


def test_what_refuses_in_doubt_says_what_is_left_in_doubt():
    budget = doubtful()
    assert not budget.reserve(10 * CREDIT)
    error = budget.exceeded(10 * CREDIT, 1)
    assert (error.limit, error.left_credits, budget.left) == ("balance", 3, 3 * CREDIT)
    assert "3 are left, the 1 call to come would cost 10." in str(error)


# What happens beside a run: how much, by the number of the answer that comes then.
HAPPENS = st.dictionaries(st.integers(0, 20), st.integers(1, 300), min_size=1, max_size=4)
NOTHING = st.just({})


@dataclass
class Key:
    """A key and what is left on it, while somebody else takes of it and adds to it.

    Attributes
    ----------
    untold
        What was added since the last call was sent: no answer could tell.
    takings
        When each taking was told to the run, in answers and pages; None while it was not.
    odd
        When the last odd answer was told; None when something newer has said how it is.
    """

    left: int
    taken: dict
    added: dict
    lies: dict
    untold: int = 0
    lied: int = 0
    odd: int | None = None
    answers: int = 0
    takings: list = field(default_factory=list)

    def bill(self, sent):
        """Take the price, and say what is left."""
        self.left -= sent.price
        sent.said, sent.knows = self.left, len(self.takings)

    def answer(self, budget, sent):
        """Say what is left, or less than that, and let others use the key."""
        lie = self.lies.get(self.answers, 0) if self.odd is None else 0
        said = max(0, sent.said - lie)
        self._use()
        budget.note_balance(said, sent.mark, sent.price * CREDIT)
        if said != sent.said:
            self.odd, self.lied = budget.mark().told, self.lied + 1
            return
        self._tell(budget, sent.knows)
        if self.odd is not None and sent.mark.told >= self.odd:
            self.odd = None

    def page(self, budget):
        """Say what is left where the service is asked for it."""
        budget.note_balance(self.left, budget.mark(), is_sure=True)
        self._tell(budget, len(self.takings))
        self.untold, self.odd = 0, None

    def _use(self):
        if self.answers in self.taken:
            self.left -= min(self.left, self.taken[self.answers])
            self.takings.append(None)
        more = self.added.get(self.answers, 0)
        self.left, self.untold, self.answers = self.left + more, self.untold + more, self.answers + 1

    def _tell(self, budget, count):
        told = budget.mark().told
        self.takings[:count] = [told if at is None else at for at in self.takings[:count]]

    def refuses_with_reason(self, sent):
        """Whether somebody took something that nobody had told when `sent` was sent."""
        return any(at is None or at > sent.mark.told for at in self.takings)


@dataclass
class Story:
    """How a run ended: with a call that was refused, or with one that was not sent; and which found out."""

    refused: Sent | None = None
    probes: int = 0


def played(calls, key, *, has_page):
    """Make the calls of a run as the engine does, until they are made or the run ends."""
    budget, story = calls.budget, Story()
    while calls.go_on:
        if calls.send():
            key.untold = 0
        elif (sent := calls.arrived()) is not None:
            if sent.price > key.left:
                story.refused = sent
                break
            key.bill(sent)
            calls.billed.append(sent)
        elif (sent := calls.answered()) is not None:
            key.answer(budget, sent)
            budget.settle(reserved=sent.price * CREDIT, spent=sent.price * CREDIT)
        elif budget.is_in_doubt:
            # The service is asked, or one call finds out.
            if has_page:
                key.page(budget)
                assert not budget.is_in_doubt
            if not calls.send(in_doubt=True):
                break
            key.untold, story.probes = 0, story.probes + 1
        else:
            break
    return story


PRICES = st.lists(st.integers(1, 20), min_size=10, max_size=60)


def ended(quota, prices, seed, *, width=1, has_page=True, taken=(), added=(), lies=()):
    """Return calls, key and story of a run that has ended, whatever ended it."""
    budget, key = Budget(), Key(quota, dict(taken), dict(added), dict(lies))
    budget.note_balance(quota)
    calls = Calls(budget, list(prices), width, random.Random(seed))
    story = played(calls, key, has_page=has_page)
    if story.refused is None:
        assert budget.reserved == 0
    if story.refused is None and calls.queue:
        assert budget.exceeded(calls.queue[0] * CREDIT, 1).left_credits * CREDIT == budget.left
    return calls, key, story


@pytest.mark.slow
@given(st.integers(0, 300), PRICES, HAPPENS, st.integers(1, 6), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=300)
def test_whatever_odd_answers_say_the_run_ends_where_the_balance_does(
    quota, prices, lies, width, has_page, seed
):
    calls, key, story = ended(quota, prices, seed, width=width, has_page=has_page, lies=lies)
    assert story.refused is None
    assert not calls.queue or calls.queue[0] > key.left
    assert story.probes <= key.lied


@given(st.integers(0, 300), PRICES, HAPPENS, HAPPENS, st.integers(0, 2**32))
@settings(max_examples=200)
def test_whatever_odd_answers_say_beside_a_colleague_the_run_ends_where_the_balance_does(
    quota, prices, taken, lies, seed
):
    calls, key, story = ended(quota, prices, seed, taken=taken, lies=lies)
    if story.refused is not None:
        assert key.refuses_with_reason(story.refused)
    else:
        assert not calls.queue or calls.queue[0] > key.left


@pytest.mark.slow
@given(st.integers(0, 300), PRICES, HAPPENS, HAPPENS | NOTHING, st.integers(1, 6), st.integers(0, 2**32))
@settings(max_examples=400)
def test_whatever_others_take_and_add_the_run_ends_where_the_balance_does(
    quota, prices, taken, added, width, seed
):
    calls, key, story = ended(quota, prices, seed, width=width, taken=taken, added=added)
    # Of calls that overtake each other the answers tell no exact balance once others use the key, too.
    blurred = (width - 1) * max(prices)
    if (refused := story.refused) is not None:
        assert refused.price <= key.left + blurred or key.refuses_with_reason(refused)
    else:
        # What was added since the last call was sent, nobody could tell.
        assert not calls.queue or calls.queue[0] > key.left - key.untold - blurred


# -- on a real port ------------------------------------------------------------------------


@pytest.mark.sampled(2)
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


@pytest.mark.sampled(2)
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
