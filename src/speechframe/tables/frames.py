"""Frames, datasets and Python's own values as tables, in which every value is what it was."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa

from speechframe.errors import InvalidRows, SpeechframeError
from speechframe.tables.arrow import (
    BATCH_ROWS,
    CARRIED_ROWS,
    HALF,
    UNFIT,
    Table,
    check_names,
    first_line,
    is_whole,
    not_stored,
)
from speechframe.tables.columns import is_missing, is_per_row, problem

Columns = dict[str, list[Any]]
Chunk = tuple[int, list[Any]]
"""Some values of a source, behind how many others they came."""

_EXACT = frozenset({str, int, float, bool})
"""What Arrow keeps as it is where a column holds nothing else."""

_WAY_OUT = "one kind of value a column; as text: {0}.map(str), or {0}.map(json.dumps) for dicts and lists"


def from_pandas(frame: Any, carry: frozenset[str]) -> Table:
    """Return a pandas frame as a table; its index comes back with it, and is its row ids."""
    import pandas as pd

    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    check_names(list(frame.columns))
    carried: dict[str, Iterator[Any] | None] = {}
    for name in frame.columns:
        column = frame[name]
        if name in carry:
            values = list(column)
            carried[name] = iter(values)
            paths = _as_paths(values)
            frame = frame.drop(columns=name) if paths is None else frame.assign(**{name: paths})
        elif column.dtype == object:
            array_of(name, list(column))
    try:
        read = pa.Table.from_pandas(frame)
    except UNFIT as error:
        why = [(name, _why_not(frame[[name]])) for name in frame.columns]
        problems = [not_stored(name, words) for name, words in why if words]
        raise InvalidRows(problems or [_bad_index(f"cannot be stored: {first_line(error)}")]) from None
    index = frame.index
    is_counted = isinstance(index, pd.RangeIndex) and (index.start, index.step) == (0, 1)
    ids = None if is_counted else [str(value) for value in index]
    missing = [] if is_counted else [row for row, value in enumerate(index) if is_missing(value)]
    if missing:
        raise InvalidRows([_bad_index(f"is missing in row {missing[0]}")])
    # Of a frame without columns Arrow makes a table without rows.
    batches = read.to_batches() if read.num_columns else iter([_rows_without_columns(len(frame))])
    return Table(read.schema, batches, ids, carried, row_count=len(frame))


def _bad_index(words: str) -> dict[str, Any]:
    allowed = "texts, numbers or times; reset_index(drop=True) leaves it out"
    return problem("id", f"the index {words}", allowed=allowed)


def _why_not(column: Any) -> str:
    try:
        pa.Table.from_pandas(column, preserve_index=False)
    except UNFIT as error:
        return first_line(error)
    return ""


def from_arrow(table: Any) -> Table:
    """Return what has an Arrow stream as a table: of pyarrow, polars, DuckDB and others."""
    schema = getattr(table, "schema", None)
    kinds = {name: str(kind) for name, kind in schema.items()} if isinstance(schema, Mapping) else {}
    # Of Python's objects polars hands over the bytes of their addresses, and Arrow knows no such integers.
    odd = [name for name, kind in kinds.items() if kind in {"Object", "Int128", "UInt128"}]
    if odd:
        raise InvalidRows([not_stored(name, f"it is {kinds[name]}") for name in odd])
    try:
        reader = pa.RecordBatchReader.from_stream(table)
    except pa.ArrowException as error:
        raise InvalidRows([problem("table", f"cannot be read by Arrow: {first_line(error)}")]) from None
    counts = (getattr(table, name, None) for name in ("num_rows", "height"))
    return Table(reader.schema, reader, row_count=next((n for n in counts if isinstance(n, int)), None))


def from_dataset(dataset: Any, carry: frozenset[str]) -> Table:
    """Return a dataset of Hugging Face, streamed or not, as a table."""
    features = getattr(dataset, "features", None)
    size = CARRIED_ROWS if carry.intersection(features or ()) else BATCH_ROWS
    schema = None if features is None else features.arrow_schema
    return from_batches(dataset.with_format("arrow").iter(size), schema)


def from_batches(batches: Iterable[Any], schema: pa.Schema | None = None) -> Table:
    """Return Arrow batches or tables as one table; its columns are those of the first."""
    source = iter(batches)
    _, first = next(chunks_of(source, 1), (0, []))
    if first:
        schema = first[0].schema
    return Table(pa.schema([]) if schema is None else schema, _closing(chain(first, source), source))


def _closing(items: Iterable[Any], source: Any) -> Iterator[Any]:
    try:
        yield from items
    finally:
        if hasattr(source, "close"):
            source.close()


def from_columns(columns: Mapping[Any, Any], carry: frozenset[str]) -> Table:
    """Return a dict of columns as a table."""
    lists = {}
    for name, values in columns.items():
        if not is_per_row(values):
            words = f"column {name!r} is a {type(values).__name__}"
            raise InvalidRows([problem("table", words, allowed="a list of values for each column")])
        lists[str(name)] = values.tolist() if hasattr(values, "tolist") else list(values)
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        words = ", ".join(f"{name!r} has {length:,}" for name, length in lengths.items())
        raise InvalidRows([problem("table", f"has columns of different lengths: {words}")])
    count = max(lengths.values(), default=0)
    return from_chunks(iter([(0, [None] * count)]), lambda _: lists, carry, row_count=count)


def from_values(
    values: Iterable[Any], plain: str, carry: frozenset[str], notes: list[str] | None = None
) -> Table:
    """Return a list or generator as a table: of texts or clips, of dicts (one a row) or of batches."""
    row_count = None
    if isinstance(values, Sequence):
        row_count = len(values)
        sample, chunks = values[:1], iter([(0, list(values))])
    else:
        source = iter(values)
        _, sample = next(chunks_of(source, 1), (0, []))
        rest = chain(sample, source)
        if sample and isinstance(sample[0], (pa.RecordBatch, pa.Table)):
            return from_batches(_closing(rest, source))
        chunks = chunks_of(_closing(rest, source), CARRIED_ROWS if carry else BATCH_ROWS)
    if sample and isinstance(sample[0], Mapping) and not _is_clip(sample[0], plain, carry):
        return from_chunks(chunks, columns_of_rows, carry, row_count=row_count)
    return from_chunks(chunks, lambda chunk: {plain: chunk}, carry, row_count=row_count, notes=notes)


def _is_clip(value: Mapping[Any, Any], plain: str, carry: frozenset[str]) -> bool:
    # A clip as the datasets library gives it is a dict too, and no row of a table.
    return plain in carry and plain not in value and bool({"bytes", "array"} & value.keys())


def chunks_of(values: Iterable[Any], size: int) -> Iterator[Chunk]:
    """Yield the values of a generator as lists, each with how many came before; says where one breaks off."""
    source, count = iter(values), 0
    while True:
        chunk: list[Any] = []
        try:
            chunk.extend(islice(source, size))
        except SpeechframeError:
            raise
        except Exception as error:
            row = count + len(chunk)
            words = f"its source raised {type(error).__name__} at row {row:,}: {first_line(error)}"
            raise InvalidRows([problem("table", words, row=row, row_id=str(row))]) from error
        if not chunk:
            return
        yield count, chunk
        count += len(chunk)


def columns_of_rows(chunk: Sequence[Any]) -> Columns:
    """Return the columns of rows that are dicts; what a row does not have is None."""
    try:
        names = dict.fromkeys(chain.from_iterable(chunk))
        return {str(name): [row.get(name) for row in chunk] for name in names}
    except (AttributeError, TypeError):
        odd = next(type(row).__name__ for row in chunk if not isinstance(row, Mapping))
        raise InvalidRows([problem("table", f"holds a {odd} among rows that are dicts")]) from None


def from_chunks(
    chunks: Iterator[Chunk],
    columns_of: Callable[[list[Any]], Columns],
    carry: frozenset[str] = frozenset(),
    *,
    schema: pa.Schema | None = None,
    row_count: int | None = None,
    notes: list[str] | None = None,
    name: str = "its source",
) -> Table:
    """Return lists of Python values as a table, read as far as it is asked for.

    Parameters
    ----------
    chunks
        Some rows at a time.
    columns_of
        Makes columns of them.
    carry
        Columns whose values are handed over as they are; where all are paths they are stored, too.
    schema
        The columns and their types; by default those of the first chunk.
    row_count, notes, name
        See :class:`Table`.
    """
    start, chunk = next(chunks, (0, []))
    columns = columns_of(chunk)
    if schema is None:
        schema = schema_of(columns, carry, start)
    queues: dict[str, deque[Any]] = {column: deque() for column in carry.intersection(columns)}

    def batches() -> Iterator[pa.RecordBatch]:
        for before, some in chain([(start, columns)], ((at, columns_of(rows)) for at, rows in chunks)):
            for column, queue in queues.items():
                queue.extend(some.get(column, [None] * len(next(iter(some.values())))))
            yield _batch(some, schema, before, carry)

    carried: dict[str, Iterator[Any] | None] = {column: _drained(queue) for column, queue in queues.items()}
    notes = [] if notes is None else notes
    return Table(schema, batches(), None, carried, notes=notes, row_count=row_count, name=name)


def _drained(queue: deque[Any]) -> Iterator[Any]:
    while queue:
        yield queue.popleft()


def schema_of(columns: Columns, carry: frozenset[str] = frozenset(), start: int = 0) -> pa.Schema:
    """Return the types of columns of Python values."""
    kinds = []
    for name, values in columns.items():
        kept = _as_paths(values) if name in carry else values
        if kept is not None:
            kind = array_of(name, kept, None, start).type
            # Of a column with nothing in it so far, texts are the likeliest.
            kinds.append((name, pa.string() if pa.types.is_null(kind) else kind))
    check_names([name for name, _ in kinds])
    return pa.schema(kinds)


def _batch(columns: Columns, schema: pa.Schema, start: int, carry: frozenset[str]) -> pa.RecordBatch:
    count = len(next(iter(columns.values()), ()))
    for new in [name for name in columns if name not in schema.names and name not in carry]:
        row = start + next(place for place, value in enumerate(columns[new]) if value is not None)
        words = f"has a column {new!r} that the rows before have not"
        raise InvalidRows([problem("table", words, allowed="the columns of the first rows", row=row)])
    arrays = []
    for kind in schema:
        values = columns.get(kind.name, [None] * count)
        if kind.name in carry and any(isinstance(value, PathLike) for value in values):
            values = _as_paths(values) or values
        arrays.append(array_of(kind.name, values, kind.type, start))
    if not arrays:
        return _rows_without_columns(count)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _rows_without_columns(count: int) -> pa.RecordBatch:
    return pa.record_batch({"row": pa.nulls(count)}).select([])


def _as_paths(values: Sequence[Any]) -> list[str | None] | None:
    """Return texts and paths as texts; None where other values are among them."""
    if not all(is_missing(value) or isinstance(value, (str, PathLike)) for value in values):
        return None
    return [None if is_missing(value) else str(value) for value in values]


def array_of(
    column: str, values: Sequence[Any], kind: pa.DataType | None = None, start: int = 0
) -> "pa.Array[Any]":
    """Return Python values as an Arrow array that gives the same values back.

    Parameters
    ----------
    column
        What the values are called in an error.
    values
        Some rows of it.
    kind
        The type they are to have, if not their own.
    start
        How many rows came before.

    Raises
    ------
    InvalidRows
        Where Arrow would give back other values; it names the column and the first such row.
    """
    kinds = {type(value) for value in values} - {type(None)}
    try:
        array: pa.Array[Any] = pa.array(values, kind, from_pandas=True)
        if len(kinds) <= 1 and kinds <= _EXACT:
            return array
        back = array.to_pylist()
    except UNFIT as error:
        raise InvalidRows([_odd_value(column, values, error, start)]) from None
    for row, (given, kept) in enumerate(zip(values, back, strict=True), start):
        if not _is_same(given, kept):
            words = f"{_shown(given)} would come back as {_shown(kept)}"
            raise InvalidRows([not_stored(column, words, _WAY_OUT.format(f"table[{column!r}]"), row)])
    return array


def _is_same(given: Any, kept: Any) -> bool:
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, Mapping):
        is_dict = isinstance(kept, dict) and given.keys() == kept.keys()
        return is_dict and all(_is_same(value, kept[name]) for name, value in given.items())
    if isinstance(given, (list, tuple)):
        is_list = isinstance(kept, list) and len(given) == len(kept)
        return is_list and all(map(_is_same, given, kept))
    if is_missing(given) or kept is None:
        return is_missing(given) and is_missing(kept)
    return bool(given == kept)


def _odd_value(column: str, values: Sequence[Any], error: BaseException, start: int) -> dict[str, Any]:
    """Return what keeps values from being one column: the first value of another kind, or what Arrow says."""
    allowed = _WAY_OUT.format(f"table[{column!r}]")
    first: Any = None
    for row, value in enumerate(values, start):
        if isinstance(value, str) and not is_whole(value):
            return not_stored(column, f"it holds {HALF}", "whole characters", row)
        if is_missing(value):
            continue
        first = value if first is None else first
        if type(value) is not type(first):
            words = (
                f"{_shown(value)} is {type(value).__name__}, the values before it are {type(first).__name__}"
            )
            return not_stored(column, words, allowed, row)
    return not_stored(column, first_line(error), allowed)


def _shown(value: Any) -> str:
    words = ascii(value)
    return words if len(words) <= 60 else f"{words[:60]}..."  # noqa: PLR2004 - as much as tells it
