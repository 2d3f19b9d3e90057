"""Open tables of many kinds.

- pandas and polars frames and Series
- objects with an Arrow stream, such as pyarrow tables and readers, and DuckDB relations
- Dask frames, Ray datasets and pyarrow datasets, which are read by partition
- Hugging Face datasets
- lists and generators of texts, dicts, frames or Arrow batches
- dicts of columns
- paths of CSV, TSV, JSONL, Parquet, XLSX, text, PO, XLIFF, SRT and WebVTT files
- paths and addresses of folders of Parquet files
- runs, and lists of runs

Values from CSV and XLSX files stay texts, so that the id ``0007`` does not become 7. A generator is read only
as far as its rows are needed.
"""

import inspect
import io
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from os import PathLike
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from speechframe.errors import InvalidRows, SpeechframeError, refuse
from speechframe.spec.check import shorten_value
from speechframe.tables.files import JSON_SUFFIXES, find_table_file, read_contents
from speechframe.tables.parquet_folder import is_parquet_folder, open_parquet_folder
from speechframe.tables.partitions import compute_partitions, is_dask_frame, open_dataset
from speechframe.tables.table import (
    ARROW_TYPE_ERRORS,
    BATCH_ROWS,
    CARRIED_ROWS,
    SURROGATE_WORDS,
    Table,
    check_names,
    convert_to_list,
    drain_queue,
    get_first_line,
    has_columns,
    is_missing,
    is_per_row,
    make_read_error,
    make_storage_problem,
)

_EXACT_TYPES = frozenset({str, int, float, bool})
"""Types that Arrow stores exactly: if all values of a column have one of these types, none changes."""

_CONVERSION_METHODS = ("to_pandas", "toPandas", "compute", "collect", "to_reader", "to_table", "to_dataframe")
"""Methods of other libraries that convert their tables to tables that can be read here. Used for advice."""


@runtime_checkable
class AsTable(Protocol):
    """An object whose rows can be used as a table, such as a run or a selection of its rows."""

    def as_batches(
        self, named: Iterable[str] = (), batch_rows: int | None = None
    ) -> tuple[pa.Schema, Iterator[tuple[pa.RecordBatch, list[str]]]]:
        """Return the columns, with those in `named` included, and batches with the id of each row."""


def open_table(
    source: Any,
    *,
    id: str | None = None,
    plain: str = "text",
    carry: frozenset[str] = frozenset(),
    named: Iterable[str] = (),
    sep: str | None = None,
    quoting: str | None = None,
) -> Table:
    """Open `source` and return it as a table that can be read once.

    Parameters
    ----------
    source
        The caller's table, of one of the kinds that this module lists.
    id
        The column of row ids. By default the ids are a pandas index, the ids of a run, or numbers.
    plain
        The name of the column for the values of a plain list. A Series gets this name, too, if its own name
        is not in `named`.
    carry, named
        Names of columns whose values are passed on unchanged, even objects that Arrow cannot store, and names
        of columns that arguments use.
    sep, quoting
        Separator and quoting of a CSV or TSV file, or None to detect them.

    Raises
    ------
    InvalidRows
        If `source` is not a table, or cannot be read.

    Examples
    --------
    >>> table = open_table(["Good morning.", "Good night."])
    >>> [(batch.to_pylist(), ids) for batch, ids in table.batches()]
    [([{'text': 'Good morning.'}, {'text': 'Good night.'}], ['0', '1'])]
    """
    named = {*named, *carry}
    if not isinstance(source, (str, PathLike)):
        return _open_object(source, partial(Table, id_column=id, carry=carry), plain, carry, named)
    notes: list[str] = []
    if is_parquet_folder(source):
        columns, batches = open_parquet_folder(source, notes)
        return Table(batches, columns, id_column=id, carry=carry, notes=notes, name=str(source))
    path = find_table_file(source)
    make_table, schema = partial(Table, id_column=id, carry=carry, notes=notes, name=path.name), None
    try:
        if path.suffix.lower() in JSON_SUFFIXES:
            # JSON is read twice. The first pass finds all columns and types, because a late row may add some.
            schema = _infer_schema(read_contents(path, []), plain, carry)
        source = read_contents(path, notes, sep=sep, quoting=quoting)
    except SpeechframeError:
        raise
    except Exception as error:
        raise make_read_error(path.name, error) from error
    return _open_object(source, make_table, plain, carry, named, schema)


