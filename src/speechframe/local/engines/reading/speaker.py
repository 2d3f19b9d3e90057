"""The common template of our speech engines: plan a text, speak it, fit its length, and level its loudness.

An engine only finds a voice and makes a plan (:class:`SpeechPlan`), which speaks pieces at any length.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from speechframe.audio import measure
from speechframe.engines.base import Capabilities, Speech, Utterance
from speechframe.engines.streaming import stream_sentences
from speechframe.errors import EngineError, EngineFault
from speechframe.local.engines.reading.locales import EspeakLocale
from speechframe.local.engines.reading.pieces import (
    Chunk,
    Piece,
    build_words,
    check_letters,
    compute_speech_frames,
    count_frames,
    count_silent_frames,
    fit_to_length,
    join_with_pauses,
    refuse_unspeakable,
    split_pieces,
)
from speechframe.local.engines.reading.text import ToPhonemes
from speechframe.spec.texts import Pause, find_text_warnings

_LOUDNESS_LUFS = -24.0
"""Target loudness of each voice in LUFS (ITU-R BS.1770), the median of its utterances."""
_MAX_SAMPLE = 0.9
"""Largest absolute sample, of 1. The rest is room for lossy formats, which may raise a peak."""
_LOUDNESS_TEXT = "1 2 3 4 5 6 7 8 9 10 20 100."
"""Text for measuring loudness. Every voice reads numerals, which are about as loud as a sentence."""


PAUSE_JITTER_PER_STEP = 0.09
"""Largest random change of a pause for each step of variation, as a share of its length."""


def compute_seed(utterance: Utterance) -> int:
    """Return the seed of the variation, from text, voice, locale and take. It is 1 without variation."""
    if not utterance.variation:
        return 1
    parts = (utterance.text, utterance.voice_id, utterance.locale, str(utterance.take))
    digest = hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return 1 + int.from_bytes(digest, "big")


class SpeechPlan(ABC):
    """The pieces of an utterance, ready to be spoken at any speed.

    Attributes
    ----------
    max_rounds, length_tolerance
        Largest number of attempts at a requested length, and relative error that needs no other attempt.
    factor_bounds
        Bounds of the length factor of an attempt. The audio is stretched for the rest of a requested length.
    """

    max_rounds: int
    length_tolerance: float
    factor_bounds: tuple[float, float]

    @abstractmethod
    def speak(self, factor: float = 1.0) -> list[Chunk]:
        """Return the chunk of each piece, spoken `factor` times as long. A piece without sound is empty."""

    @abstractmethod
    def guess_factor(self, frames: int) -> float:
        """Return the factor of the first attempt to speak in `frames`."""

    def speak_in(self, frames: int) -> list[Chunk]:
        """Return the chunks of the attempt whose length is the closest to `frames`."""
        low, high = self.factor_bounds
        factor, best, smallest = self.guess_factor(frames), list[Chunk](), np.inf
        for _ in range(self.max_rounds):
            chunks = self.speak(min(max(factor, low), high))
            # The length is not proportional to the factor, because pauses and trimmed silence are not.
            ratio = frames / max(1, count_frames(chunks))
            if abs(ratio - 1) >= smallest:
                break
            best, smallest = chunks, abs(ratio - 1)
            if smallest < self.length_tolerance or not low < factor < high:
                break
            factor *= ratio
        return best


@dataclass(frozen=True, eq=False, slots=True)
class ReadyVoice:
    """A voice that is ready to speak one utterance.

    Attributes
    ----------
    sample_rate_hz
        Sample rate of its speech.
    locale
        The locale, with the scripts that can be read.
    convert_ipa
        Function that converts an IPA pronunciation to the engine's symbols.
    make_plan
        Function that makes the plan of pieces.
    lufs
        Loudness of the voice before levelling in LUFS (ITU-R BS.1770). If it is None, it is measured.
    model
        The loaded model. A voice whose model is loaded again is measured again.
    """

    sample_rate_hz: int
    locale: EspeakLocale
    convert_ipa: ToPhonemes
    make_plan: Callable[[Sequence[Piece]], SpeechPlan]
    lufs: float | None
    model: object = None


class PieceSpeaker(ABC):
    """Base class of our speech engines. All voices are equally loud."""

    capabilities = Capabilities(
        pitch=True,
        rate=True,
        pauses=True,
        variation=True,
        audio_duration=True,
        pronunciations=True,
        original_text=True,
        streaming=True,
    )

    @abstractmethod
    def _get_voice(self, utterance: Utterance) -> ReadyVoice:
        """Return the voice. Raise EngineError if the voice, locale or style is unknown."""

    def speak(self, utterance: Utterance) -> Speech:
        """Return the speech of an utterance at the voice's sample rate. Equal utterances give equal bytes.

        Raises
        ------
        EngineError
            The voice lacks the locale or style, no character of the text can be spoken, a pronunciation has
            unknown symbols, or the requested length leaves no time for speech.
        EngineFault
            The engine is not installed, or its model is missing or broken.
        """
        voice = self._get_voice(utterance)
        speech = _speak_unlevelled(utterance, voice)
        gain, peak = (
            10 ** (self._compute_gain_db(utterance, voice) / 20),
            measure.measure_peak(speech.samples),
        )
        return replace(
            speech, samples=speech.samples * np.float32(min(gain, _MAX_SAMPLE / peak) if peak else gain)
        )

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings for a whole text. Raise EngineError if the text cannot be spoken."""
        voice = self._get_voice(utterance)
        parts, warnings = _split_parts(utterance, voice)
        return (*warnings, *check_letters(parts, utterance, voice.locale))

    def stream(self, utterance: Utterance) -> Iterator[Speech]:
        """Yield the speech of an utterance sentence by sentence.

        :mod:`speechframe.engines.streaming` describes how a stream differs from a text spoken as a whole.

        Raises
        ------
        EngineError
            If no sentence can be spoken, or the engine has a fault.
        """
        return stream_sentences(utterance, self.speak)

    def _compute_gain_db(self, utterance: Utterance, voice: ReadyVoice) -> float:
        """Return the gain in dB that brings a voice to :data:`_LOUDNESS_LUFS`."""
        if voice.lufs is not None:
            return _LOUDNESS_LUFS - voice.lufs
        gains_db = _gains_db.setdefault(voice.model, {})
        if utterance.locale not in gains_db:
            numerals = Utterance(_LOUDNESS_TEXT, utterance.voice_id, utterance.locale, variation=0)
            gains_db[utterance.locale] = _measure_gain_db(numerals, self._get_voice(numerals))
        return gains_db[utterance.locale]


