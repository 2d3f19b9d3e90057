"""Read tables from CSV and TSV with any quoting, JSONL, Parquet, XLSX, text, and files of strings."""

import stat
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from speechframe.errors import refuse
from speechframe.settings.typed import expand_home
from speechframe.strings.encodings import detect_encoding
from speechframe.strings.entries import STRING_SUFFIXES
from speechframe.strings.read import read_files
from speechframe.tables.csv_file import describe_left_out, read_csv_batches
from speechframe.tables.table import BATCH_ROWS, CARRIED_ROWS, contains_bytes
from speechframe.writing.files import parse_json
from speechframe.writing.words import format_count

JSON_SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv", ".txt", *JSON_SUFFIXES, ".parquet", ".pq", ".xlsx", *STRING_SUFFIXES)
"""Endings of the names of files that can be read as tables."""


def find_table_file(path: str | PathLike[str]) -> Path:
    """Return the path of a table file, with ``~`` replaced. The file is not read.

    Raise InvalidRows if the ending of the name is unknown, or if there is no regular file at the path.
    """
    if Path(path).suffix.lower() not in TABLE_SUFFIXES:
        message = f"{str(path)[:60]!r} is not a table file"
        allowed = f"a file that ends in {', '.join(TABLE_SUFFIXES)}, or a folder of Parquet files"
        allowed = f"{allowed}; for one line: ['a line'], say()"
        raise refuse("table", message, allowed=allowed)
    try:
        found = expand_home(path)
        mode = found.stat().st_mode
        if stat.S_ISREG(mode):
            return found
        message = f"{path} is a device, pipe or socket, not a regular file"
    except FileNotFoundError:
        message = f"{path} does not exist"
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {error}"
    raise refuse("table", message, allowed="an existing file")


def read_contents(path: Path, notes: list[str], *, sep: str | None = None, quoting: str | None = None) -> Any:
    """Return the content of a table file: a pandas frame, an Arrow reader, or a generator of texts or dicts.

    `sep` and `quoting` apply to CSV and TSV files (see `RunOptions`). Remarks for the user, such as on
    skipped lines, are appended to `notes`.
    """
    suffix = path.suffix.lower()
    if suffix in {".csv", ".tsv"}:
        usual = "\t" if suffix == ".tsv" else ","
        encoding = detect_encoding(path, notes)
        return read_csv_batches(path, encoding, notes, usual, sep, is_quoted=quoting != "none")
    if suffix == ".txt":
        return _read_lines(path, notes)
    if suffix in JSON_SUFFIXES:
        return _read_objects(path, notes)
    if suffix == ".xlsx":
        return _read_sheet(path, notes)
    if suffix in STRING_SUFFIXES:
        frame = read_files(path)
        notes += frame.attrs["notes"]
        return frame
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    size = CARRIED_ROWS if any(contains_bytes(column.type) for column in file.schema_arrow) else BATCH_ROWS
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(size))


def _read_sheet(path: Path, notes: list[str]) -> Any:
    """Return the first sheet of an XLSX file as a frame of texts. The first row with a value is the header.

    Rows without a value, and columns without a name and a value, are left out, with a remark in `notes`.
    """
    import pandas as pd
    from openpyxl.utils.escape import unescape

    def decode_cell(cell: Any) -> Any:
        # Office Open XML writes a carriage return as _x000D_, and _x as _x005F_x.
        return unescape(cell) if isinstance(cell, str) and "_x" in cell else cell

    sheet = pd.read_excel(path, header=None, dtype=str, keep_default_na=False, na_values=[""])
    found = sheet.dropna(how="all").map(decode_cell)
    header = [name if isinstance(name, str) else "" for names in found.head(1).to_numpy() for name in names]
    rows = found.iloc[1:].reset_index(drop=True).set_axis(header, axis=1)
    is_kept = [
        bool(name.strip() or rows.iloc[:, position].notna().any()) for position, name in enumerate(header)
    ]
    notes += describe_left_out(path.name, len(sheet) - len(found), is_kept.count(False))
    return rows.loc[:, is_kept]


def _read_lines(path: Path, notes: list[str]) -> Iterator[str]:
    count = empty = 0
    # Text mode converts every line end to \n. A form feed, U+2028 and similar characters do not end a line.
    with path.open(encoding=detect_encoding(path, notes)) as file:
        for line in file:
            count += 1
            if line.strip():
                yield line.removesuffix("\n")
            else:
                empty += 1
    if empty:
        notes.append(f"{empty:,} of {format_count(count, 'line')} of {path.name} without a value: no rows")


def _read_objects(path: Path, notes: list[str]) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding=detect_encoding(path, notes)) as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                found = parse_json(line)
                fault = "" if isinstance(found, dict) else f"holds a {type(found).__name__}, not an object"
            except ValueError as error:
                fault = f"is not JSON: {error}"
            if fault:
                fault = f"{path.name} cannot be read: line {number} {fault}"
                raise refuse("table", fault)
            yield found
