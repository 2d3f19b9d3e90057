"""Read CSV and TSV files with any quoting, as people and spreadsheet programs write them.

A file is read twice. The first pass finds the separator, the use of quotes, and the empty rows and columns.
The second pass leaves out the empty rows and gives the other rows to Arrow.
"""

import csv
import io
import re
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, cast

import pyarrow as pa
from pyarrow import csv as arrow_csv

from speechframe.errors import SettingsError, refuse
from speechframe.tables.table import check_names
from speechframe.writing.words import format_count

_BLOCK_BYTES = 1 << 20
"""Number of characters that are read at a time, and smallest block of Arrow in bytes."""
_SEPARATORS = ",\t;|"
"""Characters that are recognised as the separator of a file."""
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[,;\t|]*\s*', re.IGNORECASE)
"""Pattern of a first line such as ``sep=;``, which names the separator for Excel."""


class _Record(NamedTuple):
    """One record of a file. A quoted field may contain line ends, so a record may have several lines."""

    number: int  # number of the record's first line; the first line of a file is 1
    lines: list[str]
    fields: list[str]
    is_broken: bool  # True if a quote that begins a field is not closed

    @property
    def text(self) -> str:
        """The text of the record in the file, line ends included."""
        return self.lines[0] if len(self.lines) == 1 else "".join(self.lines)


class _Layout(NamedTuple):
    """The result of the first pass over a file."""

    skipped: int  # number of lines before the first record
    header_end: int  # number of the header's last line
    is_even: bool  # True if no row has surplus fields, and no row consists only of separators
    sep: str
    is_quoted: bool  # False if quotes are ordinary characters
    header: list[str]
    width: int  # number of columns up to the last column with a name or a value
    blank: set[int]  # positions of columns without a name and without any value
    longest: int  # number of characters of the longest record
    breaks: int  # number of lines inside a quoted field that begins on an earlier line


def read_csv_batches(
    path: Path, encoding: str, notes: list[str], default_sep: str, sep: str | None, *, is_quoted: bool
) -> pa.RecordBatchReader:
    """Return a reader of the rows of a CSV file, whose values are all texts.

    `sep` separates the fields if it is given. Otherwise a first line ``sep=;`` or the header may show the
    separator, and `default_sep` is the default. If `is_quoted` is False, quotes are ordinary characters.
    Remarks on lines and columns that are left out are appended to `notes`. Raise SettingsError if the quotes
    are so unclear that lines may be lost inside a field. Raise InvalidRows if the file has no header or equal
    names in it.
    """
    with path.open(encoding=encoding, newline="") as file:
        layout = _find_layout(file, path.name, notes, default_sep, sep, is_quoted=is_quoted)
    kept = [position for position in range(layout.width) if position not in layout.blank]
    names = [layout.header[position] for position in kept]
    if not names:
        fault, allowed = f"{path.name} has no header", "a first line with the names of the columns"
        raise refuse("table", fault, allowed=allowed)
    check_names(names)
    # Arrow selects columns by name. Use numbers as names, because columns to leave out may have equal names.
    numbers = [str(position) for position in range(layout.width)]
    kept_numbers = [str(position) for position in kept]
    reader = arrow_csv.open_csv(
        cast("IO[bytes]", _TextFile(_read_cleaned_rows(path, encoding, layout))),
        # A block must be larger than the longest row. A character has at most four bytes.
        read_options=arrow_csv.ReadOptions(
            block_size=max(_BLOCK_BYTES, 2 * 4 * layout.longest), column_names=numbers
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=layout.sep,
            quote_char='"' if layout.is_quoted else False,
            newlines_in_values=layout.breaks > 0,
        ),
        # Read every column as text, because type inference would convert the id 0007 to 7.
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(kept_numbers, pa.string()),
            include_columns=kept_numbers,
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        ),
    )
    schema = pa.schema([(name, pa.string()) for name in names])
    batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, batches)


