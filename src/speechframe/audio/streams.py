"""Encoding of samples as they arrive, to one file in one of the seven formats of the service.

Section 2.2 of the service document lists the formats.

The first bytes are returned before the length is known:

* WAV has a header of 44 bytes with an unknown length. PCM, ALAW and ULAW have no header.
* FLAC has short blocks, and a header without length and checksum, as its standard allows for streams.
* MP3 has only frames with sound. A first frame with the length is not possible, because the length is
unknown.
* OGG has its headers first, and then pages of 4 KB. The first sound is available after a whole page.

The bytes do not depend on the division of the samples into calls.
"""

import io
import struct
from typing import Any

import numpy as np
import soundfile
from numpy.typing import ArrayLike, NDArray

from speechframe.audio import _ogg
from speechframe.audio._rate import StreamResampler
from speechframe.audio._samples import Samples, average_channels, check_samples
from speechframe.audio.codec import get_file_type, get_forced_shape
from speechframe.errors import AudioError
from speechframe.spec.speech import ChannelType, Format
from speechframe.writing.words import format_count

_WAV_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
_UNKNOWN_SIZE = 0xFFFF_FFFF
_PCM_TAG, _FMT_BYTES, _SAMPLE_BYTES = 1, 16, 2
_FULL_SCALE = 32767
_MP3_HEADER_BYTES = 4
_MAX_WRITE_FRAMES = 1 << 16
_VORBIS_WRITE_FRAMES = 256
"""Number of frames in each write to the Vorbis encoder. Its output depends on this number."""
_FLAC_LEVEL = 0.0
"""Compression level with the shortest blocks, 1152 frames instead of 4096."""
_MP3_LEVEL = 0.6
"""Compression level with about 64 kbit/s for mono at 24000 Hz."""
_ENCODER_OPTIONS: dict[Format, dict[str, Any]] = {
    Format.FLAC: {"compression_level": _FLAC_LEVEL},
    Format.MP3: {"bitrate_mode": "CONSTANT", "compression_level": _MP3_LEVEL},
}
_LOSSY_FORMATS = frozenset({Format.MP3, Format.OGG})


