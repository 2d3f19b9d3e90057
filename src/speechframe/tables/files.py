"""Tables in files: CSV, TSV, JSONL, Parquet, XLSX, and text with a line a row."""

import json
import stat
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.settings.typed import expanded
from speechframe.tables.columns import holds_bytes, problem
from speechframe.tables.dialect import dialect_of
from speechframe.tables.table import BATCH_ROWS, CARRIED_ROWS

JSON_SUFFIXES = (".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", ".txt", *JSON_SUFFIXES, ".parquet", ".pq", ".xlsx")

_BLOCK_BYTES = 1 << 20
_UTF8_BYTES = 4
"""Of one character, at most."""


def regular_file(path: str | PathLike[str], most_bytes: int | None = None) -> Path:
    """Return the path of a file that can be read to its end; nothing of it is read.

    ValueError is raised when there is no such file, when it is a folder, device or pipe, or too large.
    """
    try:
        found = expanded(path)
        state = found.stat()
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(state.st_mode):
        what = "a folder" if stat.S_ISDIR(state.st_mode) else "a device, pipe or socket"
        raise ValueError(f"{path} is {what}, not a regular file")
    if most_bytes is not None and state.st_size > most_bytes:
        raise ValueError(f"{path} has {state.st_size:,} bytes; at most {most_bytes:,} bytes are taken")
    return found


def table_file(path: str | PathLike[str]) -> Path:
    """Return the path of a file that holds a table, or raise InvalidRows."""
    if Path(path).suffix.lower() not in SUFFIXES:
        words = f"{str(path)[:60]!r} is no table file"
        allowed = f"a file that ends in {', '.join(SUFFIXES)}; for one line: ['a line'], say()"
        raise InvalidRows([problem("table", words, allowed=allowed)])
    try:
        return regular_file(path)
    except ValueError as error:
        raise InvalidRows([problem("table", str(error), allowed="an existing file")]) from None


def contents(path: Path, notes: list[str], *, sep: str | None = None, quoting: str | None = None) -> Any:
    """Return what a file holds: a frame, something with an Arrow stream, or a generator of texts or rows.

    `notes` gets what is to be said of lines that become no rows.
    """
    suffix = path.suffix.lower()
    if suffix in {".csv", ".tsv"}:
        return _csv(path, notes, sep, is_quoted=quoting != "none")
    if suffix == ".txt":
        return _lines(path, notes)
    if suffix in JSON_SUFFIXES:
        return _objects(path)
    if suffix == ".xlsx":
        import pandas as pd

        try:
            return pd.read_excel(path, dtype=str, keep_default_na=False, na_values=[""])
        except ImportError:
            allowed = "pip install 'speechframe[excel]'"
            raise InvalidRows([problem("table", "reading .xlsx needs openpyxl", allowed=allowed)]) from None
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    size = CARRIED_ROWS if any(holds_bytes(column.type) for column in file.schema_arrow) else BATCH_ROWS
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(size))


def _lines(path: Path, notes: list[str]) -> Iterator[str]:
    count = empty = 0
    # Read as text, every end of a line is \n; a form feed, U+2028 and others end none.
    with path.open(encoding="utf-8-sig") as file:
        for line in file:
            count += 1
            if line.strip():
                yield line.removesuffix("\n")
            else:
                empty += 1
    if empty:
        notes.append(f"{empty:,} of {count:,} lines of {path.name} are empty: no rows")


def _objects(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                found = json.loads(line)
                words = "" if isinstance(found, dict) else f"holds a {type(found).__name__}, not an object"
            except ValueError as error:
                words = f"is no JSON: {error}"
            if words:
                words = f"{path.name} cannot be read: line {number} {words}"
                raise InvalidRows([problem("table", words)])
            yield found


def _csv(path: Path, notes: list[str], sep: str | None, *, is_quoted: bool) -> pa.RecordBatchReader:
    from pyarrow import csv

    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    dialect = dialect_of(path, usual, sep, is_quoted=is_quoted)
    notes += dialect.notes
    # Every column as text: inference would turn the id 0007 into 7.
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=max(_BLOCK_BYTES, 2 * _UTF8_BYTES * dialect.longest)),
        parse_options=csv.ParseOptions(
            delimiter=dialect.sep,
            quote_char='"' if dialect.is_quoted else False,
            newlines_in_values=dialect.has_breaks,
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(dialect.header, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )
