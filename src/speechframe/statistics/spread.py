"""Measure how much scores differ between listeners and between items."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from speechframe.errors import AnalysisError
from speechframe.statistics.clusters import Array
from speechframe.statistics.intake import Codes, Votes, check_votes

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of the effects that a score is the sum of, in points of the scale.

    Parameters
    ----------
    listener
        Effect of the listener, because some listeners give higher scores.
    item
        Effect of the item, because some sentences sound better in every voice.
    listener_condition
        Effect of listener and condition together, because listeners prefer different voices.
    item_condition
        Effect of item and condition together, because a sentence may suit one voice better.
    residual
        Random rest of each vote, also between votes of one listener on the same clip.

    Examples
    --------
    >>> round(Spread(listener=0.5, item=0.3, listener_condition=0.2, item_condition=0.2,
    ...              residual=0.7).total, 2)
    0.95
    """

    listener: float
    item: float
    listener_condition: float
    item_condition: float
    residual: float

    @property
    def total(self) -> float:
        """Standard deviation of single votes on one condition, from all effects together."""
        parts = (self.listener, self.item, self.listener_condition, self.item_condition, self.residual)
        return float(np.sqrt(np.sum(np.square(parts))))

    @classmethod
    def from_votes(cls, votes: Any, *, method: str, reference: str | None = None) -> "Spread":
        """Estimate the spread from votes, for example of a pilot test. ``power`` accepts the result.

        The estimates come from the covariances of two votes that share a listener or an item, with or without
        the condition (method of moments). A negative estimate becomes 0. With few listeners or items, the
        estimates are too small.

        Parameters
        ----------
        votes, method, reference
            As in :func:`~speechframe.statistics.listening.analyse`. The method must have scores.

        Raises
        ------
        AnalysisError
            The votes cannot be analysed or are not scores, or too few votes share a listener or an item.

        Examples
        --------
        >>> rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": 2 + w}
        ...         for w in range(3) for i in range(3) for c in "xy"]
        >>> Spread.from_votes(rows, method="mos").listener
        0.816
        """
        checked = check_votes(votes, method=method, reference=reference)
        if not checked.method.has_scores:
            raise AnalysisError(f"{method} has no scores, so no spread in points; use mos, multi or mushra")
        frame = checked.frame
        conditions = checked.encode_column("condition", checked.conditions)
        rest = frame["score"].to_numpy(float)
        rest = rest - (np.bincount(conditions, rest) / np.maximum(np.bincount(conditions), 1))[conditions]
        return cls(**_estimate_components(rest, checked, conditions))


def _estimate_components(rest: Array, votes: Votes, conditions: Codes) -> dict[str, float]:
    listeners, items = (
        votes.encode_column("listener", votes.listeners),
        votes.encode_column("item", votes.items),
    )
    pairs = {
        names: _sum_pair_products(
            rest, [{"l": listeners, "i": items, "c": conditions}[name] for name in names]
        )
        for names in ("l", "i", "lc", "ic", "li", "lic")
    }
    # Pairs that share certain codes and no others.
    listener = _average_products(pairs["l"] - pairs["lc"] - pairs["li"] + pairs["lic"])
    item = _average_products(pairs["i"] - pairs["ic"] - pairs["li"] + pairs["lic"])
    with_condition = _average_products(pairs["lc"] - pairs["lic"])
    item_condition = _average_products(pairs["ic"] - pairs["lic"])
    parts = {
        "listener": listener,
        "item": item,
        "listener_condition": with_condition - listener,
        "item_condition": item_condition - item,
    }
    if np.isnan(list(parts.values())).any():
        raise AnalysisError(
            "the spread cannot be estimated from these votes; each listener must rate several items and "
            "conditions, and several listeners must rate each item"
        )
    parts = {name: max(0.0, value) for name, value in parts.items()}
    parts["residual"] = max(0.0, float(np.mean(np.square(rest))) - sum(parts.values()))
    return {name: round(float(np.sqrt(value)), 3) for name, value in parts.items()}


def _sum_pair_products(rest: Array, codes: Sequence[Codes]) -> Array:
    """Return the sum of the products of all ordered pairs of votes with equal codes, and their number."""
    _, cells = np.unique(np.stack(codes), axis=1, return_inverse=True)
    sums, counts = np.bincount(cells, rest), np.bincount(cells).astype(float)
    return np.array([sums @ sums, counts @ counts])


def _average_products(pairs: Array) -> float:
    """Return the mean product of pairs from its sum and their number, or NaN if there are none."""
    products, count = pairs.tolist()
    return products / count if count > 0 else float("nan")


def compute_deviations(votes: Votes) -> "pd.DataFrame":
    """Return how much each listener and each item deviates from the mean scores of the conditions.

    From each vote, the mean score of its condition is subtracted. The deviation is the mean of these
    differences in points. So a listener who rated only bad conditions does not appear to be strict.

    Returns
    -------
    pandas.DataFrame
        One row for each listener and each item, with ``kind`` (``listener`` or ``item``), ``name``,
        ``deviation`` and ``votes``, sorted by deviation.
    """
    import pandas as pd

    frame = votes.frame
    rest = frame["score"] - frame.groupby("condition")["score"].transform("mean")
    found = []
    for kind in ("listener", "item"):
        grouped = rest.groupby(frame[kind])
        found.append(
            pd.DataFrame({"deviation": grouped.mean(), "votes": grouped.size()})
            .rename_axis("name")
            .reset_index()
            .assign(kind=kind)
        )
    both = pd.concat(found, ignore_index=True)[["kind", "name", "deviation", "votes"]]
    order = {"listener": 0, "item": 1}
    return both.sort_values(
        ["kind", "deviation", "name"],
        key=lambda column: column.map(order) if column.name == "kind" else column,
        ascending=[True, False, True],
        ignore_index=True,
    )
