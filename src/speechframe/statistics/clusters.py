"""Compute the variance of a mean when votes share listeners and items (two-way clustering).

Votes of one listener are similar, and so are votes on one item. So the variance of an estimate is a sum of
three terms (Cameron, Gelbach and Miller 2011): the variance for clusters of one listener each, plus the
variance for clusters of one item each, minus the variance for clusters of one listener and one item each.
Each term has the small-sample factor G / (G - 1) * (n - 1) / (n - k), for G clusters, n votes and k estimated
means.

In small studies, this sum can be smaller than its first or second term, or even negative. So the largest of
the sum, the first term and the second term is used, which MacKinnon, Nielsen and Webb (2024) call max-se.
Tests use the t distribution with min(listeners, items) - 1 degrees of freedom.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.extras import import_library
from speechframe.statistics.intake import Codes

Array = NDArray[np.float64]

MIN_CLUSTERS = 2
"""Smallest number of listeners, and of items, for which a variance can be estimated."""

_ROUNDING_SHARE = 1e-12
"""A variance below this share of the variance by listener and item together counts as 0."""


@dataclass(frozen=True, slots=True)
class ClusteredVariance:
    """The sampling variance of one estimate.

    Parameters
    ----------
    variance
        The variance, in the squared unit of the estimate. NaN if it cannot be computed.
    listeners, items
        Number of listeners and of items with votes.
    reason
        Reason why the variance is NaN. Empty if there is a variance.
    """

    variance: float
    listeners: int
    items: int
    reason: str = ""

    @property
    def degrees(self) -> int:
        """Degrees of freedom of a t test with this variance."""
        return min(self.listeners, self.items) - 1


def estimate_clustered_variance(
    influence: Array, listeners: Codes, items: Codes, *, parameters: int = 1
) -> ClusteredVariance:
    """Return the variance of an estimate for votes that are clustered by listener and by item.

    Parameters
    ----------
    influence
        Contribution of each vote to the error of the estimate. For a mean of n votes, the contribution is
        ``(vote - mean) / n``.
    listeners, items
        Listener and item of each vote, as codes from 0.
    parameters
        Number of means that are estimated from the votes (default 1).

    Examples
    --------
    >>> scores = np.array([1.0, 2.0, 3.0, 4.0])
    >>> who, what = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> estimate_clustered_variance((scores - scores.mean()) / 4, who, what).variance
    1.0
    """
    votes = len(influence)
    by_listener, listener_count = _sum_squares(influence, listeners)
    by_item, item_count = _sum_squares(influence, items)
    reason = ""
    if not votes:
        reason = "no votes"
    elif listener_count < MIN_CLUSTERS:
        reason = "one listener: an interval needs two or more"
    elif item_count < MIN_CLUSTERS:
        reason = "one item: an interval needs two or more"
    elif votes <= parameters:
        reason = "too few votes"
    if reason:
        return ClusteredVariance(float("nan"), listener_count, item_count, reason)
    # Count only combinations of listener and item that occur, because a table of all could be too large.
    _, both = np.unique(listeners * (int(items.max()) + 1) + items, return_inverse=True)
    by_both, cells = _sum_squares(influence, both)
    factor = (votes - 1) / (votes - parameters)
    by_listener *= listener_count / (listener_count - 1)
    by_item *= item_count / (item_count - 1)
    by_both *= cells / (cells - 1)
    variance = max(by_listener + by_item - by_both, by_listener, by_item)
    if variance <= _ROUNDING_SHARE * by_both:
        # The contributions of votes may add up to 0 for every listener and item, by coincidence. The estimate
        # is not exact then, so do not return 0.
        variance = by_both
    return ClusteredVariance(factor * variance, listener_count, item_count)


def _sum_squares(influence: Array, codes: Codes) -> tuple[float, int]:
    sums = np.bincount(codes, influence)
    return float(sums @ sums), int(np.count_nonzero(np.bincount(codes)))


def compute_critical_t(degrees: Array, confidence: float) -> Array:
    """Return half the width of a t confidence interval in standard errors.

    With fewer than one degree of freedom, return NaN.

    Examples
    --------
    >>> compute_critical_t(np.array([9.0]), 0.95).round(3).tolist()
    [2.262]
    """
    return np.asarray(
        import_library("scipy.special").stdtrit(_mask_unusable_degrees(degrees), (1 + confidence) / 2),
        np.float64,
    )


def compute_two_sided_p(t: Array, degrees: Array) -> Array:
    """Return the two-sided p values of t values. NaN for fewer than one degree of freedom.

    Examples
    --------
    >>> compute_two_sided_p(np.array([2.262]), np.array([9.0])).round(3).tolist()
    [0.05]
    """
    return np.asarray(
        2 * import_library("scipy.special").stdtr(_mask_unusable_degrees(degrees), -np.abs(t)), np.float64
    )


def _mask_unusable_degrees(degrees: Array) -> Array:
    return np.where(degrees >= 1, degrees, np.nan)


def adjust_holm(p: Array) -> Array:
    """Adjust p values for the number of tests (Holm 1979). NaN values stay NaN and do not count as tests.

    Examples
    --------
    >>> adjust_holm(np.array([0.01, 0.04, 0.03, np.nan])).tolist()
    [0.03, 0.06, 0.06, nan]
    """
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int(np.count_nonzero(~np.isnan(p)))]
    steps = p[order] * (len(order) - np.arange(len(order)))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps)) if len(order) else steps
    return adjusted
