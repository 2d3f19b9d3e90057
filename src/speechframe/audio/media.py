"""Reading of the audio of media files as mono blocks, with limits of length and memory.

libsndfile reads audio files (WAV, FLAC, OGG, MP3, AIFF, AU, CAF and more). PyAV (extra ``media``) reads one
audio track of MP4, M4A, MKV, WebM and similar files. A late start and gaps of a track become silence, so that
the sound fits the pictures. The libraries cannot open files that the given file refers to. Playlists are
refused.

A malicious file may crash a decoder. So the local service calls this module only in its worker processes.
"""

import contextlib
import io
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import soundfile

from speechframe.audio import _headers, _mp3
from speechframe.audio._rate import StreamResampler
from speechframe.audio._samples import Mixer, Samples
from speechframe.audio.codec import Audio, SequentialSoundFile
from speechframe.audio.tracks import (
    choose_audio_track,
    decode_with_positions,
    fill_gaps,
    list_audio_tracks,
    make_track_warning,
)
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

READABLE_RATES_HZ = range(4000, 192_001)
"""Sample rates in Hz that can be read."""
MAX_CHANNELS = 32
"""Largest number of channels that can be read."""
MAX_OUTPUT_RATE_HZ = 48_000
"""Highest sample rate of the result in Hz. Audio at a higher rate is converted to this rate."""

_BLOCK_FRAMES = 1 << 16
"""Number of frames that are read at a time."""
_MIN_UNKNOWN_FRAMES = 1 << 62
"""libsndfile returns a number of frames from this value on if the length is unknown."""
# Allowed demuxers, which open no other files. HLS, DASH and concat would open any address in the file.
_ALLOWED_DEMUXERS = (
    *(
        "mov",
        "mp4",
        "m4a",
        "3gp",
        "3g2",
        "mj2",
        "matroska",
        "webm",
        "ogg",
        "avi",
        "flv",
        "mpegts",
        "mpeg",
        "asf",
    ),
    *("wav", "w64", "aiff", "au", "caf", "flac", "mp3", "aac", "ac3", "eac3", "amr"),
)
_OPEN_OPTIONS = {
    "format_whitelist": ",".join(_ALLOWED_DEMUXERS),
    "protocol_whitelist": "none",
    "enable_drefs": "0",
}


class _NoLength(Exception):
    """Internal error for a stream of unknown length, which libsndfile cannot read."""


@dataclass(frozen=True, slots=True)
class Media:
    """The audio of an open file.

    Attributes
    ----------
    sample_rate_hz
        Sample rate of the blocks in Hz.
    blocks
        Iterator of float32 in [-1, 1], shape ``(frames,)``, with mixed channels. Read it once, in the
        ``with`` block of :func:`open_media`. It raises AudioError if the file is damaged or too long.
    warning
        Warning that names the track that is read, if the file has several tracks.
    """

    sample_rate_hz: int
    blocks: Iterator[Samples]
    warning: str | None = None


def read_audio(path: Path, *, max_seconds: float) -> Audio:
    """Return the audio of a file as mono, at its own rate but at most 48000 Hz.

    Parameters
    ----------
    path
        An audio file, or with the extra ``media`` a video.
    max_seconds
        Longest allowed audio in seconds.

    Raises
    ------
    AudioError
        The file has no audio or no samples, is damaged, truncated or longer than `max_seconds`, or has a rate
        outside 4000 to 192000 Hz. Or its format needs the extra ``media``, which is not installed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "clip.wav")
    ...     soundfile.write(path, np.zeros((8000, 2)), 16000)
    ...     read_audio(path, max_seconds=10).samples.shape
    (8000,)
    """
    with open_media(path, max_seconds=max_seconds) as media:
        blocks = list(media.blocks)
        return Audio(np.concatenate(blocks), media.sample_rate_hz)


