"""What lies between two pause markers, spoken by a Piper model: by sentences, with its words timed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import codec, measure
from speechframe.engines.pieces import Chunk, Piece
from speechframe.engines.piper_model import PiperModel
from speechframe.engines.piper_phonemes import Phonemiser, Sentence
from speechframe.engines.piper_prosody import Reading
from speechframe.engines.word_times import Heard, time_tokens

__all__ = ["PlannedPiece", "plan", "planned_frames", "speak"]

Samples = NDArray[np.float32]

_PAUSE_S = 0.2
"""Between two sentences, at normal speed: a model ends with the last sound."""
_STEP_MS = 5.0
_SILENT_BELOW_DB = 45.0


@dataclass(frozen=True, eq=False, slots=True)
class _PlannedSentence:
    """A sentence, how long each of its phonemes is and the pause after it, in steps of the model."""

    sentence: Sentence
    steps: NDArray[np.int64]
    pause_steps: int
    chance: np.random.Generator


@dataclass(frozen=True, eq=False, slots=True)
class PlannedPiece:
    """A piece with its sentences; none when nothing of it is spoken."""

    piece: Piece
    sentences: tuple[_PlannedSentence, ...]


def plan(
    pieces: Sequence[Piece], phonemiser: Phonemiser, model: PiperModel, read: Reading
) -> list[PlannedPiece]:
    """Return how long everything is to be, before any of it is made."""
    planned: list[PlannedPiece] = []
    number = 0
    for piece in pieces:
        sentences = phonemiser.sentences(piece.spoken, piece.tokens) if piece.spoken.speakable else []
        found = []
        for index, sentence in enumerate(sentences):
            is_last = index == len(sentences) - 1
            found.append(_planned(sentence, model, read, number, is_last=is_last))
            number += 1
        planned.append(PlannedPiece(piece, tuple(found)))
    return planned


def _planned(
    sentence: Sentence, model: PiperModel, read: Reading, number: int, *, is_last: bool
) -> _PlannedSentence:
    chance = read.chance(number)
    lengths = model.lengths(sentence.ids, noise=model.rhythm_noise * read.rhythm_noise, chance=chance)
    pause_s = 0.0 if is_last else _PAUSE_S * (1 + read.pause_strays * chance.uniform(-1, 1))
    pause_steps = round(pause_s * model.sample_rate_hz / model.hop_frames)
    return _PlannedSentence(sentence, np.ceil(lengths).astype(np.int64), pause_steps, chance)


def planned_frames(planned: Sequence[PlannedPiece], model: PiperModel, read: Reading) -> int:
    """Return about how many frames a plan will have at the reading's speed."""
    steps = sum(int(s.steps.sum()) + s.pause_steps for piece in planned for s in piece.sentences)
    return round(steps * model.hop_frames / read.speed)


def speak(
    planned: Sequence[PlannedPiece], model: PiperModel, read: Reading, factor: float = 1.0
) -> Iterator[Chunk]:
    """Yield each piece spoken, its phonemes and pauses ``factor`` times as long; empty without sound."""
    for piece in planned:
        parts = [_spoken(sentence, model, read, factor) for sentence in piece.sentences]
        yield _joined(piece.piece, parts, model.sample_rate_hz)


def _spoken(
    planned: _PlannedSentence, model: PiperModel, read: Reading, factor: float
) -> tuple[Samples, list[tuple[int, int]]]:
    """Return a sentence and the pause after it as samples, and which token begins at which frame."""
    # What is to sound higher is spoken more slowly first, and then played faster.
    scale = factor * read.pitch / read.speed
    # Rounded where the phonemes end, so that what is lost by one is won by the next.
    steps = np.diff(np.rint(np.cumsum([0, *planned.steps]) * scale)).astype(np.int64)
    sound = model.sound(planned.sentence.ids, steps, noise=model.noise * read.noise, chance=planned.chance)
    pause = np.zeros(round(planned.pause_steps * scale) * model.hop_frames, np.float32)
    samples = _transposed(np.concatenate([sound, pause]), model.sample_rate_hz, read.pitch)
    starts = np.concatenate([[0], np.cumsum(steps)]) * model.hop_frames / read.pitch
    # A sound begins before the frame that is its own: what is asked for lies in the pause before it, if any.
    events = [
        (token, round((starts[pause] + starts[first]) / 2)) for token, pause, first in planned.sentence.begins
    ]
    return samples, events


def _transposed(samples: Samples, sample_rate_hz: int, pitch: float) -> Samples:
    if pitch == 1.0 or not len(samples):
        return samples
    return codec.resample(samples, round(sample_rate_hz * pitch), sample_rate_hz)


def _joined(
    piece: Piece, parts: Sequence[tuple[Samples, list[tuple[int, int]]]], sample_rate_hz: int
) -> Chunk:
    samples = np.concatenate([np.zeros(0, np.float32), *(part for part, _ in parts)])
    if not samples.any():
        return Chunk(samples[:0], tuple(Heard(token, 0, 0) for token in piece.tokens))
    events: list[tuple[int, int]] = []
    offset = 0
    for part, begins in parts:
        events += [(piece.tokens[token].start, offset + frame) for token, frame in begins]
        offset += len(part)
    level_db = measure.energy_db(samples, sample_rate_hz, _STEP_MS)
    active = np.asarray(level_db > level_db.max() - _SILENT_BELOW_DB)
    step_frames = round(sample_rate_hz * _STEP_MS / 1000)
    return Chunk(samples, tuple(time_tokens(piece.tokens, events, active, step_frames, len(samples))))
