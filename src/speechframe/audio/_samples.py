"""What every function of the room asks of its samples, and the one rounding of seconds to frames."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speechframe.errors import AudioError

Samples = NDArray[np.float32]
"""float32 in [-1, 1], shape ``(frames,)`` for mono or ``(frames, channels)``."""


def seconds_to_frames(seconds: float, sample_rate_hz: int) -> int:
    """Return how many frames a length has: the nearest whole number, halves up.

    The one rounding of the library, so that two rooms never differ by a frame.

    Parameters
    ----------
    seconds
        A length in seconds, not negative.
    sample_rate_hz
        Frames per second.

    Examples
    --------
    >>> seconds_to_frames(0.5, 22050), seconds_to_frames(1.15, 44100)
    (11025, 50715)
    """
    # 1.15 * 44100 is 50714.99999999999: what is left of a binary fraction must not decide about a frame.
    return math.floor(round(seconds * sample_rate_hz, 6) + 0.5)


def checked(samples: ArrayLike) -> Samples:
    """Return samples as a float32 array of one or two dimensions with at least one frame, all finite.

    Raises
    ------
    AudioError
        No frames, integers, more than two dimensions, or values that are no numbers.
    """
    array = np.asarray(samples)
    if array.ndim not in {1, 2} or array.size == 0:
        raise AudioError(
            f"samples of shape {array.shape}; (frames,) or (frames, channels) is needed, not empty"
        )
    if array.dtype.kind != "f":
        raise AudioError(f"samples are {array.dtype}; float32 in [-1, 1] is needed")
    array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise AudioError("samples hold NaN or infinite values")
    return array


def mono(samples: ArrayLike) -> Samples:
    """Return checked samples as one channel: the mean of all channels."""
    array = checked(samples)
    return array if array.ndim == 1 else array.mean(axis=1, dtype=np.float32)


def fitted(samples: Samples, frames: int) -> Samples:
    """Return samples cut, or filled up with silence, to a number of frames."""
    if len(samples) >= frames:
        return samples[:frames]
    padding = [(0, frames - len(samples))] + [(0, 0)] * (samples.ndim - 1)
    return np.pad(samples, padding)
