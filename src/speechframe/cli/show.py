"""Print tables, lines and JSON to standard output, and notes to standard error."""

import contextlib
import io
import json
import math
import os
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from speechframe.cli.docstrings import replace_arguments, replace_columns
from speechframe.writing.words import escape_unprintable, replace_unprintable
from speechframe.writing.words import format_count as format_count  # noqa: PLC0414 - the commands use it from here

_COLUMN_GAP = "  "
"""Space between two columns of a table."""
_MIN_LAST_WIDTH = 8
"""Smallest width of the last column of a table, in columns of the terminal."""
_MAX_SHOWN_PROBLEMS = 20
"""Number of problems that `format_problems` shows."""
_MAX_VALUE_WIDTH = 40
"""Largest number of characters of a value in `format_problems`."""
_UNIT_STEP = 1024
"""Number of bytes in a KB, and of KB in an MB."""


def write_line(text: object = "") -> None:
    """Write a line to standard output. Control characters of a terminal become U+FFFD."""
    print(replace_unprintable(str(text)), flush=True)


def write_note(text: str) -> None:
    """Write a line to standard error like :func:`write_line`, but ignore a closed pipe."""
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.write(replace_unprintable(text) + "\n")
        sys.stderr.flush()


def print_json(facts: Any) -> None:
    """Write values to standard output as one line of JSON."""
    write_json(json.dumps(facts, default=str, ensure_ascii=False))


def write_json(text: str) -> None:
    """Write JSON to standard output. Control characters become escapes of JSON, so no value changes."""
    print(escape_unprintable(text), flush=True)


def write_table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, is_cut: bool = True) -> None:
    """Write a table to standard output. If `is_cut`, shorten its last column to the width of the terminal."""
    width = shutil.get_terminal_size().columns if is_cut and sys.stdout.isatty() else None
    write_line(format_table(head, rows, width=width))


def format_table(head: Sequence[str], rows: Iterable[Sequence[Any]], *, width: int | None = None) -> str:
    """Return rows as a text with aligned columns.

    Parameters
    ----------
    head
        Names of the columns.
    rows
        Values of each row. None and NaN become empty cells. Line breaks become spaces.
    width
        Width of a line in columns of the terminal. The last column is shortened to fit, but not to less than
        8 columns. With None (default) nothing is shortened.

    Examples
    --------
    >>> print(format_table(["voice", "locale"], [["nora", "en-US"], ["mei", "zh-CN"]]))
    VOICE  LOCALE
    nora   en-US
    mei    zh-CN
    """
    lines = [
        [name.upper().replace("_", " ") for name in head],
        *([_format_cell(v) for v in row] for row in rows),
    ]
    widths = [max(map(_count_columns, column)) for column in zip(*lines, strict=True)]
    if width is not None:
        widths[-1] = max(
            _MIN_LAST_WIDTH, min(widths[-1], width - sum(widths[:-1]) - len(_COLUMN_GAP) * (len(head) - 1))
        )
    return "\n".join(_COLUMN_GAP.join(map(_fit, line, widths)).rstrip() for line in lines)


def _format_cell(value: Any) -> str:
    if isinstance(value, (list, tuple)) or hasattr(value, "tolist"):
        return ", ".join(map(str, value))
    # pandas has NaN for a missing text.
    is_missing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if is_missing else " ".join(str(value).split())


def _count_columns(text: str) -> int:
    # Chinese, Japanese and Korean characters take two columns. Combining marks take none.
    shown = [c for c in text if not unicodedata.combining(c)]
    return sum(1 + (unicodedata.east_asian_width(c) in {"W", "F"}) for c in shown)


def _fit(text: str, width: int) -> str:
    if _count_columns(text) <= width:
        return text + " " * (width - _count_columns(text))
    while text and _count_columns(text) >= width:
        text = text[:-1]
    return text + "…"


def format_size(number: float) -> str:
    """Return a number of bytes as text in B, KB, MB or GB. Infinity is "no limit".

    Examples
    --------
    >>> format_size(900), format_size(61_440), format_size(10 * 2**30), format_size(float("inf"))
    ('900 B', '60.0 KB', '10.0 GB', 'no limit')
    """
    if number == float("inf"):
        return "no limit"
    for unit, decimals in (("B", 0), ("KB", 1), ("MB", 1)):
        # Compare the rounded number, so that the text never shows 1,024.0 of a unit.
        if round(number, decimals) < _UNIT_STEP:
            return f"{number:,.{decimals}f} {unit}"
        number /= _UNIT_STEP
    return f"{number:,.1f} GB"


def format_seconds(number: float | None) -> str | None:
    """Return a length in seconds as text, or None for None.

    Examples
    --------
    >>> format_seconds(2.345), format_seconds(None)
    ('2.3 s', None)
    """
    return None if number is None else f"{number:,.1f} s"


def format_time(time: datetime) -> str:
    """Return a time as text in the local time zone, such as ``2026-03-01 14:05``."""
    return time.astimezone().strftime("%Y-%m-%d %H:%M")


def format_problems(problems: Sequence[Mapping[str, Any]], total: int, options: Collection[str] = ()) -> str:
    """Return the first problems of invalid rows as a table. It names options instead of Python arguments.

    `total` is the number of all problems, of which `problems` may contain only the first. `options` are the
    names of the command's options.
    """
    has_rows = any(p.get("row_id") is not None for p in problems)
    head = [*(["row"] if has_rows else []), "field", "problem", "value", "allowed"]
    rows = [
        [
            *([p.get("row_id")] if has_rows else []),
            p.get("field"),
            _as_options(p, "problem", options),
            _shorten_value(p.get("value")),
            _as_options(p, "allowed", options),
        ]
        for p in problems[:_MAX_SHOWN_PROBLEMS]
    ]
    more = f"\n... and {total - len(rows):,} more" if total > len(rows) else ""
    return format_table(head, rows) + more


def _as_options(problem: Mapping[str, Any], name: str, options: Collection[str]) -> str:
    words = replace_columns(str(problem.get(name) or ""), str(problem.get("field") or ""))
    return replace_arguments(words, options)


def _shorten_value(value: Any) -> str:
    text = "" if value is None else " ".join(str(value).split())
    return text if len(text) <= _MAX_VALUE_WIDTH else text[: _MAX_VALUE_WIDTH - 1] + "…"


def prepare_output() -> None:
    """Prepare standard output and standard error, so that printing any character works.

    Standard output then escapes characters that its encoding lacks, as standard error always does. The null
    device replaces an output that is closed (``2>&-``). Otherwise the next file that is opened would get the
    descriptor of that output, and messages would end up in the file.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def redirect_output(number: int = 1) -> None:
    """Redirect the output with descriptor `number` (default 1) to the null device.

    After a reader closed the pipe, Python can exit without an error only if the output is redirected.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def flush_error_output() -> None:
    """Flush standard error. If its pipe is closed, redirect it, so that the exit code stays the same."""
    try:
        sys.stderr.flush()
    except BrokenPipeError:
        redirect_output(2)
