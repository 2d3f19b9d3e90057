"""Make the anchors of a listening test from a reference."""

import numpy as np

from speechframe.audio.codec import Samples
from speechframe.errors import AudioError

TARGET_LUFS = -23.0
"""Loudness of the sounds of a test in LUFS (EBU R 128). All are softer if one of them would clip."""

ANCHOR_CUTOFFS_HZ = {"anchor 3.5 kHz": 3500.0, "anchor 7 kHz": 7000.0}
"""The anchors of MUSHRA (ITU-R BS.1534-3), with their cutoff frequencies in Hz."""

_STOP_DB = 60.0
"""Attenuation of the anchor filter above its transition band, in dB."""

_TRANSITION_HZ = 500.0
"""Width of the transition band. So the lower anchor has 60 dB at 4 kHz, where BS.1534-3 requires 25 dB."""


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
