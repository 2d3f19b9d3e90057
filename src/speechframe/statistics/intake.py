"""Votes as they come in: checked, without practice, in an order that does not depend on theirs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from speechframe.errors import AnalysisError
from speechframe.statistics.votes import (
    AB,
    ABX,
    METHODS,
    MUSHRA,
    NEEDED,
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

_SHOWN_ROWS = 5
_SIDES: Mapping[str, tuple[str, ...]] = {
    "choice": (A, B, TIE),
    "answer": (A, B),
    "truth": (A, B),
    "left": (A, B),
}


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes of one test that can be computed with; made by :func:`checked`.

    Parameters
    ----------
    method
        How the listeners were asked.
    frame
        The votes, practice and untouched ones left out; strings in ``listener``, ``item`` and the conditions.
    conditions
        Every condition that was voted on, also where it was left untouched, by name.
    practice
        Votes left out because they were practice.
    untouched
        Condition to its votes left out because nothing was touched; in pair methods under ``""``.
    """

    method: Method
    frame: "pd.DataFrame"
    conditions: tuple[str, ...]
    practice: int
    untouched: Mapping[str, int]

    @cached_property
    def listeners(self) -> tuple[str, ...]:
        """Who voted, by name."""
        return tuple(sorted(self.frame["listener"].unique()))

    @cached_property
    def items(self) -> tuple[str, ...]:
        """What was said, by name."""
        return tuple(sorted(self.frame["item"].unique()))

    def codes(self, column: str, names: Sequence[str]) -> Codes:
        """Return a column as positions in `names`."""
        place = {name: code for code, name in enumerate(names)}
        return np.asarray(self.frame[column].map(place), np.intp)

    def without(self, listeners: Collection[str]) -> "Votes":
        """Return the votes of everybody else."""
        return replace(self, frame=self.frame[~self.frame["listener"].isin(list(listeners))])

    def without_conditions(self, conditions: Collection[str]) -> "Votes":
        """Return the votes on all other conditions, of a method with scores."""
        left = tuple(name for name in self.conditions if name not in conditions)
        return replace(self, frame=self.frame[self.frame["condition"].isin(left)], conditions=left)


def method_of(name: str) -> Method:
    """Return the method of a name.

    Raises
    ------
    AnalysisError
        There is none; lists those there are.

    Examples
    --------
    >>> method_of("mos").highest
    5.0
    """
    if name not in METHODS:
        raise AnalysisError(f"there is no method {name!r}; allowed: {', '.join(METHODS)}")
    return METHODS[name]


def checked(
    votes: Any,
    *,
    method: str,
    reference: str | None = None,
    conditions: Collection[str] | None = None,
    duplicates: Duplicates = "refuse",
) -> Votes:
    """Return votes that can be computed with.

    Parameters
    ----------
    votes
        A pandas frame, an Arrow table, whatever gives itself as one, or a list of mappings; with the columns
        of :data:`~speechframe.statistics.votes.NEEDED` at least.
    method
        How the listeners were asked.
    reference
        The hidden reference's condition; ``mushra`` needs one.
    conditions
        All conditions there may be; None takes what was found.
    duplicates
        What to do where two rows are one vote (same listener, trial and slot): ``refuse`` them, or take the
        ``last`` by ``voted_utc``.

    Raises
    ------
    AnalysisError
        A column is missing or holds what it must not; votes of two tests; the same vote twice; a condition
        that is not known; nothing to analyse. Carries the column and the rows.

    Examples
    --------
    >>> row = {"listener": "l1", "item": "s1", "condition": "ours", "score": 4}
    >>> checked([row], method="mos").conditions
    ('ours',)
    """
    kind = method_of(method)
    frame = _frame(votes)
    _refuse_missing(frame, kind)
    frame = frame[[name for name in VOTE_SCHEMA[method].names if name in frame.columns]].reset_index(
        drop=True
    )
    _refuse_two_tests(frame)
    frame = _texts(frame, kind)
    frame, practice = _without_practice(frame)
    frame = _scores(frame, kind) if kind.has_scores else _choices(frame, kind)
    frame = _once(frame, kind, duplicates)
    names = _conditions(frame, kind, reference, conditions)
    touched = frame[_asked(kind)].notna().all(axis=1)
    untouched = frame.loc[~touched, "condition"].value_counts() if kind.has_scores else None
    counts = (
        {"": int((~touched).sum())} if untouched is None else {str(k): int(n) for k, n in untouched.items()}
    )
    # Sums of floating-point numbers depend on their order, results must not.
    order = [*NEEDED[method], *(name for name in ("trial", "slot") if name in frame.columns)]
    frame = frame[touched].sort_values(order, kind="stable", ignore_index=True)
    return Votes(kind, frame, names, practice, counts)


def _frame(votes: Any) -> "pd.DataFrame":
    import pandas as pd

    if isinstance(votes, pd.DataFrame):
        return votes
    if isinstance(votes, pa.Table) or hasattr(votes, "__arrow_c_stream__"):
        return pa.table(votes).to_pandas()
    if isinstance(votes, Sequence) and all(isinstance(row, Mapping) for row in votes):
        return pd.DataFrame(list(votes))
    raise AnalysisError(f"votes are a frame, one row a vote, not {type(votes).__name__}")


def _asked(kind: Method) -> list[str]:
    if kind.has_scores:
        return ["score"]
    return ["choice"] if kind.name == AB else ["answer"]


