"""Arrow batches as a table: which columns are kept, in which types, and how many rows at a time."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from speechframe.batch.table_input import BATCH_ROWS, CARRIED_ROWS, TableInput, check_names

__all__ = ["fitted", "from_reader", "is_text", "read_batches", "without_audio"]

log = logging.getLogger(__name__)


def from_reader(reader: pa.RecordBatchReader, carry: frozenset[str] = frozenset()) -> TableInput:
    """Return what an Arrow reader yields as a table."""
    return read_batches(reader, reader.schema, carry)


def read_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, carry: frozenset[str]) -> TableInput:
    """Return Arrow batches of one schema as a table."""
    kept = without_audio(schema, carry)
    extra = [f.name for f in schema if f.name in carry]
    left_out = [name for name in schema.names if name not in {*kept.names, *extra}]
    return TableInput(kept, _select(batches, kept, extra), carried=dict.fromkeys(extra), left_out=left_out)


def _select(
    batches: Iterable[pa.RecordBatch], kept: pa.Schema, carried: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    extra = [name for name in carried if name not in kept.names]
    size = CARRIED_ROWS if carried else BATCH_ROWS
    for batch in batches:
        rows = batch if batch.schema == kept else _in_shape(batch, kept, extra)
        for start in range(0, rows.num_rows, size):
            yield rows.slice(start, size)


def _in_shape(batch: pa.RecordBatch, kept: pa.Schema, extra: Sequence[str]) -> pa.RecordBatch:
    wanted = pa.schema([*kept, *(batch.schema.field(name) for name in extra)]).with_metadata(kept.metadata)
    return batch.select(wanted.names).cast(wanted)


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
    left_out = [f.name for f in schema if _holds_bytes(f.type)]
    if left_out:
        log.info("columns that hold bytes are not copied into the run folder: %s", ", ".join(left_out))
    left_out += [f.name for f in schema if f.name in carry and not is_text(f.type)]
    kept = [f.with_type(_plain_type(f.type)) for f in schema if f.name not in left_out]
    return pa.schema(kept).with_metadata(schema.metadata)


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_bytes(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    # Views (what polars hands over) cannot be filtered or taken by every Arrow version: plain types can.
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        fields = (kind.field(i) for i in range(kind.num_fields))
        return pa.struct([f.with_type(_plain_type(f.type)) for f in fields])
    return kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
