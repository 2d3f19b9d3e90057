"""The table that comes in, whatever it is, as Arrow batches with a row id each.

Taken: pandas and polars frames, anything with the Arrow C stream interface
(pyarrow tables and readers, DuckDB relations), Hugging Face datasets, lists of
strings or of dicts, runs and lists of runs, and paths to CSV, TSV, JSONL,
Parquet and XLSX files or to the folder of a run. CSV and XLSX values stay
strings, so that an id such as ``0007`` stays what it is.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.store import RunFolder
from speechframe.store.manifest import FILE_NAME as RUN_FILE

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

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
    takers
        Argument to who takes its values in.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    row_ids: Sequence[str] | None = None
    is_run: bool = False
    odd_values: dict[str, dict[int, str]] = field(default_factory=dict)
    carried: dict[str, Sequence[Any] | None] = field(default_factory=dict)
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


def open_table(
    table: Any, *, plain: str = TEXT_COLUMN, carry: frozenset[str] = frozenset(), named: Iterable[str] = ()
) -> TableInput:
    """Return `table` as batches; see the module for what is taken.

    Parameters
    ----------
    table
        What the caller handed in.
    plain
        The name a plain list gets as a column.
    carry
        Columns to hand over whatever they hold, where there are such.
    named
        Columns that arguments name: of a run, what it made itself is left out otherwise.

    Raises
    ------
    InvalidRows
        When it is no table, a file cannot be read, or a column cannot be stored.
    """
    if isinstance(table, (str, PathLike)):
        return _from_path(Path(table), carry, named)
    if isinstance(table, HasRows):
        return _from_runs([table], carry, named)
    kind = type(table).__module__.partition(".")[0]
    if kind == "datasets" and isinstance(table, Mapping):
        splits = ", ".join(map(str, table))
        raise InvalidRows(
            [problem("table", "is several datasets, not one", allowed=f"one split of {splits}")]
        )
    if kind == "pandas":
        return from_pandas(table, plain, carry)
    if kind == "datasets" and hasattr(table, "with_format"):
        return _from_huggingface(table, carry)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if hasattr(table, "__arrow_c_stream__"):
        return from_reader(pa.RecordBatchReader.from_stream(table), carry)
    if isinstance(table, Mapping):
        return from_pandas(_frame(dict(table)), plain, carry)
    if isinstance(table, Iterable):
        return from_iterable(table, plain, carry, named)
    raise InvalidRows(
        [
            problem(
                "table",
                f"a {type(table).__name__} is no table",
                allowed="a DataFrame, Arrow table, list or file path",
            )
        ]
    )


def _frame(data: Any, dtype: Any = None) -> "pd.DataFrame":
    import pandas as pd

    try:
        return pd.DataFrame(data, dtype=dtype)
    except (ValueError, UnicodeEncodeError) as error:
        raise InvalidRows([problem("table", f"cannot be read as a table: {_first_line(error)}")]) from None


def from_iterable(
    table: Iterable[Any], plain: str, carry: frozenset[str], named: Iterable[str]
) -> TableInput:
    """Return runs, rows, clips, texts or Arrow batches in a list or generator as a table."""
    values = list(table) if isinstance(table, Sequence) else iter(table)
    if isinstance(values, list):
        if values and all(isinstance(v, HasRows) for v in values):
            return _from_runs(values, carry, named)
        if values and all(isinstance(v, Mapping) for v in values) and not _are_clips(values, plain, carry):
            return from_pandas(_frame(values), plain, carry)
        return from_pandas(_frame({plain: values}, dtype=object), plain, carry)
    first = next(values, None)
    if isinstance(first, (pa.RecordBatch, pa.Table)):
        return read_batches(_chain(first, values), first.schema, carry)
    rows = ([] if first is None else [first]) + list(values)
    return from_iterable(rows, plain, carry, named)


def _are_clips(values: Sequence[Mapping[Any, Any]], plain: str, carry: frozenset[str]) -> bool:
    # Clips as the datasets library gives them are mappings too, and no rows of a table.
    return plain in carry and all(
        plain not in value and {"bytes", "array"} & value.keys() for value in values
    )


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(f.name).cast(f.type)
        if f.name in batch.schema.names
        else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _chain(first: Any, rest: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for item in (first, *rest) if isinstance(rest, Sequence) else _prepend(first, rest):
        yield from item.to_batches(BATCH_ROWS) if isinstance(item, pa.Table) else (item,)


def _prepend(first: Any, rest: Iterable[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def from_reader(reader: pa.RecordBatchReader, carry: frozenset[str] = frozenset()) -> TableInput:
    """Return what an Arrow reader yields as a table."""
    return read_batches(reader, reader.schema, carry)


def read_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, carry: frozenset[str]) -> TableInput:
    """Return Arrow batches of one schema as a table."""
    kept = without_audio(schema, carry)
    extra = [f.name for f in schema if f.name in carry]
    return TableInput(kept, _select(batches, kept, extra), carried=dict.fromkeys(extra))


def _from_huggingface(dataset: Any, carry: frozenset[str]) -> TableInput:
    arrow = dataset.with_format("arrow")
    schema = arrow[:1].schema if len(dataset) else dataset.features.arrow_schema
    rows = CARRIED_ROWS if carry & {*schema.names} else BATCH_ROWS
    batches = (batch for table in arrow.iter(rows) for batch in table.combine_chunks().to_batches(rows))
    return read_batches(batches, schema, carry)


def _from_runs(runs: Sequence[HasRows], carry: frozenset[str], named: Iterable[str]) -> TableInput:
    """Return the rows of runs one after the other; what one of them has no column for is missing."""
    wanted, batch_rows = {*named, *carry}, CARRIED_ROWS if carry else None
    tables = [run.as_rows(wanted, batch_rows=batch_rows) for run in runs]
    try:
        schema = pa.unify_schemas([table.schema.remove_metadata() for table in tables])
    except pa.ArrowException as error:
        words = f"is several runs whose columns differ: {_first_line(error)}"
        raise InvalidRows([problem("table", words)]) from None
    if len(tables) == 1:
        schema = schema.with_metadata(tables[0].schema.metadata)
    batches = (_fitted(batch, schema) for table in tables for batch in table.batches)
    # Two runs may have the same ids: together their rows are counted.
    row_ids = tables[0].row_ids if len(tables) == 1 else None
    return replace(read_batches(batches, schema, carry), row_ids=row_ids, is_run=True)


def from_pandas(frame: Any, plain: str = TEXT_COLUMN, carry: frozenset[str] = frozenset()) -> TableInput:
    """Return a pandas frame or Series as a table; what Arrow cannot hold stands in it as text."""
    import pandas as pd

    if isinstance(frame, pd.Series):
        frame = frame.to_frame(frame.name if isinstance(frame.name, str) else plain)
    check_names([str(name) for name in frame.columns])
    odd: dict[str, dict[int, str]] = {}
    carried: dict[str, Sequence[Any] | None] = {}
    columns = {}
    for name in frame.columns:
        if str(name) in carry:
            carried[str(name)] = list(frame[name])
            columns[str(name)] = _as_paths(frame[name])
            continue
        columns[str(name)], strange = _storable(frame[name])
        if strange:
            odd[str(name)] = strange
    clean = pd.DataFrame(columns, index=frame.index)
    try:
        table = pa.Table.from_pandas(clean)
    except pa.ArrowException as error:
        raise InvalidRows([problem("table", f"cannot be stored: {error}")]) from None
    read = from_reader(table.to_reader(BATCH_ROWS), frozenset(carried))
    read.carried = carried
    read.row_ids = None if _counts_from_zero(frame.index) else [str(value) for value in frame.index]
    read.odd_values = odd
    return read


def _counts_from_zero(index: Any) -> bool:
    start, step = getattr(index, "start", None), getattr(index, "step", None)
    return start == 0 and step == 1


def _as_paths(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return a column of texts and paths as texts; of anything else nothing: the run keeps no copy of it."""
    values = [None if _is_null(value) else value for value in column]
    are_paths = all(value is None or isinstance(value, (str, PathLike)) for value in values)
    texts = as_texts([None if value is None else str(value) for value in values])[0] if are_paths else None
    return column.__class__(texts, index=column.index, dtype=object)


