"""Measure how much listeners and items differ, by their deviations and by standard deviations."""

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
    """Standard deviations of the parts of a score, in points of the scale.

    Parameters
    ----------
    listener
        Between listeners, because some are more lenient.
    item
        Between items, because some sentences sound better in every voice.
    listener_condition
        Between the tastes of listeners for single conditions.
    item_condition
        Between items for single conditions, because a sentence may suit one voice better.
    residual
        Between votes of the same listener on the same item and condition.

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
        """Standard deviation of single votes on one condition, from all parts together."""
        parts = (self.listener, self.item, self.listener_condition, self.item_condition, self.residual)
        return float(np.sqrt(np.sum(np.square(parts))))

    @classmethod
    def of(cls, votes: Any, *, method: str, reference: str | None = None) -> "Spread":
        """Return the spread of existing votes, for example of a pilot test. Pass it to ``power``.

        The method of moments estimates each part. It uses the covariance of two votes that share a listener
        or an item, with or without the condition. A negative estimate becomes 0. With few listeners or items,
        the estimates are too small.

        Parameters
        ----------
        votes, method, reference
            As in :func:`~speechframe.statistics.listening.analyse`. The method must have scores.

        Raises
        ------
        AnalysisError
            The votes cannot be analysed or are not scores. Or too few votes share a listener or an item.

        Examples
        --------
        >>> rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": 2 + w}
        ...         for w in range(3) for i in range(3) for c in "xy"]
        >>> Spread.of(rows, method="mos").listener
        0.816
        """
        read = check_votes(votes, method=method, reference=reference)
        if not read.method.has_scores:
            raise AnalysisError(f"{method} has no scores, so no spread in points; use mos, multi or mushra")
        frame = read.frame
        conditions = read.codes("condition", read.conditions)
        rest = frame["score"].to_numpy(float)
        rest = rest - (np.bincount(conditions, rest) / np.maximum(np.bincount(conditions), 1))[conditions]
        return cls(**_components(rest, read, conditions))


def _components(rest: Array, votes: Votes, conditions: Codes) -> dict[str, float]:
    listeners, items = votes.codes("listener", votes.listeners), votes.codes("item", votes.items)
    pairs = {
        names: _pairs(rest, [{"l": listeners, "i": items, "c": conditions}[name] for name in names])
        for names in ("l", "i", "lc", "ic", "li", "lic")
    }
    listener = _common(pairs, ("l", 1), ("lc", -1), ("li", -1), ("lic", 1))
    item = _common(pairs, ("i", 1), ("ic", -1), ("li", -1), ("lic", 1))
    with_condition = _common(pairs, ("lc", 1), ("lic", -1))
    item_condition = _common(pairs, ("ic", 1), ("lic", -1))
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


def _pairs(rest: Array, codes: Sequence[Codes]) -> tuple[float, float]:
    """Return the sum of products of all ordered pairs that share all codes, and the number of these pairs."""
    _, cells = np.unique(np.stack(codes), axis=1, return_inverse=True)
    sums, counts = np.bincount(cells, rest), np.bincount(cells).astype(float)
    return float(sums @ sums), float(counts @ counts)


def _common(pairs: dict[str, tuple[float, float]], *terms: tuple[str, int]) -> float:
    """Return the mean product of pairs that share certain codes and nothing more, by adding signed terms."""
    products = sum(sign * pairs[names][0] for names, sign in terms)
    count = sum(sign * pairs[names][1] for names, sign in terms)
    return products / count if count > 0 else float("nan")


def spread_frame(votes: Votes) -> "pd.DataFrame":
    """Return the mean deviation of each listener and each item from the mean scores of the conditions.

    A deviation is the mean of the votes minus the mean scores of the conditions of these votes. So a listener
    who only rated the worse conditions does not appear to be strict.

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
