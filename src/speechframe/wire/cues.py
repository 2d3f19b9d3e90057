"""Conversion of utterances to readable subtitle cues, and of cues to SRT and WebVTT.

Text is never shortened. Cues with too much text for their time are kept and counted.
"""

import html
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from speechframe.spec.chosen import (
    CUE_CHARACTERS_PER_SECOND,
    CUE_LINE_CHARACTERS,
    CUE_LINES,
    CUE_SECONDS,
)

__all__ = ["CLOSING_MARKS", "SENTENCE_MARKS", "Cue", "cues", "srt", "vtt"]

SENTENCE_MARKS = ".!?\u2026\u3002\uff01\uff1f\u0964\u06d4\u061f"
_CLAUSE = ",;:\u2013\u2014\uff0c\u3001\uff1b\uff1a\u060c\u061b"
CLOSING_MARKS = "\"'\u2019\u201d\u00bb\u203a)]}\u300d\u300f\u3011\u3015\uff09\u300b\u3009"
_OPENERS = "([{\u00ab\u2039\u201c\u2018\u300c\u300e\u3010\u3014\uff08\u300a\u3008"
_SENTENCE_WORTH, _CLAUSE_WORTH = 24, 12
"""A break after a sentence or clause may be so many characters further from the middle than another break."""
_MOST_CLOSERS = 8
"""Largest number of closing marks, such as quotes, between a punctuation mark and a break."""


@dataclass(frozen=True, slots=True)
class Cue:
    """A text with its start and end in milliseconds. `speaker` is empty if unknown."""

    start_ms: int
    end_ms: int
    text: str
    speaker: str = ""


def cues(said: Iterable[Cue], media_ms: int) -> tuple[list[Cue], int]:
    """Return cues with at most two lines of 42 characters, and the number of cues that miss the targets.

    The targets are at most 20 characters a second and a duration of 5/6 to 7 seconds. If a cue needs more
    time than its utterance, it lasts longer, up to the next cue. Cues never overlap. If two people speak at
    the same time, the second cue waits until the first cue can be read.

    Parameters
    ----------
    said
        Utterances of any length, in any order.
    media_ms
        Length of the media file in milliseconds. All cues lie inside it, unless there are more cues than
        milliseconds.

    Examples
    --------
    >>> (cue,), over = cues([Cue(0, 1500, "Good morning, everybody. It is a fine day for a walk.")], 4000)
    >>> cue.end_ms, cue.text.splitlines(), over
    (2650, ['Good morning, everybody.', 'It is a fine day for a walk.'], 0)
    """
    wanted = [cue for each in sorted(said, key=lambda each: each.start_ms) for cue in _cut(each)]
    made = _arrange(wanted, media_ms)
    return made, sum(map(_misses, made))


