"""How long a text takes to say: first by its script, then by what the voice itself was heard to take.

A text is weighed in letters: what each character takes to say compared with a
letter of an alphabet. Seconds per letter then hardly depend on the language:
measured over 14,683 answers of the embedded voices in ten locales (English,
Spanish, French, German, Italian, Portuguese, Hindi, Chinese), the medians lie
between 0.048 and 0.072 s, and no answer is further from the median of its voice
and rate than a factor of 1.43. Read-aloud English of 150 to 180 words a minute,
the pace of audio books, is 0.055 to 0.067 s.
"""

import math
import unicodedata
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median

from speechframe.spec.pauses import Pause, split_pauses

__all__ = ["Load", "Pace", "load_of"]

_SECONDS_PER_LETTER = 0.06
_GENERAL_FACTOR = 2.3
"""Of voices not known yet: from half as fast to twice as fast as people read, and a little."""
_LEAST_FACTOR = 1.35
_LOCALE_FACTOR = 1.55
"""Never nearer to the median: texts of one voice stray that far, and voices of one locale this far."""
_DEVIATIONS = 4.5
_MAD_TO_DEVIATION = 1.4826
_ENOUGH = 20
_READINGS = 48
_RELEARN_EVERY = 8
_VOICES = 2048
_RATE_FOR_DOUBLE = 50.0
_PAUSE_TOLERANCE = 0.2
_SLACK_S = 0.15
"""Of any text: a syllable more or less, which is much of a short one."""

# Least, usual and most letters that a character is worth when it is said. What is read out in words (digits,
# signs, emoji) or not at all has a wide span; the usual values are those with the smallest spread (above).
_WEIGHTS = {
    "a": (1.0, 1.0, 1.0),  # letters of alphabets, and of scripts between
    "A": (1.0, 1.2, 2.5),  # capitals: some are spelled out
    "h": (3.0, 4.2, 5.5),  # Han: a syllable each
    "k": (1.8, 2.5, 3.2),  # kana: a mora each
    "g": (2.2, 3.0, 4.0),  # Hangul: a syllable each
    "m": (0.5, 1.0, 1.3),  # vowel signs
    "d": (1.5, 4.5, 9.0),  # digits: "7" in "1,000" and in "77"
    "e": (1.5, 3.5, 5.0),  # ends of clauses and lines: a pause
    "p": (0.5, 1.5, 2.5),  # quotation marks, brackets, dashes
    "s": (0.0, 5.0, 14.0),  # signs: "per cent", "underscore"
    "o": (0.0, 5.0, 30.0),  # emoji: "face with tears of joy", or nothing
    " ": (0.3, 0.6, 1.0),
}
_EDGES = (1.0, 2.0, 10.0)
"""What comes to any text: silence at its ends, a last syllable drawn out."""
_CLAUSE_ENDS = frozenset(
    ".,:;!?\u2026\n\u3002\u3001\uff0c\uff0e\uff01\uff1f\uff1b\uff1a\u0964\u0965\u061f\u060c\u061b\u06d4"
)
_SPOKEN_SIGNS = frozenset("%#&@*/\\_§¶†‡•‰")
_CLEAR_SPAN = math.exp(0.7)
"""Texts whose most letters are more than twice their least teach nothing about a voice."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much there is to say, in letters (least, usual, most), and the seconds of pauses asked for."""

    least: float
    usual: float
    most: float
    pause_s: float = 0.0


