"""The learned cap and the pace: against a service that is simulated call by call, on a clock of its own."""

import heapq
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.batch.cap import FIRST_GAP, LONGEST_GAP, Cap
from speechframe.batch.rate import Rate

RTT_S = 0.003


class Simulated:
    """A service with a cap that may change and a rate, and the calls that go there; time is what events say."""

    def __init__(self, cap, *, start=2, most=100, rate=None, mean_s=0.2, seed=0):
        self.true_cap, self.true_rate, self.mean_s = cap, rate, mean_s
        self.cap, self.rate = Cap(start, most), Rate()
        self.draw = random.Random(seed)
        self.events, self.order = [], 0
        self.in_flight = self.serving = self.sent = self.refused = self.done = 0
        self.now = self.last = self.used = self.offered = 0.0
        self.tokens, self.filled = (rate or 0) * 0.2, 0.0
        self.alarm = False

    def run(self, rows):
        self.left = rows
        self.begin_all()
        while self.events:
            self.now, _, kind, ticket = heapq.heappop(self.events)
            cap = self.true_cap(self.last)
            self.used += min(self.serving, cap) * (self.now - self.last)
            self.offered += cap * (self.now - self.last)
            self.last = self.now
            self.end(kind, ticket)
            self.begin_all()
        assert (self.done, self.in_flight) == (rows, 0)
        return self

    def end(self, kind, ticket):
        if kind == "alarm":
            self.alarm = False
            return
        self.in_flight -= 1
        if kind == "passed":
            self.serving -= 1
            self.done += 1
            self.rate.passed(self.now, ticket.number)
            if self.cap.passed(ticket, beside=self.in_flight):
                self.rate.doubted(self.now)
            return
        self.refused += 1
        self.left += 1
        if self.rate.per_second is not None:
            self.rate.refused(self.now, ticket.number)
            return
        begins_to_fall = self.cap.refused(ticket, beside=self.in_flight)
        if ticket.beside == self.in_flight == 0:
            self.rate.proved(self.now)
        elif begins_to_fall:
            self.rate.fell(self.now)
        elif ticket.beside <= 2:
            self.rate.refused_few(self.now)

    def begin_all(self):
        while self.left and self.in_flight < (self.cap.limit if self.rate.per_second is None else 100):
            wait_s = self.rate.wait_s(self.now)
            if wait_s:
                if not self.alarm:
                    self.alarm = True
                    self.push(wait_s, "alarm", None)
                return
            self.begin()

    def begin(self):
        ticket = self.cap.start_call(self.in_flight)
        self.rate.begin(self.now, ticket.number)
        self.in_flight += 1
        self.left -= 1
        self.sent += 1
        if self.serving >= self.true_cap(self.now) or not self.has_token():
            self.push(RTT_S, "refused", ticket)
            return
        self.serving += 1
        lasts_s = self.draw.lognormvariate(math.log(self.mean_s) - 0.125, 0.5)
        self.push(RTT_S + lasts_s, "passed", ticket)

    def has_token(self):
        if self.true_rate is None:
            return True
        self.tokens = min(self.true_rate * 0.2, self.tokens + (self.now - self.filled) * self.true_rate)
        self.filled = self.now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True

    def push(self, seconds, kind, ticket):
        self.order += 1
        heapq.heappush(self.events, (self.now + seconds, self.order, kind, ticket))

    @property
    def refused_share(self):
        return self.refused / self.sent

    @property
    def utilisation(self):
        return self.used / self.offered


@pytest.mark.parametrize("seed", range(4))
def test_an_unknown_cap_is_found_with_few_refusals(seed):
    told = Simulated(lambda _: 15, start=15, most=15, seed=seed).run(2000)
    found = Simulated(lambda _: 15, seed=seed).run(2000)
    assert found.refused_share <= 0.015
    assert found.now <= 1.04 * told.now
    assert found.cap.held == 15
    assert told.refused == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_cap_that_changes_is_followed(seed):
    def cap(now):
        return (15, 30, 5, 15)[min(int(now / 15), 3)]

    found = Simulated(cap, seed=seed).run(3500)
    assert found.refused_share <= 0.02
    assert found.utilisation >= 0.93


