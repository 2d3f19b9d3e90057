"""Measurement of the length of media files, and recognition of their media type."""

import io
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import soundfile

from speechframe.audio import _headers, codec
from speechframe.audio.media import open_container, open_media, read_blocks, refuse_truncated
from speechframe.audio.tracks import choose_audio_track, find_video_stream, measure_start_seconds
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

HEAD_BYTES = 64
"""Number of first bytes of a file that are enough to recognise its media type."""

_MEDIA_TYPES_BY_FORMAT = MappingProxyType(
    {Format.WAV: "audio/wav", Format.MP3: "audio/mpeg", Format.FLAC: "audio/flac", Format.OGG: "audio/ogg"}
)
# Media types by the brand (type code) of MP4 files. All other brands are video/mp4.
_MEDIA_TYPES_BY_BRAND = MappingProxyType({b"qt  ": "video/quicktime", b"M4A ": "audio/mp4"})
# Names of the first box of old QuickTime files, which have no brand.
_OLD_QUICKTIME_BOXES = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip"})
# Media types by the first name of the demuxer of FFmpeg.
_MEDIA_TYPES_BY_DEMUXER = MappingProxyType(
    {
        "mov": "audio/mp4",
        "matroska": "audio/webm",
        "ogg": "audio/ogg",
        "aac": "audio/aac",
        "amr": "audio/amr",
        "asf": "audio/x-ms-wma",
    }
)
_MAX_LENGTH_S = 1e8
"""Limit of length in seconds for a decoder that needs a limit. No real file is longer."""
_MAX_EXCESS_S = 1.0
"""Allowed excess of a length in a header over the packets, because containers count padding differently."""
_MIN_NEGATIVE_DURATION = 1 << 31
"""Durations from this value on are negative numbers of 32 bits."""


@dataclass(frozen=True, slots=True)
class ClipFacts:
    """Length of a clip in seconds, and its media type, such as ``audio/wav``."""

    audio_seconds: float
    media_type: str


def inspect_clip(data: bytes) -> ClipFacts:
    """Return the length and the media type of a clip. Decode the clip if its headers have no exact length.

    Parameters
    ----------
    data
        A complete file in WAV, FLAC, OGG, MP3 or another format of libsndfile, such as AIFF. With the extra
        ``media`` also M4A, MP4, WebM, AAC and similar formats.

    Raises
    ------
    AudioError
        The file is empty, is not audio, is truncated, or has no samples.

    Examples
    --------
    >>> import numpy as np
    >>> inspect_clip(codec.encode(np.zeros(4000, np.float32), 8000, format=Format.FLAC))
    ClipFacts(audio_seconds=0.5, media_type='audio/flac')
    """
    if not data:
        raise AudioError("no audio: the file is empty")
    known = _headers.recognise_container(data)
    if known is not None and not (known is Format.OGG and _headers.is_open_ended(data, known)):
        found = ClipFacts(codec.inspect_audio(data).audio_seconds, _MEDIA_TYPES_BY_FORMAT[known])
    else:
        refuse_truncated(data)
        found = (_measure_by_libsndfile(data) if known is None else None) or _measure_by_av(data)
    if not found.audio_seconds > 0:
        raise AudioError("no audio: the file has no samples")
    return found


def recognise_media_type(head: bytes) -> str:
    r"""Return the media type of a file by its first :data:`HEAD_BYTES` bytes.

    An unknown file has the type ``application/octet-stream``.

    Examples
    --------
    >>> recognise_media_type(b"\0\0\0\x20ftypisom")
    'video/mp4'
    """
    if (known := _headers.recognise_container(head)) is not None:
        return _MEDIA_TYPES_BY_FORMAT[known]
    if head[4:8] == _headers.MP4_MARK:
        return _MEDIA_TYPES_BY_BRAND.get(head[8:12], "video/mp4")
    if head[4:8] in _OLD_QUICKTIME_BOXES:
        return "video/quicktime"
    if head[:4] == _headers.MATROSKA_START:
        return "video/webm" if b"webm" in head[:HEAD_BYTES] else "video/x-matroska"
    return "application/octet-stream"


