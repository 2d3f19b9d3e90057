"""Make canned audio that contains a tag (a 64-bit hash of its text).

A clip (one WAV or FLAC file) consists of a head of a few bytes and a tail. The head contains the tag. All
clips with the same format, rate, channels, length and pitch share one tail, so the tail is encoded only once.
The size of a head is a multiple of three bytes. So the Base64 of the head, followed by the Base64 of the
tail, is the Base64 of the clip.

The sound is a hum of 120 to 190 Hz whose loudness rises and falls four times a second. The sound is neither
silent nor clipped. By default its length is that of speech of the text.
"""

import functools
import hashlib
import io
import struct
from binascii import b2a_base64
from typing import NamedTuple

import numpy as np
import soundfile
from numpy.typing import NDArray

from speechframe.errors import AudioError
from speechframe.spec.speech import Format

__all__ = ["Shape", "encode_clip_base64", "make_clip", "make_shape", "make_streamed_clip", "tag_in", "tag_of"]

SECONDS_PER_CHARACTER = 0.06
"""Length of the audio for each billed character in seconds, about as in real speech."""
VARIANT_COUNT = 8
"""Number of pitches. The text selects the pitch, and each further take uses the next pitch."""

_PERIOD_S = 3
"""Length in seconds of the sound that each clip repeats. Its bytes are a multiple of three at every rate."""
_QUANTUM_S = 0.15
"""The length of a clip is a multiple of this many seconds, unless it comes from `audio_bytes`. This is a
multiple of three frames at every allowed rate."""
_SAMPLE_BYTES = 2
_FULL_SCALE = 32767
_PEAK_SHARE = 0.5
"""Peak of the sound as a share of full scale."""
_MIN_FRAMES = 300
"""Length in frames of the shortest clip, a multiple of three."""

_TAG_LAYOUT = struct.Struct("<QIH")
"""Layout of the data in the head: tag, take, variant."""
_WAV_TAG_NAME = b"spfT"
"""Name of the RIFF chunk with the tag."""
_WAV_HEAD_LAYOUT = struct.Struct("<4sI4s 4sIHHIIHH 4sI14s 4sI")
"""Layout of the head of a WAV file: RIFF header, format, tag, and the header of the samples."""
_CHUNK_LAYOUT = struct.Struct("<4sI")
"""Layout of the header of a RIFF chunk: name, size in bytes."""
_FLAC_MAGIC = b"fLaC"
_FLAC_TAG_ID = b"spfT"
"""Application id of the FLAC metadata block with the tag."""
_FLAC_APPLICATION_TYPE = 2
"""Type of a FLAC metadata block for application data."""
_FLAC_LAST_BIT = 0x80
"""Bit in the type of the last FLAC metadata block."""
_FLAC_INFO_BYTES = 42
"""Size of the magic bytes and the STREAMINFO block, which is always the first block."""
_FLAC_PADDING = b"\0\0"
"""Zeros after the tag that make the size of a FLAC head a multiple of three."""
_FLAC_FRAMES_OFFSET, _FLAC_FRAMES_MASK = 18, (1 << 36) - 1
"""Offset of the eight bytes that contain the number of frames, and the mask of its 36 bits."""
_UNKNOWN_LENGTH = b"\xff\xff\xff\xff"
"""Size in a WAV header that means an unknown length, as in a stream."""


class Shape(NamedTuple):
    """Properties that many clips share: format, sample rate, channels, frames (length), variant (pitch)."""

    format: Format
    rate_hz: int
    channels: int
    frames: int
    variant: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return self.frames / self.rate_hz


