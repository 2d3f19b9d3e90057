"""The common base of neural speech engines: plan a text, speak it, fit it to a length, and time its words."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from speechframe.engines.base import Speech, Utterance
from speechframe.engines.faults import readable
from speechframe.engines.streaming import LOUDNESS_LUFS, SentenceSpeaker, measured_gain_db
from speechframe.errors import EngineFault
from speechframe.local.engines.neural.chunks import NeuralModel, PlannedPiece, plan, planned_frames, speak
from speechframe.local.engines.neural.phonemes import Phonemiser
from speechframe.local.engines.neural.prosody import NeuralReading, reading
from speechframe.local.engines.reading.locales import EspeakLocale
from speechframe.local.engines.reading.pieces import (
    Chunk,
    Piece,
    fit_to_length,
    frames_of,
    join_with_pauses,
    list_letter_warnings,
    pieces_and_pauses,
    refuse_unspeakable,
    room_to_speak,
    silent_frames,
    word_entries,
)
from speechframe.spec.texts import Pause, text_warnings

__all__ = ["NeuralSpeaker", "NeuralVoice", "loaded"]

_Model = TypeVar("_Model")

_SLOWEST, _FASTEST = 2.0, 0.5
"""Bounds of the factor of phoneme lengths. The audio is stretched for the rest of a requested length."""
_ROUNDS, _CLOSE_ENOUGH = 2, 0.03
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
    def _voice(self, utterance: Utterance) -> NeuralVoice:
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
        return self._levelled(utterance)

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings for a whole text. Raise EngineError if the text cannot be spoken."""
        voice = self._voice(utterance)
        parts, warnings = _prepared(utterance, voice)
        return (*warnings, *list_letter_warnings(parts, utterance, voice.locale))

    def _spoken(self, utterance: Utterance) -> Speech:
        voice = self._voice(utterance)
        parts, warnings = _prepared(utterance, voice)
        chunks = _speech_and_silence(parts, utterance, voice, warnings)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        rate_hz = voice.model.sample_rate_hz
        return Speech(samples, rate_hz, word_entries(chunks, rate_hz), tuple(warnings))

    def _gain_db(self, utterance: Utterance) -> float:
        voice = self._voice(utterance)
        if voice.lufs is not None:
            return LOUDNESS_LUFS - voice.lufs
        gains_db = _gains_db.setdefault(voice.model, {})
        if utterance.locale not in gains_db:
            gains_db[utterance.locale] = measured_gain_db(utterance, self._spoken)
        return gains_db[utterance.locale]


_gains_db: WeakKeyDictionary[NeuralModel, dict[str, float]] = WeakKeyDictionary()
"""Measured gains of each loaded voice, by locale. A voice that is loaded again is measured again."""


def loaded(load: Callable[[tuple[Path, ...]], _Model], files: tuple[Path, ...]) -> _Model:
    """Return the model that `load` returns for files. The model is loaded again only if a file has changed.

    Only the last model of all engines is cached, because a model may need several hundred MB.

    Raises
    ------
    EngineFault
        A file cannot be read, or `load` fails.
    """
    facts = tuple((found.st_size, found.st_mtime_ns) for found in map(readable, files))
    try:
        model: _Model = _held(load, files, facts)
    except EngineFault:
        raise
    except Exception as error:  # libraries that read models raise errors of many types
        raise EngineFault(f"{files[0]} cannot be loaded: {type(error).__name__}: {error}") from error
    return model


@lru_cache(maxsize=1)
def _held(
    load: Callable[[tuple[Path, ...]], Any], files: tuple[Path, ...], facts: tuple[tuple[int, int], ...]
) -> Any:
    del facts
    return load(files)


def _prepared(utterance: Utterance, voice: NeuralVoice) -> tuple[list[Piece | Pause], list[str]]:
    """Return the pieces and pauses of an utterance, and the warnings for the caller."""
    warnings = list(text_warnings(utterance.text))
    parts = pieces_and_pauses(utterance, voice.locale, voice.phonemiser.pronounced, warnings)
    return parts, warnings


def _speech_and_silence(
    parts: Sequence[Piece | Pause], utterance: Utterance, voice: NeuralVoice, warnings: list[str]
) -> list[Chunk]:
    """Return the audio of each part, in order. Fit it to the requested length, if there is one."""
    model = voice.model
    read = reading(utterance, voice.speed)
    planned = plan([part for part in parts if isinstance(part, Piece)], voice.phonemiser, model, read)
    if not any(piece.sentences for piece in planned):
        refuse_unspeakable(utterance.locale)
    if utterance.audio_duration_s:
        silent = silent_frames(parts, model.sample_rate_hz)
        room = room_to_speak(utterance.audio_duration_s, silent, model.sample_rate_hz)
        chunks = _fit(planned, model, read, room, warnings)
    else:
        chunks = list(speak(planned, model, read))
    return join_with_pauses(parts, chunks, model.sample_rate_hz)


def _fit(
    planned: Sequence[PlannedPiece], model: NeuralModel, read: NeuralReading, room: int, warnings: list[str]
) -> list[Chunk]:
    """Speak a plan in exactly `room` frames: scale the phoneme lengths, then stretch the audio."""
    factor = room / planned_frames(planned, model, read)
    for _ in range(_ROUNDS):
        chunks = list(speak(planned, model, read, min(max(factor, _FASTEST), _SLOWEST)))
        ratio = room / max(1, frames_of(chunks))
        if abs(ratio - 1) < _CLOSE_ENOUGH or not _FASTEST < factor < _SLOWEST:
            break
        # The result is shorter than planned, because silence at the ends of sentences was cut off. Correct
        # this.
        factor *= ratio
    return fit_to_length(chunks, room, model.sample_rate_hz, warnings) if frames_of(chunks) else chunks
