"""Write translated texts into a file of strings. No other text of the file changes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from speechframe.errors import InvalidRows, refuse
from speechframe.spec.locales import is_certainly_different
from speechframe.strings import cues, sheets, xliff
from speechframe.strings.encodings import decode_file
from speechframe.strings.entries import NOT_TRANSLATABLE, StringEntry
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
    written, unchanged, left
        Number of texts that changed, that already were in the template, and (by reason) that got no new text.
    too_long, too_fast
        Number of written cues with more than two lines, and with more than 20 characters a second.
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


def fill_file(given: Sequence[StringEntry], template: Path, out: Path, locale: str) -> StringsReport:
    """Write the targets of entries into a copy of `template` at `out`, which appears whole.

    An entry without a target leaves the text of the template. Its state is the reason.
    """
    suffix, notes = template.suffix.lower(), list[str]()
    if out.suffix.lower() != suffix:
        fault = f"ends in {out.suffix!r}, but the template in {suffix!r}"
        raise refuse("out", fault, "the kind of the template")
    kind = KINDS.get(suffix)
    files = read_file(template, notes, locale)
    file = next((one for one in files if one.locale == locale), files[0])
    is_new_column = kind is None and file.locale != locale
    by_unit = _match_given(given, file.entries, is_timed=kind is cues)
    texts: dict[str, str] = {}
    lacking: list[StringEntry] = []
    left: Counter[str] = Counter()
    unchanged = too_long = too_fast = 0
    for entry in file.entries:
        found = by_unit.get(entry.unit)
        if entry.state == NOT_TRANSLATABLE:
            left["not to be translated"] += 1
        elif found is None or not found.target:
            left["no row in the table" if found is None else found.state or "no text"] += 1
            lacking.append(entry)
        elif found.target == (entry.text if kind is cues else "" if is_new_column else entry.target):
            unchanged += 1
        elif entry.is_markup and not xliff.is_fragment(found.target):
            left["broken markup"] += 1
            lacking.append(entry)
        else:
            texts[entry.unit] = found.target
            if kind is cues:
                too_long += not cues.wrap(found.target, locale)[1]
                too_fast += cues.is_too_fast(found.target, entry)
    placed = set(map(id, by_unit.values()))
    if unknown := sum(bool(one.target) and id(one) not in placed for one in given):
        notes.append(f"{format_count(unknown, 'row')} without a place in {template.name}: not written")
    emptied = _list_foreign(lacking, file.locale, locale) if kind is not None else {}
    if emptied:
        notes.append(f"{format_count(len(emptied), 'text')} in {file.locale} removed, without a new text")
    filled = (
        sheets.fill(template, texts, locale)
        if kind is None
        else _fill_text(kind, template, {**texts, **emptied}, locale)
    )
    _replace(out, filled)
    counts = len(texts), unchanged, dict(left), too_long, too_fast
    return StringsReport(out, locale, *counts, tuple(notes))


def _replace(out: Path, content: bytes) -> None:
    """Write a whole file, or raise InvalidRows."""
    try:
        replace_file(out, content)
    except OSError as error:
        fault = f"{out} cannot be written: {error.strerror}"
        raise refuse("out", fault, "a file in an existing folder") from None


def _list_foreign(lacking: Sequence[StringEntry], own: str | None, locale: str) -> dict[str, str]:
    """Return empty texts for the entries of a template in another locale, whose texts must not stay."""
    is_other = own is not None and is_certainly_different(own, locale)
    return {one.unit: "" for one in lacking if is_other and one.target}


def _match_given(
    given: Sequence[StringEntry], entries: Sequence[StringEntry], *, is_timed: bool
) -> dict[str, StringEntry]:
    """Return the given entry of each unit. Cues are matched by time, because files differ in numbers."""
    timed = [one for one in given if one.start_ms is not None]
    if is_timed and timed:
        pairs = cues.find_overlaps([one.span for one in timed], [entry.span for entry in entries])
        return {entries[other].unit: timed[one] for one, other in pairs.items()}
    units = {entry.unit for entry in entries}
    return {one.unit: one for one in given if one.unit in units}


def _fill_text(kind: ModuleType, template: Path, texts: Mapping[str, str], locale: str) -> bytes:
    """Return the template with `texts`, as bytes.

    Raise InvalidRows unless the new file has these texts, and otherwise those of the template.
    """
    decoded = decode_file(template, [], getattr(kind, "DECLARED_ENCODING", None))
    filled = kind.fill(decoded.text, template.name, texts, locale)
    wanted = {**_read_texts(kind, decoded.text, template.name, locale), **texts}
    try:
        found = _read_texts(kind, filled, template.name, locale)
    except InvalidRows as error:
        fault = f"would be broken by a text: {error.problems[0]['problem']}"
        raise refuse(template.name, fault, "plain texts") from None
    # The line breaks of cues may change.
    same = (lambda one: "".join(one.split())) if kind is cues else str
    odd = [unit for unit in {**wanted, **found} if same(found.get(unit, "")) != same(wanted.get(unit, ""))]
    if odd or len(found) != len(wanted):
        fault = f"would have other texts than those given, from {''.join(odd[:1])[:60]!r} on"
        raise refuse(template.name, fault, "texts that a file of this kind can contain")
    try:
        return decoded.encode(filled)
    except UnicodeEncodeError as error:
        fault = f"is in {decoded.encoding}, which lacks {error.object[error.start]!r}"
        raise refuse(template.name, fault, "a template in UTF-8: save it again") from None


def _read_texts(kind: ModuleType, text: str, name: str, locale: str) -> dict[str, str]:
    entries = kind.read(text, name, locale).entries
    return {one.unit: one.text if kind is cues else one.target for one in entries}
