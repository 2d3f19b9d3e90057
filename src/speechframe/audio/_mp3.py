"""Reading of MP3 frames (MPEG audio, layer III), for the exact length and for complete decoding.

The first frame of an MP3 file may contain the number of frames. The decoder trusts this number. So it reads
only the first of several joined files, and it guesses the length of a stream without the number. It also
prints messages about bytes between frames. :meth:`Mp3.make_decodable` returns only frames, after a first
frame with the correct number.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from speechframe.errors import AudioError

_RATES_HZ = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
"""Sample rates by the two header bits for the version of MPEG. 3, 2 and 0 are versions 1, 2 and 2.5."""
_MPEG_1 = 3
# Bit rates in kbit/s of version 1, and of versions 2 and 2.5.
_KBITS_OF_MPEG_1 = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBITS_OF_MPEG_2 = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_FRAME_OR_ID3_START = re.compile(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb]|ID3")
_MAX_CANDIDATES = 10_000
"""Largest number of places to check that look like the start of a frame. Random data has one in 10 KB."""
_HEADER_BYTES = 4
_MONO_MODE = 3
"""Value of the two header bits for the channel mode of a mono frame."""
_ID3_BYTES = 10

_FIRST_FRAME_RATE_BITS = 0x80
"""Header bits of a bit rate at which a frame has space for the number of frames."""
_VBRI_OFFSET, _VBRI_FRAMES_OFFSET = 36, 50
_FRAME_COUNT_FLAG = 1
"""Flag of the part with the number of frames."""
_TAG_PARTS_BYTES = {_FRAME_COUNT_FLAG: 4, 2: 4, 4: 100, 8: 4}
"""Sizes in bytes of the optional parts before the encoder's name: frames, bytes, seek table, quality."""
_PADDING_ENCODERS = frozenset({b"LAME", b"Lavf", b"Lavc"})
"""First four letters of the names of encoders that write their padding."""
_PADDING_OFFSET = 21
"""Offset from the encoder's name to the padding before and after the sound, in twelve bits each."""
_DECODER_DELAY_SAMPLES = 529
"""Number of samples that a decoder adds before the sound."""


@dataclass(frozen=True, slots=True)
class FrameKind:
    """Header fields that are equal in all frames of a file, as header bits (`version`, `rate`)."""

    version: int
    rate: int
    is_mono: bool

    @property
    def sample_rate_hz(self) -> int:
        """Sample rate in Hz."""
        return _RATES_HZ[self.version][self.rate]

    @property
    def channels(self) -> int:
        """Number of channels, 1 or 2."""
        return 1 if self.is_mono else 2

    @property
    def frame_samples(self) -> int:
        """Samples of each channel in a frame."""
        return 1152 if self.version == _MPEG_1 else 576

    @property
    def tag_at(self) -> int:
        """Offset in a frame at which its sound begins, or the information in the first frame."""
        if self.version == _MPEG_1:
            return 21 if self.is_mono else 36
        return 13 if self.is_mono else 21


