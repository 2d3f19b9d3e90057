"""Computation of the outline of a waveform, which is small enough for every clip of a page."""

import numpy as np
from numpy.typing import ArrayLike

from speechframe.audio._samples import check_samples, mix_channels

PEAK_BINS = 800
"""Default number of stretches. The widest waveform has no more pixels."""


def compute_peaks(samples: ArrayLike, bins: int = PEAK_BINS) -> bytes:
    """Return the lowest and the highest value in each of `bins` equal stretches of time.

    Parameters
    ----------
    samples
        float32 in [-1, 1], shape ``(frames,)`` or ``(frames, channels)``. Channels are mixed.
    bins
        Number of stretches (default 800). Shorter audio has one stretch for each frame.

    Returns
    -------
    bytes
        Pairs of int8 (lowest, highest), two bytes for each stretch. 127 is full scale.

    Examples
    --------
    >>> list(np.frombuffer(compute_peaks(np.array([0.0, 0.5, -1.0, 1.0], np.float32), bins=2), np.int8))
    [np.int8(0), np.int8(64), np.int8(-127), np.int8(127)]
    """
    values = mix_channels(check_samples(samples))
    edges = np.linspace(0, len(values), min(bins, len(values)) + 1).astype(np.int64)[:-1]
    low, high = np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)
    pairs = np.stack([low, high], axis=1).clip(-1.0, 1.0) * 127
    return pairs.round().astype(np.int8).tobytes()
