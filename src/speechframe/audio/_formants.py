"""Measurement of formants (the resonances of the vocal tract) by linear prediction over voiced frames."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speechframe.audio._pitch import f0_track
from speechframe.audio._samples import mix_channels
from speechframe.audio._spectrum import limit_band

Array = NDArray[np.float64]

_ANALYSIS_RATE_HZ = 11_000
"""Sample rate of the analysis in Hz. Below half of it, at 5500 Hz, voices have about five formants."""
_PREDICTION_ORDER = 12
"""Number of coefficients: two for each of five formants, and two for the slope of the spectrum."""
_FRAME_MS = 30.0
_HOP_MS = 10.0
_PRE_EMPHASIS_HZ = 50.0
_MAX_BELOW_LOUDEST_DB = 25.0
"""Frames this many dB below the loudest frame are not used."""
_MIN_BANDWIDTH_HZ, _MAX_BANDWIDTH_HZ, _MIN_EDGE_DISTANCE_HZ = 0.0, 500.0, 90.0
"""Bandwidth limits of a formant, and its least distance from 0 Hz and from half of the sample rate."""


def measure_formants_hz(samples: ArrayLike, sample_rate_hz: int, count: int = 3) -> Array:
    """Return the median of each of the lowest formants over the voiced frames.

    Parameters
    ----------
    samples
        float32 in [-1, 1], ``(frames,)`` or ``(frames, channels)`` (mixed to mono).
    sample_rate_hz
        Sample rate in Hz. At 8000 Hz and below, the higher formants cannot be measured.
    count
        Number of formants, from F1 upwards (default 3).

    Returns
    -------
    array of float
        ``count`` frequencies in Hz, rising. NaN if no voiced frame has that formant.

    Examples
    --------
    >>> bool(np.isnan(measure_formants_hz(np.zeros(22050, np.float32), 22050)).all())
    True
    """
    signal, rate_hz = limit_band(mix_channels(samples).astype(np.float64), sample_rate_hz, _ANALYSIS_RATE_HZ)
    frames = _cut_voiced_frames(signal, rate_hz, *f0_track(samples, sample_rate_hz, hop_ms=_HOP_MS))
    if not len(frames):
        return np.full(count, np.nan)
    per_frame = _find_resonances_hz(_compute_linear_prediction(frames, _PREDICTION_ORDER), rate_hz)[:, :count]
    per_frame = np.pad(per_frame, ((0, 0), (0, count - per_frame.shape[1])), constant_values=np.nan)
    return np.array([_compute_median(column) for column in per_frame.T], np.float64)


def _compute_median(values: Array) -> float:
    present = values[~np.isnan(values)]
    return float(np.median(present)) if len(present) else np.nan


def _cut_voiced_frames(signal: Array, rate_hz: float, f0_hz: Array, times_s: Array) -> Array:
    """Return windowed, pre-emphasised frames around voiced times, without very quiet frames.

    The result has the shape ``(frames, width)``.
    """
    width = round(_FRAME_MS / 1000 * rate_hz)
    if len(signal) < width:
        return np.zeros((0, width))
    factor = np.exp(-2 * np.pi * _PRE_EMPHASIS_HZ / rate_hz)
    emphasised = np.append(signal[:1], signal[1:] - factor * signal[:-1])
    starts = (times_s[f0_hz > 0] * rate_hz).astype(int) - width // 2
    starts = starts[(starts >= 0) & (starts <= len(signal) - width)]
    frames = np.lib.stride_tricks.sliding_window_view(emphasised, width)[starts] * np.hamming(width)
    power = (frames**2).sum(axis=1)
    loud: Array = frames[power > power.max(initial=0.0) * 10 ** (-_MAX_BELOW_LOUDEST_DB / 10)]
    return loud


def _compute_linear_prediction(frames: Array, order: int) -> Array:
    """Return the prediction polynomial of each frame by Levinson's recursion. The first coefficient is 1."""
    size = 1 << (2 * frames.shape[1] - 1).bit_length()
    correlation = np.fft.irfft(np.abs(np.fft.rfft(frames, size, axis=1)) ** 2, axis=1)[:, : order + 1]
    polynomial = np.zeros((len(frames), order + 1))
    polynomial[:, 0] = 1.0
    error = correlation[:, 0] * (1 + 1e-9) + 1e-12
    for step in range(1, order + 1):
        reflection = -(polynomial[:, :step] * correlation[:, step:0:-1]).sum(axis=1) / error
        polynomial[:, 1 : step + 1] += reflection[:, None] * polynomial[:, step - 1 :: -1][:, :step]
        error = error * (1 - reflection**2)
    return polynomial


def _find_resonances_hz(polynomials: Array, rate_hz: float) -> Array:
    """Return the frequencies in Hz of the narrow resonances of each frame, in rising order, then NaN."""
    order = polynomials.shape[1] - 1
    companion = np.zeros((len(polynomials), order, order))
    companion[:, 0, :] = -polynomials[:, 1:]
    companion[:, np.arange(1, order), np.arange(order - 1)] = 1.0
    roots = np.linalg.eigvals(companion)
    frequency_hz = np.angle(roots) * rate_hz / (2 * np.pi)
    bandwidth_hz = -np.log(np.maximum(np.abs(roots), 1e-9)) * rate_hz / np.pi
    wanted = (
        (frequency_hz > _MIN_EDGE_DISTANCE_HZ)
        & (frequency_hz < rate_hz / 2 - _MIN_EDGE_DISTANCE_HZ)
        & (bandwidth_hz > _MIN_BANDWIDTH_HZ)
        & (bandwidth_hz < _MAX_BANDWIDTH_HZ)
    )
    return np.sort(np.where(wanted, frequency_hz, np.nan), axis=1)
