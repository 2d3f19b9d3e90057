"""A table as Arrow batches with row ids, and the source of the values of each argument.

An argument of a verb (a public function such as `generate`) gets one value per row. If a data argument
(``text``) is a plain string, the string names a column. If any other argument (``voice``) is a plain string,
the string is the value for all rows. ``col("x")`` always names a column. A Series, list or array contains one
value per row.
"""

import inspect
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import InvalidRows, SpeechframeError, make_problem, refuse
from speechframe.tables.column import Balanced, BalancedTotals, Column
from speechframe.writing.words import format_count

BATCH_ROWS = 4096
"""Largest number of rows of a batch without audio."""
CARRIED_ROWS = 64
"""Largest number of rows of a batch that carries audio."""

SURROGATE_WORDS = "half a character (a lone surrogate)"
"""Words for a character that no file in UTF-8 can contain."""

ARROW_TYPE_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""Errors that Arrow raises for values without an Arrow type."""

_TYPE_OF_VIEW: dict[Any, pa.DataType] = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}
"""The plain type for each Arrow type of views."""


@dataclass(frozen=True)
class Source:
    """The source of an argument's values: a constant, a column, an iterator, or values that rows share."""

    constant: Any = None
    column: str | None = None
    # Values of the rows in order, from a list, or from a `column` that the stored table lacks.
    values: Iterator[Any] | None = field(default=None, compare=False, repr=False)
    balance: BalancedTotals | None = field(default=None, compare=False, repr=False)  # with the totals so far

    def to_json(self) -> dict[str, Any]:
        """Return the source as an entry for run.json."""
        if self.column is not None:
            return {"column": self.column}
        if self.balance is not None:
            return {"balanced": asdict(self.balance.rule)}
        return {"constant": self.constant} if self.values is None else {"values": True}

    @classmethod
    def from_json(cls, argument: str, kept: Mapping[str, Any]) -> "Source":
        """Return the source for an entry from :meth:`to_json`.

        The values of a list are not stored. If the entry is for a list, reading values from the source raises
        InvalidRows.
        """
        if "values" in kept:
            return cls(values=_refuse_stored_list(argument))
        if "balanced" in kept:
            return cls(balance=BalancedTotals(Balanced(**kept["balanced"])))
        return cls(kept.get("constant"), kept.get("column"))


def get_column_name(value: Any, *, is_data: bool) -> str | None:
    """Return the name of the column from which an argument gets its values, or None if it has no column."""
    if isinstance(value, Column):
        return value.name
    if isinstance(value, Source):
        return value.column
    return value if is_data and isinstance(value, str) else None


def make_rows(batch: pa.RecordBatch, sources: Mapping[str, Source]) -> list[dict[str, Any]]:
    """Return the arguments of each row of a batch. Arguments whose value is None or NaN are left out.

    Call this function once for each batch of a table, in order, because each call takes the next values of
    lists.
    """
    constants: dict[str, Any] = {}
    columns: dict[str, list[Any]] = {}
    for name, source in sources.items():
        if source.values is not None:
            values = [None if is_missing(value) else value for value in islice(source.values, batch.num_rows)]
            # A list may be too short. Then `Table.batches` raises InvalidRows at the end of the table.
            columns[name] = values + [None] * (batch.num_rows - len(values))
        elif source.column is not None:
            columns[name] = convert_to_python(batch.column(source.column), source.column)
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
    for name, balance in _balances_of(sources):
        _balance(found, name, batch, balance)
    return found


def _balances_of(sources: Mapping[str, Source]) -> list[tuple[str, BalancedTotals]]:
    return [(name, source.balance) for name, source in sources.items() if source.balance is not None]


def _balance(found: list[dict[str, Any]], name: str, batch: pa.RecordBatch, balance: BalancedTotals) -> None:
    """Set the balanced argument `name` of each row of a batch, or leave it out if the group has no values."""
    rule = balance.rule
    groups, weights = (
        convert_to_python(batch.column(column), column)
        if column in batch.schema.names
        else [None] * len(found)
        for column in (rule.by or "", rule.weight)
    )
    for row, group, number in zip(found, groups, weights, strict=True):
        weight = 0.0 if is_missing(number) else number
        if rule.weight == "rows":
            weight = 1.0
        elif rule.weight == "characters":
            weight = len(text) if isinstance(text := row.get("text"), str) else 0.0
        value = balance.choose(None if is_missing(group) else str(group), weight)
        row[name] = value
        if value is None:
            del row[name]


