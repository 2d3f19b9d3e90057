"""Measures of one clip of speech for judging its quality: level, silences, end and spectrum."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speechframe.audio._samples import Samples, check_samples, mix_channels
from speechframe.audio.measure import (
    convert_to_db,
    find_silences,
    measure_frame_levels_db,
    measure_loudness_lufs,
)

BANDS_PER_OCTAVE = 24
BANDS_HZ = 200.0 * 2 ** (np.arange(158) / BANDS_PER_OCTAVE)
"""Centres of the bands of a spectrum in Hz, from 200 Hz to 18.6 kHz. Speech ends below."""

_STEP_MS, _END_MS, _WINDOW_MS = 10.0, 20.0, 43.0
_TAPS, _PHASES = 12, 4
"""BS.1770 requires at least four times the sample rate, and describes a filter of 12 taps a phase."""
_NEAR_PEAK = 0.4
"""Between two samples below this share of the largest sample, speech does not exceed the largest sample."""
_FLAT_STEP, _FLAT_RUN = 1 / 32768, 3
"""One sample at the peak is a peak. Three in a row, equal within one step of 16 bits, are a flat top."""
_SPEECH_DB, _BANDWIDTH_DB, _BOTTOM_DB = 30.0, 60.0, 80.0
"""Decibels below the loudest window of a clip, and below the strongest frequency of a spectrum."""


@dataclass(frozen=True, slots=True)
class ClipMeasures:
    """Measures of one clip.

    Attributes
    ----------
    audio_seconds
        Length in seconds.
    loudness_lufs, true_peak_dbtp
        Loudness in LUFS, and the peak at four times the sample rate in dB below full scale (BS.1770).
    clipped_fraction
        Share of samples in flat tops, 0 to 1.
    silence_start_s, silence_end_s, silence_inside_s
        Silence at the start and at the end, and the longest silence between them, in seconds.
    end_db
        Level of the last 20 ms in dB, relative to the level of speech.
    snr_db
        Level of speech in dB, relative to the quietest part.
    bandwidth_hz
        Highest frequency with sound in Hz, at most 60 dB below the strongest frequency.
    spectrum_db
        Mean level of speech in each of :data:`BANDS_HZ`. NaN above half the sample rate.
    """

    audio_seconds: float
    loudness_lufs: float
    true_peak_dbtp: float
    clipped_fraction: float
    silence_start_s: float
    silence_end_s: float
    silence_inside_s: float
    end_db: float
    snr_db: float
    bandwidth_hz: float
    spectrum_db: NDArray[np.float16]


def measure_clip(samples: ArrayLike, sample_rate_hz: int) -> ClipMeasures:
    """Return the measures of a clip: float32 in [-1, 1], ``(frames,)`` or ``(frames, channels)``."""
    array = mix_channels(samples)
    seconds = len(array) / sample_rate_hz
    level_db = measure_frame_levels_db(array, sample_rate_hz, _STEP_MS)
    quiet_db, speech_db = np.percentile(level_db, [5, 95])
    spans = find_silences(array, sample_rate_hz, shortest_ms=_STEP_MS)
    end = array[-max(1, round(sample_rate_hz * _END_MS / 1000)) :]
    power, frequencies_hz = _measure_power(array, sample_rate_hz)
    heard_hz = frequencies_hz[power >= power.max() * 10 ** (-_BANDWIDTH_DB / 10)]
    return ClipMeasures(
        audio_seconds=seconds,
        loudness_lufs=measure_loudness_lufs(array, sample_rate_hz),
        true_peak_dbtp=measure_true_peak_dbtp(samples),
        clipped_fraction=_measure_flat_tops(array),
        silence_start_s=next((stop for start, stop in spans if start == 0), 0.0),
        silence_end_s=next((stop - start for start, stop in spans if stop >= seconds), 0.0),
        silence_inside_s=max(
            (stop - start for start, stop in spans if start > 0 and stop < seconds), default=0.0
        ),
        end_db=float(convert_to_db(np.mean(np.square(end, dtype=np.float64))) - speech_db),
        snr_db=float(speech_db - quiet_db),
        bandwidth_hz=float(heard_hz[-1]) if power.max() > 0 else 0.0,
        spectrum_db=_measure_bands(power, frequencies_hz),
    )


def measure_true_peak_dbtp(samples: ArrayLike) -> float:
    """Return the peak between samples, too, in dB below full scale, at four times the sample rate.

    Examples
    --------
    >>> tone = 0.5 * np.sin(np.pi / 4 + np.pi / 2 * np.arange(4800)).astype(np.float32)
    >>> round(measure_true_peak_dbtp(tone)), round(20 * np.log10(np.abs(tone).max()))
    (-6, -9)
    """
    array = check_samples(samples)
    found = 0.0
    for channel in array.reshape(len(array), -1).T:
        padded = np.pad(np.abs(channel), (0, 1))
        peak = float(padded.max())
        near = np.flatnonzero(np.maximum(padded[:-1], padded[1:]) >= _NEAR_PEAK * max(peak, found))
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(channel, (_TAPS // 2 - 1, _TAPS // 2)), _TAPS
        )
        found = max(found, peak, float(np.abs(windows[near] @ _design_phases()).max(initial=0.0)))
    return float(convert_to_db(found**2))


@cache
def _design_phases() -> Samples:
    """Return the taps of the filters for the three places between two samples, one a column."""
    distance = np.arange(_TAPS)[:, None] - (_TAPS // 2 - 1) - np.arange(1, _PHASES) / _PHASES
    taps = np.sinc(distance) * np.i0(5.0 * np.sqrt(1 - (distance / (_TAPS / 2)) ** 2))
    return np.asarray(taps / taps.sum(axis=0), np.float32)


def _measure_flat_tops(samples: Samples) -> float:
    """Return the share of samples in flat tops at the clip's own peak. A later gain hides nothing."""
    magnitude = np.abs(samples)
    places = np.flatnonzero(magnitude >= magnitude.max() - _FLAT_STEP)
    is_new = (np.diff(places) > 1) | np.diff(np.signbit(samples[places]))
    lengths = np.diff(np.flatnonzero(np.concatenate([[True], is_new, [True]])))
    return float(lengths[lengths >= _FLAT_RUN].sum() / len(samples))


