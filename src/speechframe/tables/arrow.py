"""A table as Arrow batches with a row id each, in types that a Parquet file gives back."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.errors import InvalidRows, SpeechframeError
from speechframe.tables.columns import is_missing, problem, wrong_lengths

BATCH_ROWS = 4096
CARRIED_ROWS = 64
"""Rows of a batch that carries audio."""

HALF = "half a character (a lone surrogate)"

_PANDAS = b"pandas"
"""Where Arrow keeps what a frame was like."""

UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
"""What Arrow raises for values that it has no type for."""


@dataclass
class Table:
    """A table that is read once, as Arrow batches.

    Parameters
    ----------
    schema
        The caller's columns, as they come back.
    source
        Batches with these columns; others beside them are dropped, unless `ids` or `carried` names them.
    ids
        Row ids: a column of the batches, a text for each row, or None to number the rows.
    carried
        Columns that are handed to the verb and not stored: to their values, or to None where they are columns
        of the batches.
    left_out
        Column to why no argument can name it, as the end of a sentence.
    notes
        How many rows were dropped or merged, and why; complete once the table was read.
    row_count
        How many rows there are, where that is known before the table is read.
    lengths
        Argument to the length of its list; compared with the table at its end.
    id_column
        The caller's column of row ids.
    name
        What errors call it.
    """

    schema: pa.Schema
    source: Iterable[Any]
    ids: str | Sequence[str] | None = None
    carried: dict[str, Iterator[Any] | None] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    row_count: int | None = None
    lengths: dict[str, int] = field(default_factory=dict)
    id_column: str | None = None
    name: str = "its source"

    def __post_init__(self) -> None:
        self._names = {*self.schema.names, *self._extra()}

    def batches(self) -> Iterator[tuple[pa.RecordBatch, list[str]]]:
        """Yield batches of at most 4096 rows, 64 where audio is carried, with the id of each row.

        A table without rows is one empty batch.

        Raises
        ------
        InvalidRows
            When the source breaks off, its batches differ, a row has no id, or a list has another length.
        """
        size, start = CARRIED_ROWS if self.carried else BATCH_ROWS, 0
        for batch in self._read():
            for place in range(0, batch.num_rows, size):
                part = batch.slice(place, size)
                yield part, self._ids_of(part, start)
                start += part.num_rows
        if not start:
            yield next(self._fitted(iter([pa.RecordBatch.from_pylist([], self._whole_schema())]))), []
        if problems := wrong_lengths(self.lengths, start):
            raise InvalidRows(problems)

    def close(self) -> None:
        """End the reading of the source."""
        if hasattr(self.source, "close"):
            self.source.close()

    def prepare(self, carry: frozenset[str], id_column: str | None) -> "Table":
        """Return the table with its columns in types that can be stored, or raise InvalidRows."""
        check_names(self.schema.names)
        for kind in self.schema:
            if kind.name in carry and kind.name not in self.carried and not is_text(kind.type):
                self.carried[kind.name] = None
            elif holds_bytes(kind.type):
                self.left_out[kind.name] = "holds bytes, not text"
        kept = [
            f.with_type(plain_type(f.type))
            for f in self.schema
            if f.name not in self.carried or is_text(f.type)
        ]
        self.schema = _readable_by_pandas(pa.schema(kept).with_metadata(self.schema.metadata))
        _check_storable(self.schema)
        if id_column is not None:
            if id_column not in self.schema.names:
                allowed = ", ".join(self.schema.names)
                words = "names a column the table does not have"
                raise InvalidRows([problem("id", words, value=id_column, allowed=allowed)])
            self.ids = self.id_column = id_column
        return self

    def _extra(self) -> list[str]:
        """Return the columns that are read beside those that are stored."""
        carried = [name for name, values in self.carried.items() if values is None]
        ids = [self.ids] if isinstance(self.ids, str) else []
        return [name for name in (*carried, *ids) if name not in self.schema.names]

    def _whole_schema(self) -> pa.Schema:
        return pa.schema([*self.schema, *((name, pa.string()) for name in self._extra())])

    def _read(self) -> Iterator[pa.RecordBatch]:
        count = 0
        try:
            for batch in self._fitted(self.source):
                yield batch
                count += batch.num_rows
        except SpeechframeError:
            raise
        except Exception as error:
            words = f"{self.name} raised {type(error).__name__} after row {count:,}: {first_line(error)}"
            raise InvalidRows([problem("table", words, row=count)]) from error

    def _fitted(self, batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """Yield batches with the columns of the schema, in its types, and those beside them."""
        extra = self._extra()
        for batch in batches:
            for rows in batch.to_batches() if isinstance(batch, pa.Table) else (batch,):
                if not isinstance(rows, pa.RecordBatch):
                    words = f"yields a {type(rows).__name__} among Arrow batches"
                    raise InvalidRows([problem("table", words, allowed="batches with the same columns")])
                if rows.schema.equals(self.schema) and not extra:
                    yield rows
                    continue
                _check_same(rows.schema.names, self._names)
                yield _in_types(rows, self.schema, extra)

    def _ids_of(self, batch: pa.RecordBatch, start: int) -> list[str]:
        end = start + batch.num_rows
        if self.ids is None:
            return list(map(str, range(start, end)))
        if not isinstance(self.ids, str):
            return list(self.ids[start:end])
        column = batch.column(self.ids)
        values: list[Any] = column.to_pylist()
        if column.null_count or pa.types.is_floating(column.type):
            words, allowed = f"is missing: column {self.ids!r} is empty there", "a value in every row"
            problems = [
                problem("id", words, allowed=allowed, row=start + place, row_id=str(start + place))
                for place, value in enumerate(values)
                if is_missing(value)
            ]
            if problems:
                raise InvalidRows(problems)
        return values if is_plain_text(column.type) else list(map(str, values))


def not_stored(column: str, why: str, allowed: str = "", row: int | None = None) -> dict[str, Any]:
    """Return the problem of a column that could not come back as it is."""
    words = f"column {column!r} cannot be stored: {why}"
    row_id = None if row is None else str(row)
    allowed = allowed or "texts, numbers, times, bytes, and lists or structs of them"
    return problem("table", words, allowed=allowed, row=row, row_id=row_id)


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidRows when two columns have one name, or a name is no whole text."""
    twice = sorted({name for name in names if names.count(name) > 1})
    words = [f"has two columns named {name!r}" for name in twice]
    words += [f"has a column {name!a}, whose name holds {HALF}" for name in names if not is_whole(name)]
    if words:
        raise InvalidRows([problem("table", said, allowed="one column a name") for said in words])


