"""Preferences: counts, shares and strengths, against published figures and other programs."""

import choix
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from speechframe.statistics.listening import analyse
from speechframe.statistics.preference import fit_davidson
from speechframe.statistics.proportions import compute_wilson_interval, estimate_share

# Davidson (1970), example 2: brands of chocolate pudding; preferred the first, the second, neither.
PUDDING = {
    (0, 1): (19, 22, 16),
    (0, 2): (16, 19, 12),
    (0, 3): (18, 23, 13),
    (0, 4): (13, 19, 18),
    (0, 5): (18, 21, 12),
    (1, 2): (19, 19, 10),
    (1, 3): (23, 19, 9),
    (1, 4): (16, 20, 12),
    (1, 5): (22, 20, 12),
    (2, 3): (19, 20, 15),
    (2, 4): (16, 15, 17),
    (2, 5): (13, 18, 10),
    (3, 4): (17, 14, 16),
    (3, 5): (14, 19, 18),
    (4, 5): (11, 21, 12),
}
# His estimates of worth and of nu, given to four places.
PUDDING_WORTH = (0.1388, 0.1730, 0.1617, 0.1654, 0.1587, 0.2024)
PUDDING_NU = 0.7468


def rows_of(votes):
    return pd.DataFrame(votes, columns=["listener", "item", "condition_a", "condition_b", "choice"])


def test_ties_are_davidsons_by_his_own_example():
    counts = np.array([list(PUDDING.values())], float)
    strength, nu = fit_davidson(counts, list(PUDDING), 6)
    worth = np.exp(strength[0]) / np.exp(strength[0]).sum()
    assert worth == pytest.approx(PUDDING_WORTH, abs=6e-5)
    assert nu[0] == pytest.approx(PUDDING_NU, abs=6e-5)


def test_without_ties_the_strengths_are_those_of_choix(rng, ab):
    votes = ab(rng, strengths={"w": 0.9, "x": 0.3, "y": 0.0, "z": -0.5})
    result = analyse(votes, method="ab", replicates=20)
    won = [
        ("wxyz".index(a), "wxyz".index(b))[:: 1 if choice == "a" else -1]
        for a, b, choice in votes[["condition_a", "condition_b", "choice"]].itertuples(index=False)
    ]
    expected = dict(zip("wxyz", choix.opt_pairwise(4, won, alpha=1e-6), strict=True))
    found = result.strengths.frame.set_index("condition")["strength"].to_dict()
    assert result.strengths.tie == 0.0
    assert found == pytest.approx(expected, abs=1e-4)


def test_many_tables_are_fitted_as_one_is():
    counts = np.array([list(PUDDING.values())], float)
    halved = np.concatenate([counts, counts[:, ::-1], counts * [1, 1, 0]])
    together, nus = fit_davidson(halved, list(PUDDING), 6)
    for place in range(3):
        alone, nu = fit_davidson(halved[place : place + 1], list(PUDDING), 6)
        assert together[place] == pytest.approx(alone[0], abs=1e-8)
        assert nus[place] == pytest.approx(nu[0], abs=1e-8)


def test_counts_and_shares_of_a_pair():
    choices = ["a"] * 12 + ["b"] * 4 + ["tie"] * 4
    votes = rows_of([(f"l{n % 4}", f"s{n // 4}", "x", "y", choice) for n, choice in enumerate(choices)])
    pair = analyse(votes, method="ab", replicates=20).preference.iloc[0]
    assert (pair["condition_a"], pair["prefer_a"], pair["prefer_b"], pair["ties"]) == ("x", 12, 4, 4)
    assert (pair["share"], pair["votes"]) == (0.75, 20)
    low, high = proportion_confint(12, 16, method="wilson")
    assert (pair["low"], pair["high"]) == pytest.approx((low, high))
    assert pair["p_exact"] == pytest.approx(0.0768, abs=1e-4)


def test_which_of_two_is_called_a_does_not_matter(rng, ab):
    votes = ab(rng, strengths={"x": 0.5, "y": 0.0, "z": -0.4}, tie=0.4)
    turned = votes.rename(columns={"condition_a": "condition_b", "condition_b": "condition_a"}).assign(
        choice=votes["choice"].replace({"a": "b", "b": "a"}), left=votes["left"].replace({"a": "b", "b": "a"})
    )
    some = pd.concat([votes.iloc[::2], turned.iloc[1::2]])
    one, other = (analyse(rows, method="ab", replicates=50) for rows in (votes, some))
    pd.testing.assert_frame_equal(one.preference, other.preference)
    pd.testing.assert_frame_equal(one.strengths.frame, other.strengths.frame)
    assert one.screened == other.screened


