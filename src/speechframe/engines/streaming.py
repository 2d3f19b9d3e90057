"""Speech before all of it is made: a text sentence by sentence, at a level that is known from the start.

A stream is what the engine says of each sentence alone. It differs from the text spoken as a whole in three
ways: the pause between two sentences has a fixed length (:func:`pause_seconds`), variation is drawn for each
sentence, and loudness is that of the voice, measured once, where a whole text is brought to the same loudness
whatever it says. Equal sentences are equal wherever they stand.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import measure
from speechframe.audio.codec import seconds_to_frames
from speechframe.engines.base import Capabilities, Speaker, Speech, StreamingSpeaker, Utterance, Word
from speechframe.engines.pieces import LOUDNESS_DB, PEAK, levelled
from speechframe.errors import EngineError
from speechframe.spec.pauses import Pause, speaks, split_pauses
from speechframe.wire.chunking import Chunker

__all__ = [
    "SentenceSpeaker",
    "at_gain",
    "check",
    "in_sentences",
    "level_gain",
    "pause_seconds",
    "sentences",
    "stream",
]

LONGEST_CHARACTERS = 600
"""Of what is spoken at once: a text without a mark is cut there, between words."""

_SENTENCE_PAUSE_S = 0.25
_CLAUSE_PAUSE_S = 0.1
_CLAUSE_MARKS = ",;:\u2013\u2014\uff0c\u3001\uff1b\uff1a\u060c\u061b"
_SENTENCE_MARKS = ".!?\u2026\u3002\uff01\uff1f\uff61\u0964\u0965\u06d4\u061f\u17d4\u104b\u1362\u203c"
_CLOSERS = "\"'\u2019\u201d\u00bb\u203a)]}\u300d\u300f\u3011\u3015\uff09\uff3d\u300b\u3009\uff63"
_RATE_FOR_DOUBLE = 50.0
_CALIBRATION = "1 2 3 4 5 6 7 8 9"
"""Digits are read in every language."""

Samples = NDArray[np.float32]


def sentences(text: str) -> list[str]:
    """Return a text in the parts that are spoken one after the other; joined, they are the text.

    Examples
    --------
    >>> sentences("Dr. Who is in. He says: wait! [pause 2s]")
    ['Dr. Who is in. ', 'He says: wait! [pause 2s]']
    """
    chunker = Chunker(min_buffer_size=0, longest=LONGEST_CHARACTERS)
    parts = [*chunker.add(text), chunker.flush()]
    found: list[str] = []
    for part in parts:
        # What cannot be spoken alone, such as a pause at the end, stays with what it follows.
        if found and not speaks(part):
            found[-1] += part
        elif part:
            found.append(part)
    return found


def pause_seconds(before: str, after: str, rate: int = 0) -> float:
    """Return the silence between two texts that are spoken one after the other, in seconds.

    Parameters
    ----------
    before, after
        The texts: behind a sentence it is longer than behind a clause, and there is none within a clause or
        beside a pause marker.
    rate
        -50 to 50, as in a request.

    Examples
    --------
    >>> pause_seconds("Wait.", "Now!"), pause_seconds("Wait, ", "now!", rate=50), pause_seconds("to", "day")
    (0.25, 0.05, 0.0)
    """
    if _ends_with_pause(before) or _begins_with_pause(after):
        return 0.0
    last = before.rstrip().rstrip(_CLOSERS)[-1:]
    pause_s = 0.0
    if last and (last in _SENTENCE_MARKS or before.endswith("\n")):
        pause_s = _SENTENCE_PAUSE_S
    elif last and last in _CLAUSE_MARKS:
        pause_s = _CLAUSE_PAUSE_S
    return float(pause_s / 2 ** (rate / _RATE_FOR_DOUBLE))


def _ends_with_pause(text: str) -> bool:
    return any(isinstance(part, Pause) for part in split_pauses(text.rstrip())[-1:])


def _begins_with_pause(text: str) -> bool:
    return any(isinstance(part, Pause) for part in split_pauses(text.lstrip())[:1])


def check(speaker: Speaker, utterance: Utterance) -> tuple[str, ...]:
    """Return what the caller should know of a whole text, before any of it is spoken.

    Raises
    ------
    EngineError
        What `speaker` would refuse. An engine that does not stream tells only when it speaks.
    """
    if not speaker.capabilities.streaming:
        return ()
    return cast("StreamingSpeaker", speaker).check(utterance)


def stream(speaker: Speaker, utterance: Utterance) -> Iterator[Speech]:
    """Yield speech piece by piece, as it is made.

    Parameters
    ----------
    speaker
        Any engine; one that does not stream speaks each sentence as a text of its own.
    utterance
        What is spoken. With ``audio_duration_s`` it is one piece: a length is of the whole.

    Raises
    ------
    EngineError
        With the first piece, for what only the engine can see.
    """
    if utterance.audio_duration_s:
        return iter([speaker.speak(utterance)])
    if speaker.capabilities.streaming:
        return cast("StreamingSpeaker", speaker).stream(utterance)
    return in_sentences(utterance, speaker.speak)


class SentenceSpeaker(ABC):
    """What speech engines that speak sentence by sentence have in common: the level of what they say."""

    capabilities = Capabilities(
        variation=True, audio_duration=True, pronunciations=True, original_text=True, streaming=True
    )

    @abstractmethod
    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings of a whole text; raises EngineError for one that is not to be spoken."""

    @abstractmethod
    def _spoken(self, utterance: Utterance) -> Speech:
        """Return an utterance as loud as the engine speaks."""

    @abstractmethod
    def _gain(self, utterance: Utterance) -> float | None:
        """Return what brings the voice to its level; see :func:`level_gain`."""

    def stream(self, utterance: Utterance) -> Iterator[Speech]:
        """Yield an utterance sentence by sentence; :mod:`speechframe.engines.streaming` says what differs.

        Raises
        ------
        EngineError
            With the first sentence, as ``speak``.
        """
        return in_sentences(utterance, self._streamed)

    def _streamed(self, utterance: Utterance) -> Speech:
        """Return a sentence at the level of its voice."""
        speech = self._spoken(utterance)
        gain = self._gain(utterance)
        if gain is None:
            return _levelled(speech)
        return replace(speech, samples=at_gain(speech.samples, gain))

    def _whole(self, utterance: Utterance) -> Speech:
        """Return a text at the level that all texts have."""
        return _levelled(self._spoken(utterance))


