"""Speak a text with any engine, as a whole or sentence by sentence, within the abilities of the engine.

In a stream, the engine speaks each sentence alone. So a stream differs in two ways from a text that is spoken
as a whole. The pause between two sentences has a fixed length (:func:`choose_pause_s`), and the random
variation is drawn for each sentence. Equal sentences sound the same in every text. A voice has one gain, so
streams and whole texts are equally loud.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from speechframe.audio.codec import convert_seconds_to_frames
from speechframe.engines.base import Capabilities, Speaker, Speech, StreamingSpeaker, Utterance, Word
from speechframe.errors import EngineError, EngineFault
from speechframe.spec.limits import VARIATION, compute_speed
from speechframe.spec.texts import Pause, has_speech, split_pauses, strip_pauses
from speechframe.wire.chunking import CLAUSE_MARKS, CLOSING_MARKS, SENTENCE_MARKS, Chunker

MAX_SENTENCE_CHARACTERS = 600
"""Longest part of a text that is spoken at once. A longer sentence is cut between words."""

# Silence after a sentence and after a clause at the normal rate, in seconds.
_SENTENCE_PAUSE_S = 0.25
_CLAUSE_PAUSE_S = 0.1
_FIELDS_OF_ABILITIES = MappingProxyType(
    {
        "pitch": ("pitch", 0, "pitch"),
        "rate": ("rate", 0, "rate"),
        "variation": ("variation", VARIATION.low, "variation"),
        "audio_duration": ("audio_duration_s", 0.0, "a fixed length"),
        "pronunciations": ("pronunciations", {}, "a pronunciation"),
        "original_text": ("words_as_original_text", False, "word times of the original text"),
    }
)
"""Maps an ability to its field of :class:`Utterance`, the neutral value, and words for a warning."""


def split_sentences(text: str) -> list[str]:
    """Split a text into the sentences that are spoken one after the other. Joined, they give the text.

    Examples
    --------
    >>> split_sentences("Dr. Who is in. He says: wait! [pause 2s]")
    ['Dr. Who is in. ', 'He says: wait! [pause 2s]']
    """
    chunker = Chunker(min_buffer_size=0, longest=MAX_SENTENCE_CHARACTERS)
    parts = [*chunker.add(text), chunker.flush()]
    found: list[str] = []
    for part in parts:
        # Add a part that cannot be spoken alone, such as a pause at the end, to the part before.
        if found and not has_speech(part):
            found[-1] += part
        elif part:
            found.append(part)
    return found


def choose_pause_s(before: str, after: str, rate: int = 0) -> float:
    """Return the silence between two texts that are spoken one after the other, in seconds.

    Parameters
    ----------
    before, after
        The two texts. The silence after a sentence is longer than after a clause. Within a clause and beside
        a pause marker, the silence is 0.
    rate
        Change of the speed, -50 to 50. 50 halves the silence.

    Examples
    --------
    >>> choose_pause_s("Wait.", "Now!"), choose_pause_s("Wait, ", "now!", rate=50)
    (0.25, 0.05)
    >>> choose_pause_s("to", "day")
    0.0
    """
    if _has_pause_at_end(before) or _has_pause_at_start(after):
        return 0.0
    last = before.rstrip().rstrip(CLOSING_MARKS)[-1:]
    pause_s = 0.0
    if last and (last in SENTENCE_MARKS or before.endswith("\n")):
        pause_s = _SENTENCE_PAUSE_S
    elif last and last in CLAUSE_MARKS:
        pause_s = _CLAUSE_PAUSE_S
    return pause_s / compute_speed(rate)


def _has_pause_at_end(text: str) -> bool:
    """Return whether a text ends with a pause marker."""
    return any(isinstance(part, Pause) for part in split_pauses(text.rstrip())[-1:])


def _has_pause_at_start(text: str) -> bool:
    """Return whether a text begins with a pause marker."""
    return any(isinstance(part, Pause) for part in split_pauses(text.lstrip())[:1])


def limit_utterance(capabilities: Capabilities, utterance: Utterance) -> tuple[Utterance, tuple[str, ...]]:
    """Return an utterance without the fields for abilities that an engine lacks, and warnings about them.

    Examples
    --------
    >>> asked = Utterance("One [pause 1s]two", "en-US-hum", "en-US", pitch=7)
    >>> fitting, warnings = limit_utterance(Capabilities(rate=True), asked)
    >>> fitting.text, fitting.pitch
    ('One two', 0)
    >>> warnings[0]
    'pitch is not supported by this voice and was ignored'
    """
    neutral_fields: dict[str, Any] = {}
    warnings = []
    for ability, (field, value, shown) in _FIELDS_OF_ABILITIES.items():
        requested = getattr(utterance, field)
        if not getattr(capabilities, ability) and requested != value:
            neutral_fields[field] = value
            # The default variation gets no warning, because the caller may not have requested it.
            if (ability, requested) != ("variation", VARIATION.default):
                warnings.append(f"{shown} is not supported by this voice and was ignored")
    if not capabilities.pauses and any(isinstance(part, Pause) for part in split_pauses(utterance.text)):
        neutral_fields["text"] = strip_pauses(utterance.text)
        warnings.append("pauses are not supported by this voice and were left out")
    return (replace(utterance, **neutral_fields) if neutral_fields else utterance), tuple(warnings)


def check(speaker: Speaker, utterance: Utterance) -> tuple[str, ...]:
    """Return the warnings for a whole text without speaking it.

    Raises
    ------
    EngineError
        If the engine would refuse the text. An engine without streaming refuses only in :func:`speak`.
    """
    fitting, warnings = limit_utterance(speaker.capabilities, utterance)
    if not speaker.capabilities.streaming:
        return warnings
    return (*warnings, *cast("StreamingSpeaker", speaker).check(fitting))


def speak(speaker: Speaker, utterance: Utterance) -> Speech:
    """Return an utterance as speech, with a warning for each requested ability that the engine lacks.

    Raises
    ------
    EngineError
        If the engine cannot speak the utterance. EngineFault if the engine is at fault.
    """
    fitting, warnings = limit_utterance(speaker.capabilities, utterance)
    return _add_warnings(_check_speech(speaker.speak(fitting)), warnings)


def stream(speaker: Speaker, utterance: Utterance) -> Iterator[Speech]:
    """Yield the speech of an utterance piece by piece, each as soon as the engine has made it.

    Parameters
    ----------
    speaker
        Any engine. An engine without streaming speaks each sentence as a text of its own.
    utterance
        The text, voice and settings. With ``audio_duration_s``, the speech is a single piece, because the
        length applies to the whole text.

    Raises
    ------
    EngineError
        As :func:`speak`, when a piece is requested.
    """
    fitting, warnings = limit_utterance(speaker.capabilities, utterance)
    if fitting.audio_duration_s:
        pieces = iter([speaker.speak(fitting)])
    elif speaker.capabilities.streaming:
        pieces = cast("StreamingSpeaker", speaker).stream(fitting)
    else:
        pieces = stream_sentences(fitting, speaker.speak)
    return (_add_warnings(_check_speech(piece), warnings) for piece in pieces)


def _check_speech(speech: Any) -> Speech:
    """Return the result of an engine, or raise EngineFault if its type or a value in it is wrong."""
    if not isinstance(speech, Speech):
        raise EngineFault(f"the engine returned {type(speech).__name__}, not Speech")
    facts: Any = speech  # a plug-in may have put anything into its fields
    samples = facts.samples
    if not isinstance(samples, np.ndarray) or samples.ndim != 1 or samples.dtype != np.float32:
        raise EngineFault("the engine returned samples that are not a float32 array of one dimension")
    if not np.isfinite(samples).all():
        raise EngineFault("the engine returned samples that are not finite")
    if not isinstance(facts.sample_rate_hz, int) or facts.sample_rate_hz <= 0:
        raise EngineFault(f"the engine returned the sample rate {facts.sample_rate_hz!r}, not a positive int")
    if not all(isinstance(warning, str) for warning in facts.warnings):
        raise EngineFault("the engine returned a warning that is not text")
    if not all(isinstance(word, Word) for word in facts.words):
        raise EngineFault("the engine returned an entry of words that is not a Word")
    return speech


def _add_warnings(speech: Speech, warnings: tuple[str, ...]) -> Speech:
    """Return speech with further warnings before its own."""
    if not warnings:
        return speech
    return replace(speech, warnings=tuple(dict.fromkeys((*warnings, *speech.warnings))))


def stream_sentences(utterance: Utterance, speak: Callable[[Utterance], Speech]) -> Iterator[Speech]:
    """Yield the speech of each sentence of a text, after the pause between this and the last sentence.

    A sentence that cannot be spoken is left out, unless no sentence can be spoken.

    Parameters
    ----------
    utterance
        The text, voice and settings.
    speak
        A function that speaks an utterance of a single sentence.

    Raises
    ------
    EngineError
        If no sentence can be spoken: the error of the first sentence. Or EngineFault, if the engine is at
        fault.
    """
    first_error: EngineError | None = None
    before: str | None = None
    for text in split_sentences(utterance.text):
        try:
            speech = speak(replace(utterance, text=text))
        except EngineFault:
            raise
        except EngineError as error:
            first_error = first_error or error
            continue
        pause_s = choose_pause_s(before, text, utterance.rate) if before is not None else 0.0
        yield _add_silence(speech, pause_s)
        before = text
    if before is None:
        raise first_error or EngineError("there is no text to speak")


def _add_silence(speech: Speech, pause_s: float) -> Speech:
    """Return speech with a pause before it, and with word times that include the pause."""
    frames = convert_seconds_to_frames(pause_s, speech.sample_rate_hz)
    if not frames:
        return speech
    ms = round(1000 * frames / speech.sample_rate_hz)
    words = tuple(Word(word.word, word.start_ms + ms, word.end_ms + ms) for word in speech.words)
    return replace(speech, samples=np.pad(speech.samples, (frames, 0)), words=words)
