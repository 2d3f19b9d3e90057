"""Read strings from CSV, TSV and XLSX, and write the column of a locale. Other cells stay as they are."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from speechframe.errors import InvalidRows, refuse
from speechframe.strings.encodings import decode_file
from speechframe.strings.entries import (
    TRANSLATED,
    UNTRANSLATED,
    StringEntry,
    StringsFile,
    get_newline,
    read_locale,
)

_ID_NAMES = ("id", "key", "string_id", "row_id", "identifier", "name")
_TEXT_NAMES = ("text", "source")
_OWN_NAMES = ("context", "character", "state")
_LOCALE = re.compile(r"[A-Za-z]{2}|[A-Za-z]{2,3}[-_]\w[\w-]*")
_SEPARATORS = ",\t;|"


def read(path: Path) -> list[StringsFile]:
    """Return the strings of a sheet as a file for each column of a locale, or else as one file."""
    notes: list[str] = []
    header, *rows = read_rows(path, notes)
    id_at, text_at = (_find_column(header, names, path.name) for names in (_ID_NAMES, _TEXT_NAMES))
    locales = {at: tag for at, tag in enumerate(map(_find_locale, header)) if tag is not None}
    files = [StringsFile(path.name, [], tag) for tag in locales.values()] or [StringsFile(path.name, [])]
    names = [name.lower() if name.lower() in _OWN_NAMES else name for name in header]
    rest = {at: name for at, name in enumerate(names) if name and at not in {id_at, text_at, *locales}}
    empty = 0
    for number, row in enumerate(rows, 2):
        cells = [*row, *[""] * (len(header) - len(row))]
        if not cells[id_at].strip():
            empty += 1
            continue
        extra = {name: cells[at] or None for at, name in rest.items()}
        context, character, state = (extra.pop(name, None) for name in _OWN_NAMES)
        for file, at in zip(files, locales or [None], strict=True):
            target = "" if at is None else cells[at]
            given = state or extra.pop(f"state.{file.locale}", None)
            usual = None if at is None else TRANSLATED if target else UNTRANSLATED
            entry = StringEntry(cells[id_at], number, cells[text_at], target, given or usual, context)
            entry.character, entry.extra = character, extra
            file.entries.append(entry)
    if empty:
        notes.append(f"{empty:,} rows of {path.name} without an id: not read")
    files[0].notes = notes
    return files


def _find_column(header: Sequence[str], wanted: Sequence[str], name: str) -> int:
    names = [one.lower() for one in header]
    found = next((names.index(one) for one in wanted if one in names), None)
    if found is None:
        raise refuse(name, f"has no column {' or '.join(map(repr, wanted[:2]))}", "a header with these names")
    return found


def _find_locale(name: str) -> str | None:
    """Return the locale that is the name of a column, such as ``pt-BR`` or ``de``, or None."""
    if name.lower() != "id" and _LOCALE.fullmatch(name):
        with suppress(InvalidRows):
            return read_locale(name, name)
    return None


def read_rows(path: Path, notes: list[str]) -> list[list[str]]:
    """Return the rows of a sheet as texts, the header first, without spaces around its names."""
    if path.suffix.lower() == ".xlsx":
        import openpyxl

        sheet = openpyxl.load_workbook(path, data_only=True).worksheets[0]
        rows = [[_show(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    else:
        text = decode_file(path, notes).text
        rows = [fields for _, fields in _split_records(text, _find_separator(path, text))]
    if not rows:
        raise refuse(path.name, "is empty", "a header and a row for each string")
    return [[name.strip() for name in rows[0]], *rows[1:]]


def _show(cell: Any) -> str:
    """Return the value of a cell as text."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return "" if cell is None else str(cell)


def _find_separator(path: Path, text: str) -> str:
    header = text.partition("\n")[0]
    return "\t" if path.suffix.lower() == ".tsv" else max(_SEPARATORS, key=header.count)


def _split_records(text: str, separator: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each record of a CSV text as written, with its fields."""
    lines: list[str] = []

    def read_lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):
            lines.append(line)
            yield line

    for fields in csv.reader(read_lines(), delimiter=separator):
        yield "".join(lines), fields
        lines.clear()


def fill(path: Path, texts: Mapping[str, str], locale: str) -> bytes:
    """Return a sheet with texts by id in the column of a locale. A missing column is added."""
    if not texts:
        return path.read_bytes()
    if path.suffix.lower() == ".xlsx":
        return _fill_workbook(path, texts, locale)
    decoded = decode_file(path, [])
    separator, newline = _find_separator(path, decoded.text), get_newline(decoded.text)
    made = io.StringIO(newline="")
    writer = csv.writer(made, delimiter=separator, lineterminator=newline)
    records = _split_records(decoded.text, separator)
    record, header = next(records)
    id_at, at = _find_target(header, locale, path.name)
    is_new = at == len(header)
    writer.writerow([*header, locale]) if is_new else made.write(record)
    for record, fields in records:
        value = texts.get(fields[id_at]) if len(fields) > id_at else None
        if value is None and not (is_new and fields):
            made.write(record)
            continue
        cells = [*fields, *[""] * (at + 1 - len(fields))]
        cells[at] = value or cells[at]
        writer.writerow(cells)
    return decoded.encode(made.getvalue())


def _find_target(header: Sequence[str], locale: str, name: str) -> tuple[int, int]:
    """Return the positions of the id and of the locale, which may be behind the last column."""
    columns = [_find_locale(one.strip()) for one in header]
    at = columns.index(locale) if locale in columns else len(header)
    return _find_column([one.strip() for one in header], _ID_NAMES, name), at


def _fill_workbook(path: Path, texts: Mapping[str, str], locale: str) -> bytes:
    import openpyxl

    book = openpyxl.load_workbook(path)
    sheet = book.worksheets[0]
    header = [_show(cell.value) for cell in sheet[1]]
    id_at, at = _find_target(header, locale, path.name)
    if at == len(header):
        sheet.cell(1, at + 1, locale)
    for row in range(2, sheet.max_row + 1):
        if (value := texts.get(_show(sheet.cell(row, id_at + 1).value))) is not None:
            cell = sheet.cell(row, at + 1, value)
            cell.data_type = "s"  # a text that begins with "=" is not a formula
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()
