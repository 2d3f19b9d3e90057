"""The table that comes in, whatever it is, as Arrow batches with a row id each.

Taken: pandas and polars frames, anything with the Arrow C stream interface
(pyarrow tables and readers, DuckDB relations), Hugging Face datasets, lists of
strings or of dicts, and paths to CSV, TSV, JSONL, Parquet and XLSX files. CSV
and XLSX values stay strings, so that an id such as ``0007`` stays what it is.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from speechframe.errors import InvalidRows

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger(__name__)

BATCH_ROWS = 4096
TEXT_COLUMN = "text"
"""The name a plain list of strings gets as a column."""


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
    odd_values
        Column to row position to type name, for values Arrow cannot hold beside
        the others; they stand as text in `batches`.
    """

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]
    row_ids: Sequence[str] | None = None
    odd_values: dict[str, dict[int, str]] = field(default_factory=dict)


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


def open_table(table: Any) -> TableInput:
    """Return `table` as batches; see the module for what is taken.

    Raises
    ------
    InvalidRows
        When it is no table, a file cannot be read, or a column cannot be stored.
    """
    if isinstance(table, (str, PathLike)):
        return _from_path(Path(table))
    kind = type(table).__module__.partition(".")[0]
    if kind == "datasets" and isinstance(table, Mapping):
        splits = ", ".join(map(str, table))
        raise InvalidRows(
            [problem("table", "is several datasets, not one", allowed=f"one split of {splits}")]
        )
    if kind == "pandas":
        return _from_pandas(table)
    if kind == "datasets" and hasattr(table, "with_format"):
        return _from_huggingface(table)
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if hasattr(table, "__arrow_c_stream__"):
        return _from_reader(pa.RecordBatchReader.from_stream(table))
    if isinstance(table, Mapping):
        return _from_pandas(_frame(dict(table)))
    if isinstance(table, Iterable):
        return _from_iterable(table)
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


def _from_iterable(table: Iterable[Any]) -> TableInput:
    values = list(table) if isinstance(table, Sequence) else iter(table)
    if isinstance(values, list):
        if values and all(isinstance(v, Mapping) for v in values):
            return _from_pandas(_frame(values))
        return _from_pandas(_frame({TEXT_COLUMN: values}, dtype=object))
    first = next(values, None)
    if isinstance(first, (pa.RecordBatch, pa.Table)):
        return TableInput(_without_audio(first.schema), _select(_chain(first, values), first.schema))
    rows = ([] if first is None else [first]) + list(values)
    return _from_iterable(rows)


def _chain(first: Any, rest: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for item in (first, *rest) if isinstance(rest, Sequence) else _prepend(first, rest):
        yield from item.to_batches(BATCH_ROWS) if isinstance(item, pa.Table) else (item,)


def _prepend(first: Any, rest: Iterable[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _from_reader(reader: pa.RecordBatchReader) -> TableInput:
    return TableInput(_without_audio(reader.schema), _select(reader, reader.schema))


def _from_huggingface(dataset: Any) -> TableInput:
    arrow = dataset.with_format("arrow")
    schema = arrow[:1].schema if len(dataset) else dataset.features.arrow_schema
    batches = (
        batch for table in arrow.iter(BATCH_ROWS) for batch in table.combine_chunks().to_batches(BATCH_ROWS)
    )
    return TableInput(_without_audio(schema), _select(batches, schema))


def _from_pandas(frame: Any) -> TableInput:
    import pandas as pd

    if isinstance(frame, pd.Series):
        frame = frame.to_frame(frame.name if isinstance(frame.name, str) else TEXT_COLUMN)
    _check_names([str(name) for name in frame.columns])
    odd: dict[str, dict[int, str]] = {}
    columns = {}
    for name in frame.columns:
        columns[str(name)], strange = _storable(frame[name])
        if strange:
            odd[str(name)] = strange
    clean = pd.DataFrame(columns, index=frame.index)
    try:
        table = pa.Table.from_pandas(clean)
    except pa.ArrowException as error:
        raise InvalidRows([problem("table", f"cannot be stored: {error}")]) from None
    read = _from_reader(table.to_reader(BATCH_ROWS))
    read.row_ids = None if _counts_from_zero(frame.index) else [str(value) for value in frame.index]
    read.odd_values = odd
    return read


def _counts_from_zero(index: Any) -> bool:
    start, step = getattr(index, "start", None), getattr(index, "step", None)
    return start == 0 and step == 1


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


def _check_names(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRows(
            [
                problem("table", f"has two columns named {name!r}", allowed="one column a name")
                for name in twice
            ]
        )


def _from_path(path: Path) -> TableInput:
    readers = {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".txt": _read_lines,
        ".jsonl": _read_jsonl,
        ".ndjson": _read_jsonl,
        ".parquet": _read_parquet,
        ".pq": _read_parquet,
        ".xlsx": _read_xlsx,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InvalidRows(
            [
                problem(
                    "table",
                    f"{str(path)[:60]!r} is no table file",
                    allowed=f"a file that ends in {', '.join(readers)}; or for one line: ['a line'], say()",
                )
            ]
        )
    if not path.exists():
        raise InvalidRows([problem("table", f"{path} does not exist", allowed="an existing file")])
    try:
        return reader(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError) as error:
        raise InvalidRows(
            [problem("table", f"{path.name} cannot be read: {_first_line(error)}", allowed=_way_out(error))]
        ) from None


def _way_out(error: BaseException) -> str:
    is_encoding = isinstance(error, UnicodeDecodeError) or "UTF8" in str(error)
    return "a file in UTF-8: save it again with that encoding" if is_encoding else ""


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _read_csv(path: Path) -> TableInput:
    from pyarrow import csv

    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:
        import csv as plain_csv

        header = next(plain_csv.reader(file, delimiter=delimiter), [])
    _check_names(header)
    # Every column as text: inference would turn the id 0007 into 7.
    reader = csv.open_csv(
        path,
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )
    return _from_reader(reader)


def _read_lines(path: Path) -> TableInput:
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return _from_iterable([line for line in lines if line.strip()])


def _read_jsonl(path: Path) -> TableInput:
    from pyarrow import json

    return _from_reader(json.read_json(path).to_reader(BATCH_ROWS))


def _read_parquet(path: Path) -> TableInput:
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    wanted = [f.name for f in _without_audio(file.schema_arrow)]
    schema = _without_audio(file.schema_arrow)
    return TableInput(schema, _select(file.iter_batches(BATCH_ROWS, columns=wanted), schema))


def _read_xlsx(path: Path) -> TableInput:
    import pandas as pd

    try:
        frame = pd.read_excel(path, dtype=str, keep_default_na=False, na_values=[""])
    except ImportError:
        raise InvalidRows(
            [problem("table", "reading .xlsx needs openpyxl", allowed="pip install 'speechframe[excel]'")]
        ) from None
    return _from_pandas(frame)


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_bytes(kind.field(i).type) for i in range(kind.num_fields))
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)


def _without_audio(schema: pa.Schema) -> pa.Schema:
    # A run folder keeps no second copy of audio that the caller already has.
    _check_names(schema.names)
    left_out = [f.name for f in schema if _holds_bytes(f.type)]
    if left_out:
        log.info("columns that hold bytes are not copied into the run folder: %s", ", ".join(left_out))
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


def _select(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    kept = _without_audio(schema)
    for batch in batches:
        rows = batch.select(kept.names).cast(kept) if batch.schema != kept else batch
        for start in range(0, rows.num_rows, BATCH_ROWS):
            yield rows.slice(start, BATCH_ROWS)
