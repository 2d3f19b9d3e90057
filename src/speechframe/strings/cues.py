"""Read SRT and WebVTT as written, with tags, and write other texts into the cues."""

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from speechframe.spec.chosen import MAX_CUE_CHARACTERS_PER_SECOND, MAX_CUE_LINE_CHARACTERS, MAX_CUE_LINES
from speechframe.spec.locales import get_language
from speechframe.strings.entries import (
    StringEntry,
    StringsFile,
    apply_edits,
    get_newline,
    refuse,
)
from speechframe.wire.cues import break_lines
from speechframe.wire.subtitles import read_subtitles
from speechframe.writing.words import format_count

_MAX_WIDE_LINE_CHARACTERS = 16
"""Largest number of characters in a line of Chinese, Japanese or Korean."""
_LINE_END = re.compile(r"\r\n|\r|\n")
_VOICE_TAG = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^\s<>][^<>]{0,199})>")
_TAG = re.compile(r"</?[^<>\s][^<>]*>|\{\\[^{}]*+\}")


class _Cue(NamedTuple):
    entry: StringEntry
    start: int  # the span of the text in the file
    end: int


def read(text: str, name: str, locale: str | None = None) -> StringsFile:  # noqa: ARG001 - as for other kinds
    """Return the cues of a file. The unit of a cue is its position in the file, from 1.

    `text` is the text of the cue. The speaker of a voice tag at the beginning is not part of it.
    """
    cues, warnings = _read_cues(text, name)
    file = StringsFile(name, [cue.entry for cue in cues], notes=[f"{name}: {one}" for one in warnings])
    if (missing := text.count("-->") - len(cues)) > 0:
        file.notes.append(f"{format_count(missing, 'cue')} of {name} without text or valid times: no rows")
    ordered = sorted(file.entries, key=lambda one: one.start_ms or 0)
    overlaps = sum(one.end_ms > (after.start_ms or 0) for one, after in pairwise(ordered))
    if overlaps:
        file.notes.append(f"{format_count(overlaps, 'cue')} of {name} last into the next cue")
    return file


def _read_cues(text: str, name: str) -> tuple[list[_Cue], Sequence[str]]:
    try:
        subtitles = read_subtitles(text)
    except ValueError as error:
        raise refuse(name, str(error)) from None
    starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
    lines = _LINE_END.split(text)
    found = []
    for number, cue in enumerate(sorted(subtitles.cues, key=lambda one: one.lines[0].number), 1):
        first, last = cue.lines[0].number - 1, cue.lines[-1].number - 1
        written = "\n".join(lines[line.number - 1].strip() for line in cue.lines)
        start = starts[first] + len(lines[first]) - len(lines[first].lstrip())
        end = starts[last] + len(lines[last].rstrip())
        speaker = None
        if (voice := _VOICE_TAG.match(written)) and written.count("<v") == 1:
            speaker, written, start = voice[1].strip(), written[voice.end() :], start + voice.end()
            if written.endswith("</v>"):
                written, end = written.removesuffix("</v>"), end - len("</v>")
        times = {"character": speaker, "start_ms": cue.start_ms, "end_ms": cue.end_ms}
        found.append(_Cue(StringEntry(str(number), first + 1, written, **times), start, end))  # type: ignore[arg-type]
    return found, subtitles.warnings


def fill(text: str, name: str, texts: Mapping[str, str], locale: str) -> str:
    """Return a file of cues with the given texts by unit, each wrapped into lines."""
    newline = get_newline(text)
    edits = [
        (cue.start, cue.end, newline.join(wrap(texts[cue.entry.unit], locale)[0]))
        for cue in _read_cues(text, name)[0]
        if cue.entry.unit in texts
    ]
    return apply_edits(text, edits)


def wrap(text: str, locale: str) -> tuple[list[str], bool]:
    """Return a text as the lines of a cue, and whether it fits into two lines. Tags have no width.

    Lines that fit stay as they are. A text that is too long has more lines.
    """
    is_wide = get_language(locale) in {"zh", "ja", "ko", "yue"}
    longest = _MAX_WIDE_LINE_CHARACTERS if is_wide else MAX_CUE_LINE_CHARACTERS
    given = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    if len(given) <= MAX_CUE_LINES and all(len(_TAG.sub("", line)) <= longest for line in given):
        return given, True
    joined = " ".join(given)
    lines = break_lines(_TAG.sub("", joined), longest)
    if lines is None:
        return textwrap.wrap(joined, longest, break_long_words=is_wide, break_on_hyphens=False), False
    if len(lines) == 1:
        return [joined], True
    # Break the text with its tags at the same character as the text without tags.
    plain = [at for found in _split_at_tags(joined) for at in range(*found)]
    at = plain[len(lines[0]) - 1] + 1
    return [joined[:at].rstrip(), joined[at:].lstrip()], True


def _split_at_tags(text: str) -> list[tuple[int, int]]:
    """Return the spans of a text that are not tags."""
    bounds = [0, *(at for found in _TAG.finditer(text) for at in found.span()), len(text)]
    return list(zip(bounds[::2], bounds[1::2], strict=True))


def is_too_fast(text: str, entry: StringEntry) -> bool:
    """Return whether a text has too many characters a second for its cue."""
    length = len(" ".join(_TAG.sub("", text).split()))
    return 1000 * length > MAX_CUE_CHARACTERS_PER_SECOND * (entry.end_ms - (entry.start_ms or 0))


def find_overlaps(
    ones: Sequence[StringEntry],
    others: Sequence[StringEntry],
    shifts_ms: Sequence[int] | None = None,
    share: float = 0,
) -> dict[int, int]:
    """Return pairs of cues (position in `ones`, position in `others`) that overlap most, one to one.

    `shifts_ms` is subtracted from the times of each of `ones`. Pairs must overlap by more than `share` of the
    shorter cue.
    """
    shifts = shifts_ms or [0] * len(ones)
    order = sorted(range(len(others)), key=lambda at: others[at].start_ms or 0)
    pairs, first = [], 0
    longest = max((other.end_ms - (other.start_ms or 0) for other in others), default=0)
    for one in sorted(range(len(ones)), key=lambda at: (ones[at].start_ms or 0) - shifts[at]):
        start, end = (ones[one].start_ms or 0) - shifts[one], ones[one].end_ms - shifts[one]
        while first < len(order) and (others[order[first]].start_ms or 0) + longest <= start:
            first += 1
        for other in order[first:]:
            other_start, other_end = others[other].start_ms or 0, others[other].end_ms
            if other_start >= end:
                break
            overlap = min(end, other_end) - max(start, other_start)
            if overlap > 0 and overlap >= share * min(end - start, other_end - other_start):
                difference = abs(start - other_start) + abs(end - other_end)
                pairs.append((-overlap, difference, one, other))
    found: dict[int, int] = {}
    taken: set[int] = set()
    for *_, one, other in sorted(pairs):
        if one not in found and other not in taken:
            found[one] = other
            taken.add(other)
    return found
