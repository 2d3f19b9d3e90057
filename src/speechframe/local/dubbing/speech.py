"""Find the speech in subtitles, and the speaker of each line.

Subtitles have no standard for names of speakers, so the text alone decides. These forms are recognised::

    <v Anna>Hello.    ANNA: Hello.    [ANNA]: Hello.    Speaker 1: Hello.    [SPEAKER_00]: Hello.
    spk_0: Hello.     (speaker 1) Hello.    - Anna: Hello.    >> ANNA (on the phone): Hello.

A name in capitals, a numbered speaker and a name of the cast count as speakers. Capitals do not count if most
of the text is in capitals. Other names count only if they begin many lines. Otherwise "Remember: never open
it." would have a speaker.

Texts in brackets describe sounds and are not spoken. Songs between musical notes are not spoken, either.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from speechframe.spec.chosen import MIN_UNCERTAIN_NAME_LINES, MIN_UNCERTAIN_NAME_SHARE
from speechframe.spec.texts import PAUSE_MARKERS
from speechframe.wire.cues import Cue
from speechframe.wire.subtitles import CueLine, Subtitles, TimedLines, name_lines
from speechframe.writing.words import format_count

_UNNAMED_SPEAKER = "Speaker 1"
"""The speaker of text without a name."""
_MAX_NAME_WORDS = 4
"""Largest number of words in a name."""
_MAX_PARTICLE_LETTERS = 3
"""Letters of the longest lower-case word inside a name, as in "Maria de la Cruz"."""
_MIN_ROLLING_SHARE = 1 / 3
"""Captions roll if at least this share of the cues repeats lines of the cue before and adds a new line."""
_SHOWN_NAMES = 20
"""Largest number of names in a warning."""

# These patterns cannot backtrack for long: every repetition is bounded, or excludes the character after it.
_LINE_MARK_PATTERN = re.compile(r"(?:>{2,}|[-\u2013\u2014\u2010](?=\s*[^\W\d_]|\s*[\[(]))\s*")
_NAME_PART = r"[^\W\d_][\w .'\u2019&/+#-]{0,39}?"
_ASIDE_PART = r"\s{0,3}(?:[(\[][^()\[\]]{0,40}[)\]]\s{0,3})?"
_NAME_PATTERN = re.compile(rf"(?P<name>{_NAME_PART}){_ASIDE_PART}(?P<colon>[:\uff1a])(?![\d/])(?P<gap>\s*)")
_BRACKETED_NAME_PATTERN = re.compile(rf"[\[(](?P<name>{_NAME_PART})[\])](?P<colon>\s{{0,3}}[:\uff1a])?\s*")
_NUMBERED_SPEAKER_PATTERN = re.compile(
    r"(?:speaker|spkr?|person|participant)[\s_#-]{0,3}(?:\d{1,3}|[a-z])", re.IGNORECASE
)
_SQUARE_BRACKETS = r"\[[^\[\]]*\]|\u3010[^\u3010\u3011]*\u3011"
_ROUND_BRACKETS = r"\([^()]*\)|\uff08[^\uff08\uff09]*\uff09"
_BRACKET_PATTERN = re.compile(f"{_SQUARE_BRACKETS}|{_ROUND_BRACKETS}")
_MUSIC_NOTE_PATTERN = re.compile("[\u2669\u266a\u266b\u266c]")


@dataclass(frozen=True, slots=True)
class _NamePrefix:
    """A possible name at the beginning of a line, its form, and the text after the name."""

    name: str
    rest: str
    is_bracketed: bool
    has_colon: bool

    @property
    def is_numbered(self) -> bool:
        return bool(_NUMBERED_SPEAKER_PATTERN.fullmatch(self.name))

    @property
    def is_capital(self) -> bool:
        return self.name.isupper() and len(self.name) > 1

    def is_sure(self, *, is_shouted: bool) -> bool:
        """Return True if the form alone proves a speaker. Capitals prove nothing in shouted text."""
        return self.is_numbered or (
            self.has_colon and (self.is_bracketed or (self.is_capital and not is_shouted))
        )


@dataclass(slots=True)
class _ScriptFacts:
    """Counts for the warnings.

    Attributes
    ----------
    named
        Lines by speaker name.
    spoken
        Lines by possible name that is spoken as text.
    left_out
        Numbers of the lines that are not spoken, or only in part.
    """

    named: Counter[str]
    spoken: Counter[str]
    left_out: list[int]


def find_speech(subtitles: Subtitles, cast: Collection[str] = ()) -> tuple[list[Cue], list[str]]:
    """Return the speech of subtitles as cues, in order, and warnings about guesses and omissions.

    A cue is split if the speaker changes inside it. The new cues share its time in proportion to their
    numbers of characters.

    Parameters
    ----------
    subtitles
        The parsed subtitles.
    cast
        Names that are certainly speakers.
    """
    warnings = list(subtitles.warnings)
    timed, repeated = _remove_repeats([_join_brackets(cue) for cue in subtitles.cues])
    if repeated:
        warnings.append(f"the captions roll: {format_count(repeated, 'repeated line')} spoken once")
    names = _find_speakers(timed, cast)
    found = _ScriptFacts(Counter(), Counter(), [])
    cues = [part for cue in timed for part in _split_by_speaker(cue, names, found)]
    return cues, [*warnings, *_build_warnings(found, cast)]


def _build_warnings(found: _ScriptFacts, cast: Collection[str]) -> Iterator[str]:
    guessed = [name for name in found.named if name not in cast]
    if guessed or found.spoken:
        who = _format_names(found.named) if found.named else "none"
        warning = f"speakers found by the names in front of lines: {who}"
        if found.spoken:
            warning += f"; these beginnings are spoken as text: {_format_names(found.spoken)}"
        yield f"{warning}. <v NAME> in WebVTT, or a name in cast, makes a speaker certain"
    if found.left_out:
        numbers = list(dict.fromkeys(found.left_out))
        yield f"{name_lines(numbers)}: not spoken, because brackets and songs between notes are not speech"


def _format_names(names: Counter[str]) -> str:
    shown = ", ".join(
        f"{name!r} ({format_count(count, 'line')})" for name, count in names.most_common(_SHOWN_NAMES)
    )
    others = len(names) - _SHOWN_NAMES
    return shown if others <= 0 else f"{shown} and {others:,} others"


def _join_brackets(cue: TimedLines) -> TimedLines:
    """Return the cue with each bracketed text that spans several lines joined into one line."""
    text = "\n".join(line.text for line in cue.lines)
    joined = _BRACKET_PATTERN.sub(lambda found: found[0].replace("\n", " "), text)
    if joined == text:
        return cue
    starts, at = dict[int, CueLine](), 0
    for line in cue.lines:
        starts[at] = line
        at += len(line.text) + 1
    lines, at = list[CueLine](), 0
    for line_text in joined.split("\n"):
        lines.append(replace(starts[at], text=line_text))
        at += len(line_text) + 1
    return replace(cue, lines=lines)


def _remove_repeats(cues: Sequence[TimedLines]) -> tuple[Sequence[TimedLines], int]:
    """Return the cues without repeated lines, and the number of repeated lines.

    Automatic captions roll: each cue shows the last lines of the cue before, above a new line. Cues that do
    not roll stay unchanged, and the number is 0.
    """
    texts = [[line.text for line in cue.lines if line.text] for cue in cues]
    repeats = [0, *(_count_repeats(before, after) for before, after in pairwise(texts))]
    growing = sum(0 < count < len(lines) for count, lines in zip(repeats, texts, strict=True))
    if growing < max(2, _MIN_ROLLING_SHARE * len(cues)):
        return cues, 0
    kept = []
    for cue, count in zip(cues, repeats, strict=True):
        kept.append(replace(cue, lines=[line for line in cue.lines if line.text][count:]))
    return kept, sum(repeats)


def _count_repeats(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many lines at the end of one cue also begin the next cue, at most 3."""
    return next((n for n in (3, 2, 1) if len(before) >= n and before[-n:] == after[:n]), 0)