def _measure_power(samples: Samples, sample_rate_hz: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean power spectrum of the windows with speech, and its frequencies in Hz."""
    size = 1 << round(np.log2(sample_rate_hz * _WINDOW_MS / 1000))
    windows = np.pad(samples, (0, -len(samples) % size)).reshape(-1, size) * _make_window(size)
    power = np.abs(np.fft.rfft(windows, axis=1)) ** 2
    total = power.sum(axis=1)
    is_speech = total >= total.max() * 10 ** (-_SPEECH_DB / 10)
    mean = power[is_speech].mean(axis=0, dtype=np.float64)
    return mean, np.asarray(np.fft.rfftfreq(size, 1 / sample_rate_hz), np.float64)


@cache
def _make_window(size: int) -> Samples:
    return np.hanning(size).astype(np.float32)


def _measure_bands(power: NDArray[np.float64], frequencies_hz: NDArray[np.float64]) -> NDArray[np.float16]:
    """Return the mean level of each band in dB. A band is a sixth of an octave, and at least two bins."""
    step_hz = frequencies_hz[1]
    low = np.minimum(BANDS_HZ * 2 ** (-1 / 12), BANDS_HZ - step_hz)
    high = np.maximum(BANDS_HZ * 2 ** (1 / 12), BANDS_HZ + step_hz)
    edges, sums = (
        np.append(frequencies_hz - step_hz / 2, frequencies_hz[-1]),
        np.append(0.0, np.cumsum(power)),
    )
    bands = (np.interp(high, edges, sums) - np.interp(low, edges, sums)) * step_hz / (high - low)
    level_db = convert_to_db(np.maximum(bands, bands.max() * 10 ** (-_BOTTOM_DB / 10)))
    return np.where(frequencies_hz[-1] > BANDS_HZ, level_db, np.nan).astype(np.float16)
