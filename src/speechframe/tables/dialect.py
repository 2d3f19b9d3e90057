"""How a CSV or TSV file was written: what separates its fields, and whether quotes are part of its texts."""

import csv
import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speechframe.errors import SettingsError

_MOST_FIELD_BYTES = 1 << 20
"""A quoted field that goes on for longer over several lines is taken for one that nothing ends."""
_SEPARATORS = ",\t;|"
_MARK = b"\xef\xbb\xbf"


@dataclass
class Dialect:
    """What a CSV file shows of how it was written.

    Attributes
    ----------
    sep
        What separates its fields.
    is_quoted
        Quotes around a field are no part of it.
    header
        The names of its columns.
    enclosed
        Fields stand in quotes.
    proven
        Some of them hold a separator or a quote: only quoting lets them do so.
    broken
        The first line with a field that begins with a quote and does not end with one; 0 for none.
    breaks
        Lines that go on a quoted field of the line before.
    rowlike
        Quoted fields over several lines of which each looks like a row: first line, and how many lines.
    empty
        Empty lines.
    longest
        Bytes of the longest row.
    """

    sep: str
    is_quoted: bool
    header: list[str]
    enclosed: bool = False
    proven: bool = False
    broken: int = 0
    breaks: int = 0
    rowlike: list[tuple[int, int]] = field(default_factory=list)
    empty: int = 0
    longest: int = 0

    def notes(self, name: str) -> list[str]:
        """Return what is to be said of lines that become no row of their own."""
        notes = []
        if self.empty:
            notes.append(f"{self.empty:,} lines of {name} are empty: no rows")
        if self.breaks:
            notes.append(
                f"{self.breaks:,} lines of {name} belong to a quoted field that begins on a line before: no "
                'rows of their own (quoting="none" makes a row of each)'
            )
        if self.broken:
            notes.append(
                f"quotes of {name} are part of its texts: nothing ends the one on line {self.broken}"
            )
        return notes


def dialect_of(path: Path, usual: str, sep: str | None, *, is_quoted: bool) -> Dialect:
    """Return how a CSV file was written, or refuse one whose quotes may swallow lines.

    Parameters
    ----------
    path
        The file; it is read once.
    usual
        What separates fields where the header shows nothing else.
    sep
        What the caller says of it.
    is_quoted
        False where quotes are characters like all others.

    Raises
    ------
    SettingsError
        With the number of the line.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        sep = sep or _separator(file.readline(), usual)
        file.seek(0)
        header = next(
            csv.reader(file, delimiter=sep, quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE), []
        )
    shown = Dialect(sep, is_quoted, header)
    with path.open("rb") as file:
        file.seek(len(_MARK) if file.read(len(_MARK)) == _MARK else 0)
        _read_records(_Lines(file), shown)
    # Two lines that both look like rows may be one text, in a file that is certainly quoted.
    at_fault = [line for line, count in shown.rowlike if count > 2 or not shown.proven]  # noqa: PLR2004
    if shown.broken and shown.enclosed:
        at_fault.append(shown.broken)
    if at_fault:
        raise SettingsError(
            f"{path.name}: on line {min(at_fault)} a field begins with a quote, and its end is not clear, "
            'so lines may be swallowed. quoting="none" takes quotes as characters like all others; '
            "otherwise mend that line, or save the table as Parquet or XLSX. Nothing was sent."
        )
    shown.is_quoted = is_quoted and not shown.broken
    return shown


def _separator(line: str, usual: str) -> str:
    found = max(_SEPARATORS, key=line.count)
    return usual if usual in line or found not in line else found


class _Lines:
    """The lines of a file, some of which may be put back."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._put_back: deque[bytes] = deque()

    def next(self) -> bytes:
        return self._put_back.popleft() if self._put_back else self._file.readline()

    def put_back(self, lines: list[bytes]) -> None:
        self._put_back.extendleft(reversed(lines))

    def to_next_quote(self, lines: list[bytes]) -> bool:
        """Add lines up to the next with a quote, and return whether there is one."""
        size = sum(map(len, lines))
        while size < _MOST_FIELD_BYTES and (line := self.next()):
            lines.append(line)
            size += len(line)
            if b'"' in line:
                return True
        return False


def _read_records(lines: _Lines, shown: Dialect) -> None:
    sep, number = shown.sep.encode(), 0
    cut = re.escape(sep)
    any_field = rb'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\n%b][^\n%b]*+|)' % (cut, cut)
    whole = re.compile(rb"%b(?:%b%b)*+\r?\n?" % (any_field, cut, any_field))
    good = re.compile(rb"(?:%b%b)*+" % (any_field, cut))
    closed = re.compile(rb'"[^"]*+(?:""[^"]*+)*+"')
    while line := lines.next():
        number += 1
        shown.longest = max(shown.longest, len(line))
        if not shown.is_quoted or b'"' not in line:
            shown.empty += not line.strip(b"\r\n")
            continue
        record = [line]
        while not (is_whole := whole.fullmatch(text := b"".join(record))):
            begun = good.match(text)
            # Neither a separator nor the end of the line follows the closing quote, or nothing closes it.
            if closed.match(text, begun.end() if begun else 0) or not lines.to_next_quote(record):
                break
        if is_whole:
            _note(shown, number, record, text, sep)
            number += len(record) - 1
        else:
            shown.broken = shown.broken or number
            lines.put_back(record[1:])


def _note(shown: Dialect, number: int, lines: list[bytes], record: bytes, sep: bytes) -> None:
    if not record.startswith(b'"') and sep + b'"' not in record:
        return
    width = len(shown.header)
    shown.enclosed = True
    shown.proven |= b'""' in record or (len(lines) == 1 and record.count(sep) >= width)
    shown.longest = max(shown.longest, len(record))
    shown.breaks += len(lines) - 1
    if len(lines) > 1 and width > 1 and all(line.count(sep) == width - 1 for line in lines):
        shown.rowlike.append((number, len(lines)))
