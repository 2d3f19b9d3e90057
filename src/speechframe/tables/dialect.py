"""How a CSV or TSV file was written: what separates its fields, and whether quotes are part of its texts."""

import csv
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from speechframe.errors import SettingsError


@dataclass(frozen=True)
class Dialect:
    """What a CSV file shows of how it was written."""

    sep: str
    is_quoted: bool  # Quotes around a field are no part of it.
    has_breaks: bool  # A quoted field goes on over several lines.
    header: list[str]
    longest: int  # Characters of the longest row.
    notes: list[str]  # What is to be said of lines that become no row of their own.


def dialect_of(path: Path, usual: str, sep: str | None, *, is_quoted: bool) -> Dialect:
    """Return how a CSV file was written, or raise SettingsError where its quotes may swallow lines.

    `usual` separates fields where neither the caller (`sep`) nor the header shows anything else; unless
    `is_quoted`, quotes are characters like all others.
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
                # Neither a separator nor the end of the line follows a closing quote, or nothing closes one.
                broken = broken or number
                put_back.extendleft(reversed(record[1:]))
                continue
            text = "".join(record)
            if text.startswith('"') or f'{sep}"' in text:
                is_enclosed = True
                # Only where fields are quoted can one hold a quote or a separator.
                is_proven |= '""' in text or (len(record) == 1 and text.count(sep) >= len(fields))
                if len(record) > 1 and all(one.count(sep) == len(header) - 1 > 0 for one in record):
                    rowlike.append((number, len(record)))
            longest = max(longest, len(text))
            breaks += len(record) - 1
            number += len(record) - 1
    # Two lines that both look like rows may be one text, in a file that is certainly quoted.
    at_fault = [line for line, count in rowlike if count > 2 or not is_proven]  # noqa: PLR2004
    if broken and is_enclosed:
        at_fault.append(broken)
    if at_fault:
        raise SettingsError(
            f"{path.name}: on line {min(at_fault)} a field begins with a quote, and its end is not clear, "
            'so lines may be swallowed. quoting="none" takes quotes as characters like all others; '
            "otherwise mend that line, or save the table as Parquet or XLSX. Nothing was sent."
        )
    notes = {
        f"{empty:,} lines of {path.name} are empty: no rows": empty,
        f"{breaks:,} lines of {path.name} belong to a quoted field that begins on a line before: no rows of "
        'their own (quoting="none" makes a row of each)': breaks,
        f"quotes of {path.name} are part of its texts: nothing ends the one on line {broken}": broken,
    }
    said = [words for words, is_so in notes.items() if is_so]
    return Dialect(sep, is_quoted and not broken, breaks > 0, header, longest, said)


def _recorded(record: list[str], lines: Iterator[str]) -> Iterator[str]:
    """Yield the first line of a record and the lines after it, noting each one."""
    yield record[0]
    for line in lines:
        record.append(line)
        yield line
