"""Speak pieces (the texts between pause markers) with a neural model, by sentences, and time their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import codec
from speechframe.local.engines.neural.phonemes import Phonemiser, Sentence
from speechframe.local.engines.neural.prosody import NeuralReading
from speechframe.local.engines.reading.pieces import Chunk, Piece, time_words, trim_silence
from speechframe.local.engines.reading.speaker import SpeechPlan
from speechframe.local.engines.reading.word_times import TimedToken

Samples = NDArray[np.float32]

_SENTENCE_PAUSE_S = 0.2
"""Pause between two sentences at normal speed. It is added because models do not end with silence."""


@dataclass(frozen=True, eq=False, slots=True)
class Draft:
    """The result of the first step of a model: a sentence with the lengths of its phonemes.

    Parameters
    ----------
    ids
        The model's numbers of the phonemes.
    lengths
        Length of each phoneme in steps of the model, ``(ids,)``.
    given
        Private data of the model for the second step.
    """

    ids: Sequence[int]
    lengths: NDArray[np.int64]
    given: Any


class NeuralModel(Protocol):
    """A model that runs in two steps: first the lengths of phonemes, then the sound for given lengths.

    Attributes
    ----------
    sample_rate_hz
        Sample rate of the sound.
    hop_frames
        Samples in one step of the model, the unit of a length.
    """

    sample_rate_hz: int
    hop_frames: int

    def draft(self, ids: Sequence[int], reading: NeuralReading, rng: np.random.Generator) -> Draft:
        """Return a draft with the lengths of a sentence's phonemes at normal speed."""
        ...

    def synthesise(self, draft: Draft, steps: NDArray[np.int64], rng: np.random.Generator) -> Samples:
        """Return the samples of a sentence, ``hop_frames`` for each step. `steps` has the phoneme lengths."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class _PlannedSentence:
    """A sentence, its draft and the pause after it, in steps of the model."""

    sentence: Sentence
    draft: Draft
    pause_steps: int
    rng: np.random.Generator


class NeuralPlan(SpeechPlan):
    """The lengths of all phonemes and pauses of pieces, before any sound is computed."""

    max_rounds, length_tolerance = 2, 0.03
    factor_bounds = (0.5, 2.0)

    def __init__(
        self, pieces: Sequence[Piece], phonemiser: Phonemiser, model: NeuralModel, reading: NeuralReading
    ) -> None:
        self._model = model
        self._reading = reading
        self._planned: list[tuple[Piece, list[_PlannedSentence]]] = []
        number = 0
        for piece in pieces:
            sentences = (
                phonemiser.make_sentences(piece.spoken, piece.tokens) if piece.spoken.is_speakable else []
            )
            planned = []
            for index, sentence in enumerate(sentences):
                is_last = index == len(sentences) - 1
                planned.append(_plan_sentence(sentence, model, reading, number, is_last=is_last))
                number += 1
            self._planned.append((piece, planned))

    def guess_factor(self, frames: int) -> float:
        """Return the factor by the lengths of the phonemes. Silence that is trimmed later is not known."""
        sentences = [sentence for _, planned in self._planned for sentence in planned]
        steps = sum(int(sentence.draft.lengths.sum()) + sentence.pause_steps for sentence in sentences)
        return frames / max(1, round(steps * self._model.hop_frames / self._reading.speed))

    def speak(self, factor: float = 1.0) -> list[Chunk]:
        """Return the chunk of each piece, with phonemes and pauses `factor` times as long."""
        chunks = []
        for piece, planned in self._planned:
            parts = [_speak_sentence(sentence, self._model, self._reading, factor) for sentence in planned]
            chunks.append(_join_parts(piece, parts, self._model.sample_rate_hz))
        return chunks


def _plan_sentence(
    sentence: Sentence, model: NeuralModel, reading: NeuralReading, number: int, *, is_last: bool
) -> _PlannedSentence:
    rng = reading.create_generator(number)
    draft = model.draft(sentence.ids, reading, rng)
    pause_s = 0.0 if is_last else _SENTENCE_PAUSE_S * (1 + reading.pause_jitter * rng.uniform(-1, 1))
    pause_steps = round(pause_s * model.sample_rate_hz / model.hop_frames)
    return _PlannedSentence(sentence, draft, pause_steps, rng)


def _speak_sentence(
    planned: _PlannedSentence, model: NeuralModel, reading: NeuralReading, factor: float
) -> tuple[Samples, list[tuple[int, int]]]:
    """Return the samples of a sentence and its pause, and pairs of token and the frame where it begins."""
    # For a higher pitch, the sentence is spoken more slowly and then played faster.
    scale = factor * reading.pitch / reading.speed
    # Round the ends of the phonemes, and not their lengths, so that rounding errors do not add up.
    steps = np.diff(np.rint(np.cumsum([0, *planned.draft.lengths]) * scale)).astype(np.int64)
    sound = _transpose(
        model.synthesise(planned.draft, steps, planned.rng), model.sample_rate_hz, reading.pitch
    )
    if not sound.any():
        return sound[:0], []
    sound, start = trim_silence(sound, model.sample_rate_hz)
    pause_frames = round(planned.pause_steps * scale) * model.hop_frames / reading.pitch
    samples = np.pad(sound, (0, round(pause_frames)))
    starts = np.concatenate([[0], np.cumsum(steps)]) * model.hop_frames / reading.pitch - start
    # A sound begins a little before its first phoneme. So if there is a pause before a word, the event is in
    # the middle between the start of the pause and the first sound.
    events = [
        (token, max(0, round((starts[pause] + starts[first]) / 2)))
        for token, pause, first in planned.sentence.begins
    ]
    return samples, events


def _transpose(samples: Samples, sample_rate_hz: int, pitch: float) -> Samples:
    if pitch == 1.0 or not len(samples):
        return samples
    return codec.resample(samples, round(sample_rate_hz * pitch), sample_rate_hz)


def _join_parts(
    piece: Piece, parts: Sequence[tuple[Samples, list[tuple[int, int]]]], sample_rate_hz: int
) -> Chunk:
    samples = np.concatenate([np.zeros(0, np.float32), *(part for part, _ in parts)])
    if not samples.any():
        return Chunk(samples[:0], tuple(TimedToken(token, 0, 0) for token in piece.tokens))
    events: list[tuple[int, int]] = []
    offset = 0
    for part, begins in parts:
        events += [(piece.tokens[token].start, offset + frame) for token, frame in begins]
        offset += len(part)
    return time_words(piece, samples, events, sample_rate_hz)