def _needed_ms(text: str) -> int:
    return max(-(-1000 * len(text) // CUE_CHARACTERS_PER_SECOND), -int(-1000 * CUE_SECONDS.low // 1))


def _misses(cue: Cue) -> bool:
    length_ms = cue.end_ms - cue.start_ms
    return not _needed_ms(cue.text) <= length_ms <= 1000 * CUE_SECONDS.high


def _arrange(wanted: Sequence[Cue], media_ms: int) -> list[Cue]:
    """Return cues that do not overlap, each with enough time to read its text if possible."""
    starts: list[int] = []
    free = 0
    for cue in wanted:
        starts.append(max(cue.start_ms, free))
        # Reserve the cue's own length or the time to read it, whichever is shorter.
        free = starts[-1] + max(1, min(cue.end_ms - cue.start_ms, _needed_ms(cue.text)))
    made: list[Cue] = []
    # If there are more cues than milliseconds, each cue gets one, and the last ones lie after the end.
    limit = max(media_ms, len(wanted))
    for cue, start in zip(reversed(wanted), reversed(starts), strict=True):
        end = min(max(cue.end_ms, start + _needed_ms(cue.text)), limit)
        limit = min(start, end - 1)
        made.append(Cue(limit, end, cue.text, cue.speaker))
    return made[::-1]


def _cut(said: Cue) -> Iterator[Cue]:
    """Yield the cues of an utterance, which is halved until each cue fits. Each character gets equal time."""
    text, length_ms = " ".join(said.text.split()), said.end_ms - said.start_ms
    lines, breaks = _lines(text), list(_breaks(text))
    if lines is not None and (length_ms <= 1000 * CUE_SECONDS.high or not breaks):
        if text:
            yield replace(said, text="\n".join(lines))
        return
    left, right = _best(text, breaks or _places_in_words(text))
    left_ms, right_ms = (said.start_ms + length_ms * place // len(text) for place in (left, right))
    yield from _cut(replace(said, end_ms=left_ms, text=text[:left]))
    yield from _cut(replace(said, start_ms=right_ms, text=text[right:]))


def _lines(text: str) -> list[str] | None:
    """Return a text as the lines of a cue, or None if it is too long."""
    longest = CUE_LINE_CHARACTERS
    if len(text) <= longest:
        return [text]
    if len(text) > CUE_LINES * longest + 1:
        return None
    places = list(_breaks(text)) or _places_in_words(text)
    places = [(left, right) for left, right in places if left <= longest and len(text) - right <= longest]
    if not places:
        return None
    left, right = _best(text, places)
    return [text[:left], text[right:]]


def _best(text: str, places: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the best place to break, near the middle or after a punctuation mark."""

    def cost(place: tuple[int, int]) -> int:
        left, right = place
        before = text[max(0, left - _MOST_CLOSERS) : left].rstrip(CLOSING_MARKS)[-1:]
        worth = _SENTENCE_WORTH * (before in SENTENCE_MARKS) or _CLAUSE_WORTH * (before in _CLAUSE)
        return abs(left - (len(text) - right)) - 2 * worth

    return min(places, key=cost)


def _breaks(text: str) -> Iterator[tuple[int, int]]:
    """Yield places to break, at spaces and between wide characters, each as (end, start of the rest)."""
    for at in range(1, len(text)):
        before, behind = text[at - 1], text[at]
        if behind == " ":
            yield at, at + 1
        elif before != " " and (_is_wide(before) or _is_wide(behind)) and _may_part(before, behind):
            yield at, at


def _may_part(before: str, behind: str) -> bool:
    is_mark = (
        unicodedata.category(behind)[0] == "M"
        or behind in SENTENCE_MARKS + _CLAUSE + CLOSING_MARKS + "\u30fc"
    )
    return not is_mark and before not in _OPENERS


def _is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in {"W", "F"}


def _places_in_words(text: str) -> list[tuple[int, int]]:
    """Return all places to break inside a word, but not before combining marks if others exist."""
    places = [(at, at) for at in range(1, len(text))]
    return [place for place in places if unicodedata.category(text[place[0]])[0] != "M"] or places


def srt(cues: Iterable[Cue]) -> str:
    """Return cues as SRT, without the speakers.

    Examples
    --------
    >>> print(srt([Cue(500, 2000, "Good morning.")]), end="")
    1
    00:00:00,500 --> 00:00:02,000
    Good morning.
    <BLANKLINE>
    """
    return "".join(
        f"{number}\n{_time(cue.start_ms, ',')} --> {_time(cue.end_ms, ',')}\n{cue.text}\n\n"
        for number, cue in enumerate(cues, 1)
    )


def vtt(cues: Iterable[Cue]) -> str:
    """Return cues as WebVTT, with the speakers in voice tags.

    Examples
    --------
    >>> print(vtt([Cue(500, 2000, "Good morning.", "Anna")]), end="")
    WEBVTT
    <BLANKLINE>
    00:00:00.500 --> 00:00:02.000
    <v Anna>Good morning.
    <BLANKLINE>
    """
    return "WEBVTT\n\n" + "".join(
        f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{_with_speaker(cue)}\n\n" for cue in cues
    )


def _with_speaker(cue: Cue) -> str:
    text = html.escape(cue.text, quote=False)
    return f"<v {html.escape(cue.speaker, quote=False)}>{text}" if cue.speaker else text


def _time(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"
