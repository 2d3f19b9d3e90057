"""Tables in files: CSV, TSV, JSONL, Parquet, XLSX, and text with a line a row."""

import json
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from speechframe.errors import InvalidRows, SpeechframeError
from speechframe.settings.typed import expanded
from speechframe.tables.arrow import BATCH_ROWS, CARRIED_ROWS, Table, check_names, first_line
from speechframe.tables.columns import problem
from speechframe.tables.dialect import dialect_of
from speechframe.tables.frames import (
    Chunk,
    chunks_of,
    columns_of_rows,
    from_chunks,
    from_pandas,
    from_values,
    schema_of,
)

_BLOCK_BYTES = 1 << 20
_READ_BYTES = 64 << 20
"""Of a Parquet file, at once."""


def regular_file(path: str | PathLike[str], most_bytes: int | None = None) -> Path:
    """Return the path of a file that can be read to its end; nothing of it is read.

    Parameters
    ----------
    path
        ``~`` is replaced; links are followed.
    most_bytes
        The largest size that is taken.

    Raises
    ------
    ValueError
        When there is no such file, when it is a folder, device or pipe, or when it is too large.
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


def is_table_file(path: str | PathLike[str]) -> bool:
    """Return whether a file's name says that it holds a table."""
    return Path(path).suffix.lower() in _READERS


def from_file(
    path: str | PathLike[str],
    plain: str,
    carry: frozenset[str],
    sep: str | None = None,
    quoting: str | None = None,
) -> Table:
    """Return a file as a table; see :func:`speechframe.tables.table_input.open_table`."""
    reader = _READERS.get(Path(path).suffix.lower())
    if reader is None:
        words = f"{str(path)[:60]!r} is no table file"
        allowed = f"a file that ends in {', '.join(_READERS)}; for one line: ['a line'], say()"
        raise InvalidRows([problem("table", words, allowed=allowed)])
    try:
        file = regular_file(path)
    except ValueError as error:
        raise InvalidRows([problem("table", str(error), allowed="an existing file")]) from None
    try:
        table = reader(_Asked(file, plain, carry, sep, quoting))
    except SpeechframeError:
        raise
    except Exception as error:
        raise _unreadable(file, error) from error
    # What is wrong far below in a large file shows only when it is read that far.
    table.source = _read_on(file, table.source)
    return table


def _read_on(path: Path, batches: Any) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except SpeechframeError:
        raise
    except Exception as error:
        raise _unreadable(path, error) from error
    finally:
        if hasattr(batches, "close"):
            batches.close()


def _unreadable(path: Path, error: Exception) -> InvalidRows:
    allowed = ""
    if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
        allowed = "a file in UTF-8: save it again with that encoding"
    elif "CSV parse error" in str(error):
        allowed = 'as many fields in every line; sep= says what is between them, quoting="none" keeps quotes'
    return InvalidRows(
        [problem("table", f"{path.name} cannot be read: {first_line(error)}", allowed=allowed)]
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    path: Path
    plain: str
    carry: frozenset[str]
    sep: str | None
    quoting: str | None


def _read_lines(asked: _Asked) -> Table:
    notes: list[str] = []

    def lines() -> Iterator[str]:
        count = empty = 0
        # Read as text, every end of a line is \n; a form feed, U+2028 and others end none.
        with asked.path.open(encoding="utf-8-sig") as file:
            for line in file:
                count += 1
                if line.strip():
                    yield line.removesuffix("\n")
                else:
                    empty += 1
        if empty:
            notes.append(f"{empty:,} of {count:,} lines of {asked.path.name} are empty: no rows")

    return from_values(lines(), asked.plain, asked.carry, notes)


def _read_jsonl(asked: _Asked) -> Table:
    def chunks() -> Iterator[Chunk]:
        return chunks_of(_objects(asked.path), CARRIED_ROWS if asked.carry else BATCH_ROWS)

    # Read twice: a column or a kind of number may come late, and a table's types are known before its rows.
    schema = pa.schema([])
    for start, chunk in chunks():
        schema = pa.unify_schemas(
            [schema, schema_of(columns_of_rows(chunk), asked.carry, start)], promote_options="permissive"
        )
    return from_chunks(chunks(), columns_of_rows, asked.carry, schema=schema)


def _objects(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            try:
                found = json.loads(line)
            except ValueError as error:
                raise _in_line(path, number, f"is no JSON: {first_line(error)}") from None
            if not isinstance(found, dict):
                raise _in_line(path, number, f"holds a {type(found).__name__}, not an object")
            yield found


def _in_line(path: Path, number: int, words: str) -> InvalidRows:
    return InvalidRows([problem("table", f"{path.name} cannot be read: line {number} {words}")])


def _read_parquet(asked: _Asked) -> Table:
    from pyarrow import parquet

    file = parquet.ParquetFile(asked.path)
    schema, size = file.schema_arrow, CARRIED_ROWS
    if not asked.carry & {*schema.names}:
        groups = (file.metadata.row_group(i) for i in range(file.num_row_groups))
        widest = max((group.total_byte_size / max(group.num_rows, 1) for group in groups), default=1)
        size = max(CARRIED_ROWS, min(BATCH_ROWS, int(_READ_BYTES / max(widest, 1))))
    return Table(schema, file.iter_batches(size), row_count=file.metadata.num_rows)


def _read_xlsx(asked: _Asked) -> Table:
    import pandas as pd

    try:
        frame = pd.read_excel(asked.path, dtype=str, keep_default_na=False, na_values=[""])
    except ImportError:
        allowed = "pip install 'speechframe[excel]'"
        raise InvalidRows([problem("table", "reading .xlsx needs openpyxl", allowed=allowed)]) from None
    return from_pandas(frame, asked.carry)


def _read_csv(asked: _Asked) -> Table:
    from pyarrow import csv

    path = asked.path
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    shown = dialect_of(path, usual, asked.sep, is_quoted=asked.quoting != "none")
    check_names(shown.header)
    # Every column as text: inference would turn the id 0007 into 7.
    reader = csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=max(_BLOCK_BYTES, 2 * shown.longest)),
        parse_options=csv.ParseOptions(
            delimiter=shown.sep,
            quote_char='"' if shown.is_quoted else False,
            newlines_in_values=shown.breaks > 0,
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(shown.header, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )
    return Table(reader.schema, reader, notes=shown.notes(path.name))


_READERS: Mapping[str, Callable[[_Asked], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".txt": _read_lines,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".xlsx": _read_xlsx,
}
