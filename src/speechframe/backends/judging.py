"""Judge whether the audio, words and length of a spoken answer can be right for its text.

A service may answer 200 and still be wrong. The audio may be silent, incomplete, or belong to another row.
Every check is cheap. In doubt, a check reports no finding.

Texts are measured in letters. Each other character counts as many letters as take equally long to speak. Over
14,683 answers of the embedded voices in ten locales, the medians lie between 0.048 and 0.072 seconds per
letter. The largest deviation of an answer from the median of its voice and rate was a factor of 1.43.
"""

import math
import unicodedata
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from speechframe.audio.levels import levels
from speechframe.batch.backend import Finding, Record
from speechframe.client import Spoken
from speechframe.errors import AudioError
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import read_clamped
from speechframe.spec.speech import Format, GenerateRequest, StreamRequest
from speechframe.spec.texts import SCRIPTS_WITHOUT_SPACES, Pause, split_pauses, strip_pauses

_WORD, _START, _END = itemgetter(0), itemgetter(1), itemgetter(2)
"""Parts of a word in an answer. Times are in milliseconds."""

_LOSSY = frozenset({Format.MP3, Format.OGG})
# Lossy encoders pad the last frame, and add at most this delay of their filters, in samples.
_LOSSY_S, _LOSSY_SAMPLES = 0.15, 2400
# Tolerances of lengths, as a share and in seconds.
_STATED, _STATED_S = 0.01, 0.05
_ASKED, _ASKED_S = 0.1, 0.25
_CLIP, _CLIP_S = 0.05, 0.15
_CHANGED_S = 0.05  # one frame of an encoder, because the voice changer meets a requested length exactly
_WORD_MS = 100.0
_AFTER_WORDS, _AFTER_WORDS_S = 0.2, 1.0  # signs and emoji at the end of a text may lack a word
_COVERED, _FEWEST_MISSING = 0.65, 6  # fewer letters may only be spelled differently ("OK", "Dr.")
_SILENT_PEAK_DB = -60.0  # the default of FFmpeg's silencedetect
_QUIET_PEAK_DB, _QUIET_RMS_DB = -40.0, -60.0  # noise below these counts as silence
_NOISE_CORRELATION = 0.05
_CLIPPED_FRACTION = 0.0003
# Largest numbers of samples that are read of an answer. The first is 25 minutes at 44100 Hz. The second, 90
# seconds, is for answers with a finding, because a megabyte of wrong audio can decode to hours.
_MOST_SAMPLES, _MOST_ODD_SAMPLES = 1 << 26, 1 << 22

_SECONDS_PER_LETTER = 0.06
_RATE_FOR_DOUBLE = 50.0
_GENERAL_FACTOR = 2.3  # bounds of an unknown voice, from less than half to more than twice the usual speed
_LEAST_FACTOR = (
    1.35  # smallest distance of the bounds from the median, because texts of one voice differ so much
)
_DEVIATIONS = 4.5
_MAD_TO_DEVIATION = 1.4826
_ENOUGH, _KEPT, _VOICES = 20, 48, 2048  # answers that set the bounds, answers kept of a voice, voices kept
_CLEAR_SPAN = math.exp(0.7)  # learn only from texts whose largest and smallest load differ by less than this
_PAUSE, _SLACK_S = 0.2, 0.15  # about one syllable, which matters in a short text