def measure_media_seconds(medium: Path | bytes) -> float:
    """Return the length of a media file in seconds, from its first to its last sound or picture.

    The client and the service both compute the price of a dub from this length. The function reads every
    packet, decodes nothing, and does not use the length in a header. Without the extra ``media``, it decodes
    audio files and refuses all other files.

    Parameters
    ----------
    medium
        Path of the file, or its bytes.

    Raises
    ------
    AudioError
        The file is empty, is not a media file, has no audio, is truncated, or has a header that contradicts
        its packets. Or the extra ``media`` is needed and missing.

    Examples
    --------
    >>> import numpy as np
    >>> measure_media_seconds(codec.encode(np.zeros(4000, np.float32), 8000, format=Format.WAV))
    0.5
    """
    claimed_s = refuse_truncated(medium)
    if find_spec("av") is None:
        with open_media(medium, max_seconds=_MAX_LENGTH_S) as media:
            return sum(map(len, media.blocks)) / media.sample_rate_hz
    with open_container(medium) as source:
        return measure_seconds_by_packets(source, claimed_s)


def measure_seconds_by_packets(source: Any, claimed_s: float = 0.0) -> float:
    """Return the length of a PyAV container in seconds by its packets.

    `claimed_s` is the length in seconds in a header that FFmpeg does not read, or 0. Errors are those of
    :func:`measure_media_seconds`.
    """
    import av

    audio, video = source.streams.audio, find_video_stream(source)
    streams = [*audio, *([] if video is None else [video])]
    if any(each.time_base is None or each.time_base >= 1 for each in streams):
        raise AudioError(
            "the header of the media file is wrong: it has no time scale, so its length is unknown"
        )
    ticks: dict[int, int] = {}
    try:
        for packet in source.demux():
            if packet.size and packet.pts is not None:
                duration = packet.duration or 0
                # FFmpeg returns a negative duration if the last packet of Vorbis is shortened.
                end = packet.pts + (
                    duration if duration < _MIN_NEGATIVE_DURATION else duration - 2 * _MIN_NEGATIVE_DURATION
                )
                ticks[packet.stream_index] = max(end, ticks.get(packet.stream_index, end))
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError("the media file is damaged or truncated") from error
    ends = {index: float(end * source.streams[index].time_base) for index, end in ticks.items()}
    if not any(each.index in ends for each in audio):
        raise AudioError("no audio: the audio stream of the file is empty")
    # Do not use the length of MP3, because it may be missing, and the estimate of FFmpeg is inaccurate.
    if source.format.name != "mp3":
        claimed_s = max(claimed_s, (source.duration or 0) / av.time_base)
    # Some headers count from time zero, and others from the first sound or picture. So compare the length
    # with the end of the packets, which is the larger number.
    if claimed_s > max(ends.values()) + _MAX_EXCESS_S:
        raise AudioError(
            f"the media file is truncated, or its header is wrong: it has {max(ends.values()):.1f} of "
            f"{claimed_s:.1f} seconds"
        )
    seconds = max(ends.get(each.index, 0.0) for each in streams) - measure_start_seconds(source)
    if seconds <= 0:
        raise AudioError("no audio: the file has no samples")
    return seconds


def _measure_by_libsndfile(data: bytes) -> ClipFacts | None:
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return ClipFacts(file.frames / file.samplerate, f"audio/x-{file.format.lower()}")
    except soundfile.LibsndfileError:
        return None


def _measure_by_av(data: bytes) -> ClipFacts:
    with open_container(data) as container:
        rate_hz = choose_audio_track(container).rate
        # Decode up to the end, because containers have a rounded length or none.
        frames = max((at + len(block) for at, block in read_blocks(container, rate_hz)), default=0)
        media_type = _MEDIA_TYPES_BY_DEMUXER.get(
            container.format.name.partition(",")[0], "application/octet-stream"
        )
        return ClipFacts(frames / rate_hz, media_type)
