"""The protocols that engines implement, and the types of their arguments and results.

Your own engine is a class that implements one of these protocols. An entry point names the class::

    [project.entry-points."speechframe.speakers"]
    mine = "my_package:MySpeaker"

The other groups are ``speechframe.changers``, ``speechframe.translators`` and ``speechframe.recognisers``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from speechframe.spec.limits import AUDIO_DURATION, PITCH, RATE, VARIATION
from speechframe.spec.speech import Gender, Model, Pronunciation, StyleDetails, VoiceKind

__all__ = [
    "Capabilities",
    "Changer",
    "Conversion",
    "EngineVoice",
    "Quality",
    "Recogniser",
    "Recording",
    "Speaker",
    "Speech",
    "StreamingSpeaker",
    "Transcript",
    "TranslationPair",
    "Translator",
    "Utterance",
    "Word",
]


@dataclass(frozen=True, slots=True)
class Utterance:
    """One text to speak, with the voice and the manner of speaking (section 2.1 of the service document).

    Parameters
    ----------
    text
        The text. It may contain pause markers such as ``[pause 1.5s]``.
    voice_id
        The full id of a voice of the catalogue, ``<locale>-<name>``.
    locale
        The language to speak, one of the voice's supported locales.
    style
        One of the voice's styles in this locale. None selects the first style.
    pitch, rate
        Change of pitch or speed, -50 to 50. 0 leaves the voice unchanged.
    variation
        How much pauses, pitch and speed vary, 0 to 5.
    audio_duration_s
        The requested length in seconds. 0 leaves the length to the engine.
    take
        Number of a reading of the text. Another number sounds different, unless ``variation`` is 0.
    words_as_original_text
        True returns a word entry for each whitespace token, as written (English only). False returns an entry
        for each spoken word.
    pronunciations
        Maps a word to its pronunciation.

    Examples
    --------
    >>> Utterance("Hello", voice_id="en-US-nora", locale="en-US").variation
    1
    """

    text: str
    voice_id: str
    locale: str
    style: str | None = None
    pitch: int = PITCH.default or 0
    rate: int = RATE.default or 0
    variation: int = VARIATION.default or 0
    audio_duration_s: float = AUDIO_DURATION.default or 0.0
    take: int = 0
    words_as_original_text: bool = False
    pronunciations: Mapping[str, Pronunciation] = field(
        default_factory=lambda: MappingProxyType({}), hash=False
    )


@dataclass(frozen=True, slots=True)
class Word:
    """One word with its times, in milliseconds from the start of the audio."""

    word: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, eq=False, slots=True)
class Speech:
    """The speech that an engine returns.

    Parameters
    ----------
    samples
        Mono samples: float32 in [-1, 1], shape ``(frames,)``.
    sample_rate_hz
        The sample rate.
    words
        The words with their times, in order. They do not overlap, and are inside the audio.
    warnings
        Sentences for the caller. Each names a part of the request that was ignored or replaced.
    """

    samples: NDArray[np.float32]
    sample_rate_hz: int
    words: tuple[Word, ...]
    warnings: tuple[str, ...] = ()

    @property
    def audio_seconds(self) -> float:
        """The length in seconds."""
        return len(self.samples) / self.sample_rate_hz


@dataclass(frozen=True, slots=True)
class EngineVoice:
    """A voice of the catalogue (section 2.4).

    Parameters
    ----------
    voice_id
        The full id, ``<locale>-<name>``.
    display_name, description
        Name and description for people.
    gender
        The gender that the voice sounds like.
    locale
        The own locale of the voice, such as ``en-US``.
    supported_locales
        Maps every locale that the voice can speak, including its own, to the styles in this locale. The first
        style is the default.
    models
        The catalogues that contain the voice.
    kind, licence
        The way in which the voice is made (neural or formant), and the licence of the engine or model. None
        means unknown.
    bandwidth_hz
        The highest frequency at which the mean power spectrum of the voice's own speech is at most 60 dB
        below its maximum, at the engine's own rate. A higher sample rate adds no sound above it. None means
        unknown.
    output_terms
        What is known about the terms of audio made with the voice, in a sentence or two. None means unknown.
    """

    voice_id: str
    display_name: str
    description: str
    gender: Gender
    locale: str
    supported_locales: Mapping[str, StyleDetails]
    models: frozenset[Model]
    kind: VoiceKind | None = None
    licence: str | None = None
    bandwidth_hz: int | None = None
    output_terms: str | None = None

    @property
    def name(self) -> str:
        """The name of the voice without its locale. A request may contain this name instead of the id."""
        return self.voice_id.removeprefix(f"{self.locale}-")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of an engine beyond speaking a text.

    An engine gets no request for an ability that it lacks. The service leaves the field out of the utterance,
    and adds a warning to the answer. :func:`speechframe.engines.streaming.limit_utterance` does so. The
    default of each ability is False.

    Parameters
    ----------
    pitch, rate
        A change of the pitch or of the speed.
    pauses
        Pause markers in the text. Without this ability, the service removes the markers.
    variation
        Readings of the same text that sound different.
    audio_duration
        Speech of exactly a requested length.
    pronunciations
        Given pronunciations of single words.
    original_text
        A word entry for each whitespace token, as written.
    streaming
        Speech before the whole text is spoken. The engine is then a :class:`StreamingSpeaker`.
    """

    pitch: bool = False
    rate: bool = False
    pauses: bool = False
    variation: bool = False
    audio_duration: bool = False
    pronunciations: bool = False
    original_text: bool = False
    streaming: bool = False


