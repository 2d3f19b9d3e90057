"""One clip: audio you can hear, measure and save."""

import base64
import html
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from speechframe.audio import codec
from speechframe.client import Spoken
from speechframe.spec.chosen import CONTENT_TYPES
from speechframe.spec.speech import ChannelType, Format

Word = tuple[str, int, int]

_PLAYABLE = frozenset({Format.WAV, Format.MP3, Format.FLAC, Format.OGG})


@dataclass(frozen=True)
class Clip:
    """One utterance as audio, with when each word is heard.

    Parameters
    ----------
    audio
        The encoded audio.
    format
        Its format.
    sample_rate
        In Hz.
    channels
        1 or 2.
    text
        What is said.
    words
        Word, start and end in milliseconds.
    voice_id
        Who says it.
    credits
        What it cost.
    warnings
        What the service ignored or replaced.
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

    @classmethod
    def of(cls, answer: Spoken, *, text: str, voice_id: str | None, credits: float) -> "Clip":
        """Return the clip of a service's answer."""
        return cls(
            answer.audio,
            answer.format,
            answer.sample_rate_hz,
            answer.channels,
            text,
            tuple(answer.words),
            voice_id,
            credits,
            answer.warnings,
        )

    @cached_property
    def samples(self) -> npt.NDArray[np.float32]:
        """The audio as float32 in [-1, 1], shape (frames,) for mono or (frames, channels)."""
        audio = codec.decode(
            self.audio, format=self.format, sample_rate_hz=self.sample_rate, channels=self.channels
        )
        return audio.samples

    @property
    def audio_seconds(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.sample_rate

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the audio to `path` and return it.

        Parameters
        ----------
        path
            With the ending of this clip's format its bytes are written as they are; another ending
            (``.wav``, ``.flac``, ``.mp3``, ``.ogg``) converts, none gets this format's.

        Raises
        ------
        AudioError
            For an ending that is no audio format.
        """
        target = Path(path)
        if not target.suffix:
            target = target.with_suffix(f".{self.format.value.lower()}")
        wanted = target.suffix[1:].upper()
        data = self.audio if wanted == self.format.value else self._converted(wanted)
        target.write_bytes(data)
        return target

    def playable(self) -> tuple[bytes, str]:
        """Return the audio as browsers play it, and its content type; raw formats become WAV files."""
        if self.format in _PLAYABLE:
            return self.audio, CONTENT_TYPES[self.format]
        return self._converted(Format.WAV.value), CONTENT_TYPES[Format.WAV]

    def _converted(self, wanted: str) -> bytes:
        if wanted not in {f.value for f in _PLAYABLE}:
            from speechframe.errors import AudioError

            allowed = ", ".join(sorted(f".{f.value.lower()}" for f in {*_PLAYABLE, self.format}))
            raise AudioError(f"a clip cannot be saved as .{wanted.lower()}; allowed: {allowed}")
        channel_type = (
            ChannelType.STEREO if self.channels == ChannelType.STEREO.channels else ChannelType.MONO
        )
        return codec.encode(
            self.samples,
            self.sample_rate,
            format=Format(wanted),
            channel_type=channel_type,
            output_rate_hz=self.sample_rate,
        )

    def _repr_html_(self) -> str:
        data, kind = self.playable()
        source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        caption = html.escape(f"{self.voice_id or ''} · {self.audio_seconds:.1f} s · {self.text[:120]}")
        return f'<figure><audio controls src="{source}"></audio><figcaption>{caption}</figcaption></figure>'
