"""Read sheets that users keep beside their tables, such as a cast or a list of pronunciations."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from speechframe.errors import InvalidRows, make_problem
from speechframe.spec.locales import get_language, normalise
from speechframe.tables.table import Table, is_missing
from speechframe.tables.table_input import open_table

ANY = "*"
"""A cell with this text stands for any value, like an empty cell."""


def read_table(given: Any, argument: str, named: Iterable[str] = ()) -> tuple[pa.Table, list[str], Table]:
    """Return a whole table, the ids of its rows, and the opened table. `argument` is the field of errors."""
    ids: list[str] = []
    batches = []
    try:
        opened = open_table(given, named=named)
        for batch, names in opened.batches():
            batches.append(batch)
            ids += names
    except InvalidRows as error:
        raise InvalidRows([{**line, "field": argument} for line in error.problems]) from None
    return pa.Table.from_batches(batches, opened.schema), ids, opened


def read_sheet(
    table: Any,
    argument: str,
    columns: Sequence[str],
    read_row: Callable[[dict[str, str]], tuple[Hashable, list[Any]]],
) -> list[list[Any]]:
    """Return the lines of a sheet. Raise InvalidRows for faulty rows and for two lines with the same key.

    `read_row` gets a row as texts by column, with empty texts for missing values and `*`, and with the locale
    in normal spelling. It returns a key and the line, or raises ValueError.
    """
    found_table, _, _ = read_table(table, argument, columns)
    present = [name for name in found_table.column_names if name.strip().casefold() in columns]
    problems: list[str] = []
    found: dict[Hashable, tuple[int, list[Any]]] = {}
    for number, cells in enumerate(found_table.select(present).to_pylist(), 1):
        given = {name.strip().casefold(): _read_cell(value) for name, value in cells.items()}
        row = {name: given.get(name, "") for name in columns}
        try:
            row["locale"] = normalise(row["locale"]) if row["locale"] else ""
            key, line = read_row(row)
        except ValueError as error:
            problems.append(f"row {number}: {error}")
            continue
        first, known = found.setdefault(key, (number, line))
        if known != line:
            problems.append(
                f"rows {first} and {number} differ for {', '.join(part or ANY for part in line[:2])}"
            )
    if problems:
        allowed = f"the columns {', '.join(columns)}, and one row for each combination"
        raise InvalidRows([make_problem(argument, fault, allowed=allowed) for fault in problems])
    return [line for _, line in found.values()]


def rank_locale(of_sheet: str, locale: str | None) -> int | None:
    """Return how a locale of a sheet fits a row: 2 for its locale, 1 for its language, 0 for any, or None."""
    if not of_sheet:
        return 0
    with suppress(ValueError):
        tag = normalise(locale or "")
        return 2 if of_sheet == tag else 1 if of_sheet == get_language(tag) else None
    return None


def _read_cell(value: Any) -> str:
    # pandas stores whole numbers as floats if a value of their column is missing.
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    return "" if is_missing(value) or text == ANY else text
