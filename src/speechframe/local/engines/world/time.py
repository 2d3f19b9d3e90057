"""When each moment of the result lies in the clip: tempo, pauses and the length to the sample."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.audio.codec import seconds_to_frames
from speechframe.engines.base import Conversion
from speechframe.errors import EngineError
from speechframe.local.engines.clip_levels import quiet_runs
from speechframe.local.engines.world.change import Jitter
from speechframe.local.engines.world.signal import HOP_S, RATE_HZ, AnalysedClip, Array

__all__ = ["Timing", "source_times_s", "timing_of"]

PERIOD_S = 0.005
"""From one frame of the result to the next."""

_RATE_FOR_DOUBLE = 50.0
_SHORTEST_RESULT_S = 0.05
_SLOWEST, _FASTEST = 3.0, 0.4
"""What a clip's length is multiplied by at most and, without a warning, at least."""

_PAUSE_DB = 35.0
_SHORTEST_PAUSE_S = 0.12

_SYLLABLE_S = 0.08
_TEMPO_WINDOW_S = 1.5
_EVENED = 0.9
_EVENED_BOUNDS = (0.7, 1.4)
"""How much of a difference in tempo is taken out, and within what a moment's length changes."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the result is.

    Parameters
    ----------
    frames
        Of the result, at the working rate: exactly what was asked for.
    sounding_frames
        How many of them come from the clip; silence follows.
    warning
        What the caller should know, or None.
    """

    frames: int
    sounding_frames: int
    warning: str | None = None


def timing_of(clip_s: float, conversion: Conversion, drawn: Jitter) -> Timing:
    """Return how long a clip's result is.

    Raises
    ------
    EngineError
        A length too short for any speech.
    """
    asked_s = conversion.audio_duration_s
    if not asked_s:
        factor = 2 ** (-conversion.rate / _RATE_FOR_DOUBLE) / drawn.speed
        frames = max(1, seconds_to_frames(clip_s * factor, RATE_HZ))
        return Timing(frames, frames)
    if asked_s < _SHORTEST_RESULT_S:
        raise EngineError(
            f"audio_duration of {asked_s:g} s leaves no time to speak; at least {_SHORTEST_RESULT_S:g} s"
        )
    frames = seconds_to_frames(asked_s, RATE_HZ)
    factor = asked_s / clip_s
    if factor > _SLOWEST:
        warning = (
            f"audio_duration is {factor:.1f} times the clip's length: it was slowed down {_SLOWEST:g} times, "
            "the rest is silence"
        )
        return Timing(frames, seconds_to_frames(_SLOWEST * clip_s, RATE_HZ), warning)
    if factor < _FASTEST:
        return Timing(
            frames,
            frames,
            f"the clip is {1 / factor:.1f} times as long as audio_duration, "
            "and may not be understood so fast",
        )
    return Timing(frames, frames)


def source_times_s(clip: AnalysedClip, timing: Timing, conversion: Conversion, drawn: Jitter) -> Array:
    """Return for every frame of the result, one each :data:`PERIOD_S`, the moment of the clip it shows."""
    frames = -(-timing.sounding_frames // round(PERIOD_S * RATE_HZ)) + 1
    share = np.arange(frames) * (PERIOD_S * RATE_HZ / timing.sounding_frames)
    lasting = _lasting(clip, conversion, drawn)
    reached = np.concatenate([[0.0], np.cumsum(lasting)])
    moments_s = np.linspace(0, clip.audio_seconds, len(reached))
    times_s: Array = np.interp(share, reached / reached[-1], moments_s)
    return times_s


def _lasting(clip: AnalysedClip, conversion: Conversion, drawn: Jitter) -> Array:
    """Return how long each moment of the clip lasts, as a multiple of the others."""
    lasting = np.ones(len(clip.level_db))
    pauses = _pauses(clip)
    if not conversion.retain_prosody:
        lasting = _evened(clip, pauses)
    if drawn.pause_jitter:
        for (start, end), factor in zip(pauses, drawn.pause_factors(len(pauses)), strict=True):
            lasting[start:end] *= factor
    return lasting


def _pauses(clip: AnalysedClip) -> NDArray[np.intp]:
    """Return where the clip pauses, as start and end in steps of its level, ``(pauses, 2)``."""
    return quiet_runs(clip.level_db, below_db=_PAUSE_DB, shortest=round(_SHORTEST_PAUSE_S / HOP_S))


def _evened(clip: AnalysedClip, pauses: NDArray[np.intp]) -> Array:
    """Return durations that bring the local tempo towards the clip's mean: fast stretches last longer.

    Tempo is syllables a second of speech: peaks of the level, counted in a window that glides.
    """
    speaking = np.ones(len(clip.level_db))
    for start, end in pauses:
        speaking[start:end] = 0.0
    level_db = np.maximum(clip.level_db, clip.level_db.max() - _PAUSE_DB)
    smooth = _glided(level_db, _SYLLABLE_S)
    peaks = np.zeros(len(smooth))
    peaks[1:-1] = (smooth[1:-1] > smooth[:-2]) & (smooth[1:-1] >= smooth[2:])
    peaks *= speaking
    if not peaks.any():
        return np.ones(len(smooth))
    tempo = _glided(peaks, _TEMPO_WINDOW_S) / np.maximum(_glided(speaking, _TEMPO_WINDOW_S), 0.1)
    mean = peaks.sum() / speaking.sum()
    factors = np.clip(np.maximum(tempo / mean, 1e-3) ** _EVENED, *_EVENED_BOUNDS)
    return np.asarray(np.where(speaking > 0, factors, 1.0), np.float64)


def _glided(values: Array, seconds: float) -> Array:
    size = 2 * round(seconds / HOP_S / 2) + 1
    window = np.hanning(size + 2)[1:-1]
    padded = np.pad(values, size // 2, mode="edge")
    return np.convolve(padded, window / window.sum(), mode="valid")
