"""Anything that people call a table, opened.

Taken: pandas and polars frames and Series, whatever has an Arrow stream (pyarrow tables and readers, DuckDB
relations), Hugging Face datasets, lists and generators of texts, of dicts or of Arrow batches, dicts of
columns, paths of CSV, TSV, JSONL, Parquet, XLSX and text files, and runs and lists of runs. Values of CSV and
XLSX stay texts, so that an id such as ``0007`` stays what it is. Generators are read as far as rows are asked
for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NoReturn, Protocol, runtime_checkable

import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.tables.arrow import BATCH_ROWS, CARRIED_ROWS, Table, first_line
from speechframe.tables.columns import problem
from speechframe.tables.files import from_file
from speechframe.tables.frames import from_arrow, from_columns, from_dataset, from_pandas, from_values

__all__ = ["BATCH_ROWS", "CARRIED_ROWS", "AsTable", "Table", "open_table"]


@runtime_checkable
class AsTable(Protocol):
    """A run: its rows go wherever a table goes."""

    def as_table(self, named: Iterable[str], batch_rows: int | None) -> Table:
        """Return the rows with their ids.

        Parameters
        ----------
        named
            Columns that arguments name: to be there even if they say how an answer came about.
        batch_rows
            Rows of a batch at most; None for as many as suit.
        """


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
    """Return `source` as a table that can be read once.

    Parameters
    ----------
    source
        What the caller handed in.
    id
        The column of row ids; by default a pandas index, the ids of a run, or the row's number.
    plain
        What a plain list becomes as a column, and a Series whose own name no argument names.
    carry
        Columns that are handed over with whatever they hold.
    named
        Columns that arguments name.
    sep
        What separates the fields of a CSV or TSV file; by default what its first line shows.
    quoting
        ``"none"`` takes the quotes of a CSV or TSV file as characters like all others.

    Raises
    ------
    InvalidRows
        When it is no table, cannot be read, or has a column that could not come back as it is.
    SettingsError
        When the quotes of a CSV or TSV file may swallow lines.

    Examples
    --------
    >>> table = open_table(["Good morning.", "Good night."])
    >>> [(batch.to_pylist(), ids) for batch, ids in table.batches()]
    [([{'text': 'Good morning.'}, {'text': 'Good night.'}], ['0', '1'])]
    """
    if isinstance(source, (str, PathLike)):
        table = from_file(source, plain, carry, sep, quoting)
    else:
        table = _from_object(source, plain, carry, {*named, *carry})
    return table.prepare(carry, id)


def _from_object(source: Any, plain: str, carry: frozenset[str], named: set[str]) -> Table:
    if isinstance(source, AsTable):
        return source.as_table(named, CARRIED_ROWS if carry else None)
    library = type(source).__module__.partition(".")[0]
    if library in {"pandas", "polars"} and type(source).__name__ == "Series":
        source = source.to_frame(source.name if source.name in named else plain)
    if library == "pandas":
        return from_pandas(source, carry) if type(source).__name__ == "DataFrame" else _no_table(source)
    if library == "datasets":
        return _no_table(source) if isinstance(source, Mapping) else from_dataset(source, carry)
    if isinstance(source, (pa.Array, pa.ChunkedArray)):
        source = pa.Table.from_arrays([source], [plain])
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    return (
        from_arrow(source)
        if hasattr(source, "__arrow_c_stream__")
        else _from_python(source, plain, carry, named)
    )


def _from_python(source: Any, plain: str, carry: frozenset[str], named: set[str]) -> Table:
    if isinstance(source, Mapping):
        return from_columns(source, carry)
    if isinstance(source, Sequence) and source and all(isinstance(one, AsTable) for one in source):
        return _from_runs(source, carry, named)
    if isinstance(source, Iterable) and not isinstance(source, bytes):
        return from_values(source, plain, carry)
    return _no_table(source)


def _no_table(source: Any) -> NoReturn:
    words = f"a {type(source).__name__} is no table"
    allowed = "a DataFrame, Arrow table, list, generator or file path"
    if isinstance(source, Mapping):
        words, allowed = "is several datasets, not one", f"one split of {', '.join(map(str, source))}"
    raise InvalidRows([problem("table", words, allowed=allowed)])


def _from_runs(runs: Sequence[AsTable], carry: frozenset[str], named: set[str]) -> Table:
    """Return the rows of runs one after the other, numbered: two runs may have equal ids."""
    tables = [run.as_table(named, CARRIED_ROWS if carry else None) for run in runs]
    try:
        schema = pa.unify_schemas([table.schema.remove_metadata() for table in tables])
    except pa.ArrowException as error:
        words = f"is several runs whose columns differ: {first_line(error)}"
        raise InvalidRows([problem("table", words)]) from None

    def batches() -> Iterator[pa.RecordBatch]:
        for table in tables:
            for batch, _ in table.batches():
                yield _widened(batch, schema)

    return Table(schema, batches())


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the columns of a schema; those it does not have are null."""
    names = set(batch.schema.names)
    columns = [
        batch.column(f.name).cast(f.type) if f.name in names else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
