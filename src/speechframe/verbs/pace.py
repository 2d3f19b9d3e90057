"""How long a text takes to say: first by its script, then by what its voice took for other texts of the run.

A text is measured in letters: what each character takes to say compared with a letter of an alphabet.
Seconds per letter then hardly depend on the language: over 14,683 answers of the embedded voices in ten
locales (English, Spanish, French, German, Italian, Portuguese, Hindi, Chinese) the medians lie between 0.048
and 0.072 s, and no answer is further from the median of its voice and rate than a factor of 1.43. Audio books
in English, 150 to 180 words a minute, have 0.055 to 0.067 s.
"""

import math
import unicodedata
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from statistics import median

from speechframe.spec.pauses import Pause, split_pauses

_SECONDS_PER_LETTER = 0.06
_GENERAL_FACTOR = 2.3
"""Of a voice that is not known yet: from a little below half to a little above twice the usual speed."""
_LEAST_FACTOR, _LOCALE_FACTOR = 1.35, 1.55
"""Least distance of the bounds from the median, of a known voice and of a known locale: texts of one voice,
and voices of one locale, differ by that much."""
_DEVIATIONS = 4.5
_MAD_TO_DEVIATION = 1.4826
_ENOUGH, _KEPT, _VOICES = 20, 48, 2048
"""Answers needed before they set the bounds, answers kept of each voice, and voices kept."""
_RATE_FOR_DOUBLE = 50.0
_PAUSE_TOLERANCE = 0.2
_SLACK_S = 0.15
"""A syllable more or less, which is much of a short text."""

# Least, usual and most letters that a character counts for. What is read out in words (digits, signs, emoji)
# or not at all has a wide span; the usual values are those with the smallest spread, see above.
_WEIGHTS = {
    "a": (1.0, 1.0, 1.0),  # letters of alphabets, and of scripts in between
    "A": (1.0, 1.2, 2.5),  # capitals: some words are spelled out
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
_ENDS = (1.0, 2.0, 10.0)
"""Letters that any text has on top: silence at its ends, a last syllable that is drawn out."""
_CLAUSE_ENDS = frozenset(
    ".,:;!?\u2026\n\u3002\u3001\uff0c\uff0e\uff01\uff1f\uff1b\uff1a\u0964\u0965\u061f\u060c\u061b\u06d4"
)
SPOKEN_SIGNS = frozenset("%#&@*/\\_§¶†‡•‰")
"""Punctuation by its Unicode category, but read out as words."""
_CLEAR_SPAN = math.exp(0.7)
"""A text whose most letters are more than twice its least says nothing about its voice."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much there is to say: letters (least, usual, most), and seconds of the pauses asked for."""

    least: float
    usual: float
    most: float
    pause_s: float = 0.0


class Pace:
    """What is usual for each voice of a run, learned from its answers.

    Bounds are general at first. After 20 answers of a locale they are the locale's, after 20 of a voice the
    voice's: the median and 4.5 deviations, by the median distance, so that a few wrong answers do not count.

    Examples
    --------
    >>> load = load_of("See you tomorrow at the station.")
    >>> low_s, high_s = Pace().bounds_s(load, ("nora", "en-US"), rate=0)
    >>> low_s < 2.0 < high_s
    True
    """

    def __init__(self) -> None:
        self._heard: dict[Hashable, deque[float]] = {}  # logarithms of seconds per letter

    def bounds_s(self, load: Load, keys: tuple[Hashable, ...], *, rate: int) -> tuple[float, float]:
        """Return the least and most seconds that a text may take.

        Parameters
        ----------
        load
            What there is to say.
        keys
            The voice first, then what is like it in falling order, such as its locale.
        rate
            The rate asked for, -50 to 50; it counts only while nothing is known of `keys`.
        """
        low, high = self._per_letter(keys, rate)
        slack_s = _PAUSE_TOLERANCE * load.pause_s + _SLACK_S
        return (
            max(0.0, low * load.least + load.pause_s - slack_s),
            high * load.most + load.pause_s + slack_s,
        )

    def learn(self, load: Load, keys: tuple[Hashable, ...], audio_seconds: float) -> None:
        """Count an answer in which nothing wrong was found."""
        spoken_s = audio_seconds - load.pause_s
        if spoken_s <= 0 or load.most > _CLEAR_SPAN * load.least:
            return
        for key in keys:
            heard = self._heard.pop(key, None)
            if heard is None:
                heard = deque(maxlen=_KEPT)
                if len(self._heard) >= _VOICES:
                    del self._heard[next(iter(self._heard))]
            # Put back last, so that the first is the one not heard for longest.
            self._heard[key] = heard
            heard.append(math.log(spoken_s / load.usual))

    def _per_letter(self, keys: tuple[Hashable, ...], rate: int) -> tuple[float, float]:
        for key, least_factor in zip(keys, (_LEAST_FACTOR, _LOCALE_FACTOR), strict=True):
            heard = self._heard.get(key, ())
            if len(heard) >= _ENOUGH:
                middle = median(heard)
                deviation = _MAD_TO_DEVIATION * median([abs(reading - middle) for reading in heard])
                span = max(_DEVIATIONS * deviation, math.log(least_factor))
                span = min(span, math.log(_GENERAL_FACTOR))
                return math.exp(middle - span), math.exp(middle + span)
        # A rate of 50 doubles the speed, -50 halves it, or the voice does not follow.
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
    low, usual, high = _ENDS
    # All digits of a text are odd in one way and its capitals in another: kinds add up as squares.
    below, above = (usual - low) ** 2, (high - usual) ** 2
    for kind in _WEIGHTS.keys() & set(kinds):
        count = kinds.count(kind)
        low, middle, high = _WEIGHTS[kind]
        usual += count * middle
        below += (count * (middle - low)) ** 2
        above += (count * (high - middle)) ** 2
    return Load(max(1.0, usual - math.sqrt(below)), usual, usual + math.sqrt(above), pause_s)


class _Kinds(dict[int, str]):
    """A table for `str.translate` from each character to its kind, filled as characters are met."""

    def __missing__(self, code: int) -> str:
        kind = self[code] = _kind(chr(code))
        return kind


def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if character in _CLAUSE_ENDS:
        return "e"
    if category[0] == "L":
        return _letter_kind(character, category)
    if character in SPOKEN_SIGNS:
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
