"""Measure the profile of a voice: its register (median pitch), formants and spectral tilt."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import measure
from speechframe.audio.codec import Samples
from speechframe.local.engines.world.signal import HOP_S, RATE_HZ, AnalysedClip, Array

_WINDOW_S = 2.0
_WINDOW_COUNT = 8
"""Length and number of the windows in which formants and tilt are measured. More windows hardly matter."""

_FFT_FRAMES = 1024
"""Frames of a Fourier transform."""
_TILT_BANDS_HZ = 300 * 2 ** (np.arange(11) / 3)
"""Bounds of third-octave bands from 300 to 3000 Hz, which also a telephone transmits."""

_QUARTILES_TO_DEVIATION = 1.349
"""Distance between the quartiles of a normal distribution, in standard deviations."""


@dataclass(frozen=True, eq=False, slots=True)
class Profile:
    """The measurements of a voice.

    Parameters
    ----------
    f0_hz
        Median fundamental frequency in Hz. 0 if there is no voiced sound.
    spread_semitones
        Standard deviation of the pitch in semitones, estimated from the quartiles.
    formants_hz
        F1 to F3 in Hz. A formant that was not found is NaN.
    tilt_db
        Slope of the spectrum of voiced frames in dB an octave, usually negative.
    """

    f0_hz: float
    spread_semitones: float
    formants_hz: Array
    tilt_db: float


def measure_profile(clip: AnalysedClip) -> Profile:
    """Return the profile of the voice in a clip."""
    voiced_hz = clip.f0_hz[clip.voiced]
    if not len(voiced_hz):
        return Profile(0.0, 0.0, np.full(3, np.nan), 0.0)
    median_hz = float(np.median(voiced_hz))
    low, high = np.percentile(12 * np.log2(voiced_hz / median_hz), (25, 75))
    excerpt, is_voiced = _select_voiced(clip)
    return Profile(
        median_hz,
        float(high - low) / _QUARTILES_TO_DEVIATION,
        measure.measure_formants_hz(excerpt, RATE_HZ),
        _measure_tilt_db(excerpt, is_voiced),
    )


def _select_voiced(clip: AnalysedClip) -> tuple[Samples, NDArray[np.bool_]]:
    """Return the samples of the most voiced windows of a clip, joined, and a mask of the voiced steps."""
    size, hops = round(_WINDOW_S * RATE_HZ), round(_WINDOW_S / HOP_S)
    starts = range(0, len(clip.f0_hz), hops)
    voiced = np.array([np.count_nonzero(clip.f0_hz[start : start + hops]) for start in starts])
    chosen = np.sort(np.argsort(-voiced, kind="stable")[:_WINDOW_COUNT])
    samples = [clip.samples[window * size : (window + 1) * size] for window in chosen]
    f0_hz = [clip.f0_hz[window * hops : (window + 1) * hops] for window in chosen]
    return np.concatenate(samples), np.concatenate(f0_hz) > 0


def _measure_tilt_db(samples: Samples, is_voiced: NDArray[np.bool_]) -> float:
    """Return the slope of the long-term spectrum in dB an octave, or 0 if no voiced frame is long enough."""
    starts = np.flatnonzero(is_voiced) * round(HOP_S * RATE_HZ)
    starts = starts[starts + _FFT_FRAMES <= len(samples)]
    if not len(starts):
        return 0.0
    frames = np.lib.stride_tricks.sliding_window_view(samples, _FFT_FRAMES)[starts] * np.hanning(_FFT_FRAMES)
    power = (np.abs(np.fft.rfft(frames, axis=1)) ** 2).mean(axis=0)
    bins_hz = np.arange(len(power)) * RATE_HZ / _FFT_FRAMES
    bands = np.digitize(bins_hz, _TILT_BANDS_HZ)
    level_db = [10 * np.log10(power[bands == band].mean() + 1e-20) for band in range(1, len(_TILT_BANDS_HZ))]
    return float(np.polyfit(np.arange(len(level_db)) / 3, level_db, 1)[0])
