"""Speak the text of a clip again with another voice, in the timing of the clip.

This removes the accent of the speaker, because only the timing of the clip is
kept, and none of its sound.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from speechframe.audio import measure
from speechframe.audio.codec import Samples, convert_seconds_to_frames
from speechframe.audio.stretch import fit_frames
from speechframe.engines.base import Conversion, Recording, Speech, Utterance
from speechframe.errors import EngineError
from speechframe.local.engines.reading.pieces import find_speech_span
from speechframe.spec.limits import RATE, compute_speed
from speechframe.spec.locales import get_display_name, get_language

_SHORTEST_RESULT_S = 0.05
"""Shortest length that a caller may request, in seconds."""

_PAUSE_BELOW_DB = 35.0
"""A frame belongs to a pause if its level is more than this many dB below the level of the loudest frame."""
_LONG_PAUSE_S = 0.3
"""Shortest pause of the clip that is kept. Within clauses the other voice makes its own short pauses."""
_FRAME_MS, _SHORTEST_PAUSE_MS = 10.0, 15.0
"""Length of the frames in which pauses of the clip are searched, and of the shortest pause, in ms."""
_NEGLIGIBLE_S = 0.02
"""Length in seconds that is neglected. Sound up to this length is not speech. A pause that is no further from
an end of the clip lies at this end."""
_MATCH_SHARE = 0.15
"""Largest distance between a pause and the end of a clause that matches it, as a share of the speech."""

_CLAUSE_ENDS = frozenset(".!?;:,…。！？；：，、،؛؟।")  # noqa: RUF001  (of several scripts)
_MARKS_INSIDE_WORDS = frozenset(".,:")
"""Marks that end no clause if a character other than a space follows, as in 3.5 and 12:30."""

_LENGTH_TOLERANCE = 0.08
"""Relative error of a length up to which speech is only stretched, and not spoken again at another rate."""
_MAX_LENGTH_FACTOR, _MIN_INTELLIGIBLE_FACTOR = 2.0, 0.5
"""Factors between the length of the speech in the result and the length that the voice takes by itself. The
first is never exceeded, and the rest of the time is silence. Below the second there is only a warning."""
_MAX_UNEVENNESS = 1.3
"""A part may be faster or slower than all parts together by about this factor, so that pauses can stay in
place."""


@dataclass(frozen=True, slots=True)
class _Span:
    """A span of speech in the clip, in seconds."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def respeak_clip(
    recording: Recording,
    conversion: Conversion,
    *,
    speak: Callable[[Utterance], Speech],
    text: str,
    language: str | None,
) -> Speech:
    """Return the text of a clip, spoken by another voice in the timing of the clip.

    The result is exactly as long as the clip, unless ``rate`` or ``audio_duration_s`` of `conversion` change
    the length. The silence before and after the speech is kept. With ``retain_prosody``, a pause of 0.3 s
    or more is also kept if a clause of the text ends near it. The speech between kept pauses then takes about
    as long as in the clip. Without ``retain_prosody`` the text is spoken as a whole. The intonation of the
    clip is not transferred, because intonation is a part of an accent.

    Parameters
    ----------
    recording
        The clip.
    conversion
        The voice, and the parameters of the speech.
    speak
        Function that speaks an utterance.
    text
        The text of the clip.
    language
        Language of the text, such as ``en``. None if it is unknown.

    Returns
    -------
    Speech
        At the sample rate of the other voice, without word times.

    Raises
    ------
    EngineError
        The text is empty, the clip is silent, the requested length is too short, or `speak` failed.

    Examples
    --------
    >>> from speechframe.local.engines.espeak.speaker import EspeakSpeaker
    >>> clip = Recording(np.sin(np.arange(44100) / 20).astype(np.float32), 22050)
    >>> to = Conversion("en-US-nora", "en-US")
    >>> respeak_clip(clip, to, speak=EspeakSpeaker().speak, text="Good morning", language="en").audio_seconds
    2.0
    """
    if not text.strip():
        raise EngineError(
            "there is no text to speak: no words were recognised in the clip, or the given text is empty"
        )
    scale = _compute_scale(recording, conversion)
    spans = [_Span(span.start_s * scale, span.end_s * scale) for span in _find_spans(recording)]
    if not conversion.retain_prosody:
        spans = [_Span(spans[0].start_s, spans[-1].end_s)]
    parts, spans = _divide_text(text, spans)
    said, rate_hz, warnings = _speak_parts(parts, [span.seconds for span in spans], conversion, speak)
    frames = max(1, convert_seconds_to_frames(recording.audio_seconds * scale, rate_hz))
    starts_s = _compute_starts_s(spans, [len(part) / rate_hz for part in said], frames / rate_hz)
    samples = np.zeros(frames, np.float32)
    for part, start_s in zip(said, starts_s, strict=True):
        first = min(convert_seconds_to_frames(start_s, rate_hz), max(0, frames - len(part)))
        samples[first : first + len(part)] += part[: frames - first]
    if language and get_language(language) != get_language(conversion.locale):
        warnings.append(
            f"the text is in {get_display_name(language)} and was read as "
            f"{get_display_name(conversion.locale)}"
        )
    return Speech(samples, rate_hz, (), tuple(warnings))


