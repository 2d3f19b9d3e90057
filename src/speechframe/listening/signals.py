"""Measure the loudness of the sounds of a listening test, and make anchors from a reference."""

from math import ceil
from typing import Any

import numpy as np

from speechframe.audio.codec import Samples
from speechframe.errors import AudioError

__all__ = ["ANCHOR_CUTOFFS_HZ", "TARGET_LUFS", "apply_low_pass", "measure_loudness_lufs"]

TARGET_LUFS = -23.0
"""Loudness of the sounds of a test in LUFS (EBU R 128). All are softer if one of them would clip."""

ANCHOR_CUTOFFS_HZ = {"anchor 3.5 kHz": 3500.0, "anchor 7 kHz": 7000.0}
"""The anchors of MUSHRA (ITU-R BS.1534-3), with their cutoff frequencies in Hz."""

_BLOCK_S, _STEP_S = 0.4, 0.1
"""Length of a gating block of BS.1770, and distance between the starts of two blocks, in seconds."""

_STOP_DB = 60.0
"""Attenuation of the anchor filter above its transition band, in dB."""

_TRANSITION_HZ = 500.0
"""Width of the transition band. So the lower anchor has 60 dB at 4 kHz, where BS.1534-3 requires 25 dB."""


def measure_loudness_lufs(samples: Samples, sample_rate_hz: int) -> float:
    """Return the gated loudness of a sound by ITU-R BS.1770, in LUFS. Pauses do not count.

    A sound shorter than a gating block (0.4 s) is measured as if it were repeated.

    Parameters
    ----------
    samples
        float32, shape ``(frames,)``.
    sample_rate_hz
        Sample rate of the sound.

    Raises
    ------
    AudioError
        The sound is silent.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 997 * np.arange(48000) / 48000).astype(np.float32)
    >>> round(measure_loudness_lufs(tone, 48000))
    -3
    """
    peak = float(np.abs(samples).max(initial=0.0))
    if not peak:
        raise AudioError("the clip is silent, so it does not have a loudness; leave it out or replace it")
    # The sound is scaled to a peak of 1, so that the absolute gate of BS.1770 does not remove soft clips.
    # The filters of BS.1770 are recursive, so they need float64.
    found = _make_loudness_meter(sample_rate_hz).integrated_loudness(
        _cut_to_whole_blocks(samples, sample_rate_hz) / peak
    )
    return float(found) + 20 * float(np.log10(peak))


def apply_low_pass(samples: Samples, sample_rate_hz: int, cutoff_hz: float) -> Samples:
    """Return low-passed samples with the same length and without delay.

    The filter is flat within 0.1 dB up to `cutoff_hz`. It attenuates by 60 dB from `cutoff_hz` + 500 Hz.

    Raises
    ------
    AudioError
        The sample rate is too low, so the filter would not remove anything.

    Examples
    --------
    >>> apply_low_pass(np.ones(24000, np.float32), 24000, 3500.0).shape
    (24000,)
    """
    if cutoff_hz + _TRANSITION_HZ >= sample_rate_hz / 2:
        raise AudioError(
            f"a reference at {sample_rate_hz:,} Hz has nothing above {sample_rate_hz / 2:,.0f} Hz, so its "
            f"anchor at {cutoff_hz:,.0f} Hz would sound like the reference; use a reference with a higher "
            'sample rate, or method="multi"'
        )
    from scipy import signal

    taps, beta = signal.kaiserord(_STOP_DB, _TRANSITION_HZ / (sample_rate_hz / 2))
    # A filter with an odd number of taps delays by whole frames. The mode "same" removes this delay.
    kernel = signal.firwin(
        taps | 1, cutoff_hz + _TRANSITION_HZ / 2, window=("kaiser", beta), fs=sample_rate_hz
    )
    return np.asarray(signal.fftconvolve(samples.astype(np.float64), kernel, mode="same"), np.float32)


def _cut_to_whole_blocks(samples: Samples, sample_rate_hz: int) -> Any:
    """Return samples cut to whole gating blocks, because the standard ignores an incomplete last block.

    Samples that are shorter than one block are repeated until they fill the block.
    """
    block, step = ceil(_BLOCK_S * sample_rate_hz), ceil(_STEP_S * sample_rate_hz)
    if len(samples) < block:
        return np.resize(samples, block).astype(np.float64)
    return samples[: block + (len(samples) - block) // step * step].astype(np.float64)


def _make_loudness_meter(sample_rate_hz: int) -> Any:
    try:
        import pyloudnorm
    except ModuleNotFoundError as error:
        raise AudioError(
            "pyloudnorm is needed to make sounds equally loud: pip install 'speechframe[listening]'"
        ) from error
    return pyloudnorm.Meter(sample_rate_hz)
