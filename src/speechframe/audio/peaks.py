"""The outline of a waveform, small enough to be sent for every clip of a page."""

import numpy as np
from numpy.typing import ArrayLike

from speechframe.audio._samples import checked, mixed

PEAK_BINS = 800
"""Pairs a clip: two for each pixel of the widest waveform that is drawn would be seen by nobody."""


def peaks(samples: ArrayLike, bins: int = PEAK_BINS) -> bytes:
    """Return the lowest and the highest value of each of `bins` equal stretches of time.

    Parameters
    ----------
    samples
        float32 in [-1, 1], shape ``(frames,)`` or ``(frames, channels)``; channels are mixed.
    bins
        How many stretches; no more than there are frames.

    Returns
    -------
    bytes
        int8 pairs (lowest, highest), 127 is full scale: two bytes a stretch.

    Examples
    --------
    >>> list(np.frombuffer(peaks(np.array([0.0, 0.5, -1.0, 1.0], np.float32), bins=2), np.int8))
    [np.int8(0), np.int8(64), np.int8(-127), np.int8(127)]
    """
    values = mixed(checked(samples))
    edges = np.linspace(0, len(values), min(bins, len(values)) + 1).astype(np.int64)[:-1]
    low, high = np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)
    pairs = np.stack([low, high], axis=1).clip(-1.0, 1.0) * 127
    return pairs.round().astype(np.int8).tobytes()