def _open_object(
    source: Any,
    make_table: Callable[..., Table],
    plain: str,
    carry: frozenset[str],
    named: set[str],
    schema: pa.Schema | None = None,
) -> Table:
    source = _convert_series(source, plain, named)
    library, kind = _get_type_name(source)
    runs = [source] if isinstance(source, AsTable) else source
    if isinstance(runs, Sequence) and runs and all(isinstance(one, AsTable) for one in runs):
        return _open_runs(runs, make_table, carry, named)
    if (library, kind) == ("pandas", "DataFrame"):
        return _open_pandas(source, make_table, carry)
    if is_dask_frame(source):
        return _open_frames(compute_partitions(source), make_table, plain, carry, named)
    if (dataset := open_dataset(source, has_clips=bool(carry))) is not None:
        return make_table(dataset[1], dataset[0])
    if hasattr(source, "__arrow_c_stream__"):
        is_polars = (library, kind) == ("polars", "DataFrame")
        return _open_arrow(_convert_polars(source) if is_polars else source, make_table)
    if isinstance(source, Mapping):
        chunks: Iterable[Any] = [_convert_columns(source)]
    elif isinstance(source, pa.RecordBatch):
        chunks = [source]
    else:
        _check_iterable(source)
        values = iter(source)
        head = _read_first(values, lambda _: True)
        if not isinstance(source, Sequence):
            source = chain(head, values)
        if head and _is_frame(head[0]):
            return _open_frames(source, make_table, plain, carry, named)
        chunks = _read_chunks(source, plain, carry)
    carried: dict[str, Iterator[Any]] = {}
    return make_table(_convert_chunks(chunks, carry, carried, schema), carried=carried)


def _convert_series(source: Any, plain: str, named: set[str]) -> Any:
    """Convert a Series or Arrow array to a table of one column. Return other sources unchanged."""
    if _get_type_name(source) in {("pandas", "Series"), ("polars", "Series"), ("dask", "Series")}:
        return source.to_frame(source.name if source.name in named else plain)
    if isinstance(source, (pa.Array, pa.ChunkedArray)):
        return pa.Table.from_arrays([source], [plain])
    return source


def _drop_row_numbers(frame: Any) -> Any:
    """Return a frame. If it is a pandas frame, leave a nameless index of integers out.

    Any other index becomes one that Arrow stores as a column.
    """
    if _get_type_name(frame) != ("pandas", "DataFrame"):
        return frame
    if frame.index.name is None and frame.index.dtype.kind in "iu":
        return frame.reset_index(drop=True)
    import pandas as pd

    if isinstance(frame.index, pd.RangeIndex):
        # Arrow would store a range in the metadata, so only frames with another index would have its column.
        return frame.set_axis(pd.Index(frame.index.to_numpy(), name=frame.index.name))
    return frame


def _read_first(values: Iterator[Any], is_enough: Callable[[Any], bool]) -> list[Any]:
    """Return the first values of an iterator, up to the first value that `is_enough` accepts."""
    found = []
    try:
        for value in values:
            found.append(value)
            if is_enough(value):
                break
    except SpeechframeError:
        raise
    except Exception as error:
        raise make_read_error("its source", error) from error
    return found


def _get_type_name(value: Any) -> tuple[str, str]:
    """Return the library and the name of a value's type."""
    return type(value).__module__.partition(".")[0], type(value).__name__


def _is_frame(value: Any) -> bool:
    """Return whether a value is a frame or dataset. Arrow tables and batches do not count."""
    is_dataset = _get_type_name(value) in {("datasets", "Dataset"), ("datasets", "IterableDataset")}
    is_batch = isinstance(value, (pa.Table, pa.RecordBatch, pa.ChunkedArray))
    return is_dataset or (hasattr(value, "__arrow_c_stream__") and not is_batch)


def _check_iterable(source: Any) -> None:
    """Raise InvalidRows with advice if a source is not an iterable of rows in order."""
    library, kind = _get_type_name(source)
    is_frame = has_columns(source) and not isinstance(source, Iterator)
    is_odd = is_frame or isinstance(source, (bytes, bytearray, memoryview, set, frozenset, io.IOBase))
    if isinstance(source, Iterable) and not is_odd:
        return
    conversion = next(
        (name for name in _CONVERSION_METHODS if callable(inspect.getattr_static(source, name, None))), None
    )
    allowed = "a DataFrame, Arrow table, list, generator or file path"
    if conversion:
        allowed = f"table.{conversion}(), or a generator of frames if it is larger than memory"
    elif isinstance(source, io.IOBase):
        allowed = "the path of the file"
    elif isinstance(source, (set, frozenset)):
        allowed = "a list, because a set has no order: sorted(table)"
    name = kind if library == "builtins" else f"{library} {kind}"
    raise refuse("table", f"the type {name} is not a table", allowed=allowed)


