"""Compute mean scores of conditions and their differences, clustered by listener and item."""

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from speechframe.extras import import_library
from speechframe.statistics.clusters import (
    Array,
    ClusteredVariance,
    adjust_holm,
    compute_critical_t,
    compute_two_sided_p,
    estimate_clustered_variance,
)
from speechframe.statistics.intake import Codes, Votes

if TYPE_CHECKING:
    import pandas as pd

_RANK_DECIMALS = 9
"""Decimals to which differences are rounded before they are ranked, so that equal differences stay equal."""

_PAIR_COLUMNS = [
    "condition_a",
    "condition_b",
    "difference",
    "low",
    "high",
    "std_error",
    "t",
    "degrees",
    "p",
    "p_holm",
    "p_wilcoxon",
    "p_wilcoxon_holm",
    "votes",
    "listeners",
    "items",
    "reason",
]


class ScoreTable:
    """Scores of votes as arrays, with methods for the means of conditions and their differences.

    Parameters
    ----------
    scores
        Score of each vote.
    conditions, listeners, items
        Condition, listener and item of each vote, as codes from 0.
    count
        Number of conditions.
    """

    def __init__(self, scores: Array, conditions: Codes, listeners: Codes, items: Codes, count: int) -> None:
        self.scores, self.listeners, self.items = scores, listeners, items
        self.rows_by_condition = [np.flatnonzero(conditions == code) for code in range(count)]
        self._heard = np.zeros((count, int(items.max(initial=-1)) + 1), bool)
        self._heard[conditions, items] = True

    @classmethod
    def from_votes(cls, votes: Votes) -> "ScoreTable":
        """Return a table of checked votes."""
        return cls(
            votes.frame["score"].to_numpy(float),
            votes.encode_column("condition", votes.conditions),
            votes.encode_column("listener", votes.listeners),
            votes.encode_column("item", votes.items),
            len(votes.conditions),
        )

    def compute_mean(self, condition: int) -> tuple[float, ClusteredVariance]:
        """Return the mean score of one condition, and the variance of this mean."""
        rows = self.rows_by_condition[condition]
        mean, influence = _compute_mean(self.scores[rows])
        return mean, estimate_clustered_variance(influence, self.listeners[rows], self.items[rows])

    def find_shared_rows(self, first: int, second: int) -> tuple[Codes, Codes]:
        """Return the positions of the votes on two conditions, only for items with votes in both."""
        both = self._heard[first] & self._heard[second]
        rows = [
            self.rows_by_condition[code][both[self.items[self.rows_by_condition[code]]]]
            for code in (first, second)
        ]
        return rows[0], rows[1]

    def compute_difference(self, first: int, second: int) -> tuple[float, ClusteredVariance]:
        """Return the mean score of `first` minus that of `second`, and the variance of this difference.

        Only items with votes in both conditions count.
        """
        plus, minus = self.find_shared_rows(first, second)
        rows = np.concatenate([plus, minus])
        if not len(rows):
            return float("nan"), ClusteredVariance(float("nan"), 0, 0, "no item was heard in both")
        above, influence_above = _compute_mean(self.scores[plus])
        below, influence_below = _compute_mean(self.scores[minus])
        influence = np.concatenate([influence_above, -influence_below])
        return above - below, estimate_clustered_variance(
            influence, self.listeners[rows], self.items[rows], parameters=2
        )


def _compute_mean(scores: Array) -> tuple[float, Array]:
    if not len(scores):
        return float("nan"), scores
    mean = float(scores.mean())
    return mean, (scores - mean) / len(scores)


def compute_p_of_pairs(table: ScoreTable, pairs: list[tuple[int, int]]) -> Array:
    """Return the two-sided p value of the difference of each pair, for votes clustered by listener and item.

    A p value that cannot be computed is NaN.
    """
    found = [table.compute_difference(first, second) for first, second in pairs]
    values = np.array([value for value, _ in found], float)
    variances = np.array([spread.variance for _, spread in found], float)
    degrees = np.array([spread.degrees for _, spread in found], float)
    return compute_two_sided_p(_compute_t(values, variances), degrees)


