"""Compute the length of the result, and the time in the clip for each frame of the result."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.audio.codec import convert_seconds_to_frames
from speechframe.engines.base import Conversion
from speechframe.errors import EngineError
from speechframe.local.engines.world.change import Jitter
from speechframe.local.engines.world.signal import HOP_S, RATE_HZ, AnalysedClip, Array
from speechframe.spec.limits import compute_speed

PERIOD_S = 0.005
"""Length of a frame of the result in seconds."""

_SHORTEST_RESULT_S = 0.05
"""Shortest length that a caller may request, in seconds."""
_MAX_LENGTH_FACTOR, _MIN_CLEAR_FACTOR = 3.0, 0.4
"""Bounds of the factor of the length of a clip. Below the second there is only a warning."""

_PAUSE_DB = 35.0
"""Sound more than this many dB below the loudest step is a pause."""
_SHORTEST_PAUSE_S = 0.12
"""Shortest pause in seconds."""

_SYLLABLE_S = 0.08
"""Length of the window that smooths the level, so that each syllable has one peak."""
_TEMPO_WINDOW_S = 1.5
"""Length of the window in which syllables are counted."""
_TEMPO_EXPONENT = 0.9
_STEP_LENGTH_BOUNDS = (0.7, 1.4)
"""Exponent that evens out the tempo (1 would make the tempo constant), and bounds of the factor of a step."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The length of the result.

    Parameters
    ----------
    frames
        Samples of the result at 24000 Hz, exactly as requested.
    sounding_frames
        Number of these samples that come from the clip. Silence follows.
    warning
        A warning for the caller, or None.
    """

    frames: int
    sounding_frames: int
    warning: str | None = None


def compute_timing(clip_s: float, conversion: Conversion, jitter: Jitter) -> Timing:
    """Return the length of the result for a clip of `clip_s` seconds.

    Raises
    ------
    EngineError
        The requested length is shorter than 50 ms.
    """
    asked_s = conversion.audio_duration_s
    if not asked_s:
        factor = compute_speed(-conversion.rate) / jitter.speed
        frames = max(1, convert_seconds_to_frames(clip_s * factor, RATE_HZ))
        return Timing(frames, frames)
    if asked_s < _SHORTEST_RESULT_S:
        raise EngineError(
            f"audio_duration of {asked_s:g} s leaves no time to speak; at least {_SHORTEST_RESULT_S:g} s"
        )
    frames = convert_seconds_to_frames(asked_s, RATE_HZ)
    factor = asked_s / clip_s
    if factor > _MAX_LENGTH_FACTOR:
        warning = (
            f"audio_duration is {factor:.1f} times the clip's length: it was slowed down "
            f"{_MAX_LENGTH_FACTOR:g} times, the rest is silence"
        )
        return Timing(frames, convert_seconds_to_frames(_MAX_LENGTH_FACTOR * clip_s, RATE_HZ), warning)
    if factor < _MIN_CLEAR_FACTOR:
        return Timing(
            frames,
            frames,
            f"the clip is {1 / factor:.1f} times as long as audio_duration, "
            "and may not be understood so fast",
        )
    return Timing(frames, frames)


def compute_source_times_s(
    clip: AnalysedClip, timing: Timing, conversion: Conversion, jitter: Jitter
) -> Array:
    """Return the time in the clip in seconds for each frame of the result, one every :data:`PERIOD_S`."""
    frames = -(-timing.sounding_frames // round(PERIOD_S * RATE_HZ)) + 1
    share = np.arange(frames) * (PERIOD_S * RATE_HZ / timing.sounding_frames)
    lasting = _compute_step_lengths(clip, conversion, jitter)
    reached = np.concatenate([[0.0], np.cumsum(lasting)])
    moments_s = np.linspace(0, clip.audio_seconds, len(reached))
    times_s: Array = np.interp(share, reached / reached[-1], moments_s)
    return times_s


def _compute_step_lengths(clip: AnalysedClip, conversion: Conversion, jitter: Jitter) -> Array:
    """Return the relative length of each step of the clip in the result."""
    lasting = np.ones(len(clip.level_db))
    pauses = _find_pauses(clip)
    if not conversion.retain_prosody:
        lasting = _even_out_tempo(clip, pauses)
    if jitter.pause_jitter:
        for (start, end), factor in zip(pauses, jitter.pause_factors(len(pauses)), strict=True):
            lasting[start:end] *= factor
    return lasting


def _find_pauses(clip: AnalysedClip) -> NDArray[np.intp]:
    """Return start and end of each pause of the clip in steps of :data:`HOP_S`, ``(pauses, 2)``."""
    quiet = clip.level_db < clip.level_db.max() - _PAUSE_DB
    runs = np.flatnonzero(np.diff(np.concatenate([[False], quiet, [False]]).astype(np.int8))).reshape(-1, 2)
    return runs[runs[:, 1] - runs[:, 0] >= round(_SHORTEST_PAUSE_S / HOP_S)]


def _even_out_tempo(clip: AnalysedClip, pauses: NDArray[np.intp]) -> Array:
    """Return the relative length of each step that brings the local tempo close to the mean tempo.

    Fast speech gets longer steps. The tempo is the number of syllables per second of speech. A peak of the
    level counts as a syllable. Peaks are counted in a moving window.
    """
    speaking = np.ones(len(clip.level_db))
    for start, end in pauses:
        speaking[start:end] = 0.0
    level_db = np.maximum(clip.level_db, clip.level_db.max() - _PAUSE_DB)
    smooth = _smooth(level_db, _SYLLABLE_S)
    peaks = np.zeros(len(smooth))
    peaks[1:-1] = (smooth[1:-1] > smooth[:-2]) & (smooth[1:-1] >= smooth[2:])
    peaks *= speaking
    if not peaks.any():
        return np.ones(len(smooth))
    tempo = _smooth(peaks, _TEMPO_WINDOW_S) / np.maximum(_smooth(speaking, _TEMPO_WINDOW_S), 0.1)
    mean = peaks.sum() / speaking.sum()
    factors = np.clip(np.maximum(tempo / mean, 1e-3) ** _TEMPO_EXPONENT, *_STEP_LENGTH_BOUNDS)
    return np.asarray(np.where(speaking > 0, factors, 1.0), np.float64)


def _smooth(values: Array, seconds: float) -> Array:
    size = 2 * round(seconds / HOP_S / 2) + 1
    window = np.hanning(size + 2)[1:-1]
    padded = np.pad(values, size // 2, mode="edge")
    return np.convolve(padded, window / window.sum(), mode="valid")