def _open_frames(
    frames: Iterable[Any],
    make_table: Callable[..., Table],
    plain: str,
    carry: frozenset[str],
    named: set[str],
) -> Table:
    """Return frames with the same columns as one table, which reads one frame at a time.

    The indexes of pandas frames are the row ids. Nameless indexes of integers are left out, and rows are then
    numbered.
    """
    ids: deque[str] = deque()
    queues: dict[str, deque[Any]] = {}
    is_numbered: list[bool] = []

    def read_frames() -> Iterator[pa.Table]:
        for frame in frames:
            if not _is_frame(frame):
                raise refuse("table", f"holds a {_get_type_name(frame)[1]} among its frames")
            part = _open_object(_drop_row_numbers(frame), partial(Table, carry=carry), plain, carry, named)
            is_numbered.append(part.is_numbered)
            if part.is_numbered != is_numbered[0]:
                allowed = "frames of one kind: frame.reset_index(drop=True) leaves an index out"
                raise refuse("table", "has frames with and without an index", allowed=allowed)
            batches = []
            ids.clear()  # the ids of the frames before are used, or a column gives the ids
            for batch, names in part.batches():
                batches.append(batch)
                if not part.is_numbered:
                    ids.extend(names)
                for name, values in part.carried.items():
                    queues.setdefault(name, deque()).extend(islice(values, batch.num_rows))
            yield pa.Table.from_batches(batches)

    tables = read_frames()
    # The first frame with rows determines the types. A column without values in this frame is of texts.
    first = _read_first(tables, lambda table: table.num_rows > 0)
    fields = [
        field.with_type(pa.string()) if column.null_count == first[-1].num_rows > 0 else field
        for field, column in zip(first[-1].schema, first[-1].columns, strict=True)
    ]
    return make_table(
        chain(first, tables),
        pa.schema(fields, metadata=first[-1].schema.metadata),
        ids=None if is_numbered[0] else drain_queue(ids),
        carried={name: drain_queue(queue) for name, queue in queues.items()},
    )


def _open_pandas(frame: Any, make_table: Callable[..., Table], carry: frozenset[str]) -> Table:
    """Return a pandas frame as a table. The index is stored with the table and gives the row ids.

    If the index is the default of pandas (0, 1, 2, ...), rows are numbered.
    """
    import pandas as pd

    frame = frame.set_axis(map(str, frame.columns), axis=1)
    check_names(list(frame.columns))
    carried = {}
    for name, column in frame.items():
        if name in carry:
            paths = _convert_paths(list(column))
            if paths is None:
                carried[name] = iter(list(column))
            frame = frame.drop(columns=name) if paths is None else frame.assign(**{name: paths})
        elif column.dtype == object:
            _convert_to_array(name, list(column))
    allowed = "texts, numbers or times; reset_index(drop=True) leaves it out"
    try:
        converted = pa.Table.from_pandas(frame)
    except ARROW_TYPE_ERRORS as error:
        fault = f"cannot be stored: {'; '.join(map(str, error.args))}"
        raise refuse("table", fault, allowed=f"columns and an index of {allowed}") from None
    index, ids = frame.index, None
    if not isinstance(index, pd.RangeIndex) or (index.start, index.step, index.name) != (0, 1, None):
        for row, value in enumerate(index):
            if is_missing(value):
                raise refuse("id", f"the index is missing in row {row}", allowed=allowed)
        ids = map(str, index)
    # Arrow converts a frame without columns to a table without rows, so make the rows separately.
    source = [converted if converted.num_columns else _make_empty_columns_batch(len(frame))]
    return make_table(source, converted.schema, ids=ids, carried=carried)


def _convert_polars(frame: Any) -> Any:
    # Polars would pass the addresses of objects to Arrow, and Arrow has no integers of 128 bits.
    odd = {name: k for name, k in frame.schema.items() if str(k) in {"Object", "Int128", "UInt128"}}
    if odd:
        raise InvalidRows([make_storage_problem(name, f"it is {kind}") for name, kind in odd.items()])
    # Do not use the frame's Arrow stream, because some Arrow versions cannot filter its newer types.
    return frame.to_arrow()