def _find_speakers(cues: Sequence[TimedLines], cast: Collection[str]) -> set[str]:
    """Return the names in front of lines that count as speakers."""
    lines = [(line.text, _find_name_prefix(line.text)) for cue in cues for line in cue.lines]
    letters = Counter(
        letter.isupper()
        for text, lead in lines
        for letter in (lead.rest if lead else text)
        if letter.isupper() or letter.islower()
    )
    is_shouted = letters[True] > letters[False]
    leads = [lead for _, lead in lines if lead is not None]
    sure = {lead.name for lead in leads if lead.name in cast or lead.is_sure(is_shouted=is_shouted)}
    counts = Counter(lead.name for lead in leads if lead.rest or lead.has_colon)
    doubtful = {name: count for name, count in counts.items() if name not in sure and count > 1}
    is_many = sum(doubtful.values()) >= max(MIN_UNCERTAIN_NAME_LINES, MIN_UNCERTAIN_NAME_SHARE * len(cues))
    return sure | doubtful.keys() if is_many else sure


def _split_by_speaker(cue: TimedLines, names: Collection[str], found: _ScriptFacts) -> Iterator[Cue]:
    """Yield the speech of a cue, one cue for each change of speaker."""
    note_lines = [
        position for position, line in enumerate(cue.lines) if _MUSIC_NOTE_PATTERN.search(line.text)
    ]
    parts: list[tuple[str, list[str]]] = []
    for position, line in enumerate(cue.lines):
        speaker, text = _split_name(line, names, found)
        # A song may span several lines.
        is_sung = len(note_lines) > 1 and note_lines[0] <= position <= note_lines[-1]
        spoken = "" if is_sung else _strip_sounds(text)
        if spoken != " ".join(text.split()):
            found.left_out.append(line.number)
        if speaker or not parts:
            parts.append((speaker, []))
        parts[-1][1].extend([spoken] if spoken else [])
    texts = [(speaker, " ".join(line_texts)) for speaker, line_texts in parts if line_texts]
    total, done = sum(len(text) for _, text in texts), 0
    for speaker, text in texts:
        begun, done = done, done + len(text)
        length_ms = cue.end_ms - cue.start_ms
        first_ms, last_ms = (cue.start_ms + length_ms * share // total for share in (begun, done))
        yield Cue(first_ms, last_ms, text, speaker or _UNNAMED_SPEAKER)


def _split_name(line: CueLine, names: Collection[str], found: _ScriptFacts) -> tuple[str, str]:
    """Return the speaker of a line and the text without the name. The speaker is empty if unknown."""
    if line.voice:
        return line.voice, line.text
    lead = _find_name_prefix(line.text)
    if lead is not None and lead.name in names:
        found.named[lead.name] += 1
        return lead.name, lead.rest
    if lead is not None and lead.has_colon:
        found.spoken[lead.name] += 1
    mark = _LINE_MARK_PATTERN.match(line.text)
    return "", line.text[mark.end() :] if mark else line.text


def _find_name_prefix(text: str) -> _NamePrefix | None:
    """Return the possible name in front of a line, or None if no text there has the form of a name."""
    mark = _LINE_MARK_PATTERN.match(text)
    at = mark.end() if mark else 0
    is_bracketed = text.startswith(("[", "("), at)
    found = (_BRACKETED_NAME_PATTERN if is_bracketed else _NAME_PATTERN).match(text, at)
    if found is None or not _is_name(name := " ".join(found["name"].split())):
        return None
    lead = _NamePrefix(name, text[found.end() :], is_bracketed, found["colon"] is not None)
    # Without a space after the colon, only capitals or a numbered speaker are a name: "ANNA:Hello", not
    # "Re:start".
    is_tight = not is_bracketed and found["colon"] == ":" and not found["gap"] and bool(lead.rest)
    return None if is_tight and not (lead.is_capital or lead.is_numbered) else lead


def _is_name(name: str) -> bool:
    """Return True if a text has the form of a name: few words, capitalised except for short inner words."""
    words = name.split()
    if _NUMBERED_SPEAKER_PATTERN.fullmatch(name):
        return True
    is_particle = [word[0].islower() and len(word) <= _MAX_PARTICLE_LETTERS for word in words]
    return (
        len(words) <= _MAX_NAME_WORDS
        and not words[0][0].islower()
        and not words[-1][0].islower()
        and all(small or not word[0].islower() for small, word in zip(is_particle, words, strict=True))
    )


def _strip_sounds(text: str) -> str:
    """Return the speech of a line, without brackets that describe sounds and without songs."""
    between = _MUSIC_NOTE_PATTERN.split(text)
    if len(between) > 1:
        # A single note marks the whole line as a song. If notes come in pairs, the text outside them is
        # speech.
        text = "" if len(between) == 2 else " ".join(between[::2])  # noqa: PLR2004
    text = " ".join(text.split())
    found = list(_BRACKET_PATTERN.finditer(text))
    # Round brackets inside a sentence are a part of the sentence. Brackets at the ends of a line are removed.
    first, last = 0, len(text)
    for one in found:
        if not text[first : one.start()].isspace() and first != one.start():
            break
        first = one.end()
    for one in reversed(found):
        if not text[one.end() : last].isspace() and last != one.end():
            break
        last = one.start()
    kept, at = list[str](), 0
    for one in found:
        is_round_inside = one[0][0] in "(\uff08" and first <= one.start() and one.end() <= last
        if not is_round_inside and not PAUSE_MARKERS.fullmatch(one[0]):
            kept.append(text[at : one.start()])
            at = one.end()
    return " ".join("".join([*kept, text[at:]]).split())
