"""Compute shares of yes votes, with intervals and tests for independent and for clustered votes."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from speechframe.extras import import_library
from speechframe.statistics.clusters import Array, estimate_clustered_variance
from speechframe.statistics.intake import Codes

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Share:
    """A share of yes votes, with intervals and with tests against one half.

    Parameters
    ----------
    share
        Share of yes votes. NaN without votes.
    low, high
        Wilson interval for independent votes.
    p_exact
        p value of the exact binomial test for independent votes.
    clustered_low, clustered_high, p_clustered
        Interval and p value for votes that are clustered by listener and by item.
    yes, votes
        Number of yes votes, and of all votes.
    reason
        Reason why some of these numbers are NaN. Empty if none is NaN.
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


def compute_exact_p(
    yes: int, votes: int, *, alternative: Literal["two-sided", "greater"] = "two-sided"
) -> float:
    """Return the p value of the exact binomial test of a share (`yes` of `votes`) against one half.

    Without votes, return NaN.

    Examples
    --------
    >>> round(compute_exact_p(12, 16, alternative="greater"), 4)
    0.0384
    """
    if not votes:
        return NAN
    return float(import_library("scipy.stats").binomtest(yes, votes, alternative=alternative).pvalue)


def compute_wilson_interval(share: float, votes: float, reach: float) -> tuple[float, float]:
    """Return the Wilson interval of a share, as its low and high end. Both are NaN without votes.

    Parameters
    ----------
    share
        Observed share, from 0 to 1.
    votes
        Number of independent votes, or the effective number of clustered votes.
    reach
        Half the width of the interval in standard errors, such as 1.96 for 95 % and independent votes.

    Examples
    --------
    >>> [round(end, 3) for end in compute_wilson_interval(0.75, 16, 1.96)]
    [0.505, 0.898]
    """
    if not votes:
        return NAN, NAN
    pull = reach * reach / votes
    middle = (share + pull / 2) / (1 + pull)
    half = reach * np.sqrt(share * (1 - share) / votes + pull / (4 * votes)) / (1 + pull)
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def estimate_share(
    yes: Array,
    listeners: Codes,
    items: Codes,
    *,
    confidence: float = 0.95,
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> Share:
    """Return the share of yes votes, with intervals and tests for independent and for clustered votes.

    The clustered interval is a Wilson interval with an effective number of votes, the number of independent
    votes that would have the same variance. The interval uses the t distribution with min(listeners, items) -
    1 degrees of freedom. If all votes are equal, the variance is unknown. Then the effective number is the
    smaller of the numbers of listeners and items.

    Parameters
    ----------
    yes
        1 or 0 for each vote.
    listeners, items
        Listener and item of each vote, as codes from 0.
    confidence
        Confidence level of the intervals, between 0 and 1 (default 0.95).
    alternative
        Alternative hypothesis of the tests: a share ``greater`` than one half, or a ``two-sided`` difference.

    Examples
    --------
    >>> votes = np.repeat([1.0, 0.0], [12, 4])
    >>> found = estimate_share(votes, np.arange(16) % 4, np.arange(16) // 4, alternative="greater")
    >>> found.share, round(found.p_exact, 3)
    (0.75, 0.038)
    """
    special = import_library("scipy.special")
    votes, count = len(yes), int(yes.sum())
    if not votes:
        return Share(NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0, 0, "no votes")
    share = count / votes
    low, high = compute_wilson_interval(share, votes, float(special.ndtri((1 + confidence) / 2)))
    p_exact = compute_exact_p(count, votes, alternative=alternative)
    spread = estimate_clustered_variance((yes - share) / votes, listeners, items)
    if spread.reason:
        return Share(share, low, high, p_exact, NAN, NAN, NAN, count, votes, spread.reason)
    effective_n = float(min(spread.listeners, spread.items))
    if spread.variance > 0:
        # Never use more than the number of votes, even if votes vary less than independent votes would.
        effective_n = min(float(votes), share * (1 - share) / spread.variance)
    clustered_low, clustered_high = compute_wilson_interval(
        share, effective_n, float(special.stdtrit(spread.degrees, (1 + confidence) / 2))
    )
    t = (share - 0.5) / np.sqrt(0.25 / effective_n)
    tail = float(special.stdtr(spread.degrees, -t if alternative == "greater" else -abs(t)))
    p_clustered = tail if alternative == "greater" else 2 * tail
    return Share(share, low, high, p_exact, clustered_low, clustered_high, p_clustered, count, votes, "")
