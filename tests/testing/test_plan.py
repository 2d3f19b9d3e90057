"""The plan: pure, so that properties say it all."""

import math
import statistics
from email.utils import parsedate_to_datetime

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from speechframe.testing import Fixed, Lognormal, plan

STEPS = ["ok", "500", "503", "408", "429", *plan.Fault]
places = st.floats(0, 1, exclude_max=True)
scripts = st.lists(st.sampled_from(STEPS), min_size=1, max_size=6)


def test_draws_can_be_had_again_are_spread_evenly_and_differ_by_seed_purpose_and_number():
    drawn = [plan.draw(1, "fault", number) for number in range(20_000)]
    assert drawn[:99] == [plan.draw(1, "fault", number) for number in range(99)]
    assert 0 <= min(drawn) < max(drawn) < 1
    assert abs(statistics.fmean(drawn) - 0.5) < 0.01
    assert abs(statistics.pvariance(drawn) - 1 / 12) < 0.003
    assert len({*drawn, plan.draw(2, "fault", 0), plan.draw(1, "latency", 0)}) == 20_002


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(STEPS[1:]), st.floats(0, 1)), places)
def test_a_step_is_drawn_when_a_place_falls_into_its_share(shares, place):
    assume(sum(shares.values()) <= 1)
    end = 0.0
    expected = "ok"
    for name, share in shares.items():
        if end <= place < end + share:
            expected = name
        end += share
    assert plan.FaultTable(shares).choose_step(place).name == expected


@given(scripts, st.integers(0, 20))
def test_a_script_is_played_once_then_all_is_well_unless_it_stays(script, attempt):
    once = script[attempt] if attempt < len(script) else "ok"
    stays = script[min(attempt, len(script) - 1)]
    assert plan.get_scripted_step(script, attempt).name == once
    assert plan.get_scripted_step([*script, "..."], attempt).name == stays


@pytest.mark.parametrize("latency", [Lognormal(3.0, 1.0), Lognormal(1e-3, 0.0)])
def test_lognormal_latencies_have_the_mean_and_the_spread_they_are_told(latency):
    drawn = [latency.seconds_at((number + 0.5) / 20_000) for number in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(latency.mean_s, rel=0.01)
    assert statistics.pstdev(map(math.log, drawn)) == pytest.approx(latency.sigma, rel=0.01, abs=1e-9)


@given(places)
def test_any_place_gives_a_finite_latency(place):
    assert 0 < Lognormal(0.2, 2.0).seconds_at(place) < math.inf
    assert Fixed(0.3).seconds_at(place) == 0.3


@given(st.sampled_from(["seconds", "float", "date"]), st.floats(0, 1e4), st.floats(1e9, 3e9))
def test_a_wait_is_never_told_shorter_than_meant_and_the_header_says_what_is_expected(form, wait_s, now_s):
    value, told_s = plan.make_retry_after(form, wait_s, now_s)
    assert wait_s - 1e-6 <= told_s <= wait_s + (0 if form == "float" else 1)
    read_s = parsedate_to_datetime(value).timestamp() - now_s if form == "date" else float(value)
    assert read_s == pytest.approx(told_s, abs=1e-6)
    assert (form == "seconds") <= value.isdecimal()


def test_mixed_takes_every_form_and_none_and_the_others_stay_as_they_are():
    assert {plan.choose_form("mixed", place / 100) for place in range(100)} == {
        "seconds",
        "float",
        "date",
        None,
    }
    assert {form: plan.choose_form(form, 0.99) for form in ("seconds", "float", "date", None)} == {
        form: form for form in ("seconds", "float", "date", None)
    }
    assert plan.make_retry_after(None, 5, 1e9) == (None, 0.0)
