"""Means and differences of scores: against independent computations, and where nothing can be known."""

import numpy as np
import pandas as pd
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe.statistics.clusters import adjust_holm, estimate_clustered_variance
from speechframe.statistics.listening import analyse


def rows_of(votes):
    return pd.DataFrame(votes, columns=["listener", "item", "condition", "score"])


def statsmodels():
    # All processes that run tests collect this file, and one of them comes here.
    import statsmodels.api

    return statsmodels.api


def by_holm(p):
    return statsmodels().stats.multipletests(p, method="holm")[1]


def by_statsmodels(votes, design):
    """Coefficients, and the largest of their errors clustered by both, by listener and by item."""
    listeners, items = (pd.factorize(votes[name])[0] for name in ("listener", "item"))
    model = statsmodels().OLS(votes["score"].to_numpy(), design)
    ways = (np.stack([listeners, items], axis=1), listeners, items)
    fits = [model.fit(cov_type="cluster", cov_kwds={"groups": groups}) for groups in ways]
    return np.asarray(fits[0].params), np.max([fit.bse for fit in fits], axis=0)


def test_the_error_of_a_mean_is_that_of_statsmodels(rng, mos):
    votes = mos(rng, listeners=12, items=9, means=(3.2, 3.6), keep=0.7)
    ours = analyse(votes, method="mos").scores.set_index("condition")
    for condition, of_condition in votes.groupby("condition"):
        (mean,), (error,) = by_statsmodels(of_condition, np.ones(len(of_condition)))
        assert ours.loc[condition, "mean"] == pytest.approx(mean, rel=1e-12)
        assert ours.loc[condition, "std_error"] == pytest.approx(error, rel=1e-9)


@pytest.mark.slow
def test_the_error_of_a_difference_is_that_of_statsmodels(rng, mos):
    votes = mos(rng, listeners=12, items=9, means=(3.2, 3.6, 3.0), keep=0.7)
    ours = analyse(votes, method="mos").pairs
    assert len(ours) == 3
    for pair in ours.itertuples():
        both = votes[votes["condition"].isin([pair.condition_a, pair.condition_b])]
        design = statsmodels().add_constant((both["condition"] == pair.condition_a).to_numpy(float))
        (_, difference), (_, error) = by_statsmodels(both, design)
        assert pair.difference == pytest.approx(difference, rel=1e-9)
        assert pair.std_error == pytest.approx(error, rel=1e-9)


def test_interval_and_p_are_those_of_t_with_the_smaller_number_less_one(rng, mos):
    result = analyse(mos(rng, listeners=12, items=9, means=(3.2, 3.6)), method="mos", confidence=0.9)
    pair, score = result.pairs.iloc[0], result.scores.iloc[0]
    reach = scipy.stats.t.ppf(0.95, 8)
    assert pair["degrees"] == 8
    assert pair["high"] - pair["difference"] == pytest.approx(reach * pair["std_error"])
    assert score["mean"] - score["low"] == pytest.approx(reach * score["std_error"])
    assert pair["p"] == pytest.approx(2 * scipy.stats.t.sf(pair["difference"] / pair["std_error"], 8))


def test_no_variance_falls_below_that_of_one_way_of_clustering():
    """Where votes cancel the sum of the three terms is negative; where all do, single votes are left."""
    influence = np.array([1.0, -1.0, -1.0, 1.0])
    listeners, items = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    assert estimate_clustered_variance(influence, listeners, items).variance == pytest.approx(4 / 3 * 4)
    tilted = np.array([1.0, -0.5, -1.0, 0.5])
    by_item = 2 * ((1.0 - 1.0) ** 2 + 0.0)
    by_listener = 2 * (0.5**2 + 0.5**2)
    assert estimate_clustered_variance(tilted, listeners, items).variance == pytest.approx(
        max(by_listener, by_item)
    )


@settings(max_examples=8)
@given(st.lists(st.floats(0, 1) | st.just(np.nan), max_size=12))
def test_holm_is_that_of_statsmodels(values):
    p = np.array(values, float)
    known = ~np.isnan(p)
    adjusted = adjust_holm(p)
    assert np.isnan(adjusted[~known]).all()
    if known.any():
        assert adjusted[known] == pytest.approx(by_holm(p[known]))


@pytest.mark.slow
def test_wilcoxon_ranks_the_listeners_mean_differences(rng, mos):
    votes = mos(rng, listeners=12, items=9, means=(3.2, 3.6))
    means = votes.pivot_table(index="listener", columns="condition", values="score")
    pair = analyse(votes, method="mos").pairs.iloc[0]
    expected = scipy.stats.wilcoxon((means["c1"] - means["c0"]).round(9)).pvalue
    assert pair["p_wilcoxon"] == pytest.approx(expected)


def test_p_values_are_adjusted_for_all_pairs(rng, mos):
    pairs = analyse(mos(rng, means=(2.6, 3.0, 3.4, 3.8)), method="mos").pairs
    assert len(pairs) == 6
    for name in ("p", "p_wilcoxon"):
        assert pairs[f"{name}_holm"].to_numpy() == pytest.approx(by_holm(pairs[name]))


