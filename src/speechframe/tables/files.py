"""Read tables from CSV and TSV with any quoting, JSONL, Parquet, XLSX, and text with one row per line."""

import csv
import stat
from collections import deque
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from speechframe.errors import InvalidRows, SettingsError
from speechframe.settings.typed import expanded
from speechframe.tables.table import BATCH_ROWS, CARRIED_ROWS, holds_bytes, problem
from speechframe.writing.files import parse_json

JSON_SUFFIXES = (".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", ".txt", *JSON_SUFFIXES, ".parquet", ".pq", ".xlsx")

_BLOCK_BYTES = 1 << 20


def table_file(path: str | PathLike[str]) -> Path:
    """Return the path of a table file, without reading it. Raise InvalidRows if it is not a regular file."""
    if Path(path).suffix.lower() not in SUFFIXES:
        words = f"{str(path)[:60]!r} is no table file"
        allowed = f"a file that ends in {', '.join(SUFFIXES)}; for one line: ['a line'], say()"
        raise InvalidRows([problem("table", words, allowed=allowed)])
    try:
        found = expanded(path)
        mode = found.stat().st_mode
        if stat.S_ISREG(mode):
            return found
        what = "a folder" if stat.S_ISDIR(mode) else "a device, pipe or socket"
        words = f"{path} is {what}, not a regular file"
    except FileNotFoundError:
        words = f"{path} does not exist"
    except (OSError, ValueError) as error:
        words = f"{path} cannot be read: {error}"
    raise InvalidRows([problem("table", words, allowed="an existing file")])


def contents(path: Path, notes: list[str], *, sep: str | None = None, quoting: str | None = None) -> Any:
    """Return the content of a file as a frame, an Arrow reader, or a generator of texts or rows.

    Remarks on skipped lines are appended to `notes`.
    """
    suffix = path.suffix.lower()
    if suffix in {".csv", ".tsv"}:
        usual = "\t" if suffix == ".tsv" else ","
        return arrow_csv.open_csv(path, **_csv_options(path, notes, usual, sep, is_quoted=quoting != "none"))
    if suffix == ".txt":
        return _lines(path, notes)
    if suffix in JSON_SUFFIXES:
        return _objects(path)
    if suffix == ".xlsx":
        return _workbook(path)
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    size = CARRIED_ROWS if any(holds_bytes(column.type) for column in file.schema_arrow) else BATCH_ROWS
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(size))


def _workbook(path: Path) -> Any:
    """Return the first sheet of a workbook as a frame of texts."""
    import pandas as pd
    from openpyxl.utils.escape import unescape

    def decoded(cell: Any) -> Any:
        # Office Open XML writes a carriage return as _x000D_, and _x as _x005F_x.
        return unescape(cell) if isinstance(cell, str) and "_x" in cell else cell

    frame = pd.read_excel(path, dtype=str, keep_default_na=False, na_values=[""])
    return frame.map(decoded).rename(columns=decoded)


def _lines(path: Path, notes: list[str]) -> Iterator[str]:
    count = empty = 0
    # Text mode converts every line end to \n. A form feed, U+2028 and similar characters do not end a line.
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
                found = parse_json(line)
                words = "" if isinstance(found, dict) else f"holds a {type(found).__name__}, not an object"
            except ValueError as error:
                words = f"is no JSON: {error}"
            if words:
                words = f"{path.name} cannot be read: line {number} {words}"
                raise InvalidRows([problem("table", words)])
            yield found


def _csv_options(
    path: Path, notes: list[str], usual: str, sep: str | None, *, is_quoted: bool
) -> dict[str, Any]:
    """Return Arrow's options for a CSV file. Raise SettingsError if its quotes may swallow lines.

    `usual` separates the fields unless `sep` or the header shows another separator. Unless `is_quoted`,
    quotes are ordinary characters.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        if sep is None:
            first = file.readline()
            found = max(",\t;|", key=first.count)
            sep = usual if usual in first or found not in first else found
            file.seek(0)
        rows = csv.reader(file, delimiter=sep, quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE)
        header = next(rows, [])
        file.seek(0)
        put_back: deque[str] = deque()
        lines = iter(lambda: put_back.popleft() if put_back else file.readline(), "")
        number = longest = empty = breaks = broken = 0
        is_enclosed = is_proven = False
        rowlike = []
        for line in lines:
            number += 1
            longest = max(longest, len(line))
            if not is_quoted or '"' not in line or len(line) > csv.field_size_limit():
                empty += not line.strip("\r\n")
                continue
            record = [line]
            try:
                fields = next(csv.reader(_recorded(record, lines), delimiter=sep, strict=True))
            except csv.Error:
                # A quote is not closed, or neither a separator nor the line's end follows a closing quote.
                broken = broken or number
                put_back.extendleft(reversed(record[1:]))
                continue
            text = "".join(record)
            if text.startswith('"') or f'{sep}"' in text:
                is_enclosed = True
                # Only a quoted field can contain a quote or a separator.
                is_proven |= '""' in text or (len(record) == 1 and text.count(sep) >= len(fields))
                if len(record) > 1 and all(one.count(sep) == len(header) - 1 > 0 for one in record):
                    rowlike.append((number, len(record)))
            longest = max(longest, len(text))
            breaks += len(record) - 1
            number += len(record) - 1
    # In a file that is certainly quoted, two lines that look like rows may still be one text.
    at_fault = [line for line, count in rowlike if count > 2 or not is_proven]  # noqa: PLR2004
    if broken and is_enclosed:
        at_fault.append(broken)
    if at_fault:
        raise SettingsError(
            f"{path.name}: on line {min(at_fault)} a field begins with a quote, and its end is not clear, "
            'so lines may be swallowed. quoting="none" takes quotes as characters like all others; '
            "otherwise mend that line, or save the table as Parquet or XLSX. Nothing was sent."
        )
    said = {
        f"{empty:,} lines of {path.name} are empty: no rows": empty,
        f"{breaks:,} lines of {path.name} belong to a quoted field that begins on a line before: no rows of "
        'their own (quoting="none" makes a row of each)': breaks,
        f"quotes of {path.name} are part of its texts: nothing ends the one on line {broken}": broken,
    }
    notes += [words for words, is_so in said.items() if is_so]
    return {
        # A block must be larger than the longest row. A character has at most four bytes.
        "read_options": arrow_csv.ReadOptions(block_size=max(_BLOCK_BYTES, 2 * 4 * longest)),
        "parse_options": arrow_csv.ParseOptions(
            delimiter=sep,
            quote_char='"' if is_quoted and not broken else False,
            newlines_in_values=breaks > 0,
        ),
        # Read every column as text, because type inference would convert the id 0007 to 7.
        "convert_options": arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    }


def _recorded(record: list[str], lines: Iterator[str]) -> Iterator[str]:
    """Yield the first line of a record and the lines after it. Append these lines to `record`."""
    yield record[0]
    for line in lines:
        record.append(line)
        yield line
