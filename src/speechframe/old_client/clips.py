"""Clips that somebody brings, as what can be sent: looked at, measured, hashed."""

import hashlib
import io
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from speechframe.audio.lengths import length_of
from speechframe.errors import AudioError
from speechframe.old_client.upload import Upload
from speechframe.spec.chosen import MAX_UPLOAD_BYTES

__all__ = ["file_of_samples", "upload_of", "upload_of_bytes", "upload_of_path"]

MOST_CHANNELS = 8
_RATES_HZ = range(4000, 192_001)
_WHOLE_SCALE = {"int16": 1 << 15, "int32": 1 << 31}
_LOUDEST = 1.5
"""Resampling takes peaks a little over 1; values far beyond are on another scale."""


def upload_of(audio: Any) -> Upload:
    """Return a clip given as bytes, as a path, or as a pair of an array and its rate in Hz.

    Raises
    ------
    AudioError
        When it is no audio, or none that can be read here.
    TypeError
        For anything else.
    """
    if isinstance(audio, (bytes, bytearray, memoryview)):
        return upload_of_bytes(bytes(audio))
    if isinstance(audio, (str, PathLike)):
        return upload_of_path(Path(audio))
    if isinstance(audio, tuple) and len(audio) == 2:  # noqa: PLR2004 - a pair
        return upload_of_bytes(file_of_samples(*audio))
    raise TypeError(f"audio is bytes, a path or (array, rate in Hz), not {type(audio).__name__}")


def upload_of_bytes(data: bytes) -> Upload:
    """Return a clip that is in memory."""
    return _looked_at(data, None)


def upload_of_path(path: Path) -> Upload:
    """Return a clip that stays where it is; it is read once now, and again when it is sent."""
    path = path.expanduser().absolute()
    try:
        if path.is_dir():
            raise AudioError(f"{path} is a folder, not an audio file")
        _refuse_large(path.stat().st_size)
        data = path.read_bytes()
    except FileNotFoundError:
        raise AudioError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        words = getattr(error, "strerror", None) or error
        raise AudioError(f"{path} cannot be read: {words}") from None
    try:
        return _looked_at(data, path)
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from None


def _looked_at(data: bytes, path: Path | None) -> Upload:
    _refuse_large(len(data))
    found = length_of(data)
    return Upload(
        sha256=hashlib.sha256(data).hexdigest(),
        size_bytes=len(data),
        audio_seconds=found.audio_seconds,
        media_type=found.media_type,
        path=path,
        data=b"" if path is not None else data,
    )


def _refuse_large(size_bytes: int) -> None:
    if size_bytes > MAX_UPLOAD_BYTES:
        raise AudioError(
            f"a file of {size_bytes:,} bytes is too large; at most {MAX_UPLOAD_BYTES:,} bytes are taken"
        )


def file_of_samples(samples: Any, sample_rate_hz: Any) -> bytes:
    """Return samples as a WAV file of 16 bits: equal samples give equal bytes on every machine.

    Parameters
    ----------
    samples
        ``(frames,)`` or ``(frames, channels)``; floats in [-1, 1], or int16 or int32 in their full range. An
        array of few rows and many columns is taken for ``(channels, frames)``.
    sample_rate_hz
        4000 to 192000.

    Raises
    ------
    AudioError
        For samples of any other kind, values that are no numbers, or no samples at all.

    Examples
    --------
    >>> len(file_of_samples(np.zeros(800), 8000))
    1644
    """
    rate = np.asarray(sample_rate_hz)
    if rate.ndim or rate.dtype.kind not in "iuf" or rate not in _RATES_HZ:
        raise AudioError(
            f"a sample rate of {str(sample_rate_hz)[:40]}; allowed is {_RATES_HZ[0]} to {_RATES_HZ[-1]} Hz"
        )
    shaped = _frames_first(np.asarray(samples))
    buffer = io.BytesIO()
    soundfile.write(buffer, _as_int16(shaped), int(rate), format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def _frames_first(array: Any) -> Any:
    if array.ndim not in {1, 2} or not array.size:
        raise AudioError(
            f"an array of shape {array.shape}; (frames,) or (frames, channels) is needed, not empty"
        )
    if array.ndim == 2 and array.shape[0] <= MOST_CHANNELS < array.shape[1]:  # noqa: PLR2004
        array = array.T
    if array.ndim == 2 and array.shape[1] > MOST_CHANNELS:  # noqa: PLR2004
        raise AudioError(
            f"an array of shape {array.shape}: {array.shape[1]} channels, at most {MOST_CHANNELS}"
        )
    return array


def _as_int16(array: Any) -> Any:
    if array.dtype == np.int16:
        return array
    if (scale := _WHOLE_SCALE.get(array.dtype.name)) is not None:
        array = array / scale
    elif array.dtype.kind != "f":
        raise AudioError(f"samples are {array.dtype}; floats in [-1, 1], int16 or int32 are needed")
    elif not np.isfinite(array).all():
        raise AudioError("samples hold NaN or infinite values")
    elif (peak := float(np.abs(array).max())) > _LOUDEST:
        raise AudioError(f"samples go up to {peak:.4g}; floats in [-1, 1] are needed")
    return np.rint(np.clip(array, -1.0, 1.0) * (_WHOLE_SCALE["int16"] - 1)).astype(np.int16)
