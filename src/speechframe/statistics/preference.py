"""Compute preferences from votes of ab: shares for each pair, and a strength for each condition."""

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from speechframe.extras import import_library
from speechframe.statistics.clusters import MIN_CLUSTERS, Array, adjust_holm, compute_critical_t
from speechframe.statistics.intake import Codes, Votes
from speechframe.statistics.proportions import estimate_share
from speechframe.statistics.votes import TIE, A

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_REPLICATES = 1000
"""Default number of bootstrap samples of each kind."""

_MAX_STEPS = 60
"""Largest number of steps of Newton's method."""
_CONVERGED_CHANGE = 1e-9
"""Newton's method ends when no parameter changes by this much or more."""
_RIDGE_WEIGHT = 1e-6
"""Weight of a penalty on large strengths. Without it, a condition that wins all votes of a bootstrap sample
would have an infinite strength."""
_MAX_STEP_LENGTH = 2.0
"""Largest change of a parameter in one step of Newton's method."""
_MAX_DRAWN_AT_ONCE = 4_000_000
"""Number of random numbers that are drawn at a time, to limit the memory."""
_ONE_SIGMA_QUANTILES = (0.15865525393145707, 0.8413447460685429)
"""Quantiles at minus and plus one standard deviation of a normal distribution. Half the distance between them
is a standard error on which a few extreme samples have no influence."""


@dataclass(frozen=True, slots=True, eq=False)
class Strengths:
    """Bradley-Terry strengths, with ties by Davidson (1970).

    Parameters
    ----------
    frame
        One row for each condition, the strongest first. The columns are ``condition``, ``strength`` (natural
        log odds, with mean 0), ``low``, ``high``, ``std_error``, ``worth`` (exponentials of the strengths,
        scaled to the sum 1) and ``reason`` (for figures that are NaN).
    tie
        Davidson's nu. Between two conditions of equal strength, a tie is nu times as likely as a vote for
        either condition. 0 if no vote is a tie, and NaN if strengths cannot be computed.
    replicates
        Number of bootstrap samples of each kind.
    """

    frame: "pd.DataFrame"
    tie: float
    replicates: int


def compute_preferences(votes: Votes, *, confidence: float = 0.95) -> "pd.DataFrame":
    """Return the preferences in each pair of conditions that has votes, the largest share first.

    Parameters
    ----------
    votes
        Checked votes of the method ``ab``.
    confidence
        Confidence level of the intervals, between 0 and 1 (default 0.95).

    Returns
    -------
    pandas.DataFrame
        One row for each pair. ``condition_a`` is the condition with more votes, and ``condition_b`` the
        other. Further columns are ``prefer_a``, ``prefer_b``, ``ties`` (numbers of votes), ``share`` (of
        ``condition_a`` among the votes without ties), ``low``, ``high`` (Wilson interval),
        ``clustered_low``, ``clustered_high``, ``p`` (for votes clustered by listener and item), ``p_holm``
        (`p` adjusted for all pairs), ``p_exact`` (sign test of independent votes without ties), ``votes``,
        ``listeners``, ``items`` and ``reason``.

    Examples
    --------
    >>> from speechframe.statistics.intake import check_votes
    >>> rows = [{"listener": f"l{n % 3}", "item": f"s{n % 4}", "condition_a": "x", "condition_b": "y",
    ...          "choice": "a" if n < 9 else "tie"} for n in range(12)]
    >>> compute_preferences(check_votes(rows, method="ab"))[["prefer_a", "prefer_b", "ties"]].values.tolist()
    [[9, 0, 3]]
    """
    import pandas as pd

    ballots = _PairVotes.from_votes(votes)
    rows: list[dict[str, Any]] = []
    for first, second in combinations(range(len(votes.conditions)), 2):
        of_pair = (ballots.first == first) & (ballots.second == second)
        if not of_pair.any():
            continue
        wins = [int((of_pair & (ballots.outcome == outcome)).sum()) for outcome in range(3)]
        better, other = (first, second) if wins[0] >= wins[1] else (second, first)
        decided = of_pair & (ballots.outcome != _TIE_OUTCOME)
        yes = ballots.outcome[decided] == (0 if better == first else 1)
        found = estimate_share(
            yes.astype(float), ballots.listeners[decided], ballots.items[decided], confidence=confidence
        )
        rows.append(
            {
                "condition_a": votes.conditions[better],
                "condition_b": votes.conditions[other],
                "prefer_a": max(wins[:2]),
                "prefer_b": min(wins[:2]),
                "ties": wins[_TIE_OUTCOME],
                "share": found.share,
                "low": found.low,
                "high": found.high,
                "clustered_low": found.clustered_low,
                "clustered_high": found.clustered_high,
                "p": found.p_clustered,
                "p_holm": float("nan"),
                "p_exact": found.p_exact,
                "votes": sum(wins),
                "listeners": len(np.unique(ballots.listeners[of_pair])),
                "items": len(np.unique(ballots.items[of_pair])),
                "reason": "only ties" if not found.votes else found.reason,
            }
        )
    frame = pd.DataFrame(rows)
    frame["p_holm"] = adjust_holm(frame["p"].to_numpy(float))
    order = ["share", "condition_a", "condition_b"]
    return frame.sort_values(order, ascending=[False, True, True], ignore_index=True)


