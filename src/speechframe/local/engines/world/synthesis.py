"""Analyse a clip with WORLD, change it and synthesise the result, block by block.

For each frame of the result, CheapTrick computes the spectral envelope of the
clip, and D4C the aperiodicity (the share of noise). The pitch comes from the
measured track of the clip. Blocks are joined at unvoiced frames, so that no
period is cut.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speechframe.audio.codec import Samples
from speechframe.local.engines.world.change import Change
from speechframe.local.engines.world.signal import HOP_S, RATE_HZ, AnalysedClip, Array
from speechframe.local.engines.world.time import PERIOD_S

INSTALL_COMMAND = "pip install 'speechframe[local]'"
"""The command for error messages that installs pyworld."""

_PERIOD_FRAMES = round(PERIOD_S * RATE_HZ)
"""Samples in a frame of WORLD."""
_MAX_BLOCK_FRAMES = 4000
_MIN_BLOCK_FRAMES = 2000
"""Greatest and least length of a block in frames of 5 ms."""
_OVERLAP_FRAMES = 6
"""Frames by which a block extends beyond each of its ends, to be cross-faded."""
_MARGIN_S = 0.1
"""Seconds of the clip before and after a block that the analysis also gets."""

_FFT_SIZE = 1024
"""Size of the Fourier transform: half of WORLD's default, which halves the time. Below 71 Hz the window is a
little too short for the envelope. Recognisers do not notice this."""

_TILT_BOUNDS_HZ = (200.0, 6000.0)
"""Bounds of the frequencies that get a tilt. Outside, the change in dB is constant."""
_TILT_FADE_FRAMES = 5
"""Frames over which the tilt fades between voiced and unvoiced frames."""


def import_world() -> Any:
    """Return the module pyworld. Raise ModuleNotFoundError if it is not installed."""
    import pyworld

    return pyworld


def synthesise_clip(clip: AnalysedClip, change: Change, times_s: Array) -> Samples:
    """Return the samples of the changed clip, a frame of :data:`PERIOD_S` for each of `times_s`.

    Parameters
    ----------
    clip
        The clip.
    change
        The change of its pitch and spectrum.
    times_s
        Time in the clip for each frame of the result, from
        :func:`speechframe.local.engines.world.time.compute_source_times_s`.
    """
    f0_hz = _interpolate_f0_hz(clip, times_s)
    result = np.zeros(len(times_s) * _PERIOD_FRAMES, np.float32)
    for first, last in _split_blocks(f0_hz, _interpolate_level_db(clip, times_s)):
        start, stop = max(0, first - _OVERLAP_FRAMES), min(len(times_s), last + _OVERLAP_FRAMES)
        made = _synthesise_block(clip, change, times_s[start:stop], f0_hz[start:stop])
        made *= _compute_fades(len(made), rising=start > 0, falling=stop < len(times_s))
        window = result[start * _PERIOD_FRAMES :][: len(made)]
        window += made[: len(window)]
    return result


def _interpolate_f0_hz(clip: AnalysedClip, times_s: Array) -> Array:
    voiced = np.flatnonzero(clip.voiced)
    if not len(voiced):
        return np.zeros(len(times_s))
    moments = times_s / HOP_S
    nearest = np.minimum(np.rint(moments).astype(np.intp), len(clip.f0_hz) - 1)
    f0_hz = np.exp(np.interp(moments, voiced, np.log(clip.f0_hz[voiced])))
    return np.asarray(np.where(clip.voiced[nearest], f0_hz, 0.0), np.float64)


def _interpolate_level_db(clip: AnalysedClip, times_s: Array) -> Array:
    return np.interp(times_s / HOP_S - 0.5, np.arange(len(clip.level_db)), clip.level_db)


def _split_blocks(f0_hz: Array, level_db: Array) -> Iterator[tuple[int, int]]:
    """Yield first and end frame of each block. Blocks meet at the quietest unvoiced frame in reach."""
    first = 0
    while len(f0_hz) - first > _MAX_BLOCK_FRAMES:
        reach = slice(first + _MIN_BLOCK_FRAMES, first + _MAX_BLOCK_FRAMES)
        last = reach.start + int(np.argmin(level_db[reach] + np.where(f0_hz[reach] > 0, 200.0, 0.0)))
        yield first, last
        first = last
    yield first, len(f0_hz)


def _compute_fades(length: int, *, rising: bool, falling: bool) -> Array:
    """Return the weights of a block's samples. Overlapping blocks keep the power of noise constant."""
    weights = np.ones(length)
    ramp = np.sin(
        np.pi
        / 2
        * (np.arange(2 * _OVERLAP_FRAMES * _PERIOD_FRAMES) + 0.5)
        / (2 * _OVERLAP_FRAMES * _PERIOD_FRAMES)
    )
    if rising:
        weights[: len(ramp)] *= ramp[:length]
    if falling:
        weights[-len(ramp) :] *= ramp[::-1][-length:]
    return weights