def _refuse_missing(frame: "pd.DataFrame", kind: Method) -> None:
    if not len(frame):
        raise AnalysisError("there are no votes")
    missing = [name for name in NEEDED[kind.name] if name not in frame.columns]
    if missing:
        raise AnalysisError(
            f"votes of {kind.name} need the columns {', '.join(NEEDED[kind.name])}; "
            f"missing: {', '.join(missing)}; there are: {', '.join(map(str, frame.columns))}",
            column=missing[0],
        )


def _refuse_two_tests(frame: "pd.DataFrame") -> None:
    tests = sorted(map(str, frame["test_id"].dropna().unique())) if "test_id" in frame.columns else []
    if len(tests) > 1:
        raise AnalysisError(
            f"votes of {len(tests)} tests ({', '.join(tests[:_SHOWN_ROWS])}); analyse one test at a time",
            column="test_id",
        )


def _texts(frame: "pd.DataFrame", kind: Method) -> "pd.DataFrame":
    names = [name for name in NEEDED[kind.name] if name in {"listener", "item"} or "condition" in name]
    for name in names:
        _refuse(frame, name, frame[name].isna(), "is empty")
    return frame.assign(**{name: frame[name].astype(str) for name in names})


def _without_practice(frame: "pd.DataFrame") -> tuple["pd.DataFrame", int]:
    if "training" not in frame.columns:
        return frame, 0
    wrong = frame["training"].notna() & ~frame["training"].isin([True, False])
    _refuse(frame, "training", wrong, "is neither true nor false")
    practice = frame["training"].isin([True])
    if practice.all():
        raise AnalysisError(f"there are no votes to analyse: all {len(frame)} are practice")
    return frame[~practice], int(practice.sum())


def _scores(frame: "pd.DataFrame", kind: Method) -> "pd.DataFrame":
    import pandas as pd

    score = pd.to_numeric(frame["score"], errors="coerce").astype(float)
    _refuse(frame, "score", score.isna() & frame["score"].notna(), "is no number")
    lowest, highest = float(kind.lowest or 0), float(kind.highest or 0)
    wrong = score.notna() & ~score.between(lowest, highest)
    _refuse(frame, "score", wrong, f"is not {lowest:g} to {highest:g}")
    if kind.step is not None:
        steps = (score - lowest) / kind.step
        _refuse(frame, "score", score.notna() & (steps != steps.round()), f"is no step of {kind.step:g}")
    return frame.assign(score=score)


def _choices(frame: "pd.DataFrame", kind: Method) -> "pd.DataFrame":
    for name in _SIDES:
        if name in frame.columns:
            wrong = frame[name].notna() & ~frame[name].isin(_SIDES[name])
            _refuse(frame, name, wrong, f"is not {' or '.join(_SIDES[name])}")
    same = frame["condition_a"] == frame["condition_b"]
    _refuse(frame, "condition_b", same, "is also condition_a; a pair has two conditions")
    if kind.name == ABX:
        _refuse(frame, "truth", frame["truth"].isna(), "is empty")
        if "correct" in frame.columns:
            correct = frame["answer"] == frame["truth"]
            wrong = frame["correct"].notna() & frame["answer"].notna() & (frame["correct"] != correct)
            _refuse(frame, "correct", wrong, "contradicts answer and truth")
    return frame


def _once(frame: "pd.DataFrame", kind: Method, duplicates: Duplicates) -> "pd.DataFrame":
    key = [name for name in VOTE_KEY[kind.name] if name in frame.columns]
    if key != list(VOTE_KEY[kind.name]):
        return frame
    if duplicates == "last":
        if "voted_utc" not in frame.columns or frame["voted_utc"].isna().any():
            raise AnalysisError(
                "which vote was the last is not known: voted_utc is needed", column="voted_utc"
            )
        return frame.sort_values("voted_utc", kind="stable").drop_duplicates(key, keep="last")
    double = frame.duplicated(key, keep=False)
    what = f"is there twice: a vote is one {', '.join(key)}; duplicates='last' takes the last one"
    _refuse(frame, "listener", double, what)
    return frame


def _conditions(
    frame: "pd.DataFrame", kind: Method, reference: str | None, allowed: Collection[str] | None
) -> tuple[str, ...]:
    columns = ["condition"] if kind.has_scores else ["condition_a", "condition_b"]
    if allowed is not None:
        for name in columns:
            _refuse(frame, name, ~frame[name].isin(list(allowed)), f"is none of {', '.join(sorted(allowed))}")
    names = tuple(sorted({name for column in columns for name in frame[column]}))
    if reference is not None and reference not in names:
        raise AnalysisError(
            f"the reference {reference!r} is no condition of these votes; there are: {', '.join(names)}",
            column=columns[0],
        )
    if kind.name == MUSHRA and reference is None:
        raise AnalysisError(
            "mushra needs reference=, the condition that is the hidden reference "
            f"({', '.join(names)}); without a natural reference the method is 'multi'"
        )
    return names


def _refuse(frame: "pd.DataFrame", column: str, wrong: "pd.Series[bool]", what: str) -> None:
    rows = [int(position) for position in frame.index[wrong]]
    if not rows:
        return
    shown = ", ".join(f"row {row} ({frame.loc[row, column]!r})" for row in rows[:_SHOWN_ROWS])
    more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
    raise AnalysisError(f"{column} {what}: {shown}{more}", column=column, rows=rows)