def choose_column_names(schema: pa.Schema, ours: Iterable[str]) -> dict[str, str]:
    """Return, for the names `ours` of columns of speechframe, names that the caller's columns do not have.

    Examples
    --------
    >>> choose_column_names(pa.schema([("status", pa.string())]), ["status", "audio"])
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


def is_per_row(value: Any) -> bool:
    """Return whether `value` is a Series, list or array, which contains one value per row."""
    if isinstance(value, (str, bytes, Mapping)) or getattr(value, "ndim", 1) == 0:
        return False
    if has_columns(value):
        return False
    is_array = hasattr(value, "__array__") or hasattr(value, "to_pylist")
    return isinstance(value, Sequence) or (hasattr(value, "__len__") and is_array)


def has_columns(value: Any) -> bool:
    """Return whether `value` is a frame (a table with named columns) of any library."""
    # Look the attribute up without reading it, because polars warns when LazyFrame.columns is read.
    return inspect.getattr_static(value, "columns", None) is not None


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or one of the missing values of pandas."""
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 - NaN differs from itself
    return value is None or type(value).__name__ in {"NAType", "NaTType"}


def contains_bytes(kind: pa.DataType) -> bool:
    """Return whether a column of this type contains bytes, such as audio with its path."""
    if pa.types.is_struct(kind):
        return any(contains_bytes(inner.type) for inner in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def convert_to_list(values: Any) -> list[Any]:
    """Return a Series, list or array as a list of Python values."""
    convert = getattr(values, "to_pylist", None) or getattr(values, "tolist", None)
    return list(convert() if convert else values)


def _refuse_stored_list(argument: str) -> Iterator[Any]:
    fault = "was a list with a value for each row of the former table"
    allowed = f"the verb once more, with the new table and {argument}=[...] of its length"
    raise refuse(argument, fault, allowed=allowed)
    yield


def convert_to_json_types(value: Any) -> Any:
    """Return a constant converted to JSON types. Return a value that JSON cannot contain unchanged."""
    try:
        return json.loads(json.dumps(value, default=lambda v: v.item() if hasattr(v, "item") else float(v)))
    except (TypeError, ValueError):
        return value


def resolve_sources(
    arguments: Mapping[str, Any],
    data_arguments: Iterable[str],
    whole_table_arguments: Iterable[str],
    table: "Table",
) -> dict[str, Source]:
    """Return the source of each argument's values. Arguments with the value None are left out.

    A plain string for one of `data_arguments` names a column. A list for one of `whole_table_arguments` is
    one value. A :class:`Source` from run.json refers to the columns of this table. Raise InvalidRows if the
    table lacks a column, or if the column contains bytes. The lengths of lists are checked later, at the end
    of `Table.batches`.
    """
    sources: dict[str, Source] = {}
    problems = []
    for name, value in arguments.items():
        if value is None:
            continue
        if (column := get_column_name(value, is_data=name in data_arguments)) is not None:
            sources[name] = Source(column=column, values=table.carried.get(column))
            fault = "names a column the table does not have"
            if column in table.schema.names:
                fault = "names a column that holds bytes, not text"
                if not contains_bytes(table.schema.field(column).type):
                    continue
            if column not in table.carried:
                # pandas calls an index without a name __index_level_0__.
                known = [one for one in table.schema.names if not one.startswith("__index_level_")]
                allowed = ", ".join([*known, *table.carried])
                problems.append(make_problem(name, fault, value=column, allowed=allowed))
        elif isinstance(value, (Source, Balanced)):
            sources[name] = Source(balance=BalancedTotals(value)) if isinstance(value, Balanced) else value
        elif is_per_row(value) and name not in whole_table_arguments:
            values = convert_to_list(value)
            sources[name] = Source(values=iter(values))
            table.lengths[name] = len(values)
        else:
            sources[name] = Source(convert_to_json_types(value))
    problems += _problems_of_balances(sources, table.schema)
    if problems:
        raise InvalidRows(problems)
    return sources


def _problems_of_balances(sources: Mapping[str, Source], schema: pa.Schema) -> Iterator[dict[str, Any]]:
    """Yield the problems of balanced arguments: columns that are missing, or that do not contain numbers."""
    numbers = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    allowed = ["rows", *(["characters"] if "text" in sources else []), *numbers]
    for name, balance in _balances_of(sources):
        by, weight = balance.rule.by, balance.rule.weight
        if by is not None and by not in schema.names:
            words = "is balanced by a column the table does not have"
            yield make_problem(name, words, value=by, allowed=", ".join(schema.names))
        if weight not in allowed:
            words = "has a weight that is not a column of numbers"
            yield make_problem(name, words, value=weight, allowed=", ".join(allowed))


class Table:
    """A table that can be read once, as Arrow batches.

    Parameters
    ----------
    source
        Arrow batches or tables with the same columns.
    schema
        Columns of the source. By default those of the first batch.
    ids, id_column
        Row ids, one per row, or the name of the column with the row ids. Without both, rows are numbered.
    carry
        Names of columns with values of any kind, such as audio. If such a column is not of texts, it is left
        out of the batches, and :attr:`carried` has its values.
    carried
        Values of further columns, which the source lacks, by name.
    notes
        List for remarks to the user, such as the numbers of rows and columns that are left out.
    name
        Word for the source in messages of errors.
    """

    def __init__(
        self,
        source: Iterable[Any],
        schema: pa.Schema | None = None,
        *,
        ids: Iterator[str] | None = None,
        id_column: str | None = None,
        carry: frozenset[str] = frozenset(),
        carried: dict[str, Iterator[Any]] | None = None,
        notes: list[str] | None = None,
        name: str = "its source",
    ) -> None:
        self.id_column, self._ids = id_column, None if id_column else ids
        self.is_numbered = ids is None and id_column is None  # True if ids are numbers, so all differ
        self.notes = [] if notes is None else notes
        self.lengths: dict[str, int] = {}  # lengths of lists by argument, checked at the end of the table
        self._batches = _read_batches(source, name)
        if schema is None:
            first = next(self._batches, None)
            schema = pa.schema([]) if first is None else first.schema
            self._batches = chain([] if first is None else [first], self._batches)
        check_names(schema.names)
        self._names = set(schema.names)
        # Read `carried` only now, because reading the first batch has filled it.
        self.carried: dict[str, Iterator[Any]] = {} if carried is None else carried
        self._queues: dict[str, deque[Any]] = {}
        for name_ in carry.intersection(schema.names):
            if not is_text(schema.field(name_).type):
                self._queues[name_] = deque()
                self.carried[name_] = drain_queue(self._queues[name_])
        kept = []
        for column in schema:
            if column.name not in self._queues:
                kept.append(column.with_type(_find_stored_type(column.type)))
                try:
                    pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([kept[-1]])).close()
                except pa.ArrowException as error:
                    raise InvalidRows([make_storage_problem(column.name, get_first_line(error))]) from None
        metadata: dict[Any, Any] = dict(schema.metadata or {})
        if b"pandas" in metadata:
            # pandas writes names of nested types into the metadata that it cannot read later. Replace them.
            unreadable_type = rb'("numpy_type": )"[^"]*[<(][^"]*\[pyarrow\]"'
            metadata[b"pandas"] = re.sub(unreadable_type, rb'\1"object"', metadata[b"pandas"])
        self.schema = pa.schema(kept, metadata=metadata or None)
        if id_column is not None and id_column not in self.schema.names:
            allowed = ", ".join(self.schema.names)
            fault = "names a column the table does not have"
            raise refuse("id", fault, value=id_column, allowed=allowed)

    def batches(self) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
        """Yield batches of at most 4096 rows, or 64 rows if audio is carried, with the id of each row.

        For a table without rows, yield one empty batch. Raise InvalidRows if the source fails, if batches
        have different columns or types, if a row has no id, or if a list of an argument has another length
        than the table.
        """
        size, count = CARRIED_ROWS if self.carried else BATCH_ROWS, 0
        for whole in self._batches:
            if self._names.symmetric_difference(whole.schema.names):
                differ = ", ".join(sorted(self._names.symmetric_difference(whole.schema.names)))
                fault = f"has batches with different columns: {differ} is not in all of them"
                raise refuse("table", fault, allowed="batches with the same columns")
            for start in range(0, whole.num_rows, size):
                batch = whole.slice(start, size)
                for name, queue in self._queues.items():
                    queue.extend(convert_to_python(batch.column(name), name))
                batch = self._convert_types(batch)
                yield batch, self._get_row_ids(batch, count)
                count += batch.num_rows
        if not count:
            yield pa.RecordBatch.from_pylist([], self.schema), []
        for name, length in self.lengths.items():
            if length != count:
                fault = f"has {format_count(length, 'value')} for {format_count(count, 'row')}"
                raise refuse(name, fault, allowed="one value a row")

    def _convert_types(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = batch.select(self.schema.names)
        for position, kind in enumerate(self.schema):
            column = batch.column(position)
            if column.type == kind.type:
                continue
            try:
                if column.null_count == len(column):
                    column = pa.nulls(len(column), kind.type)
                elif is_text(column.type) != is_text(kind.type):
                    # Arrow would convert the text 007 to the number 7.
                    raise TypeError(f"it is {column.type} here, and {kind.type} in the rows before")
                batch = batch.set_column(position, kind, column.cast(kind.type))
            except ARROW_TYPE_ERRORS as error:
                allowed = f"one type in all rows, such as read_csv(..., dtype={{{kind.name!r}: str}})"
                raise InvalidRows([make_storage_problem(kind.name, get_first_line(error), allowed)]) from None
        return batch

    def _get_row_ids(self, batch: pa.RecordBatch, start: int) -> list[str]:
        if self._ids is not None:
            return list(islice(self._ids, batch.num_rows))
        if self.id_column is None:
            return list(map(str, range(start, start + batch.num_rows)))
        column = batch.column(self.id_column)
        fault, allowed = f"is missing: column {self.id_column!r} is empty there", "a value in every row"
        empty: list[Any] = pc.indices_nonzero(pc.is_null(column, nan_is_null=True)).to_pylist()
        if empty:
            rows = [start + position for position in empty]
            raise InvalidRows(
                [make_problem("id", fault, allowed=allowed, row=n, row_id=str(n)) for n in rows]
            )
        return list(map(str, convert_to_python(column, self.id_column)))


def convert_to_python(column: "pa.Array[Any]", name: str) -> list[Any]:
    """Return the values of a column as Python objects. Raise InvalidRows for a date that Python lacks."""
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):
        fault, allowed = "holds a date before the year 1 or after 9999", "dates of these years, or text"
        raise refuse(name, fault, allowed=allowed) from None


