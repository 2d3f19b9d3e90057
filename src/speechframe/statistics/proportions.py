"""Shares of yes and no votes: Wilson intervals of independent and of clustered votes, and exact tests."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from speechframe.extras import needed
from speechframe.statistics.clusters import Array, clustered
from speechframe.statistics.intake import Codes

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Share:
    """A share with its intervals and tests against one half.

    Parameters
    ----------
    share
        Yes votes among all; NaN without votes.
    low, high
        The Wilson interval as if every vote were independent.
    p_exact
        Exact binomial p, as if every vote were independent.
    clustered_low, clustered_high, p_clustered
        The same with the votes of a listener, and about an item, taken together.
    yes, votes
        The counts.
    reason
        Why a figure is NaN; empty where none is.
    """

    share: float
    low: float
    high: float
    p_exact: float
    clustered_low: float
    clustered_high: float
    p_clustered: float
    yes: int
    votes: int
    reason: str


def exact_p(yes: int, votes: int, *, alternative: Literal["two-sided", "greater"] = "two-sided") -> float:
    """Return the exact binomial p of `yes` among `votes` against one half; NaN without votes.

    Examples
    --------
    >>> round(exact_p(12, 16, alternative="greater"), 4)
    0.0384
    """
    if not votes:
        return NAN
    return float(needed("scipy.stats").binomtest(yes, votes, alternative=alternative).pvalue)


def wilson(share: float, votes: float, reach: float) -> tuple[float, float]:
    """Return the Wilson interval of a share.

    Parameters
    ----------
    share
        What was found, 0 to 1.
    votes
        How many independent votes it is worth; not always a whole number.
    reach
        Standard errors to each side, 1.96 for 95 % of independent votes.

    Examples
    --------
    >>> [round(end, 3) for end in wilson(0.75, 16, 1.96)]
    [0.505, 0.898]
    """
    if not votes:
        return NAN, NAN
    pull = reach * reach / votes
    middle = (share + pull / 2) / (1 + pull)
    half = reach * np.sqrt(share * (1 - share) / votes + pull / (4 * votes)) / (1 + pull)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def share_of(
    yes: Array,
    listeners: Codes,
    items: Codes,
    *,
    confidence: float = 0.95,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> Share:
    """Return the share of ones, with both kinds of interval.

    The clustered interval is Wilson's for as many independent votes as would be as unsure, with t of
    min(listeners, items) - 1 degrees. Where all votes agree no variance can be seen: each listener, or each
    item if they are fewer, counts as one vote then.

    Parameters
    ----------
    yes
        1 or 0, one a vote.
    listeners, items
        Whose vote it is, and about what, as codes from 0.
    confidence
        How often an interval shall hold the share of all listeners and items.
    alternative
        What the tests are for: a share other than one half, or a ``greater`` one.

    Examples
    --------
    >>> votes = np.repeat([1.0, 0.0], [12, 4])
    >>> found = share_of(votes, np.arange(16) % 4, np.arange(16) // 4, alternative="greater")
    >>> found.share, round(found.p_exact, 3)
    (0.75, 0.038)
    """
    special = needed("scipy.special")
    votes, count = len(yes), int(yes.sum())
    if not votes:
        return Share(NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0, 0, "no votes")
    share = count / votes
    low, high = wilson(share, votes, float(special.ndtri((1 + confidence) / 2)))
    p_exact = exact_p(count, votes, alternative=alternative)
    spread = clustered((yes - share) / votes, listeners, items)
    if spread.reason:
        return Share(share, low, high, p_exact, NAN, NAN, NAN, count, votes, spread.reason)
    worth = float(min(spread.listeners, spread.items))
    if spread.variance > 0:
        # Never worth more than they are, however evenly they happen to lie.
        worth = min(float(votes), share * (1 - share) / spread.variance)
    clustered_low, clustered_high = wilson(
        share, worth, float(special.stdtrit(spread.degrees, (1 + confidence) / 2))
    )
    t = (share - 0.5) / np.sqrt(0.25 / worth)
    tail = float(special.stdtr(spread.degrees, -t if alternative == "greater" else -abs(t)))
    p_clustered = tail if alternative == "greater" else 2 * tail
    return Share(share, low, high, p_exact, clustered_low, clustered_high, p_clustered, count, votes, "")
