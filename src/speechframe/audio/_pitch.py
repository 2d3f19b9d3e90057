"""Measurement of the fundamental frequency by the method of Boersma (1993).

The peaks of the autocorrelation of a frame are the candidates for its frequency. A Viterbi path through time
selects one candidate of each frame, which avoids octave errors on synthetic voices. A frame spans three
periods of the lowest pitch. The autocorrelation of the frame is divided by that of the window, so the height
of a peak is the periodicity.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speechframe.audio._samples import mix_channels
from speechframe.audio._spectrum import limit_band

Array = NDArray[np.float64]

_ANALYSIS_RATE_HZ = 10_000
"""Sample rate of the analysis in Hz."""
_BLOCK_FRAMES = 4096
"""Number of frames that are analysed together, which limits the memory."""
_MAX_CANDIDATES = 6
"""Number of candidates in a frame."""
_LAGS_PER_SAMPLE = 2
"""Number of values of the autocorrelation for each sample."""
_PERIODS_PER_FRAME = 3

# Costs of a path and thresholds (Boersma 1993), in units of periodicity, where 1 is perfectly periodic.
_VOICING_THRESHOLD = 0.45
_SILENCE_THRESHOLD = 0.03
_OCTAVE_COST = 0.01
_OCTAVE_JUMP_COST = 0.35 * 2
_VOICING_CHANGE_COST = 0.14


@dataclass(frozen=True, slots=True)
class _Lattice:
    """Candidates of each frame: frequencies in Hz and strengths. Column 0, with frequency 0, is unvoiced."""

    f0_hz: Array
    strength: Array


def f0_track(
    samples: ArrayLike,
    sample_rate_hz: int,
    *,
    lowest_hz: float = 50.0,
    highest_hz: float = 500.0,
    hop_ms: float = 5.0,
) -> tuple[Array, Array]:
    """Return the fundamental frequency over time.

    Parameters
    ----------
    samples
        float32 in [-1, 1], ``(frames,)`` or ``(frames, channels)`` (mixed to mono).
    sample_rate_hz
        Sample rate in Hz, at least 1000.
    lowest_hz, highest_hz
        Range of the pitch in Hz.
    hop_ms
        Time between two values in milliseconds (default 5).

    Returns
    -------
    f0_hz, times_s
        Two arrays with a value for each hop, in Hz and seconds. The frequency is 0 in unvoiced frames.

    Examples
    --------
    >>> seconds = np.arange(22050) / 22050
    >>> f0_hz, times_s = f0_track(np.sin(2 * np.pi * 150 * seconds), 22050)
    >>> round(float(np.median(f0_hz)), 1), len(f0_hz) == len(times_s)
    (150.0, True)
    """
    signal, rate_hz = limit_band(mix_channels(samples).astype(np.float64), sample_rate_hz, _ANALYSIS_RATE_HZ)
    frames = round(len(signal) / rate_hz * 1000 / hop_ms) + 1
    times_s = np.arange(frames) * hop_ms / 1000
    lattice = _find_candidates(signal, rate_hz, times_s, lowest_hz, highest_hz)
    return _find_best_path(lattice), times_s


def median_f0_hz(samples: ArrayLike, sample_rate_hz: int) -> float:
    """Return the median fundamental frequency of the voiced frames in Hz. 0 if no frame is voiced.

    Examples
    --------
    >>> round(median_f0_hz(np.sin(2 * np.pi * 110 * np.arange(8000) / 8000), 8000))
    110
    """
    f0_hz, _ = f0_track(samples, sample_rate_hz)
    voiced = f0_hz[f0_hz > 0]
    return float(np.median(voiced)) if len(voiced) else 0.0


def _find_candidates(
    signal: Array, rate_hz: float, times_s: Array, lowest_hz: float, highest_hz: float
) -> _Lattice:
    width = 2 * round(_PERIODS_PER_FRAME * rate_hz / lowest_hz / 2)
    window = np.hanning(width)
    lag_rate_hz = rate_hz * _LAGS_PER_SAMPLE
    lags = int(lag_rate_hz / lowest_hz) + 3
    of_window = _compute_autocorrelation(window[None], lags)

    padded = np.pad(signal, (width // 2, width))
    starts = np.minimum((times_s * rate_hz).astype(int), len(padded) - width)
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    loudest = float(np.abs(signal).max()) + 1e-9
    shortest = max(2, int(lag_rate_hz / highest_hz))

    f0_hz, strength = [], []
    for first in range(0, len(starts), _BLOCK_FRAMES):
        block = windows[starts[first : first + _BLOCK_FRAMES]]
        block = block - block.mean(axis=1, keepdims=True)
        level = np.abs(block).max(axis=1) / loudest
        periodicity = _compute_autocorrelation(block * window, lags) / of_window
        found_hz, found_strength = _find_peaks(periodicity, lag_rate_hz, lowest_hz, shortest)
        quiet = np.maximum(0, 2 - level / _SILENCE_THRESHOLD * (1 + _VOICING_THRESHOLD))
        f0_hz.append(np.column_stack([np.zeros(len(block)), found_hz]))
        strength.append(np.column_stack([_VOICING_THRESHOLD + quiet, found_strength]))
    return _Lattice(np.concatenate(f0_hz), np.concatenate(strength))


def _compute_autocorrelation(frames: Array, lags: int) -> Array:
    """Return the autocorrelation of each row for the first lags, with 1 at lag 0.

    The result has values between the samples too. The peak of a high voice may lie between two samples.
    Otherwise the peak of the double period, which lies on a sample, would be higher.
    """
    size = 1 << (2 * frames.shape[1] - 1).bit_length()
    power = np.abs(np.fft.rfft(frames, size, axis=1)) ** 2
    correlation = np.fft.irfft(power, size * _LAGS_PER_SAMPLE, axis=1)[:, :lags]
    return np.asarray(correlation / (correlation[:, :1] + 1e-12), np.float64)


def _find_peaks(periodicity: Array, rate_hz: float, lowest_hz: float, shortest: int) -> tuple[Array, Array]:
    """Return frequencies in Hz and strengths of the strongest peaks of each row.

    A parabola through three points gives the position of a peak. Rows with few peaks have frequency 0.
    """
    here, after = periodicity[:, shortest:-1], periodicity[:, shortest + 1 :]
    before = periodicity[:, shortest - 1 : -2]
    curvature = 2 * here - before - after
    shift = np.where(curvature > 1e-9, 0.5 * (after - before) / np.maximum(curvature, 1e-9), 0.0)  # noqa: PLR2004
    shift = np.clip(shift, -0.5, 0.5)
    lag = np.arange(shortest, shortest + here.shape[1]) + shift
    # The double of a period is as periodic as the period itself. A small cost prefers the shorter period.
    height = here + 0.25 * (after - before) * shift
    score = np.minimum(height, 1.0) - _OCTAVE_COST * np.log2(lowest_hz * lag / rate_hz)
    score = np.where((here > before) & (here >= after), score, -9.0)
    best = np.argpartition(-score, _MAX_CANDIDATES, axis=1)[:, :_MAX_CANDIDATES]
    strength = np.take_along_axis(score, best, axis=1)
    f0_hz = rate_hz / np.take_along_axis(lag, best, axis=1)
    return np.where(strength > -9.0, f0_hz, 0.0), strength  # noqa: PLR2004


def _find_best_path(lattice: _Lattice) -> Array:
    unvoiced = lattice.f0_hz == 0
    octaves = np.log2(np.maximum(lattice.f0_hz, 1e-3))
    total = lattice.strength[0]
    came_from = np.zeros(lattice.f0_hz.shape, np.intp)
    for frame in range(1, len(octaves)):
        was, now = unvoiced[frame - 1][:, None], unvoiced[frame][None, :]
        jump = _OCTAVE_JUMP_COST * np.abs(octaves[frame - 1][:, None] - octaves[frame][None, :])
        cost = np.where(was & now, 0.0, np.where(was | now, _VOICING_CHANGE_COST, jump))
        scores = total[:, None] - cost
        came_from[frame] = scores.argmax(axis=0)
        total = scores.max(axis=0) + lattice.strength[frame]
    path = np.zeros(len(octaves), np.intp)
    path[-1] = total.argmax()
    for frame in range(len(octaves) - 1, 0, -1):
        path[frame - 1] = came_from[frame, path[frame]]
    return lattice.f0_hz[np.arange(len(path)), path]
