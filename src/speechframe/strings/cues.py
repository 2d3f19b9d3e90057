"""Read SRT and WebVTT as written, with tags, and write other texts into the cues."""

import re
import textwrap
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise

from speechframe.errors import refuse
from speechframe.spec.chosen import MAX_CUE_CHARACTERS_PER_SECOND, MAX_CUE_LINE_CHARACTERS, MAX_CUE_LINES
from speechframe.spec.locales import get_language
from speechframe.strings.entries import StringEntry, StringsFile, apply_edits, get_newline
from speechframe.wire.cues import break_lines
from speechframe.wire.subtitles import read_subtitles
from speechframe.writing.words import format_count

_MAX_WIDE_LINE_CHARACTERS = 16
"""Largest number of characters in a line of Chinese, Japanese or Korean."""
_LINE_END = re.compile(r"\r\n|\r|\n")
_VOICE_TAG = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^\s<>][^<>]{0,199})>")
_TAG = re.compile(r"</?[^<>\s][^<>]*>|\{\\[^{}]*+\}")


def read(text: str, name: str, locale: str | None = None) -> StringsFile:  # noqa: ARG001 - as for other kinds
    """Return the cues of a file. The unit of a cue is its position in the file, from 1.

    `text` is the text of the cue. The speaker of a voice tag at the beginning is not part of it.
    """
    cues, warnings = _read_cues(text, name)
    file = StringsFile(name, [entry for entry, _ in cues], notes=[f"{name}: {one}" for one in warnings])
    if (missing := text.count("-->") - len(cues)) > 0:
        file.notes.append(f"{format_count(missing, 'cue')} of {name} without text or valid times: no rows")
    spans = sorted(entry.span for entry in file.entries)
    if overlaps := sum(end > start for (_, end), (start, _) in pairwise(spans)):
        file.notes.append(f"{format_count(overlaps, 'cue')} of {name} last into the next cue")
    return file


def _read_cues(text: str, name: str) -> tuple[list[tuple[StringEntry, slice]], Sequence[str]]:
    """Return the cues of a file, each with the place of its text, and warnings about faulty lines."""
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
        entry = StringEntry(str(number), first + 1, written, start_ms=cue.start_ms, end_ms=cue.end_ms)
        if (voice := _VOICE_TAG.match(written)) and written.count("<v") == 1:
            spoken = written[voice.end() :]
            entry.character, entry.text = voice[1].strip(), spoken.removesuffix("</v>")
            start, end = start + voice.end(), end - len(spoken) + len(entry.text)
        found.append((entry, slice(start, end)))
    return found, subtitles.warnings


def fill(text: str, name: str, texts: Mapping[str, str], locale: str) -> str:
    """Return a file of cues with the given texts by unit, each wrapped into lines."""
    newline = get_newline(text)
    edits = [
        (place.start, place.stop, newline.join(wrap(texts[entry.unit], locale)[0]))
        for entry, place in _read_cues(text, name)[0]
        if entry.unit in texts
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
    # Break the text with its tags after the same character as the text without tags.
    in_tags = {at for found in _TAG.finditer(joined) for at in range(*found.span())}
    plain = [at for at in range(len(joined)) if at not in in_tags]
    at = plain[len(lines[0]) - 1] + 1
    return [joined[:at].rstrip(), joined[at:].lstrip()], True


def is_too_fast(text: str, entry: StringEntry) -> bool:
    """Return whether a text has too many characters a second for its cue."""
    length, (start, end) = len(" ".join(_TAG.sub("", text).split())), entry.span
    return 1000 * length > MAX_CUE_CHARACTERS_PER_SECOND * (end - start)


def find_overlaps(
    ones: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]], least_share: float = 0
) -> dict[int, int]:
    """Return pairs of cues (position in `ones`, position in `others`) that overlap most, one to one.

    Cues are given as start and end. Pairs must overlap by at least `least_share` of the shorter cue.
    """
    order = sorted(range(len(others)), key=lambda at: others[at])
    starts = [others[at][0] for at in order]
    longest = max((end - start for start, end in others), default=0)
    pairs = []
    for one, (start, end) in enumerate(ones):
        for other in order[bisect_left(starts, start - longest) : bisect_left(starts, end)]:
            other_start, other_end = others[other]
            overlap = min(end, other_end) - max(start, other_start)
            if overlap > 0 and overlap >= least_share * min(end - start, other_end - other_start):
                difference = abs(start - other_start) + abs(end - other_end)
                pairs.append((-overlap, difference, one, other))
    found: dict[int, int] = {}
    taken: set[int] = set()
    for *_, one, other in sorted(pairs):
        if one not in found and other not in taken:
            found[one] = other
            taken.add(other)
    return found
