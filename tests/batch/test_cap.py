"""The learned cap and the pace, each by itself: one step at a time, with times that are told."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.old_batch.cap import FIRST_GAP, LONGEST_GAP, SHORTEST_GAP, Cap
from speechframe.old_batch.rate import ALONE_WITHIN, FALLS, FALLS_WITHIN_S, LOW_CAP, Rate


def test_pacing_ends_where_it_does_not_help():
    rate = Rate()
    for tenth in range(30):
        rate.passed(tenth / 10, tenth)
    for _ in range(FALLS):
        rate.fell(3.0, beside=4)
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


def let_in(rate, now, number):
    """Let calls in at a rate that is on trial until the trial is stood; return time and number of the last."""
    tried = rate.per_second
    while rate.per_second == tried:
        now += rate.wait_s(now)
        number += 1
        rate.begin(now, number)
        rate.passed(now, number)
    return now, number


def turned_away(rate, now, number):
    """Begin one call, which is refused."""
    now += rate.wait_s(now)
    rate.begin(now, number + 1)
    rate.refused(now, number + 1)
    return now, number + 1


def back_at_a_rate_that_passed():
    """Return a rate that was let in at 10 a second and refused at 20, with time and number of its last call."""
    rate = paced(10)
    at = turned_away(rate, *let_in(rate, 0.2, 1))
    assert rate.per_second == 10
    return rate, *at


def test_at_a_rate_that_was_let_in_one_refusal_changes_nothing_and_the_next_one_does():
    rate, now, number = back_at_a_rate_that_passed()
    now, number = turned_away(rate, now, number)
    assert rate.per_second == 10
    turned_away(rate, now, number)
    assert rate.per_second == 5


def test_after_the_refusal_that_was_spared_the_trial_of_a_rate_begins_again():
    rate, now, number = back_at_a_rate_that_passed()
    for _ in range(2):
        now += rate.wait_s(now)
        number += 1
        rate.begin(now, number)
        rate.passed(now, number)
    now, number = turned_away(rate, now, number)
    _, last = let_in(rate, now, number)
    assert (last - number, rate.per_second) == (3, 15)


def test_pacing_ends_at_less_than_half_of_what_was_let_in_before():
    rate, now, number = back_at_a_rate_that_passed()
    now, number = let_in(rate, now, number)
    seen = []
    while rate.per_second is not None:
        seen.append(rate.per_second)
        assert len(seen) < 100
        now, number = turned_away(rate, now, number)
    assert 4 <= min(seen) < 5
    assert rate.wait_s(now) == 0


def answered_until(end_s):
    """Return a rate that has seen ten answers a second until then."""
    rate = Rate()
    for tenth in range(10 * end_s + 1):
        rate.passed(tenth / 10, tenth)
    return rate


@pytest.mark.parametrize(("seconds", "is_paced"), [(FALLS_WITHIN_S - 1, True), (FALLS_WITHIN_S + 1, False)])
def test_falls_of_the_cap_tell_a_rate_only_where_they_are_close_together(seconds, is_paced):
    rate = answered_until(30)
    for number in range(FALLS):
        rate.fell(30 - seconds + seconds * number / (FALLS - 1), beside=4)
    assert (rate.per_second is not None) == is_paced


def test_a_cap_on_its_way_down_falls_once():
    rate = answered_until(30)
    for _ in range(FALLS - 1):
        for beside in (28, 18, 12, 7):
            rate.fell(30.0, beside=beside)
        assert rate.per_second is None
    rate.fell(30.0, beside=28)
    assert rate.per_second is not None


@pytest.mark.parametrize(("seconds", "is_paced"), [(FALLS_WITHIN_S - 1, True), (FALLS_WITHIN_S + 1, False)])
def test_refusals_beside_few_tell_a_rate_only_soon_after_a_cap_of_one_was_disproved_each(seconds, is_paced):
    rate = answered_until(30)
    rate.doubted(30 - seconds)
    rate.refused_few(30 - seconds)
    rate.refused_few(30 - seconds)
    assert rate.per_second is None
    rate.doubted(30.0)
    rate.refused_few(30.0)
    assert (rate.per_second is not None) == is_paced


def test_a_refusal_beside_few_long_after_a_cap_of_one_was_disproved_tells_nothing():
    rate = answered_until(30)
    for _ in range(3):
        rate.doubted(30 - FALLS_WITHIN_S - 1)
        rate.refused_few(30.0)
    assert rate.per_second is None


@pytest.mark.parametrize(
    ("held", "processes", "passes", "is_paced"),
    [
        (1, 2, ALONE_WITHIN + 1, False),
        (LOW_CAP, 2, ALONE_WITHIN + 1, False),
        (LOW_CAP, 2, ALONE_WITHIN, True),
        (LOW_CAP + 1, 2, None, True),
        (1, 1, None, True),
    ],
)
def test_a_call_refused_alone_tells_a_rate_where_many_share_a_low_cap_only_as_the_second_one(
    held, processes, passes, is_paced
):
    rate = answered_until(30)
    if passes is not None:
        rate.refused_alone(30.0, held=held, processes=processes)
        assert rate.per_second is None
        for number in range(passes):
            rate.passed(30.0, number)
    rate.refused_alone(30.0, held=held, processes=processes)
    assert (rate.per_second is not None) == is_paced


def test_what_is_refused_to_a_first_guess_beside_others_is_no_end_of_it():
    rate = answered_until(30)
    rate.proved(30.0, processes=2)
    tried = rate.per_second
    now, number = turned_away(rate, 30.0, 301)
    assert (rate.per_second, rate.known) == (tried / 2, (tried / 2, 0.0, math.inf))
    let_in(rate, now, number)
    # As far as before, and not a part of the way.
    assert (rate.per_second, rate.known) == (tried, (tried, tried / 2, math.inf))


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


def test_what_another_process_was_let_in_is_no_end_of_it():
    cap = Cap(15, 50)
    for told, held in ((2, 15), (20, 20), (15, 20)):
        cap.adopt(told, is_floor=True)
        assert (cap.held, cap.grows) == (held, True)
    # What was refused to another is an end, and as good as new here.
    cap.adopt(12)
    assert (cap.held, cap.grows, cap.is_floor) == (12, False, False)
    for _ in range(FIRST_GAP):
        assert cap.limit == 12
        cap.passed(cap.start_call(11), beside=11)
    assert cap.limit == 13
    cap.adopt(8, is_floor=True)
    assert cap.held == 12
    cap.adopt(14, is_floor=True)
    assert (cap.limit, cap.grows) == (14, False)
    cap = Cap(15, 50)
    cap.adopt(500, is_floor=True)
    assert (cap.limit, cap.grows) == (50, False)


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
    first = [cap.start_call(beside) for beside in range(8)]
    cap.passed(first.pop(), beside=7)
    refused = cap.start_call(7)
    cap.passed(first.pop(), beside=7)
    later = [cap.start_call(beside) for beside in range(7, 14)]
    cap.refused(refused, beside=13)
    assert cap.held == 7
    # Those that started later were let in beside more of them: it was not about their number.
    for beside, call in enumerate([*first, *later]):
        cap.passed(call, beside=12 - beside)
    assert cap.held == len(first) + len(later) == 13


@given(data=st.data())
def test_of_calls_that_begin_side_by_side_the_cap_is_how_many_are_let_in(data):
    calls = data.draw(st.integers(2, 15), "calls")
    allowed = data.draw(st.integers(1, calls - 1), "let in")
    cap = Cap(15, 100)
    volley = data.draw(st.permutations([cap.start_call(beside) for beside in range(calls)]), "arrivals")
    let_in, refused = volley[:allowed], volley[allowed:]
    answers = data.draw(st.permutations([True] * allowed + [False] * len(refused)), "answers")
    for beside, is_let_in in zip(reversed(range(calls)), answers, strict=True):
        if is_let_in:
            cap.passed(let_in.pop(), beside=beside)
        else:
            cap.refused(refused.pop(), beside=beside)
    assert cap.held == allowed


def test_one_probe_that_passes_is_confirmed_before_the_number_grows():
    cap = Cap(8, 50)
    cap.refused(cap.start_call(8), beside=8)
    for _ in range(FIRST_GAP):
        cap.passed(cap.start_call(7), beside=7)
    cap.passed(cap.start_call(8), beside=8)
    assert (cap.held, cap.limit, cap.grows) == (9, 9, False)
    # It had arrived after another had left: the next one beside as many is one too many.
    cap.refused(cap.start_call(8), beside=8)
    assert cap.held == 8
    for _ in range(2 * FIRST_GAP - 1):
        cap.passed(cap.start_call(7), beside=7)
    assert cap.limit == 8, "it is tried half as often"
    cap.passed(cap.start_call(7), beside=7)
    cap.passed(cap.start_call(8), beside=8)
    for _ in range(SHORTEST_GAP):
        cap.passed(cap.start_call(8), beside=8)
    assert (cap.held, cap.limit) == (9, 10)
    cap.passed(cap.start_call(9), beside=9)
    assert (cap.held, cap.grows) == (10, True)


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


def test_a_cap_of_one_that_others_found_is_looked_at_as_soon_as_one_found_here():
    cap = Cap(2, 50)
    cap.adopt(1)
    for _ in range(SHORTEST_GAP):
        assert not cap.doubts_one
        cap.passed(cap.start_call(0), beside=0)
        # Found by each of many that begin together: that puts nothing off.
        cap.adopt(1)
    assert cap.doubts_one


def test_a_rate_of_others_is_gone_by_and_followed():
    rate = Rate()
    rate.adopt((20.0, 18.0, 24.0), 5.0)
    assert (rate.known, rate.wait_s(5.0)) == ((20.0, 18.0, 24.0), pytest.approx(0.05))
    # At its first refusal it goes back to what others were let in at.
    turned_away(rate, 5.0, 0)
    assert rate.per_second == 18.0
    rate.adopt((0.0, 0.0, 0.0), 6.0)
    assert (rate.known, rate.wait_s(6.0)) == (None, 0.0)


def test_a_cap_that_comes_back_at_once_stops_at_the_most():
    cap = Cap(4, 4)
    burst = [cap.start_call(beside) for beside in range(4)]
    cap.refused(burst[3], beside=3)
    # Refused again before anything passed: it falls; then one passes beside as many, and grows at once.
    cap.refused(cap.start_call(3), beside=3)
    cap.passed(cap.start_call(3), beside=3)
    assert cap.held == cap.limit == 4
