"""Measurement of level, loudness, clipping, silence, pitch and formants.

Samples are float32 in [-1, 1], ``(frames,)`` or ``(frames, channels)``. Levels are in dB
relative to full scale. A sine at full scale has an rms level of -3 dB.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speechframe.audio._formants import measure_formants_hz
from speechframe.audio._pitch import f0_track, median_f0_hz
from speechframe.audio._samples import Samples, check_samples, mix_channels

# Names of other modules that callers import from here.
__all__ = ["f0_track", "measure_formants_hz", "median_f0_hz"]

Array = NDArray[np.float64]

FLOOR_DB = -120.0
"""Level of silence in dB. Lower levels are raised to it, because zero has no logarithm."""

_LOUDNESS_STEP_MS, _LOUDNESS_STEPS = 100.0, 4
"""Blocks of BS.1770 are 0.4 s long, and one begins every 0.1 s."""
_LOUDNESS_GATE_LU = 10.0
"""Blocks this many LU below the mean are not used (BS.1770)."""
_MAX_BELOW_LOUDEST_LU = 60.0
"""Blocks this many LU below the loudest block are not used."""
_LOUDNESS_OFFSET_LU = -0.691
"""Constant of BS.1770 that is added to the level, in LU."""
_K_RATE_HZ = 48_000
_K_FILTERS = (
    ((1.53512485958697, -2.69169618940638, 1.19839281085285), (1.0, -1.69065929318241, 0.73248077421585)),
    ((1.0, -2.0, 1.0), (1.0, -1.99004745483398, 0.99007225036621)),
)
"""Filters of BS.1770 at 48000 Hz, each as numerator and denominator."""
_FRAMES_AT_ONCE = 4096
"""Number of level frames that are computed at a time, which limits the memory."""
_SPECTRUM_SAMPLES_AT_ONCE = 1 << 20
"""Number of samples whose spectra are computed at a time, which limits the memory."""


def measure_peak(samples: ArrayLike) -> float:
    """Return the largest absolute value. Valid samples give 0 to 1.

    Examples
    --------
    >>> measure_peak(np.array([0.25, -0.5], np.float32))
    0.5
    """
    return float(np.abs(check_samples(samples)).max())


def measure_rms_db(samples: ArrayLike) -> float:
    """Return the mean level of the whole audio in dB relative to full scale.

    Examples
    --------
    >>> measure_rms_db(np.full(100, 0.1, np.float32)), measure_rms_db(np.zeros(100, np.float32))
    (-20.0, -120.0)
    """
    return round(float(convert_to_db(np.mean(np.square(check_samples(samples), dtype=np.float64)))), 6)


def measure_loudness_lufs(samples: ArrayLike, sample_rate_hz: int) -> float:
    """Return the loudness of speech in LUFS by ITU-R BS.1770. Pauses do not count.

    The standard ignores sound below -70 LUFS. Here the limit is 60 LU below the loudest block instead,
    because clips may be very soft. Audio shorter than a block (0.4 s) is measured as if it were repeated.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 997 * np.arange(48000) / 48000).astype(np.float32)
    >>> before_silence = np.pad(tone, (0, 96000))
    >>> [round(measure_loudness_lufs(samples, 48000), 1) for samples in (tone, before_silence)]
    [-3.0, -3.7]
    """
    array = mix_channels(samples)
    size = _compute_frame_length(sample_rate_hz, _LOUDNESS_STEP_MS)
    array = np.resize(array, max(len(array), _LOUDNESS_STEPS * size))
    weights = _compute_k_weights(size, sample_rate_hz)
    # Compute in pieces, because spectra take several times the memory of the samples.
    pieces = np.array_split(
        array[: len(array) // size * size].reshape(-1, size), -(-len(array) // _SPECTRUM_SAMPLES_AT_ONCE)
    )
    power = np.concatenate([np.abs(np.fft.rfft(piece, axis=1)) ** 2 @ weights for piece in pieces])
    blocks = np.convolve(power, np.full(_LOUDNESS_STEPS, 1 / _LOUDNESS_STEPS), mode="valid")
    audible = blocks[blocks >= blocks.max() * 10 ** (-_MAX_BELOW_LOUDEST_LU / 10)]
    loud = audible[audible >= audible.mean() * 10 ** (-_LOUDNESS_GATE_LU / 10)]
    return float(convert_to_db(loud.mean())) + _LOUDNESS_OFFSET_LU


def _compute_k_weights(size: int, sample_rate_hz: int) -> Array:
    """Return the weight of each bin of a spectrum of ``size`` frames, by the two filters of BS.1770."""
    turn = np.exp(-2j * np.pi * np.fft.rfftfreq(size, 1 / sample_rate_hz) / _K_RATE_HZ)
    answer = np.prod([np.polyval(b[::-1], turn) / np.polyval(a[::-1], turn) for b, a in _K_FILTERS], axis=0)
    # Each bin also stands for its negative frequency, so its power counts twice. This is wrong for the first
    # and the last bin, but speech has almost no power there.
    return np.asarray(2 * np.abs(answer) ** 2 / size**2, np.float64)


def measure_frame_levels_db(samples: ArrayLike, sample_rate_hz: int, frame_ms: float = 10.0) -> Array:
    """Return the level of each frame of ``frame_ms`` milliseconds in dB relative to full scale.

    Frame k begins at ``k * frame_ms``. The last frame may be shorter.

    Examples
    --------
    >>> measure_frame_levels_db(np.array([0.1] * 100 + [0.0] * 100, np.float32), 10_000).tolist()
    [-20.0, -120.0]
    """
    return np.round(convert_to_db(_compute_frame_power(mix_channels(samples), sample_rate_hz, frame_ms)), 6)


def measure_clipped_fraction(samples: ArrayLike) -> float:
    """Return the share of samples at full scale, 0 to 1.

    Examples
    --------
    >>> measure_clipped_fraction(np.array([1.0, -1.0, 0.5, 0.0], np.float32))
    0.5
    """
    return float((np.abs(check_samples(samples)) >= 32767 / 32768).mean())


def find_silences(
    samples: ArrayLike,
    sample_rate_hz: int,
    *,
    shortest_ms: float = 50.0,
    below_db: float = 45.0,
    frame_ms: float = 5.0,
) -> list[tuple[float, float]]:
    """Return the start and end of each silence in seconds.

    Parameters
    ----------
    samples, sample_rate_hz
        Samples, and their rate in Hz.
    shortest_ms
        Shortest returned silence in milliseconds (default 50). The closure of a plosive is shorter.
    below_db
        A frame is silent if it is this many dB below the loudest frame (default 45).
    frame_ms
        Length of a frame in milliseconds (default 5).

    Examples
    --------
    >>> find_silences(np.array([0.5] * 1000 + [0.0] * 500, np.float32), 1000)
    [(1.0, 1.5)]
    """
    array = mix_channels(samples)
    level_db = measure_frame_levels_db(array, sample_rate_hz, frame_ms)
    silent = level_db <= max(level_db.max() - below_db, FLOOR_DB)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], silent, [False]]).astype(np.int8)))
    audio_seconds = len(array) / sample_rate_hz
    spans_s = edges.reshape(-1, 2) * _compute_frame_length(sample_rate_hz, frame_ms) / sample_rate_hz
    return [
        (float(start_s), min(float(end_s), audio_seconds))
        for start_s, end_s in spans_s
        if end_s - start_s >= shortest_ms / 1000
    ]


def _compute_frame_length(sample_rate_hz: int, frame_ms: float) -> int:
    return max(1, round(sample_rate_hz * frame_ms / 1000))


def _compute_frame_power(samples: Samples, sample_rate_hz: int, frame_ms: float) -> Array:
    length = _compute_frame_length(sample_rate_hz, frame_ms)
    starts = np.arange(0, len(samples), length)
    # Compute in blocks, because the squares take twice the memory of the samples.
    size = length * _FRAMES_AT_ONCE
    blocks = (samples[start : start + size] for start in range(0, len(samples), size))
    sums = [
        np.add.reduceat(np.square(some, dtype=np.float64), starts[: -(-len(some) // length)])
        for some in blocks
    ]
    return np.asarray(np.concatenate(sums) / np.diff(np.append(starts, len(samples))), np.float64)


def convert_to_db(power: ArrayLike) -> Array:
    """Return powers as levels in dB, at least :data:`FLOOR_DB`."""
    return np.asarray(10 * np.log10(np.maximum(power, 10 ** (FLOOR_DB / 10))), np.float64)