class StreamEncoder:
    """Encoder that returns the bytes of a file before all of its samples are known.

    Parameters
    ----------
    format
        One of the seven formats. ALAW and ULAW always give mono at 8000 Hz
        (see :func:`speechframe.audio.codec.get_forced_shape`).
    channel_type
        MONO mixes the channels. STEREO doubles a single channel.
    input_rate_hz, output_rate_hz
        Sample rates of the samples and of the file in Hz. By default both are equal.

    Notes ----- ``codec.encode`` reduces loud audio as a whole. In a stream, earlier bytes are already sent
    when a loud sample arrives. So samples outside [-1, 1] are clipped. If no sample exceeds 0.99, lossless
    formats have the same samples as with ``codec.encode``.

    Examples
    --------
    >>> encoder = StreamEncoder(Format.WAV, ChannelType.MONO, 22050)
    >>> len(encoder.add(np.zeros(100, np.float32))), len(encoder.finish())
    (244, 0)
    """

    def __init__(
        self,
        format: Format,
        channel_type: ChannelType,
        input_rate_hz: int,
        output_rate_hz: int | None = None,
    ) -> None:
        channel_type, rate_hz = get_forced_shape(format, channel_type, output_rate_hz or input_rate_hz)
        self.format = format
        self.channels = channel_type.channels
        self.sample_rate_hz = rate_hz
        self._rate = StreamResampler(input_rate_hz, rate_hz)
        self._sink = _StreamFile(without_tag=format is Format.MP3)
        self._file: soundfile.SoundFile | None = None
        self._waiting: list[NDArray[np.generic]] = []
        self._begun = self._finished = False

    def add(self, samples: ArrayLike) -> bytes:
        """Encode samples, and return the bytes that are complete. There may be none yet.

        Parameters
        ----------
        samples
            float32 in [-1, 1], shape ``(frames,)`` or ``(frames, channels)``. Zero frames are allowed.

        Raises
        ------
        AudioError
            The samples are invalid, the stream is finished, the format does not support the rate, or soxr is
            needed and not installed.
        """
        if self._finished:
            raise AudioError("the stream is finished. Make a new StreamEncoder for a new stream.")
        array = np.asarray(samples)
        # `_write` doubles a single channel after the resampling, so that only one channel is resampled.
        return self._write(self._rate.add(self._match_channels(array))) if array.size else self._write(None)

    def finish(self) -> bytes:
        """Return the remaining bytes, which complete the file. A second call returns no bytes.

        Raises
        ------
        AudioError
            The stream has no samples.
        """
        if self._finished:
            return b""
        self._finished = True
        if not self._rate.frames_in:
            self._close()
            raise AudioError("no audio: the stream was finished before there were samples")
        data = self._write(self._rate.finish())
        self._close()
        return data + self._take()

    def _match_channels(self, array: NDArray[np.generic]) -> Samples:
        if self.channels == 1 or array.ndim == 1 or array.shape[1] != self.channels:
            return average_channels(array)
        return check_samples(array)

    def _write(self, samples: Samples | None) -> bytes:
        head = b"" if self._begun else self._begin()
        if samples is None or not len(samples):
            return head + self._take()
        if self.channels > samples.ndim:
            samples = np.repeat(samples[:, None], self.channels, axis=1)
        clipped = np.clip(samples, -1.0, 1.0)
        data = (
            clipped
            if self.format in _LOSSY_FORMATS
            else np.rint(clipped * np.float32(_FULL_SCALE)).astype("<i2")
        )
        if self._file is None:
            return head + data.tobytes()
        self._waiting.append(data)
        self._write_blocks(last=False)
        return head + self._take()

    def _write_blocks(self, *, last: bool) -> None:
        if self._file is None or not self._waiting:
            return
        data = np.concatenate(self._waiting)
        block = _VORBIS_WRITE_FRAMES if self.format is Format.OGG else min(len(data), _MAX_WRITE_FRAMES) or 1
        whole = len(data) if last else len(data) // block * block
        for start in range(0, whole, block):
            self._file.write(data[start : min(start + block, whole)])
        self._waiting = [data[whole:]]

    def _begin(self) -> bytes:
        self._begun = True
        if self.format is Format.WAV:
            return _make_wav_header(self.sample_rate_hz, self.channels)
        if self.format is not Format.PCM:
            try:
                options = get_file_type(self.format) | _ENCODER_OPTIONS.get(self.format, {})
                self._file = soundfile.SoundFile(
                    self._sink, "w", self.sample_rate_hz, self.channels, **options
                )
            except soundfile.LibsndfileError as error:
                raise AudioError(
                    f"{self.format} cannot have {format_count(self.channels, 'channel')} "
                    f"at {self.sample_rate_hz} Hz"
                ) from error
        return b""

    def _close(self) -> None:
        self._write_blocks(last=True)
        if self._file is not None:
            self._file.close()

    def _take(self) -> bytes:
        data = self._sink.take()
        # The encoder has written whole pages, so their serial numbers can be replaced.
        return _ogg.rewrite_serial(data) if self.format is Format.OGG else data


class _StreamFile(io.RawIOBase):
    """Output file of an encoder that stores bytes until `take` returns them.

    Encoders seek back at the end to write the length into their header. Such writes are dropped, because the
    header of a stream is already sent.
    """

    def __init__(self, *, without_tag: bool) -> None:
        self._bytes = bytearray()
        self._take = self._at = 0
        self._without_tag = without_tag

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._take + len(self._bytes)}[whence]
        self._at = start + offset
        return self._at

    def write(self, data: object) -> int:
        given = bytes(data)  # type: ignore[call-overload]
        if self._without_tag:
            # The encoder reserves the first frame for the length. Drop the frame, because players would play
            # it as silence.
            self._without_tag = False
            self._take = 0 if any(given[_MP3_HEADER_BYTES:]) else len(given)
        where = self._at - self._take
        if where >= 0:
            self._bytes[where : where + len(given)] = given
        self._at += len(given)
        return len(given)

    def take(self) -> bytes:
        """Return the bytes that were written since the last call."""
        data = bytes(self._bytes)
        self._bytes.clear()
        self._take += len(data)
        return data


def _make_wav_header(rate_hz: int, channels: int) -> bytes:
    frame_bytes = channels * _SAMPLE_BYTES
    return _WAV_HEADER.pack(
        b"RIFF",
        _UNKNOWN_SIZE,
        b"WAVE",
        b"fmt ",
        _FMT_BYTES,
        _PCM_TAG,
        channels,
        rate_hz,
        rate_hz * frame_bytes,
        frame_bytes,
        _SAMPLE_BYTES * 8,
        b"data",
        _UNKNOWN_SIZE,
    )