class Speaker(Protocol):
    """A speech engine.

    The constructor has no arguments and is cheap, because libraries and models load when the first text is
    spoken. Equal utterances give speech with equal bytes, in any process and in any order.

    An engine of any kind that finds its voices or models in files may also have a method ``left_out()``,
    which returns a sentence for each file that the engine leaves out. The service logs these sentences when
    the service starts. Two other parts are optional, too: a method ``files()``, which returns the files and
    folders of the engine and its models, and the text ``licence``. ``speechframe models`` shows the size of
    the files and the licence.
    """

    name: str
    capabilities: Capabilities

    @property
    def version(self) -> str:
        """The version of the engine, such as ``1.52.0``. Raises EngineError if a library is not installed."""
        ...

    def voices(self) -> Sequence[EngineVoice]:
        """Return every voice, even if the engine's library is missing. Speaks nothing."""
        ...

    def speak(self, utterance: Utterance) -> Speech:
        """Return an utterance as speech.

        Raises
        ------
        EngineError
            The engine cannot speak this utterance. The caller of the service gets the message and status 400.
        EngineFault
            The engine is at fault, for example because its model is broken. The caller of the service gets
            status 500, and only the log of the service contains the message.
        """
        ...


class StreamingSpeaker(Speaker, Protocol):
    """A speech engine that returns speech before the whole text is spoken."""

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings for a whole text without speaking it.

        Raises EngineError as `speak` would. Also raises EngineError if too few letters of the whole text can
        be spoken. A single sentence may have few such letters.
        """
        ...

    def stream(self, utterance: Utterance) -> Iterator[Speech]:
        """Yield the speech in pieces that follow each other. Word times count from the start of their piece.

        Equal utterances give equal pieces. A sentence sounds the same in every text, except for the pause
        before the sentence. See :mod:`speechframe.engines.streaming`.
        """
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """A decoded clip.

    Parameters
    ----------
    samples
        Mono samples: float32 in [-1, 1], shape ``(frames,)``.
    sample_rate_hz
        The sample rate.
    """

    samples: NDArray[np.float32]
    sample_rate_hz: int

    @property
    def audio_seconds(self) -> float:
        """The length in seconds."""
        return len(self.samples) / self.sample_rate_hz


@dataclass(frozen=True, slots=True)
class Conversion:
    """The new voice of a clip, and the manner of speaking (section 2.5 of the service document).

    Parameters
    ----------
    voice_id, locale, style
        The voice, as in :class:`Utterance`.
    pitch, rate
        Change of the pitch of the voice or of the speed of the clip, -50 to 50. 0 changes nothing.
    variation
        How much pauses, pitch and speed vary, 0 to 5.
    audio_duration_s
        The requested length in seconds. 0 stands for the length of the clip, changed by `rate`.
    retain_prosody
        True keeps the clip's intonation and rhythm. False brings them closer to those of the voice.
    take
        Number of a reading. Another number sounds different, unless ``variation`` is 0.
    """

    voice_id: str
    locale: str
    style: str | None = None
    pitch: int = PITCH.default or 0
    rate: int = RATE.default or 0
    variation: int = VARIATION.default or 0
    audio_duration_s: float = AUDIO_DURATION.default or 0.0
    retain_prosody: bool = True
    take: int = 0


class Changer(Protocol):
    """A voice changer. It replaces the voice of a clip and keeps the words.

    The constructor has no arguments and is cheap. Equal calls give equal bytes, in any process and in any
    order.
    """

    name: str

    @property
    def version(self) -> str:
        """The version of the changer. Raises EngineError if a library is not installed."""
        ...

    def change(
        self, recording: Recording, conversion: Conversion, *, speak: Callable[[Utterance], Speech]
    ) -> Speech:
        """Return the clip in the new voice. ``words`` of the result are empty.

        Parameters
        ----------
        recording
            The clip.
        conversion
            The new voice, and the manner of speaking.
        speak
            A function that speaks a text in the new voice, so that the changer can measure this voice.

        Raises
        ------
        EngineError
            The clip cannot be changed, for example because it contains no voice.
        EngineFault
            The engine is at fault, as for a speech engine.
        """
        ...


@dataclass(frozen=True, slots=True)
class Transcript:
    """The words of a clip.

    Parameters
    ----------
    text
        The recognised text. Empty if the clip contains no speech.
    language
        The language of the text, such as ``en``. None if it is unknown.
    words
        The words with their times. Empty unless they were requested.
    language_probability
        The probability of the detected language, 0 to 1. None if the caller stated the language.
    """

    text: str
    language: str | None
    words: tuple[Word, ...] = ()
    language_probability: float | None = None


class Recogniser(Protocol):
    """A speech recogniser. The constructor has no arguments and is cheap. Models load with the first clip."""

    name: str

    @property
    def version(self) -> str:
        """The version of the recogniser. Raises EngineError if a library or the model is not installed."""
        ...

    def recognise(
        self, recording: Recording, *, language: str | None = None, words: bool = False
    ) -> Transcript:
        """Return the words of a clip. The text is empty if the clip contains no speech.

        Parameters
        ----------
        recording
            The clip.
        language
            The language of the clip, such as ``en``. With None (default), the engine detects the language.
        words
            True also returns the words with their times.
        """
        ...


class Quality(StrEnum):
    """The quality of the translations of a pair, best first. A path over several pairs has the worst."""

    NEURAL = "neural"
    RULES = "rules"
    ROUGH = "rough"


@dataclass(frozen=True, slots=True)
class TranslationPair:
    """A pair of languages that a translator translates, in one direction.

    Parameters
    ----------
    source, target
        Locales as BCP 47 tags (``pt-BR``), or languages (``en``) if the region does not matter.
    quality
        The quality of the translations.
    """

    source: str
    target: str
    quality: Quality


class Translator(Protocol):
    """A translation engine. The constructor has no arguments and is cheap. Models load with the first text.

    Each process uses a translator only in one and the same thread.
    """

    name: str

    @property
    def version(self) -> str:
        """The version of the translator. Raises EngineError if its library or all models are missing."""
        ...

    def pairs(self) -> Sequence[TranslationPair]:
        """Return every pair that has a model. Loads no model."""
        ...

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return a translation for each text, in order. Nothing is invented for text that cannot be read.

        Parameters
        ----------
        texts
            The texts.
        pair
            One of :meth:`pairs`.
        """
        ...
