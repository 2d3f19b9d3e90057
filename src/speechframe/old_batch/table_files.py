"""Tables in files: CSV, TSV, plain lines, JSONL, Parquet and XLSX, each as a :class:`TableInput`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.old_batch.table_arrow import from_reader, read_batches, without_audio
from speechframe.old_batch.table_input import (
    BATCH_ROWS,
    CARRIED_ROWS,
    TEXT_COLUMN,
    TableInput,
    check_names,
    problem,
)
from speechframe.old_batch.table_pandas import frame_of, from_pandas
from speechframe.settings.typed import expanded

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["at_home", "is_table_file", "readers", "way_out"]


def readers() -> dict[str, Callable[[Path, frozenset[str]], TableInput]]:
    """Return the end of a file's name to what reads such files."""
    return {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".txt": _read_lines,
        ".jsonl": _read_jsonl,
        ".ndjson": _read_jsonl,
        ".parquet": _read_parquet,
        ".pq": _read_parquet,
        ".xlsx": _read_xlsx,
    }


def at_home(path: "str | PathLike[str]") -> Path:
    """Return a path with its ``~`` replaced; as it is where nobody lives there, and so nothing either."""
    try:
        return expanded(path)
    except ValueError:
        return Path(path)


def is_table_file(path: Path) -> bool:
    """Return whether a file's name says that it holds a table."""
    return path.suffix.lower() in readers()


def way_out(error: BaseException) -> str:
    """Return what mends a file that could not be read, where that is known."""
    if "straddling" in str(error):
        return "values of less than 1 MB; save it as Parquet, which takes longer ones"
    is_encoding = isinstance(error, UnicodeDecodeError) or "UTF8" in str(error)
    return "a file in UTF-8: save it again with that encoding" if is_encoding else ""


def _read_csv(path: Path, carry: frozenset[str]) -> TableInput:
    from pyarrow import csv

    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="") as file:
        import csv as plain_csv

        header = next(plain_csv.reader(file, delimiter=delimiter), [])
    check_names(header)
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
    return from_reader(reader, carry)


def _read_lines(path: Path, carry: frozenset[str]) -> TableInput:
    # Read as text, every end of a line is \n. splitlines() would also cut at a form feed, U+2028 and others.
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    # One line a row, whatever the verb calls them.
    plain = next(iter(carry), TEXT_COLUMN)
    return from_pandas(frame_of({plain: [line for line in lines if line.strip()]}, object), plain, carry)


def _read_jsonl(path: Path, carry: frozenset[str]) -> TableInput:
    from pyarrow import json

    return from_reader(json.read_json(path).to_reader(BATCH_ROWS), carry)


def _read_parquet(path: Path, carry: frozenset[str]) -> TableInput:
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    schema = file.schema_arrow
    wanted = list(dict.fromkeys([*without_audio(schema, carry).names, *(carry & {*schema.names})]))
    rows = CARRIED_ROWS if carry & {*wanted} else BATCH_ROWS
    return read_batches(file.iter_batches(rows, columns=wanted), schema, carry)


def _read_xlsx(path: Path, carry: frozenset[str]) -> TableInput:
    import pandas as pd

    try:
        frame = pd.read_excel(path, dtype=str, keep_default_na=False, na_values=[""])
    except ImportError:
        raise InvalidRows(
            [problem("table", "reading .xlsx needs openpyxl", allowed="pip install 'speechframe[excel]'")]
        ) from None
    return from_pandas(frame, carry=carry)
