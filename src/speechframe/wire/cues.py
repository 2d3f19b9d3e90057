"""Conversion of utterances to readable subtitle cues, and of cues to SRT and WebVTT.

Text is never shortened. Cues with too much text for their time are kept and counted.
"""

import html
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from speechframe.spec.chosen import (
    CUE_SECONDS_RANGE,
    MAX_CUE_CHARACTERS_PER_SECOND,
    MAX_CUE_LINE_CHARACTERS,
    MAX_CUE_LINES,
)

SENTENCE_MARKS = ".!?\u2026\u3002\uff01\uff1f\u0964\u06d4\u061f"
_CLAUSE_MARKS = ",;:\u2013\u2014\uff0c\u3001\uff1b\uff1a\u060c\u061b"
CLOSING_MARKS = "\"'\u2019\u201d\u00bb\u203a)]}\u300d\u300f\u3011\u3015\uff09\u300b\u3009"
_OPENING_MARKS = "([{\u00ab\u2039\u201c\u2018\u300c\u300e\u3010\u3014\uff08\u300a\u3008"
_SENTENCE_BREAK_BONUS, _CLAUSE_BREAK_BONUS = 24, 12
"""A break after a sentence or clause may be so many characters further from the middle than another break."""
_MAX_CLOSING_MARKS = 8
"""Largest number of closing marks, such as quotes, between a punctuation mark and a break."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A text with its start and end in milliseconds. `speaker` is empty if unknown."""

    start_ms: int
    end_ms: int
    text: str
    speaker: str = ""


def make_cues(utterances: Iterable[Cue], media_ms: int) -> tuple[list[Cue], int]:
    """Return cues with at most two lines of 42 characters, and the number of cues that miss the targets.

    The targets are at most 20 characters a second and a duration of 5/6 to 7 seconds. If a cue needs more
    time than its utterance, it lasts longer, up to the next cue. Cues never overlap. If two people speak at
    the same time, the second cue waits until the first cue can be read.

    Parameters
    ----------
    utterances
        Utterances of any length, in any order.
    media_ms
        Length of the media file in milliseconds. All cues lie inside it, unless there are more cues than
        milliseconds.

    Examples
    --------
    >>> long_cue = Cue(0, 1500, "Good morning, everybody. It is a fine day for a walk.")
    >>> (cue,), over = make_cues([long_cue], 4000)
    >>> cue.end_ms, cue.text.splitlines(), over
    (2650, ['Good morning, everybody.', 'It is a fine day for a walk.'], 0)
    """
    unarranged = [
        cue for each in sorted(utterances, key=lambda each: each.start_ms) for cue in _cut_utterance(each)
    ]
    arranged = _arrange_cues(unarranged, media_ms)
    return arranged, sum(map(_is_off_target, arranged))