def _synthesise_block(clip: AnalysedClip, change: Change, times_s: Array, f0_hz: Array) -> Array:
    """Analyse, change and synthesise one block. Return its samples."""
    start = max(0, int((times_s[0] - _MARGIN_S) * RATE_HZ))
    stop = int((times_s[-1] + _MARGIN_S) * RATE_HZ)
    signal = clip.samples[start:stop].astype(np.float64)
    at_s = times_s - start / RATE_HZ
    lowest_hz = 1 + import_world().get_cheaptrick_f0_floor(RATE_HZ, _FFT_SIZE)
    seen_hz = np.where(f0_hz > 0, np.maximum(f0_hz, lowest_hz), 0.0)
    envelope = import_world().cheaptrick(signal, seen_hz, at_s, RATE_HZ, fft_size=_FFT_SIZE)
    aperiodicity = _measure_aperiodicity(signal, f0_hz, at_s)
    _reshape_envelope(envelope, change, f0_hz > 0)
    return np.asarray(
        import_world().synthesize(
            change.convert_f0_hz(f0_hz), envelope, aperiodicity, RATE_HZ, 1000 * PERIOD_S
        ),
        np.float64,
    )


def _measure_aperiodicity(signal: Array, f0_hz: Array, at_s: Array) -> Array:
    """Return the share of noise in each frame and band.

    Only every other frame is measured, because this takes most of the time. The others are interpolated.
    """
    measured = import_world().d4c(
        signal, np.ascontiguousarray(f0_hz[::2]), np.ascontiguousarray(at_s[::2]), RATE_HZ, fft_size=_FFT_SIZE
    )
    share = np.ones((len(f0_hz), measured.shape[1]))
    share[::2] = measured
    between = np.arange(1, len(f0_hz), 2)
    before, after = between - 1, np.minimum(between + 1, 2 * (len(measured) - 1))
    before = np.where(f0_hz[before] > 0, before, after)
    after = np.where(f0_hz[after] > 0, after, before)
    share[between] = np.where((f0_hz[between] > 0)[:, None], (share[before] + share[after]) / 2, 1.0)
    return share


def _reshape_envelope(envelope: Array, change: Change, voiced: NDArray[np.bool_]) -> None:
    """Move the formants of a spectral envelope in place, and change the tilt of its voiced frames."""
    bins_hz = np.linspace(0, RATE_HZ / 2, envelope.shape[1])
    position = np.clip(change.map_to_source_hz(bins_hz) / bins_hz[1], 0, len(bins_hz) - 1)
    low = np.minimum(position.astype(np.intp), len(bins_hz) - 2)
    weight = position - low
    log_power = np.log(envelope)
    warped = log_power[:, low] * (1 - weight) + log_power[:, low + 1] * weight
    octaves = np.log2(np.clip(bins_hz, *_TILT_BOUNDS_HZ) / 1000)
    window = np.hanning(_TILT_FADE_FRAMES + 2)[1:-1]
    how_voiced = np.convolve(
        np.pad(voiced.astype(np.float64), _TILT_FADE_FRAMES // 2, mode="edge"), window / window.sum(), "valid"
    )
    warped += how_voiced[:, None] * (change.tilt_db * octaves * np.log(10) / 10)
    np.exp(warped, out=envelope)
