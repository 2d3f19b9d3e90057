"""How much listeners and items differ: their means, and the standard deviations behind the votes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from speechframe.errors import AnalysisError
from speechframe.statistics.clusters import Array
from speechframe.statistics.intake import Codes, Votes, checked

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of what makes votes differ, in points of the scale.

    Parameters
    ----------
    listener
        Of listeners' means: some are lenient.
    item
        Of items' means: some sentences sound better in whatever voice.
    listener_condition
        Of listeners' own liking for single conditions.
    item_condition
        Of how single items suit single conditions.
    residual
        Of what remains from vote to vote.

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
        """The standard deviation of single votes on one condition."""
        parts = (self.listener, self.item, self.listener_condition, self.item_condition, self.residual)
        return float(np.sqrt(np.sum(np.square(parts))))

    @classmethod
    def of(cls, votes: Any, *, method: str, reference: str | None = None) -> "Spread":
        """Return the spread of votes there are, of a pilot for example; to be given to ``power``.

        Found by the method of moments: what two votes have in common that share a listener, an item, or one
        of them and the condition. What comes out below zero is 0. Few listeners or items make it too small.

        Parameters
        ----------
        votes, method, reference
            As in :func:`~speechframe.statistics.listening.analyse`; of a method with scores.

        Raises
        ------
        AnalysisError
            The votes cannot be analysed; are choices, not scores; or no two share what has to be shared.

        Examples
        --------
        >>> rows = [{"listener": f"l{w}", "item": f"s{i}", "condition": c, "score": 2 + w}
        ...         for w in range(3) for i in range(3) for c in "xy"]
        >>> Spread.of(rows, method="mos").listener
        0.816
        """
        read = checked(votes, method=method, reference=reference)
        if not read.method.has_scores:
            raise AnalysisError(f"{method} has no scores, so no spread in points")
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
            "the spread cannot be told from these votes: listeners must hear several items and conditions, "
            "and items be heard by several listeners"
        )
    parts = {name: max(0.0, value) for name, value in parts.items()}
    parts["residual"] = max(0.0, float(np.mean(np.square(rest))) - sum(parts.values()))
    return {name: round(float(np.sqrt(value)), 3) for name, value in parts.items()}


def _pairs(rest: Array, codes: Sequence[Codes]) -> tuple[float, float]:
    """Return the sum of products of all ordered pairs that share all codes, and how many they are."""
    _, cells = np.unique(np.stack(codes), axis=1, return_inverse=True)
    sums, counts = np.bincount(cells, rest), np.bincount(cells).astype(float)
    return float(sums @ sums), float(counts @ counts)


def _common(pairs: dict[str, tuple[float, float]], *terms: tuple[str, int]) -> float:
    """Return the mean product over the pairs that are left when those that share more are taken out."""
    products = sum(sign * pairs[names][0] for names, sign in terms)
    count = sum(sign * pairs[names][1] for names, sign in terms)
    return products / count if count > 0 else float("nan")


def spread_frame(votes: Votes) -> "pd.DataFrame":
    """Return how far each listener and each item lies from what its conditions get on the whole.

    Returns
    -------
    pandas.DataFrame
        One row a listener and one an item: ``kind`` (``listener`` or ``item``), ``name``, ``deviation`` (mean
        of its votes minus the mean scores of the conditions they were about, so nobody is called strict who
        only heard the worse ones), ``votes``; sorted by deviation.
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