class _Quotes:
    """What the records so far show about the use of quotes in a file."""

    def __init__(self) -> None:
        self.breaks = 0  # number of lines inside a quoted field that begins on an earlier line
        self.broken = 0  # number of the first line with a quote that is not closed, or 0
        self._is_enclosed = False  # True if a field is in quotes
        self._is_proven = False  # True if a field in quotes contains a quote or a separator
        # First line and number of lines of each record whose lines all look like rows of their own.
        self._rowlike: list[tuple[int, int]] = []

    def learn_record(self, record: _Record, sep: str, header: list[str]) -> None:
        """Learn from a record that contains a quote."""
        text, lines = record.text, record.lines
        if record.is_broken:
            self.broken = self.broken or record.number
            return
        if text.startswith('"') or f'{sep}"' in text:
            self._is_enclosed = True
            self._is_proven |= '""' in text or (len(lines) == 1 and text.count(sep) >= len(record.fields))
            if len(lines) > 1 and all(line.count(sep) == len(header) - 1 > 0 for line in lines):
                self._rowlike.append((record.number, len(lines)))
        self.breaks += len(lines) - 1

    def check(self, name: str) -> None:
        """Raise SettingsError if lines may be lost inside a quoted field."""
        # A record of two lines that look like rows is accepted if other fields prove that the file uses
        # quotes.
        doubts = [line for line, count in self._rowlike if count > 2 or not self._is_proven]  # noqa: PLR2004
        if self.broken and self._is_enclosed:
            doubts.append(self.broken)
        if doubts:
            raise SettingsError(
                f"{name}: on line {min(doubts)} a field begins with a quote, and its end is not clear. So "
                'lines may be swallowed. If quotes are plain characters, set quoting="none". Otherwise '
                "repair that line, or save the table as Parquet or XLSX. Nothing was sent."
            )

    def describe(self, name: str) -> list[str]:
        """Return remarks for the user on the use of quotes."""
        breaks, broken = self.breaks, self.broken
        inside = (
            f"{format_count(breaks, 'line')} of {name} inside a quoted field that begins on an earlier line, "
            'so not rows (quoting="none" makes a row of each)'
        )
        unclosed = f"quotes of {name} are part of its texts, because a quote on line {broken} is not closed"
        return [*([inside] if breaks else []), *([unclosed] if broken else [])]


def _find_start(file: IO[str], default_sep: str, sep: str | None) -> tuple[int, str]:
    """Return the number of lines before the first record, and the separator of a file."""
    first, skipped = file.readline(), 0
    if named := _SEPARATOR_LINE.fullmatch(first):
        first, skipped, sep = file.readline(), 1, sep or named[1]
    while first and _is_blank(first, _SEPARATORS):
        first = file.readline()
    most_frequent = max(_SEPARATORS, key=first.count)
    return skipped, sep or (
        default_sep if default_sep in first or most_frequent not in first else most_frequent
    )


def _find_layout(
    file: IO[str], name: str, notes: list[str], default_sep: str, sep: str | None, *, is_quoted: bool
) -> _Layout:
    """Read a file and return its layout. Raise SettingsError if lines may be lost inside a quoted field."""
    skipped, sep = _find_start(file, default_sep, sep)
    quotes, header, header_end = _Quotes(), list[str](), 0
    nameless = set[int]()  # positions of fields without a name, and so far without a value
    longest = widest = blank_rows = 0
    is_even = True
    for record in _read_records(file, skipped, sep, is_quoted=is_quoted):
        text, fields = record.text, record.fields
        longest = max(longest, len(text))
        if _is_blank(text, sep):
            blank_rows += 1
            is_even = is_even and not text.strip("\r\n")
            continue
        if not header:
            header, header_end = fields, record.number + len(record.lines) - 1
            nameless = {position for position, one in enumerate(header) if not one.strip()}
        elif nameless:
            nameless -= {position for position in nameless if position < len(fields) and fields[position]}
        widest = max(widest, len(fields))
        if is_quoted and '"' in text:
            quotes.learn_record(record, sep, header)
    quotes.check(name)
    width = max((position + 1 for position in range(len(header)) if position not in nameless), default=0)
    blank = {position for position in nameless if position < width}
    notes += [*describe_left_out(name, blank_rows, len(blank) + widest - width), *quotes.describe(name)]
    return _Layout(
        skipped,
        header_end,
        is_even and widest == width,
        sep,
        is_quoted and not quotes.broken,
        header,
        width,
        blank,
        longest,
        quotes.breaks,
    )


