"""Reading of SRT and WebVTT. Like players, it accepts invalid files. It reports each line that it cannot use.

A line of times always begins a cue. The following lines are the text of the cue, until the next line of
times. The number or name before a line of times is ignored. So are the header, notes and styles of WebVTT.
"""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from speechframe.wire.cues import Cue

_LINE_END = re.compile(r"\r\n|\r|\n")
# Repetitions are possessive, and neighbouring parts share no characters, so that matching takes linear time.
_TIME_PATTERN = re.compile(r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})(?:[.,:](\d{1,3})\d{0,9})?(?=\s|$)")
_CLOCK_PATTERN = re.compile(r"\d:\d\d")
_VOICE_TAG = re.compile(r"<v(?:\.[^\s<>]*+)?\s++([^\s<>][^<>]{0,199})>")
_TAG_PATTERN = re.compile(
    r"</?(?:[biu]|font|c|v|lang|ruby|rt|\d[\d:]*+)(?:[\s.][^<>]*+)?>|\{\\[^{}]*+\}", re.IGNORECASE
)
_BLOCK_WITHOUT_CUE = re.compile(r"NOTE(?:\s|$)|(?:STYLE|REGION)$")
_MAX_SHOWN_LINES = 5
"""Largest number of line numbers in a message."""

_NO_CUES_FAULT = "there are no cues with text; SRT or WebVTT is needed"
_UNREADABLE_FAULT = "this cue is skipped, because it needs times such as 00:00:01,000 --> 00:00:02,500"
_BACKWARD_FAULT = "this cue is skipped, because it ends before it begins"
_STRAY_NUMBER_FAULT = "this number is skipped, because it belongs to no cue"
_STRAY_TEXT_FAULT = "this text is skipped, because it stands in front of the first cue"
_TEXT_AFTER_BLANK_FAULT = "this text after a blank line is read as part of the cue before it"


@dataclass(frozen=True, slots=True)
class CueLine:
    """A line of a cue without tags. `number` counts the lines of the file. `voice` is from its voice tag."""

    number: int
    text: str
    voice: str = ""


