"""What is done to the sounds of a listening test: how loud they are, and the anchors made of a reference."""

from math import ceil
from typing import Any

import numpy as np

from speechframe.audio.codec import Samples
from speechframe.errors import AudioError

__all__ = ["ANCHORS", "TARGET_LUFS", "loudness_lufs", "low_passed"]

TARGET_LUFS = -23.0
"""How loud the sounds of a test are (EBU R 128), unless that would make a peak of one of them clip."""

ANCHORS = {"anchor 3.5 kHz": 3500.0, "anchor 7 kHz": 7000.0}
"""The anchors of MUSHRA (ITU-R BS.1534-3): up to which frequency in Hz each holds the reference."""

_BLOCK_S, _STEP_S = 0.4, 0.1
"""Gating blocks of BS.1770, and how far apart they begin."""

_STOP_DB = 60.0
_TRANSITION_HZ = 500.0
"""BS.1534-3 wants 25 dB at 4 kHz and 50 dB at 4.5 kHz; this filter is through at 4 kHz."""


def loudness_lufs(samples: Samples, sample_rate_hz: int) -> float:
    """Return how loud a sound is by ITU-R BS.1770, in LUFS: gated, so that pauses do not count.

    What is shorter than a gating block (.4 s) is measured as if it were repeated.

    Parameters
    ----------
    samples
        float32, shape ``(frames,)``.
    sample_rate_hz
        Their rate.

    Raises
    ------
    AudioError
        When there is nothing but silence.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 997 * np.arange(48000) / 48000).astype(np.float32)
    >>> round(loudness_lufs(tone, 48000))
    -3
    """
    peak = float(np.abs(samples).max(initial=0.0))
    if not peak:
        raise AudioError("there is nothing but silence, which has no loudness")
    # At full scale: the absolute gate is meant for programmes, not for clips that somebody stored softly.
    # In doubles, because the filters are recursive.
    found = _meter(sample_rate_hz).integrated_loudness(_whole_blocks(samples, sample_rate_hz) / peak)
    return float(found) + 20 * float(np.log10(peak))


def low_passed(samples: Samples, sample_rate_hz: int, cutoff_hz: float) -> Samples:
    """Return samples without what lies above a frequency, as long as they were and not delayed.

    Flat to .1 dB up to `cutoff_hz`, down 60 dB from 500 Hz above it.

    Raises
    ------
    AudioError
        When the rate leaves nothing to take away, so that it would be no anchor.

    Examples
    --------
    >>> low_passed(np.ones(24000, np.float32), 24000, 3500.0).shape
    (24000,)
    """
    if cutoff_hz + _TRANSITION_HZ >= sample_rate_hz / 2:
        raise AudioError(
            f"a reference at {sample_rate_hz:,} Hz holds nothing above {sample_rate_hz / 2:,.0f} Hz, so that "
            f"its anchor at {cutoff_hz:,.0f} Hz would be the reference itself"
        )
    from scipy import signal

    taps, beta = signal.kaiserord(_STOP_DB, _TRANSITION_HZ / (sample_rate_hz / 2))
    # An odd number of taps delays by whole frames, which "same" takes back.
    kernel = signal.firwin(
        taps | 1, cutoff_hz + _TRANSITION_HZ / 2, window=("kaiser", beta), fs=sample_rate_hz
    )
    return np.asarray(signal.fftconvolve(samples.astype(np.float64), kernel, mode="same"), np.float32)


def _whole_blocks(samples: Samples, sample_rate_hz: int) -> Any:
    """Return samples cut to whole gating blocks: the standard leaves out what remains at the end."""
    block, step = ceil(_BLOCK_S * sample_rate_hz), ceil(_STEP_S * sample_rate_hz)
    if len(samples) < block:
        return np.resize(samples, block).astype(np.float64)
    return samples[: block + (len(samples) - block) // step * step].astype(np.float64)


def _meter(sample_rate_hz: int) -> Any:
    try:
        import pyloudnorm
    except ModuleNotFoundError as error:
        raise AudioError(
            "pyloudnorm is needed to make sounds equally loud: pip install 'speechframe[listening]'"
        ) from error
    return pyloudnorm.Meter(sample_rate_hz)
