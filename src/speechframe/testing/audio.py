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
import re
import struct
from binascii import b2a_base64
from typing import NamedTuple

import numpy as np
import soundfile
from numpy.typing import NDArray

from speechframe.errors import AudioError
from speechframe.spec.speech import Format

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

_TAG_PATTERN = re.compile(rb"spftag:([0-9a-f]{16})-[0-9a-f]{8}")
"""The text with the tag and the take in each file."""
_EMPTY_TAG = b"spftag:%016x-%08x" % (0, 0)
_WAV_HEAD_LAYOUT = struct.Struct("<4sI4s 4sIHHIIHH 4sI32s 4sI")
"""Layout of the head of a WAV file: RIFF header, format, tag, and the header of the samples."""
_UNKNOWN_LENGTH = b"\xff\xff\xff\xff"
"""Size in a WAV header that means an unknown length, as in a stream."""
_FLAC_LENGTH, _FLAC_LENGTH_MASK = slice(18, 26), (1 << 36) - 1
"""The bytes whose lowest 36 bits are the number of frames of a FLAC file, which is 0 in a stream."""


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
    found = _TAG_PATTERN.search(audio)
    if found is None:
        raise AudioError(
            "the audio has no tag. Give the WAV or FLAC bytes exactly as a FaultyService sent them."
        )
    return int(found[1], 16)


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
    60000
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
        head, tail, _ = _encode_flac_parts(shape)
        return head.replace(_EMPTY_TAG, _format_tag(tag, take)) + tail
    period = _make_period(*shape[1:3], shape.variant)
    return b"".join((_make_wav_head(shape, tag, take), *_repeat_period(period, _compute_data_bytes(shape))))


def make_streamed_clip(shape: Shape, tag: int, take: int) -> bytes:
    """Return the bytes of a clip whose header gives no length, as in a stream."""
    whole = make_clip(shape, tag, take)
    if shape.format is Format.FLAC:
        packed = int.from_bytes(whole[_FLAC_LENGTH]) & ~_FLAC_LENGTH_MASK
        return whole[: _FLAC_LENGTH.start] + packed.to_bytes(8) + whole[_FLAC_LENGTH.stop :]
    head = _WAV_HEAD_LAYOUT.size
    return b"".join((whole[:4], _UNKNOWN_LENGTH, whole[8 : head - 4], _UNKNOWN_LENGTH, whole[head:]))


def encode_clip_base64(shape: Shape, tag: int, take: int) -> tuple[bytes | memoryview, ...]:
    """Return the Base64 of a clip in pieces. The Base64 of the tail comes from a cache."""
    if shape.format is Format.FLAC:
        head, _, tail = _encode_flac_parts(shape)
        return b2a_base64(head.replace(_EMPTY_TAG, _format_tag(tag, take)), newline=False), tail
    period = _encode_period_base64(*shape[1:3], shape.variant)
    pieces = _repeat_period(period, _compute_data_bytes(shape) * 4 // 3)
    return b2a_base64(_make_wav_head(shape, tag, take), newline=False), *pieces


def _format_tag(tag: int, take: int) -> bytes:
    return b"spftag:%016x-%08x" % (tag, take)


def _round_to_threes(frames: int) -> int:
    return max(_MIN_FRAMES, frames // 3 * 3)


def _compute_data_bytes(shape: Shape) -> int:
    return shape.frames * _SAMPLE_BYTES * shape.channels


def _make_wav_head(shape: Shape, tag: int, take: int) -> bytes:
    frame_bytes, data_bytes = _SAMPLE_BYTES * shape.channels, _compute_data_bytes(shape)
    return _WAV_HEAD_LAYOUT.pack(
        b"RIFF", _WAV_HEAD_LAYOUT.size - 8 + data_bytes, b"WAVE",
        b"fmt ", 16, 1, shape.channels, shape.rate_hz, shape.rate_hz * frame_bytes, frame_bytes, 16,
        b"spfT", len(_EMPTY_TAG), _format_tag(tag, take),
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


# Limit the cache, because each length of a text may need a shape of its own.
@functools.lru_cache(maxsize=256)
def _encode_flac_parts(shape: Shape) -> tuple[bytes, bytes, bytes]:
    """Return the head with an empty tag, the tail, and the Base64 of the tail."""
    data = _encode_flac(shape)
    end = data.index(_EMPTY_TAG) + len(_EMPTY_TAG)
    end += -end % 3
    return data[:end], data[end:], b2a_base64(data[end:], newline=False)


def _encode_flac(shape: Shape) -> bytes:
    samples = np.resize(_make_samples(shape.rate_hz, shape.variant), shape.frames)
    buffer = io.BytesIO()
    with soundfile.SoundFile(buffer, "w", shape.rate_hz, shape.channels, "PCM_16", format="FLAC") as file:
        file.comment = _EMPTY_TAG.decode()
        file.write(np.repeat(samples[:, None], shape.channels, axis=1))
    return buffer.getvalue()


@functools.cache
def _estimate_flac_frames(rate_hz: int, channels: int, audio_bytes: int) -> int:
    # The size of a FLAC file is known only after encoding, so approach the requested size in three steps.
    frames = _round_to_threes(audio_bytes // channels)
    for _ in range(3):
        size = len(_encode_flac(Shape(Format.FLAC, rate_hz, channels, frames, 0)))
        frames = _round_to_threes(frames * audio_bytes // size)
    return frames
