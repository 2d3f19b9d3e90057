"""How long a clip is that somebody brings, whatever container it is in, and what that is called."""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

import soundfile

from speechframe.audio import _headers, codec
from speechframe.audio.media import decoded, demuxed
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

__all__ = ["HEAD_BYTES", "Length", "length_of", "media_type_of", "seconds_of"]

HEAD_BYTES = 64
"""How much of a medium tells its media type."""

_MEDIA_TYPES = MappingProxyType(
    {Format.WAV: "audio/wav", Format.MP3: "audio/mpeg", Format.FLAC: "audio/flac", Format.OGG: "audio/ogg"}
)
_BRANDS = MappingProxyType({b"qt  ": "video/quicktime", b"M4A ": "audio/mp4"})
# How files begin that are older than brands.
_OLD_QUICKTIME = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip"})
# By the first name FFmpeg gives the demuxer.
_DEMUXERS = MappingProxyType(
    {
        "mov": "audio/mp4",
        "matroska": "audio/webm",
        "aac": "audio/aac",
        "amr": "audio/amr",
        "asf": "audio/x-ms-wma",
    }
)
_LONGEST_S = 1e8
_AV_TIME_BASE = 1_000_000


@dataclass(frozen=True, slots=True)
class Length:
    """What is paid for a clip: its length in seconds; and its media type, such as ``audio/wav``."""

    audio_seconds: float
    media_type: str


def length_of(data: bytes) -> Length:
    """Return the length of a clip, from its headers where they say it.

    Parameters
    ----------
    data
        A whole file: WAV, FLAC, OGG, MP3 and what else libsndfile reads (AIFF, AU, CAF ...), with the extra
        ``media`` the audio of M4A, MP4, WebM, AAC and their like.

    Raises
    ------
    AudioError
        No bytes, no audio, a file that is cut off, or one without a single sample.

    Examples
    --------
    >>> import numpy as np
    >>> length_of(codec.encode(np.zeros(4000, np.float32), 8000, format=Format.FLAC))
    Length(audio_seconds=0.5, media_type='audio/flac')
    """
    if not data:
        raise AudioError("no audio: the file is empty")
    try:
        known = _headers.recognise(data)
    except AudioError:
        found = _by_libsndfile(data) or _by_av(data)
    else:
        found = Length(codec.inspect(data).audio_seconds, _MEDIA_TYPES[known])
    if not found.audio_seconds > 0:
        raise AudioError("no audio: the file holds no samples")
    return found


def media_type_of(head: bytes) -> str:
    r"""Return the media type of an audio file or video that begins with `head`, :data:`HEAD_BYTES` of it.

    Examples
    --------
    >>> media_type_of(b"\0\0\0\x20ftypisom")
    'video/mp4'
    """
    if (known := _headers.container(head)) is not None:
        return _MEDIA_TYPES[known]
    if head[4:8] == _headers.MP4:
        return _BRANDS.get(head[8:12], "video/mp4")
    if head[4:8] in _OLD_QUICKTIME:
        return "video/quicktime"
    if head[:4] == _headers.MATROSKA:
        return "video/webm" if b"webm" in head[:HEAD_BYTES] else "video/x-matroska"
    return "application/octet-stream"


def seconds_of(medium: Path | bytes) -> float | None:
    """Return how long a medium says it is, a video too, without decoding it; None where that is not known.

    That is so for a file that says nothing, for one without audio, and without the extra ``media`` for all
    but audio files.
    """
    # An open file, not a name: by its name a file may be taken for raw samples, or be followed to others.
    opened: IO[bytes] = io.BytesIO(medium) if isinstance(medium, bytes) else medium.open("rb")
    with contextlib.suppress(soundfile.LibsndfileError), opened as stream:
        seconds = (info := soundfile.info(stream)).frames / info.samplerate
        return seconds if seconds < _LONGEST_S else None  # streams that were written without their length
    with contextlib.suppress(AudioError), demuxed(medium) as container:
        return None if container.duration is None else container.duration / _AV_TIME_BASE
    return None


def _by_libsndfile(data: bytes) -> Length | None:
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return Length(file.frames / file.samplerate, f"audio/x-{file.format.lower()}")
    except soundfile.LibsndfileError:
        return None


def _by_av(data: bytes) -> Length:
    with demuxed(data) as container:
        stream = container.streams.audio[0]
        # Containers round, and some say nothing: what is decoded is what counts.
        frames = sum(frame.samples for frame in decoded(container))
        media_type = _DEMUXERS.get(container.format.name.partition(",")[0], "application/octet-stream")
        return Length(frames / stream.rate if stream.rate else 0.0, media_type)
