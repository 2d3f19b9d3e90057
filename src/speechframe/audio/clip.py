"""The type of a clip of audio, which can be played and saved."""

import base64
import html
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from speechframe.audio import codec
from speechframe.audio.saving import PLAYABLE_FORMATS, convert_audio, save_audio
from speechframe.spec.chosen import CONTENT_TYPES
from speechframe.spec.speech import Format

Word = tuple[str, int, int]


@dataclass(frozen=True)
class Clip:
    """An utterance as encoded audio, with the times of its words.

    Parameters
    ----------
    audio
        Encoded audio.
    format
        Format of the encoded audio.
    sample_rate
        Sample rate in Hz.
    channels
        Number of channels, 1 or 2.
    text
        Spoken text.
    words
        Each word with its start and end in milliseconds from the start of the audio.
    voice_id
        Id of the voice. None if unknown.
    credits
        Price in credits.
    warnings
        Warnings about values that the service ignored or replaced.
    """

    audio: bytes = field(repr=False)
    format: Format
    sample_rate: int
    channels: int = 1
    text: str = ""
    words: tuple[Word, ...] = field(default=(), repr=False)
    voice_id: str | None = None
    credits: float = 0.0
    warnings: tuple[str, ...] = ()

    @cached_property
    def samples(self) -> npt.NDArray[np.float32]:
        """Audio as float32 in [-1, 1], shape (frames,) for mono or (frames, channels)."""
        audio = codec.decode(
            self.audio, format=self.format, sample_rate_hz=self.sample_rate, channels=self.channels
        )
        return audio.samples

    @property
    def audio_seconds(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.sample_rate

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the audio to a file and return its path.

        Parameters
        ----------
        path
            If the path ends with the format of this clip, the audio is not converted. With the other endings
            ``.wav``, ``.flac``, ``.mp3`` and ``.ogg`` the audio is converted. In both cases an existing file
            is replaced. A path without an ending gets the ending of the format. If that file exists with
            other content, the name gets a number too.

        Raises
        ------
        AudioError
            The ending is not an audio format, or the audio cannot be converted.
        """
        return save_audio(
            path, self.audio, format=self.format, sample_rate_hz=self.sample_rate, channels=self.channels
        )

    def playable(self) -> tuple[bytes, str]:
        """Return audio that browsers can play, and its content type. Raw formats are converted to WAV."""
        data, kind = self.audio, self.format
        if kind not in PLAYABLE_FORMATS:
            rate_hz, channels = self.sample_rate, self.channels
            data = convert_audio(data, Format.WAV, format=kind, sample_rate_hz=rate_hz, channels=channels)
            kind = Format.WAV
        return data, CONTENT_TYPES[kind]

    def _repr_html_(self) -> str:
        data, kind = self.playable()
        source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        caption = html.escape(f"{self.voice_id or ''} · {self.audio_seconds:.1f} s · ")
        # <bdi> isolates the text, which may be written from right to left.
        caption += f"<bdi>{html.escape(self.text[:120])}</bdi>"
        return f'<figure><audio controls src="{source}"></audio><figcaption>{caption}</figcaption></figure>'