@dataclass(slots=True)
class _Readings:
    """What was heard of one voice: the logarithms of seconds per letter, and where they lie."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_READINGS))
    heard: int = 0
    learned_at: int = 0
    """How many were heard when the bounds were last worked out."""
    bounds: tuple[float, float] = (0.0, 0.0)
    """Of the voice itself, in seconds per letter."""
    wide_bounds: tuple[float, float] = (0.0, 0.0)
    """Of another voice that is like it."""

    def add(self, reading: float) -> None:
        self.recent.append(reading)
        self.heard += 1

    def per_letter(self, *, of_itself: bool) -> tuple[float, float]:
        """Return the bounds, worked out anew every eight readings, and only for who asks."""
        if self.heard - self.learned_at >= _RELEARN_EVERY:
            self.learned_at = self.heard - (self.heard - _ENOUGH) % _RELEARN_EVERY
            middle = median(self.recent)
            deviation = _MAD_TO_DEVIATION * median([abs(reading - middle) for reading in self.recent])
            self.bounds = _around(middle, deviation, _LEAST_FACTOR)
            self.wide_bounds = _around(middle, deviation, _LOCALE_FACTOR)
        return self.bounds if of_itself else self.wide_bounds


def _around(middle: float, deviation: float, least_factor: float) -> tuple[float, float]:
    span = min(max(_DEVIATIONS * deviation, math.log(least_factor)), math.log(_GENERAL_FACTOR))
    return math.exp(middle - span), math.exp(middle + span)


class Pace:
    """What is usual for each voice of a run, learned from its answers.

    Bounds are general at first. From 20 readings on they are the locale's, and
    from 20 of its own the voice's: the median and 4.5 deviations (by the median
    of the distances, so that single wrong rows do not count). The last 48
    readings of at most 2048 voices are kept, whatever the number of rows.

    Examples
    --------
    >>> pace = Pace()
    >>> low_s, high_s = pace.bounds_s(load_of("See you tomorrow at the station."), ("nora",), rate=0)
    >>> low_s < 2.0 < high_s
    True
    """

    def __init__(self) -> None:
        self._voices: OrderedDict[Hashable, _Readings] = OrderedDict()

    def bounds_s(self, load: Load, keys: tuple[Hashable, ...], *, rate: int) -> tuple[float, float]:
        """Return the least and most seconds that a text may take.

        Parameters
        ----------
        load
            What there is to say.
        keys
            The voice, and then what it is like in falling order (its locale).
        rate
            The rate asked for, -50 to 50, for as long as nothing is known of the keys.
        """
        low, high = self._per_letter(keys, rate)
        pause_slack_s = _PAUSE_TOLERANCE * load.pause_s
        return (
            max(0.0, low * load.least + load.pause_s - pause_slack_s - _SLACK_S),
            high * load.most + load.pause_s + pause_slack_s + _SLACK_S,
        )

    def learn(self, load: Load, keys: tuple[Hashable, ...], audio_seconds: float) -> None:
        """Take note of an answer that was found good."""
        spoken_s = audio_seconds - load.pause_s
        if spoken_s <= 0 or load.most > _CLEAR_SPAN * load.least:
            return
        reading = math.log(spoken_s / load.usual)
        for key in keys:
            readings = self._voices.get(key)
            if readings is None:
                readings = self._voices[key] = _Readings()
                if len(self._voices) > _VOICES:
                    self._voices.popitem(last=False)
            else:
                self._voices.move_to_end(key)
            readings.add(reading)

    def _per_letter(self, keys: tuple[Hashable, ...], rate: int) -> tuple[float, float]:
        for number, key in enumerate(keys):
            readings = self._voices.get(key)
            if readings is not None and readings.heard >= _ENOUGH:
                return readings.per_letter(of_itself=not number)
        # Rate doubles or halves, or a voice does not follow it.
        return (
            _SECONDS_PER_LETTER / _GENERAL_FACTOR * 2 ** (-max(rate, 0) / _RATE_FOR_DOUBLE),
            _SECONDS_PER_LETTER * _GENERAL_FACTOR * 2 ** (max(-rate, 0) / _RATE_FOR_DOUBLE),
        )


def load_of(text: str) -> Load:
    """Return how much there is to say in a text.

    Examples
    --------
    >>> load_of("Hello [pause 2s]").pause_s
    2.0
    >>> load_of("你好").usual > load_of("hi").usual
    True
    """
    pause_s = 0.0
    if "[" in text:
        pieces = split_pauses(text)
        pause_s = sum(piece.seconds for piece in pieces if isinstance(piece, Pause))
        text = " ".join(piece for piece in pieces if isinstance(piece, str))
    kinds = text.translate(_KINDS)
    low, usual, high = _EDGES
    # What is odd about the digits of a text is so for all of them, but has nothing to do with its capitals.
    below, above = (usual - low) ** 2, (high - usual) ** 2
    for kind in _WEIGHTS.keys() & set(kinds):
        count = kinds.count(kind)
        low, middle, high = _WEIGHTS[kind]
        usual += count * middle
        below += (count * (middle - low)) ** 2
        above += (count * (high - middle)) ** 2
    return Load(max(1.0, usual - math.sqrt(below)), usual, usual + math.sqrt(above), pause_s)


class _Kinds(dict[int, str]):
    """Which kind of character each is, found out when it is first met."""

    def __missing__(self, code: int) -> str:
        kind = self[code] = _kind(chr(code))
        return kind


def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if character in _CLAUSE_ENDS:
        return "e"
    if category[0] == "L":
        return _letter_kind(character, category)
    if character in _SPOKEN_SIGNS:
        return "s"
    return {"N": "d", "M": "m", "P": "p", "Z": " ", "C": " "}.get(category[0]) or (
        "o" if category == "So" else "s"
    )


def _letter_kind(character: str, category: str) -> str:
    name = unicodedata.name(character, "")
    if name.startswith("CJK"):
        return "h"
    if name.startswith(("HIRAGANA", "KATAKANA")):
        return "k"
    if name.startswith("HANGUL"):
        return "g"
    return "A" if category == "Lu" else "a"


_KINDS = _Kinds()
