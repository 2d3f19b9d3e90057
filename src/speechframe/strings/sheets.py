"""Read strings from CSV, TSV and XLSX, and write the column of a locale. Other cells stay as they are."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from speechframe.spec.locales import normalise
from speechframe.strings.encodings import decode_file
from speechframe.strings.entries import (
    TRANSLATED,
    UNTRANSLATED,
    StringEntry,
    StringsFile,
    get_newline,
    read_locale,
    refuse,
)

_ID_NAMES = ("id", "key", "string_id", "row_id", "identifier", "name")
_TEXT_NAMES = ("text", "source")
_OWN_NAMES = frozenset({"context", "character", "state"})
_SEPARATORS = ",\t;|"


def read(path: Path) -> list[StringsFile]:
    """Return the strings of a sheet as a file for each column of a locale, or else as one file."""
    file = StringsFile(path.name, [])
    header, rows = _read_rows(path, file.notes)
    lowered = [name.strip().lower() for name in header]
    id_at, text_at = (_find_column(lowered, names, path.name) for names in (_ID_NAMES, _TEXT_NAMES))
    locales = {at: read_locale(name, path.name) for at, name in enumerate(header) if _is_locale(name)}
    files = [StringsFile(path.name, [], name) for name in locales.values()] or [file]
    files[0].notes = file.notes
    empty = 0
    for number, row in enumerate(rows, 2):
        cells = [*row, *[""] * (len(header) - len(row))]
        if not cells[id_at].strip():
            empty += 1
            continue
        own = {name: cells[at] or None for at, name in enumerate(lowered) if name in _OWN_NAMES}
        extra = {
            name: cells[at] or None
            for at, name in enumerate(header)
            if name and at not in {id_at, text_at, *locales} and lowered[at] not in _OWN_NAMES
        }
        for made, at in zip(files, locales or [None], strict=True):
            target = "" if at is None else cells[at]
            state = own.get("state") or extra.pop(f"state.{made.locale}", None)
            state = state or (None if at is None else TRANSLATED if target else UNTRANSLATED)
            entry = StringEntry(cells[id_at], number, cells[text_at], target, state, extra=extra)
            entry.context, entry.character = own.get("context"), own.get("character")
            made.entries.append(entry)
    if empty:
        files[0].notes.append(f"{empty:,} rows of {path.name} without an id: not read")
    return files


def _find_column(names: Sequence[str], wanted: Sequence[str], name: str) -> int:
    found = next((names.index(one) for one in wanted if one in names), None)
    if found is None:
        raise refuse(name, f"has no column {' or '.join(map(repr, wanted[:2]))}", "a header with these names")
    return found


def _is_locale(name: str) -> bool:
    """Return whether the name of a column is a locale, such as ``pt-BR`` or ``de``."""
    language, _, region = name.strip().replace("_", "-").partition("-")
    is_code = language.isascii() and language.isalpha() and len(language) in ({2, 3} if region else {2})
    if not is_code or (language.lower() == "id" and not region):
        return False
    with suppress(ValueError):
        return bool(normalise(name))
    return False


def _read_rows(path: Path, notes: list[str]) -> tuple[list[str], Iterator[list[str]]]:
    if path.suffix.lower() == ".xlsx":
        sheet = _open_sheet(path, data_only=True).worksheets[0]
        rows: Iterator[list[str]] = (
            [_show(cell) for cell in row] for row in sheet.iter_rows(values_only=True)
        )
    else:
        text = decode_file(path, notes).text
        rows = iter([fields for _, fields in _split_records(text, _find_separator(path, text))])
    header = next(rows, None)
    if not header:
        raise refuse(path.name, "is empty", "a header and a row for each string")
    return header, rows


def _open_sheet(path: Path, **options: Any) -> Any:
    import openpyxl

    return openpyxl.load_workbook(path, **options)


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
    if path.suffix.lower() == ".xlsx":
        return _fill_workbook(path, texts, locale)
    decoded = decode_file(path, [])
    separator, newline = _find_separator(path, decoded.text), get_newline(decoded.text)
    made = io.StringIO(newline="")
    writer = csv.writer(made, delimiter=separator, lineterminator=newline)
    id_at, at, width = 0, 0, 0
    for record, fields in _split_records(decoded.text, separator):
        is_header = not width
        if is_header:
            id_at, at, width = _find_target(fields, locale, path.name)
        is_new = at >= width
        value = locale if is_header else texts.get(fields[id_at]) if len(fields) > id_at else None
        if (value is None or is_header) and not (is_new and fields):
            made.write(record)
            continue
        cells = [*fields, *[""] * (at + 1 - len(fields))]
        cells[at] = cells[at] if value is None else value
        writer.writerow(cells)
    return decoded.encode(made.getvalue())


def _find_target(header: Sequence[str], locale: str, name: str) -> tuple[int, int, int]:
    """Return the positions of the id and of the locale, and the number of columns."""
    lowered = [one.strip().lower() for one in header]
    columns = [read_locale(one, name) if _is_locale(one) else "" for one in header]
    at = columns.index(locale) if locale in columns else len(header)
    return _find_column(lowered, _ID_NAMES, name), at, len(header)


def _fill_workbook(path: Path, texts: Mapping[str, str], locale: str) -> bytes:
    book = _open_sheet(path)
    sheet = book.worksheets[0]
    header = [_show(cell.value) for cell in sheet[1]]
    id_at, at, width = _find_target(header, locale, path.name)
    if at >= width:
        sheet.cell(1, at + 1, locale)
    for row in range(2, sheet.max_row + 1):
        if (value := texts.get(_show(sheet.cell(row, id_at + 1).value))) is not None:
            cell = sheet.cell(row, at + 1, value)
            cell.data_type = "s"  # a text that begins with "=" is not a formula
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()