# Least, usual and most letters that a character counts for. Digits, signs and emoji have a wide span, because
# they may be read out as words or skipped. The usual values gave the smallest spread in measurements.
_WEIGHTS = {
    "a": (1.0, 1.0, 1.0),  # letters of alphabets and of other scripts
    "A": (1.0, 1.2, 2.5),  # capitals, because some words are spelled out
    "h": (3.0, 4.2, 5.5),  # Han, a syllable each
    "k": (1.8, 2.5, 3.2),  # kana, a mora each
    "g": (2.2, 3.0, 4.0),  # Hangul, a syllable each
    "m": (0.5, 1.0, 1.3),  # vowel signs
    "d": (1.5, 4.5, 9.0),  # digits, from a "0" in "1,000" to a "7" in "77"
    "e": (1.5, 3.5, 5.0),  # ends of clauses and lines, a pause each
    "p": (0.5, 1.5, 2.5),  # quotation marks, brackets, dashes
    "s": (0.0, 5.0, 14.0),  # signs, read as "per cent" or "underscore"
    "o": (0.0, 5.0, 30.0),  # emoji, read as "face with tears of joy" or skipped
    " ": (0.3, 0.6, 1.0),
}
_ANY_TEXT = (1.0, 2.0, 10.0)  # letters added to every text, for silence at the ends and a long last syllable
_CATEGORIES = {
    "N": "d",
    "M": "m",
    "P": "p",
    "Z": " ",
    "C": " ",
    "So": "o",
}  # categories of Unicode, all others are "s"
_SCRIPTS = {
    "CJK ": "h",
    "HIRA": "k",
    "KATA": "k",
    "HANG": "g",
}  # by the first letters of the character's name
_CLAUSE_ENDS = frozenset(
    ".,:;!?\u2026\n\u3002\u3001\uff0c\uff0e\uff01\uff1f\uff1b\uff1a\u0964\u0965\u061f\u060c\u061b\u06d4"
)
SPOKEN_SIGNS = frozenset("%#&@*/\\_§¶†‡•‰")  # punctuation in Unicode, but read out as words
_CHARACTERS = 1 << 14  # characters whose kind is cached
_APOSTROPHES = frozenset("'\u2019\u02bc\u2032`\u00b4")


@dataclass(slots=True)
class SpokenRecord(Record):
    """The record of a spoken answer, with the decoded answer, its request, and the length of a clip."""

    answer: Spoken = field(kw_only=True, repr=False)
    request: GenerateRequest | StreamRequest | ConvertRequest = field(kw_only=True, repr=False)
    clip_seconds: float = field(kw_only=True, default=0.0)


class Load(NamedTuple):
    """The length of a text in letters (least, usual and most), and the seconds of its pause markers."""

    least: float
    usual: float
    most: float
    pause_s: float = 0.0


def judge(record: SpokenRecord, facts: Mapping[str, Any], learned: dict[Any, Any]) -> list[Finding]:
    """Return the findings against an answer. `facts` are facts of its request.

    `learned` contains the logarithms of the seconds per letter of each voice, style and rate. An answer
    without findings adds its value.
    """
    answer, request = record.answer, record.request
    stated_s, audio_s = answer.said_seconds, answer.audio_seconds
    delay_s = max(_LOSSY_S, _LOSSY_SAMPLES / answer.sample_rate_hz)
    lossy_s = delay_s if answer.format in _LOSSY else 0.0
    found: list[Finding] = []
    if stated_s is not None and not abs(stated_s - audio_s) <= (lossy_s or _STATED_S) + _STATED * audio_s:
        words = f"the answer states {stated_s:.2f} s, but the audio lasts {audio_s:.2f} s"
        found.append(Finding("length", words))
    # A warning of the service may replace the requested length by the nearest possible one.
    clamped_s = next(filter(None, map(read_clamped, answer.warnings)), None)
    wanted_s, why = clamped_s or getattr(request, "audio_duration", None), "were requested"
    if isinstance(request, ConvertRequest):
        tolerance_s = _CHANGED_S
        if not wanted_s and not request.rate:
            wanted_s, why = record.clip_seconds, "is the length of the clip"
            tolerance_s = _CLIP_S + _CLIP * wanted_s
    else:
        tolerance_s = _ASKED_S + _ASKED * (wanted_s or 0.0)
        found += _of_words(request, answer)
    if wanted_s and abs(wanted_s - audio_s) > tolerance_s + lossy_s:
        found.append(Finding("pace", f"{wanted_s:.2f} s {why}, but the audio lasts {audio_s:.2f} s"))
    if wanted_s or isinstance(request, ConvertRequest):
        return [*found, *_of_sound(answer, is_odd=bool(found))]
    load = load_of(request.text)
    if len(learned) > _VOICES:
        learned.clear()
    voice = (facts["voice_id"], facts["locale"], request.style, request.rate)
    readings = learned.setdefault(voice, deque(maxlen=_KEPT))
    last_s = max(map(_END, answer.words), default=1000 * audio_s) / 1000
    if audio_s - last_s > _AFTER_WORDS_S + _AFTER_WORDS * audio_s + load.pause_s:
        words = f"the last word ends at {last_s:.2f} s, but the audio at {audio_s:.2f} s"
        found.append(Finding("words_missing", words))
    low_s, high_s = bounds_s(load, readings, request.rate or 0)
    if not low_s <= audio_s <= high_s:
        usual = f"this voice needs {low_s:.2f} to {high_s:.2f} s for such a text"
        found.append(Finding("pace", f"the audio lasts {audio_s:.2f} s, but {usual}"))
    found += _of_sound(answer, is_odd=bool(found))
    if not found and audio_s > load.pause_s and load.most <= _CLEAR_SPAN * load.least:
        readings.append(math.log((audio_s - load.pause_s) / load.usual))
    return found