def _open_arrow(table: Any, make_table: Callable[..., Table]) -> Table:
    try:
        reader = pa.RecordBatchReader.from_stream(table)
    except pa.ArrowException as error:
        raise refuse("table", f"cannot be read by Arrow: {get_first_line(error)}") from None
    return make_table(reader, reader.schema)


def _convert_columns(given: Mapping[Any, Any]) -> dict[str, list[Any]]:
    """Convert the values of a dict of columns to lists. Raise InvalidRows unless they have equal lengths."""
    columns = {}
    for name, values in given.items():
        if not is_per_row(values):
            fault = f"column {name!r} is of the type {type(values).__name__}"
            raise refuse("table", fault, allowed="a list of values for each column")
        columns[str(name)] = convert_to_list(values)
    if len(set(map(len, columns.values()))) > 1:
        lengths = ", ".join(f"{name!r} has {len(values):,}" for name, values in columns.items())
        raise refuse("table", f"has columns of different lengths: {lengths}")
    return columns


def _infer_schema(values: Iterable[Any], plain: str, carry: frozenset[str]) -> pa.Schema:
    schema, count = pa.schema([]), 0
    for chunk in _read_chunks(values, plain, carry):
        for batch in _convert_chunks([chunk], carry, {}, start=count):
            schema = pa.unify_schemas([schema, batch.schema], promote_options="permissive")
            count += batch.num_rows
    return schema


def _open_runs(
    runs: Sequence[AsTable], make_table: Callable[..., Table], carry: frozenset[str], named: set[str]
) -> Table:
    """Return the rows of one run or of several runs, one after the other, as a table.

    A single run keeps its row ids. Rows of several runs are numbered, because two runs may have equal ids.
    """
    found = [run.as_batches(named, CARRIED_ROWS if carry else None) for run in runs]
    try:
        schemas = [schema if len(found) == 1 else schema.remove_metadata() for schema, _ in found]
        schema = pa.unify_schemas(schemas)
    except pa.ArrowException as error:
        fault = f"is several runs whose columns differ: {get_first_line(error)}"
        raise refuse("table", fault) from None
    ids: deque[str] = deque()
    # Concatenated with a batch, the empty table adds the columns that only other runs have, as nulls.
    empty = schema.empty_table()

    def iterate_tables() -> Iterator[pa.Table]:
        for _, batches in found:
            for batch, names in batches:
                if len(runs) == 1:
                    ids.extend(names)
                yield pa.concat_tables([empty, pa.Table.from_batches([batch])], promote_options="default")

    return make_table(iterate_tables(), schema, ids=drain_queue(ids) if len(runs) == 1 else None)


def _read_chunks(values: Iterable[Any], plain: str, carry: frozenset[str]) -> Iterator[Any]:
    """Yield the rows of a list or generator, some rows at a time, as dicts of columns or as Arrow batches.

    Its values are Arrow batches, which are yielded unchanged, dicts with one row each, or texts or clips for
    the column `plain`.
    """
    source = iter(values)
    head = list(islice(source, 1))
    if head and isinstance(head[0], (pa.RecordBatch, pa.Table)):
        yield from chain(head, source)
        return
    is_rows = bool(head) and isinstance(head[0], Mapping)
    if is_rows and plain in carry and plain not in head[0]:
        # The library `datasets` represents a clip as a dict. Such a dict is a value and not a row.
        is_rows = not {"bytes", "array"} & head[0].keys()
    # A list is one chunk, so that all its rows decide the types of its columns.
    size = None if isinstance(values, Sequence) else CARRIED_ROWS if carry else BATCH_ROWS
    source = chain(head, source)
    while True:
        chunk: list[Any] = []
        try:
            chunk.extend(islice(source, size))
        finally:  # yield the rows before an error, too, because the message contains the number of rows read
            if chunk or not head:
                yield _convert_rows(chunk) if is_rows else {plain: chunk}
        if not chunk or size is None:
            return


def _convert_rows(chunk: Sequence[Any]) -> dict[str, list[Any]]:
    odd_type = next((type(row).__name__ for row in chunk if not isinstance(row, Mapping)), None)
    if odd_type is not None:
        raise refuse("table", f"holds a {odd_type} among rows that are dicts")
    names = dict.fromkeys(chain.from_iterable(chunk))
    return {str(name): [row.get(name) for row in chunk] for name in names}


