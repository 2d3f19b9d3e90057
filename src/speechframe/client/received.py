"""Audio that comes piece by piece, kept: what it is, how long, as samples, as a file."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from speechframe.audio import codec
from speechframe.audio.codec import AudioInfo, forced_shape
from speechframe.audio.saving import PLAYABLE, save_audio
from speechframe.errors import AudioError
from speechframe.spec.limits import default_sample_rate_hz
from speechframe.spec.speech import ChannelType, Format, Model

__all__ = ["Received"]

_SAMPLE_BYTES = {Format.PCM: 2, Format.ALAW: 1, Format.ULAW: 1}


class Received:
    """What was received of a stream or a turn, and what was asked for; raw formats do not say what they are.

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
    ) -> None:
        rate_hz = int(sample_rate_hz or default_sample_rate_hz(model))
        channel_type, self.sample_rate_hz = forced_shape(format, channel_type, rate_hz)
        self.format, self.channels = format, channel_type.channels
        self._data = bytearray()

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
        self._data += piece

    def info(self) -> AudioInfo:
        """Return what came so far, by its own headers where it has any; AudioError while that is no audio."""
        if not self._data:
            raise AudioError("no audio: there are no bytes")
        return codec.inspect(**self._whole_samples())

    def samples(self) -> npt.NDArray[np.float32]:
        """Return what came as float32 in [-1, 1], shape ``(frames,)`` for mono or ``(frames, channels)``."""
        if not self._data:
            return np.zeros((0,) if self.channels == 1 else (0, self.channels), np.float32)
        return codec.decode(**self._whole_samples()).samples

    def save(self, path: str | PathLike[str]) -> Path:
        """Write what came as one proper file, and return its path; see :func:`audio.saving.save_audio`."""
        info = self.info()
        rate_hz, channels = info.sample_rate_hz, info.channels
        return save_audio(path, self.data, format=self.format, sample_rate_hz=rate_hz, channels=channels)

    def _whole_samples(self) -> dict[str, Any]:
        """Return what came and how it is to be read."""
        data = self.data
        if self.format in PLAYABLE:
            return {"data": data, "format": self.format}
        # A sample may have come in half.
        whole = len(data) - len(data) % (_SAMPLE_BYTES[self.format] * self.channels)
        shape = {"sample_rate_hz": self.sample_rate_hz, "channels": self.channels}
        return {"data": data[:whole], "format": self.format, **shape}
