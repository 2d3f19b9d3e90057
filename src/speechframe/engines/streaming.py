"""Speech before all of it is made: a text sentence by sentence.

A stream is what the engine says of each sentence alone. It differs from the text spoken as a whole in two
ways: the pause between two sentences has a fixed length (:func:`pause_seconds`), and variation is drawn for
each sentence. Equal sentences are equal wherever they stand. Streams and whole texts are equally loud: a
voice has one gain, whatever it says.
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
from speechframe.engines.pieces import LOUDNESS_LUFS, at_gain
from speechframe.errors import EngineError
from speechframe.spec.texts import Pause, speaks, split_pauses
from speechframe.wire.chunking import Chunker

__all__ = [
    "SentenceSpeaker",
    "check",
    "in_sentences",
    "measured_gain_db",
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
_NUMERALS = "1 2 3 4 5 6 7 8 9 10 20 100."
"""They are read in every language, and about as loud as sentences are in the middle."""

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
    """What speech engines that speak sentence by sentence have in common, such as the gain of a voice."""

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
    def _gain_db(self, utterance: Utterance) -> float:
        """Return what brings the utterance's voice to the loudness that all voices have, whatever it says."""

    def stream(self, utterance: Utterance) -> Iterator[Speech]:
        """Yield an utterance sentence by sentence; :mod:`speechframe.engines.streaming` says what differs.

        Raises
        ------
        EngineError
            With the first sentence, as ``speak``.
        """
        return in_sentences(utterance, self._levelled)

    def _levelled(self, utterance: Utterance) -> Speech:
        """Return an utterance as loud as its voice is."""
        speech = self._spoken(utterance)
        return replace(speech, samples=at_gain(speech.samples, self._gain_db(utterance)))


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


def measured_gain_db(utterance: Utterance, speak: Callable[[Utterance], Speech]) -> float:
    """Return what brings a voice to the loudness that all voices have, from how loud it reads numerals.

    Parameters
    ----------
    utterance
        Whose voice; its text does not count.
    speak
        Speaks an utterance as loud as the engine does.

    Returns
    -------
    float
        In dB; 0 for a voice that cannot read any.
    """
    try:
        speech = speak(Utterance(_NUMERALS, utterance.voice_id, utterance.locale, variation=0))
    except EngineError:
        return 0.0
    return LOUDNESS_LUFS - measure.loudness_lufs(speech.samples, speech.sample_rate_hz)