def _of_words(request: GenerateRequest | StreamRequest, answer: Spoken) -> Iterator[Finding]:
    # The document requires a list of words, but the list may be empty. It does not define their spelling.
    if not answer.words:
        return
    audio_ms = 1000 * answer.audio_seconds
    limit_ms = (1 + _STATED) * audio_ms + _WORD_MS
    starts, ends = list(map(_START, answer.words)), list(map(_END, answer.words))
    if min(starts) < 0 or max(*starts, *ends) > limit_ms:
        outside = [word for word in answer.words if word[1] < 0 or max(word[1:]) > limit_ms]
        word, start_ms, end_ms = outside[0]
        yield Finding(
            "words_outside",
            f"{len(outside)} of {len(answer.words)} words lie outside the audio of {audio_ms:.0f} ms, "
            f"such as {word[:40]!r} from {start_ms} to {end_ms} ms",
        )
    letters, covered = coverage(request.text, answer.words, respelled=request.pronunciation_dictionary or ())
    if letters - covered >= _FEWEST_MISSING and covered < _COVERED * letters:
        words = f"{letters - covered} of the text's {letters} letters are not in the answer's words"
        yield Finding("words_missing", words)


def _of_sound(answer: Spoken, *, is_odd: bool) -> Iterator[Finding]:
    most = _MOST_ODD_SAMPLES if is_odd else _MOST_SAMPLES
    try:
        found = levels(answer.audio, format=answer.format, channels=answer.channels, most_samples=most)
    except AudioError as error:
        yield Finding("undecodable", str(error))
        return
    peak_db, rms_db = found.peak_db, found.rms_db
    is_noise = abs(found.correlation) < _NOISE_CORRELATION
    # The samples of a quiet voice correlate, so it is neither silence nor noise.
    is_quiet = peak_db < _QUIET_PEAK_DB or rms_db < _QUIET_RMS_DB
    if peak_db < _SILENT_PEAK_DB or (is_quiet and is_noise):
        words = f"the loudest sample is at {peak_db:.0f} dB, the mean level at {rms_db:.0f} dB"
        yield Finding("silent", words)
    elif is_noise:
        words = f"neighbouring samples do not correlate ({found.correlation:.2f}), as in noise"
        yield Finding("noise", words)
    elif found.clipped_fraction > _CLIPPED_FRACTION:
        words = (
            f"{found.clipped_fraction:.2%} of the samples are clipped (three or more in a row at full scale)"
        )
        yield Finding("clipped", words)


def bounds_s(load: Load, readings: Sequence[float], rate: int) -> tuple[float, float]:
    """Return the least and most seconds that a text may take, from earlier readings of its voice."""
    if len(readings) >= _ENOUGH:
        # Use the median distance from the median, which a few wrong answers hardly change.
        middle = median(readings)
        deviation = _MAD_TO_DEVIATION * median([abs(reading - middle) for reading in readings])
        span = max(_DEVIATIONS * deviation, math.log(_LEAST_FACTOR))
        factor = math.exp(min(span, math.log(_GENERAL_FACTOR)))
        low, high = math.exp(middle) / factor, math.exp(middle) * factor
    else:
        # A rate of 50 doubles the speed and -50 halves it, unless the voice ignores the rate.
        low = _SECONDS_PER_LETTER / _GENERAL_FACTOR * 2 ** (-max(rate, 0) / _RATE_FOR_DOUBLE)
        high = _SECONDS_PER_LETTER * _GENERAL_FACTOR * 2 ** (max(-rate, 0) / _RATE_FOR_DOUBLE)
    slack_s = _PAUSE * load.pause_s + _SLACK_S
    return max(0.0, low * load.least + load.pause_s - slack_s), high * load.most + load.pause_s + slack_s


