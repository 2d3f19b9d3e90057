"""Read a medium (a video or audio file), extract its audio, and write the medium again with other audio.

Audio is processed block by block, so a film of hours needs no more memory than a clip. Time zero is the start
of the medium. If the audio begins late, silence is put in front, so times in the audio are times in the
video.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import soundfile

from speechframe.audio._rate import StreamResampler
from speechframe.audio._samples import Mixer, Samples, convert_seconds_to_frames
from speechframe.audio.lengths import measure_media_seconds, measure_seconds_by_packets
from speechframe.audio.media import open_container, refuse_shape
from speechframe.audio.tracks import (
    choose_audio_track,
    decode_with_positions,
    fill_gaps,
    find_video_stream,
    make_track_warning,
    measure_start_seconds,
)
from speechframe.errors import AudioError
from speechframe.local.dubbing.folder import write_atomically
from speechframe.spec.locales import get_three_letter_code
from speechframe.writing.words import format_count

RATE_HZ = 48_000
"""Sample rate of everything that is mixed and muxed."""
SPEECH_RATE_HZ = 16_000
"""Sample rate of the audio that is recognised."""

_MAX_CHANNELS = 2
"""Largest number of channels of a dub. Audio with more channels becomes stereo."""
_BITS_PER_CHANNEL = 96_000
"""Bit rate of encoded audio, in bits a second for each channel."""
_BLOCK_FRAMES = RATE_HZ
"""Frames of a second of audio."""
_FULL_SCALE = 32768
"""The int16 value of a sample of 1.0."""
_WEBM_DOCTYPE, _HEAD_BYTES = b"\x42\x82\x84webm", 4096
"""The document type element of a WebM file (EBML), and the number of first bytes that are searched for it."""

_BIBLIOGRAPHIC_IN_QUICKTIME = frozenset({"deu", "nld", "ell", "isl", "zho", "sqi"})
"""Languages whose QuickTime number FFmpeg finds only by the bibliographic code, such as "ger" for "deu"."""
# Tags that a muxer writes itself, or that describe only the original file.
_TECHNICAL_TAGS = frozenset(
    {
        *("major_brand", "minor_version", "compatible_brands", "encoder", "language", "duration"),
        *("creation_time", "timecode"),
    }
)
_COVER_TYPES = MappingProxyType({"mjpeg": ("cover.jpg", "image/jpeg"), "png": ("cover.png", "image/png")})
"""Codec of a cover picture to the name and media type of its attachment in a Matroska file."""
_COVER_MUXERS = frozenset({"mp4", "mp3", "flac"})
"""Muxers that store a cover as a video stream."""


class _ContainerFormat(NamedTuple):
    """The muxer of a container with its options, and the audio codec."""

    muxer: str
    codec: str
    options: Mapping[str, str] = MappingProxyType({})


# An MP4 file with its index in front can play before the download ends.
_INDEX_FIRST_OPTIONS = MappingProxyType({"movflags": "faststart"})


_CONTAINER_FORMATS = MappingProxyType(
    {
        "mp4": _ContainerFormat("mp4", "aac", _INDEX_FIRST_OPTIONS),
        # The muxer "ipod" would be usual, but does not accept covers in PyAV.
        "m4a": _ContainerFormat("mp4", "aac", MappingProxyType({**_INDEX_FIRST_OPTIONS, "brand": "M4A "})),
        "mov": _ContainerFormat("mov", "aac", _INDEX_FIRST_OPTIONS),
        "mkv": _ContainerFormat("matroska", "aac"),
        "webm": _ContainerFormat("webm", "libopus"),
        "mp3": _ContainerFormat("mp3", "libmp3lame"),
        "wav": _ContainerFormat("wav", "pcm_s16le"),
        "flac": _ContainerFormat("flac", "flac"),
    }
)


def probe_medium(path: Path, *, max_seconds: float, locale: str | None = None) -> float:
    """Return the length of a medium in seconds. Raise AudioError if the medium cannot be dubbed.

    Parameters
    ----------
    path, max_seconds
        The medium, and its greatest allowed length.
    locale
        Locale of the speech. It chooses one of several audio tracks.

    Raises
    ------
    AudioError
        The container is not supported, the medium is longer than `max_seconds`, or the audio is missing or
        unusable (see :func:`speechframe.audio.lengths.measure_media_seconds`).
    """
    seconds = measure_media_seconds(path)
    with open_container(path) as source:
        audio = choose_audio_track(source, locale)
        refuse_shape(audio.rate or 0, audio.channels or 0)
        _identify_container(source, path)
    if seconds > max_seconds:
        raise AudioError(
            f"the medium is {seconds:.0f} seconds long; allowed: at most {max_seconds:g}; divide the medium"
        )
    return seconds


def build_track_warning(path: Path, *, locale: str | None = None) -> str | None:
    """Return a warning that names the dubbed audio track if a medium has several tracks, or None."""
    with open_container(path) as source:
        return make_track_warning(source, locale, use="dubbed", instead="give its language as source_locale")


def find_container(path: Path) -> str:
    """Return the container of a medium as a file extension, such as ``mp4``, ``mkv`` or ``wav``.

    Raises
    ------
    AudioError
        The container is not supported.
    """
    with open_container(path) as source:
        return _identify_container(source, path)


def _identify_container(source: Any, path: Path) -> str:
    # Use the demuxer's format, because tags and padding may precede the first bytes of the format itself.
    name = source.format.name.partition(",")[0]
    if name == "mov":
        # Old QuickTime files have no brand. A file of the brand M4A that contains video counts as MP4.
        brand = source.metadata.get("major_brand", "qt").strip()
        if brand == "M4A" and find_video_stream(source) is None:
            return "m4a"
        return "mov" if brand == "qt" else "mp4"
    if name == "matroska":
        with path.open("rb") as file:
            return "webm" if _WEBM_DOCTYPE in file.read(_HEAD_BYTES) else "mkv"
    if name in _CONTAINER_FORMATS:
        return str(name)
    raise AudioError(
        f"{name} files cannot be dubbed; allowed: {', '.join(_CONTAINER_FORMATS)}; convert the file"
    )


@dataclass(frozen=True, slots=True)
class Track:
    """The extracted audio of a medium, in a folder."""

    folder: Path

    @property
    def sound_path(self) -> Path:
        """The WAV file for mixing, int16 at 48000 Hz with one or two channels."""
        return self.folder / "sound.wav"

    @property
    def speech_path(self) -> Path:
        """The file with the samples of :attr:`speech`, without a header."""
        return self.folder / "speech.float32"

    @property
    def speech(self) -> Samples:
        """The audio for recognition, mono float32 in [-1, 1] at 16000 Hz, memory-mapped from its file."""
        speech: Samples = np.memmap(self.speech_path, np.float32, "r")
        return speech

    @property
    def seconds(self) -> float:
        """Length of the medium in seconds."""
        return float(soundfile.info(self.sound_path).duration)


def extract_audio(path: Path, folder: Path, *, locale: str | None = None) -> Track:
    """Write the audio of a medium into a folder, unless the folder already contains the audio.

    The audio is padded with silence, or cut, to the length of the medium.

    Parameters
    ----------
    path, folder
        The medium and the folder.
    locale
        Locale of the speech. It chooses one of several audio tracks.

    Raises
    ------
    AudioError
        The medium cannot be read, or its audio cannot be decoded.
    """
    import av

    track = Track(folder)
    if track.sound_path.exists():
        return track
    with open_container(path) as source:
        frames = convert_seconds_to_frames(measure_seconds_by_packets(source), RATE_HZ)
    rate, mixer = StreamResampler(RATE_HZ, SPEECH_RATE_HZ), Mixer()
    # The speech file is renamed into place first, so if the sound file exists, the speech file exists, too.
    with (
        write_atomically(track.sound_path) as sound,
        write_atomically(track.speech_path) as speech,
        open_container(path) as source,
        speech.open("wb") as mono,
    ):
        audio = choose_audio_track(source, locale)
        channels = min(audio.channels, _MAX_CHANNELS)
        layout = "mono" if channels == 1 else "stereo"
        converter = av.AudioResampler(format="s16", layout=layout, rate=RATE_HZ)
        end = (frames, np.zeros((0, channels), np.int16))
        blocks = fill_gaps(
            itertools.chain(decode_with_positions(source, audio, converter, RATE_HZ), [end]), frames
        )
        with soundfile.SoundFile(sound, "w", RATE_HZ, channels, "PCM_16", format="WAV") as file:
            for block in blocks:
                file.write(block)
                mono.write(rate.add(mixer.add(block.astype(np.float32) / np.float32(_FULL_SCALE))).tobytes())
        mono.write(rate.finish().tobytes())
    return track


def mux_audio(source: Path, mixed: Path, target: Path, *, language: str, container: str) -> str | None:
    """Write a medium again with other audio.

    The video packets are copied. The title and other tags, the chapters and the cover are kept. Subtitles and
    further tracks are left out.

    Parameters
    ----------
    source
        The medium.
    mixed
        A WAV file at 48000 Hz, as long as the medium.
    target
        Path of the new file. If an error occurs, no file appears there.
    language
        Locale of the audio.
    container
        The container of the medium, from :func:`find_container`.

    Returns
    -------
    str or None
        A warning, if pictures or subtitles are left out.

    Raises
    ------
    AudioError
        The new file cannot contain the copied video.
    """
    import av

    try:
        with (
            write_atomically(target) as beside,
            open_container(source) as given,
            open_container(source) as again,
            soundfile.SoundFile(mixed) as sound,
        ):
            return _mux(
                given,
                _read_covers(again),
                sound,
                beside,
                language=language,
                kind=_CONTAINER_FORMATS[container],
            )
    except (av.error.FFmpegError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AudioError(f"the video cannot be copied into another {container} file: {reason}") from error


def _read_covers(source: Any) -> list[Any]:
    """Return the packets of the cover pictures of a medium. Keep `source` open while the packets are used."""
    from av.stream import Disposition

    streams = [
        each
        for each in source.streams.video
        if each.disposition & Disposition.attached_pic and each.codec_context is not None
    ]
    # The demuxer returns the covers before all other packets.
    packets = (each for each in source.demux(streams) if each.size) if streams else iter(())
    return list(itertools.islice(packets, len(streams)))


def _add_covers(target: Any, covers: Sequence[Any], kind: _ContainerFormat) -> tuple[int, list[Any]]:
    """Add cover pictures to a container. Return their number, and the packets to write before all others."""
    from av.stream import Disposition

    packets, count = [], 0
    for number, cover in enumerate(covers, 1):
        name, media_type = _COVER_TYPES.get(cover.stream.codec_context.name, ("", ""))
        if not name:
            continue
        if kind.muxer == "matroska":
            target.add_attachment(name if number == 1 else f"{number}-{name}", media_type, bytes(cover))
            count += 1
        elif kind.muxer in _COVER_MUXERS:
            cover.stream = target.add_stream_from_template(cover.stream, opaque=True)
            cover.stream.disposition = Disposition.attached_pic
            packets.append(cover)
    return count + len(packets), packets


def _describe_omissions(source: Any, kept_pictures: int) -> str | None:
    """Return a warning that lists the omitted tracks and attachments of a medium, or None."""
    counts = {
        "track of pictures": len(source.streams.video) - kept_pictures,
        "track of subtitles": len(source.streams.subtitles),
        "attachment": len(source.streams.attachments),
    }
    omissions = [
        format_count(count, name, name.replace("track", "tracks") if "track" in name else "")
        for name, count in counts.items()
        if count
    ]
    return f"the dub is without {' and '.join(omissions)} of the medium" if omissions else None


def _select_tags(source: Any) -> dict[str, str]:
    return {name: value for name, value in source.metadata.items() if name.lower() not in _TECHNICAL_TAGS}


def _shift_chapters(source: Any, start_s: float) -> list[Any]:
    """Return the chapters of a medium, counted from its start."""
    kept = []
    for chapter in source.chapters():
        shift = round(start_s / chapter["time_base"])
        start, end = max(0, chapter["start"] - shift), chapter["end"] - shift
        if start < end:
            kept.append({**chapter, "start": start, "end": end})
    return kept


def _mux(
    source: Any,
    covers: Sequence[Any],
    sound: soundfile.SoundFile,
    path: Path,
    *,
    language: str,
    kind: _ContainerFormat,
) -> str | None:
    import av

    with av.open(str(path), "w", format=kind.muxer, options=dict(kind.options)) as target:
        video, copied = find_video_stream(source), None
        if video is not None:
            # An opaque stream is copied without an encoder.
            copied = target.add_stream_from_template(video, opaque=True)
            if video.average_rate is not None:  # recorders of browsers omit it
                copied.codec_context.framerate = video.average_rate
            copied.codec_context.codec_tag = video.codec_context.codec_tag
        encoder: Any = target.add_stream(
            kind.codec, rate=RATE_HZ, layout="mono" if sound.channels == 1 else "stereo"
        )
        encoder.bit_rate = _BITS_PER_CHANNEL * sound.channels
        end_s, start_s = 0.0, measure_start_seconds(source)
        target.metadata.update(_select_tags(source))
        encoder.metadata["language"] = target.metadata["language"] = _convert_language(language, kind.muxer)
        target.set_chapters(_shift_chapters(source, start_s))
        cover_count, cover_packets = _add_covers(target, covers, kind)
        target.mux(cover_packets)
        frames = _read_frames(sound)
        for packet in source.demux(video) if video is not None else ():
            if packet.size:
                # Subtract the start of the medium, because times in the extracted audio begin at zero.
                shift = round(start_s / packet.time_base)
                packet.pts = None if packet.pts is None else packet.pts - shift
                packet.dts = None if packet.dts is None else packet.dts - shift
                time = packet.dts if packet.dts is not None else packet.pts
                # Write audio before the video of the same time, so that a player can read both without
                # seeking.
                while end_s <= float((time or 0) * packet.time_base) and (frame := next(frames, None)):
                    end_s = (frame.pts + frame.samples) / RATE_HZ
                    target.mux(encoder.encode(frame))
                packet.stream = copied
                target.mux(packet)
        for frame in itertools.chain(frames, (None,)):
            target.mux(encoder.encode(frame))
        return _describe_omissions(source, cover_count + (video is not None))


def _convert_language(locale: str, muxer: str) -> str:
    """Return the three-letter code of a language in a container. Matroska and QuickTime use older codes."""
    code = get_three_letter_code(locale)
    is_older = muxer in {"matroska", "webm"} or (muxer == "mov" and code in _BIBLIOGRAPHIC_IN_QUICKTIME)
    return get_three_letter_code(locale, bibliographic=True) if is_older else code


def _read_frames(sound: soundfile.SoundFile) -> Iterator[Any]:
    from fractions import Fraction

    import av

    at = 0
    layout = "mono" if sound.channels == 1 else "stereo"
    while len(block := sound.read(_BLOCK_FRAMES // 4, dtype="int16", always_2d=True)):
        frame = av.AudioFrame.from_ndarray(block.reshape(1, -1), format="s16", layout=layout)
        frame.sample_rate, frame.time_base, frame.pts = RATE_HZ, Fraction(1, RATE_HZ), at
        at += len(block)
        yield frame
