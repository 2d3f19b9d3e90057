"""What makes a voice: its register, its formants and its spectral tilt, as measured."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speechframe.audio import measure
from speechframe.audio.codec import Samples
from speechframe.local.engines.world.signal import HOP_S, RATE_HZ, AnalysedClip, Array

__all__ = ["Profile", "profile_of"]

_WINDOW_S = 2.0
_WINDOWS = 8
"""Formants and tilt are taken from the most voiced 16 seconds: more of them say nothing new."""

_FFT_FRAMES = 1024
_TILT_BANDS_HZ = 300 * 2 ** (np.arange(11) / 3)
"""Third octaves from 300 to 3000 Hz: what a telephone lets through too."""

_QUARTILES_TO_DEVIATION = 1.349


@dataclass(frozen=True, eq=False, slots=True)
class Profile:
    """A voice in figures.

    Parameters
    ----------
    f0_hz
        The median fundamental frequency; 0 when nothing voiced was heard.
    spread_semitones
        How far the pitch goes from it: the standard deviation, as the quartiles tell it.
    formants_hz
        F1 to F3, NaN where one was not found.
    tilt_db
        How the spectrum of the voiced frames rises, in dB an octave (falls, as a rule: negative).
    """

    f0_hz: float
    spread_semitones: float
    formants_hz: Array
    tilt_db: float


def profile_of(clip: AnalysedClip) -> Profile:
    """Return the profile of whoever speaks in a clip."""
    voiced_hz = clip.f0_hz[clip.voiced]
    if not len(voiced_hz):
        return Profile(0.0, 0.0, np.full(3, np.nan), 0.0)
    median_hz = float(np.median(voiced_hz))
    low, high = np.percentile(12 * np.log2(voiced_hz / median_hz), (25, 75))
    excerpt, is_voiced = _most_voiced(clip)
    return Profile(
        median_hz,
        float(high - low) / _QUARTILES_TO_DEVIATION,
        measure.formants_hz(excerpt, RATE_HZ),
        _tilt_db(excerpt, is_voiced),
    )


def _most_voiced(clip: AnalysedClip) -> tuple[Samples, NDArray[np.bool_]]:
    """Return the windows of the clip with most voice in them, joined, and where they are voiced."""
    size, hops = round(_WINDOW_S * RATE_HZ), round(_WINDOW_S / HOP_S)
    starts = range(0, len(clip.f0_hz), hops)
    voiced = np.array([np.count_nonzero(clip.f0_hz[start : start + hops]) for start in starts])
    chosen = np.sort(np.argsort(-voiced, kind="stable")[:_WINDOWS])
    samples = [clip.samples[window * size : (window + 1) * size] for window in chosen]
    f0_hz = [clip.f0_hz[window * hops : (window + 1) * hops] for window in chosen]
    return np.concatenate(samples), np.concatenate(f0_hz) > 0


def _tilt_db(samples: Samples, is_voiced: NDArray[np.bool_]) -> float:
    """Return the slope of the long-term spectrum, in dB an octave; 0 when there is too little to say."""
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
