"""Studies drawn with known truth: how often intervals hold it, and how often a null study finds something.

Short forms allow what so few runs cannot tell apart; the long ones hold the bounds themselves.
"""

from itertools import combinations

import numpy as np
import pytest
import scipy

from speechframe.statistics.clusters import adjust_holm, compute_critical_t
from speechframe.statistics.intake import check_votes
from speechframe.statistics.listening import analyse
from speechframe.statistics.preference import fit_strengths
from speechframe.statistics.proportions import estimate_share
from speechframe.statistics.scores import ScoreTable, compute_p_of_pairs
from speechframe.statistics.spread import Spread

LOWEST, HIGHEST = 0.92, 0.98
MOST_FALSE = 0.06
# What 200 runs can prove: that the rate is not twice the bound.
MOST_FALSE_IN_200 = 0.12

STUDIES = {
    "small": {"listeners": 6, "items": 8},
    "large": {"listeners": 40, "items": 30},
    "unbalanced": {"listeners": 24, "items": 15, "keep": 0.4},
    "of few listeners": {"listeners": 8, "items": 40},
}
SHORT_AND_LONG = [400, pytest.param(4000, marks=pytest.mark.slow)]


def assert_covered(hits, runs):
    """Hold the bounds, but for three standard errors of so many runs where they are few."""
    slack = 3 * np.sqrt(LOWEST * (1 - LOWEST) / runs) if runs < 2000 else 0.0
    assert LOWEST - slack <= hits / runs <= HIGHEST + slack


def most_likely(found, runs):
    """The rate that so many runs leave likely: upper end of the exact one-sided 95 % interval."""
    return scipy.stats.binomtest(found, runs, alternative="less").proportion_ci(0.95).high


def table_of(drawn, conditions):
    who, what, which, score = drawn
    return ScoreTable(score, which, who, what, conditions)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runs", SHORT_AND_LONG)
@pytest.mark.parametrize("study", STUDIES)
def test_intervals_hold_the_mean_and_the_difference(study, runs, draw):
    rng = np.random.default_rng(1)
    held = np.zeros(2)
    for _ in range(runs):
        table = table_of(draw(rng, means=(3.4, 3.0), **STUDIES[study]), 2)
        for place, (truth, (value, spread)) in enumerate(
            [(3.4, table.compute_mean(0)), (0.4, table.compute_difference(0, 1))]
        ):
            reach = compute_critical_t(np.array([spread.degrees], float), 0.95)[0] * np.sqrt(spread.variance)
            held[place] += abs(value - truth) <= reach
    for hits in held:
        assert_covered(hits, runs)


def assert_seldom(found, runs):
    if runs < 1000:
        assert most_likely(found, runs) <= MOST_FALSE_IN_200
    else:
        assert found / runs <= MOST_FALSE


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runs", [200, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("study", STUDIES)
def test_six_equal_conditions_are_seldom_told_apart(study, runs, draw):
    rng = np.random.default_rng(2)
    pairs = list(combinations(range(6), 2))
    found = 0
    for _ in range(runs):
        table = table_of(draw(rng, means=(3.0,) * 6, **STUDIES[study]), 6)
        found += np.nanmin(adjust_holm(compute_p_of_pairs(table, pairs))) < 0.05
    assert_seldom(found, runs)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_six_equal_conditions_are_seldom_told_apart_by_the_whole_analysis(mos):
    rng, runs = np.random.default_rng(3), 200
    found = 0
    for _ in range(runs):
        result = analyse(mos(rng, listeners=18, items=12, means=(3.0,) * 6), method="mos")
        found += bool((result.pairs["p_holm"] < 0.05).any())
    assert_seldom(found, runs)