def _read_batches(source: Iterable[Any], name: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a source. If the source fails, raise InvalidRows with the number of the row."""
    count = 0
    try:
        for found in source:
            for batch in found.to_batches() if isinstance(found, pa.Table) else (found,):
                count += batch.num_rows
                yield batch
    except SpeechframeError:
        raise
    except Exception as error:
        raise make_read_error(name, error, count) from error


def drain_queue(queue: deque[Any]) -> Iterator[Any]:
    """Yield and remove the values of a queue. The generator ends for good once the queue is empty."""
    while queue:
        yield queue.popleft()


def make_read_error(name: str, error: Exception, row: int = 0) -> InvalidRows:
    """Return the error for a source that failed at a row, with advice if possible."""
    allowed = ""
    if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
        allowed = "a file in UTF-8: save it again with that encoding"
    elif "CSV parse error" in str(error):
        allowed = (
            'as many fields in every line: set sep= to their separator, or quoting="none" to keep quotes'
        )
    fault = f"{name} cannot be read at row {row:,}: {type(error).__name__}: {get_first_line(error)}"
    return refuse("table", fault, allowed=allowed, row=row, row_id=str(row))


def make_storage_problem(column: str, why: str, allowed: str = "", row: int | None = None) -> dict[str, Any]:
    """Return the problem of a column that cannot be stored without a change of its values."""
    fault = f"column {column!r} cannot be stored: {why}"
    row_id = None if row is None else str(row)
    allowed = allowed or "texts, numbers, times, bytes, and lists or structs of them"
    return make_problem("table", fault, allowed=allowed, row=row, row_id=row_id)


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidRows if two columns have the same name, or a name contains half a character."""
    for name, count in Counter(names).items():
        if count > 1 and not name.strip():
            fault = f"has {count:,} columns with values and without a name"
            raise refuse("table", fault, allowed="a name for each column with values")
        if count > 1:
            raise refuse("table", f"has two columns named {name!r}")
        if name != name.encode("utf-8", "ignore").decode():
            raise refuse("table", f"has a column {name!a}, whose name holds {SURROGATE_WORDS}")


def get_first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type contains texts, or dictionary codes of texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _find_stored_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a Parquet file keeps the values of a column of type `kind`."""
    if pa.types.is_dictionary(kind):
        value: Any = _find_stored_type(kind.value_type)
        # A file keeps a dictionary type only for texts. For other types it returns the plain values.
        return pa.dictionary(kind.index_type, value, kind.ordered) if is_text(value) else value
    # Some Arrow versions cannot filter columns of views or take rows from them, so use the plain type.
    return _TYPE_OF_VIEW.get(kind, kind)
