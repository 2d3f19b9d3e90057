"""Computation of the outline of a waveform, which is small enough for every clip of a page."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speechframe.audio._samples import Samples, check_samples, mix_channels

_FLAT_STEP = 1 / 32768
"""Three samples in a row at the peak of the audio, equal within one step of 16 bits, are clipped."""
_MIN_CLIPPED_PEAK = 0.5
"""Softer audio does not count as clipped, because rounding makes its peaks flat."""
_CLIPPED = -128
"""Lowest and highest value of a stretch with clipped audio."""

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
        Pairs of int8 (lowest, highest), two bytes for each stretch. 127 is full scale. Both are -128 if the
        stretch has clipped audio, which is three samples in a row at the peak.

    Examples
    --------
    >>> list(np.frombuffer(compute_peaks(np.array([0.0, 0.5, -1.0, 1.0], np.float32), bins=2), np.int8))
    [np.int8(0), np.int8(64), np.int8(-127), np.int8(127)]
    """
    given = check_samples(samples)
    values = mix_channels(given)
    edges = np.linspace(0, len(values), min(bins, len(values)) + 1).astype(np.int64)[:-1]
    low, high = np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)
    pairs = np.stack([low, high], axis=1).clip(-1.0, 1.0) * 127
    outline = pairs.round().astype(np.int8)
    outline[_find_clipped(given, edges)] = _CLIPPED
    return outline.tobytes()


def _find_clipped(samples: Samples, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the stretches with clipped audio."""
    magnitude = np.abs(samples.reshape(len(samples), -1))
    at_peak = magnitude >= max(magnitude.max() - _FLAT_STEP, _MIN_CLIPPED_PEAK)
    runs = at_peak[2:] & at_peak[1:-1] & at_peak[:-2]
    return np.searchsorted(edges, np.flatnonzero(runs.any(axis=1)) + 1, side="right") - 1
