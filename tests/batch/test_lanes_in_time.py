"""Lanes beside services of all kinds, on a clock that jumps: what they cost is the same on any machine."""

from statistics import median

import pytest
from lane_lab import Way, made, made_by_several

SEEDS = range(10)
JITTERS_S = [0.01, 0.002, 0.0]
"""Calls and answers are late by so much, on average: what a network does, and a machine that is busy."""


def trips(calls, *, most, **way):
    return [made(calls, Way(seed, **way), most=most) for seed in SEEDS]


def percent_refused(found, calls):
    return median(100 * trip.refused / calls for trip in found)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("jitter_s", JITTERS_S)
@pytest.mark.parametrize("cap", [2, 5, 12])
def test_a_first_volley_above_the_cap_tells_it(cap, jitter_s):
    """15 begin at once and 15 - cap of them are refused; to find out more costs little, and no time."""
    calls, latency_s = 80 * cap, 0.1
    found = trips(calls, most=50, caps=((cap, 1e9),), jitter_s=jitter_s, latency_s=latency_s)
    assert max(trip.refused for trip in found) <= 15 - cap + 0.035 * calls
    ideal_s = calls / cap * (latency_s + 2 * jitter_s)
    assert max(trip.lasted_s for trip in found) <= 1.15 * ideal_s + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jitter_s", "percent", "seconds"), list(zip(JITTERS_S, [3, 2.5, 2], [15, 14, 13], strict=True))
)
def test_a_cap_is_found_at_the_cost_of_few_refusals(jitter_s, percent, seconds):
    calls = 900
    found = trips(calls, most=100, caps=((15, 1e9),), jitter_s=jitter_s, latency_s=0.2)
    assert percent_refused(found, calls) <= percent
    assert median(trip.lasted_s for trip in found) <= seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jitter_s", "percent", "seconds"), list(zip(JITTERS_S, [4, 3, 2.5], [21, 19, 18], strict=True))
)
def test_a_cap_that_changes_is_followed(jitter_s, percent, seconds):
    calls, caps = 1100, ((15, 4.0), (30, 4.0), (5, 4.0), (15, 1e9))
    found = trips(calls, most=100, caps=caps, jitter_s=jitter_s, latency_s=0.2)
    assert percent_refused(found, calls) <= percent
    assert median(trip.lasted_s for trip in found) <= seconds
    # A cap on its way down that is taken for a rate costs half as long again.
    assert max(trip.lasted_s for trip in found) <= 24


def test_a_cap_that_was_one_for_a_while_is_not_one_for_ever():
    """As with a key that colleagues use: of few calls many were refused, and yet one asks again."""
    found = trips(500, most=30, caps=((1, 10.0), (30, 1e9)), jitter_s=0.01, latency_s=0.5)
    assert median(trip.lasted_s for trip in found) <= 50
    assert max(trip.lasted_s for trip in found) <= 60
    assert percent_refused(found, 500) <= 4


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", [(0, 1, 100), (0, 3, 1), (0, 20, None)])
def test_after_a_few_calls_a_run_is_no_slower_than_without_them(first, tmp_path):
    alone = made(100, Way(0, caps=((100, 1e9),), latency_s=0.5), most=100)
    way = Way(0, caps=((100, 1e9),), latency_s=0.5)
    _, after = made_by_several([first, (10, 100, 100)], way, tmp_path)
    assert after.lasted_s <= 1.2 * alone.lasted_s
    assert after.refused == 0


def test_a_cap_that_was_refused_to_a_run_is_not_looked_for_by_the_next(tmp_path):
    way = Way(0, caps=((5, 1e9),), jitter_s=0.005)
    first, after = made_by_several([(0, 60, 100), (10, 60, 100)], way, tmp_path)
    assert first.refused >= 9
    assert after.refused <= 2


