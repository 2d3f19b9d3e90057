"""Change of the length of audio without a change of its pitch."""

import numpy as np
from numpy.typing import ArrayLike

from speechframe.audio._samples import Samples, check_samples, fit_length
from speechframe.errors import AudioError

_STRETCHER_SEED = 1
"""Seed of the random phases of the stretcher. It is fixed, so that equal input gives equal output."""


def fit_frames(samples: ArrayLike, sample_rate_hz: int, frames: int) -> Samples:
    """Stretch or shorten audio to exactly `frames` frames, with the same pitch.

    Parameters
    ----------
    samples
        float32 in [-1, 1], ``(frames,)`` or ``(frames, channels)``.
    sample_rate_hz
        Rate of the samples in Hz.
    frames
        Length of the result, at least one frame.

    Raises
    ------
    AudioError
        `frames` is below 1, the samples are invalid, or python-stretch is needed and not installed.

    Examples
    --------
    >>> tone = np.sin(np.arange(22050) / 22).astype(np.float32)
    >>> fit_frames(tone, 22050, 27563).shape
    (27563,)
    """
    array = check_samples(samples)
    if frames < 1:
        raise AudioError(f"audio cannot be fitted to {frames} frames. Give at least one.")
    if frames == len(array):
        return array
    try:
        from python_stretch import Signalsmith
    except ModuleNotFoundError as error:
        raise AudioError(
            "python-stretch is needed to fit a length: pip install 'speechframe[local]'"
        ) from error
    stretcher = Signalsmith.Stretch(_STRETCHER_SEED)
    channels = np.ascontiguousarray(array.T if array.ndim > 1 else array[None])
    stretcher.preset(len(channels), sample_rate_hz)
    stretcher.setTimeFactor(len(array) / frames)
    stretched = np.asarray(stretcher.process(channels), np.float32)
    return fit_length(stretched[0] if array.ndim == 1 else np.ascontiguousarray(stretched.T), frames)