def _compute_scale(recording: Recording, conversion: Conversion) -> float:
    """Return the factor that turns a time in the clip into the same time in the result."""
    asked_s = conversion.audio_duration_s
    if not asked_s:
        return compute_speed(-conversion.rate)
    if asked_s < _SHORTEST_RESULT_S:
        raise EngineError(
            f"audio_duration of {asked_s:g} s leaves no time to speak; at least {_SHORTEST_RESULT_S:g} s"
        )
    return asked_s / recording.audio_seconds


def _find_spans(recording: Recording) -> list[_Span]:
    """Return the spans of speech in the clip, between its long pauses."""
    samples, rate_hz = recording.samples, recording.sample_rate_hz
    if not len(samples) or not measure.measure_peak(samples):
        raise EngineError("the clip is silent: there is no speech in it whose timing could be kept")
    quiet = measure.find_silences(
        samples, rate_hz, shortest_ms=_SHORTEST_PAUSE_MS, below_db=_PAUSE_BELOW_DB, frame_ms=_FRAME_MS
    )
    total_s = recording.audio_seconds
    inner = [
        (start_s, end_s)
        for start_s, end_s in quiet
        if end_s - start_s >= _LONG_PAUSE_S or start_s <= _NEGLIGIBLE_S or end_s >= total_s - _NEGLIGIBLE_S
    ]
    edges_s = [0.0, *(time_s for pause in inner for time_s in pause), total_s]
    spans = [_Span(start_s, end_s) for start_s, end_s in zip(edges_s[::2], edges_s[1::2], strict=True)]
    return [span for span in spans if span.seconds > _NEGLIGIBLE_S] or [_Span(0.0, total_s)]


def _split_clauses(text: str) -> list[str]:
    """Split a text into clauses after its punctuation. Drop clauses without letters or digits."""
    clauses, start = [], 0
    for position, character in enumerate(text):
        following = text[position + 1 : position + 2]
        is_inside_word = character in _MARKS_INSIDE_WORDS and following and not following.isspace()
        if character in _CLAUSE_ENDS and not is_inside_word and following not in _CLAUSE_ENDS:
            clauses.append(text[start : position + 1])
            start = position + 1
    clauses.append(text[start:])
    spoken = [clause for clause in clauses if any(character.isalnum() for character in clause)]
    return spoken if len(spoken) > 1 else [text]


def _divide_text(text: str, spans: Sequence[_Span]) -> tuple[list[str], list[_Span]]:
    """Divide the text among the spans of speech. Return the parts of the text, and the span of each part.

    A pause lies at some share of the speech time. If a clause ends at about the same share of the letters,
    the pause divides the text there. Otherwise the spans around the pause are joined.
    """
    clauses = _split_clauses(text)
    letters = np.cumsum([sum(character.isalnum() for character in clause) for clause in clauses], dtype=float)
    speech_s = np.cumsum([span.seconds for span in spans])
    parts, kept = [], []
    next_clause, next_span = 0, 0
    for span, share in enumerate(speech_s[:-1] / speech_s[-1]):
        ends = letters[next_clause:-1] / max(letters[-1], 1.0)
        if not len(ends):
            break
        nearest = int(np.argmin(np.abs(ends - share)))
        if abs(ends[nearest] - share) <= _MATCH_SHARE:
            stop = next_clause + nearest + 1
            parts.append("".join(clauses[next_clause:stop]))
            kept.append(_Span(spans[next_span].start_s, spans[span].end_s))
            next_clause, next_span = stop, span + 1
    parts.append("".join(clauses[next_clause:]))
    kept.append(_Span(spans[next_span].start_s, spans[-1].end_s))
    return parts, kept


