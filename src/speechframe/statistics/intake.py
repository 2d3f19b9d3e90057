"""Check votes before the analysis.

Votes on practice pages and untouched votes (without a score or an answer) are removed. The other votes are
sorted.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from speechframe.errors import AnalysisError
from speechframe.statistics.votes import (
    ABX,
    METHODS,
    MUSHRA,
    REQUIRED_COLUMNS,
    TIE,
    VOTE_KEY,
    VOTE_SCHEMA,
    A,
    B,
    Method,
)

if TYPE_CHECKING:
    import pandas as pd

Codes = NDArray[np.intp]
Duplicates = Literal["refuse", "last"]

_MAX_SHOWN_ROWS = 5
"""Largest number of rows, or of tests, that an error message lists."""
_ALLOWED_SIDES: Mapping[str, tuple[str, ...]] = {
    "choice": (A, B, TIE),
    "answer": (A, B),
    "truth": (A, B),
    "left": (A, B),
}
"""Allowed values of the columns of pair methods."""


@dataclass(frozen=True, eq=False)
class Votes:
    """Checked votes of one test, the result of :func:`check_votes`.

    Parameters
    ----------
    method
        The test method.
    frame
        A DataFrame of the votes, without practice and untouched votes. Listeners, items and conditions are
        strings.
    conditions
        Sorted names of all conditions with votes, including conditions with only untouched votes.
    practice
        Number of practice votes that were left out.
    untouched
        Number of untouched votes that were left out, by condition. In ab and abx the only key is ``""``.
    """

    method: Method
    frame: "pd.DataFrame"
    conditions: tuple[str, ...]
    practice: int
    untouched: Mapping[str, int]

    @cached_property
    def listeners(self) -> tuple[str, ...]:
        """Sorted names of the listeners."""
        return tuple(sorted(self.frame["listener"].unique()))

    @cached_property
    def items(self) -> tuple[str, ...]:
        """Sorted names of the items."""
        return tuple(sorted(self.frame["item"].unique()))

    def encode_column(self, column: str, names: Sequence[str]) -> Codes:
        """Return the values of a column as codes, which are their positions in `names`."""
        codes = {name: code for code, name in enumerate(names)}
        return np.asarray(self.frame[column].map(codes), np.intp)

    def drop_listeners(self, listeners: Collection[str]) -> "Votes":
        """Return the votes of all listeners except the given ones."""
        return replace(self, frame=self.frame[~self.frame["listener"].isin(list(listeners))])

    def drop_conditions(self, conditions: Collection[str]) -> "Votes":
        """Return the votes on all conditions except the given ones. The method must have scores."""
        left = tuple(name for name in self.conditions if name not in conditions)
        return replace(self, frame=self.frame[self.frame["condition"].isin(left)], conditions=left)


def get_method(name: str) -> Method:
    """Return the test method with a name.

    Raises
    ------
    AnalysisError
        The method does not exist. The message lists all methods.

    Examples
    --------
    >>> get_method("mos").highest
    5.0
    """
    if name not in METHODS:
        raise AnalysisError(f"there is no method {name!r}; allowed: {', '.join(METHODS)}")
    return METHODS[name]


def check_votes(
    votes: Any,
    *,
    method: str,
    reference: str | None = None,
    conditions: Collection[str] | None = None,
    duplicates: Duplicates = "refuse",
) -> Votes:
    """Check votes and return them as a sorted table.

    Parameters
    ----------
    votes
        A pandas DataFrame, an Arrow table, any object that exports an Arrow table, or a list of mappings,
        with one row for each vote. :data:`~speechframe.statistics.votes.REQUIRED_COLUMNS` lists the
        required columns.
    method
        Name of the test method.
    reference
        The condition that is the hidden reference. ``mushra`` requires a reference.
    conditions
        All allowed conditions. None (default) allows every condition.
    duplicates
        Treatment of two rows for the same vote (same listener, trial and slot). ``refuse`` (default) raises
        an error. ``last`` keeps the row with the latest ``voted_utc``.

    Raises
    ------
    AnalysisError
        A column is missing or has a wrong value, votes belong to two tests, a vote occurs twice, a condition
        is unknown, or there are no votes. The error contains the column and the rows, if they are known.

    Examples
    --------
    >>> row = {"listener": "l1", "item": "s1", "condition": "ours", "score": 4}
    >>> check_votes([row], method="mos").conditions
    ('ours',)
    """
    kind = get_method(method)
    frame = _convert_to_frame(votes)
    _refuse_missing(frame, kind)
    frame = frame[[name for name in VOTE_SCHEMA[method].names if name in frame.columns]].reset_index(
        drop=True
    )
    _refuse_two_tests(frame)
    frame = _convert_names_to_text(frame, kind)
    frame, practice = _remove_practice(frame)
    frame = _check_scores(frame, kind) if kind.has_scores else _check_choices(frame, kind)
    frame = _refuse_duplicates(frame, kind, duplicates)
    names = _list_conditions(frame, kind, reference, conditions)
    touched = frame[kind.vote_column].notna()
    untouched = frame[~touched]
    counts: dict[Any, int] = (
        untouched["condition"].value_counts().to_dict() if kind.has_scores else {"": len(untouched)}
    )
    # Sort the votes, because sums of floating-point numbers depend on the order.
    order = [*REQUIRED_COLUMNS[method], *(name for name in ("trial", "slot") if name in frame.columns)]
    frame = frame[touched].sort_values(order, kind="stable", ignore_index=True)
    return Votes(kind, frame, names, practice, counts)


def _convert_to_frame(votes: Any) -> "pd.DataFrame":
    import pandas as pd

    if isinstance(votes, pd.DataFrame):
        return votes
    if isinstance(votes, pa.Table) or hasattr(votes, "__arrow_c_stream__"):
        return pa.table(votes).to_pandas()
    if isinstance(votes, Sequence) and all(isinstance(row, Mapping) for row in votes):
        return pd.DataFrame(list(votes))
    raise AnalysisError(
        f"votes must be a DataFrame, an Arrow table or a list of mappings, with one row a vote, not "
        f"{type(votes).__name__}"
    )


def _refuse_missing(frame: "pd.DataFrame", kind: Method) -> None:
    if not len(frame):
        raise AnalysisError("there are no votes; pass one row for each vote")
    missing = [name for name in REQUIRED_COLUMNS[kind.name] if name not in frame.columns]
    if missing:
        raise AnalysisError(
            f"votes of {kind.name} need the columns {', '.join(REQUIRED_COLUMNS[kind.name])}; "
            f"missing: {', '.join(missing)}; there are: {', '.join(map(str, frame.columns))}",
            column=missing[0],
        )


def _refuse_two_tests(frame: "pd.DataFrame") -> None:
    tests = sorted(map(str, frame["test_id"].dropna().unique())) if "test_id" in frame.columns else []
    if len(tests) > 1:
        raise AnalysisError(
            f"votes of {len(tests)} tests ({', '.join(tests[:_MAX_SHOWN_ROWS])}); analyse one test at a time",
            column="test_id",
        )


def _convert_names_to_text(frame: "pd.DataFrame", kind: Method) -> "pd.DataFrame":
    names = ["listener", "item", *kind.condition_columns]
    for name in names:
        _refuse(frame, name, frame[name].isna(), "is empty")
    return frame.assign(**{name: frame[name].astype(str) for name in names})


def _remove_practice(frame: "pd.DataFrame") -> tuple["pd.DataFrame", int]:
    if "training" not in frame.columns:
        return frame, 0
    wrong = frame["training"].notna() & ~frame["training"].isin([True, False])
    _refuse(frame, "training", wrong, "is neither true nor false")
    practice = frame["training"].isin([True])
    if practice.all():
        raise AnalysisError(f"there are no votes to analyse: all {len(frame)} are practice")
    return frame[~practice], int(practice.sum())


def _check_scores(frame: "pd.DataFrame", kind: Method) -> "pd.DataFrame":
    import pandas as pd

    score = pd.to_numeric(frame["score"], errors="coerce").astype(float)
    _refuse(frame, "score", score.isna() & frame["score"].notna(), "is not a number")
    lowest, highest = kind.limits
    wrong = score.notna() & ~score.between(lowest, highest)
    _refuse(frame, "score", wrong, f"is not in the range {lowest:g} to {highest:g}")
    if kind.step is not None:
        steps = (score - lowest) / kind.step
        between = score.notna() & (steps != steps.round())
        _refuse(frame, "score", between, f"is not in steps of {kind.step:g} from {lowest:g}")
    return frame.assign(score=score)


def _check_choices(frame: "pd.DataFrame", kind: Method) -> "pd.DataFrame":
    for name in _ALLOWED_SIDES:
        if name in frame.columns:
            wrong = frame[name].notna() & ~frame[name].isin(_ALLOWED_SIDES[name])
            _refuse(frame, name, wrong, f"is not {' or '.join(_ALLOWED_SIDES[name])}")
    same = frame["condition_a"] == frame["condition_b"]
    _refuse(frame, "condition_b", same, "equals condition_a, but a pair needs two different conditions")
    if kind.name == ABX:
        _refuse(frame, "truth", frame["truth"].isna(), "is empty")
        if "correct" in frame.columns:
            correct = frame["answer"] == frame["truth"]
            wrong = frame["correct"].notna() & frame["answer"].notna() & (frame["correct"] != correct)
            _refuse(frame, "correct", wrong, "contradicts answer and truth")
    return frame


def _refuse_duplicates(frame: "pd.DataFrame", kind: Method, duplicates: Duplicates) -> "pd.DataFrame":
    key = [name for name in VOTE_KEY[kind.name] if name in frame.columns]
    if key != list(VOTE_KEY[kind.name]):
        return frame
    if duplicates == "last":
        if "voted_utc" not in frame.columns or frame["voted_utc"].isna().any():
            raise AnalysisError(
                "duplicates='last' needs a time in every row of voted_utc; add the times, or remove double "
                "votes",
                column="voted_utc",
            )
        return frame.sort_values("voted_utc", kind="stable").drop_duplicates(key, keep="last")
    double = frame.duplicated(key, keep=False)
    fault = (
        f"has two rows for the same vote ({', '.join(key)}); remove one, or pass duplicates='last' to use "
        "the latest"
    )
    _refuse(frame, "listener", double, fault)
    return frame


def _list_conditions(
    frame: "pd.DataFrame", kind: Method, reference: str | None, allowed: Collection[str] | None
) -> tuple[str, ...]:
    columns = kind.condition_columns
    if allowed is not None:
        for name in columns:
            unknown = ~frame[name].isin(list(allowed))
            _refuse(frame, name, unknown, f"is not one of {', '.join(sorted(allowed))}")
    names = tuple(sorted({name for column in columns for name in frame[column]}))
    if reference is not None and reference not in names:
        raise AnalysisError(
            f"the reference {reference!r} is not a condition of these votes; there are: {', '.join(names)}",
            column=columns[0],
        )
    if kind.name == MUSHRA and reference is None:
        raise AnalysisError(
            "mushra needs reference=, the condition that is the hidden reference "
            f"({', '.join(names)}); if there is no natural reference, use method='multi'"
        )
    return names


def _refuse(frame: "pd.DataFrame", column: str, wrong: "pd.Series[bool]", fault: str) -> None:
    rows = [int(position) for position in frame.index[wrong]]
    if not rows:
        return
    shown = ", ".join(f"row {row} ({frame.loc[row, column]!r})" for row in rows[:_MAX_SHOWN_ROWS])
    more = f" and {len(rows) - _MAX_SHOWN_ROWS} more" if len(rows) > _MAX_SHOWN_ROWS else ""
    raise AnalysisError(f"{column} {fault}: {shown}{more}", column=column, rows=rows)