@dataclass(frozen=True, slots=True)
class _FrameRun:
    """A run of consecutive frames, from byte `start` to `end`. `count` is the number of complete frames."""

    kind: FrameKind
    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Mp3:
    """The frames of an MP3 file.

    Attributes
    ----------
    kind
        Rate and channels.
    count
        Number of frames with sound.
    spans
        Start and end of each run of frames in the file.
    before, behind
        Samples of padding that the encoder added before and after the sound.
    is_cut
        Whether the file is cut off in its last frame. This frame counts and is silent.
    """

    kind: FrameKind
    count: int
    spans: tuple[_FrameRun, ...]
    before: int
    behind: int
    is_cut: bool

    @property
    def frames(self) -> int:
        """Length in samples of each channel."""
        return max(0, self.count * self.kind.frame_samples - self.before - self.behind)

    def make_decodable(self, data: bytes) -> bytes:
        """Return the file as frames that the decoder reads completely and without messages."""
        head = data[self.spans[0].start : self.spans[0].start + _HEADER_BYTES]
        head = bytes((head[0], head[1] | 1, _FIRST_FRAME_RATE_BITS | head[2] & 0x0C, head[3]))
        silent = head.ljust(_compute_frame_sizes(self.kind)[head[:3]], b"\0")
        # The decoder always removes its own delay at the start. If the file has no padding, put a silent
        # frame first, and make the decoder remove exactly that frame.
        added_frames = 0 if self.before else 1
        removed_samples = (
            (self.before or self.kind.frame_samples) - _DECODER_DELAY_SAMPLES,
            self.behind + _DECODER_DELAY_SAMPLES,
        )
        tag = b"".join(
            (
                b"Info",
                _FRAME_COUNT_FLAG.to_bytes(4),
                (self.count + added_frames).to_bytes(4),
                b"LAME".ljust(_PADDING_OFFSET, b"\0"),
                (removed_samples[0] << 12 | removed_samples[1]).to_bytes(3),
            )
        )
        first = head.ljust(self.kind.tag_at, b"\0") + tag
        sound = (_silence_broken_frames(data[span.start : span.end], self.kind) for span in self.spans)
        return b"".join(
            (first.ljust(len(silent), b"\0"), silent * added_frames, *sound, silent * self.is_cut)
        )


def read_mp3(data: bytes) -> Mp3 | None:
    """Return the frames of a file, and the padding that FFmpeg would remove. None if no frame is found.

    Raise AudioError if the file has fewer frames than its first frame states, has no sound, changes its rate
    or channels, or has much data that is neither a frame nor a tag.
    """
    spans = list(_find_frame_runs(data))
    if not spans:
        return None
    kind, start = spans[0].kind, spans[0].start
    first = data[start : start + _compute_frame_sizes(kind)[data[start : start + 3]]]
    announced, before, behind = _read_first_frame(first, kind)
    if announced is not None:
        spans[0] = replace(spans[0], start=start + len(first), count=spans[0].count - 1)
    count = sum(span.count for span in spans)
    missing = max(0, (announced or 0) - count)
    # Missing frames at the end are allowed if they contain only padding. Some encoders do not write the
    # padding, or count their first frame too.
    if missing * kind.frame_samples > (behind or kind.frame_samples):
        raise AudioError(f"the MP3 file is truncated: it has {count} of {announced} frames")
    is_cut = _read_kind(data[spans[-1].end : spans[-1].end + _HEADER_BYTES]) == kind
    # If files were joined, the padding at the end of the first file lies in the middle. Do not remove it.
    missing_samples = max(0, missing - is_cut) * kind.frame_samples
    behind = max(0, behind - missing_samples) if count <= (announced or 0) else 0
    found = Mp3(kind, count + is_cut, tuple(spans), before, behind, is_cut)
    if not found.frames:
        raise AudioError("no audio: the MP3 file has no samples")
    return found


def _find_frame_runs(data: bytes) -> Iterator[_FrameRun]:
    at = _find_next_frame(data, 0)
    kind = None
    while at is not None:
        found = _read_kind(data[at : at + _HEADER_BYTES])
        if found is None or kind not in {None, found}:
            raise AudioError("the MP3 data changes its sample rate or channels midway. Split it there.")
        kind, sizes = found, _compute_frame_sizes(found)
        start, count = at, 0
        while at + (size := sizes.get(data[at : at + 3], len(data) + 1)) <= len(data):
            if (data[at + 3] >> 6 == _MONO_MODE) != kind.is_mono:
                break
            count += 1
            at += size
        yield _FrameRun(kind, start, at, count)
        at = _find_next_frame(data, at)


