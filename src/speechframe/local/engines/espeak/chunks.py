"""Speak pieces (the texts between pause markers) with espeak, vary their pauses and time their words."""

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from speechframe.local.engines.espeak import library as espeak_library
from speechframe.local.engines.espeak.prosody import EspeakReading
from speechframe.local.engines.reading.pieces import (
    STEP_MS,
    Chunk,
    Piece,
    count_step_frames,
    find_sound,
    time_words,
    trim_silence,
)
from speechframe.local.engines.reading.speaker import SpeechPlan
from speechframe.local.engines.reading.word_times import TimedToken

SAMPLE_RATE_HZ = 22050
"""Sample rate of all espeak voices."""

_MIN_PAUSE_MS = 60.0
"""Shortest silence that is a pause, in ms. Shorter silences are the closures of plosives."""

Samples = NDArray[np.float32]


class EspeakPlan(SpeechPlan):
    """The pieces of an utterance and their reading. espeak is so fast that a guess of the speed is no use."""

    max_rounds, length_tolerance = 4, 0.004
    factor_bounds = (0.1, 10.0)  # the reading has the bounds of the library

    def __init__(self, pieces: Sequence[Piece], reading: EspeakReading) -> None:
        self._pieces = pieces
        self._reading = reading

    def speak(self, factor: float = 1.0) -> list[Chunk]:
        """Return the chunk of each piece. A piece without sound is an empty chunk."""
        rng = self._reading.pause_factors()
        return [_speak_piece(piece, self._reading, 1 / factor, rng) for piece in self._pieces]

    def guess_factor(self, frames: int) -> float:
        """Return 1."""
        del frames
        return 1.0


def _speak_piece(piece: Piece, reading: EspeakReading, speed: float, rng: random.Random) -> Chunk:
    silent = Chunk(np.zeros(0, np.float32), tuple(TimedToken(token, 0, 0) for token in piece.tokens))
    if not piece.spoken.is_speakable:
        return silent
    rendered = espeak_library.render_speech(
        piece.spoken.text,
        reading.build_setting(speed),
        phoneme_input=piece.spoken.phoneme_input,
        seed=reading.seed,
    )
    if not len(rendered.samples) or not rendered.samples.any():
        return silent
    origins = piece.spoken.origins
    positions = [min(max(event.position, 0), len(origins) - 1) for event in rendered.words]
    frames = np.array([event.frame for event in rendered.words], np.int64)
    samples, start = trim_silence(rendered.samples, SAMPLE_RATE_HZ)
    frames = np.clip(frames - start, 0, len(samples))
    samples, frames = _vary_pauses(samples, frames, reading.pause_jitter, rng)
    events = [(origins[position], int(frame)) for position, frame in zip(positions, frames, strict=True)]
    return time_words(piece, samples, events, SAMPLE_RATE_HZ)


def _convert_ms_to_frames(milliseconds: float) -> int:
    return round(SAMPLE_RATE_HZ * milliseconds / 1000)


def _vary_pauses(
    samples: Samples, frames: NDArray[np.int64], jitter: float, rng: random.Random
) -> tuple[Samples, NDArray[np.int64]]:
    """Change the lengths of pauses at random. Return the new samples, and the new frames of events."""
    if not jitter:
        return samples, frames
    parts: list[Samples] = []
    old, new = [0], [0]
    for start, end in _find_pauses(samples):
        length = end - start
        kept = max(_convert_ms_to_frames(_MIN_PAUSE_MS), round(length * (1 + jitter * rng.uniform(-1, 1))))
        parts.extend((samples[old[-1] : start], np.zeros(kept, np.float32)))
        for old_frame, new_frame in (
            (start, start - old[-1] + new[-1]),
            (end, start - old[-1] + new[-1] + kept),
        ):
            old.append(old_frame)
            new.append(new_frame)
    parts.append(samples[old[-1] :])
    paced = np.concatenate(parts)
    old.append(len(samples))
    new.append(len(paced))
    return paced, np.rint(np.interp(frames, old, new)).astype(np.int64)


def _find_pauses(samples: Samples) -> list[tuple[int, int]]:
    """Return start and end of each inner pause in frames."""
    active = find_sound(samples, SAMPLE_RATE_HZ)
    edges = np.flatnonzero(np.diff(active.astype(np.int8)))
    spans = [(int(start) + 1, int(end) + 1) for start, end in pairwise(edges) if not active[start + 1]]
    step = count_step_frames(SAMPLE_RATE_HZ)
    return [(start * step, end * step) for start, end in spans if (end - start) * STEP_MS >= _MIN_PAUSE_MS]