def is_whole(text: str) -> bool:
    """Return whether a text can be written as UTF-8: it holds no lone surrogate."""
    return text.isascii() or text == text.encode("utf-8", "ignore").decode()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's words."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def is_plain_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's three kinds of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts, or codes of texts."""
    return is_plain_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether there are bytes in a column of this type, as in audio with its path."""
    if pa.types.is_struct(kind):
        return any(holds_bytes(f.type) for f in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a file gives a column back with the same values."""
    # Views (what polars hands over) cannot be filtered or taken by every Arrow version: plain types can.
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        value: Any = plain_type(kind.value_type)
        # Of anything but text a file gives back the values.
        return pa.dictionary(kind.index_type, value, kind.ordered) if is_text(value) else value
    if pa.types.is_fixed_size_list(kind):
        fixed: pa.DataType = pa.list_(plain_type(kind.value_type), kind.list_size)
        return fixed
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type), kind.keys_sorted)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(plain_type(f.type)) for f in kind])
    return kind


def _check_same(names: Sequence[str], known: set[str]) -> None:
    if len(names) == len(known) == len(known.intersection(names)):
        return
    check_names(names)
    missing = sorted(known.difference(names))
    words = [f"has a batch without the column {name!r}, which the first one has" for name in missing]
    new = sorted(set(names).difference(known))
    words += [f"has a batch with a column {name!r}, which the first one has not" for name in new]
    if words:
        raise InvalidRows([problem("table", said, allowed="batches with the same columns") for said in words])


def _in_types(batch: pa.RecordBatch, schema: pa.Schema, extra: Sequence[str]) -> pa.RecordBatch:
    columns, wanted = [], [*schema, *(batch.schema.field(name) for name in extra)]
    if not wanted:
        return batch.select([])
    for kind in wanted:
        try:
            columns.append(batch.column(kind.name).cast(kind.type))
        except (*UNFIT, LookupError) as error:
            raise InvalidRows([not_stored(kind.name, first_line(error))]) from None
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(wanted).with_metadata(schema.metadata))


def _check_storable(schema: pa.Schema) -> None:
    """Raise InvalidRows for columns that no Parquet file can hold."""
    # All at once first: that is all there is to do for a table that can be stored.
    if _unstorable(schema):
        found = [(name, _unstorable(pa.schema([schema.field(name)]))) for name in schema.names]
        raise InvalidRows([not_stored(name, why) for name, why in found if why])


def _unstorable(schema: pa.Schema) -> str:
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), schema.remove_metadata()).close()
    except pa.ArrowException as error:
        return first_line(error)
    return ""


def _readable_by_pandas(schema: pa.Schema) -> pa.Schema:
    """Return a schema without types that pandas writes down but cannot read, or notes of something else."""
    metadata: dict[Any, Any] = dict(schema.metadata or {})
    if _PANDAS not in metadata:
        return schema
    try:
        said = json.loads(metadata[_PANDAS])
        levels = [
            level for level in said["index_columns"] if not isinstance(level, str) or level in schema.names
        ]
        said |= {"index_columns": levels, "columns": [_with_known_type(column) for column in said["columns"]]}
        metadata[_PANDAS] = json.dumps(said).encode()
    except (ValueError, LookupError, TypeError):
        del metadata[_PANDAS]
    return schema.with_metadata(metadata)


def _with_known_type(column: dict[str, Any]) -> dict[str, Any]:
    import pandas as pd

    try:
        pd.api.types.pandas_dtype(column["numpy_type"])
    except (TypeError, ValueError, NotImplementedError):
        return {**column, "numpy_type": "object"}
    return column
