"""The common base of neural speech engines: plan a text, speak it, fit it to a length, and time its words."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from speechframe.engines.base import Speech, Utterance
from speechframe.engines.faults import read_file_facts
from speechframe.engines.streaming import LOUDNESS_LUFS, SentenceSpeaker, measure_gain_db
from speechframe.errors import EngineFault
from speechframe.local.engines.neural.chunks import (
    NeuralModel,
    PlannedPiece,
    estimate_frames,
    plan_pieces,
    speak_plan,
)
from speechframe.local.engines.neural.phonemes import Phonemiser
from speechframe.local.engines.neural.prosody import NeuralReading, compute_reading
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
from speechframe.spec.texts import Pause, find_text_warnings

__all__ = ["NeuralSpeaker", "NeuralVoice", "load_cached"]

_Model = TypeVar("_Model")

_MAX_LENGTH_FACTOR, _MIN_LENGTH_FACTOR = 2.0, 0.5
"""Bounds of the factor of phoneme lengths. The audio is stretched for the rest of a requested length."""
_MAX_ROUNDS, _LENGTH_TOLERANCE = 2, 0.03
"""Largest number of attempts at a requested length, and relative error that needs no other attempt."""


class NeuralVoice(NamedTuple):
    """A loaded voice for one utterance.

    ``locale`` has the scripts that can be read. ``speed`` is the factor of the style. ``lufs`` is the
    loudness of the voice before levelling in LUFS (ITU-R BS.1770). If it is None, the loudness is measured.
    """

    model: NeuralModel
    phonemiser: Phonemiser
    locale: EspeakLocale
    speed: float
    lufs: float | None = None


class NeuralSpeaker(SentenceSpeaker):
    """A speech engine whose voices are neural models."""

    @abstractmethod
    def _get_voice(self, utterance: Utterance) -> NeuralVoice:
        """Return the loaded voice. Raise EngineError if the voice, locale or style is unknown."""

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
        return self._speak_at_gain(utterance)

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings for a whole text. Raise EngineError if the text cannot be spoken."""
        voice = self._get_voice(utterance)
        parts, warnings = _prepare_parts(utterance, voice)
        return (*warnings, *check_letters(parts, utterance, voice.locale))

    def _speak_unlevelled(self, utterance: Utterance) -> Speech:
        voice = self._get_voice(utterance)
        parts, warnings = _prepare_parts(utterance, voice)
        chunks = _speak_and_pause(parts, utterance, voice, warnings)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        rate_hz = voice.model.sample_rate_hz
        return Speech(samples, rate_hz, build_words(chunks, rate_hz), tuple(warnings))

    def _compute_gain_db(self, utterance: Utterance) -> float:
        voice = self._get_voice(utterance)
        if voice.lufs is not None:
            return LOUDNESS_LUFS - voice.lufs
        gains_db = _gains_db.setdefault(voice.model, {})
        if utterance.locale not in gains_db:
            gains_db[utterance.locale] = measure_gain_db(utterance, self._speak_unlevelled)
        return gains_db[utterance.locale]


_gains_db: WeakKeyDictionary[NeuralModel, dict[str, float]] = WeakKeyDictionary()
"""Measured gains of each loaded voice, by locale. A voice that is loaded again is measured again."""


def load_cached(load: Callable[[tuple[Path, ...]], _Model], files: tuple[Path, ...]) -> _Model:
    """Return the model that `load` returns for files. The model is loaded again only if a file has changed.

    Only the last model of all engines is cached, because a model may need several hundred MB.

    Raises
    ------
    EngineFault
        A file cannot be read, or `load` fails.
    """
    facts = tuple((found.st_size, found.st_mtime_ns) for found in map(read_file_facts, files))
    try:
        model: _Model = _load_once(load, files, facts)
    except EngineFault:
        raise
    except Exception as error:  # libraries that read models raise errors of many types
        raise EngineFault(f"{files[0]} cannot be loaded: {type(error).__name__}: {error}") from error
    return model


@lru_cache(maxsize=1)
def _load_once(
    load: Callable[[tuple[Path, ...]], Any], files: tuple[Path, ...], facts: tuple[tuple[int, int], ...]
) -> Any:
    del facts
    return load(files)


def _prepare_parts(utterance: Utterance, voice: NeuralVoice) -> tuple[list[Piece | Pause], list[str]]:
    """Return the pieces and pauses of an utterance, and the warnings for the caller."""
    warnings = list(find_text_warnings(utterance.text))
    parts = split_pieces(utterance, voice.locale, voice.phonemiser.convert_ipa, warnings)
    return parts, warnings


def _speak_and_pause(
    parts: Sequence[Piece | Pause], utterance: Utterance, voice: NeuralVoice, warnings: list[str]
) -> list[Chunk]:
    """Return the audio of each part, in order. Fit it to the requested length, if there is one."""
    model = voice.model
    reading = compute_reading(utterance, voice.speed)
    planned = plan_pieces(
        [part for part in parts if isinstance(part, Piece)], voice.phonemiser, model, reading
    )
    if not any(piece.sentences for piece in planned):
        refuse_unspeakable(utterance.locale)
    if utterance.audio_duration_s:
        silent = count_silent_frames(parts, model.sample_rate_hz)
        room = compute_speech_frames(utterance.audio_duration_s, silent, model.sample_rate_hz)
        chunks = _fit_plan(planned, model, reading, room, warnings)
    else:
        chunks = list(speak_plan(planned, model, reading))
    return join_with_pauses(parts, chunks, model.sample_rate_hz)


def _fit_plan(
    planned: Sequence[PlannedPiece],
    model: NeuralModel,
    reading: NeuralReading,
    room: int,
    warnings: list[str],
) -> list[Chunk]:
    """Speak a plan in exactly `room` frames: scale the phoneme lengths, then stretch the audio."""
    factor = room / estimate_frames(planned, model, reading)
    for _ in range(_MAX_ROUNDS):
        chunks = list(
            speak_plan(planned, model, reading, min(max(factor, _MIN_LENGTH_FACTOR), _MAX_LENGTH_FACTOR))
        )
        ratio = room / max(1, count_frames(chunks))
        if abs(ratio - 1) < _LENGTH_TOLERANCE or not _MIN_LENGTH_FACTOR < factor < _MAX_LENGTH_FACTOR:
            break
        # The result is shorter than planned, because silence at the ends of sentences was cut off. Correct
        # this.
        factor *= ratio
    return fit_to_length(chunks, room, model.sample_rate_hz, warnings) if count_frames(chunks) else chunks
