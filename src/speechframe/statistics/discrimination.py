"""Test whether listeners hear a difference, from the share of correct answers in an ABX test."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from speechframe.statistics.clusters import adjust_holm
from speechframe.statistics.intake import Votes
from speechframe.statistics.proportions import estimate_share

if TYPE_CHECKING:
    import pandas as pd

ALL_CONDITIONS = "all"
"""Name of both conditions in the row for all pairs together."""


@dataclass(frozen=True, slots=True, eq=False)
class Discrimination:
    """Correct answers, with one-sided tests against guessing (a share of one half).

    Parameters
    ----------
    pairs
        One row for each pair of conditions and, if there are several pairs, one row for all of them. The
        columns are ``condition_a``, ``condition_b``, ``correct``, ``votes``, ``share`` (of correct answers),
        ``low``, ``high`` (Wilson interval), ``p_exact`` (binomial test of independent answers), ``p_holm``
        (`p_exact` adjusted for all pairs), ``clustered_low``, ``clustered_high``, ``p_clustered`` (for
        answers clustered by listener and item), ``listeners``, ``items`` and ``reason``.
    listeners
        One row for each listener, with ``listener``, ``correct``, ``votes``, ``share``, ``low``, ``high``,
        ``p_exact`` and ``p_holm`` (adjusted for all listeners).
    """

    pairs: "pd.DataFrame"
    listeners: "pd.DataFrame"


def analyse_discrimination(votes: Votes, *, confidence: float = 0.95) -> Discrimination:
    """Return the shares of correct answers, by pair of conditions and by listener, with tests.

    Parameters
    ----------
    votes
        Checked votes of the method ``abx``.
    confidence
        Confidence level of the intervals, between 0 and 1 (default 0.95).

    Examples
    --------
    >>> from speechframe.statistics.intake import check_votes
    >>> rows = [{"listener": "l1", "item": f"s{n}", "condition_a": "x", "condition_b": "y",
    ...          "truth": "a", "answer": "a" if n < 12 else "b"} for n in range(16)]
    >>> found = analyse_discrimination(check_votes(rows, method="abx"))
    >>> found.listeners[["correct", "votes", "p_exact"]].round(3).values.tolist()
    [[12.0, 16.0, 0.038]]
    """
    import pandas as pd

    frame = votes.frame
    correct = (frame["answer"] == frame["truth"]).to_numpy(float)
    who, what = votes.encode_column("listener", votes.listeners), votes.encode_column("item", votes.items)
    a, b = (votes.encode_column(name, votes.conditions) for name in ("condition_a", "condition_b"))
    pair = np.minimum(a, b) * len(votes.conditions) + np.maximum(a, b)
    make_row = partial(_make_row, correct, who, what, confidence)
    pairs: list[dict[str, Any]] = []
    for code in np.unique(pair):
        first, second = divmod(int(code), len(votes.conditions))
        pairs.append(make_row(pair == code, votes.conditions[first], votes.conditions[second]))
    of_pairs = pd.DataFrame(pairs)
    of_pairs["p_holm"] = adjust_holm(of_pairs["p_exact"].to_numpy(float))
    if len(of_pairs) > 1:
        everything = pd.DataFrame([make_row(np.ones(len(frame), bool))])
        of_pairs = pd.concat([of_pairs, everything], ignore_index=True)
    rows = [{"listener": name, **make_row(who == code)} for code, name in enumerate(votes.listeners)]
    listeners = pd.DataFrame(rows)
    listeners["p_holm"] = adjust_holm(listeners["p_exact"].to_numpy(float))
    names_of_listeners = ["listener", "correct", "votes", "share", "low", "high", "p_exact", "p_holm"]
    return Discrimination(of_pairs, listeners[names_of_listeners])


def _make_row(
    correct: Any,
    who: Any,
    what: Any,
    confidence: float,
    rows: Any,
    first: str = ALL_CONDITIONS,
    second: str = ALL_CONDITIONS,
) -> dict[str, Any]:
    found = estimate_share(correct[rows], who[rows], what[rows], confidence=confidence, alternative="greater")
    return {
        "condition_a": first,
        "condition_b": second,
        "correct": found.yes,
        "votes": found.votes,
        "share": found.share,
        "low": found.low,
        "high": found.high,
        "p_exact": found.p_exact,
        "p_holm": float("nan"),
        "clustered_low": found.clustered_low,
        "clustered_high": found.clustered_high,
        "p_clustered": found.p_clustered,
        "listeners": len(np.unique(who[rows])),
        "items": len(np.unique(what[rows])),
        "reason": found.reason,
    }
