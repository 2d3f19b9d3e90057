"""Inspect clips and media files, compute their hashes, and read them piece by piece when they are sent."""

import asyncio
import hashlib
import io
import mmap
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import soundfile

from speechframe.audio.lengths import HEAD_BYTES, inspect_clip, recognise_media_type
from speechframe.errors import AudioError
from speechframe.spec.chosen import MAX_UPLOAD_BYTES
from speechframe.spec.dubbing import MEDIA_TYPES
from speechframe.wire.requests import FileForm

# Size of the pieces in which a file is read and sent.
PIECE_BYTES = 256 * 1024
# Media type to the extension of a file's name.
_SUFFIX_OF_TYPE = {"application/octet-stream": ".bin"} | {
    kind: suffix for suffix, kind in MEDIA_TYPES.items()
}
# Limits of an array of samples. A longer dimension than `_MAX_CHANNELS` counts as the frames.
_MAX_CHANNELS = 8
_RATES_HZ = range(4000, 192_001)
# Largest absolute float sample. Resampled audio may slightly exceed 1. Larger samples have another scale,
# such as that of int16.
_MAX_SAMPLE = 1.5
# Largest sample of 16 bits.
_FULL_SCALE = 32767


@dataclass(frozen=True, slots=True)
class Upload:
    """A clip or media file with its hash, size and length.

    The content is in the file `path`, or in `data` if `path` is None. `sha256` is in hexadecimal digits.
    `audio_seconds` is 0 for media, whose length is not measured.
    """

    sha256: str
    size_bytes: int
    audio_seconds: float
    media_type: str
    path: Path | None = None
    data: bytes = field(default=b"", repr=False)

    @property
    def name(self) -> str:
        """The file name to send. It depends only on the media type, so it does not reveal the real name."""
        kind = self.media_type.rpartition("/")[2].removeprefix("x-")
        return f"clip{_SUFFIX_OF_TYPE.get(self.media_type, f'.{kind}')}"


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a request: a file and the form around the file. The file is read while it is sent."""

    upload: Upload
    form: FileForm = field(repr=False)

    @property
    def size_bytes(self) -> int:
        """Size of the body in bytes, for ``Content-Length``."""
        return len(self.form.head) + self.upload.size_bytes + len(self.form.tail)

    async def read_pieces(self) -> AsyncIterator[bytes]:
        """Yield the body piece by piece.

        Raises AudioError before the end of the body if the file has changed or cannot be read. The service
        then gets no complete request, so nothing is billed.
        """
        clip, digest, size, unsent_head = self.upload, hashlib.sha256(), 0, self.form.head
        try:
            opened = await asyncio.to_thread(clip.path.open, "rb") if clip.path else io.BytesIO(clip.data)
            with opened as file:
                while size <= clip.size_bytes and (piece := await asyncio.to_thread(file.read, PIECE_BYTES)):
                    digest.update(piece)
                    size += len(piece)
                    # Do not send a piece beyond the announced length, because its bytes would complete the
                    # request.
                    if size <= clip.size_bytes:
                        yield unsent_head + piece
                        unsent_head = b""
        except OSError as error:
            raise AudioError(f"{clip.path} cannot be read: {error.strerror or error}") from None
        if size != clip.size_bytes or digest.hexdigest() != clip.sha256:
            raise AudioError(
                f"{clip.path or 'the clip'} has changed since it was checked, so it was not sent; pass it "
                "again to send its new content"
            )
        yield unsent_head + self.form.tail


def read_clip(audio: Any) -> Upload:
    """Return a clip given as bytes, as a path, or as a pair of an array and its rate in Hz.

    Raises AudioError if the clip is not audio, empty, too large or unreadable.
    """
    if isinstance(audio, (bytes, bytearray, memoryview)):
        return make_upload(bytes(audio))
    if isinstance(audio, tuple) and len(audio) == 2:  # noqa: PLR2004 - a pair
        return make_upload(encode_wav(*audio))
    if not isinstance(audio, (str, PathLike)):
        raise TypeError(f"audio must be bytes, a path or (array, rate in Hz), not {type(audio).__name__}")
    return _read_file(audio, _measure_clip)


def read_medium(media: Any) -> Upload:
    """Return a media file given as bytes or as a path. Its content and length are not checked.

    Raises AudioError if the file is empty, too large or unreadable.
    """
    if isinstance(media, (bytes, bytearray, memoryview)):
        data = bytes(media)
        _refuse_size(len(data))
        return Upload(hashlib.sha256(data).hexdigest(), len(data), 0.0, recognise_media_type(data), data=data)
    if not isinstance(media, (str, PathLike)):
        raise TypeError(f"media must be bytes, a path or a URL, not {type(media).__name__}")
    return _read_file(media, lambda _, head: (0.0, recognise_media_type(head)))


def _read_file(
    path: str | PathLike[str], inspect_content: Callable[[IO[bytes], bytes], tuple[float, str]]
) -> Upload:
    """Return a file, as :func:`_inspect_file` does. The message of each AudioError begins with the path."""
    path = Path(path).expanduser().absolute()
    try:
        return _inspect_file(path, inspect_content)
    except FileNotFoundError:
        raise AudioError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise AudioError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except AudioError as error:
        raise AudioError(f"{path}: {error}") from None


def _inspect_file(path: Path, inspect_content: Callable[[IO[bytes], bytes], tuple[float, str]]) -> Upload:
    """Return a file as an upload, with the hash of its content.

    `inspect_content` gets the open file and its first bytes, and returns its length in seconds and its media
    type.
    """
    # Check before opening, because a pipe would block and /dev/zero never ends.
    if path.exists() and not path.is_file():
        raise AudioError("a folder, not a file" if path.is_dir() else "not a regular file")
    size_bytes = path.stat().st_size
    _refuse_size(size_bytes)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        seconds, media_type = inspect_content(file, file.read(HEAD_BYTES))
    return Upload(sha256, size_bytes, seconds, media_type, path)


def _measure_clip(file: IO[bytes], _: bytes) -> tuple[float, str]:
    """Return the length of an audio file in seconds, and its media type."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        found = inspect_clip(cast("bytes", mapped))  # a map is sliced and searched like bytes
    return found.audio_seconds, found.media_type