def _convert_chunks(
    chunks: Iterable[Any],
    carry: frozenset[str],
    carried: dict[str, Iterator[Any]],
    schema: pa.Schema | None = None,
    start: int = 0,  # number of the first row, for messages
) -> Iterator[Any]:
    """Convert dicts of columns to Arrow batches, and yield them. Yield Arrow batches unchanged.

    If the first values of a column in `carry` are paths, the batches contain the column. Otherwise an
    iterator over its values is added to `carried` before the first batch is yielded. `schema` gives the
    types, or else the first rows do.
    """
    kinds = None if schema is None else {column.name: column.type for column in schema}
    queues: dict[str, deque[Any]] = {}
    for columns in chunks:
        if not isinstance(columns, dict):
            yield columns
            continue
        count = len(next(iter(columns.values()), ()))
        arrays: list[pa.Array[Any]] = []
        for name in columns if kinds is None else {**kinds, **queues, **columns}:
            values = columns.get(name, [None] * count)
            if name in carry and name not in queues:
                paths = _convert_paths(values)
                if paths is None and kinds is None:
                    queues[name] = deque()
                    carried[name] = drain_queue(queues[name])
                values = paths or values
            if name in queues:
                queues[name].extend(values)
            elif kinds is not None and name not in kinds:
                fault = f"has a column {name!r} that the rows before have not"
                raise refuse("table", fault, allowed="the columns of the first rows")
            else:
                arrays.append(_convert_to_array(name, values, None if kinds is None else kinds[name], start))
        if kinds is None:
            names = [name for name in columns if name not in queues]
            # If all first values of a column are missing, its type is text, which is the most likely type.
            arrays = [array.cast(pa.string()) if pa.types.is_null(array.type) else array for array in arrays]
            kinds = {name: array.type for name, array in zip(names, arrays, strict=True)}
        yield pa.RecordBatch.from_arrays(arrays, list(kinds)) if arrays else _make_empty_columns_batch(count)
        start += count


def _make_empty_columns_batch(count: int) -> pa.RecordBatch:
    """Return a batch with `count` rows and no columns."""
    return pa.record_batch({"row": pa.nulls(count)}).select([])


def _convert_paths(values: Sequence[Any]) -> list[str | None] | None:
    """Convert texts and paths to texts. Return None if `values` contain values of other types."""
    if not all(is_missing(value) or isinstance(value, (str, PathLike)) for value in values):
        return None
    return [None if is_missing(value) else str(value) for value in values]


def _convert_to_array(
    column: str, values: Sequence[Any], kind: pa.DataType | None = None, start: int = 0
) -> "pa.Array[Any]":
    """Convert values to an Arrow array that returns the same values.

    `start` is the number of the first row, for messages. Raise InvalidRows with the column and the first row
    if the array would return other values.
    """
    types = set(map(type, values)) - {type(None)}
    way_out = (
        f"one kind of value a column; as text: table[{column!r}].map(str), or .map(json.dumps) for dicts"
    )
    try:
        array: pa.Array[Any] = pa.array(values, kind, from_pandas=True)
        if len(types) <= 1 and types <= _EXACT_TYPES:
            return array
        stored_values = array.to_pylist()
    except ARROW_TYPE_ERRORS as error:
        row, fault = _find_odd_value(values)
        row_number = None if row is None else start + row
        # The message of Arrow contains the whole value, perhaps a frame. Give only the type of the value.
        if unknown := re.search(r"with type (\S+): did not recognize", str(error)):
            fault = fault or f"it holds values of the type {unknown[1]}"
        raise InvalidRows(
            [make_storage_problem(column, fault or get_first_line(error), way_out, row_number)]
        ) from None
    for row, (given, kept) in enumerate(zip(values, stored_values, strict=True), start):
        if not _is_same(given, kept):
            fault = f"{shorten_value(given)} would come back as {shorten_value(kept)}"
            raise InvalidRows([make_storage_problem(column, fault, way_out, row)])
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


def _find_odd_value(values: Sequence[Any]) -> tuple[int | None, str]:
    """Return the position of the first value that Arrow cannot store, and the fault in words.

    Such a value contains a lone surrogate, or has another type than the values before. Without such a value,
    return None and an empty text.
    """
    first: Any = None
    for row, value in enumerate(values):
        if isinstance(value, str) and value != value.encode("utf-8", "ignore").decode():
            return row, f"it holds {SURROGATE_WORDS}"
        if is_missing(value):
            continue
        first = value if first is None else first
        if type(value) is not type(first):
            kinds = f"{type(value).__name__}, the values before it are {type(first).__name__}"
            return row, f"{shorten_value(value)} is {kinds}"
    return None, ""