@pytest.mark.parametrize(("cap", "start"), [(1, 15), (2, 15), (5, 15), (1, 2), (60, 2), (100, 15)])
def test_any_cap_is_found_from_any_start(cap, start):
    found = Simulated(lambda _: cap, start=start).run(200 + 60 * cap)
    assert found.utilisation >= 0.9
    assert abs(found.cap.held - cap) <= max(1, cap // 20)
    assert found.refused_share <= 0.07


@pytest.mark.parametrize("mean_s", [0.2, 0.02])
@pytest.mark.parametrize("seed", range(3))
def test_a_pure_rate_limit_is_paced(mean_s, seed):
    found = Simulated(lambda _: 10**6, rate=50, mean_s=mean_s, seed=seed).run(2000)
    assert found.rate.per_second == pytest.approx(50, rel=0.1)
    assert found.now <= 1.15 * 2000 / 50
    assert found.refused_share <= 0.025


@pytest.mark.parametrize("seed", range(4))
def test_a_cap_that_changes_is_not_taken_for_a_rate(seed):
    def cap(now):
        return (15, 30, 5, 15, 40, 3)[int(now / 8) % 6]

    assert Simulated(cap, seed=seed).run(3000).rate.per_second is None


def test_pacing_ends_where_it_does_not_help():
    rate = Rate()
    for tenth in range(30):
        rate.passed(tenth / 10, tenth)
    for _ in range(3):
        rate.fell(3.0)
    assert rate.per_second is not None
    now, number = 3.0, 30
    while rate.per_second is not None:
        now += rate.wait_s(now)
        number += 1
        assert now < 60
        rate.begin(now, number)
        rate.refused(now, number)
    assert rate.wait_s(now) == 0


def paced(per_second):
    """Return a rate whose first guess is so many calls a second."""
    rate = Rate()
    rate.passed(0.0, 0)
    rate.proved(1 / per_second)
    return rate


def driven(rate, limit, *, begun_s, lasts_s):
    """Call a service that answers at once and takes no bursts; return how much of its limit was used."""
    now, number, passed, free_at = begun_s, int(1000 * begun_s), 0, begun_s
    while now < begun_s + lasts_s:
        now += rate.wait_s(now)
        number += 1
        rate.begin(now, number)
        if now >= free_at - 1e-9:
            free_at = now + 1 / limit
            passed += 1
            rate.passed(now, number)
        else:
            rate.refused(now, number)
        assert rate.per_second is not None
    return passed / (limit * lasts_s)


@pytest.mark.parametrize("first", [2, 10])
@pytest.mark.parametrize("limit", [5, 20, 150])
def test_from_a_first_guess_a_rate_is_found_within_seconds(first, limit):
    rate = paced(first)
    driven(rate, limit, begun_s=1.0, lasts_s=6.0)
    assert driven(rate, limit, begun_s=7.0, lasts_s=20.0) >= 0.85


@pytest.mark.parametrize("seconds", [4, 120])
def test_answers_of_long_ago_tell_no_rate(seconds):
    rate = Rate()
    for number in range(60):
        rate.passed(number / 20, number)
    rate.proved(3.0 + seconds)
    assert (rate.per_second, rate.wait_s(3.0 + seconds)) == (None, 0)


def test_a_rate_that_rises_is_followed():
    rate = paced(10)
    driven(rate, 20, begun_s=1.0, lasts_s=20.0)
    driven(rate, 80, begun_s=21.0, lasts_s=20.0)
    assert driven(rate, 80, begun_s=41.0, lasts_s=20.0) >= 0.85


def test_answers_to_calls_that_began_before_a_change_tell_nothing_about_it():
    rate = paced(10)
    rate.begin(0.2, 1)
    rate.begin(0.3, 2)
    rate.refused(0.31, 1)
    slower = rate.per_second
    rate.refused(0.32, 2)
    assert rate.per_second == slower == 5
    rate.begin(0.6, 3)
    rate.refused(0.61, 3)
    assert rate.per_second == 2.5


def test_a_cap_of_one_is_looked_at_again_soon_and_then_less_and_less():
    cap = Cap(2, 50)
    first, second = cap.start_call(0), cap.start_call(1)
    cap.refused(second, beside=1)
    cap.passed(first, beside=0)
    gaps = []
    for _ in range(4):
        passed = 0
        while not cap.doubts_one:
            cap.passed(cap.start_call(0), beside=0)
            passed += 1
        gaps.append(passed)
        cap.refused(cap.start_call(1), beside=1)
    assert gaps == [2, 6, 12, 24]


def test_a_cap_of_one_is_disproved_by_a_call_that_passed_beside_another():
    cap = Cap(2, 50)
    cap.refused(cap.start_call(1), beside=1)
    while not cap.doubts_one:
        assert not cap.passed(cap.start_call(0), beside=0)
    cap.start_call(0)
    assert cap.passed(cap.start_call(1), beside=1)


@given(
    st.integers(1, 40),
    st.integers(0, 100),
    st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=300),
)
@settings(max_examples=200)
def test_whatever_is_answered_the_cap_stays_between_one_and_the_most(start, more, answers):
    cap = Cap(start, start + more)
    flying = []
    for passes, at in answers:
        while len(flying) < cap.limit:
            flying.append(cap.start_call(len(flying)))
        ticket = flying.pop(at % len(flying))
        if passes:
            cap.passed(ticket, beside=len(flying))
        else:
            cap.refused(ticket, beside=len(flying))
        assert 1 <= cap.held <= cap.limit <= cap.most
        assert cap.limit - cap.held <= 1


