"""Judge whether the audio, words and length of a spoken answer can be right for its text.

An answer with status 200 may still be wrong. Its audio may be silent, incomplete, or belong to another row.
Every check is cheap. A check that is not sure reports no finding.

The length of a text is measured in letters. A character that takes longer to speak counts as several letters.
In 14,683 answers of the embedded voices in ten locales, the median of each voice is between 0.048 and 0.072
seconds per letter. The largest deviation of an answer from the median of its voice and rate was a factor of
1.43.
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

from speechframe.audio.levels import measure_levels
from speechframe.batch.backend import Finding, Record
from speechframe.client import Spoken
from speechframe.errors import AudioError
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import read_clamped_seconds
from speechframe.spec.limits import compute_speed
from speechframe.spec.speech import Format, GenerateRequest, StreamRequest
from speechframe.spec.texts import SCRIPTS_WITHOUT_SPACES, Pause, split_pauses, strip_pauses

_get_text, _get_start_ms, _get_end_ms = itemgetter(0), itemgetter(1), itemgetter(2)
"""Functions that return the text, the start and the end (both in milliseconds) of a word in an answer."""

_LOSSY_FORMATS = frozenset({Format.MP3, Format.OGG})
# Lossy encoders lengthen audio: they pad the last frame, and their filters add a delay. The lengthening is at
# most the larger of these two, in seconds and in samples.
_LOSSY_DELAY_S, _LOSSY_DELAY_SAMPLES = 0.15, 2400
# Tolerances of the length of audio, each as a share and in seconds. Both are added. `_STATED_TOLERANCE_SHARE`
# applies to the length that the answer states, `_REQUESTED_TOLERANCE_SHARE` to a requested length, and
# `_CLIP_TOLERANCE_SHARE` to a clip whose voice was changed.
_STATED_TOLERANCE_SHARE, _STATED_TOLERANCE_S = 0.01, 0.05
_REQUESTED_TOLERANCE_SHARE, _REQUESTED_TOLERANCE_S = 0.1, 0.25
_CLIP_TOLERANCE_SHARE, _CLIP_TOLERANCE_S = 0.05, 0.15
# Tolerance of a length that was requested from the voice changer, in seconds. It is one frame of an encoder,
# because the voice changer meets the length exactly.
_CHANGER_TOLERANCE_S = 0.05
# A word may end later than the audio by these milliseconds, and by the share `_STATED_TOLERANCE_SHARE` of the
# audio.
_WORD_END_TOLERANCE_MS = 100.0
# The audio may continue after the last word for this share of its length and these seconds, because signs and
# emoji at the end of a text may have no word.
_AFTER_WORDS_SHARE, _AFTER_WORDS_S = 0.2, 1.0
# A finding requires that the words cover less than this share of the text's letters, and that this many
# letters are missing. Fewer letters may only be spelled differently ("OK", "Dr.").
_MIN_COVERED_SHARE, _MIN_MISSING_LETTERS = 0.65, 6
_MAX_SILENT_PEAK_DB = -60.0  # quieter audio is silent; the default of FFmpeg's silencedetect
# Noise with a lower peak or mean level counts as silence.
_MAX_QUIET_PEAK_DB, _MAX_QUIET_RMS_DB = -40.0, -60.0
# Audio whose neighbouring samples correlate less than this is noise. 1 is a full correlation.
_MAX_NOISE_CORRELATION = 0.05
# Audio with a larger share of clipped samples gets a finding.
_MAX_CLIPPED_FRACTION = 0.0003
# Largest numbers of samples of an answer that are decoded. The first is 25 minutes at 44100 Hz. The second is
# 95 seconds, for answers that already have a finding, because a megabyte of wrong audio can decode to hours.
_MAX_SAMPLES, _MAX_SUSPECT_SAMPLES = 1 << 26, 1 << 22

# Usual seconds per letter of a voice of which too few answers are known.
_SECONDS_PER_LETTER = 0.06
# Bounds of the seconds per letter, as a factor around their usual value. `_MAX_PACE_FACTOR` is for a voice of
# which too few answers are known, and the largest factor for any voice. `_MIN_PACE_FACTOR` is the smallest
# factor, because texts in the same voice differ that much.
_MAX_PACE_FACTOR = 2.3
_MIN_PACE_FACTOR = 1.35
# Between these two, the factor allows this many standard deviations of the answers of the voice.
_ALLOWED_DEVIATIONS = 4.5
# Converts a median absolute deviation to a standard deviation, for a normal distribution.
_MAD_TO_DEVIATION = 1.4826
# Number of answers of a voice that suffice for its own bounds, of answers that are kept for a voice, and of
# voices that are kept.
_MIN_READINGS, _MAX_READINGS, _MAX_VOICES = 20, 48, 2048
# Learn only from a text whose largest length in letters is at most this multiple of its smallest length.
_MAX_LEARNED_RATIO = math.exp(0.7)
# Extra tolerance: a share of the pauses, and about one syllable in seconds, which matters in a short text.
_PAUSE_TOLERANCE_SHARE, _SYLLABLE_S = 0.2, 0.15

# Least, usual and largest number of letters that a character of each kind counts for. Digits, signs and emoji
# have a wide span, because they may be read out as words or skipped. The usual values gave the smallest
# spread of seconds per letter in measurements.
_LETTERS_OF_KIND = {
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
# Letters added to every text, for silence at the ends and a long last syllable.
_LETTERS_OF_ANY_TEXT = 1.0, 2.0, 10.0
# Category of Unicode to kind. All other categories are "s".
_KIND_OF_CATEGORY = {"N": "d", "M": "m", "P": "p", "Z": " ", "C": " ", "So": "o"}
# First four letters of a character's Unicode name to kind.
_KIND_OF_SCRIPT = {"CJK ": "h", "HIRA": "k", "KATA": "k", "HANG": "g"}
# Punctuation that ends a clause, a sentence or a line.
_CLAUSE_ENDS = frozenset(
    ".,:;!?\u2026\n\u3002\u3001\uff0c\uff0e\uff01\uff1f\uff1b\uff1a\u0964\u0965\u061f\u060c\u061b\u06d4"
)
SPOKEN_SIGNS = frozenset("%#&@*/\\_§¶†‡•‰")  # punctuation in Unicode that voices read out as words
_MAX_CACHED_CHARACTERS = 1 << 14  # number of characters whose kind is cached
_APOSTROPHES = frozenset("'\u2019\u02bc\u2032`\u00b4")


@dataclass(slots=True)
class SpokenRecord(Record):
    """The record of a spoken answer, with the decoded answer, its request, and the length of the sent clip.

    `clip_seconds` is 0 unless the voice of a clip was changed.
    """

    answer: Spoken = field(kw_only=True, repr=False)
    request: GenerateRequest | StreamRequest | ConvertRequest = field(kw_only=True, repr=False)
    clip_seconds: float = field(kw_only=True, default=0.0)


class SpokenLength(NamedTuple):
    """The length of a text in letters (least, usual and most), and the seconds of its pause markers."""

    least: float
    usual: float
    most: float
    pause_s: float = 0.0


def judge(record: SpokenRecord, facts: Mapping[str, Any], learned: dict[Any, Any]) -> list[Finding]:
    """Return the findings against an answer. `facts` are facts of its request, such as ``voice_id``.

    `learned` contains, for each voice, locale, style and rate, the logarithms of the seconds per letter of
    earlier answers. An answer without findings adds its own value.
    """
    answer, request = record.answer, record.request
    stated_s, audio_s = answer.said_seconds, answer.audio_seconds
    delay_s = max(_LOSSY_DELAY_S, _LOSSY_DELAY_SAMPLES / answer.sample_rate_hz)
    lossy_s = delay_s if answer.format in _LOSSY_FORMATS else 0.0
    found: list[Finding] = []
    if (
        stated_s is not None
        and not abs(stated_s - audio_s)
        <= (lossy_s or _STATED_TOLERANCE_S) + _STATED_TOLERANCE_SHARE * audio_s
    ):
        message = f"the answer states {stated_s:.2f} s, but the audio lasts {audio_s:.2f} s"
        found.append(Finding("length", message))
    # A warning of the service may replace the requested length by the nearest possible length.
    clamped_s = next(filter(None, map(read_clamped_seconds, answer.warnings)), None)
    wanted_s, why = clamped_s or getattr(request, "audio_duration", None), "were requested"
    if isinstance(request, ConvertRequest):
        tolerance_s = _CHANGER_TOLERANCE_S
        if not wanted_s and not request.rate:
            wanted_s, why = record.clip_seconds, "is the length of the clip"
            tolerance_s = _CLIP_TOLERANCE_S + _CLIP_TOLERANCE_SHARE * wanted_s
    else:
        tolerance_s = _REQUESTED_TOLERANCE_S + _REQUESTED_TOLERANCE_SHARE * (wanted_s or 0.0)
        found += _judge_words(request, answer)
    if wanted_s and abs(wanted_s - audio_s) > tolerance_s + lossy_s:
        found.append(Finding("pace", f"{wanted_s:.2f} s {why}, but the audio lasts {audio_s:.2f} s"))
    if wanted_s or isinstance(request, ConvertRequest):
        return [*found, *_judge_sound(answer, is_suspect=bool(found))]
    spoken = estimate_spoken_length(request.text)
    if len(learned) > _MAX_VOICES:
        learned.clear()
    voice = (facts["voice_id"], facts["locale"], request.style, request.rate)
    readings = learned.setdefault(voice, deque(maxlen=_MAX_READINGS))
    last_s = max(map(_get_end_ms, answer.words), default=1000 * audio_s) / 1000
    if audio_s - last_s > _AFTER_WORDS_S + _AFTER_WORDS_SHARE * audio_s + spoken.pause_s:
        message = f"the last word ends at {last_s:.2f} s, but the audio at {audio_s:.2f} s"
        found.append(Finding("words_missing", message))
    low_s, high_s = estimate_bounds_s(spoken, readings, request.rate or 0)
    if not low_s <= audio_s <= high_s:
        usual = f"this voice needs {low_s:.2f} to {high_s:.2f} s for such a text"
        found.append(Finding("pace", f"the audio lasts {audio_s:.2f} s, but {usual}"))
    found += _judge_sound(answer, is_suspect=bool(found))
    if not found and audio_s > spoken.pause_s and spoken.most <= _MAX_LEARNED_RATIO * spoken.least:
        readings.append(math.log((audio_s - spoken.pause_s) / spoken.usual))
    return found


def _judge_words(request: GenerateRequest | StreamRequest, answer: Spoken) -> Iterator[Finding]:
    """Yield findings about the words of an answer: outside the audio, or too few for the text."""
    # The service document requires a list of words, but the list may be empty. The document does not define
    # the spelling of words.
    if not answer.words:
        return
    audio_ms = 1000 * answer.audio_seconds
    limit_ms = (1 + _STATED_TOLERANCE_SHARE) * audio_ms + _WORD_END_TOLERANCE_MS
    starts, ends = list(map(_get_start_ms, answer.words)), list(map(_get_end_ms, answer.words))
    if min(starts) < 0 or max(*starts, *ends) > limit_ms:
        outside = [word for word in answer.words if word[1] < 0 or max(word[1:]) > limit_ms]
        word, start_ms, end_ms = outside[0]
        yield Finding(
            "words_outside",
            f"{len(outside)} of {len(answer.words)} words lie outside the audio of {audio_ms:.0f} ms, "
            f"such as {word[:40]!r} from {start_ms} to {end_ms} ms",
        )
    letters, covered = measure_coverage(
        request.text, answer.words, respelled=request.pronunciation_dictionary or ()
    )
    if letters - covered >= _MIN_MISSING_LETTERS and covered < _MIN_COVERED_SHARE * letters:
        message = f"{letters - covered} of the text's {letters} letters are not in the answer's words"
        yield Finding("words_missing", message)


def _judge_sound(answer: Spoken, *, is_suspect: bool) -> Iterator[Finding]:
    """Yield findings about the samples. `is_suspect` is True if the answer already has a finding."""
    most = _MAX_SUSPECT_SAMPLES if is_suspect else _MAX_SAMPLES
    try:
        found = measure_levels(
            answer.audio, format=answer.format, channels=answer.channels, most_samples=most
        )
    except AudioError as error:
        yield Finding("undecodable", str(error))
        return
    peak_db, rms_db = found.peak_db, found.rms_db
    is_noise = abs(found.correlation) < _MAX_NOISE_CORRELATION
    # A quiet voice is neither silence nor noise, because its samples correlate.
    is_quiet = peak_db < _MAX_QUIET_PEAK_DB or rms_db < _MAX_QUIET_RMS_DB
    if peak_db < _MAX_SILENT_PEAK_DB or (is_quiet and is_noise):
        message = f"the loudest sample is at {peak_db:.0f} dB, the mean level at {rms_db:.0f} dB"
        yield Finding("silent", message)
    elif is_noise:
        message = f"neighbouring samples do not correlate ({found.correlation:.2f}), as in noise"
        yield Finding("noise", message)
    elif found.clipped_fraction > _MAX_CLIPPED_FRACTION:
        message = (
            f"{found.clipped_fraction:.2%} of the samples are clipped (three or more in a row at full scale)"
        )
        yield Finding("clipped", message)


def estimate_bounds_s(spoken: SpokenLength, readings: Sequence[float], rate: int) -> tuple[float, float]:
    """Return the smallest and largest plausible length of the speech of a text, in seconds.

    `readings` are logarithms of the seconds per letter of earlier answers in the same voice.
    """
    if len(readings) >= _MIN_READINGS:
        # Use the median absolute deviation, which a few wrong answers hardly change.
        middle = median(readings)
        deviation = _MAD_TO_DEVIATION * median([abs(reading - middle) for reading in readings])
        span = max(_ALLOWED_DEVIATIONS * deviation, math.log(_MIN_PACE_FACTOR))
        factor = math.exp(min(span, math.log(_MAX_PACE_FACTOR)))
        low, high = math.exp(middle) / factor, math.exp(middle) * factor
    else:
        # A voice may also ignore the rate.
        low = _SECONDS_PER_LETTER / _MAX_PACE_FACTOR * compute_speed(-max(rate, 0))
        high = _SECONDS_PER_LETTER * _MAX_PACE_FACTOR * compute_speed(max(-rate, 0))
    slack_s = _PAUSE_TOLERANCE_SHARE * spoken.pause_s + _SYLLABLE_S
    return max(
        0.0, low * spoken.least + spoken.pause_s - slack_s
    ), high * spoken.most + spoken.pause_s + slack_s


def estimate_spoken_length(text: str) -> SpokenLength:
    """Return the length of the speech of a text, counted in letters, and its pauses in seconds.

    Examples
    --------
    >>> estimate_spoken_length("你好").usual > estimate_spoken_length("hi").usual
    True
    """
    pause_s = 0.0
    if "[" in text:
        pieces = split_pauses(text)
        pause_s = sum(piece.seconds for piece in pieces if isinstance(piece, Pause))
        text = " ".join(piece for piece in pieces if isinstance(piece, str))
    kinds = "".join(map(_classify_character, text))
    low, usual, high = _LETTERS_OF_ANY_TEXT
    # All characters of a kind, such as the digits, deviate together. The kinds are independent, so add the
    # squares of their deviations.
    below, above = (usual - low) ** 2, (high - usual) ** 2
    for kind in _LETTERS_OF_KIND.keys() & set(kinds):
        count = kinds.count(kind)
        low, middle, high = _LETTERS_OF_KIND[kind]
        usual += count * middle
        below += (count * (middle - low)) ** 2
        above += (count * (high - middle)) ** 2
    return SpokenLength(max(1.0, usual - math.sqrt(below)), usual, usual + math.sqrt(above), pause_s)


def measure_coverage(
    text: str, words: Sequence[tuple[str, int, int]], *, respelled: Collection[str] = ()
) -> tuple[int, int]:
    """Return the number of comparable letters of a text, and how many of them `words` cover in order.

    Services may spell numbers out, leave out punctuation, and join or split compounds. So only letters are
    compared, without case and accents. Words in `respelled` do not count, because the request has another
    pronunciation for them. If the words have only Latin letters and share none with the text, they may be
    a romanisation of the text. Then all letters count as covered.

    Examples
    --------
    >>> measure_coverage("In 1984, 'twas cold.", [("in", 0, 90), ("nineteen", 90, 300), ("Twas", 300, 500)])
    (10, 6)
    """
    wanted = list(filter(str.isalpha, _split_words(strip_pauses(text))))
    if respelled:
        respelled_words = set(_split_words(" ".join(respelled)))
        wanted = [token for token in wanted if token not in respelled_words]
    spoken = _split_words(" ".join(map(_get_text, words[: 20 + 8 * len(text)])))
    letters = sum(map(len, wanted))
    if wanted == list(filter(str.isalpha, spoken)):  # a cheap check of the usual case
        return letters, letters
    # Pair the n-th occurrence of a word in the text with its n-th occurrence in the answer. Then find the
    # longest chain of pairs whose positions rise (patience sorting).
    positions: defaultdict[str, list[int]] = defaultdict(list)
    for position in reversed(range(len(spoken))):
        positions[spoken[position]].append(position)
    ends: list[int] = []  # for each length, the smallest position at which a chain of this length can end
    sizes = [0]  # the number of letters in this chain
    for token in wanted:
        if positions[token]:
            position = positions[token].pop()
            length = bisect_left(ends, position)
            ends[length : length + 1] = [position]
            sizes[length + 1 : length + 2] = [sizes[length] + len(token)]
    latin = "".join(spoken)
    is_foreign = sizes == [0] and latin.isascii() and latin and set("".join(wanted)).isdisjoint(latin)
    return letters, letters if is_foreign else sizes[-1]


def _split_words(text: str) -> list[str]:
    """Return the words of a text for comparison. In scripts without spaces, each letter counts as a word."""
    return "".join(map(_fold_character, unicodedata.normalize("NFKD", text.casefold()))).split()


@lru_cache(_MAX_CACHED_CHARACTERS)
def _classify_character(character: str) -> str:
    """Return the kind of a character, a key of `_LETTERS_OF_KIND`."""
    category = unicodedata.category(character)
    if character in _CLAUSE_ENDS:
        return "e"
    if category[0] == "L":
        return _KIND_OF_SCRIPT.get(unicodedata.name(character, "")[:4], "A" if category == "Lu" else "a")
    if character in SPOKEN_SIGNS:
        return "s"
    return _KIND_OF_CATEGORY.get(category) or _KIND_OF_CATEGORY.get(category[0], "s")


@lru_cache(_MAX_CACHED_CHARACTERS)
def _fold_character(character: str) -> str:
    """Return a character for comparison. Accents and apostrophes vanish, and other signs become spaces."""
    if unicodedata.category(character)[0] == "M" or character in _APOSTROPHES:
        return ""
    if not character.isalnum():
        return " "
    is_word = unicodedata.name(character, "").startswith(SCRIPTS_WITHOUT_SPACES)
    return f" {character} " if is_word else character