@pytest.mark.slow
def test_votes_taken_as_independent_would_be_told_apart_often(draw):
    """The studies are hard enough: what ignores listeners and items fails the bound by far."""
    rng, runs = np.random.default_rng(2), 40
    found = 0
    for _ in range(runs):
        _, _, which, score = draw(rng, means=(3.0,) * 6, **STUDIES["large"])
        p = [
            scipy.stats.ttest_ind(score[which == a], score[which == b]).pvalue
            for a, b in combinations(range(6), 2)
        ]
        found += adjust_holm(np.array(p)).min() < 0.05
    assert found / runs > MOST_FALSE_IN_200


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runs", SHORT_AND_LONG)
@pytest.mark.parametrize(
    ("lead", "listener_sd", "item_sd"), [(0.0, 0.6, 0.4), (1.1, 0.6, 0.4), (1.1, 0.3, 0.2)]
)
def test_clustered_intervals_hold_the_share(lead, listener_sd, item_sd, runs):
    rng = np.random.default_rng(4)
    nodes = np.sqrt(listener_sd**2 + item_sd**2) * rng.standard_normal(1_000_000)
    truth = float((1 / (1 + np.exp(-lead - nodes))).mean())
    who, what = (axis.ravel() for axis in np.indices((16, 14)))
    hits = 0
    for _ in range(runs):
        leaning = listener_sd * rng.standard_normal(16)[who] + item_sd * rng.standard_normal(14)[what]
        yes = (rng.random(len(who)) < 1 / (1 + np.exp(-lead - leaning))).astype(float)
        found = estimate_share(yes, who, what)
        hits += found.clustered_low <= truth <= found.clustered_high
    assert_covered(hits, runs)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runs", [20, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("tie", [0.0, 0.5])
def test_bootstrapped_intervals_hold_the_strength(tie, runs, ab):
    rng = np.random.default_rng(5)
    truth = {"x": 0.6, "y": 0.0, "z": -0.6}
    hits = 0
    for _ in range(runs):
        votes = check_votes(ab(rng, strengths=truth, listeners=14, items=12, tie=tie), method="ab")
        frame = fit_strengths(votes, replicates=60).frame.set_index("condition")
        hits += frame.loc["x", "low"] <= truth["x"] <= frame.loc["x", "high"]
    assert_covered(hits, runs)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_bootstrapped_intervals_hold_the_strength_where_listeners_and_items_differ(ab):
    rng, runs = np.random.default_rng(6), 2000
    nodes = np.sqrt(0.5**2 + 0.4**2) * rng.standard_normal(1_000_000)
    share = float((1 / (1 + np.exp(-0.8 - nodes))).mean())
    truth = np.log(share / (1 - share)) / 2
    hits = 0
    for _ in range(runs):
        drawn = ab(rng, strengths={"x": 0.8, "y": 0.0}, listeners=16, items=14, listener_sd=0.5, item_sd=0.4)
        frame = fit_strengths(check_votes(drawn, method="ab"), replicates=60).frame.set_index("condition")
        hits += frame.loc["x", "low"] <= truth <= frame.loc["x", "high"]
    assert_covered(hits, runs)


@pytest.mark.slow
def test_the_spread_that_votes_were_drawn_with_is_found(mos, draw):
    """Of many votes: the mean over studies, since one study has few listeners whatever its votes."""
    rng = np.random.default_rng(7)
    truth = Spread(listener=8.0, item=5.0, listener_condition=4.0, item_condition=3.0, residual=12.0)
    sds = {f"{name}_sd": getattr(truth, name) for name in Spread.__dataclass_fields__}
    squares = []
    for _ in range(12):
        who, what, which, score = draw(rng, listeners=40, items=30, means=(50.0, 55.0, 45.0, 50.0), **sds)
        rows = {"listener": who, "item": what, "condition": which, "score": np.clip(score, 0, 100)}
        found = Spread.from_votes(mos(rng).iloc[:0].from_dict(rows), method="multi")
        squares.append([getattr(found, name) ** 2 for name in Spread.__dataclass_fields__])
    found = np.sqrt(np.mean(squares, axis=0))
    expected = [getattr(truth, name) for name in Spread.__dataclass_fields__]
    assert found == pytest.approx(expected, rel=0.2)