def _storable(column: "pd.Series[Any]") -> tuple["pd.Series[Any]", dict[int, str]]:
    # Only object columns can hold what Arrow cannot.
    if column.dtype != object:
        return column, {}
    values = list(column)
    texts, strange = as_texts(values)
    # A column without any text keeps its own type where Arrow has one for it.
    if _fits_arrow(values) and (not strange or len(strange) == sum(not _is_null(v) for v in values)):
        return column, {}
    return column.__class__(texts, index=column.index, dtype=object), strange


def _fits_arrow(values: list[Any]) -> bool:
    try:
        pa.array(values, from_pandas=True)
    except (pa.ArrowException, UnicodeEncodeError):
        return False
    return True


def as_texts(values: Sequence[Any]) -> tuple[list[Any], dict[int, str]]:
    """Return `values` as strings and nulls, and what each that was something else is, by position.

    Examples
    --------
    >>> as_texts(["a", None, 3])
    (['a', None, '3'], {2: 'int'})
    """
    strange: dict[int, str] = {}
    texts: list[str | None] = []
    for i, value in enumerate(values):
        if _is_null(value):
            texts.append(None)
        elif isinstance(value, str) and _is_whole(value):
            texts.append(value)
        else:
            strange[i] = (
                "half a character (a lone surrogate)" if isinstance(value, str) else type(value).__name__
            )
            texts.append(str(value).encode("utf-8", "replace").decode())
    return texts, strange


def _is_whole(text: str) -> bool:
    # A lone surrogate is half a character: it can be stored nowhere and spoken by no one.
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_null(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or type(value).__name__ in {"NAType", "NaTType"}


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


def _from_path(path: Path, carry: frozenset[str], named: Iterable[str]) -> TableInput:
    if (path / RUN_FILE).is_file():
        from speechframe.batch.run import open_run

        return _from_runs([open_run(path)], carry, named)
    # Only there it is known what a file's rows become.
    from speechframe.batch.table_files import readers, way_out

    reader = readers().get(path.suffix.lower())
    if reader is None:
        raise InvalidRows(
            [
                problem(
                    "table",
                    f"{str(path)[:60]!r} is no table file",
                    allowed=f"a file that ends in {', '.join(readers())}; for one line: ['a line'], say()",
                )
            ]
        )
    if not path.exists():
        raise InvalidRows([problem("table", f"{path} does not exist", allowed="an existing file")])
    try:
        return reader(path, carry)
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        raise InvalidRows(
            [problem("table", f"{path.name} cannot be read: {_first_line(error)}", allowed=way_out(error))]
        ) from None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_bytes(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


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
