"""The length and the media type of a clip or a video in any container."""

import io
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import soundfile

from speechframe.audio import _headers, codec
from speechframe.audio.media import demuxed, opened, read_blocks, refuse_truncated
from speechframe.audio.tracks import audio_track, moving_pictures, start_seconds
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

__all__ = [
    "HEAD_BYTES",
    "Length",
    "length_of",
    "media_type_of",
    "packet_seconds",
    "seconds_of",
]

HEAD_BYTES = 64
"""Bytes at the start of a medium that show its media type."""

_MEDIA_TYPES = MappingProxyType(
    {Format.WAV: "audio/wav", Format.MP3: "audio/mpeg", Format.FLAC: "audio/flac", Format.OGG: "audio/ogg"}
)
_BRANDS = MappingProxyType({b"qt  ": "video/quicktime", b"M4A ": "audio/mp4"})
# First boxes of older QuickTime files, which have no brand.
_OLD_QUICKTIME = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip"})
# Media types by the first name of FFmpeg's demuxer.
_DEMUXERS = MappingProxyType(
    {
        "mov": "audio/mp4",
        "matroska": "audio/webm",
        "ogg": "audio/ogg",
        "aac": "audio/aac",
        "amr": "audio/amr",
        "asf": "audio/x-ms-wma",
    }
)
_LONGEST_S = 1e8
# A header may exceed the packets by this much, because containers count padding in different ways.
_CLAIM_SECONDS = 1.0
_LEAST_NEGATIVE = 1 << 31


@dataclass(frozen=True, slots=True)
class Length:
    """Length of a clip in seconds, which sets its price, and its media type, such as ``audio/wav``."""

    audio_seconds: float
    media_type: str


def length_of(data: bytes) -> Length:
    """Return the length of a clip, by its headers if possible.

    Parameters
    ----------
    data
        A complete file: WAV, FLAC, OGG, MP3 or another format of libsndfile (AIFF, AU, CAF ...). With the
        extra ``media`` also M4A, MP4, WebM, AAC and similar formats.

    Raises
    ------
    AudioError
        If the file is empty, is not audio, is cut off, or has no samples.

    Examples
    --------
    >>> import numpy as np
    >>> length_of(codec.encode(np.zeros(4000, np.float32), 8000, format=Format.FLAC))
    Length(audio_seconds=0.5, media_type='audio/flac')
    """
    if not data:
        raise AudioError("no audio: the file is empty")
    known = _headers.container(data)
    if known is not None and not (known is Format.OGG and _headers.is_open_ended(data, known)):
        found = Length(codec.inspect(data).audio_seconds, _MEDIA_TYPES[known])
    else:
        refuse_truncated(data)
        found = (_by_libsndfile(data) if known is None else None) or _by_av(data)
    if not found.audio_seconds > 0:
        raise AudioError("no audio: the file has no samples")
    return found


def media_type_of(head: bytes) -> str:
    r"""Return the media type of an audio or video file by its first :data:`HEAD_BYTES` bytes.

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


def seconds_of(medium: Path | bytes) -> float:
    """Return the seconds of a medium from its start to the end of audio or video.

    The plan of a dub and the bill of the service both use this function. It reads every packet and decodes
    nothing. It does not trust the length in a header. Without the extra ``media`` it decodes audio files and
    refuses all other files.

    Parameters
    ----------
    medium
        A file, or its bytes.

    Raises
    ------
    AudioError
        If the medium is empty, is not a medium, has no audio, is cut off, or has a header that contradicts
        its packets. Also if the extra ``media`` is missing. The message then contains the command to install
        it.

    Examples
    --------
    >>> import numpy as np
    >>> seconds_of(codec.encode(np.zeros(4000, np.float32), 8000, format=Format.WAV))
    0.5
    """
    claimed_s = refuse_truncated(medium)
    if find_spec("av") is None:
        with opened(medium, max_seconds=_LONGEST_S) as media:
            return sum(map(len, media.blocks)) / media.sample_rate_hz
    with demuxed(medium) as source:
        return packet_seconds(source, claimed_s)


def packet_seconds(source: Any, claimed_s: float = 0.0) -> float:
    """Return the length of a PyAV container by its packets. It raises the errors of :func:`seconds_of`.

    `claimed_s` is the end of the medium by a header that FFmpeg does not read.
    """
    import av

    audio, video = source.streams.audio, moving_pictures(source)
    streams = [*audio, *([] if video is None else [video])]
    if any(each.time_base is None or each.time_base >= 1 for each in streams):
        raise AudioError("the header of the medium is wrong: it has no time scale, so its length is unknown")
    ticks: dict[int, int] = {}
    try:
        for packet in source.demux():
            if packet.size and packet.pts is not None:
                duration = packet.duration or 0
                # FFmpeg returns a negative duration if the last packet of Vorbis is cut.
                end = packet.pts + (
                    duration if duration < _LEAST_NEGATIVE else duration - 2 * _LEAST_NEGATIVE
                )
                ticks[packet.stream_index] = max(end, ticks.get(packet.stream_index, end))
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError("the medium is damaged or truncated") from error
    ends = {index: float(end * source.streams[index].time_base) for index, end in ticks.items()}
    if not any(each.index in ends for each in audio):
        raise AudioError("no audio: the audio stream of the file is empty")
    # The length of an MP3 file may be missing, and FFmpeg's guess is far off.
    if source.format.name != "mp3":
        claimed_s = max(claimed_s, (source.duration or 0) / av.time_base)
    # Some headers count from time zero, others from the start of the medium. Use the later end.
    if claimed_s > max(ends.values()) + _CLAIM_SECONDS:
        raise AudioError(
            f"the medium is truncated, or its header is wrong: it has {max(ends.values()):.1f} of "
            f"{claimed_s:.1f} seconds"
        )
    seconds = max(ends.get(each.index, 0.0) for each in streams) - start_seconds(source)
    if seconds <= 0:
        raise AudioError("no audio: the file has no samples")
    return seconds


def _by_libsndfile(data: bytes) -> Length | None:
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return Length(file.frames / file.samplerate, f"audio/x-{file.format.lower()}")
    except soundfile.LibsndfileError:
        return None


def _by_av(data: bytes) -> Length:
    with demuxed(data) as container:
        rate_hz = audio_track(container).rate
        # Containers round their length or have none. So decode to the end.
        frames = max((at + len(block) for at, block in read_blocks(container, rate_hz)), default=0)
        media_type = _DEMUXERS.get(container.format.name.partition(",")[0], "application/octet-stream")
        return Length(frames / rate_hz, media_type)
