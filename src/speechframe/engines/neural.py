"""What neural speech engines share: a text is planned, spoken by a model, fitted to a length and timed."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from speechframe.engines.base import Speech, Utterance
from speechframe.engines.espeak_locales import EspeakLocale
from speechframe.engines.neural_chunks import NeuralModel, PlannedPiece, plan, planned_frames, speak
from speechframe.engines.neural_phonemes import Phonemiser
from speechframe.engines.neural_prosody import Reading, reading
from speechframe.engines.pieces import (
    LOUDNESS_LUFS,
    Chunk,
    Piece,
    filling,
    frames_of,
    in_order,
    pieces_and_pauses,
    refuse_unspeakable,
    room_to_speak,
    silent_frames,
    told_of_letters,
    word_entries,
)
from speechframe.engines.streaming import SentenceSpeaker, measured_gain_db
from speechframe.errors import EngineError
from speechframe.spec.texts import Pause, pause_warnings

__all__ = ["NeuralSpeaker", "NeuralVoice", "loaded"]

_Model = TypeVar("_Model")

_SLOWEST, _FASTEST = 2.0, 0.5
"""How far the phonemes themselves may be lengthened to fit a length; the rest is stretched."""
_ROUNDS, _CLOSE_ENOUGH = 2, 0.03


class NeuralVoice(NamedTuple):
    """A voice that is loaded, as one utterance asks for it.

    ``locale`` says which letters can be read; ``speed`` is that of the style; ``lufs`` is how loud the model
    makes the voice (ITU-R BS.1770), None when that is to be measured.
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
        """Return who speaks; raises EngineError for a voice, locale or style that is not there."""

    def speak(self, utterance: Utterance) -> Speech:
        """Return an utterance as speech at the voice's own rate; equal utterances give equal bytes.

        Raises
        ------
        EngineError
            The engine is not installed; a voice, locale or style that does not exist together; a text without
            anything speakable; a pronunciation in unknown symbols; a length that the pauses alone exceed; a
            model that is not the file it should be, or none.
        """
        return self._levelled(utterance)

    def check(self, utterance: Utterance) -> tuple[str, ...]:
        """Return the warnings of a whole text; raises EngineError for one that is not to be spoken."""
        voice = self._voice(utterance)
        parts, warnings = _prepared(utterance, voice)
        return (*warnings, *told_of_letters(parts, utterance, voice.locale))

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
"""Of each loaded voice by locale; one that was replaced is measured again."""


def loaded(load: Callable[[tuple[Path, ...]], _Model], files: tuple[Path, ...]) -> _Model:
    """Return what `load` makes of files; they are loaded again when they change.

    The last alone is kept, whatever engine it is of: a worker holds one model, of several hundred MB.

    Raises
    ------
    EngineError
        When a file cannot be read, and whatever `load` raises.
    """
    try:
        facts = tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    except OSError as error:
        raise EngineError(f"the voice {files[0]} cannot be read: {error.strerror}") from error
    model: _Model = _held(load, files, facts)
    return model


@lru_cache(maxsize=1)
def _held(
    load: Callable[[tuple[Path, ...]], Any], files: tuple[Path, ...], facts: tuple[tuple[int, int], ...]
) -> Any:
    del facts
    return load(files)


def _prepared(utterance: Utterance, voice: NeuralVoice) -> tuple[list[Piece | Pause], list[str]]:
    """Return what is to be spoken, and what the caller should know."""
    warnings = list(pause_warnings(utterance.text))
    parts = pieces_and_pauses(utterance, voice.locale, voice.phonemiser.pronounced, warnings)
    return parts, warnings


def _speech_and_silence(
    parts: Sequence[Piece | Pause], utterance: Utterance, voice: NeuralVoice, warnings: list[str]
) -> list[Chunk]:
    """Return every part as audio, in order, of the asked length if one is asked."""
    model = voice.model
    read = reading(utterance, voice.speed)
    planned = plan([part for part in parts if isinstance(part, Piece)], voice.phonemiser, model, read)
    if not any(piece.sentences for piece in planned):
        refuse_unspeakable(utterance.locale)
    if utterance.audio_duration_s:
        silent = silent_frames(parts, model.sample_rate_hz)
        room = room_to_speak(utterance.audio_duration_s, silent, model.sample_rate_hz)
        chunks = _fitted(planned, model, read, room, warnings)
    else:
        chunks = list(speak(planned, model, read))
    return in_order(parts, chunks, model.sample_rate_hz)


def _fitted(
    planned: Sequence[PlannedPiece], model: NeuralModel, read: Reading, room: int, warnings: list[str]
) -> list[Chunk]:
    """Return a plan spoken in exactly ``room`` frames: a model speaks phonemes of any length it is told."""
    factor = room / planned_frames(planned, model, read)
    for _ in range(_ROUNDS):
        chunks = list(speak(planned, model, read, min(max(factor, _FASTEST), _SLOWEST)))
        ratio = room / max(1, frames_of(chunks))
        if abs(ratio - 1) < _CLOSE_ENOUGH or not _FASTEST < factor < _SLOWEST:
            break
        # The silence at the ends of what a model makes is cut off, so the plan was too long.
        factor *= ratio
    return filling(chunks, room, model.sample_rate_hz, warnings) if frames_of(chunks) else chunks
