"""A clip of audio that can be played, measured and saved."""

import base64
import html
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from speechframe.audio import codec
from speechframe.audio.saving import PLAYABLE, convert, save_audio
from speechframe.spec.chosen import CONTENT_TYPES
from speechframe.spec.speech import Format

Word = tuple[str, int, int]


@dataclass(frozen=True)
class Clip:
    """One utterance as audio, with the times of its words.

    Parameters
    ----------
    audio
        Encoded audio.
    format
        Format of the audio.
    sample_rate
        Sample rate in Hz.
    channels
        Number of channels, 1 or 2.
    text
        Spoken text.
    words
        Word, start and end in milliseconds.
    voice_id
        Voice that speaks.
    credits
        Price in credits.
    warnings
        Notes on values that the service ignored or replaced.
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
            If the path ends with this clip's format, the audio is not converted. Other endings
            (``.wav``, ``.flac``, ``.mp3``, ``.ogg``) convert the audio. In both cases an existing file is
            replaced. A path without an ending gets the ending of this format, and a number if that file
            exists.

        Raises
        ------
        AudioError
            If audio cannot be saved with this ending, or this clip cannot be converted.
        """
        return save_audio(
            path, self.audio, format=self.format, sample_rate_hz=self.sample_rate, channels=self.channels
        )

    def playable(self) -> tuple[bytes, str]:
        """Return the audio in a format that browsers play, and its content type. Raw formats become WAV."""
        data, kind = self.audio, self.format
        if kind not in PLAYABLE:
            rate_hz, channels = self.sample_rate, self.channels
            data = convert(data, Format.WAV, format=kind, sample_rate_hz=rate_hz, channels=channels)
            kind = Format.WAV
        return data, CONTENT_TYPES[kind]

    def _repr_html_(self) -> str:
        data, kind = self.playable()
        source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        caption = html.escape(f"{self.voice_id or ''} · {self.audio_seconds:.1f} s · ")
        # <bdi> keeps the direction of the text, which may run from right to left.
        caption += f"<bdi>{html.escape(self.text[:120])}</bdi>"
        return f'<figure><audio controls src="{source}"></audio><figcaption>{caption}</figcaption></figure>'