def load_of(text: str) -> Load:
    """Return the load of a text, which is the length of its speech in letters.

    Examples
    --------
    >>> load_of("你好").usual > load_of("hi").usual
    True
    """
    pause_s = 0.0
    if "[" in text:
        pieces = split_pauses(text)
        pause_s = sum(piece.seconds for piece in pieces if isinstance(piece, Pause))
        text = " ".join(piece for piece in pieces if isinstance(piece, str))
    kinds = "".join(map(_kind, text))
    low, usual, high = _ANY_TEXT
    # All digits of a text deviate together, but independently of its capitals. So deviations of kinds add up
    # as squares.
    below, above = (usual - low) ** 2, (high - usual) ** 2
    for kind in _WEIGHTS.keys() & set(kinds):
        count = kinds.count(kind)
        low, middle, high = _WEIGHTS[kind]
        usual += count * middle
        below += (count * (middle - low)) ** 2
        above += (count * (high - middle)) ** 2
    return Load(max(1.0, usual - math.sqrt(below)), usual, usual + math.sqrt(above), pause_s)


def coverage(
    text: str, words: Sequence[tuple[str, int, int]], *, respelled: Collection[str] = ()
) -> tuple[int, int]:
    """Return the number of comparable letters of a text, and how many of them its words cover in order.

    Services may spell numbers out, drop punctuation, and join or split compounds. So only letters are
    compared, without case and accents. Words in `respelled` do not count, because they have their own
    pronunciation. If the text has other letters than Latin and the words have only Latin ones, the words may
    be a transcription. Then all letters count as covered.

    Examples
    --------
    >>> coverage("In 1984, 'twas cold.", [("in", 0, 90), ("nineteen", 90, 300), ("Twas", 300, 500)])
    (10, 6)
    """
    wanted = list(filter(str.isalpha, _tokens(strip_pauses(text))))
    if respelled:
        without = set(_tokens(" ".join(respelled)))
        wanted = [token for token in wanted if token not in without]
    spoken = _tokens(" ".join(map(_WORD, words[: 20 + 8 * len(text)])))
    letters = sum(map(len, wanted))
    if wanted == list(filter(str.isalpha, spoken)):  # the usual case, and the cheap one
        return letters, letters
    # Pair the n-th occurrence of a word in the text with its n-th occurrence in the answer. The longest chain
    # of pairs with rising places counts (patience sorting).
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place in reversed(range(len(spoken))):
        places[spoken[place]].append(place)
    ends: list[int] = []  # the smallest place at which a chain of each length can end
    sizes = [0]  # the letters of that chain
    for token in wanted:
        if places[token]:
            place = places[token].pop()
            at = bisect_left(ends, place)
            ends[at : at + 1], sizes[at + 1 : at + 2] = [place], [sizes[at] + len(token)]
    latin = "".join(spoken)
    is_foreign = sizes == [0] and latin.isascii() and latin and set("".join(wanted)).isdisjoint(latin)
    return letters, letters if is_foreign else sizes[-1]


def _tokens(text: str) -> list[str]:
    """Return the words of a text for comparison. Scripts without spaces count each letter as a word."""
    return "".join(map(_folded, unicodedata.normalize("NFKD", text.casefold()))).split()


@lru_cache(_CHARACTERS)
def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if character in _CLAUSE_ENDS:
        return "e"
    if category[0] == "L":
        return _SCRIPTS.get(unicodedata.name(character, "")[:4], "A" if category == "Lu" else "a")
    if character in SPOKEN_SIGNS:
        return "s"
    return _CATEGORIES.get(category) or _CATEGORIES.get(category[0], "s")


@lru_cache(_CHARACTERS)
def _folded(character: str) -> str:
    if unicodedata.category(character)[0] == "M" or character in _APOSTROPHES:
        return ""
    if not character.isalnum():
        return " "
    return (
        f" {character} " if unicodedata.name(character, "").startswith(SCRIPTS_WITHOUT_SPACES) else character
    )
