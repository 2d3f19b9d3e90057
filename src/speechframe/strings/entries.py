"""One string or cue of a file, the strings of a file, and the states of translations."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, AnyStr

from speechframe.errors import refuse
from speechframe.spec.locales import normalise

STRING_SUFFIXES = (".po", ".pot", ".xlf", ".xliff", ".srt", ".vtt")
"""Endings of the names of files of strings, besides sheets."""
SHEET_SUFFIXES = (".csv", ".tsv", ".xlsx")
"""Endings of the names of sheets of strings."""

UNTRANSLATED, TRANSLATED, NOT_TRANSLATABLE = "untranslated", "translated", "no"
_UNUSABLE_STATES = frozenset({UNTRANSLATED, "fuzzy", "new", "obsolete"})


@dataclass(slots=True)
class StringEntry:
    """A string, a plural form of a string, or a cue.

    `unit` is its address in the file, and `line` the number of its first line. `text` is in the source
    locale, `target` in the locale of the file. `former` is the unit before a change, if the file has it.
    `is_markup` means that the texts are XML, and `extra` has other columns of a sheet. `translations` are the
    entries of the string by locale, which may include the string itself.
    """

    unit: str
    line: int
    text: str
    target: str = ""
    state: str | None = None
    context: str | None = None
    form: int | None = None
    character: str | None = None
    former: str | None = None
    start_ms: int | None = None
    end_ms: int = 0
    is_markup: bool = False
    extra: dict[str, Any] | None = None
    # The fields below are set when all files have been read.
    translations: dict[str, "StringEntry"] = field(default_factory=dict)
    id: str = ""
    file: str = ""
    source_locale: str | None = None
    locales: list[str] | None = None
    previous_id: str | None = None
    previous_basis: str | None = None

    @property
    def span(self) -> tuple[int, int]:
        """Start and end of a cue in milliseconds."""
        return self.start_ms or 0, self.end_ms


@dataclass(slots=True)
class StringsFile:
    """The entries of a file in one locale. The locales are those that the file names, or None."""

    name: str
    entries: list[StringEntry]
    locale: str | None = None
    source_locale: str | None = None
    notes: list[str] = field(default_factory=list)


def is_usable_state(state: str | None) -> bool:
    """Return whether a target in this state may be spoken or delivered as a translation."""
    return not (isinstance(state, str) and (state in _UNUSABLE_STATES or state.startswith("needs-")))


def read_locale(tag: str, name: str) -> str:
    """Return a locale in the normal spelling, or raise InvalidRows. `name` is the file or argument at fault.

    Indonesian becomes ``id-ID``, because the column ``id`` contains the ids.
    """
    try:
        found = normalise(tag)
    except ValueError as error:
        raise refuse(name, str(error)) from None
    return "id-ID" if found == "id" else found


def check_units(file: StringsFile) -> None:
    """Raise InvalidRows if two entries of a file have the same unit."""
    lines: dict[str, int] = {}
    for entry in file.entries:
        if (before := lines.get(entry.unit)) is not None:
            fault = f"lines {before} and {entry.line} have the same id {entry.unit[:80]!r}"
            raise refuse(file.name, fault, "a different id for each string of a file")
        lines[entry.unit] = entry.line


def apply_edits(text: AnyStr, edits: Iterable[tuple[int, int, AnyStr]]) -> AnyStr:
    """Return a text with the spans of `edits` (start, end, replacement) replaced. Spans do not overlap."""
    parts: list[AnyStr] = []
    position = 0
    for start, end, replacement in sorted(edits):
        parts += [text[position:start], replacement]
        position = end
    parts.append(text[position:])
    return text[:0].join(parts)


def get_newline(text: str) -> str:
    """Return the line end of a text."""
    return "\r\n" if "\r\n" in text else "\n"