def tag_of(text: str) -> int:
    """Return the tag of a text: a 64-bit hash.

    The tag identifies the text in audio and in :class:`~speechframe.testing.Books`. It depends only on the
    text, and is the same in every process.

    Parameters
    ----------
    text
        The text exactly as it was sent, with its pause markers.

    Examples
    --------
    >>> tag_of("Hello") == tag_of("Hello") != tag_of("hello")
    True
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def tag_in(audio: bytes) -> int:
    """Return the tag of the text for which a :class:`~speechframe.testing.FaultyService` made the audio.

    Parameters
    ----------
    audio
        WAV or FLAC bytes exactly as the service sent them.

    Raises
    ------
    AudioError
        If the audio has no tag, for example because it was encoded again.

    Examples
    --------
    >>> shape = make_shape(Format.FLAC, 24000, 1, characters=5, audio_bytes=None, variant=0)
    >>> tag_in(make_clip(shape, tag_of("Hello"), take=0)) == tag_of("Hello")
    True
    """
    payload = _find_flac_tag(audio) if audio.startswith(_FLAC_MAGIC) else _find_wav_tag(audio)
    if payload is None or len(payload) < _TAG_LAYOUT.size:
        raise AudioError(
            "the audio has no tag. Give the WAV or FLAC bytes exactly as a FaultyService sent them."
        )
    tag: int = _TAG_LAYOUT.unpack_from(payload)[0]
    return tag


def make_shape(
    format: Format, rate_hz: int, channels: int, *, characters: int, audio_bytes: int | None, variant: int
) -> Shape:
    """Return the shape of a clip.

    The number of billed `characters` determines the length, unless `audio_bytes` is set to the approximate
    size of the clip. `variant` may be any integer, because pitches repeat.

    Examples
    --------
    >>> make_shape(Format.WAV, 8000, 1, characters=100, audio_bytes=None, variant=0).seconds
    6.0
    >>> len(make_clip(make_shape(Format.WAV, 44100, 2, characters=9, audio_bytes=60_000, variant=0), 1, 0))
    59994
    """
    if audio_bytes is None:
        quanta = max(1, round(characters * SECONDS_PER_CHARACTER / _QUANTUM_S))
        frames = quanta * round(_QUANTUM_S * rate_hz)
    elif format is Format.FLAC:
        frames = _estimate_flac_frames(rate_hz, channels, audio_bytes)
    else:
        frames = _round_to_threes((audio_bytes - _WAV_HEAD_LAYOUT.size) // (_SAMPLE_BYTES * channels))
    return Shape(format, rate_hz, channels, frames, variant % VARIANT_COUNT)


def make_clip(shape: Shape, tag: int, take: int) -> bytes:
    """Return the bytes of a clip."""
    if shape.format is Format.FLAC:
        flac = _encode_flac_parts(shape)
        return _make_flac_head(shape, flac, tag, take) + flac.tail
    return b"".join(
        (
            _make_wav_head(shape, tag, take),
            *_repeat_period(_make_period(*shape[1:3], shape.variant), _compute_data_bytes(shape)),
        )
    )


def make_streamed_clip(shape: Shape, tag: int, take: int) -> bytes:
    """Return the bytes of a clip whose header gives no length, as in a stream."""
    whole = make_clip(shape, tag, take)
    if shape.format is Format.FLAC:
        at = slice(_FLAC_FRAMES_OFFSET, _FLAC_FRAMES_OFFSET + 8)
        packed = int.from_bytes(whole[at], "big") & ~_FLAC_FRAMES_MASK
        return whole[: at.start] + packed.to_bytes(8, "big") + whole[at.stop :]
    head = _WAV_HEAD_LAYOUT.size
    return b"".join((whole[:4], _UNKNOWN_LENGTH, whole[8 : head - 4], _UNKNOWN_LENGTH, whole[head:]))


def encode_clip_base64(shape: Shape, tag: int, take: int) -> tuple[bytes | memoryview, ...]:
    """Return the Base64 of a clip in pieces. The Base64 of the tail comes from a cache."""
    if shape.format is Format.FLAC:
        flac = _encode_flac_parts(shape)
        return b2a_base64(_make_flac_head(shape, flac, tag, take), newline=False), flac.tail_base64
    period = _encode_period_base64(*shape[1:3], shape.variant)
    pieces = _repeat_period(period, _compute_data_bytes(shape) * 4 // 3)
    return b2a_base64(_make_wav_head(shape, tag, take), newline=False), *pieces


def _round_to_threes(frames: int) -> int:
    return max(_MIN_FRAMES, frames // 3 * 3)


def _compute_data_bytes(shape: Shape) -> int:
    return shape.frames * _SAMPLE_BYTES * shape.channels


def _make_wav_head(shape: Shape, tag: int, take: int) -> bytes:
    frame_bytes, data_bytes = _SAMPLE_BYTES * shape.channels, _compute_data_bytes(shape)
    return _WAV_HEAD_LAYOUT.pack(
        b"RIFF", _WAV_HEAD_LAYOUT.size - 8 + data_bytes, b"WAVE",
        b"fmt ", 16, 1, shape.channels, shape.rate_hz, shape.rate_hz * frame_bytes, frame_bytes, 16,
        _WAV_TAG_NAME, _TAG_LAYOUT.size, _TAG_LAYOUT.pack(tag, take, shape.variant),
        b"data", data_bytes,
    )  # fmt: skip


def _repeat_period(period: bytes, size_bytes: int) -> list[bytes | memoryview]:
    times, rest = divmod(size_bytes, len(period))
    return [*[period] * times, memoryview(period)[:rest]]


@functools.cache
def _make_samples(rate_hz: int, variant: int) -> NDArray[np.int16]:
    """Return `_PERIOD_S` seconds of the sound. The hum continues smoothly if the period is repeated."""
    time_s = np.arange(_PERIOD_S * rate_hz) / rate_hz
    pitch_hz = 120 + 10 * variant
    hum = sum(np.sin(2 * np.pi * pitch_hz * k * time_s) / k for k in range(1, 6))
    syllables = 0.3 + 0.7 * np.sin(2 * np.pi * 2 * time_s) ** 2
    # Add a little noise, as in recordings. Without noise, FLAC would shrink the sound far more than speech.
    breath = np.random.default_rng(variant).uniform(-0.02, 0.02, len(time_s))
    sound = (hum + breath) * syllables
    samples: NDArray[np.int16] = np.rint(sound * (_PEAK_SHARE * _FULL_SCALE / np.abs(sound).max())).astype(
        "<i2"
    )
    return samples


@functools.cache
def _make_period(rate_hz: int, channels: int, variant: int) -> bytes:
    return np.repeat(_make_samples(rate_hz, variant), channels).tobytes()


@functools.cache
def _encode_period_base64(rate_hz: int, channels: int, variant: int) -> bytes:
    return b2a_base64(_make_period(rate_hz, channels, variant), newline=False)


class _FlacParts(NamedTuple):
    info: bytes
    tail: bytes
    tail_base64: bytes


# Limit the cache, because each length of a text may need a shape of its own.
@functools.lru_cache(maxsize=256)
def _encode_flac_parts(shape: Shape) -> _FlacParts:
    data = _encode_flac(shape)
    tail = data[_FLAC_INFO_BYTES:]
    return _FlacParts(data[:_FLAC_INFO_BYTES], tail, b2a_base64(tail, newline=False))


def _encode_flac(shape: Shape) -> bytes:
    samples = np.resize(_make_samples(shape.rate_hz, shape.variant), shape.frames)
    buffer = io.BytesIO()
    wide = np.repeat(samples[:, None], shape.channels, axis=1)
    soundfile.write(buffer, wide, shape.rate_hz, format="FLAC", subtype="PCM_16")
    return buffer.getvalue()


@functools.cache
def _estimate_flac_frames(rate_hz: int, channels: int, audio_bytes: int) -> int:
    # The size of a FLAC file is known only after encoding, so approach the requested size in three steps.
    frames = _round_to_threes(audio_bytes // channels)
    for _ in range(3):
        size = len(_encode_flac(Shape(Format.FLAC, rate_hz, channels, frames, 0)))
        frames = _round_to_threes(frames * audio_bytes // size)
    return frames


def _make_flac_head(shape: Shape, flac: _FlacParts, tag: int, take: int) -> bytes:
    data = _FLAC_TAG_ID + _TAG_LAYOUT.pack(tag, take, shape.variant) + _FLAC_PADDING
    start = len(_FLAC_MAGIC)
    last = flac.info[start] & _FLAC_LAST_BIT
    block = bytes((last | _FLAC_APPLICATION_TYPE,)) + len(data).to_bytes(3, "big") + data
    return _FLAC_MAGIC + bytes((flac.info[start] & ~_FLAC_LAST_BIT,)) + flac.info[start + 1 :] + block


def _find_wav_tag(audio: bytes) -> bytes | None:
    position = 12
    while position + _CHUNK_LAYOUT.size <= len(audio):
        name, size = _CHUNK_LAYOUT.unpack_from(audio, position)
        position += _CHUNK_LAYOUT.size
        if name == _WAV_TAG_NAME:
            return audio[position : position + size]
        position += size + size % 2
    return None


def _find_flac_tag(audio: bytes) -> bytes | None:
    position, last = len(_FLAC_MAGIC), False
    while not last and position + 4 <= len(audio):
        kind, size = audio[position], int.from_bytes(audio[position + 1 : position + 4], "big")
        position += 4
        if kind & ~_FLAC_LAST_BIT == _FLAC_APPLICATION_TYPE and audio.startswith(_FLAC_TAG_ID, position):
            return audio[position + len(_FLAC_TAG_ID) : position + size]
        last = bool(kind & _FLAC_LAST_BIT)
        position += size
    return None
