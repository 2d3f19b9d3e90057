"""Read files of strings into one frame: join the files of a group, and choose columns and ids."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from glob import escape
from os import PathLike
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

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
    refuse,
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

Targets = dict[str, dict[str, StringEntry]]
"""For each locale, its entries by id."""


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
    read = [_read_group(group, source_locale, notes) for group in groups]
    names = [rows[0].file if rows else "" for rows, _ in read]
    if twice := next((name for at, name in enumerate(names) if name and name in names[:at]), None):
        raise refuse(
            "files", f"two files are named {twice}", "{locale: path} for one file in several locales"
        )
    rows: list[StringEntry] = []
    targets: Targets = {}
    for entries, found in read:
        prefix = f"{entries[0].file}:" if len(groups) > 1 and entries else ""
        for entry in entries:
            entry.id = prefix + entry.unit
        rows += entries
        for locale, by_unit in found.items():
            targets.setdefault(locale, {}).update((prefix + unit, one) for unit, one in by_unit.items())
    ids = [row.id for row in rows]
    if previous is not None:
        notes += match_previous(rows, previous)
    by_id = dict(zip(ids, rows, strict=True))
    for locale, by_unit in targets.items():
        targets[locale] = {by_id[unit].id: one for unit, one in by_unit.items()}
    frame = _make_frame(rows, targets, has_files=len(groups) > 1, has_previous=previous is not None)
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


def _read_group(given: Any, source_locale: str | None, notes: list[str]) -> tuple[list[StringEntry], Targets]:
    """Return the rows of files of the same strings, and the targets of each locale by unit."""
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


def _join_by_unit(files: Sequence[StringsFile], notes: list[str]) -> tuple[list[StringEntry], Targets]:
    rows: dict[str, StringEntry] = {}
    targets: Targets = {}
    differing = 0
    for file in files:
        if file.locale is not None:
            targets[file.locale] = {entry.unit: entry for entry in file.entries}
        elif any(entry.target for entry in file.entries):
            fault = "has translations, but does not state their locale"
            raise refuse(file.name, fault, "a header with the locale, or the path as {'de-DE': path}")
        for entry in file.entries:
            row = rows.setdefault(entry.unit, entry)
            row.file, row.source_locale = files[0].name, files[0].source_locale
            row.character = row.character or entry.character
            differing += row.text != entry.text and file.locale is not None and files[0].locale is not None
    if differing:
        strings = format_count(differing, "string")
        notes.append(f"{strings} of {files[0].name} with another source in another file")
    for unit, row in rows.items():
        having = [locale for locale, found in targets.items() if unit in found]
        if row.form is not None and len(having) < len(targets):
            row.locales = having
    return list(rows.values()), targets


def _join_by_time(files: Sequence[StringsFile], notes: list[str]) -> tuple[list[StringEntry], Targets]:
    source, *others = files
    rows = list(source.entries)
    targets: Targets = {}
    for file in others:
        pairs = cues.find_overlaps([one.span for one in file.entries], [one.span for one in source.entries])
        of_file = targets[file.locale or ""] = {}
        for at, entry in enumerate(file.entries):
            if at in pairs:
                row = source.entries[pairs[at]]
            else:
                row = replace(entry, unit=f"{file.locale}:{entry.unit}", text="")
                rows.append(row)
            row.character = row.character or entry.character
            entry.target, entry.state = entry.text, TRANSLATED
            of_file[row.unit] = entry
        lacking = (len(source.entries) - len(pairs), file.name), (len(file.entries) - len(pairs), source.name)
        for count, name in lacking:
            if count:
                fault = "without a cue at that time in"
                notes.append(f"{format_count(count, 'cue')} {fault} {name}: empty texts there")
    rows.sort(key=lambda row: row.span)
    for row in rows:
        row.file, row.source_locale = source.name, source.locale
    return rows, targets


def _make_frame(  # noqa: C901 - a statement for each column
    rows: Sequence[StringEntry], targets: Targets, *, has_files: bool, has_previous: bool
) -> "pd.DataFrame":
    import pandas as pd

    columns: dict[str, Any] = {}

    def add(name: str, values: Iterable[Any], kind: str = "string", *, always: bool = False) -> None:
        made = list(values)
        if always or any(value is not None for value in made):
            columns[name] = pd.Series(made, dtype=kind)

    for name in ("id", "text", "context"):
        add(name, (getattr(row, name) for row in rows), always=True)
    add("form", (row.form for row in rows), "Int64")
    states = {
        locale: [_find_state(row, found.get(row.id)) for row in rows] for locale, found in targets.items()
    }
    only = next(iter(states.values())) if len(states) == 1 else None
    common = [NOT_TRANSLATABLE if row.state == NOT_TRANSLATABLE else None for row in rows]
    add("state", only or (common if states else [row.state for row in rows]), always=True)
    for locale, found in targets.items():
        texts = (found[row.id].target if row.id in found else None if row.locales else "" for row in rows)
        add(locale, texts, always=True)
    for locale, values in states.items() if only is None else ():
        add(f"state.{locale}", values)
    add("character", (row.character for row in rows))
    times = [_list_times(row, gap_ms) for row, gap_ms in zip(rows, _measure_gaps(rows), strict=True)]
    for at, name in enumerate(("start_s", "end_s", "slot_s", "gap_s")):
        add(name, (None if one[at] is None else one[at] / 1000 for one in times), "Float64")
    add("source_locale", (row.source_locale for row in rows))
    add("locales", (row.locales for row in rows), "object")
    for name in dict.fromkeys(name for row in rows for name in row.extra or ()):
        if name not in columns:
            add(name, ((row.extra or {}).get(name) for row in rows))
    if has_previous:
        for name in ("previous_id", "previous_basis"):
            add(name, (getattr(row, name) for row in rows), always=True)
    add("unit", (row.unit for row in rows), always=True)
    if has_files:
        add("file", (row.file for row in rows), always=True)
    return pd.DataFrame(columns)


def _find_state(row: StringEntry, target: StringEntry | None) -> str | None:
    if target is None:
        return None if row.locales else UNTRANSLATED
    return target.state


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
