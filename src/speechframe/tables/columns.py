"""Columns and constants: where the values of a verb's arguments come from.

A bare string of a data argument (``text``) names a column; a bare string of any other argument (``voice``) is
the value itself. ``col("x")`` names a column everywhere, and a Series, list or array gives one value a row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from speechframe.errors import InvalidRows

OURS = "speech_"


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
    if not name:
        raise ValueError("col() takes the name of a column, not an empty one")
    return Column(name)


@dataclass(frozen=True)
class Source:
    """Where one argument's values come from.

    Attributes
    ----------
    constant
        The value of every row, where the two others are None.
    column
        The column that holds them.
    values
        One value a row, taken batch after batch: of a list, or of a `column` that Arrow cannot hold.
    """

    constant: Any = None
    column: str | None = None
    values: Iterator[Any] | None = field(default=None, compare=False, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return what run.json keeps."""
        if self.column is not None:
            return {"column": self.column}
        return {"constant": _plain(self.constant)} if self.values is None else {"values": True}

    @classmethod
    def from_json(cls, argument: str, kept: Mapping[str, Any]) -> "Source":
        """Return the source that :meth:`to_json` described; the values of a list belonged to one table."""
        if "values" in kept:
            return cls(values=_of_another_table(argument))
        return cls(constant=kept.get("constant"), column=kept.get("column"))


class HasColumns(Protocol):
    """What :func:`resolve` asks of a table; see :class:`speechframe.tables.table_input.Table`."""

    schema: pa.Schema
    carried: dict[str, Iterator[Any] | None]
    left_out: dict[str, str]
    row_count: int | None
    lengths: dict[str, int]


def resolve(
    arguments: Mapping[str, Any],
    data_arguments: Iterable[str],
    whole_table_arguments: Iterable[str],
    table: HasColumns,
) -> dict[str, Source]:
    """Return where the values of each argument come from.

    Parameters
    ----------
    arguments
        As the caller gave them; those that are None are left out. A :class:`Source`, as run.json kept it, is
        looked up in this table.
    data_arguments
        Arguments whose bare string names a column.
    whole_table_arguments
        Arguments of which a list is one value.
    table
        Whose columns can be named.

    Raises
    ------
    InvalidRows
        For a column that the table does not have, and for a list of another length than the table.
    """
    sources: dict[str, Source] = {}
    problems = []
    for name, value in arguments.items():
        column = None
        if isinstance(value, Column):
            column = value.name
        elif isinstance(value, Source):
            column = value.column
        elif isinstance(value, str) and name in data_arguments:
            column = value
        if column is not None:
            sources[name] = Source(column=column, values=table.carried.get(column))
            problems += _unknown(name, column, table)
        elif isinstance(value, Source):
            sources[name] = value
        elif is_per_row(value) and name not in whole_table_arguments:
            values = _as_list(value)
            sources[name] = Source(values=iter(values))
            table.lengths[name] = len(values)
            problems += wrong_lengths({name: len(values)}, table.row_count)
        elif value is not None:
            sources[name] = Source(_plain(value))
    if problems:
        raise InvalidRows(problems)
    return sources


def rows(batch: pa.RecordBatch, sources: Mapping[str, Source]) -> Iterator[dict[str, Any]]:
    """Return the arguments of each row; None and NaN count as not given.

    Parameters
    ----------
    batch
        Rows of the table; every batch is handed in, in order: a list is read on from batch to batch.
    sources
        As :func:`resolve` returned them.
    """
    count = batch.num_rows
    constants: dict[str, Any] = {}
    whole: dict[str, Sequence[Any]] = {}
    gappy: dict[str, Sequence[Any]] = {}
    for name, source in sources.items():
        if source.values is not None:
            values = list(islice(source.values, count))
            # A list that is too short is refused when the table ends, with both lengths.
            gappy[name] = values + [None] * (count - len(values))
        elif source.column is None:
            constants[name] = source.constant
        elif source.column not in batch.schema.names:
            words = "names a column the table does not have"
            raise InvalidRows(
                [problem(name, words, value=source.column, allowed=_listed(batch.schema.names))]
            )
        else:
            array = batch.column(source.column)
            is_whole = not array.null_count and not pa.types.is_floating(array.type)
            (whole if is_whole else gappy)[name] = array.to_pylist()
    return _rows(count, constants, whole, gappy)


def _rows(
    count: int,
    constants: dict[str, Any],
    whole: Mapping[str, Sequence[Any]],
    gappy: Mapping[str, Sequence[Any]],
) -> Iterator[dict[str, Any]]:
    names = tuple(whole)
    values_of_rows = zip(*whole.values(), strict=True) if whole else iter([()] * count)
    for place, values in enumerate(values_of_rows):
        row = constants | dict(zip(names, values, strict=True))
        for name, column in gappy.items():
            if not is_missing(value := column[place]):
                row[name] = value
        yield row


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
            free = OURS + free
        named[name] = free
    return named


def problem(
    field_name: str,
    words: str,
    *,
    value: Any = None,
    allowed: str = "",
    row: int | None = None,
    row_id: str | None = None,
) -> dict[str, Any]:
    """Return a line of the problems table."""
    return {
        "row": row,
        "row_id": row_id,
        "field": field_name,
        "problem": words,
        "value": value,
        "allowed": allowed,
    }


def wrong_lengths(lengths: Mapping[str, int], row_count: int | None) -> list[dict[str, Any]]:
    """Return a problem for each list that has not one value for each row of the table."""
    return [
        problem(name, f"has {length:,} values for {row_count:,} rows", allowed="one value a row")
        for name, length in lengths.items()
        if row_count is not None and length != row_count
    ]


def is_per_row(value: Any) -> bool:
    """Return whether a value is a Series, list or array: one value a row.

    Examples
    --------
    >>> is_per_row(["a", "b"]), is_per_row("ab"), is_per_row({"a": 1})
    (True, False, False)
    """
    if isinstance(value, (str, bytes, Mapping)) or getattr(value, "ndim", 1) == 0:
        return False
    is_array = hasattr(value, "__array__") or hasattr(value, "to_pylist")
    return isinstance(value, Sequence) or (hasattr(value, "__len__") and is_array)


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or what pandas has in their place."""
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 - NaN differs from itself
    return value is None or type(value).__name__ in {"NAType", "NaTType"}


def _unknown(argument: str, column: str, table: HasColumns) -> list[dict[str, Any]]:
    names = [*table.schema.names, *table.carried]
    if column in table.left_out:
        words = f"names a column that {table.left_out[column]}"
    elif column not in names:
        words = "names a column the table does not have"
    else:
        return []
    return [problem(argument, words, value=column, allowed=_listed(names))]


def _listed(names: Iterable[str]) -> str:
    # pandas calls an index without a name __index_level_0__.
    return ", ".join(name for name in dict.fromkeys(names) if not name.startswith(("__index_level_", "spf:")))


def _as_list(value: Any) -> list[Any]:
    for method in ("to_pylist", "tolist", "to_list"):
        if hasattr(value, method):
            return list(getattr(value, method)())
    return list(value)


def _of_another_table(argument: str) -> Iterator[Any]:
    words = "was a list with a value for each row of the former table"
    allowed = f"the verb once more, with the new table and {argument}=[...] of its length"
    raise InvalidRows([problem(argument, words, allowed=allowed)])
    yield


def _plain(value: Any) -> Any:
    """Return a constant as JSON has it."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, (Real, Decimal)) else value