def _speak_parts(
    parts: Sequence[str],
    seconds: Sequence[float],
    conversion: Conversion,
    speak: Callable[[Utterance], Speech],
) -> tuple[list[Samples], int, list[str]]:
    """Speak each part in about its number of seconds. Return the speech, its sample rate and warnings."""
    plain = [_build_utterance(part, conversion) for part in parts]
    spoken = [speak(utterance) for utterance in plain]
    warnings = list(dict.fromkeys(warning for speech in spoken for warning in speech.warnings))
    rate_hz = spoken[0].sample_rate_hz
    own = [speech.samples[find_speech_span(speech.samples, rate_hz)] for speech in spoken]
    own_s = [len(samples) / rate_hz for samples in own]
    mean_factor = sum(seconds) / sum(own_s)
    if mean_factor < _MIN_INTELLIGIBLE_FACTOR:
        warnings.append(
            f"the voice would take {1 / mean_factor:.1f} times as long for the text, "
            "which may not be understood so fast"
        )
    elif mean_factor > _MAX_LENGTH_FACTOR:
        warnings.append(
            f"there is {mean_factor:.1f} times the time that the voice takes for the text: "
            f"its speech became at most {_MAX_LENGTH_FACTOR:g} times as long, and the rest is silence"
        )
    lengths_s = _compute_lengths_s(seconds, own_s, mean_factor)
    pieces = [
        _fit_part(utterance, samples, rate_hz, max(1, convert_seconds_to_frames(wanted_s, rate_hz)), speak)
        for utterance, samples, wanted_s in zip(plain, own, lengths_s, strict=True)
    ]
    return pieces, rate_hz, warnings


def _compute_lengths_s(seconds: Sequence[float], own_s: Sequence[float], mean_factor: float) -> list[float]:
    """Return the length of each part in seconds: its length in the clip, within bounds of speed.

    The lengths together never exceed the speech of the clip.

    Parameters
    ----------
    seconds
        Length of each part in the clip.
    own_s
        Length of each part as the voice speaks it.
    mean_factor
        The sum of `seconds` divided by the sum of `own_s`.
    """
    factors = [
        min(
            float(np.clip(wanted / own, mean_factor / _MAX_UNEVENNESS, mean_factor * _MAX_UNEVENNESS)),
            _MAX_LENGTH_FACTOR,
        )
        for wanted, own in zip(seconds, own_s, strict=True)
    ]
    lengths_s = [own * factor for own, factor in zip(own_s, factors, strict=True)]
    fitting = min(1.0, sum(seconds) / sum(lengths_s))
    return [length_s * fitting for length_s in lengths_s]


def _build_utterance(text: str, conversion: Conversion) -> Utterance:
    return Utterance(
        text.strip(),
        conversion.voice_id,
        conversion.locale,
        style=conversion.style,
        pitch=conversion.pitch,
        variation=conversion.variation,
        take=conversion.take,
    )


def _fit_part(
    utterance: Utterance, samples: Samples, rate_hz: int, frames: int, speak: Callable[[Utterance], Speech]
) -> Samples:
    """Fit speech into exactly `frames`: speak again at another rate if needed, then stretch the audio."""
    if abs(len(samples) / frames - 1) > _LENGTH_TOLERANCE:
        needed_speed = len(samples) / frames
        rate = min(range(RATE.low, RATE.high + 1), key=lambda rate: abs(compute_speed(rate) - needed_speed))
        again = speak(replace(utterance, rate=rate)).samples
        again = again[find_speech_span(again, rate_hz)]
        samples = min(samples, again, key=lambda some: abs(np.log(len(some) / frames)))
    return fit_frames(samples, rate_hz, frames)


def _compute_starts_s(spans: Sequence[_Span], said_s: Sequence[float], total_s: float) -> list[float]:
    """Return the start of each part in seconds: the start of its span, or later if the part before is long.

    Parts start earlier if they would otherwise end after `total_s`.
    """
    places, free_s = [], 0.0
    for span, seconds in zip(spans, said_s, strict=True):
        places.append(max(span.start_s, free_s))
        free_s = places[-1] + seconds
    for index in reversed(range(len(places))):
        latest_s = (places[index + 1] if index + 1 < len(places) else total_s) - said_s[index]
        places[index] = max(0.0, min(places[index], latest_s))
    return places