@dataclass(slots=True)
class TimedLines:
    """The lines of a cue, with its start and end in milliseconds."""

    start_ms: int
    end_ms: int
    lines: list[CueLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Subtitles:
    """The cues of a file that have text, in the order of their starts, and warnings about faulty lines."""

    cues: tuple[TimedLines, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the file that is not blank. `begins_block` is True for the first line after a blank line."""

    number: int
    text: str
    begins_block: bool

    @property
    def is_number(self) -> bool:
        return self.text.isdecimal()

    @property
    def is_times(self) -> bool:
        """Whether the line looks like a line of times, even if the times are invalid."""
        before, arrow, after = self.text.partition("->")
        touches = before.rstrip("- ")[-1:].isdecimal() or after.lstrip()[:1].isdecimal()
        return bool(arrow) and touches and (before.endswith("-") or bool(_CLOCK_PATTERN.search(self.text)))


def read_subtitles(text: str) -> Subtitles:
    r"""Return the cues of a text in SRT or WebVTT, and warnings about faulty lines.

    Raises
    ------
    ValueError
        No cue with text can be read. The message contains the number of the faulty line.

    Examples
    --------
    >>> read_subtitles("00:01 --> 00:02\nGood <i>morning</i>.\n2\n00:03 --> 00:04\nHi!").cues[1]
    TimedLines(start_ms=3000, end_ms=4000, lines=[CueLine(number=5, text='Hi!', voice='')])
    """
    text = text.removeprefix("\ufeff")
    is_webvtt = text.startswith("WEBVTT")
    rows, cues, faults = list(_split_rows(text)), list[TimedLines](), dict[str, list[int]]()
    cue: TimedLines | None = None
    is_skipped = False
    is_left_out = is_webvtt  # the header
    for row, following in zip(rows, [*rows[1:], None], strict=False):
        fault = None
        is_left_out &= not row.begins_block or row is rows[0]
        if row.is_times:
            cue, fault = _read_times(row.text)
            is_skipped, is_left_out = cue is None, False
            cues += [] if cue is None else [cue]
        elif is_left_out or _is_cue_name(row, following, is_webvtt=is_webvtt):
            continue
        elif is_webvtt and row.begins_block and _BLOCK_WITHOUT_CUE.match(row.text):
            is_left_out = True
        elif cue is None:
            fault = None if is_skipped else _STRAY_NUMBER_FAULT if row.is_number else _STRAY_TEXT_FAULT
        elif row.is_number and _is_alone(row, following) and cue.lines:
            fault = _STRAY_NUMBER_FAULT
        else:
            fault = _TEXT_AFTER_BLANK_FAULT if row.begins_block and cue.lines else None
            cue.lines.append(_read_line(row))
        if fault is not None:
            faults.setdefault(fault, []).append(row.number)
    return _select_cues_with_text(cues, faults)


def _select_cues_with_text(cues: Sequence[TimedLines], faults: Mapping[str, Sequence[int]]) -> Subtitles:
    """Return the cues with text and the warnings. Raise ValueError if no cue has text."""
    found = [cue for cue in cues if any(line.text for line in cue.lines)]
    if not found:
        why = next((why for why in (_UNREADABLE_FAULT, _BACKWARD_FAULT) if why in faults), _NO_CUES_FAULT)
        raise ValueError(f"line {faults.get(why, (1,))[0]}: {why}")
    found.sort(key=lambda cue: cue.start_ms)
    return Subtitles(tuple(found), tuple(f"{name_lines(lines)}: {why}" for why, lines in faults.items()))


def convert_to_cues(subtitles: Subtitles) -> list[Cue]:
    """Return the cues as texts of one or more lines. The speaker is that of the first voice tag."""
    return [
        Cue(
            cue.start_ms,
            cue.end_ms,
            "\n".join(line.text for line in cue.lines if line.text),
            next((line.voice for line in cue.lines if line.voice), ""),
        )
        for cue in subtitles.cues
    ]


def name_lines(numbers: Sequence[int]) -> str:
    """Return line numbers as text. If there are more than five, only the first five are listed.

    Examples
    --------
    >>> name_lines([3]), name_lines([3, 5, 8]), name_lines(range(1, 100))
    ('line 3', 'lines 3, 5, 8', 'lines 1, 2, 3, 4, 5 and 94 others')
    """
    shown = ", ".join(map(str, numbers[:_MAX_SHOWN_LINES]))
    others = len(numbers) - _MAX_SHOWN_LINES
    rest = "" if others <= 0 else " and 1 other" if others == 1 else f" and {others:,} others"
    return f"line{'' if len(numbers) == 1 else 's'} {shown}{rest}"


def _split_rows(text: str) -> Iterator[_Row]:
    begins_block = True
    for number, line in enumerate(_LINE_END.split(text), 1):
        if stripped := line.strip():
            yield _Row(number, stripped, begins_block)
        begins_block = not stripped


def _is_cue_name(row: _Row, following: _Row | None, *, is_webvtt: bool) -> bool:
    """Return whether a row is the number, or in WebVTT the name, of the following cue."""
    if following is None or not following.is_times:
        return False
    if row.is_number:
        return row.begins_block or not following.begins_block
    return is_webvtt and row.begins_block and not following.begins_block


def _is_alone(row: _Row, following: _Row | None) -> bool:
    return row.begins_block and (following is None or following.begins_block)


def _read_times(line: str) -> tuple[TimedLines | None, str | None]:
    """Return an empty cue with the times of a line and None, or None and the fault of the line."""
    before, _, after = line.partition("->")
    start, end = _TIME_PATTERN.fullmatch(before.rstrip("- ")), _TIME_PATTERN.match(after.lstrip())
    if start is None or end is None:
        return None, _UNREADABLE_FAULT
    start_ms, end_ms = map(_read_ms, (start, end))
    return (TimedLines(start_ms, end_ms), None) if start_ms < end_ms else (None, _BACKWARD_FAULT)


def _read_ms(time: re.Match[str]) -> int:
    hours, minutes, seconds, part = time.groups("0")
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1000 + int(part.ljust(3, "0"))


def _read_line(row: _Row) -> CueLine:
    voice = _VOICE_TAG.search(row.text)
    text = html.unescape(_TAG_PATTERN.sub("", row.text)).strip()
    return CueLine(row.number, text, html.unescape(voice[1]).strip() if voice else "")
