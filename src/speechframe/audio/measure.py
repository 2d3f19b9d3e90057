"""What is heard, as figures: length, level, clipping, silence, pitch and formants.

Samples are float32 in [-1, 1], ``(frames,)`` or ``(frames, channels)``; levels
are decibels below full scale (a sine that fills the range has an rms of -3).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speechframe.audio._formants import formants_hz
from speechframe.audio._pitch import f0_track, median_f0_hz
from speechframe.audio._samples import Samples, checked, mono

__all__ = [
    "clipped_fraction",
    "energy_db",
    "f0_track",
    "formants_hz",
    "loudness_db",
    "median_f0_hz",
    "peak",
    "rms_db",
    "silences",
]

Array = NDArray[np.float64]

FLOOR_DB = -120.0
"""What total silence is called; a logarithm has no word for it."""

_LOUDNESS_BLOCK_MS = 100.0
_LOUDNESS_GATE_DB = 20.0
_POWER_FRAMES = 4096


def peak(samples: ArrayLike) -> float:
    """Return the largest absolute value, 0 to 1 unless something is wrong.

    Examples
    --------
    >>> peak(np.array([0.25, -0.5], np.float32))
    0.5
    """
    return float(np.abs(checked(samples)).max())


def rms_db(samples: ArrayLike) -> float:
    """Return the mean level of everything, silence included, in dB below full scale.

    Examples
    --------
    >>> rms_db(np.full(100, 0.1, np.float32)), rms_db(np.zeros(100, np.float32))
    (-20.0, -120.0)
    """
    return round(float(_decibels(np.mean(np.square(checked(samples), dtype=np.float64)))), 6)


def loudness_db(samples: ArrayLike, sample_rate_hz: int) -> float:
    """Return the level of the speech alone: the mean over 100 ms blocks that are not 20 dB below the loudest.

    Pauses do not count, so voices compare whatever they say.

    Examples
    --------
    >>> speech = np.full(1000, 0.1, np.float32)
    >>> round(loudness_db(np.concatenate([speech, np.zeros(5000, np.float32)]), 1000), 1)
    -20.0
    """
    power = _frame_power(mono(samples), sample_rate_hz, _LOUDNESS_BLOCK_MS)
    return float(_decibels(power[power >= power.max() * 10 ** (-_LOUDNESS_GATE_DB / 10)].mean()))


def energy_db(samples: ArrayLike, sample_rate_hz: int, frame_ms: float = 10.0) -> Array:
    """Return the level of each frame of ``frame_ms`` milliseconds in dB below full scale.

    Frame k covers the time from ``k * frame_ms`` on; a rest at the end counts as a frame.

    Examples
    --------
    >>> energy_db(np.array([0.1] * 100 + [0.0] * 100, np.float32), 10_000).tolist()
    [-20.0, -120.0]
    """
    return np.round(_decibels(_frame_power(mono(samples), sample_rate_hz, frame_ms)), 6)


def clipped_fraction(samples: ArrayLike) -> float:
    """Return the share of samples at full scale.

    Examples
    --------
    >>> clipped_fraction(np.array([1.0, -1.0, 0.5, 0.0], np.float32))
    0.5
    """
    return float((np.abs(checked(samples)) >= 32767 / 32768).mean())


def silences(
    samples: ArrayLike,
    sample_rate_hz: int,
    *,
    shortest_ms: float = 50.0,
    below_db: float = 45.0,
    frame_ms: float = 5.0,
) -> list[tuple[float, float]]:
    """Return where nothing is heard, as start and end in seconds.

    Parameters
    ----------
    samples, sample_rate_hz
        The audio.
    shortest_ms
        Shorter silences are left out: the closure of a plosive is no pause.
    below_db
        How far below the loudest frame a frame is silent.
    frame_ms
        How fine one looks.

    Examples
    --------
    >>> silences(np.array([0.5] * 1000 + [0.0] * 500, np.float32), 1000)
    [(1.0, 1.5)]
    """
    array = mono(samples)
    level_db = energy_db(array, sample_rate_hz, frame_ms)
    silent = level_db <= max(level_db.max() - below_db, FLOOR_DB)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], silent, [False]]).astype(np.int8)))
    audio_seconds = len(array) / sample_rate_hz
    spans_s = edges.reshape(-1, 2) * _frame_length(sample_rate_hz, frame_ms) / sample_rate_hz
    return [
        (float(start_s), min(float(end_s), audio_seconds))
        for start_s, end_s in spans_s
        if end_s - start_s >= shortest_ms / 1000
    ]


def _frame_length(sample_rate_hz: int, frame_ms: float) -> int:
    return max(1, round(sample_rate_hz * frame_ms / 1000))


def _frame_power(samples: Samples, sample_rate_hz: int, frame_ms: float) -> Array:
    length = _frame_length(sample_rate_hz, frame_ms)
    starts = np.arange(0, len(samples), length)
    # In blocks, because the squares take twice the memory of the samples.
    size = length * _POWER_FRAMES
    blocks = (samples[start : start + size] for start in range(0, len(samples), size))
    sums = [
        np.add.reduceat(np.square(some, dtype=np.float64), starts[: -(-len(some) // length)])
        for some in blocks
    ]
    return np.asarray(np.concatenate(sums) / np.diff(np.append(starts, len(samples))), np.float64)


def _decibels(power: Array | float | np.floating) -> Array:
    return np.asarray(10 * np.log10(np.maximum(power, 10 ** (FLOOR_DB / 10))), np.float64)