def test_above_two_percent_of_refusals_nothing_is_probed():
    cap = Cap(4, 50)
    cap.refused(cap.start_call(3), beside=3)
    for _ in range(30):
        cap.refused(cap.start_call(2), beside=3)
    for _ in range(10 * LONGEST_GAP):
        assert cap.limit == cap.held or cap.refusals <= 0.02 * max(cap.sent, 256)
        cap.passed(cap.start_call(0), beside=0)


def test_one_probe_at_a_time_and_a_gap_that_doubles():
    cap = Cap(8, 50)
    cap.refused(cap.start_call(8), beside=8)
    assert (cap.held, cap.limit) == (8, 8)
    gaps = []
    for _ in range(5):
        passed = 0
        while cap.limit == 8:
            cap.passed(cap.start_call(7), beside=7)
            passed += 1
        gaps.append(passed)
        probe = cap.start_call(8)
        assert cap.limit == 8
        cap.refused(probe, beside=8)
    assert gaps == [FIRST_GAP, 2 * FIRST_GAP, 4 * FIRST_GAP, LONGEST_GAP, LONGEST_GAP]


def test_a_probe_that_ends_without_a_word_makes_way_for_the_next():
    cap = Cap(8, 50)
    cap.refused(cap.start_call(8), beside=8)
    for _ in range(FIRST_GAP):
        cap.passed(cap.start_call(7), beside=7)
    probe = cap.start_call(8)
    cap.forget_probe(probe)
    assert cap.limit == 9


def test_what_another_process_learned_is_taken_over():
    cap = Cap(2, 50)
    cap.adopt(20)
    assert (cap.limit, cap.grows) == (20, False)
    cap.adopt(500)
    assert cap.limit == 50


def test_a_known_cap_only_falls_and_comes_back():
    cap = Cap(5, 5)
    cap.refused(cap.start_call(4), beside=4)
    assert cap.held == 4
    for _ in range(FIRST_GAP):
        cap.passed(cap.start_call(3), beside=3)
    assert cap.limit == 5
    cap.passed(cap.start_call(4), beside=4)
    assert (cap.held, cap.grows) == (5, False)


def test_a_start_outside_its_bounds_is_refused():
    with pytest.raises(ValueError, match="between 1 and 4"):
        Cap(5, 4)
    with pytest.raises(ValueError, match="between 1 and"):
        Cap(0, 4)


def test_a_refusal_that_later_calls_disprove_is_taken_back():
    cap = Cap(15, 100)
    burst = [cap.start_call(beside) for beside in range(15)]
    cap.refused(burst[7], beside=14)
    assert cap.held == 7
    # The eighth was refused, the fifteenth let in beside more of them: it was not about their number.
    cap.passed(burst[14], beside=13)
    assert cap.held == 15
    # One that started earlier tells nothing.
    late = Cap(15, 100)
    burst = [late.start_call(beside) for beside in range(15)]
    late.refused(burst[7], beside=14)
    late.passed(burst[6], beside=13)
    assert late.held == 7


def test_refused_again_after_others_were_let_in_the_cap_does_not_fall_further():
    cap = Cap(15, 100)
    cap.refused(cap.start_call(14), beside=14)
    for _ in range(3):
        last = cap.start_call(13)
    assert not cap.refused(last, beside=13)
    assert cap.held == 13


def test_a_probe_that_was_refused_to_another_process_is_not_tried_here_at_once():
    cap = Cap(8, 50)
    cap.refused(cap.start_call(8), beside=8)
    cap.adopt(8)
    for _ in range(FIRST_GAP):
        cap.passed(cap.start_call(7), beside=7)
    assert cap.limit == 8
    for _ in range(FIRST_GAP):
        cap.passed(cap.start_call(7), beside=7)
    assert cap.limit == 9


def test_a_cap_that_comes_back_at_once_stops_at_the_most():
    cap = Cap(4, 4)
    burst = [cap.start_call(beside) for beside in range(4)]
    cap.refused(burst[3], beside=3)
    # Refused again before anything passed: it falls; then one passes beside as many, and grows at once.
    cap.refused(cap.start_call(3), beside=3)
    cap.passed(cap.start_call(3), beside=3)
    assert cap.held == cap.limit == 4
