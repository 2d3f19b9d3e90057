"""Arrow batches as a table: which columns are kept, in which types, and how many rows at a time."""

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.errors import InvalidRows
from speechframe.old_batch.table_input import (
    BATCH_ROWS,
    CARRIED_ROWS,
    TableInput,
    check_names,
    first_line,
    not_stored,
    problem,
)

__all__ = ["fitted", "from_reader", "holds_bytes", "is_text", "read_batches", "unstorable", "without_audio"]

log = logging.getLogger(__name__)

_PANDAS = b"pandas"
"""Where Arrow keeps what a frame was like."""


def from_reader(reader: pa.RecordBatchReader, carry: frozenset[str] = frozenset()) -> TableInput:
    """Return what an Arrow reader yields as a table."""
    return read_batches(reader, reader.schema, carry)


def read_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, carry: frozenset[str]) -> TableInput:
    """Return Arrow batches of one schema as a table."""
    kept = without_audio(schema, carry)
    _check_storable(kept)
    extra = [f.name for f in schema if f.name in carry]
    left_out = [name for name in schema.names if name not in {*kept.names, *extra}]
    batches = _select(batches, kept, extra, known=frozenset(schema.names))
    return TableInput(kept, batches, carried=dict.fromkeys(extra), left_out=left_out)


def _select(
    batches: Iterable[pa.RecordBatch], kept: pa.Schema, carried: Sequence[str], *, known: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    extra = [name for name in carried if name not in kept.names]
    size = CARRIED_ROWS if carried else BATCH_ROWS
    checked: list[str] = []
    for batch in batches:
        rows = batch
        if batch.schema != kept:
            if (names := batch.schema.names) != checked:
                _check_same(names, {*kept.names, *extra}, known)
                checked = names
            rows = _in_shape(batch, kept, extra)
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size)


def _check_same(names: Sequence[str], wanted: Collection[str], known: Collection[str]) -> None:
    """Raise InvalidRows when a batch has not the columns of the table: a generator may yield anything."""
    check_names(names)
    missing = sorted(set(wanted).difference(names))
    words = [f"has a batch without the column {name!r}, which the first one has" for name in missing]
    new = sorted(set(names).difference(known))
    words += [f"has a batch with a column {name!r}, which the first one has not" for name in new]
    if words:
        raise InvalidRows([problem("table", said, allowed="batches with the same columns") for said in words])


def _in_shape(batch: pa.RecordBatch, kept: pa.Schema, extra: Sequence[str]) -> pa.RecordBatch:
    wanted = pa.schema([*kept, *(batch.schema.field(name) for name in extra)]).with_metadata(kept.metadata)
    columns = []
    for kind in wanted:
        try:
            columns.append(_in_type(batch.column(kind.name), kind.type))
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise InvalidRows([not_stored(kind.name, first_line(error))]) from None
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema; those it does not have are null."""
    columns = [
        batch.column(f.name).cast(f.type)
        if f.name in batch.schema.names
        else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def without_audio(schema: pa.Schema, carry: frozenset[str] = frozenset()) -> pa.Schema:
    """Return the columns of a schema that a run folder keeps: all but those that hold bytes."""
    # A run folder keeps no second copy of audio that the caller already has.
    check_names(schema.names)
    left_out = [f.name for f in schema if holds_bytes(f.type)]
    if left_out:
        log.info("columns that hold bytes are not copied into the run folder: %s", ", ".join(left_out))
    left_out += [f.name for f in schema if f.name in carry and not is_text(f.type)]
    kept = [f.with_type(_plain_type(f.type)) for f in schema if f.name not in left_out]
    return _readable_by_pandas(pa.schema(kept).with_metadata(schema.metadata))


def _readable_by_pandas(schema: pa.Schema) -> pa.Schema:
    """Return a schema without what pandas could not go by when a frame is made of the run.

    That is an index in columns that are left out, and types that pandas writes down but cannot read.
    """
    metadata = dict(schema.metadata or {})
    if _PANDAS not in metadata:
        return schema
    try:
        said = json.loads(metadata[_PANDAS])
        levels, columns = list(said["index_columns"]), [_with_known_type(c) for c in said["columns"]]
    except (ValueError, LookupError, TypeError):
        # Nothing that pandas or Arrow wrote.
        del metadata[_PANDAS]
        return schema.with_metadata(metadata)
    index = [level for level in levels if not isinstance(level, str) or level in schema.names]
    if index != levels or columns != said["columns"]:
        metadata[_PANDAS] = json.dumps({**said, "index_columns": index, "columns": columns}).encode()
    return schema.with_metadata(metadata)


def _with_known_type(column: dict[str, Any]) -> dict[str, Any]:
    import pandas as pd

    name = column["numpy_type"]
    try:
        pd.api.types.pandas_dtype(name)
    except (TypeError, ValueError, NotImplementedError):
        return {**column, "numpy_type": "object"}
    return column


def holds_bytes(kind: pa.DataType) -> bool:
    """Return whether there are bytes in a column of this type: a run folder keeps no copy of such."""
    if pa.types.is_struct(kind):
        return any(holds_bytes(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    # Views (what polars hands over) cannot be filtered or taken by every Arrow version: plain types can.
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_run_end_encoded(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_dictionary(kind):
        value: Any = _plain_type(kind.value_type)
        # Of anything but text a file gives back the values.
        return pa.dictionary(kind.index_type, value, kind.ordered) if is_text(value) else value
    if pa.types.is_fixed_size_list(kind):
        fixed: pa.DataType = pa.list_(_plain_type(kind.value_type), kind.list_size)
        return fixed
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type), kind.keys_sorted)
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return pa.struct([f.with_type(_plain_type(f.type)) for f in fields])
    return kind


def _in_type(column: "pa.Array[Any]", kind: pa.DataType) -> "pa.Array[Any]":
    """Return a column as its plain type."""
    if column.type == kind:
        return column
    # Arrow has no cast of these, and takes the wrong places from a list view.
    return pa.array(column.to_pylist(), kind) if _is_indirect(column.type) else column.cast(kind)


def _is_indirect(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return pa.types.is_nested(kind.value_type)
    is_view = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    if is_view or pa.types.is_run_end_encoded(kind):
        return True
    return any(_is_indirect(kind.field(i).type) for i in range(kind.num_fields))


def unstorable(schema: pa.Schema) -> str:
    """Return why no Parquet file can hold such columns, nothing where one can."""
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), schema.remove_metadata()).close()
    except pa.ArrowException as error:
        return first_line(error)
    return ""


def _check_storable(schema: pa.Schema) -> None:
    """Raise InvalidRows for columns that the run folder cannot hold."""
    # All at once first: that is all there is to do for a table that can be stored.
    if unstorable(schema):
        found = [(name, unstorable(pa.schema([schema.field(name)]))) for name in schema.names]
        raise InvalidRows([not_stored(name, why) for name, why in found if why])


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
