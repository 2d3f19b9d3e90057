"""Compute the variance of a mean when votes share listeners and items (two-way clustering).

Votes of one listener are similar, and so are votes on one item. So the variance of an estimate has three
terms. It is the variance of its sums by listener, plus that by item, minus that by both (Cameron, Gelbach and
Miller 2011). Each term has the small-sample factor G / (G - 1) * (n - 1) / (n - k), for G clusters, n votes
and k estimated means.

In small studies, this result can be smaller than the variance by listener or by item, or even negative. So
the largest of the three is used, which MacKinnon, Nielsen and Webb (2024) call max-se. Tests use t with
min(listeners, items) - 1 degrees of freedom.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.extras import needed
from speechframe.statistics.intake import Codes

Array = NDArray[np.float64]

FEWEST_CLUSTERS = 2

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Clustered:
    """The sampling variance of one estimate.

    Parameters
    ----------
    variance
        The variance. NaN if it cannot be computed.
    listeners, items
        Number of listeners and items with votes.
    reason
        Reason for NaN. Empty if there is a variance.
    """

    variance: float
    listeners: int
    items: int
    reason: str = ""

    @property
    def degrees(self) -> int:
        """Degrees of freedom."""
        return min(self.listeners, self.items) - 1


def clustered(influence: Array, listeners: Codes, items: Codes, *, parameters: int = 1) -> Clustered:
    """Return the variance of an estimate, clustered by listener and by item.

    Parameters
    ----------
    influence
        Part of the estimate's error that each vote adds. For a mean, this is ``(vote - mean) / votes``.
    listeners, items
        Listener and item of each vote, as codes from 0.
    parameters
        Number of means estimated from the votes (k in the formula above).

    Examples
    --------
    >>> scores = np.array([1.0, 2.0, 3.0, 4.0])
    >>> who, what = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> clustered((scores - scores.mean()) / 4, who, what).variance
    1.0
    """
    votes = len(influence)
    by_listener, listener_count = _squares(influence, listeners)
    by_item, item_count = _squares(influence, items)
    reason = ""
    if not votes:
        reason = "no votes"
    elif listener_count < FEWEST_CLUSTERS:
        reason = "one listener: an interval needs two or more"
    elif item_count < FEWEST_CLUSTERS:
        reason = "one item: an interval needs two or more"
    elif votes <= parameters:
        reason = "too few votes"
    if reason:
        return Clustered(float("nan"), listener_count, item_count, reason)
    # Only cells with votes are kept, because a table of all listeners and items could be too large.
    _, both = np.unique(listeners * (int(items.max()) + 1) + items, return_inverse=True)
    by_both, cells = _squares(influence, both)
    factor = (votes - 1) / (votes - parameters)
    by_listener *= listener_count / (listener_count - 1)
    by_item *= item_count / (item_count - 1)
    by_both *= cells / (cells - 1)
    variance = max(by_listener + by_item - by_both, by_listener, by_item)
    if variance <= _ROUNDING * by_both:
        # Votes can cancel out in every listener and item. The estimate is not exact then.
        variance = by_both
    return Clustered(factor * variance, listener_count, item_count)


def _squares(influence: Array, codes: Codes) -> tuple[float, int]:
    sums = np.bincount(codes, influence)
    return float(sums @ sums), int(np.count_nonzero(np.bincount(codes)))


def critical(degrees: Array, confidence: float) -> Array:
    """Return half the width of a confidence interval, in standard errors.

    Examples
    --------
    >>> critical(np.array([9.0]), 0.95).round(3).tolist()
    [2.262]
    """
    return np.asarray(needed("scipy.special").stdtrit(_usable(degrees), (1 + confidence) / 2), np.float64)


def two_sided(t: Array, degrees: Array) -> Array:
    """Return the two-sided p values of t values.

    Examples
    --------
    >>> two_sided(np.array([2.262]), np.array([9.0])).round(3).tolist()
    [0.05]
    """
    return np.asarray(2 * needed("scipy.special").stdtr(_usable(degrees), -np.abs(t)), np.float64)


def _usable(degrees: Array) -> Array:
    return np.where(degrees >= 1, degrees, np.nan)


def holm(p: Array) -> Array:
    """Return p values adjusted for their number (Holm 1979). NaN stay NaN and do not count.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03, np.nan])).tolist()
    [0.03, 0.06, 0.06, nan]
    """
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: int(np.count_nonzero(~np.isnan(p)))]
    steps = p[order] * (len(order) - np.arange(len(order)))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps)) if len(order) else steps
    return adjusted
