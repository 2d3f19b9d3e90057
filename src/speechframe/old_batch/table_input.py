"""What a table is here: Arrow batches to read once, with a row id each, and what can be wrong with one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.old_store import RunFolder

BATCH_ROWS = 4096
TEXT_COLUMN = "text"
"""The name a plain list of strings gets as a column."""
CARRIED_ROWS = 64
"""Rows of a batch that carries audio."""


class PlanningStopped(Exception):
    """The caller did not want to wait for the rest of the table."""


class Taker(Protocol):
    """Takes in what a run's table does not hold, and gives a reference for each value."""

    @property
    def type(self) -> pa.DataType:
        """The type of references."""

    def take(
        self, values: Iterable[Any], folder: RunFolder | None, is_stopped: Callable[[], bool]
    ) -> "pa.Array[Any]":
        """Return a reference for each value, null for null; what is wrong with one stands in its reference.

        Parameters
        ----------
        values
            To be gone through once: they may be large.
        folder
            Where the run is made; None when there is only a look at what a run would cost.
        is_stopped
            Whether the caller still waits.

        Raises
        ------
        PlanningStopped
            When the caller does not.
        """


@dataclass
class TableInput:
    """A table to read once, batch by batch.

    Parameters
    ----------
    schema
        Of the caller's columns.
    batches
        The rows, at most :data:`BATCH_ROWS` at a time where the source allows.
    row_ids
        The pandas index as strings, or None for positions 0, 1, 2, ...
    is_run
        They are the rows of an earlier run, some of whose columns have names of ours.
    odd_values
        Column to row position to type name, for values Arrow cannot hold beside
        the others; they stand as text in `batches`.
    carried
        Columns that are not copied into the run folder but handed over: to their Python values, or to None
        where `batches` have them beside the columns of `schema`.
    left_out
        Columns that hold bytes, which are in neither.
    takers
        Argument to who takes its values in.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    row_ids: Sequence[str] | None = None
    is_run: bool = False
    odd_values: dict[str, dict[int, str]] = field(default_factory=dict)
    carried: dict[str, Sequence[Any] | None] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    takers: Mapping[str, Taker] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The columns an argument can name."""
        return list(dict.fromkeys([*self.schema.names, *self.carried]))


@runtime_checkable
class HasRows(Protocol):
    """A run: its rows go wherever a table goes."""

    def as_rows(self, named: Iterable[str] = (), *, batch_rows: int | None = None) -> TableInput:
        """Return the rows; what says how an answer came about is there only where it is named."""


def problem(
    field_name: str,
    words: str,
    *,
    value: Any = None,
    allowed: str = "",
    row: int | None = None,
    row_id: str | None = None,
) -> dict[str, Any]:
    """Return one line of the problems table."""
    return {
        "row": row,
        "row_id": row_id,
        "field": field_name,
        "problem": words,
        "value": value,
        "allowed": allowed,
    }


UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What Arrow raises for Python values that it has no type for."""


def not_stored(column: str, why: str) -> dict[str, Any]:
    """Return the problem of a column that the run folder cannot hold."""
    words = f"column {column!r} cannot be stored: {why}"
    return problem("table", words, allowed="texts, numbers, times, and lists or structs of them")


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidRows when two columns have one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRows(
            [
                problem("table", f"has two columns named {name!r}", allowed="one column a name")
                for name in twice
            ]
        )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's words."""
    return (str(error).splitlines() or [type(error).__name__])[0]
