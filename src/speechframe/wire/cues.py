"""Cues of subtitles: utterances to readable cues, and cues to and from SRT and WebVTT.

Text is never shortened. A cue with too much text for its time is kept and counted.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from speechframe.spec.chosen import (
    CUE_CHARACTERS_PER_SECOND,
    CUE_LINE_CHARACTERS,
    CUE_LINES,
    CUE_SECONDS,
)

__all__ = ["CLOSING_MARKS", "SENTENCE_MARKS", "Cue", "cues", "parse", "srt", "vtt"]

SENTENCE_MARKS = ".!?\u2026\u3002\uff01\uff1f\u0964\u06d4\u061f"
_CLAUSE = ",;:\u2013\u2014\uff0c\u3001\uff1b\uff1a\u060c\u061b"
CLOSING_MARKS = "\"'\u2019\u201d\u00bb\u203a)]}\u300d\u300f\u3011\u3015\uff09\u300b\u3009"
_OPENERS = "([{\u00ab\u2039\u201c\u2018\u300c\u300e\u3010\u3014\uff08\u300a\u3008"
# A break behind a mark is worth as many characters of distance to the middle.
_SENTENCE_WORTH, _CLAUSE_WORTH = 24, 12
_MOST_CLOSERS = 8


@dataclass(frozen=True, slots=True)
class Cue:
    """A text with its start and end in milliseconds. The speaker is empty if unknown."""

    start_ms: int
    end_ms: int
    text: str
    speaker: str = ""


def cues(said: Iterable[Cue], media_ms: int) -> tuple[list[Cue], int]:
    """Return cues of two lines of 42 characters at most, and how many miss the aims.

    The aims are 20 characters a second, and 5/6 to 7 seconds. A cue stays longer for them if there is room.
    Cues never overlap. If two people speak at once, the second cue waits until the first one can be read.

    Parameters
    ----------
    said
        Utterances of any length, in any order.
    media_ms
        Length of the medium, inside which all cues are, unless there are more cues than milliseconds.

    Examples
    --------
    >>> (cue,), over = cues([Cue(0, 1500, "Good morning, everybody. It is a fine day for a walk.")], 4000)
    >>> cue.end_ms, cue.text.splitlines(), over
    (2650, ['Good morning, everybody.', 'It is a fine day for a walk.'], 0)
    """
    wanted = [cue for each in sorted(said, key=lambda each: each.start_ms) for cue in _cut(each)]
    made = _in_time(wanted, media_ms)
    return made, sum(map(_misses, made))


def _needed_ms(text: str) -> int:
    return max(-(-1000 * len(text) // CUE_CHARACTERS_PER_SECOND), -int(-1000 * CUE_SECONDS.low // 1))


def _misses(cue: Cue) -> bool:
    length_ms = cue.end_ms - cue.start_ms
    return not _needed_ms(cue.text) <= length_ms <= 1000 * CUE_SECONDS.high


def _in_time(wanted: Sequence[Cue], media_ms: int) -> list[Cue]:
    """Return cues one behind the other, each with the time for its text if there is room."""
    starts: list[int] = []
    free = 0
    for cue in wanted:
        starts.append(max(cue.start_ms, free))
        # The shorter of its own length and the time to read it.
        free = starts[-1] + max(1, min(cue.end_ms - cue.start_ms, _needed_ms(cue.text)))
    made: list[Cue] = []
    # A medium of fewer milliseconds than cues: each cue has one, the last of them behind its end.
    limit = max(media_ms, len(wanted))
    for cue, start in zip(reversed(wanted), reversed(starts), strict=True):
        end = min(max(cue.end_ms, start + _needed_ms(cue.text)), limit)
        limit = min(start, end - 1)
        made.append(Cue(limit, end, cue.text, cue.speaker))
    return made[::-1]


def _cut(said: Cue) -> Iterator[Cue]:
    """Yield the cues of an utterance, halved until each one fits. Letters share the time evenly."""
    text, length_ms = " ".join(said.text.split()), said.end_ms - said.start_ms
    lines, breaks = _lines(text), list(_breaks(text))
    if lines is not None and (length_ms <= 1000 * CUE_SECONDS.high or not breaks):
        if text:
            yield replace(said, text="\n".join(lines))
        return
    left, right = _best(text, breaks or _anywhere(text))
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
    places = list(_breaks(text)) or _anywhere(text)
    places = [(left, right) for left, right in places if left <= longest and len(text) - right <= longest]
    if not places:
        return None
    left, right = _best(text, places)
    return [text[:left], text[right:]]


def _best(text: str, places: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the best place to break, near the middle or behind a mark."""

    def cost(place: tuple[int, int]) -> int:
        left, right = place
        before = text[max(0, left - _MOST_CLOSERS) : left].rstrip(CLOSING_MARKS)[-1:]
        worth = _SENTENCE_WORTH * (before in SENTENCE_MARKS) or _CLAUSE_WORTH * (before in _CLAUSE)
        return abs(left - (len(text) - right)) - 2 * worth

    return min(places, key=cost)


