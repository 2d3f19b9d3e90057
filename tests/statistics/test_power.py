"""Power by simulation: against theory where there is one, and what is refused."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from speechframe.errors import AnalysisError
from speechframe.statistics.power import Power, listeners_needed, power
from speechframe.statistics.spread import Spread

NOISE = Spread(listener=0.0, item=0.0, listener_condition=0.0, item_condition=0.0, residual=10.0)
OWN_LIKINGS = Spread(listener=10.0, item=0.0, listener_condition=8.0, item_condition=0.0, residual=0.1)


def test_what_listeners_differ_in_alone_gives_the_power_of_a_paired_t_test():
    """Only listeners' own likings: each listener is one difference of two draws, whatever the items."""
    found = power("multi", effect=7.0, listeners=16, items=16, trials_per_listener=16, spread=OWN_LIKINGS)
    from statsmodels.stats.power import TTestPower  # takes a second

    theory = TTestPower().power(7.0 / (8.0 * np.sqrt(2)), nobs=16, alpha=0.05)
    assert found.low - 0.02 <= theory <= found.high + 0.02


@pytest.mark.slow
def test_no_effect_is_found_as_often_as_alpha_says():
    for method, effect in (("mos", 0.0), ("mushra", 0.0), ("ab", 0.5), ("abx", 0.5)):
        found = power(method, effect=effect, simulations=300)
        assert found.power < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300), method


@pytest.mark.slow
def test_power_grows_with_effect_listeners_and_trials():
    few = {"items": 20, "trials_per_listener": 20, "listeners": 10, "simulations": 150}
    base = power("mos", effect=0.3, **few).power
    assert power("mos", effect=0.6, **few).power > base
    assert power("mos", effect=0.3, **{**few, "listeners": 40}).power > base
    assert power("ab", effect=0.75, **few).power > power("ab", effect=0.6, **few).power
    assert power("abx", effect=0.7, **few).power > power("abx", effect=0.55, **few).power


def test_votes_of_mos_are_whole_steps():
    """An effect that rounding takes away is not found, however alike the votes are."""
    alike = Spread(listener=0.01, item=0.01, listener_condition=0.01, item_condition=0.01, residual=0.01)
    assert power("mos", effect=0.2, spread=alike, simulations=20).power == 0.0
    assert power("multi", effect=0.2, spread=alike, simulations=20).power == 1.0


@pytest.mark.slow
def test_many_conditions_cost_power():
    few = {
        "effect": 6.0,
        "spread": NOISE,
        "items": 8,
        "trials_per_listener": 8,
        "listeners": 8,
        "simulations": 150,
    }
    assert power("multi", conditions=6, **few).power < power("multi", conditions=2, **few).power


def test_the_same_seed_gives_the_same_power():
    asked = {"effect": 0.3, "listeners": 12, "simulations": 60}
    assert power("mos", **asked) == power("mos", **asked)
    assert power("mos", **asked, seed=1) != power("mos", **asked)


def test_listeners_needed_are_enough_and_one_less_is_not():
    asked = {"effect": 0.4, "items": 20, "trials_per_listener": 20, "simulations": 100}
    found = listeners_needed("mos", wished_power=0.9, **asked)
    assert isinstance(found, Power)
    assert found.power >= 0.9
    assert power("mos", listeners=found.listeners - 1, **asked).power < 0.9
    assert f"{found.listeners} listeners" in str(found)


def test_where_items_set_the_limit_listeners_do_not_help():
    spread = Spread(listener=0.0, item=0.0, listener_condition=0.0, item_condition=20.0, residual=5.0)
    with pytest.raises(AnalysisError, match="more items, or a larger effect"):
        listeners_needed(
            "multi", effect=3.0, items=4, trials_per_listener=4, spread=spread, most=40, simulations=40
        )


def test_a_design_is_simulated_as_it_was_planned():
    rows = [(w, i, c) for w, i, c in product("klmn", "pqrst", "xyz") if (ord(w) + ord(i)) % 2]
    design = pd.DataFrame(rows, columns=["listener", "item", "condition"])
    found = power("multi", effect=30.0, design=design, simulations=40)
    assert (found.listeners, found.items, found.conditions) == (4, 5, 3)
    pairs = pd.DataFrame(
        [(w, i, *pair) for w, i, pair in product("klmnop", "pqrst", [("x", "y"), ("z", "y"), ("x", "z")])],
        columns=["listener", "item", "condition_a", "condition_b"],
    )
    assert power("ab", effect=0.95, design=pairs, simulations=40).power > 0.5
    turned = pairs.rename(columns={"condition_a": "condition_b", "condition_b": "condition_a"})
    assert power("ab", effect=0.95, design=turned, simulations=40) == power(
        "ab", effect=0.95, design=pairs, simulations=40
    )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"method": "mos", "effect": 5.0}, "0 to 4 points"),
        ({"method": "ab", "effect": 0.4}, "from 0.5 to below 1"),
        ({"method": "mos", "effect": 1.0, "listeners": 1}, "two listeners"),
        ({"method": "mos", "effect": 1.0, "conditions": 1}, "two conditions"),
        ({"method": "mos", "effect": 1.0, "items": 0}, "1 or more"),
        ({"method": "mos", "effect": 1.0, "simulations": 0}, "one simulation"),
        (
            {"method": "mos", "effect": 1.0, "design": pd.DataFrame({"listener": ["k"]})},
            "lacks the columns item, condition",
        ),
        ({"method": "cmos", "effect": 1.0}, "there is no method"),
    ],
)
def test_a_study_that_cannot_be_is_refused(asked, said):
    with pytest.raises(AnalysisError, match=said):
        power(**asked)


def test_a_wished_power_is_a_share():
    with pytest.raises(AnalysisError, match="between 0 and 1"):
        listeners_needed("mos", effect=0.5, wished_power=80)


def test_the_spread_of_choices_is_refused(rng, ab):
    with pytest.raises(AnalysisError, match="no scores"):
        Spread.from_votes(ab(rng, strengths={"x": 0.5, "y": 0.0}), method="ab")


def test_a_spread_that_votes_cannot_tell_is_refused(rng, mos):
    with pytest.raises(AnalysisError, match="cannot be estimated"):
        Spread.from_votes(mos(rng, listeners=1, means=(3.0,)), method="mos")


def test_a_measured_spread_is_what_a_study_is_planned_with(rng, mos):
    pilot = Spread.from_votes(mos(rng, listeners=20, items=20, means=(3.2, 3.0)), method="mos")
    found = power("mos", effect=0.4, spread=pilot, simulations=40)
    assert found.spread is pilot
    assert 0.7 < pilot.total < 1.3


@pytest.mark.parametrize("effect", [None, True, float("nan")])
def test_an_effect_that_is_no_number_is_refused(effect):
    with pytest.raises(AnalysisError, match="effect"):
        power("mos", effect=effect)
