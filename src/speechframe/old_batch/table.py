"""The table that comes in, whatever it is, as Arrow batches with a row id each.

Taken: pandas and polars frames, anything with the Arrow C stream interface
(pyarrow tables and readers, DuckDB relations), Hugging Face datasets, lists of
strings or of dicts, runs and lists of runs, and paths to CSV, TSV, JSONL,
Parquet, XLSX and text files (a text a line) or to the folder of a run. CSV and
XLSX values stay strings, so that an id such as ``0007`` stays what it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.old_batch.table_arrow import fitted, from_reader, is_text, read_batches
from speechframe.old_batch.table_files import at_home, readers, way_out
from speechframe.old_batch.table_input import (
    BATCH_ROWS,
    CARRIED_ROWS,
    TEXT_COLUMN,
    HasRows,
    PlanningStopped,
    TableInput,
    Taker,
    first_line,
    not_stored,
    problem,
)
from speechframe.old_batch.table_pandas import as_texts, frame_of, from_pandas, is_frame
from speechframe.old_store.manifest import FILE_NAME as RUN_FILE

__all__ = [
    "BATCH_ROWS",
    "HasRows",
    "PlanningStopped",
    "TableInput",
    "Taker",
    "as_texts",
    "is_text",
    "open_table",
    "problem",
]


def open_table(
    table: Any, *, plain: str = TEXT_COLUMN, carry: frozenset[str] = frozenset(), named: Iterable[str] = ()
) -> TableInput:
    """Return `table` as batches; see the module for what is taken.

    Parameters
    ----------
    table
        What the caller handed in.
    plain
        The name a plain list gets as a column, and a Series whose own name no argument names.
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
        return _from_path(at_home(table), carry, named)
    if isinstance(table, HasRows):
        return _from_runs([table], carry, named)
    kind = type(table).__module__.partition(".")[0]
    if kind == "datasets" and isinstance(table, Mapping):
        splits = ", ".join(map(str, table))
        raise InvalidRows(
            [problem("table", "is several datasets, not one", allowed=f"one split of {splits}")]
        )
    if kind == "pandas" and is_frame(table):
        return from_pandas(table, plain, carry, named)
    if kind == "datasets" and hasattr(table, "with_format"):
        return _from_huggingface(table, carry)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if hasattr(table, "__arrow_c_stream__"):
        return from_reader(_stream_of(table), carry)
    if isinstance(table, Mapping):
        return from_pandas(frame_of(dict(table)), plain, carry, named)
    if isinstance(table, Iterable) and kind != "pandas":
        return _from_iterable(table, plain, carry, named)
    raise InvalidRows(
        [
            problem(
                "table",
                f"a {type(table).__name__} is no table",
                allowed="a DataFrame, Arrow table, list or file path",
            )
        ]
    )


def _stream_of(table: Any) -> pa.RecordBatchReader:
    schema = getattr(table, "schema", None)
    kinds = {name: str(kind) for name, kind in schema.items()} if isinstance(schema, Mapping) else {}
    # Of Python's objects polars hands over the bytes of their addresses, and Arrow knows no such integers.
    odd = [name for name, kind in kinds.items() if kind in {"Object", "Int128", "UInt128"}]
    if odd:
        raise InvalidRows([not_stored(name, f"it is {kinds[name]}") for name in odd])
    try:
        return pa.RecordBatchReader.from_stream(table)
    except pa.ArrowException as error:
        raise InvalidRows([problem("table", f"cannot be read by Arrow: {first_line(error)}")]) from None


def _from_iterable(
    table: Iterable[Any], plain: str, carry: frozenset[str], named: Iterable[str]
) -> TableInput:
    """Return runs, rows, clips, texts or Arrow batches in a list or generator as a table."""
    values = list(table) if isinstance(table, Sequence) else iter(table)
    if isinstance(values, list):
        if values and all(isinstance(v, HasRows) for v in values):
            return _from_runs(values, carry, named)
        if values and all(isinstance(v, Mapping) for v in values) and not _are_clips(values, plain, carry):
            return from_pandas(frame_of(values), plain, carry, named)
        return from_pandas(frame_of({plain: values}, dtype=object), plain, carry)
    first = next(values, None)
    if isinstance(first, (pa.RecordBatch, pa.Table)):
        return read_batches(_chain(first, values), first.schema, carry)
    rows = ([] if first is None else [first]) + list(values)
    return _from_iterable(rows, plain, carry, named)


def _are_clips(values: Sequence[Mapping[Any, Any]], plain: str, carry: frozenset[str]) -> bool:
    # Clips as the datasets library gives them are mappings too, and no rows of a table.
    return plain in carry and all(
        plain not in value and {"bytes", "array"} & value.keys() for value in values
    )


def _chain(first: Any, rest: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for item in chain((first,), rest):
        if not isinstance(item, (pa.RecordBatch, pa.Table)):
            words = f"yields a {type(item).__name__} among Arrow batches"
            raise InvalidRows([problem("table", words, allowed="batches with the same columns")])
        yield from item.to_batches(BATCH_ROWS) if isinstance(item, pa.Table) else (item,)


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
        words = f"is several runs whose columns differ: {first_line(error)}"
        raise InvalidRows([problem("table", words)]) from None
    if len(tables) == 1:
        schema = schema.with_metadata(tables[0].schema.metadata)
    batches = (fitted(batch, schema) for table in tables for batch in table.batches)
    # Two runs may have the same ids: together their rows are counted.
    row_ids = tables[0].row_ids if len(tables) == 1 else None
    return replace(read_batches(batches, schema, carry), row_ids=row_ids, is_run=True)


def _from_path(path: Path, carry: frozenset[str], named: Iterable[str]) -> TableInput:
    if (path / RUN_FILE).is_file():
        from speechframe.old_batch.run import open_run

        return _from_runs([open_run(path)], carry, named)
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
    with _reading(path):
        found = reader(path, carry)
    return replace(found, batches=_read_on(path, found.batches))


def _read_on(path: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # What is wrong far below in a large file shows only when it is read that far.
    with _reading(path):
        yield from batches


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except InvalidRows:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        raise InvalidRows(
            [problem("table", f"{path.name} cannot be read: {first_line(error)}", allowed=way_out(error))]
        ) from None