def _compute_reading_ms(text: str) -> int:
    return max(
        -(-1000 * len(text) // MAX_CUE_CHARACTERS_PER_SECOND), -int(-1000 * CUE_SECONDS_RANGE.low // 1)
    )


def _is_off_target(cue: Cue) -> bool:
    length_ms = cue.end_ms - cue.start_ms
    return not _compute_reading_ms(cue.text) <= length_ms <= 1000 * CUE_SECONDS_RANGE.high


def _arrange_cues(wanted: Sequence[Cue], media_ms: int) -> list[Cue]:
    """Return cues that do not overlap, each with enough time to read its text if possible."""
    starts: list[int] = []
    free = 0
    for cue in wanted:
        starts.append(max(cue.start_ms, free))
        # Reserve the cue's own length or the time to read it, whichever is shorter.
        free = starts[-1] + max(1, min(cue.end_ms - cue.start_ms, _compute_reading_ms(cue.text)))
    made: list[Cue] = []
    # If there are more cues than milliseconds, each cue gets one, and the last ones lie after the end.
    limit = max(media_ms, len(wanted))
    for cue, start in zip(reversed(wanted), reversed(starts), strict=True):
        end = min(max(cue.end_ms, start + _compute_reading_ms(cue.text)), limit)
        limit = min(start, end - 1)
        made.append(Cue(limit, end, cue.text, cue.speaker))
    return made[::-1]


def _cut_utterance(utterance: Cue) -> Iterator[Cue]:
    """Yield the cues of an utterance, which is halved until each cue fits. Each character gets equal time."""
    text, length_ms = " ".join(utterance.text.split()), utterance.end_ms - utterance.start_ms
    lines, breaks = break_lines(text), list(_find_breaks(text))
    if lines is not None and (length_ms <= 1000 * CUE_SECONDS_RANGE.high or not breaks):
        if text:
            yield replace(utterance, text="\n".join(lines))
        return
    left, right = _choose_break(text, breaks or _find_breaks_in_words(text))
    left_ms, right_ms = (utterance.start_ms + length_ms * position // len(text) for position in (left, right))
    yield from _cut_utterance(replace(utterance, end_ms=left_ms, text=text[:left]))
    yield from _cut_utterance(replace(utterance, start_ms=right_ms, text=text[right:]))


def break_lines(text: str, longest: int = MAX_CUE_LINE_CHARACTERS) -> list[str] | None:
    """Return a text as the lines of a cue, or None if it is too long.

    Examples
    --------
    >>> break_lines("Good morning, everybody.", 16), break_lines("A long line of text.", 4)
    (['Good morning,', 'everybody.'], None)
    """
    if len(text) <= longest:
        return [text]
    if len(text) > MAX_CUE_LINES * longest + 1:
        return None
    places = list(_find_breaks(text)) or _find_breaks_in_words(text)
    places = [(left, right) for left, right in places if left <= longest and len(text) - right <= longest]
    if not places:
        return None
    left, right = _choose_break(text, places)
    return [text[:left], text[right:]]


def _choose_break(text: str, places: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the best place to break, near the middle or after a punctuation mark."""

    def compute_cost(position: tuple[int, int]) -> int:
        left, right = position
        before = text[max(0, left - _MAX_CLOSING_MARKS) : left].rstrip(CLOSING_MARKS)[-1:]
        worth = _SENTENCE_BREAK_BONUS * (before in SENTENCE_MARKS) or _CLAUSE_BREAK_BONUS * (
            before in _CLAUSE_MARKS
        )
        return abs(left - (len(text) - right)) - 2 * worth

    return min(places, key=compute_cost)


def _find_breaks(text: str) -> Iterator[tuple[int, int]]:
    """Yield places to break, at spaces and between wide characters, each as (end, start of the rest)."""
    for at in range(1, len(text)):
        before, behind = text[at - 1], text[at]
        if behind == " ":
            yield at, at + 1
        elif before != " " and (_is_wide(before) or _is_wide(behind)) and _may_break(before, behind):
            yield at, at


def _may_break(before: str, behind: str) -> bool:
    is_mark = (
        unicodedata.category(behind)[0] == "M"
        or behind in SENTENCE_MARKS + _CLAUSE_MARKS + CLOSING_MARKS + "\u30fc"
    )
    return not is_mark and before not in _OPENING_MARKS


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in {"W", "F"}


def _find_breaks_in_words(text: str) -> list[tuple[int, int]]:
    """Return all places to break inside a word, but not before combining marks if others exist."""
    places = [(at, at) for at in range(1, len(text))]
    return [position for position in places if unicodedata.category(text[position[0]])[0] != "M"] or places


def format_srt(cues: Iterable[Cue]) -> str:
    """Return cues as SRT, without the speakers.

    Examples
    --------
    >>> print(format_srt([Cue(500, 2000, "Good morning.")]), end="")
    1
    00:00:00,500 --> 00:00:02,000
    Good morning.
    <BLANKLINE>
    """
    return "".join(
        f"{number}\n{_format_time(cue.start_ms, ',')} --> {_format_time(cue.end_ms, ',')}\n{cue.text}\n\n"
        for number, cue in enumerate(cues, 1)
    )


def format_vtt(cues: Iterable[Cue]) -> str:
    """Return cues as WebVTT, with the speakers in voice tags.

    Examples
    --------
    >>> print(format_vtt([Cue(500, 2000, "Good morning.", "Anna")]), end="")
    WEBVTT
    <BLANKLINE>
    00:00:00.500 --> 00:00:02.000
    <v Anna>Good morning.
    <BLANKLINE>
    """
    return "WEBVTT\n\n" + "".join(
        f"{_format_time(cue.start_ms, '.')} --> {_format_time(cue.end_ms, '.')}\n{_format_vtt_text(cue)}\n\n"
        for cue in cues
    )


def _format_vtt_text(cue: Cue) -> str:
    text = html.escape(cue.text, quote=False)
    return f"<v {html.escape(cue.speaker, quote=False)}>{text}" if cue.speaker else text


def _format_time(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"