def test_replicates_are_the_same_however_many_are_drawn_at_once(rng, ab, monkeypatch):
    votes = ab(rng, strengths={"x": 0.5, "y": 0.0, "z": -0.4}, tie=0.4)
    whole = analyse(votes, method="ab", replicates=50)
    monkeypatch.setattr("speechframe.statistics.preference._MAX_DRAWN_AT_ONCE", 300)
    some = analyse(votes, method="ab", replicates=50)
    pd.testing.assert_frame_equal(some.preference, whole.preference)
    pd.testing.assert_frame_equal(some.strengths.frame, whole.strengths.frame)


@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_votes_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    names = [("x", "y"), ("y", "z"), ("x", "z")]
    votes = rows_of(
        [
            (f"l{w}", f"s{i}", *pair, rng.choice(["a", "b", "tie"]))
            for w in range(3)
            for i in range(3)
            for pair in names
        ]
    )
    one = analyse(votes, method="ab", replicates=10)
    other = analyse(votes.sample(frac=1, random_state=rng), method="ab", replicates=10)
    pd.testing.assert_frame_equal(one.preference, other.preference, check_exact=True)
    pd.testing.assert_frame_equal(one.strengths.frame, other.strengths.frame, check_exact=True)


def test_conditions_that_were_never_compared_have_no_strengths_and_say_so():
    votes = rows_of(
        [
            (w, i, *pair, choice)
            for w, choice in (("k", "a"), ("l", "b"))
            for i in "pq"
            for pair in (("w", "x"), ("y", "z"))
        ]
    )
    result = analyse(votes, method="ab")
    frame = result.strengths.frame
    assert frame[["strength", "low", "worth"]].isna().all(axis=None)
    assert (frame["reason"] == "groups without a comparison between them: w, x | y, z").all()
    assert len(result.preference) == 2
    assert not result.preference["share"].isna().any()


def test_a_condition_that_always_wins_has_no_finite_strength_and_says_so():
    votes = rows_of([(w, i, "x", "y", "a") for w in "klm" for i in "pq"])
    result = analyse(votes, method="ab")
    assert result.strengths.frame["strength"].isna().all()
    assert "won every comparison" in result.strengths.frame["reason"][0]
    pair = result.preference.iloc[0]
    assert (pair["share"], pair["high"], pair["clustered_high"]) == (1.0, 1.0, 1.0)
    # Two items agree: two votes, by t with one degree of freedom.
    assert pair["clustered_low"] == pytest.approx(
        compute_wilson_interval(1.0, 2, scipy.stats.t.ppf(0.975, 1))[0]
    )
    assert pair["clustered_low"] < pair["low"] < 1.0


def test_one_listener_has_strengths_and_no_interval():
    votes = rows_of([("k", f"s{n}", "x", "y", "a" if n < 6 else "b") for n in range(9)])
    result = analyse(votes, method="ab")
    assert result.strengths.frame["strength"].tolist() == pytest.approx(
        [np.log(2) / 2, -np.log(2) / 2], abs=1e-5
    )
    assert result.strengths.frame["low"].isna().all()
    assert result.preference["reason"][0].startswith("one listener")


def test_only_ties_are_no_preference():
    votes = rows_of([(w, i, "x", "y", "tie") for w in "klm" for i in "pq"])
    result = analyse(votes, method="ab", replicates=20)
    assert result.preference["reason"][0] == "only ties"
    assert np.isnan(result.preference["p_holm"][0])
    assert result.strengths.frame["strength"].tolist() == pytest.approx([0.0, 0.0])


def test_votes_that_were_not_given_are_left_out_and_counted(rng, ab):
    votes = ab(rng, strengths={"x": 0.5, "y": 0.0})
    votes.loc[[1, 5], "choice"] = None
    result = analyse(votes, method="ab", replicates=20)
    assert result.untouched == 2
    assert result.everyone.votes == len(votes) - 2


@given(votes=st.integers(1, 200), data=st.data())
def test_wilson_is_that_of_statsmodels(votes, data):
    yes = data.draw(st.integers(0, votes))
    expected = proportion_confint(yes, votes, method="wilson")
    assert compute_wilson_interval(yes / votes, votes, 1.959963984540054) == pytest.approx(
        expected, abs=1e-12
    )


def test_votes_that_cancel_everywhere_are_worth_what_single_votes_are():
    who, what = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    found = estimate_share(np.array([1.0, 0.0, 0.0, 1.0]), who, what)
    assert (found.share, found.votes, found.reason) == (0.5, 4, "")
    assert 0 < found.clustered_low < found.low


def test_a_share_is_less_sure_where_listeners_agree_with_themselves():
    who, what = (axis.ravel() for axis in np.indices((10, 10)))
    same_listener = estimate_share((who < 6).astype(float), who, what)
    mixed = estimate_share(((who + what) % 10 < 6).astype(float), who, what)
    assert same_listener.share == mixed.share == 0.6
    width = [found.clustered_high - found.clustered_low for found in (same_listener, mixed)]
    assert width[0] > 2 * width[1]
    assert same_listener.low == mixed.low
