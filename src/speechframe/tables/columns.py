"""Columns and constants: where the values of a verb's arguments come from.

A bare string of a data argument (``text``) names a column; a bare string of any other argument (``voice``) is
the value itself. ``col("x")`` names a column everywhere, and a Series, list or array gives one value a row.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from speechframe.errors import InvalidRows


@dataclass(frozen=True)
class Column:
    """A column of the table, by name; made by :func:`col`."""

    name: str


def col(name: str) -> Column:
    """Take an option's value from the column `name`, row by row.

    Parameters
    ----------
    name
        A column of the table that is handed to the verb.

    Examples
    --------
    >>> col("voice")
    Column(name='voice')
    """
    return Column(name)


@dataclass(frozen=True)
class Source:
    """Where one argument's values come from: a constant, a column, or values taken row after row."""

    constant: Any = None
    column: str | None = None
    # Of a list, or of a `column` that is not stored with the table.
    values: Iterator[Any] | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return what run.json keeps."""
        if self.column is not None:
            return {"column": self.column}
        return {"constant": self.constant} if self.values is None else {"values": True}

    @classmethod
    def from_json(cls, argument: str, kept: Mapping[str, Any]) -> "Source":
        """Return the source that :meth:`to_json` described; the values of a list belonged to one table."""
        if "values" in kept:
            return cls(values=_of_another_table(argument))
        return cls(kept.get("constant"), kept.get("column"))


def column_of(value: Any, *, is_data: bool) -> str | None:
    """Return the column that an argument names, if it names one."""
    if isinstance(value, Column):
        return value.name
    if isinstance(value, Source):
        return value.column
    return value if is_data and isinstance(value, str) else None


def rows(batch: pa.RecordBatch, sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """Return the arguments of each row; None and NaN count as not given.

    Every batch of a table is handed in, in order: a list is read on from batch to batch.
    """
    constants: dict[str, Any] = {}
    columns: dict[str, list[Any]] = {}
    for name, source in sources.items():
        if source.values is not None:
            values = [None if is_missing(value) else value for value in islice(source.values, batch.num_rows)]
            # A list that is too short is refused when the table ends, with both lengths.
            columns[name] = values + [None] * (batch.num_rows - len(values))
        elif source.column is not None:
            columns[name] = batch.column(source.column).to_pylist()
            if pa.types.is_floating(batch.column(source.column).type):
                columns[name] = [None if is_missing(value) else value for value in columns[name]]
        else:
            constants[name] = source.constant
    found = []
    for values_of_row in zip(*columns.values(), strict=True) if columns else [()] * batch.num_rows:
        row = constants.copy()
        for name, value in zip(columns, values_of_row, strict=True):
            if value is not None:
                row[name] = value
        found.append(row)
    return found


def our_names(schema: pa.Schema, ours: Iterable[str]) -> dict[str, str]:
    """Return what each column of ours is called beside the caller's.

    Examples
    --------
    >>> our_names(pa.schema([("status", pa.string())]), ["status", "audio"])
    {'status': 'speech_status', 'audio': 'audio'}
    """
    taken, ours = set(schema.names), list(ours)
    named: dict[str, str] = {}
    for name in ours:
        free = name
        while free in taken or (free != name and free in ours):
            free = f"speech_{free}"
        named[name] = free
    return named


def problem(
    name: str,
    words: str,
    *,
    value: Any = None,
    allowed: str = "",
    row: int | None = None,
    row_id: str | None = None,
) -> dict[str, Any]:
    """Return a line of the problems table."""
    where = {"row": row, "row_id": row_id, "field": name}
    return {**where, "problem": words, "value": value, "allowed": allowed}


def is_per_row(value: Any) -> bool:
    """Return whether a value is a Series, list or array: one value a row."""
    if isinstance(value, (str, bytes, Mapping)) or getattr(value, "ndim", 1) == 0:
        return False
    is_array = hasattr(value, "__array__") or hasattr(value, "to_pylist")
    return isinstance(value, Sequence) or (hasattr(value, "__len__") and is_array)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or what pandas has in their place."""
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 - NaN differs from itself
    return value is None or type(value).__name__ in {"NAType", "NaTType"}


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether there are bytes in a column of this type, as in audio with its path."""
    if pa.types.is_struct(kind):
        return any(holds_bytes(inner.type) for inner in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def as_list(values: Any) -> list[Any]:
    """Return a Series, list or array as a list of Python values."""
    convert = getattr(values, "to_pylist", None) or getattr(values, "tolist", None)
    return list(convert() if convert else values)


def _of_another_table(argument: str) -> Iterator[Any]:
    words = "was a list with a value for each row of the former table"
    allowed = f"the verb once more, with the new table and {argument}=[...] of its length"
    raise InvalidRows([problem(argument, words, allowed=allowed)])
    yield


def plain(value: Any) -> Any:
    """Return a constant as JSON has it; what JSON cannot hold is left for the verb to refuse."""
    try:
        return json.loads(json.dumps(value, default=lambda v: v.item() if hasattr(v, "item") else float(v)))
    except (TypeError, ValueError):
        return value
