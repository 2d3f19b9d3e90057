"""What a speech engine takes and gives: the `Speaker` protocol and the values that go through it.

An engine of your own is a class with this shape, named by an entry point::

    [project.entry-points."speechframe.speakers"]
    mine = "my_package:MySpeaker"
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from speechframe.spec.limits import AUDIO_DURATION, PITCH, RATE, VARIATION
from speechframe.spec.speech import Gender, Model, Pronunciation, StyleDetails

__all__ = ["Capabilities", "EngineVoice", "Speaker", "Speech", "Utterance", "Word"]


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
    """

    voice_id: str
    display_name: str
    description: str
    gender: Gender
    locale: str
    supported_locales: Mapping[str, StyleDetails]
    models: frozenset[Model]

    @property
    def name(self) -> str:
        """The voice's name alone, by which it may be called too."""
        return self.voice_id.removeprefix(f"{self.locale}-")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do beyond speaking a text; what it cannot is answered with a warning."""

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