@contextlib.contextmanager
def open_media(medium: Path | bytes, *, max_seconds: float) -> Iterator[Media]:
    """Open a file, or its bytes, as a context manager. It raises the errors of :func:`read_audio`.

    At most one block of samples is in memory at a time.
    """
    _refuse_empty(medium)
    with contextlib.ExitStack() as stack:
        try:
            media = stack.enter_context(_open_by_soundfile(medium, max_seconds))
        except (soundfile.LibsndfileError, _NoLength):
            media = stack.enter_context(_open_by_av(medium, max_seconds))
        yield media


@contextlib.contextmanager
def _open_by_soundfile(medium: Path | bytes, max_seconds: float) -> Iterator[Media]:
    # Pass an open file instead of a path, because libsndfile would read some endings as raw samples.
    with _open_checked(medium, max_seconds) as stream, SequentialSoundFile(stream) as file:
        refuse_shape(file.samplerate, file.channels)
        if file.frames >= _MIN_UNKNOWN_FRAMES:
            raise _NoLength
        if file.frames > max_seconds * file.samplerate:
            raise _make_length_error(max_seconds)
        yield _make_media(_read_sound_blocks(file), file.samplerate, max_seconds)


def _open_checked(medium: Path | bytes, max_seconds: float) -> IO[bytes]:
    """Check the headers of a file, and return the file or its MP3 frames as a stream for the decoder."""
    with _map_file(medium) as data:
        mp3 = _refuse_truncated_bytes(data)
        found = _headers.recognise_container(data[: _headers.MAGIC_BYTES])
        if found is not None and _headers.is_open_ended(data, found):
            raise _NoLength
        if mp3 is not None:
            if mp3.frames > max_seconds * mp3.kind.sample_rate_hz:
                raise _make_length_error(max_seconds)
            return io.BytesIO(mp3.make_decodable(data))
    return _open_stream(medium)


def refuse_truncated(medium: Path | bytes) -> float:
    """Raise AudioError if a file is empty, or truncated by its headers. The function decodes nothing.

    Returns the length in seconds in the header of MP4, M4A or MOV, which FFmpeg does not return. Returns 0
    for all other files.
    """
    _refuse_empty(medium)
    with _map_file(medium) as data:
        _refuse_truncated_bytes(data)
        return _headers.read_movie_seconds(data) if data[4:8] == _headers.MP4_MARK else 0.0


@contextlib.contextmanager
def _map_file(medium: Path | bytes) -> Iterator[bytes]:
    if not isinstance(medium, Path):
        yield medium
        return
    with medium.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        yield cast("bytes", mapped)  # a map has the used methods of bytes


def _open_stream(medium: Path | bytes) -> IO[bytes]:
    # Bytes may also be a mapped file.
    return medium.open("rb") if isinstance(medium, Path) else io.BytesIO(medium)


def _refuse_empty(medium: Path | bytes) -> None:
    if not (medium.stat().st_size if isinstance(medium, Path) else len(medium)):
        raise AudioError("no audio: the file is empty")


def _refuse_truncated_bytes(data: bytes) -> _mp3.Mp3 | None:
    if data[:4] == _headers.MATROSKA_START:
        _headers.refuse_truncated_matroska(data)
    if data[4:8] == _headers.MP4_MARK:
        _headers.refuse_truncated_mp4(data)
    found = _headers.recognise_container(data[: _headers.MAGIC_BYTES])
    if found is not None:
        _headers.refuse_truncated(data, found, needs_end=False)
    return _mp3.read_mp3(data) if found is Format.MP3 else None


def _read_sound_blocks(file: soundfile.SoundFile) -> Iterator[Samples]:
    frames, mixer = 0, Mixer()
    try:
        while len(block := file.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)):
            frames += len(block)
            yield mixer.add(block)
    except soundfile.LibsndfileError as error:
        raise AudioError(f"the {file.format} data is damaged or truncated") from error
    if frames < file.frames:
        raise AudioError(f"the {file.format} file is truncated: it has {frames} of {file.frames} frames")


@contextlib.contextmanager
def _open_by_av(medium: Path | bytes, max_seconds: float) -> Iterator[Media]:
    with open_container(medium) as container:
        found = choose_audio_track(container)
        refuse_shape(found.rate or 0, found.channels or 0)
        media = _make_media(fill_gaps(read_blocks(container, found.rate)), found.rate, max_seconds)
        warning = make_track_warning(container, None, use="read", instead="give a file with that track alone")
        yield replace(media, warning=warning)