def make_upload(data: bytes) -> Upload:
    """Return the clip that the bytes of an audio file contain, or raise AudioError."""
    _refuse_size(len(data))
    found, sha256 = inspect_clip(data), hashlib.sha256(data).hexdigest()
    return Upload(sha256, len(data), found.audio_seconds, found.media_type, data=data)


def _refuse_size(size_bytes: int) -> None:
    """Raise AudioError if a file is empty or too large."""
    if not size_bytes:
        raise AudioError("the file is empty; pass a file with audio")
    if size_bytes > MAX_UPLOAD_BYTES:
        raise AudioError(
            f"a file of {size_bytes:,} bytes is too large; at most {MAX_UPLOAD_BYTES:,} bytes are allowed"
        )


def encode_wav(samples: Any, sample_rate_hz: Any) -> bytes:
    """Return samples as a WAV file of 16 bits. Equal samples give equal bytes on every machine.

    `samples` have the shape ``(frames,)`` or ``(frames, channels)``, and are floats in [-1, 1] or int16. An
    array with at most 8 rows and more than 8 columns is read as ``(channels, frames)``. Any other array or
    rate raises AudioError.
    """
    rate, array = np.asarray(sample_rate_hz), np.asarray(samples)
    if rate.ndim or rate.dtype.kind not in "iuf" or rate not in _RATES_HZ:
        raise AudioError(
            f"the sample rate is {str(sample_rate_hz)[:40]}; allowed: {_RATES_HZ[0]} to {_RATES_HZ[-1]} Hz"
        )
    if array.ndim == 2 and array.shape[0] <= _MAX_CHANNELS < array.shape[1]:  # noqa: PLR2004
        array = array.T
    if array.ndim not in {1, 2} or not array.size or array.shape[1:] > (_MAX_CHANNELS,):
        raise AudioError(
            f"the array has the shape {array.shape}; allowed: (frames,) or (frames, channels), not empty, "
            f"with at most {_MAX_CHANNELS} channels"
        )
    if array.dtype != np.int16:
        if array.dtype.kind != "f":
            raise AudioError(f"the samples are {array.dtype}; allowed: floats in [-1, 1] or int16")
        # Do not write `peak > _LOUDEST`, which is false for NaN.
        if not (peak := float(np.abs(array).max())) <= _MAX_SAMPLE:
            raise AudioError(f"the largest sample is {peak:.4g}; allowed: floats in [-1, 1]")
        array = np.rint(np.clip(array, -1.0, 1.0) * _FULL_SCALE).astype(np.int16)
    buffer = io.BytesIO()
    soundfile.write(buffer, array, int(rate), format="WAV", subtype="PCM_16")
    return buffer.getvalue()
