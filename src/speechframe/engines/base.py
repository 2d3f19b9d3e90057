"""What engines take and give: a protocol for each kind, and the values that go through it.

An engine of your own is a class with one of these shapes, named by an entry point::

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
    """One text to speak, and how (section 2.1, without what concerns files).

    Parameters
    ----------
    text
        What is spoken; may hold pause markers such as ``[pause 1.5s]``.
    voice_id
        The full id, ``<locale>-<name>``, as the catalogue has it.
    locale
        The language to speak; one of the voice's supported locales.
    style
        One of the voice's styles for that locale, or None for its first.
    pitch, rate
        -50 to 50; 0 is the voice as it is.
    variation
        0 to 5: how far pauses, pitch and speed may stray from the middle.
    audio_duration_s
        The length to have in seconds; 0 is whatever it takes.
    take
        Another number gives another reading of the same text, unless ``variation`` is 0.
    words_as_original_text
        One word entry per whitespace token, as written (English only), instead of one per spoken word.
    pronunciations
        How single words are to be spoken.

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
    """One word and when it is heard, in milliseconds from the start of the audio."""

    word: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, eq=False, slots=True)
class Speech:
    """What an engine gives back.

    Parameters
    ----------
    samples
        float32 in [-1, 1], shape ``(frames,)``: mono.
    sample_rate_hz
        Their rate.
    words
        When each word is heard: in order, never overlapping, inside the audio.
    warnings
        What was ignored or replaced, in words for the caller.
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
        ``<locale>-<name>``.
    display_name, description
        For people.
    gender
        How it sounds.
    locale
        Its own language.
    supported_locales
        Every locale it can speak, its own among them, and the styles it has there, the default first.
    models
        The catalogues it is in.
    kind, licence
        How it is made, and the licence of what speaks; None where nobody says.
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

    @property
    def name(self) -> str:
        """The voice's name alone, by which it may be called too."""
        return self.voice_id.removeprefix(f"{self.locale}-")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do beyond speaking a text; what it cannot is answered with a warning.

    An engine with ``streaming`` is a :class:`StreamingSpeaker`.
    """

    variation: bool = False
    audio_duration: bool = False
    pronunciations: bool = False
    original_text: bool = False
    streaming: bool = False


class Speaker(Protocol):
    """A speech engine.

    It is made without arguments, and making it is cheap: libraries and models
    load when the first text is spoken. Equal utterances give equal speech, to
    the byte, in whatever process and order.
    """

    name: str
    capabilities: Capabilities

    @property
    def version(self) -> str:
        """The version of what speaks, such as ``1.52.0``; raises EngineError when it is not installed."""
        ...

    def voices(self) -> Sequence[EngineVoice]:
        """Return every voice, without synthesis and even when the engine's library is missing."""
        ...

    def speak(self, utterance: Utterance) -> Speech:
        """Return the speech; raises EngineError for what only the engine can see."""
        ...


class StreamingSpeaker(Speaker, Protocol):
    """A speech engine that gives speech before all of it is made."""

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings of a whole text without speaking it.

        Raises EngineError as `speak` would, and for a text of which too little could be heard: of a sentence
        of it, which is spoken alone, that is not asked.
        """
        ...

    def stream(self, utterance: Utterance) -> Iterator[Speech]:
        """Yield the speech in pieces that follow each other, words counted from the start of their piece.

        Equal utterances give equal pieces. A text of one sentence gives what it gives in any other text,
        but for the pause before it; see :mod:`speechframe.engines.streaming`.
        """
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """A clip that somebody brings, decoded.

    Parameters
    ----------
    samples
        float32 in [-1, 1], shape ``(frames,)``: mono.
    sample_rate_hz
        Their rate.
    """

    samples: NDArray[np.float32]
    sample_rate_hz: int

    @property
    def audio_seconds(self) -> float:
        """The length in seconds."""
        return len(self.samples) / self.sample_rate_hz


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a clip is to sound in another voice (section 2.5, without what concerns files and accent).

    Parameters
    ----------
    voice_id, locale, style
        Whose voice, as in :class:`Utterance`.
    pitch, rate
        -50 to 50; 0 is the voice as it is, at the speed of the clip.
    variation
        0 to 5: how far pauses, pitch and speed may stray.
    audio_duration_s
        The length to have in seconds; 0 is the clip's own, as `rate` changes it.
    retain_prosody
        Keep the clip's intonation and rhythm; False flattens them towards the voice's own.
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
    """A voice changer: what is said stays, who says it changes.

    Made without arguments, and cheaply. Equal calls give equal bytes, in whatever process and order.
    """

    name: str

    @property
    def version(self) -> str:
        """The version of what changes; raises EngineError when it is not installed."""
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
            Whose voice, and how.
        speak
            Lets the other voice say something, to be measured.

        Raises
        ------
        EngineError
            For what only the engine can see: a clip without any voice in it, for instance.
        """
        ...


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said in a clip.

    Parameters
    ----------
    text
        As one would write it.
    language
        Its language, such as ``en``; None when the engine cannot tell.
    words
        When each word is heard.
    language_probability
        How likely that language is, 0 to 1, where it was found out; None where it was given.
    """

    text: str
    language: str | None
    words: tuple[Word, ...] = ()
    language_probability: float | None = None


class Recogniser(Protocol):
    """A speech recogniser. Made without arguments, and cheaply; models load with the first clip."""

    name: str

    @property
    def version(self) -> str:
        """The version of what listens; raises EngineError when it, or a model for it, is not installed."""
        ...

    def recognise(
        self, recording: Recording, *, language: str | None = None, words: bool = False
    ) -> Transcript:
        """Return what is said; an empty text for a clip without speech.

        Parameters
        ----------
        recording
            The clip.
        language
            The language it is in, such as ``en``; None to find out.
        words
            Whether word times are wanted.
        """
        ...


class Quality(StrEnum):
    """How good the translations of a pair are; a path is as good as its worst step."""

    NEURAL = "neural"
    RULES = "rules"
    ROUGH = "rough"


@dataclass(frozen=True, slots=True)
class TranslationPair:
    """One direction a translator knows.

    Parameters
    ----------
    source, target
        Locales in the house spelling, or a language alone where that is enough (``en``, ``pt-BR``).
    quality
        How good it is.
    """

    source: str
    target: str
    quality: Quality


class Translator(Protocol):
    """A translation engine. Made without arguments, and cheaply; models load with the first text.

    Used by one thread of one process at a time, always the same.
    """

    name: str

    @property
    def version(self) -> str:
        """The version of what translates; raises EngineError when it, or any model, is not installed."""
        ...

    def pairs(self) -> Sequence[TranslationPair]:
        """Return every direction there is a model for, without loading one."""
        ...

    def translate(self, texts: Sequence[str], pair: TranslationPair) -> list[str]:
        """Return the translations, in order, one a text; never invented text for what it cannot read.

        Parameters
        ----------
        texts
            What is to be translated.
        pair
            One of :meth:`pairs`.
        """
        ...