_TIE_OUTCOME = 2
"""Outcome of a vote for neither condition. 0 is a vote for the first condition, and 1 for the second."""


@dataclass(frozen=True, slots=True)
class _PairVotes:
    """Votes on pairs as arrays of codes. In each pair, the name of `first` sorts before that of `second`."""

    first: Codes
    second: Codes
    outcome: Codes
    listeners: Codes
    items: Codes
    conditions: int

    @classmethod
    def from_votes(cls, votes: Votes) -> Self:
        a, b = (votes.encode_column(name, votes.conditions) for name in ("condition_a", "condition_b"))
        choice = votes.frame["choice"].to_numpy(object)
        for_first = (choice == A) == (a < b)
        outcome = np.where(choice == TIE, _TIE_OUTCOME, np.where(for_first, 0, 1))
        return cls(
            np.minimum(a, b),
            np.maximum(a, b),
            outcome,
            votes.encode_column("listener", votes.listeners),
            votes.encode_column("item", votes.items),
            len(votes.conditions),
        )

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(combinations(range(self.conditions), 2))

    def count_outcomes(self, clusters: Codes) -> Array:
        """Return the number of votes by cluster, pair and outcome, with shape (clusters, pairs, 3)."""
        pair_numbers = np.zeros((self.conditions, self.conditions), np.intp)
        for code, pair in enumerate(self.pairs):
            pair_numbers[pair] = code
        count = int(clusters.max(initial=-1)) + 1
        cells = (clusters * len(self.pairs) + pair_numbers[self.first, self.second]) * 3 + self.outcome
        found = np.bincount(cells, minlength=count * len(self.pairs) * 3)
        return found.reshape(count, len(self.pairs), 3).astype(float)


