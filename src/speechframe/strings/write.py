"""Write translated texts into a file of strings. No other text of the file changes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from speechframe.errors import InvalidRows
from speechframe.spec.locales import is_certainly_different
from speechframe.strings import cues, sheets, xliff
from speechframe.strings.encodings import decode_file
from speechframe.strings.entries import NOT_TRANSLATABLE, SHEET_SUFFIXES, StringEntry, refuse
from speechframe.strings.read import KINDS, read_file
from speechframe.writing.files import replace_file
from speechframe.writing.words import format_count


@dataclass(frozen=True)
class StringsReport:
    """The result of `write_strings`: how many texts of the file were written, and how many were not.

    Parameters
    ----------
    path, locale
        The written file and its locale.
    written, unchanged
        Number of texts that changed in the file, and of texts that already were in the template.
    left
        Number of strings without a new text, by reason. They stay as they are in the template. If the
        template is in another locale, its texts are removed.
    too_long
        Number of written cues that need more than two lines.
    too_fast
        Number of written cues with more than 20 characters a second.
    notes
        Remarks, such as on rows that are not in the template.
    """

    path: Path
    locale: str
    written: int = 0
    unchanged: int = 0
    left: dict[str, int] = field(default_factory=dict)
    too_long: int = 0
    too_fast: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the report in lines for people."""
        first = f"{self.path}: {format_count(self.written, 'text')} in {self.locale} written"
        left = f"{sum(self.left.values()):,} without a new text"
        lines = [f"{first}, {self.unchanged:,} unchanged, {left}"]
        lines += [f"  {count:,} without a new text: {reason}" for reason, count in self.left.items()]
        if self.too_long:
            lines.append(f"  {format_count(self.too_long, 'cue')} too long for two lines, written whole")
        if self.too_fast:
            lines.append(f"  {format_count(self.too_fast, 'cue')} with more than 20 characters a second")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


@dataclass(frozen=True, slots=True)
class Given:
    """The new text of a string, or None with the reason why there is none."""

    entry: StringEntry
    text: str | None
    reason: str = ""


def fill_file(given: Sequence[Given], template: Path, out: Path, locale: str) -> StringsReport:
    """Write texts into a copy of `template` at `out`, which appears whole.

    Raise InvalidRows if the template cannot be read, or if a text cannot stand in such a file.
    """
    suffix, notes = template.suffix.lower(), list[str]()
    if out.suffix.lower() != suffix:
        raise refuse(
            "out", f"ends in {out.suffix!r}, but the template in {suffix!r}", "the kind of the template"
        )
    kind = KINDS.get(suffix)
    files = read_file(template, notes, locale)
    file = next((one for one in files if one.locale == locale), files[0])
    is_column = suffix in SHEET_SUFFIXES and file.locale != locale
    by_unit = _match_given(given, file.entries, is_timed=kind is cues)
    texts: dict[str, str] = {}
    lacking: list[StringEntry] = []
    left: Counter[str] = Counter()
    unchanged = 0
    for entry in file.entries:
        found = by_unit.get(entry.unit)
        if entry.state == NOT_TRANSLATABLE:
            left["not to be translated"] += 1
        elif found is None or not found.text:
            left["no row in the table" if found is None else found.reason or "no text"] += 1
            lacking.append(entry)
        elif found.text == (entry.text if kind is cues else "" if is_column else entry.target):
            unchanged += 1
        else:
            texts[entry.unit] = found.text
    surplus = (
        sum(one.text is not None for one in given) - len(texts) - unchanged - left["not to be translated"]
    )
    if surplus > 0 and (
        unknown := len({id(one) for one in given if one.text} - {id(one) for one in by_unit.values()})
    ):
        notes.append(f"{format_count(unknown, 'row')} without a place in {template.name}: not written")
    if kind is None:
        content = sheets.fill(template, texts, locale) if texts else template.read_bytes()
    else:
        is_other = file.locale is not None and is_certainly_different(file.locale, locale)
        emptied = {one.unit: "" for one in lacking if is_other and one.target}
        content = _fill_text(kind, template, texts, emptied, locale, left, is_other=is_other)
        notes += _describe_emptied(len(emptied), file.locale)
    try:
        replace_file(out, content)
    except OSError as error:
        raise refuse(
            "out", f"{out} cannot be written: {error.strerror}", "a file in an existing folder"
        ) from None
    entries = {entry.unit: entry for entry in file.entries} if kind is cues else {}
    return StringsReport(
        out,
        locale,
        len(texts),
        unchanged,
        dict(left),
        sum(not cues.wrap(texts[unit], locale)[1] for unit in entries if unit in texts),
        sum(cues.is_too_fast(texts[unit], entry) for unit, entry in entries.items() if unit in texts),
        tuple(notes),
    )


def _describe_emptied(count: int, locale: str | None) -> list[str]:
    return [f"{format_count(count, 'text')} in {locale} removed, without a new text"] if count else []


def _match_given(
    given: Sequence[Given], entries: Sequence[StringEntry], *, is_timed: bool
) -> dict[str, Given]:
    """Return the given text of each unit. Cues are matched by time, because files number them differently."""
    timed = [one for one in given if one.entry.start_ms is not None]
    if is_timed and timed:
        pairs = cues.find_overlaps([one.entry for one in timed], entries)
        return {entries[other].unit: timed[one] for one, other in pairs.items()}
    return {one.entry.unit: one for one in given}


def _fill_text(
    kind: ModuleType,
    template: Path,
    texts: dict[str, str],
    emptied: dict[str, str],
    locale: str,
    left: Counter[str],
    *,
    is_other: bool,
) -> bytes:
    """Return the template with `texts` and `emptied`, as bytes.

    Texts with broken markup are moved to `left`, or to `emptied` in a template in another locale.
    """
    decoded = decode_file(template, [], getattr(kind, "DECLARED_ENCODING", None))
    if kind is xliff:
        for unit in xliff.find_broken_markup(decoded.text, template.name, texts):
            del texts[unit]
            left["broken markup"] += 1
            if is_other:
                emptied[unit] = ""
    if not texts and not is_other:
        return template.read_bytes()
    filled = kind.fill(decoded.text, template.name, {**texts, **emptied}, locale)
    _check_filled(kind, decoded.text, filled, template.name, {**texts, **emptied}, locale)
    try:
        return decoded.encode(filled)
    except UnicodeEncodeError as error:
        fault = f"is in {decoded.encoding}, which lacks {error.object[error.start]!r}"
        raise refuse(template.name, fault, "a template in UTF-8: save it again") from None


def _check_filled(
    kind: ModuleType, old: str, new: str, name: str, texts: Mapping[str, str], locale: str
) -> None:
    """Raise InvalidRows unless the new file has the new texts, and otherwise those of the old file."""
    wanted = {**_read_texts(kind, old, name, locale), **texts}
    try:
        found = _read_texts(kind, new, name, locale)
    except InvalidRows as error:
        fault = f"would be broken by a text: {error.problems[0]['problem']}"
        raise refuse(name, fault, "plain texts") from None
    for unit, text in wanted.items():
        same = (lambda one: "".join(one.split())) if kind is cues else str
        if len(found) != len(wanted) or same(found.get(unit, "")) != same(text):
            fault = f"would have other texts than those given, from {unit[:60]!r} on"
            raise refuse(name, fault, "texts that a file of this kind can contain")


def _read_texts(kind: ModuleType, text: str, name: str, locale: str) -> dict[str, str]:
    entries = kind.read(text, name, locale).entries
    return {one.unit: one.text if kind is cues else one.target for one in entries}
