"""Read a medium, extract its audio, and write the same medium with other audio.

Everything goes block by block, so a film of hours takes no more memory than a clip. Time zero is the start of
the medium. Audio that begins late has silence in front. So a second of a track is that second of the video.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import soundfile

from speechframe.audio._rate import Rate
from speechframe.audio._samples import Samples, seconds_to_frames
from speechframe.audio.lengths import moving_pictures, packet_seconds, seconds_of, start_seconds
from speechframe.audio.media import demuxed, refuse_shape
from speechframe.dubbing.folder import written
from speechframe.errors import AudioError
from speechframe.spec.locales import three_letters

__all__ = ["RATE_HZ", "SPEECH_RATE_HZ", "Track", "container_of", "extract", "mux", "probe"]

RATE_HZ = 48_000
"""Sample rate of everything that is mixed and muxed."""
SPEECH_RATE_HZ = 16_000
"""Sample rate of the audio that is recognised."""

_MAX_CHANNELS = 2
_BITS_PER_CHANNEL = 96_000
_BLOCK_FRAMES = RATE_HZ
# The document type of a WebM file, with its identifier and length. It stands in the first bytes of the file.
_WEBM, _HEAD_BYTES = b"\x42\x82\x84webm", 4096
# A block may begin this far from the end of the block before. Its time was rounded, as in MKV.
_ROUNDED_SECONDS = 0.05

# QuickTime has numbers for languages. FFmpeg finds these by their bibliographic code alone.
_OLDER_IN_QUICKTIME = frozenset({"deu", "nld", "ell", "isl", "zho", "sqi"})


class _Kind(NamedTuple):
    """The muxer and the audio codec of a container."""

    muxer: str
    codec: str


_KINDS = MappingProxyType(
    {
        "mp4": _Kind("mp4", "aac"),
        "m4a": _Kind("ipod", "aac"),
        "mov": _Kind("mov", "aac"),
        "mkv": _Kind("matroska", "aac"),
        "webm": _Kind("webm", "libopus"),
        "mp3": _Kind("mp3", "libmp3lame"),
        "wav": _Kind("wav", "pcm_s16le"),
        "flac": _Kind("flac", "flac"),
    }
)


def probe(path: Path, *, max_seconds: float) -> float:
    """Return the length of a medium that can be dubbed, as :func:`seconds_of` measures it.

    Raises
    ------
    AudioError
        A container that is not dubbed, or a medium longer than `max_seconds`, besides what ``seconds_of``
        raises.
    """
    seconds = seconds_of(path)
    with demuxed(path) as source:
        audio = source.streams.audio[0]
        refuse_shape(audio.rate or 0, audio.channels or 0)
        _container(source, path)
    if seconds > max_seconds:
        raise AudioError(
            f"the medium is {seconds:.0f} seconds long; {max_seconds:g} is the longest that is taken"
        )
    return seconds


def container_of(path: Path) -> str:
    """Return the container of a medium as a file extension, such as ``mp4``, ``mkv`` or ``wav``.

    Raises
    ------
    AudioError
        A container that is not dubbed.
    """
    with demuxed(path) as source:
        return _container(source, path)


def _container(source: Any, path: Path) -> str:
    # Tags and padding may stand in front of a file. The demuxer has looked behind them.
    name = source.format.name.partition(",")[0]
    if name == "mov":
        # QuickTime is older than brands, and M4A has audio alone.
        brand = source.metadata.get("major_brand", "qt").strip()
        if brand == "M4A" and moving_pictures(source) is None:
            return "m4a"
        return "mov" if brand == "qt" else "mp4"
    if name == "matroska":
        with path.open("rb") as file:
            return "webm" if _WEBM in file.read(_HEAD_BYTES) else "mkv"
    if name in _KINDS:
        return str(name)
    raise AudioError(f"a container that is not dubbed: {name}. Dubbed are {', '.join(_KINDS)}")


@dataclass(frozen=True, slots=True)
class Track:
    """The audio of a medium, in a folder."""

    folder: Path

    @property
    def sound_path(self) -> Path:
        """The WAV file that is mixed, int16 at 48000 Hz with one or two channels."""
        return self.folder / "sound.wav"

    @property
    def speech_path(self) -> Path:
        """The samples of :attr:`speech`, and nothing else."""
        return self.folder / "speech.float32"

    @property
    def speech(self) -> Samples:
        """The audio that is recognised, mono float32 in [-1, 1] at 16000 Hz, mapped from its file."""
        speech: Samples = np.memmap(self.speech_path, np.float32, "r")
        return speech

    @property
    def seconds(self) -> float:
        """Length of the medium."""
        return float(soundfile.info(self.sound_path).duration)


def extract(path: Path, folder: Path) -> Track:
    """Write the audio of a medium into a folder, as long as the medium, unless it is there.

    Raises
    ------
    AudioError
        What :func:`probe` raises, and audio that cannot be decoded.
    """
    track = Track(folder)
    if track.sound_path.exists():
        return track
    with demuxed(path) as source:
        frames = seconds_to_frames(packet_seconds(source), RATE_HZ)
    rate = Rate(RATE_HZ, SPEECH_RATE_HZ)
    # Write the speech first, so that a track with sound has speech, too.
    with (
        written(track.sound_path) as sound,
        written(track.speech_path) as speech,
        demuxed(path) as source,
        speech.open("wb") as mono,
    ):
        channels = min(source.streams.audio[0].channels, _MAX_CHANNELS)
        # A product of matrices is far faster than a mean of pairs.
        mean = np.full(channels, 1 / 32768 / channels, np.float32)
        with soundfile.SoundFile(sound, "w", RATE_HZ, channels, "PCM_16", format="WAV") as file:
            for block in _gapless(_decoded(source, channels), frames, channels):
                file.write(block)
                mono.write(rate.add(block.astype(np.float32) @ mean).tobytes())
        mono.write(rate.rest().tobytes())
    return track


def _gapless(
    blocks: Iterable[tuple[int, npt.NDArray[np.int16]]], frames: int, channels: int
) -> Iterator[npt.NDArray[np.int16]]:
    """Yield blocks without gaps, `frames` in all. Gaps of the medium become silence."""
    silence = np.zeros((_BLOCK_FRAMES, channels), np.int16)
    end = 0
    for at, samples in itertools.chain(blocks, [(frames, silence[:0])]):
        start = min(at, frames)
        for _ in range(end, start, _BLOCK_FRAMES):
            yield silence[: start - end]
            end = min(start, end + _BLOCK_FRAMES)
        # Skip samples that overlap the block before.
        rest = samples[end - start : frames - start]
        if len(rest):
            yield rest
            end += len(rest)


def _decoded(source: Any, channels: int) -> Iterator[tuple[int, npt.NDArray[np.int16]]]:
    """Yield blocks of samples with the frame of the medium at which they stand."""
    import av

    converter = av.AudioResampler(format="s16", layout="mono" if channels == 1 else "stereo", rate=RATE_HZ)
    zero = round(start_seconds(source) * RATE_HZ)
    end = 0
    try:
        for frame in itertools.chain(source.decode(source.streams.audio[0]), (None,)):
            for converted in converter.resample(frame):
                plane = np.frombuffer(memoryview(converted.planes[0]), np.int16, converted.samples * channels)
                samples = plane.reshape(-1, channels)
                at = end if converted.time is None else round(converted.time * RATE_HZ) - zero
                if abs(at - end) < _ROUNDED_SECONDS * RATE_HZ:
                    at = end
                end = at + len(samples)
                if end > 0:
                    yield max(at, 0), samples[max(-at, 0) :]
    except (av.error.FFmpegError, ValueError) as error:
        raise AudioError("the audio is damaged or truncated") from error


def mux(source: Path, mixed: Path, target: Path, *, language: str, container: str) -> None:
    """Write a medium again with other audio. Copy the packets of its video, and leave out the rest.

    Parameters
    ----------
    source
        The medium.
    mixed
        A WAV file at 48000 Hz, as long as the medium.
    target
        The file to write, whole or not at all.
    language
        Locale of the audio.
    container
        The container of the medium, from :func:`container_of`.

    Raises
    ------
    AudioError
        The container does not take the video, or its packets as they are.
    """
    import av

    try:
        with written(target) as beside, demuxed(source) as given, soundfile.SoundFile(mixed) as sound:
            _mux(given, sound, beside, language=language, kind=_KINDS[container])
    except (av.error.FFmpegError, ValueError) as error:
        words = getattr(error, "strerror", None) or error
        raise AudioError(f"the video cannot be copied into another {container} file: {words}") from error


def _mux(given: Any, sound: soundfile.SoundFile, path: Path, *, language: str, kind: _Kind) -> None:
    import av

    # An MP4 with its index in front plays before it has been fetched whole.
    options = {"movflags": "faststart"} if kind.muxer in {"mp4", "ipod", "mov"} else {}
    with av.open(str(path), "w", format=kind.muxer, options=options) as made:
        video, copied = moving_pictures(given), None
        if video is not None:
            # An opaque stream is copied, so it needs no encoder.
            copied = made.add_stream_from_template(video, opaque=True)
            copied.codec_context.framerate = video.average_rate
            copied.codec_context.codec_tag = video.codec_context.codec_tag
        encoder: Any = made.add_stream(
            kind.codec, rate=RATE_HZ, layout="mono" if sound.channels == 1 else "stereo"
        )
        encoder.bit_rate = _BITS_PER_CHANNEL * sound.channels
        encoder.metadata["language"] = made.metadata["language"] = _language(language, kind.muxer)
        frames = _frames(sound)
        end_s, start_s = 0.0, start_seconds(given)
        for packet in given.demux(video) if video is not None else ():
            if packet.size:
                # The dub begins at time zero, as the track does.
                shift = round(start_s / packet.time_base)
                packet.pts = None if packet.pts is None else packet.pts - shift
                packet.dts = None if packet.dts is None else packet.dts - shift
                time = packet.dts if packet.dts is not None else packet.pts
                # Audio goes in front of its video, so that a player reads both in one go.
                while end_s <= float((time or 0) * packet.time_base) and (frame := next(frames, None)):
                    end_s = (frame.pts + frame.samples) / RATE_HZ
                    made.mux(encoder.encode(frame))
                packet.stream = copied
                made.mux(packet)
        for frame in itertools.chain(frames, (None,)):
            made.mux(encoder.encode(frame))


def _language(locale: str, muxer: str) -> str:
    """Return the code of a language in a container. Matroska and QuickTime use older codes."""
    code = three_letters(locale)
    is_older = muxer in {"matroska", "webm"} or (muxer == "mov" and code in _OLDER_IN_QUICKTIME)
    return three_letters(locale, bibliographic=True) if is_older else code


def _frames(sound: soundfile.SoundFile) -> Iterator[Any]:
    from fractions import Fraction

    import av

    at = 0
    layout = "mono" if sound.channels == 1 else "stereo"
    while len(block := sound.read(_BLOCK_FRAMES // 4, dtype="int16", always_2d=True)):
        frame = av.AudioFrame.from_ndarray(block.reshape(1, -1), format="s16", layout=layout)
        frame.sample_rate, frame.time_base, frame.pts = RATE_HZ, Fraction(1, RATE_HZ), at
        at += len(block)
        yield frame