def fit_strengths(
    votes: Votes, *, confidence: float = 0.95, replicates: int = DEFAULT_REPLICATES, seed: int = 0
) -> Strengths:
    """Return the strength of each condition, fitted to all pairs together.

    The odds of a vote for condition A, not B, are exp(strength of A - strength of B). The standard errors
    come from three kinds of bootstrap samples: of listeners, of items, and of combinations of listener and
    item. Their variances are combined as in :mod:`~speechframe.statistics.clusters`. The intervals use the t
    distribution with min(listeners, items) - 1 degrees of freedom.

    Parameters
    ----------
    votes
        Checked votes of the method ``ab``.
    confidence
        Confidence level of the intervals, between 0 and 1 (default 0.95).
    replicates
        Number of bootstrap samples of each of the three kinds.
    seed
        Seed of the bootstrap. Equal votes and an equal seed give equal results.

    Examples
    --------
    >>> from speechframe.statistics.intake import check_votes
    >>> rows = [{"listener": f"l{n % 4}", "item": f"s{n % 3}", "condition_a": "x", "condition_b": "y",
    ...          "choice": "a" if n < 9 else "b"} for n in range(12)]
    >>> found = fit_strengths(check_votes(rows, method="ab"), replicates=50)
    >>> round(float(np.exp(found.frame["strength"][0] - found.frame["strength"][1])), 3)
    3.0
    """
    import pandas as pd

    ballots = _PairVotes.from_votes(votes)
    total = ballots.count_outcomes(np.zeros(len(votes.frame), np.intp))[0]
    reason = _explain_missing_strengths(total, ballots.pairs, votes.conditions)
    size = len(votes.conditions)
    value, std_error, tie = np.full(size, np.nan), np.full(size, np.nan), float("nan")
    degrees = min(len(votes.listeners), len(votes.items)) - 1
    if not reason:
        fitted, ties = fit_davidson(total[None], ballots.pairs, size)
        value, tie = fitted[0], float(ties[0])
        if degrees + 1 < MIN_CLUSTERS:
            single = "listener" if len(votes.listeners) == 1 else "item"
            reason = f"one {single}: an interval needs two or more"
        else:
            std_error = np.sqrt(_estimate_variance(ballots, replicates, np.random.default_rng(seed)))
    reach = compute_critical_t(np.array([float(degrees)]), confidence)[0] * std_error
    worth = np.exp(value - value.max()) / np.exp(value - value.max()).sum()
    frame = pd.DataFrame(
        {
            "condition": votes.conditions,
            "strength": value,
            "low": value - reach,
            "high": value + reach,
            "std_error": std_error,
            "worth": worth,
            "reason": reason,
        }
    )
    frame = frame.sort_values(["strength", "condition"], ascending=[False, True], ignore_index=True)
    return Strengths(frame, tie, replicates)


def _explain_missing_strengths(
    total: Array, pairs: list[tuple[int, int]], conditions: tuple[str, ...]
) -> str:
    """Return the reason why there are no finite strengths, or an empty text if strengths are finite.

    Strengths are finite if a chain of wins leads from every condition to every other condition (Ford 1957).
    """
    csgraph = import_library("scipy.sparse.csgraph")
    beaten = np.zeros((len(conditions), len(conditions)))
    for (first, second), (wins, losses, ties) in zip(pairs, total, strict=True):
        beaten[first, second] = wins + ties
        beaten[second, first] = losses + ties
    count, group = csgraph.connected_components(beaten + beaten.T, directed=False)
    if count > 1:
        return f"groups without a comparison between them: {_describe_groups(count, group, conditions)}"
    count, group = csgraph.connected_components(beaten, directed=True, connection="strong")
    if count > 1:
        groups = _describe_groups(count, group, conditions)
        return f"one group won every comparison, so its strength is infinite: {groups}"
    return ""


def _describe_groups(count: int, group: NDArray[Any], conditions: tuple[str, ...]) -> str:
    names = (
        ", ".join(name for name, of in zip(conditions, group, strict=True) if of == n) for n in range(count)
    )
    return " | ".join(sorted(names))