@pytest.mark.sampled(1)
@pytest.mark.parametrize("jitter_s", JITTERS_S)
def test_with_bursts_no_more_is_refused_than_without(jitter_s):
    """A burst hides the rate while the cap is looked for."""
    calls, rate = 80, 20
    found = trips(calls, most=50, rate=rate, burst=5, jitter_s=jitter_s, latency_s=0.02)
    assert max(trip.refused for trip in found) <= 0.4 * calls
    assert max(trip.lasted_s for trip in found) <= 2 * calls / rate


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "times"), [(20, 1.8), (5, 1.3), (60, 2.8)])
def test_a_rate_without_bursts_is_no_cap_of_one(rate, times):
    """One call at a time, as a cap of one allows it, would be 5 a second."""
    calls = 20 * rate
    found = trips(calls, most=100, rate=rate, burst=1, jitter_s=0.005, latency_s=0.2)
    assert median(trip.lasted_s for trip in found) <= times * calls / rate


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runs", [[(0, 60, None), (0.01, 60, None)], [(0, 60, 100), (0.01, 60, 100)]])
@pytest.mark.parametrize(("seed", "latency_s"), [(0, 0.5), (1, 0.5), (2, 0.02)])
def test_runs_that_share_a_rate_are_about_as_fast_as_one(runs, seed, latency_s, tmp_path):
    """Nor does one of them wait for the end of the other."""
    way = {"rate": 20, "jitter_s": 0.005, "latency_s": latency_s}
    alone = made(120, Way(seed, **way), most=runs[0][2])
    both = made_by_several(runs, Way(seed, **way), tmp_path)
    lasted_s = [trip.lasted_s for trip in both]
    assert max(lasted_s) <= 1.5 * alone.lasted_s + 6
    assert min(lasted_s) >= 0.6 * max(lasted_s)
    assert sum(trip.refused for trip in both) <= 0.3 * 120


@pytest.mark.slow
def test_a_run_that_comes_later_is_told_the_rate(tmp_path):
    way = Way(0, rate=20, jitter_s=0.005, latency_s=0.5)
    first, late = made_by_several([(0, 160, None), (8, 40, None)], way, tmp_path)
    # Half of what is let in is its share.
    assert late.lasted_s <= 2.5 * 40 / 10
    assert late.refused <= 4
    assert first.lasted_s <= 30


@pytest.mark.slow
def test_runs_that_make_a_call_now_and_then_cost_a_paced_one_no_more_than_those(tmp_path):
    latency_s, rate, calls = 0.8, 20, 60
    way = {"rate": rate, "jitter_s": 0.005, "latency_s": latency_s}
    alone = made(600, Way(0, **way), most=None)
    few = [(5 + nth / 10, calls, 1) for nth in range(3)]
    large, *small = made_by_several([(0, 600, None), *few], Way(0, **way), tmp_path)
    assert large.lasted_s <= alone.lasted_s + 2 * len(few) * calls / rate
    assert max(trip.lasted_s for trip in small) <= 1.25 * calls * latency_s


@pytest.mark.sampled(1)
@pytest.mark.parametrize("cap", [1, 2])
def test_runs_that_share_a_low_cap_are_about_as_fast_as_one(cap, tmp_path):
    way = Way(0, caps=((cap, 1e9),), jitter_s=0.005)
    runs = made_by_several([(0.03 * nth, 20 * cap, None) for nth in range(4)], way, tmp_path)
    assert max(trip.lasted_s for trip in runs) <= 1.3 * 80 * 0.111
    assert sum(trip.refused for trip in runs) <= 0.15 * 80 * cap


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_refusals_that_have_nothing_to_do_with_load_make_no_rate_of_a_cap_that_is_shared(seed, tmp_path):
    way = Way(seed, caps=((1, 1e9),), jitter_s=0.005, latency_s=1, odd=0.03)
    runs = made_by_several([(0.3 * nth, 25, None) for nth in range(3)], way, tmp_path)
    assert max(trip.lasted_s for trip in runs) <= 1.3 * 75


def test_what_is_refused_whatever_is_in_flight_costs_little_pace():
    found = trips(400, most=30, odd=0.05, latency_s=0.1)
    assert percent_refused(found, 400) <= 7
    # A twentieth of 400 calls waits a second, some of them twice.
    assert median(trip.lasted_s for trip in found) <= 4.5
    assert max(trip.lasted_s for trip in found) <= 9
