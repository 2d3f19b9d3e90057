"""Exact lengths: audio made longer or shorter without changing its pitch."""

import numpy as np
from numpy.typing import ArrayLike

from speechframe.audio._samples import Samples, checked, fitted, seconds_to_frames
from speechframe.errors import AudioError

_SEED = 1
"""The stretcher draws phases; with one seed equal input gives equal output."""


def fit_length(samples: ArrayLike, sample_rate_hz: int, seconds: float) -> Samples:
    """Return the audio with exactly ``seconds_to_frames(seconds)`` frames, its pitch kept.

    Parameters
    ----------
    samples
        float32 in [-1, 1], ``(frames,)`` or ``(frames, channels)``.
    sample_rate_hz
        Their rate.
    seconds
        The length to have, at least one frame.

    Raises
    ------
    AudioError
        A length below one frame, unusable samples, or no stretcher installed.

    Examples
    --------
    >>> tone = np.sin(np.arange(22050) / 22).astype(np.float32)
    >>> fit_length(tone, 22050, 1.25).shape
    (27563,)
    """
    return fit_frames(samples, sample_rate_hz, seconds_to_frames(seconds, sample_rate_hz))


def fit_frames(samples: ArrayLike, sample_rate_hz: int, frames: int) -> Samples:
    """Return the audio with exactly ``frames`` frames, its pitch kept; otherwise as :func:`fit_length`."""
    array = checked(samples)
    if frames < 1:
        raise AudioError(f"audio cannot be fitted to {frames} frames; at least one is needed")
    if frames == len(array):
        return array
    try:
        from python_stretch import Signalsmith
    except ModuleNotFoundError as error:
        raise AudioError(
            "python-stretch is needed to fit a length: pip install 'speechframe[local]'"
        ) from error
    stretcher = Signalsmith.Stretch(_SEED)
    channels = np.ascontiguousarray(array.T if array.ndim > 1 else array[None])
    stretcher.preset(len(channels), sample_rate_hz)
    stretcher.setTimeFactor(len(array) / frames)
    stretched = np.asarray(stretcher.process(channels), np.float32)
    return fitted(stretched[0] if array.ndim == 1 else np.ascontiguousarray(stretched.T), frames)