def _breaks(text: str) -> Iterator[tuple[int, int]]:
    """Yield each place to break as end and next start, at spaces and between wide characters."""
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


def _anywhere(text: str) -> list[tuple[int, int]]:
    """Return all places inside a word. A letter keeps its combining marks if possible."""
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
        f"{_time(cue.start_ms, '.')} --> {_time(cue.end_ms, '.')}\n{_tagged(cue)}\n\n" for cue in cues
    )


def _tagged(cue: Cue) -> str:
    text = html.escape(cue.text, quote=False)
    return f"<v {html.escape(cue.speaker, quote=False)}>{text}" if cue.speaker else text


def _time(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


_TIME = r"(?:(\d{1,3}):)?([0-5]?\d):([0-5]?\d)[.,](\d{1,3})"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s.*)?")
_NO_CUES = ("NOTE", "STYLE", "REGION", "WEBVTT")
# Possessive, and no two parts in a row share a character. So each pattern takes linear time on any text.
_VOICE = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^\s<>][^<>]{0,199})>")
_TAG = re.compile(
    r"</?(?:[biu]|font|c|v|lang|ruby|rt|\d[\d:]*+)(?:[\s.][^<>]*+)?>|\{\\[^{}]*+\}", re.IGNORECASE
)
# A name in letters of any script, and a colon.
_NAME = re.compile(r"-?\s*([^\W\d_][\w .'\u2019-]{0,39})[:\uff1a]\s*(?=\S)")


def parse(text: str) -> list[Cue]:
    r"""Return the cues of SRT or WebVTT, in the order of their starts.

    The speaker comes from a voice tag, or from a name and a colon in front of a line. Such a name is in
    capitals or occurs twice. A cue becomes two if the speaker changes inside it.

    Raises
    ------
    ValueError
        The text is neither SRT nor WebVTT. The words contain the line.

    Examples
    --------
    >>> parse("1\n00:00:00,500 --> 00:00:02,000\nANNA: Good <i>morning</i>.\n")
    [Cue(start_ms=500, end_ms=2000, text='Good morning.', speaker='ANNA')]
    """
    blocks = list(_blocks(text))
    lines = [_plain(line) for _, _, said in blocks for line in said]
    counted = Counter(match[1] for line in lines if (match := _NAME.match(line)))
    names = {name for name, count in counted.items() if count > 1 or name.isupper()}
    found = [cue for start_ms, end_ms, said in blocks for cue in _parted(start_ms, end_ms, said, names)]
    if not found:
        raise ValueError("line 1: there are no cues; SRT or WebVTT is needed")
    return sorted(found, key=lambda cue: cue.start_ms)


def _blocks(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield start, end and lines of every cue."""
    block: list[str] = []
    for number, line in enumerate([*text.removeprefix("\ufeff").splitlines(), ""], 1):
        if line.strip():
            block.append(line)
        elif block:
            first = next((i for i, each in enumerate(block[:2]) if "-->" in each), 0)
            if "-->" in block[first] or not block[0].startswith(_NO_CUES):
                start_ms, end_ms = _times(block[first], number - len(block) + first)
                yield start_ms, end_ms, block[first + 1 :]
            block = []


def _times(line: str, number: int) -> tuple[int, int]:
    match = _TIMES.fullmatch(line)
    if match is None:
        raise ValueError(f"line {number}: times are needed, such as 00:00:01,000 --> 00:00:02,500")
    start_ms, end_ms = (
        ((int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(part.ljust(3, "0"))
        for hours, minutes, seconds, part in (match.groups()[:4], match.groups()[4:])
    )
    if end_ms <= start_ms:
        raise ValueError(f"line {number}: the cue ends before it has begun")
    return start_ms, end_ms


def _parted(start_ms: int, end_ms: int, said: Sequence[str], names: set[str]) -> Iterator[Cue]:
    """Yield a cue for each speaker. Characters share the time evenly."""
    parts: list[tuple[str, list[str]]] = []
    for line in said:
        speaker, words = _speaker(line, names)
        if speaker or not parts:
            parts.append((speaker, []))
        parts[-1][1].extend([words] if words else [])
    texts = [(speaker, "\n".join(words)) for speaker, words in parts if words]
    total, done = sum(len(text) for _, text in texts), 0
    for speaker, text in texts:
        begun, done = done, done + len(text)
        first_ms, last_ms = (start_ms + (end_ms - start_ms) * share // total for share in (begun, done))
        yield Cue(first_ms, last_ms, text, speaker)


def _plain(line: str) -> str:
    return html.unescape(_TAG.sub("", line)).strip()


def _speaker(line: str, names: set[str]) -> tuple[str, str]:
    """Return the speaker of a line, empty if unknown, and the rest of the line."""
    words = _plain(line)
    if voice := _VOICE.search(line):
        return html.unescape(voice[1]).strip(), words
    if (match := _NAME.match(words)) and match[1] in names:
        return match[1].strip(), words[match.end() :]
    return "", words
