"""Read files of strings into one frame: join the files of a group, and choose columns and ids."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import escape
from os import PathLike
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from speechframe.errors import refuse
from speechframe.spec.locales import is_certainly_different
from speechframe.strings import cues, po, sheets, xliff
from speechframe.strings.encodings import decode_file
from speechframe.strings.entries import (
    NOT_TRANSLATABLE,
    SHEET_SUFFIXES,
    STRING_SUFFIXES,
    TRANSLATED,
    UNTRANSLATED,
    StringEntry,
    StringsFile,
    check_units,
    read_locale,
)
from speechframe.strings.match import match_previous
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

KINDS: Mapping[str, ModuleType] = MappingProxyType(
    {".po": po, ".pot": po, ".xlf": xliff, ".xliff": xliff, ".srt": cues, ".vtt": cues}
)
"""The module that reads and fills files with an ending."""
_CUE_SUFFIXES = frozenset({".srt", ".vtt"})
_TIME_COLUMNS = ("start_s", "end_s", "slot_s", "gap_s")


def read_files(
    files: Any, previous: "pd.DataFrame | None" = None, source_locale: str | None = None
) -> "pd.DataFrame":
    """Return the strings of files as a frame. See the public function `read_strings`.

    The index has the ids, too, because an index becomes the row ids of a run. Remarks for the user are in
    ``frame.attrs["notes"]``.
    """
    import pandas as pd

    if source_locale is not None:
        source_locale = read_locale(source_locale, "source_locale")
    notes: list[str] = []
    groups = [files] if isinstance(files, (str, PathLike, Mapping)) else list(files)
    rows: list[StringEntry] = []
    locales: dict[str, None] = {}
    names: set[str] = set()
    for group in groups:
        found, of_group = _read_group(group, source_locale, notes)
        locales |= dict.fromkeys(of_group)
        name = found[0].file if found else ""
        if name in names:
            fault = f"two files are named {name}"
            raise refuse("files", fault, "{locale: path} for one file in several locales")
        names |= {name} - {""}
        for row in found:
            row.id = f"{name}:{row.unit}" if len(groups) > 1 else row.unit
        rows += found
    if previous is not None:
        notes += match_previous(rows, previous)
    frame = _make_frame(rows, [*locales], has_files=len(groups) > 1, has_previous=previous is not None)
    frame.index = pd.Index(frame["id"].tolist(), dtype=object)
    frame.attrs["notes"] = notes
    return frame


def read_file(path: Path, notes: list[str], locale: str | None = None) -> list[StringsFile]:
    """Return the strings of one file. A sheet is a file for each of its locales.

    If `locale` is given, a PO file has the plural forms of this locale. Raise InvalidRows if the kind of file
    is not read, or if two strings have the same id.
    """
    suffix = path.suffix.lower()
    if suffix not in {*KINDS, *SHEET_SUFFIXES}:
        fault = f"{path.name[:60]!r} is of the kind {suffix or 'without ending'!r}, which is not read"
        raise refuse("files", fault, f"a file that ends in {', '.join((*STRING_SUFFIXES, *SHEET_SUFFIXES))}")
    try:
        if suffix in SHEET_SUFFIXES:
            found = sheets.read(path)
        else:
            kind = KINDS[suffix]
            text = decode_file(path, notes, getattr(kind, "DECLARED_ENCODING", None)).text
            found = [kind.read(text, path.name, locale)]
    except OSError as error:
        raise refuse("files", f"{path} cannot be read: {error.strerror}", "an existing file") from None
    check_units(found[0])
    for one in found:
        notes += one.notes
    return found


def _read_group(
    given: Any, source_locale: str | None, notes: list[str]
) -> tuple[list[StringEntry], list[str]]:
    """Return the rows of files of the same strings, with their translations, and the target locales."""
    by_locale = given if isinstance(given, Mapping) else _find_pattern(given, source_locale)
    if by_locale is None:
        files = read_file(Path(given).expanduser(), notes)
        for file in files if files[0].source_locale is None else []:
            file.source_locale = source_locale
        return _join_by_unit(files, notes)
    if not by_locale:
        raise refuse("files", f"{str(given)!r} names no file", "paths of files by locale")
    paths = {read_locale(str(locale), "files"): Path(path).expanduser() for locale, path in by_locale.items()}
    if source_locale is not None and source_locale in paths:
        paths = {source_locale: paths[source_locale], **paths}
    suffixes = {path.suffix.lower() for path in paths.values()}
    if not (suffixes <= _CUE_SUFFIXES or suffixes <= KINDS.keys() - _CUE_SUFFIXES):
        fault = "the files of one group are of different kinds"
        raise refuse("files", fault, "all PO or XLIFF, or all SRT or VTT")
    files = [read_file(path, notes)[0] for path in paths.values()]
    for locale, file in zip(paths, files, strict=True):
        if file.locale is not None and is_certainly_different(file.locale, locale):
            raise refuse(file.name, f"states the locale {file.locale}, but was given for {locale}")
        file.locale = locale
    if suffixes <= _CUE_SUFFIXES:
        return _join_by_time(files, notes)
    _choose_source(files, source_locale)
    return _join_by_unit(files, notes)


def _choose_source(files: Sequence[StringsFile], source_locale: str | None) -> None:
    """Set the source locale of PO and XLIFF files, which all contain the source texts.

    The first file is the source file if it is in the source locale, or if it has no translations.
    """
    first = files[0]
    if first.locale == source_locale or not any(entry.target for entry in first.entries):
        for entry in first.entries:
            entry.text, entry.target = entry.target or entry.text, ""
        source_locale, first.locale = first.locale, None
    for file in files:
        file.source_locale = file.source_locale or source_locale


def _find_pattern(given: str | PathLike[str], source_locale: str | None) -> dict[str, Path] | None:
    """Return the files of a pattern such as ``film.{locale}.srt`` by locale, or None for a plain path."""
    pattern = Path(given).expanduser()
    if "{locale}" not in str(pattern):
        return None
    shape = re.escape(str(pattern)).replace(re.escape("{locale}"), r"([A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*)", 1)
    below = escape(str(pattern.relative_to(pattern.anchor))).replace("{locale}", "*")
    paths = sorted(Path(pattern.anchor).glob(below))
    found = {match[1]: path for path in paths if (match := re.fullmatch(shape, str(path)))}
    if not found:
        fault = f"no file fits the pattern {str(given)!r}"
        raise refuse("files", fault, "existing files with a locale at {locale}")
    is_known = source_locale in {read_locale(locale, "files") for locale in found}
    if pattern.suffix.lower() in _CUE_SUFFIXES and not is_known:
        raise refuse("source_locale", "must name the source of the pattern", ", ".join(found))
    return found


def _join_by_unit(files: Sequence[StringsFile], notes: list[str]) -> tuple[list[StringEntry], list[str]]:
    rows: dict[str, StringEntry] = {}
    locales = [file.locale for file in files if file.locale is not None]
    differing = 0
    for file in files:
        if file.locale is None and any(entry.target for entry in file.entries):
            fault = "has translations, but does not state their locale"
            raise refuse(file.name, fault, "a header with the locale, or the path as {'de-DE': path}")
        for entry in file.entries:
            row = rows.setdefault(entry.unit, entry)
            row.file, row.source_locale = files[0].name, files[0].source_locale
            if file.locale is not None:
                row.translations[file.locale] = entry
                differing += row.text != entry.text and files[0].locale is not None
    if differing:
        strings = format_count(differing, "string")
        notes.append(f"{strings} of {files[0].name} with another source in another file")
    for row in rows.values():
        if row.form is not None and len(row.translations) < len(locales):
            row.locales = [*row.translations]
    return list(rows.values()), locales


def _join_by_time(files: Sequence[StringsFile], notes: list[str]) -> tuple[list[StringEntry], list[str]]:
    source, *others = files
    rows = list(source.entries)
    for file in others:
        locale = file.locale or ""
        pairs = cues.find_overlaps([one.span for one in file.entries], [one.span for one in source.entries])
        for at, entry in enumerate(file.entries):
            if at in pairs:
                row = source.entries[pairs[at]]
            else:
                row = replace(entry, unit=f"{locale}:{entry.unit}", text="", translations={})
                rows.append(row)
            row.character = row.character or entry.character
            entry.target, entry.state = entry.text, TRANSLATED
            row.translations[locale] = entry
        lacking = (len(source.entries) - len(pairs), file.name), (len(file.entries) - len(pairs), source.name)
        for count, name in lacking:
            if count:
                fault = "without a cue at that time in"
                notes.append(f"{format_count(count, 'cue')} {fault} {name}: empty texts there")
    rows.sort(key=lambda row: row.span)
    for row in rows:
        row.file, row.source_locale = source.name, source.locale
    return rows, [file.locale or "" for file in others]


def _make_frame(
    rows: Sequence[StringEntry], locales: Sequence[str], *, has_files: bool, has_previous: bool
) -> "pd.DataFrame":
    import pandas as pd

    columns: dict[str, list[Any]] = {
        name: [getattr(row, name) for row in rows] for name in ("id", "text", "context", "form")
    }
    columns["state"] = [_find_state(row, *locales[:1]) for row in rows]
    if len(locales) > 1:
        columns["state"] = [row.state if row.state == NOT_TRANSLATABLE else None for row in rows]
        columns |= {f"state.{locale}": [_find_state(row, locale) for row in rows] for locale in locales}
    columns |= {locale: [_find_target(row, locale) for row in rows] for locale in locales}
    times = [_list_times(row, gap_ms) for row, gap_ms in zip(rows, _measure_gaps(rows), strict=True)]
    for at, name in enumerate(_TIME_COLUMNS):
        columns[name] = [None if one[at] is None else one[at] / 1000 for one in times]
    for name in ("character", "source_locale", "locales", "previous_id", "previous_basis", "unit", "file"):
        columns[name] = [getattr(row, name) for row in rows]
    always = {"id", "text", "context", "state", "unit", *locales}
    always |= {"previous_id", "previous_basis"} if has_previous else set()
    kinds = {"form": "Int64", "locales": "object", **dict.fromkeys(_TIME_COLUMNS, "Float64")}
    made = {
        name: pd.Series(values, dtype=kinds.get(name, "string"))
        for name, values in columns.items()
        if name in always or (any(value is not None for value in values) and (has_files or name != "file"))
    }
    for name in dict.fromkeys(name for row in rows for name in row.extra or ()):
        values = [(row.extra or {}).get(name) for row in rows]
        if any(value is not None for value in values):
            made.setdefault(name, pd.Series(values, dtype="string"))
    return pd.DataFrame(made)


def _find_target(row: StringEntry, locale: str) -> str | None:
    found = row.translations.get(locale)
    return found.target if found is not None else None if row.locales else ""


def _find_state(row: StringEntry, locale: str | None = None) -> str | None:
    """Return the state of a row in a locale. Without a locale, return that of its only file."""
    if locale is None or locale in row.translations:
        return row.translations.get(locale or "", row).state
    return None if row.locales else UNTRANSLATED


def _list_times(row: StringEntry, gap_ms: int | None) -> Sequence[Any]:
    """Return start, end, length and the following gap of a cue in milliseconds. None for other strings."""
    start, end = row.span
    return [None] * 4 if row.start_ms is None else [start, end, end - start, gap_ms]


def _measure_gaps(rows: Sequence[StringEntry]) -> list[int | None]:
    """Return the time in milliseconds from each cue to the next cue of its file with a source text."""
    gaps: dict[int, int] = {}
    following: dict[str, int] = {}
    for at in sorted(range(len(rows)), key=lambda at: rows[at].span, reverse=True):
        row, (start, end) = rows[at], rows[at].span
        if row.file in following:
            gaps[at] = max(0, following[row.file] - end)
        if row.text:
            following[row.file] = start
    return [gaps.get(at) for at in range(len(rows))]
