"""Read sheets that users keep beside their tables, such as a cast or a list of pronunciations."""

from collections.abc import Sequence
from typing import Any

from speechframe.errors import InvalidRows
from speechframe.spec.locales import get_language, normalise
from speechframe.tables.table import is_missing, make_problem
from speechframe.tables.table_input import open_table

ANY = "*"
"""A cell with this text stands for any value, like an empty cell."""


def read_sheet(
    table: Any, argument: str, columns: Sequence[str], needed: Sequence[str]
) -> list[dict[str, str]]:
    """Return the rows of a sheet as texts by column. Missing values and `*` become empty texts.

    `table` is a frame, list of dicts or file. Raise InvalidRows, with `argument` as the field, if the sheet
    cannot be read or lacks one of the `needed` columns. Other columns than `columns` are ignored.
    """
    try:
        opened = open_table(table, named=columns)
        present = [name for name in columns if name in opened.schema.names]
        rows = [row for batch, _ in opened.batches() for row in batch.select(present).to_pylist()]
    except InvalidRows as error:
        raise InvalidRows([{**line, "field": argument} for line in error.problems]) from None
    if missing := [name for name in needed if name not in present]:
        allowed = f"the columns {', '.join(columns)}"
        raise InvalidRows(
            [make_problem(argument, "lacks a column", value=", ".join(missing), allowed=allowed)]
        )
    return [{name: _read_cell(row.get(name)) for name in columns} for row in rows]


def read_locale(text: str) -> str:
    """Return a locale of a sheet in the normal spelling, or "". Raise ValueError if it is wrong."""
    return normalise(text) if text else ""


def rank_locale(of_sheet: str, locale: str | None) -> int | None:
    """Return how well a locale of a sheet fits the locale of a row. None if it does not fit.

    Examples
    --------
    >>> [rank_locale(of_sheet, "pt-BR") for of_sheet in ("pt-BR", "pt", "", "pt-PT")]
    [2, 1, 0, None]
    """
    if not of_sheet:
        return 0
    try:
        tag = normalise(locale or "")
    except ValueError:
        return None
    return 2 if of_sheet == tag else 1 if of_sheet == get_language(tag) else None


def _read_cell(value: Any) -> str:
    if is_missing(value):
        return ""
    # pandas stores whole numbers as floats if a value of their column is missing.
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    return "" if text == ANY else text