def _silence_broken_frames(frames: bytes, kind: FrameKind) -> bytes:
    """Return frames in which the first frames are silent if they need bytes of lost earlier frames."""
    silent: list[bytes] = []
    kept_bytes = at = 0
    while head := frames[at : at + 3]:
        sound_at = at + _HEADER_BYTES + (0 if head[1] & 1 else 2)
        back_bytes = int.from_bytes(frames[sound_at : sound_at + 2]) >> (7 if kind.version == _MPEG_1 else 8)
        if back_bytes <= kept_bytes:
            break
        size = _compute_frame_sizes(kind)[head]
        kept_at = sound_at + kind.tag_at - _HEADER_BYTES
        silent += frames[at:sound_at], bytes(kept_at - sound_at), frames[kept_at : at + size]
        kept_bytes += at + size - kept_at
        at += size
    return b"".join((*silent, frames[at:]))


def _find_next_frame(data: bytes, at: int) -> int | None:
    """Return the position of the next frame, which the file's end or an equal kind must follow, or None."""
    for _ in range(_MAX_CANDIDATES):
        found = _FRAME_OR_ID3_START.search(data, at)
        if found is None:
            return None
        at = found.start()
        if found.group() == b"ID3":
            # The size of an ID3 tag has seven bits in each byte.
            at += _ID3_BYTES + sum(
                (byte & 0x7F) << shift
                for byte, shift in zip(data[at + 6 : at + 10], (21, 14, 7, 0), strict=False)
            )
            continue
        kind = _read_kind(data[at : at + _HEADER_BYTES])
        if kind is not None:
            end = at + _compute_frame_sizes(kind)[data[at : at + 3]]
            if end == len(data) or _read_kind(data[end : end + _HEADER_BYTES]) == kind:
                return at
        at += 1
    raise AudioError("the MP3 data is damaged: too much of it is not sound")


def _read_kind(head: bytes) -> FrameKind | None:
    """Return the common fields of frames from the four bytes of a header, or None for other bytes."""
    if len(head) < _HEADER_BYTES:
        return None
    version, rate = head[1] >> 3 & 3, head[2] >> 2 & 3
    if version not in _RATES_HZ or rate == len(_RATES_HZ[version]):
        return None
    kind = FrameKind(version, rate, head[3] >> 6 == _MONO_MODE)
    return kind if head[:3] in _compute_frame_sizes(kind) else None


@cache
def _compute_frame_sizes(kind: FrameKind) -> Mapping[bytes, int]:
    """Return the sizes of frames in bytes by their first three bytes, for every bit rate."""
    kbits = _KBITS_OF_MPEG_1 if kind.version == _MPEG_1 else _KBITS_OF_MPEG_2
    found = {}
    for (code, rate), padding, others in product(enumerate(kbits, 1), (0, 1), product((0, 1), (0, 1))):
        protection, private = others
        head = bytes(
            (0xFF, 0xE2 | kind.version << 3 | protection, code << 4 | kind.rate << 2 | padding << 1 | private)
        )
        found[head] = kind.frame_samples // 8 * rate * 1000 // kind.sample_rate_hz + padding
    return found


def _read_first_frame(first: bytes, kind: FrameKind) -> tuple[int | None, int, int]:
    """Return the information in the first frame: number of frames, padding before, padding after the sound.

    The first frame is not counted. The number is 0 if it is unknown, and None if the first frame has sound.
    """
    if first[_VBRI_OFFSET : _VBRI_OFFSET + 4] == b"VBRI":
        return int.from_bytes(first[_VBRI_FRAMES_OFFSET : _VBRI_FRAMES_OFFSET + 4]), 0, 0
    at = kind.tag_at
    if first[at : at + 4] not in {b"Xing", b"Info"}:
        return None, 0, 0
    parts = int.from_bytes(first[at + 4 : at + 8])
    at += 8
    frames = int.from_bytes(first[at : at + 4]) if parts & _FRAME_COUNT_FLAG else 0
    at += sum(size for part, size in _TAG_PARTS_BYTES.items() if parts & part)
    if first[at : at + 4] not in _PADDING_ENCODERS:
        return frames, 0, 0
    packed = int.from_bytes(first[at + _PADDING_OFFSET : at + _PADDING_OFFSET + 3])
    return frames, (packed >> 12) + _DECODER_DELAY_SAMPLES, max(0, (packed & 0xFFF) - _DECODER_DELAY_SAMPLES)
