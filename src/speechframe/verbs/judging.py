"""Whether a spoken answer is what it must be: its audio, words and length against its text and each other.

A service may answer 200 and still be wrong: the audio of another row, half of it, silence. Every check is
cheap and, in doubt, finds nothing. A finding says what is wrong in figures; its row is ``suspect``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from speechframe.audio.levels import levels
from speechframe.batch.backend import Finding, Record
from speechframe.client import Spoken
from speechframe.errors import AudioError
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.chosen import read_clamped
from speechframe.spec.speech import Format, GenerateRequest, StreamRequest
from speechframe.verbs.coverage import Coverage, coverage
from speechframe.verbs.pace import Load, Pace, load_of

LOSSY = frozenset({Format.MP3, Format.OGG})
_LENGTH_TOLERANCE, _LENGTH_TOLERANCE_S = 0.01, 0.05
_LOSSY_TOLERANCE_S = 0.15
"""Lossy encoders fill up their last frame and the delay of their filters: up to 0.14 s at 8000 Hz."""
_WORDS_TOLERANCE_MS = 100.0
_AFTER_WORDS, _AFTER_WORDS_S = 0.2, 1.0
"""Audio that may follow the last word: signs and emoji at the end of a text may have no entry."""
_ASKED_TOLERANCE, _ASKED_TOLERANCE_S = 0.1, 0.25
_CLIP_TOLERANCE, _CLIP_TOLERANCE_S = 0.05, 0.15
_EXACT_TOLERANCE_S = 0.05
"""The voice changer keeps to an asked length exactly; encoders add a frame."""
_COVERED = 0.65
_FEWEST_MISSING = 6
"""Letters; fewer may be a matter of spelling ("OK", "Dr.")."""
_SILENT_PEAK_DB, _SILENT_RMS_DB = -40.0, -60.0
_NOISE_CORRELATION = 0.05
_CLIPPED_FRACTION = 0.0003
_MOST_SAMPLES = 1 << 26
"""Looked at of one answer: 25 minutes at 44100 Hz."""
_MOST_ODD_SAMPLES = 1 << 22
"""The same of an answer of a wrong length, a minute and a half: a megabyte can decode to hours."""

UNDECODABLE = "undecodable"
LENGTH = "length"
WORDS_OUTSIDE = "words_outside"
WORDS_MISSING = "words_missing"
PACE = "pace"
SILENT = "silent"
NOISE = "noise"
CLIPPED = "clipped"


@dataclass(slots=True)
class SpokenRecord(Record):
    """The record of a spoken answer, with what it is judged by.

    Parameters
    ----------
    answer
        The decoded answer; its audio is the record's.
    asked
        The request.
    """

    answer: Spoken = field(kw_only=True, repr=False)
    asked: GenerateRequest | StreamRequest | ConvertRequest = field(kw_only=True, repr=False)


def judge_speech(record: SpokenRecord, voice: tuple[Any, Any, Any], learned: dict[str, Any]) -> list[Finding]:
    """Return what speaks against the answer to a text.

    Parameters
    ----------
    record
        What is to be kept of it.
    voice
        Model, voice and locale.
    learned
        What is usual in this run; answers without a finding add to it.
    """
    answer, asked = record.answer, record.asked
    assert not isinstance(asked, ConvertRequest)  # noqa: S101 - for the type: clips have a judge of their own
    pace = learned.setdefault("pace", Pace())
    model, _, locale = voice
    load = load_of(asked.text)
    keys = ((*voice, asked.style, asked.rate), (model, locale, asked.rate))
    covered = coverage(asked.text, answer.words, except_for=asked.pronunciation_dictionary or ())
    asked_s = _asked_s(asked, answer) if isinstance(asked, GenerateRequest) else None
    found = [
        _of_length(answer),
        _of_word_times(answer),
        _of_words(covered, answer),
    ]
    if asked_s:
        found.append(_of_asked_length(answer, asked_s, _ASKED_TOLERANCE_S + _ASKED_TOLERANCE * asked_s))
    else:
        found += [
            _of_last_word(load, answer),
            _of_pace(answer, pace.bounds_s(load, keys, rate=asked.rate or 0)),
        ]
    findings = _with_sound(found, answer)
    if not findings and not asked_s:
        pace.learn(load, keys, answer.audio_seconds)
    return findings


def judge_clip(record: SpokenRecord, clip_seconds: float) -> list[Finding]:
    """Return what speaks against the answer to a clip of some length."""
    answer, asked = record.answer, record.asked
    assert isinstance(asked, ConvertRequest)  # noqa: S101 - for the type
    if asked_s := _asked_s(asked, answer):
        of_length = _of_asked_length(answer, asked_s, _EXACT_TOLERANCE_S)
    elif asked.rate:
        of_length = None
    else:
        tolerance_s = _CLIP_TOLERANCE_S + _CLIP_TOLERANCE * clip_seconds
        of_length = _of_asked_length(answer, clip_seconds, tolerance_s, "is the length of the clip")
    return _with_sound([_of_length(answer), of_length], answer)


def _asked_s(asked: GenerateRequest | ConvertRequest, answer: Spoken) -> float | None:
    """Return the length that was asked for, or what the service says it made of that."""
    clamped = (read_clamped(warning) for warning in answer.warnings)
    return next((seconds for seconds in clamped if seconds), asked.audio_duration)


def _lossy_s(answer: Spoken) -> float:
    return _LOSSY_TOLERANCE_S if answer.format in LOSSY else 0.0


def _of_length(answer: Spoken) -> Finding | None:
    said_s, audio_s = answer.said_seconds, answer.audio_seconds
    if said_s is None:
        return None
    if abs(said_s - audio_s) <= (_lossy_s(answer) or _LENGTH_TOLERANCE_S) + _LENGTH_TOLERANCE * audio_s:
        return None
    return Finding(LENGTH, f"the answer says {said_s:.2f} s, the audio holds {audio_s:.2f} s")


def _of_asked_length(
    answer: Spoken, wanted_s: float, tolerance_s: float, why: str = "were asked for"
) -> Finding | None:
    if abs(wanted_s - answer.audio_seconds) <= tolerance_s + _lossy_s(answer):
        return None
    return Finding(PACE, f"{wanted_s:.2f} s {why}, the audio lasts {answer.audio_seconds:.2f} s")


def _of_pace(answer: Spoken, bounds_s: tuple[float, float]) -> Finding | None:
    low_s, high_s = bounds_s
    if low_s <= answer.audio_seconds <= high_s:
        return None
    return Finding(
        PACE,
        f"the audio lasts {answer.audio_seconds:.2f} s; "
        f"such a text takes this voice {low_s:.2f} to {high_s:.2f} s",
    )


def _of_words(covered: Coverage, answer: Spoken) -> Finding | None:
    # The document asks for a list of words, not for words in it, and says nothing of their spelling.
    if covered.foreign or not answer.words:
        return None
    missing = covered.letters - covered.covered
    if missing < _FEWEST_MISSING or covered.covered >= _COVERED * covered.letters:
        return None
    return Finding(
        WORDS_MISSING,
        f"{missing} of the text's {covered.letters} letters are not in the answer's words",
    )


def _of_word_times(answer: Spoken) -> Finding | None:
    audio_ms = 1000 * answer.audio_seconds
    limit_ms = (1 + _LENGTH_TOLERANCE) * audio_ms + _WORDS_TOLERANCE_MS
    outside = [word for word in answer.words if word[1] < 0 or word[2] > limit_ms or word[1] > limit_ms]
    if not outside:
        return None
    word, start_ms, end_ms = outside[0]
    return Finding(
        WORDS_OUTSIDE,
        f"{len(outside)} of {len(answer.words)} words lie outside the audio of {audio_ms:.0f} ms, "
        f"such as {word[:40]!r} from {start_ms} to {end_ms} ms",
    )


def _of_last_word(load: Load, answer: Spoken) -> Finding | None:
    """Return a finding where the audio goes on long after its last word."""
    if not answer.words:
        return None
    last_s = max([end_ms for _, _, end_ms in answer.words]) / 1000
    allowed_s = _AFTER_WORDS_S + _AFTER_WORDS * answer.audio_seconds + load.pause_s
    if answer.audio_seconds - last_s <= allowed_s:
        return None
    return Finding(
        WORDS_MISSING, f"the last word ends at {last_s:.2f} s, the audio at {answer.audio_seconds:.2f} s"
    )


def _with_sound(found: Sequence[Finding | None], answer: Spoken) -> list[Finding]:
    """Return the findings, and the one that the samples give."""
    findings = [finding for finding in found if finding is not None]
    has_odd_length = any(finding.code in {LENGTH, PACE} for finding in findings)
    of_sound = _of_sound(answer, _MOST_ODD_SAMPLES if has_odd_length else _MOST_SAMPLES)
    return findings if of_sound is None else [*findings, of_sound]


def _of_sound(answer: Spoken, most_samples: int) -> Finding | None:
    try:
        found = levels(
            answer.audio, format=answer.format, channels=answer.channels, most_samples=most_samples
        )
    except AudioError as error:
        return Finding(UNDECODABLE, str(error))
    if found.peak_db < _SILENT_PEAK_DB or found.rms_db < _SILENT_RMS_DB:
        return Finding(
            SILENT,
            f"the loudest sample is at {found.peak_db:.0f} dB, the mean level at {found.rms_db:.0f} dB",
        )
    if abs(found.correlation) < _NOISE_CORRELATION:
        return Finding(NOISE, f"neighbouring samples do not correlate ({found.correlation:.2f}), as in noise")
    if found.clipped_fraction > _CLIPPED_FRACTION:
        return Finding(
            CLIPPED,
            f"{found.clipped_fraction:.2%} of the samples stand in rows of three or more at full scale",
        )
    return None