def _levelled(speech: Speech) -> Speech:
    return replace(speech, samples=levelled(speech.samples, speech.sample_rate_hz))


def in_sentences(utterance: Utterance, speak: Callable[[Utterance], Speech]) -> Iterator[Speech]:
    """Yield each sentence of a text as `speak` says it, with the pause before it.

    A sentence that has nothing speakable for the voice is left out, unless all are so.

    Parameters
    ----------
    utterance
        What is spoken.
    speak
        Speaks an utterance of a single sentence.

    Raises
    ------
    EngineError
        When no sentence can be spoken: why the first could not.
    """
    refused: EngineError | None = None
    before: str | None = None
    for text in sentences(utterance.text):
        try:
            speech = speak(replace(utterance, text=text))
        except EngineError as error:
            refused = refused or error
            continue
        pause_s = pause_seconds(before, text, utterance.rate) if before is not None else 0.0
        yield _after_silence(speech, pause_s)
        before = text
    if before is None:
        raise refused or EngineError("there is no text to speak")


def _after_silence(speech: Speech, pause_s: float) -> Speech:
    frames = seconds_to_frames(pause_s, speech.sample_rate_hz)
    if not frames:
        return speech
    ms = round(1000 * frames / speech.sample_rate_hz)
    words = tuple(Word(word.word, word.start_ms + ms, word.end_ms + ms) for word in speech.words)
    return replace(speech, samples=np.pad(speech.samples, (frames, 0)), words=words)


def level_gain(utterance: Utterance, speak: Callable[[Utterance], Speech]) -> float | None:
    """Return what brings a voice to the loudness all speech has here, whatever it says.

    Parameters
    ----------
    utterance
        Whose voice; its text does not count.
    speak
        Speaks an utterance as loud as the engine does.

    Returns
    -------
    float or None
        A factor; None for a voice that cannot read digits.
    """
    said = replace(utterance, text=_CALIBRATION, rate=0, variation=0, take=0, pronunciations={})
    try:
        speech = speak(said)
    except EngineError:
        return None
    return float(10 ** ((LOUDNESS_DB - measure.loudness_db(speech.samples, speech.sample_rate_hz)) / 20))


def at_gain(samples: Samples, gain: float) -> Samples:
    """Return samples a factor louder, or as much as leaves room for what a lossy format adds."""
    highest = measure.peak(samples)
    return samples * np.float32(min(gain, PEAK / highest) if highest else gain)
