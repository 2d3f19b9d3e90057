"""The protocols of the engines, and the values that pass through them.

Your own engine is a class with one of these shapes. An entry point names the class::

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
    """One text to speak, with the manner of speaking (section 2.1, without the fields about files).

    Parameters
    ----------
    text
        The text. It may contain pause markers such as ``[pause 1.5s]``.
    voice_id
        The full id of the catalogue, ``<locale>-<name>``.
    locale
        The language to speak, one of the voice's supported locales.
    style
        One of the voice's styles for that locale, or None for its first.
    pitch, rate
        -50 to 50. 0 leaves the voice unchanged.
    variation
        The range of pauses, pitch and speed around the middle, 0 to 5.
    audio_duration_s
        The length in seconds. 0 leaves the length to the engine.
    take
        Another number gives another reading of the same text, unless ``variation`` is 0.
    words_as_original_text
        One word entry per whitespace token, as written (English only), instead of one per spoken word.
    pronunciations
        The pronunciations of single words.

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
        The words with their times, in order, never overlapping, inside the audio.
    warnings
        A sentence for the caller about each part that was ignored or replaced.
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
        Words for people.
    gender
        The gender of the sound.
    locale
        Its own language.
    supported_locales
        Every locale that it can speak, its own among them. Each has its styles, the default first.
    models
        The catalogues that contain the voice.
    kind, licence
        The way of making it, and the licence of the engine or model. None means unknown.
    bandwidth_hz
        The highest frequency at which the mean power spectrum of its own speech is at most 60 dB below its
        maximum, at the engine's own rate. A higher sample rate adds no sound above it. None means unknown.
    output_terms
        What is known about the terms of audio made with it, in a sentence or two. None means unknown.
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
        """The voice's name alone, which a request may use, too."""
        return self.voice_id.removeprefix(f"{self.locale}-")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of an engine beyond speaking a text.

    An engine is never asked for an ability that it lacks: the service leaves the field out of the utterance,
    and the answer has a warning. :func:`speechframe.engines.streaming.within` does so.

    Parameters
    ----------
    pitch, rate
        Another pitch, another speed.
    pauses
        Pause markers in the text. Without this ability the markers are removed.
    variation
        Takes that differ.
    audio_duration
        A length to the frame.
    pronunciations
        A pronunciation for single words.
    original_text
        One word entry per whitespace token, as written.
    streaming
        Speech before the whole text is spoken: the engine is a :class:`StreamingSpeaker`.
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

    It is made without arguments, and making it is cheap: libraries and models
    load when the first text is spoken. Equal utterances give equal speech, to
    the byte, in any process and order.

    An engine, of any kind, that finds its voices or models in files may also
    have a method ``left_out()``. It returns a sentence for each file that the
    engine leaves out. The service logs these sentences when it starts.
    ``files()``, which returns the files and folders of the engine and its
    models, and the text ``licence`` are optional, too. ``speechframe models``
    shows their size and the licence.
    """

    name: str
    capabilities: Capabilities

    @property
    def version(self) -> str:
        """The version of the engine, such as ``1.52.0``; raises EngineError if it is not installed."""
        ...

    def voices(self) -> Sequence[EngineVoice]:
        """Return every voice, without synthesis, and even if the engine's library is missing."""
        ...

    def speak(self, utterance: Utterance) -> Speech:
        """Return the speech.

        Raises
        ------
        EngineError
            The engine cannot speak this utterance. The caller of the service gets the message and status 400.
        EngineFault
            The engine is at fault, for example if its model is broken. The caller gets status 500, and only
            the service's log gets the message.
        """
        ...


class StreamingSpeaker(Speaker, Protocol):
    """A speech engine that returns speech before the whole text is spoken."""

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings for a whole text without speaking it.

        Raises EngineError as `speak` would, and for a text that contains too few letters that can be spoken.
        A single sentence of a text may contain few.
        """
        ...

    def stream(self, utterance: Utterance) -> Iterator[Speech]:
        """Yield the speech in pieces that follow each other. Word times start with their piece.

        Equal utterances give equal pieces. A sentence sounds equal in every text, except for the pause
        before it. See :mod:`speechframe.engines.streaming`.
        """
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """A decoded clip of a caller.

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
    """The other voice of a clip, and the manner of speaking (section 2.5, without files and accent).

    Parameters
    ----------
    voice_id, locale, style
        The voice, as in :class:`Utterance`.
    pitch, rate
        -50 to 50. 0 leaves the pitch of the voice and the speed of the clip.
    variation
        The range of pauses, pitch and speed, 0 to 5.
    audio_duration_s
        The length in seconds. 0 is the length of the clip, changed by `rate`.
    retain_prosody
        Whether to keep the clip's intonation and rhythm. False flattens them towards those of the voice.
    take
        Another number gives another reading, unless ``variation`` is 0.
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

    It is made without arguments, and making it is cheap. Equal calls give equal bytes, in any process and
    order.
    """

    name: str

    @property
    def version(self) -> str:
        """The version of the changer; raises EngineError if it is not installed."""
        ...

    def change(
        self, recording: Recording, conversion: Conversion, *, speak: Callable[[Utterance], Speech]
    ) -> Speech:
        """Return the clip in the other voice; ``words`` are empty.

        Parameters
        ----------
        recording
            The clip.
        conversion
            The voice, and the manner of speaking.
        speak
            Speaks a text in the other voice, to be measured.

        Raises
        ------
        EngineError
            The clip cannot be changed, for example because it contains no voice.
        EngineFault
            The engine is at fault.
        """
        ...


@dataclass(frozen=True, slots=True)
class Transcript:
    """The words of a clip.

    Parameters
    ----------
    text
        The text in writing.
    language
        Its language, such as ``en``; None if it is unknown.
    words
        The words with their times.
    language_probability
        The probability of that language, 0 to 1. None if the caller named the language.
    """

    text: str
    language: str | None
    words: tuple[Word, ...] = ()
    language_probability: float | None = None


class Recogniser(Protocol):
    """A speech recogniser. It is made without arguments, and cheaply. Models load with the first clip."""

    name: str

    @property
    def version(self) -> str:
        """The version of the recogniser; raises EngineError if it or its model is not installed."""
        ...

    def recognise(
        self, recording: Recording, *, language: str | None = None, words: bool = False
    ) -> Transcript:
        """Return the words of a clip; an empty text for a clip without speech.

        Parameters
        ----------
        recording
            The clip.
        language
            The language of the clip, such as ``en``. None lets the engine find it.
        words
            Whether to return word times.
        """
        ...


class Quality(StrEnum):
    """The quality of the translations of a pair. A path has the quality of its worst step."""

    NEURAL = "neural"
    RULES = "rules"
    ROUGH = "rough"


@dataclass(frozen=True, slots=True)
class TranslationPair:
    """One direction of a translator.

    Parameters
    ----------
    source, target
        Locales in the house spelling, or a language alone if that is enough (``en``, ``pt-BR``).
    quality
        The quality of its translations.
    """

    source: str
    target: str
    quality: Quality


class Translator(Protocol):
    """A translation engine. It is made without arguments, and cheaply. Models load with the first text.

    Always the same thread of a process uses it.
    """

    name: str

    @property
    def version(self) -> str:
        """The version of the translator; raises EngineError if it or every model is not installed."""
        ...

    def pairs(self) -> Sequence[TranslationPair]:
        """Return every direction that has a model, without loading the model."""
        ...

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return the translations, in order, one a text. Text that it cannot read is never invented.

        Parameters
        ----------
        texts
            The texts.
        pair
            One of :meth:`pairs`.
        """
        ...
