"""Audio that comes piece by piece, kept: what it is, how long, as samples, as a file."""

from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from speechframe.audio import codec
from speechframe.audio.broken_off import ended
from speechframe.audio.codec import AudioInfo, forced_shape
from speechframe.audio.saving import PLAYABLE, save_audio
from speechframe.errors import AudioError
from speechframe.spec.limits import default_sample_rate_hz
from speechframe.spec.speech import ChannelType, Format, Model

_SAMPLE_BYTES = {Format.PCM: 2, Format.ALAW: 1, Format.ULAW: 1}
_OGG_FIRST_PAGE = 2


class Received:
    """What was received of a stream or a turn.

    Parameters
    ----------
    format, channel_type, sample_rate_hz
        What was asked for; raw formats say nothing about themselves.
    model
        Says the rate where none was asked for.
    is_framed
        Whether pieces are frames of a WebSocket, where a new file may begin with any of them.

    Examples
    --------
    >>> received = Received(Format.PCM, ChannelType.MONO, 8000)
    >>> received.add(bytes(1600))
    >>> received.info().audio_seconds, len(received.data)
    (0.1, 1600)
    """

    def __init__(
        self,
        format: Format,
        channel_type: ChannelType,
        sample_rate_hz: float | None,
        model: Model = Model.FALCON_2,
        *,
        is_framed: bool = False,
    ) -> None:
        rate_hz = int(sample_rate_hz or default_sample_rate_hz(model))
        channel_type, self.sample_rate_hz = forced_shape(format, channel_type, rate_hz)
        self.format, self.channels = format, channel_type.channels
        self._is_framed = is_framed
        self._data = bytearray()
        self._starts: list[int] = []

    @property
    def size(self) -> int:
        """How many bytes came."""
        return len(self._data)

    @property
    def data(self) -> bytes:
        """Everything that came, as it came: a copy, which any thread may ask for."""
        return bytes(self._data)

    def add(self, piece: bytes) -> None:
        """Keep a piece."""
        if self.size and self._is_framed and _begins_file(piece, self.format):
            self._starts.append(self.size)
        self._data += piece

    def info(self) -> AudioInfo:
        """Return what came so far: by its own headers, where it has any.

        Raises
        ------
        AudioError
            What came is no audio of the format that was asked for, or not enough of it to tell.
        """
        infos = [codec.inspect(file, **self._shape()) for file in self._files()]
        if not infos:
            raise AudioError("no audio: there are no bytes")
        seconds = sum(info.audio_seconds for info in infos)
        return AudioInfo(infos[0].format, infos[0].sample_rate_hz, infos[0].channels, seconds)

    def samples(self) -> npt.NDArray[np.float32]:
        """Return what came as float32 in [-1, 1], shape ``(frames,)`` for mono or ``(frames, channels)``.

        Raises
        ------
        AudioError
            What came is no audio, or not enough of it to be decoded.
        """
        decoded = [codec.decode(file, **self._shape()).samples for file in self._files()]
        if not decoded:
            return np.zeros((0,) if self.channels == 1 else (0, self.channels), np.float32)
        return decoded[0] if len(decoded) == 1 else np.concatenate(decoded)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write what came as one proper file, and return its path; see :func:`audio.saving.save_audio`.

        Raises
        ------
        AudioError
            Nothing came, or the ending is that of no audio format.
        """
        info = self.info()
        return save_audio(
            path,
            self._joined(info),
            format=self.format,
            sample_rate_hz=info.sample_rate_hz,
            channels=info.channels,
        )

    def _joined(self, info: AudioInfo) -> bytes:
        # Of the others, one file behind another is a file.
        if not self._starts or self.format not in {Format.WAV, Format.FLAC, Format.OGG}:
            return self.data
        stereo = info.channels == ChannelType.STEREO.channels
        return codec.encode(
            self.samples(),
            info.sample_rate_hz,
            format=self.format,
            channel_type=ChannelType.STEREO if stereo else ChannelType.MONO,
            output_rate_hz=info.sample_rate_hz,
        )

    def _files(self) -> list[bytes]:
        if not self.size:
            return []
        data = self.data
        if self.format not in PLAYABLE:
            # A sample may have come in half.
            return [data[: len(data) - len(data) % (_SAMPLE_BYTES[self.format] * self.channels)]]
        bounds = [0, *self._starts, len(data)]
        *earlier, last = [data[start:end] for start, end in pairwise(bounds)]
        # Each of the earlier ones ended with its connection.
        return [*filter(None, (ended(file, self.format) for file in earlier)), last]

    def _shape(self) -> dict[str, Any]:
        if self.format in PLAYABLE:
            return {"format": self.format}
        return {
            "format": self.format,
            "sample_rate_hz": self.sample_rate_hz,
            "channels": self.channels,
        }


def _begins_file(piece: bytes, format: Format) -> bool:
    """Return whether a file begins with a piece: that of a turn which goes on over a new connection."""
    if format is Format.WAV:
        return piece[:4] == b"RIFF" and piece[8:12] == b"WAVE"
    if format is Format.OGG:
        return piece[:4] == b"OggS" and bool(piece[5:6]) and bool(piece[5] & _OGG_FIRST_PAGE)
    return format is Format.FLAC and piece[:4] == b"fLaC"