def _compute_t(values: Array, variances: Array) -> Array:
    """Return the t values of differences. A t value is NaN if the difference and its variance are both 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return values / np.sqrt(variances)


def compute_scores(votes: Votes, *, confidence: float = 0.95) -> "pd.DataFrame":
    """Return the mean score of each condition, the best first.

    Parameters
    ----------
    votes
        Checked votes of a method with scores.
    confidence
        Confidence level of the intervals, between 0 and 1 (default 0.95).

    Returns
    -------
    pandas.DataFrame
        One row for each condition, with ``condition``, ``mean``, ``low``, ``high`` (confidence interval),
        ``std_error``, ``votes``, ``listeners``, ``items``, ``untouched`` and ``reason``. Clips that a
        listener did not rate count only in ``untouched``. A number that cannot be computed is NaN, and
        ``reason`` contains the cause.

    Examples
    --------
    >>> from speechframe.statistics.intake import check_votes
    >>> rows = [{"listener": w, "item": i, "condition": "ours", "score": s}
    ...         for w, i, s in [("l1", "s1", 4), ("l1", "s2", 5), ("l2", "s1", 3), ("l2", "s2", 4)]]
    >>> compute_scores(check_votes(rows, method="mos"))[["condition", "mean", "votes"]].values.tolist()
    [['ours', 4.0, 4]]
    """
    import pandas as pd

    table = ScoreTable.from_votes(votes)
    rows: list[dict[str, Any]] = []
    for code, name in enumerate(votes.conditions):
        mean, spread = table.compute_mean(code)
        std_error = float(np.sqrt(spread.variance))
        reach = float(compute_critical_t(np.array([float(spread.degrees)]), confidence)[0]) * std_error
        rows.append(
            {
                "condition": name,
                "mean": mean,
                "low": mean - reach,
                "high": mean + reach,
                "std_error": std_error,
                "votes": len(table.rows_by_condition[code]),
                "listeners": spread.listeners,
                "items": spread.items,
                "untouched": votes.untouched.get(name, 0),
                "reason": spread.reason,
            }
        )
    frame = pd.DataFrame(rows)
    return frame.sort_values(["mean", "condition"], ascending=[False, True], ignore_index=True)


def compare_pairs(votes: Votes, *, confidence: float = 0.95) -> "pd.DataFrame":
    """Return the difference of the mean scores of every two conditions, the largest difference first.

    Two conditions are compared only on items with votes in both. The values ``p_holm`` and
    ``p_wilcoxon_holm`` are adjusted for the number of pairs (Holm 1979). The intervals are not adjusted.
    ``p_wilcoxon`` is the p value of a signed-rank test of the listeners' mean differences. This test does not
    assume a normal distribution, and it ignores differences between items.

    Parameters
    ----------
    votes
        Checked votes of a method with scores.
    confidence
        Confidence level of the intervals, between 0 and 1 (default 0.95).

    Returns
    -------
    pandas.DataFrame
        One row for each pair, with ``condition_a`` (the better condition), ``condition_b``, ``difference``,
        ``low``, ``high`` (confidence interval), ``std_error``, ``t``, ``degrees`` (of freedom), ``p``,
        ``p_holm``, ``p_wilcoxon``, ``p_wilcoxon_holm``, ``votes``, ``listeners``, ``items`` (with votes in
        both) and ``reason``.
    """
    import pandas as pd

    table = ScoreTable.from_votes(votes)
    rows: list[dict[str, Any]] = []
    for pair in combinations(range(len(votes.conditions)), 2):
        value, spread = table.compute_difference(*pair)
        better, other = pair if not value < 0 else pair[::-1]
        reason = spread.reason
        if not reason and spread.variance == 0:
            reason = "the votes do not vary, so the difference cannot be tested"
        rows.append(
            {
                "condition_a": votes.conditions[better],
                "condition_b": votes.conditions[other],
                "difference": abs(value),
                "variance": spread.variance,
                "degrees": spread.degrees if not spread.reason else None,
                "p_wilcoxon": _compute_wilcoxon_p(table, better, other),
                "votes": sum(map(len, table.find_shared_rows(*pair))),
                "listeners": spread.listeners,
                "items": spread.items,
                "reason": reason,
            }
        )
    if not rows:
        return pd.DataFrame(columns=_PAIR_COLUMNS)
    frame = pd.DataFrame(rows)
    degrees = frame["degrees"].to_numpy(float)
    frame["std_error"] = np.sqrt(frame["variance"])
    reach = compute_critical_t(degrees, confidence) * frame["std_error"]
    frame["low"], frame["high"] = frame["difference"] - reach, frame["difference"] + reach
    known = frame["variance"].where(frame["variance"] > 0).to_numpy(float)
    frame["t"] = _compute_t(frame["difference"].to_numpy(float), known)
    frame["p"] = compute_two_sided_p(frame["t"].to_numpy(float), degrees)
    frame["p_holm"] = adjust_holm(frame["p"].to_numpy(float))
    frame["p_wilcoxon_holm"] = adjust_holm(frame["p_wilcoxon"].to_numpy(float))
    order = ["difference", "condition_a", "condition_b"]
    return frame[_PAIR_COLUMNS].sort_values(order, ascending=[False, True, True], ignore_index=True)


def _compute_wilcoxon_p(table: ScoreTable, first: int, second: int) -> float:
    """Return the p value of the signed-rank test of the listeners' mean differences.

    If there is no difference other than 0, return NaN.
    """
    plus, minus = table.find_shared_rows(first, second)
    means = [_average_by_listener(table, rows) for rows in (plus, minus)]
    differences = np.round(means[0] - means[1], _RANK_DECIMALS)
    # Remove zeros here. scipy would also ignore them, but zeros would change how it computes the p value.
    differences = differences[~np.isnan(differences) & (differences != 0)]
    if not len(differences):
        return float("nan")
    return float(import_library("scipy.stats").wilcoxon(differences).pvalue)


def _average_by_listener(table: ScoreTable, rows: Codes) -> Array:
    count = int(table.listeners.max(initial=-1)) + 1
    sums = np.bincount(table.listeners[rows], table.scores[rows], minlength=count)
    with np.errstate(invalid="ignore"):
        return np.asarray(sums / np.bincount(table.listeners[rows], minlength=count), np.float64)