def describe_left_out(name: str, rows: int, columns: int) -> list[str]:
    """Return a list with the remark on the rows and columns of a file that are left out, or an empty list.

    Examples
    --------
    >>> describe_left_out("lines.csv", 1, 2)
    ['left out of lines.csv: 1 row without a value, 2 columns without a name and a value']
    """
    parts = [
        f"{format_count(count, thing)} {rest}"
        for count, thing, rest in (
            (rows, "row", "without a value"),
            (columns, "column", "without a name and a value"),
        )
        if count
    ]
    return [f"left out of {name}: {', '.join(parts)}"] if parts else []


def _read_records(file: IO[str], skipped: int, sep: str, *, is_quoted: bool) -> Iterator[_Record]:
    """Yield the records of a file after the first `skipped` lines.

    A quote that is not closed counts as an ordinary character.
    """
    file.seek(0)
    for _ in range(skipped):
        file.readline()
    put_back: deque[str] = deque()
    lines = iter(lambda: put_back.popleft() if put_back else file.readline(), "")
    number = skipped
    for line in lines:
        number += 1
        is_broken = False
        if is_quoted and '"' in line and len(line) <= csv.field_size_limit():
            record_lines = [line]
            try:
                fields = next(csv.reader(_collect_lines(record_lines, lines), delimiter=sep, strict=True))
                yield _Record(number, record_lines, fields, is_broken=False)
                number += len(record_lines) - 1
                continue
            except csv.Error:
                # A quote is not closed, or a closing quote is followed by other text than a separator or line
                # end.
                put_back.extendleft(reversed(record_lines[1:]))
                is_broken = True
        yield _Record(number, [line], line.rstrip("\r\n").split(sep), is_broken)


def _collect_lines(record_lines: list[str], lines: Iterator[str]) -> Iterator[str]:
    """Yield the first line of a record, `record_lines[0]`, and then further lines.

    The further lines are appended to `record_lines`.
    """
    yield record_lines[0]
    for line in lines:
        record_lines.append(line)
        yield line


def _is_blank(text: str, separators: str) -> bool:
    return not text.strip(f"{separators}\r\n")


def _read_cleaned_rows(path: Path, encoding: str, layout: _Layout) -> Iterator[str]:
    """Yield the text of a file for Arrow, without the header, empty rows, and surplus separators."""
    yield "\n"  # Arrow refuses a file without any line
    with path.open(encoding=encoding, newline="") as file:
        if layout.is_even:
            for _ in range(layout.header_end):
                file.readline()
            yield from iter(partial(file.read, _BLOCK_BYTES), "")
            return
        for record in _read_records(file, layout.skipped, layout.sep, is_quoted=layout.is_quoted):
            text = record.text
            if record.number <= layout.header_end or _is_blank(text, layout.sep):
                continue
            surplus = len(record.fields) - layout.width
            if surplus > 0 and (row := text.rstrip("\r\n")).endswith(layout.sep * surplus):
                text = f"{row[:-surplus]}\n"
            yield text


class _TextFile(io.RawIOBase):
    """A binary file that Arrow can read. Its content is some texts in UTF-8."""

    def __init__(self, texts: Iterator[str]) -> None:
        self._texts, self._rest = texts, b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, fewer than `size` only at the end."""
        parts, count = [self._rest], len(self._rest)
        while count < size and (text := next(self._texts, "")):
            parts.append(text.encode())
            count += len(parts[-1])
        found = b"".join(parts)
        self._rest = found[size:]
        return found[:size]