@contextlib.contextmanager
def open_container(medium: Path | bytes) -> Iterator[Any]:
    """Open a media file as an ``av.container.InputContainer``, as a context manager.

    Raise AudioError if PyAV is not installed, or if the file is not a media file or has no readable audio
    stream.
    """
    try:
        import av
    except ModuleNotFoundError:
        raise AudioError(
            "no audio that can be read here. For videos, and for audio such as M4A or WebM, run: "
            "pip install 'speechframe[media]'"
        ) from None
    with contextlib.ExitStack() as stack:
        # Pass an open file here too, because a path could refer to other files.
        stream = stack.enter_context(_open_stream(medium))
        try:
            container = stack.enter_context(
                av.open(stream, options=dict(_OPEN_OPTIONS), metadata_errors="replace")
            )
            audio = container.streams.audio
        except (av.error.FFmpegError, ValueError) as error:
            raise AudioError("no audio that can be read") from error
        if not audio:
            raise AudioError("no audio: the file has no audio stream")
        if not list_audio_tracks(container):
            raise AudioError("no audio that can be read: the encoding of the audio is unknown here")
        yield container


def read_blocks(container: Any, rate_hz: int) -> Iterator[tuple[int, Samples]]:
    """Yield the audio of a PyAV container as pairs of a position in frames and a mono block.

    The function raises the errors of :func:`~speechframe.audio.tracks.decode_with_positions`.
    """
    import av

    refuse_shape(rate_hz, 1)
    # Mix the channels with `Mixer`, because FFmpeg would make two equal channels louder. Use the packed
    # format "flt", because PyAV 18 reads past the last of eight planes.
    converter, mixer = av.AudioResampler(format="flt", rate=rate_hz), Mixer()
    for at, samples in decode_with_positions(container, choose_audio_track(container), converter, rate_hz):
        yield at, mixer.add(samples)


def refuse_shape(rate_hz: int, channels: int) -> None:
    """Raise AudioError if a sample rate or a number of channels is outside the allowed range."""
    if rate_hz not in READABLE_RATES_HZ:
        raise AudioError(
            f"the sample rate {rate_hz} Hz cannot be read. Allowed: {READABLE_RATES_HZ[0]} to "
            f"{READABLE_RATES_HZ[-1]}."
        )
    if not 0 < channels <= MAX_CHANNELS:
        raise AudioError(f"{channels} channels cannot be read. Allowed: 1 to {MAX_CHANNELS}.")


def _make_length_error(max_seconds: float) -> AudioError:
    return AudioError(f"the audio is longer than {max_seconds:g} seconds, the longest that is allowed")


def _make_media(blocks: Iterator[Samples], rate_hz: int, max_seconds: float) -> Media:
    bounded = _limit_length(blocks, rate_hz, max_seconds)
    if rate_hz <= MAX_OUTPUT_RATE_HZ:
        return Media(rate_hz, bounded)
    return Media(MAX_OUTPUT_RATE_HZ, _reduce_rate(bounded, rate_hz))


def _limit_length(blocks: Iterator[Samples], rate_hz: int, max_seconds: float) -> Iterator[Samples]:
    # Count the samples, because the header may be wrong, and hours of silence may be a few bytes.
    frames = 0
    for block in blocks:
        frames += len(block)
        if frames > max_seconds * rate_hz:
            raise _make_length_error(max_seconds)
        if not np.isfinite(block).all():
            raise AudioError("the audio has values that are not numbers")
        if len(block):
            # Clip, because samples of floating-point files and codecs may be outside [-1, 1].
            yield np.clip(block, -1.0, 1.0)
    if not frames:
        raise AudioError("no audio: the file has no samples")


def _reduce_rate(blocks: Iterator[Samples], rate_hz: int) -> Iterator[Samples]:
    rate = StreamResampler(rate_hz, MAX_OUTPUT_RATE_HZ)
    for block in blocks:
        if len(made := rate.add(block)):
            yield made
    yield rate.finish()