def test_conditions_are_compared_over_the_items_heard_in_both():
    easy = [(w, "easy", "x", 5.0) for w in "klm"]
    shared = [(w, i, c, 3.0 + (c == "x") - (w == "k")) for w in "klm" for i in "pq" for c in "xy"]
    result = analyse(rows_of(easy + shared), method="mos")
    pair = result.pairs.iloc[0]
    assert (pair["condition_a"], pair["difference"], pair["items"], pair["votes"]) == ("x", 1.0, 2, 12)
    assert result.scores.set_index("condition").loc["x", "mean"] == pytest.approx((15 + 6 * 4 - 2) / 9)


def test_what_was_not_touched_is_missing_and_never_zero(rng, mos):
    votes = mos(rng, means=(3.0, 3.0))
    touched = analyse(votes, method="mos").scores
    extra = votes.head(4).assign(score=np.nan, item="unheard")
    both = analyse(pd.concat([votes, extra]), method="mos")
    assert both.untouched == 4
    assert both.scores["untouched"].sum() == 4
    pd.testing.assert_frame_equal(touched.drop(columns="untouched"), both.scores.drop(columns="untouched"))


def test_a_condition_that_was_only_left_untouched_has_no_mean_but_a_reason(rng, mos):
    votes = mos(rng, means=(3.0, 3.0))
    extra = votes.head(4).assign(score=np.nan, condition="silent")
    result = analyse(pd.concat([votes, extra]), method="mos")
    silent = result.scores.set_index("condition").loc["silent"]
    assert np.isnan(silent["mean"])
    assert (silent["votes"], silent["reason"]) == (0, "no votes")
    assert (result.pairs["reason"] == "no item was heard in both").sum() == 2
    assert not np.isnan(result.pairs["p_holm"].iloc[0])


@pytest.mark.parametrize(
    ("votes", "reason"),
    [
        ([("k", i, c, 3.0 + n) for n, i in enumerate("pq") for c in "xy"], "one listener"),
        ([(w, "p", c, 3.0 + n) for n, w in enumerate("kl") for c in "xy"], "one item"),
    ],
)
def test_one_listener_or_item_has_a_mean_and_no_interval(votes, reason):
    result = analyse(rows_of(votes), method="mos")
    for frame, value in ((result.scores, "mean"), (result.pairs, "difference")):
        assert not frame[value].isna().any()
        assert frame["low"].isna().all()
        assert frame["reason"].str.startswith(reason).all()
    assert result.pairs["p_holm"].isna().all()


def test_constant_scores_have_no_p_and_say_why():
    votes = rows_of([(w, i, c, 4.0) for w in "klm" for i in "pqr" for c in "xy"])
    result = analyse(votes, method="mos")
    pair = result.pairs.iloc[0]
    assert (pair["difference"], pair["low"], pair["high"]) == (0.0, 0.0, 0.0)
    assert np.isnan(pair["p"])
    assert np.isnan(pair["p_wilcoxon"])
    assert "do not vary" in pair["reason"]
    assert "-" in result.summary()


def test_whoever_is_kept_may_have_rated_anchors_only():
    # The only one who rated the conditions rates the anchor above its reference, and is left out.
    votes = [("k", i, c, {"ref": 95.0}.get(c, 99.0)) for i in "pqrstuvwx" for c in ("ref", "ours", "anchor")]
    votes += [("l", i, "anchor", 10.0 + n) for n, i in enumerate("pqrstuvwx")]
    result = analyse(rows_of(votes), method="mushra", reference="ref", anchors=["anchor"])
    assert result.screened == ("k",)
    pair = result.kept.pairs.iloc[0]
    assert (pair["votes"], pair["reason"]) == (0, "no item was heard in both")
    assert np.isnan(pair["p_wilcoxon"])
    assert result.kept.scores.set_index("condition").loc["anchor", "votes"] == 9
    assert result.summary()


def test_conditions_that_share_no_item_are_not_compared():
    votes = rows_of([(w, c + i, c, 3.0 + (w == "k")) for w in "klm" for i in "pq" for c in "xy"])
    pair = analyse(votes, method="mos").pairs.iloc[0]
    assert np.isnan(pair["difference"])
    assert pair["reason"] == "no item was heard in both"


votes_of_a_study = st.lists(
    st.tuples(st.sampled_from("klm"), st.sampled_from("pqr"), st.sampled_from("xyz"), st.integers(1, 5)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=8)
@given(votes=votes_of_a_study, order=st.randoms(use_true_random=False))
def test_whatever_the_votes_their_order_does_not_matter_and_nothing_breaks(votes, order):
    shuffled = list(votes)
    order.shuffle(shuffled)
    one, other = (analyse(rows_of(rows), method="mos") for rows in (votes, shuffled))
    pd.testing.assert_frame_equal(one.scores, other.scores, check_exact=True)
    pd.testing.assert_frame_equal(one.pairs, other.pairs, check_exact=True)
    pd.testing.assert_frame_equal(one.screening, other.screening, check_exact=True)
    assert (one.scores["low"].isna() == (one.scores["reason"] != "")).all()