def fit_davidson(counts: Array, pairs: list[tuple[int, int]], conditions: int) -> tuple[Array, Array]:
    """Return the maximum-likelihood strengths and nu of Davidson's model, for many tables of counts at once.

    Without ties, the model is that of Bradley and Terry. The log likelihood is concave in the strengths and
    in log nu, so Newton's method finds its maximum. Long steps are shortened.

    Parameters
    ----------
    counts
        Number of votes for the first condition, for the second condition, and for neither, with shape
        (tables, pairs, 3).
    pairs
        The two conditions of each pair, as codes.
    conditions
        Number of conditions.

    Examples
    --------
    >>> strength, nu = fit_davidson(np.array([[[30.0, 10.0, 0.0]]]), [(0, 1)], 2)
    >>> np.exp(strength[0, 0] - strength[0, 1]).round(3), nu.tolist()
    (np.float64(3.0), [0.0])
    """
    use = np.zeros((len(pairs), 3, conditions + 1))
    for number, (first, second) in enumerate(pairs):
        use[number, 0, first] = use[number, 1, second] = 1.0
        use[number, _TIE_OUTCOME, [first, second, conditions]] = 0.5, 0.5, 1.0
    ways = use.reshape(-1, conditions + 1)
    products = (ways[:, :, None] * ways[:, None, :]).reshape(len(ways), -1)
    tables, votes = len(counts), counts.sum(axis=2)
    tied = counts[:, :, _TIE_OUTCOME].sum(axis=1) > 0
    # In a table without ties, nu is 0. Remove the outcome "tie" from the likelihood of this table.
    open_ways = np.where(tied[:, None], [[0.0, 0.0, 0.0]], [[0.0, 0.0, -np.inf]])[:, None, :]
    held = np.eye(conditions + 1) * _RIDGE_WEIGHT
    # The likelihood does not depend on the sum of the strengths. This term keeps the sum at 0.
    held[:conditions, :conditions] += 1.0
    parameters = np.zeros((tables, conditions + 1))
    for _ in range(_MAX_STEPS):
        utility = (parameters @ ways.T).reshape(counts.shape) + open_ways
        chance = np.exp(utility - utility.max(axis=2, keepdims=True))
        chance /= chance.sum(axis=2, keepdims=True)
        expected = votes[:, :, None] * chance
        slope = (counts - expected).reshape(tables, -1) @ ways - parameters @ held
        mean = np.sqrt(votes)[:, :, None] * (chance.swapaxes(0, 1) @ use).swapaxes(0, 1)
        curve = (expected.reshape(tables, -1) @ products).reshape(tables, *held.shape)
        curve -= mean.swapaxes(1, 2) @ mean
        step = np.linalg.solve(curve + held, slope[:, :, None])[:, :, 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        parameters += step * np.minimum(1.0, _MAX_STEP_LENGTH / np.maximum(longest, _CONVERGED_CHANGE))
        if longest.max(initial=0.0) < _CONVERGED_CHANGE:
            break
    strength = parameters[:, :conditions]
    strength = np.asarray(strength - strength.mean(axis=1, keepdims=True), np.float64)
    return strength, np.where(tied, np.exp(parameters[:, -1]), 0.0)


def _estimate_variance(ballots: _PairVotes, replicates: int, rng: np.random.Generator) -> Array:
    _, cells = np.unique(ballots.listeners * (ballots.items.max() + 1) + ballots.items, return_inverse=True)
    kinds = (ballots.listeners, ballots.items, cells)
    # Give each kind of samples its own random stream, so that its samples do not depend on the other kinds.
    by_listener, by_item, by_both = (
        _bootstrap_variance(ballots, clusters, replicates, stream)
        for clusters, stream in zip(kinds, rng.spawn(len(kinds)), strict=True)
    )
    return np.asarray(np.maximum.reduce([by_listener + by_item - by_both, by_listener, by_item]), np.float64)


def _bootstrap_variance(
    ballots: _PairVotes, clusters: Codes, replicates: int, rng: np.random.Generator
) -> Array:
    counts = ballots.count_outcomes(clusters)
    size = len(counts)
    # Draw the samples in parts, because all samples of a large test could need gigabytes.
    at_once = max(1, _MAX_DRAWN_AT_ONCE // size)
    drawn = (
        rng.multinomial(size, np.full(size, 1 / size), size=min(at_once, replicates - first)).astype(float)
        for first in range(0, replicates, at_once)
    )
    totals = np.concatenate([np.tensordot(some, counts, axes=1) for some in drawn])
    found, _ = fit_davidson(totals, ballots.pairs, ballots.conditions)
    low, high = np.quantile(found, _ONE_SIGMA_QUANTILES, axis=0)
    # The bootstrap variance of G clusters is too small by the factor (G - 1) / G.
    return np.asarray(((high - low) / 2) ** 2 * size / (size - 1), np.float64)