_gains_db: WeakKeyDictionary[object, dict[str, float]] = WeakKeyDictionary()
"""Measured gains of each loaded model, by locale."""


def _measure_gain_db(numerals: Utterance, voice: ReadyVoice) -> float:
    """Return the gain in dB for a voice that reads numerals. It is 0 for a voice that cannot read them."""
    try:
        speech = _speak_unlevelled(numerals, voice)
    except EngineFault:
        raise
    except EngineError:
        return 0.0
    return _LOUDNESS_LUFS - measure.measure_loudness_lufs(speech.samples, speech.sample_rate_hz)


def _split_parts(utterance: Utterance, voice: ReadyVoice) -> tuple[list[Piece | Pause], list[str]]:
    """Return the pieces and pauses of an utterance, and the warnings for the caller."""
    warnings = list(find_text_warnings(utterance.text))
    return split_pieces(utterance, voice.locale, voice.convert_ipa, warnings), warnings


def _speak_unlevelled(utterance: Utterance, voice: ReadyVoice) -> Speech:
    """Return the speech of an utterance before its loudness is levelled."""
    parts, warnings = _split_parts(utterance, voice)
    plan = voice.make_plan([part for part in parts if isinstance(part, Piece)])
    rate_hz, room = voice.sample_rate_hz, None
    if utterance.audio_duration_s:
        silent = count_silent_frames(parts, rate_hz)
        room = compute_speech_frames(utterance.audio_duration_s, silent, rate_hz)
    spoken = plan.speak() if room is None else plan.speak_in(room)
    if not count_frames(spoken):
        refuse_unspeakable(utterance.locale)
    if room is not None:
        spoken = fit_to_length(spoken, room, rate_hz, warnings)
    chunks = join_with_pauses(parts, spoken, rate_hz)
    samples = np.concatenate([chunk.samples for chunk in chunks])
    return Speech(samples, rate_hz, build_words(chunks, rate_hz), tuple(warnings))
