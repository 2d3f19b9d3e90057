"""Checks of samples, mixing of channels, and the rounding of seconds to frames."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speechframe.errors import AudioError

Samples = NDArray[np.float32]
"""float32 in [-1, 1], shape ``(frames,)`` for mono or ``(frames, channels)``."""


def convert_seconds_to_frames(seconds: float, sample_rate_hz: int) -> int:
    """Return the number of frames of a length in seconds, rounded to the nearest integer, with halves up.

    All modules round with this function, so that their results never differ by a frame.

    Examples
    --------
    >>> convert_seconds_to_frames(0.5, 22050), convert_seconds_to_frames(1.15, 44100)
    (11025, 50715)
    """
    # Round to 6 digits first. Otherwise 1.15 * 44100 would be 50714.99999999999.
    return math.floor(round(seconds * sample_rate_hz, 6) + 0.5)


def check_samples(samples: ArrayLike) -> Samples:
    """Return samples as a float32 array with one or two dimensions and at least one frame.

    Raise AudioError for other shapes, for integers, and for NaN and infinite values.
    """
    array = np.asarray(samples)
    if array.ndim not in {1, 2} or array.size == 0:
        raise AudioError(
            f"samples have the shape {array.shape}. Give (frames,) or (frames, channels), and at least one "
            "frame."
        )
    if array.dtype.kind != "f":
        raise AudioError(f"samples are {array.dtype}. Give float32 in [-1, 1].")
    array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise AudioError("samples have NaN or infinite values. Give finite values only.")
    return array


class Mixer:
    """Mixer of channels to their mean, block by block. It inverts a channel with the opposite polarity first.

    Otherwise two channels with opposite polarity would cancel each other, and their mean would be silent.
    """

    _INVERT_BELOW, _RESTORE_ABOVE = -0.9, -0.5
    """Limits of the correlation with the reference channel.

    Below the first limit a channel is inverted. Above the second limit it is not inverted any more.
    """
    _PIECE_FRAMES, _HALF_LIFE_FRAMES = 4096, 4096
    _AUDIBLE_SHARE = 0.25
    """The reference channel is the first with at least this share of the power of the loudest channel."""

    def __init__(self) -> None:
        self._products: NDArray[np.float32] | None = None
        self._is_inverted: NDArray[np.bool_] | None = None

    def add(self, block: Samples) -> Samples:
        """Return a block of shape ``(frames, channels)`` as ``(frames,)``."""
        if block.shape[1] == 1:
            return block[:, 0]
        pieces = [block[at : at + self._PIECE_FRAMES] for at in range(0, len(block), self._PIECE_FRAMES)]
        # Ignore values that are not finite, because the caller refuses them in the result.
        with np.errstate(all="ignore"):
            return np.concatenate([np.zeros(0, np.float32), *map(self._mix_piece, pieces)])

    def _mix_piece(self, piece: Samples) -> Samples:
        products = piece.T @ piece
        if self._products is not None:
            products += self._products * 0.5 ** (len(piece) / self._HALF_LIFE_FRAMES)
        self._products, powers = products, np.diagonal(products)
        reference = int(np.argmax(powers >= self._AUDIBLE_SHARE * powers.max()))
        correlation = products[reference] / np.sqrt(np.maximum(powers[reference] * powers, 1e-12))
        before = np.zeros(len(powers), bool) if self._is_inverted is None else self._is_inverted
        self._is_inverted = correlation < np.where(before, self._RESTORE_ABOVE, self._INVERT_BELOW)
        # Use a matrix product, because it is far faster than a mean over the channels.
        factors = np.where(self._is_inverted, -1 / len(powers), 1 / len(powers)).astype(np.float32)
        mean: Samples = piece @ factors
        return mean


def average_channels(samples: ArrayLike) -> Samples:
    """Check samples, and return the mean of all channels, shape ``(frames,)``."""
    array = check_samples(samples)
    return array if array.ndim == 1 else array.mean(axis=1, dtype=np.float32)


def mix_channels(samples: ArrayLike) -> Samples:
    """Check samples, and return them as one channel. Opposite polarities do not cancel (:class:`Mixer`)."""
    array = check_samples(samples)
    return array if array.ndim == 1 else Mixer().add(array)


def fit_length(samples: Samples, frames: int) -> Samples:
    """Return exactly `frames` frames. Longer audio is cut, and shorter audio is filled with silence."""
    if len(samples) >= frames:
        return samples[:frames]
    padding = [(0, frames - len(samples))] + [(0, 0)] * (samples.ndim - 1)
    return np.pad(samples, padding)
