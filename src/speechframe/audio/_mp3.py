"""The frames of MP3 (MPEG audio, layer III): how long it really is, and a file that its decoder reads whole.

The decoder believes what the first frame says of the file. Of files that were joined it reads the first
alone, of a stream, which says nothing, it guesses the length, and about anything between two frames it writes
to the error stream. So it is given frames alone, behind one that says how many there are.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

from speechframe.errors import AudioError

_RATES_HZ = {3: (44100, 48000, 32000), 2: (22050, 24000, 16000), 0: (11025, 12000, 8000)}
"""By the two bits that a header has for the version of MPEG: 1, 2 and 2.5."""
_MPEG_1 = 3
_KBITS_1 = (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBITS_2 = (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_BEGINNING = re.compile(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb]|ID3")
_MAX_CANDIDATES = 10_000
"""Places that are looked at because they look like the beginning of a frame; by chance one in 10 KB does."""
_HEADER_BYTES = 4
_MONO = 3
_ID3_BYTES = 10

_PLAIN_BITS = 0x80
"""Of the frame that says how many follow: a bit rate at which it has room for that."""
_VBRI_AT, _VBRI_FRAMES_AT = 36, 50
_HAS_FRAMES = 1
_TAG_PARTS_BYTES = {_HAS_FRAMES: 4, 2: 4, 4: 100, 8: 4}
"""What may stand before the encoder's name: frames, bytes, a table of places, quality."""
_ENCODERS = frozenset({b"LAME", b"Lavf", b"Lavc"})
_PADDING_AT = 21
"""From the encoder's name: twelve bits of samples put in before the sound, twelve of those behind."""
_DECODER_DELAY = 529


@dataclass(frozen=True, slots=True)
class Kind:
    """What the frames of one file have in common, as their headers write it."""

    version: int
    rate: int
    is_mono: bool

    @property
    def sample_rate_hz(self) -> int:
        """The rate in Hz."""
        return _RATES_HZ[self.version][self.rate]

    @property
    def channels(self) -> int:
        """1 or 2."""
        return 1 if self.is_mono else 2

    @property
    def frame_samples(self) -> int:
        """Samples of each channel in a frame."""
        return 1152 if self.version == _MPEG_1 else 576

    @property
    def tag_at(self) -> int:
        """Where in a frame the sound begins, or what stands in place of it."""
        if self.version == _MPEG_1:
            return 21 if self.is_mono else 36
        return 13 if self.is_mono else 21


@dataclass(frozen=True, slots=True)
class _Span:
    """Frames that stand one behind another: from where to where, and how many are whole."""

    kind: Kind
    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Mp3:
    """What there is in the frames of a file.

    Parameters
    ----------
    kind
        Rate and channels.
    count
        How many frames of sound there are.
    spans
        From where to where they stand in the file.
    before, behind
        Samples that the encoder put in before and behind the sound; nobody is to hear them.
    is_cut
        Whether a stream was broken off in its last frame, which counts and is silent.
    """

    kind: Kind
    count: int
    spans: tuple[_Span, ...]
    before: int
    behind: int
    is_cut: bool

    @property
    def frames(self) -> int:
        """Length in samples of each channel."""
        return max(0, self.count * self.kind.frame_samples - self.before - self.behind)

    def whole(self, data: bytes) -> bytes:
        """Return the file for the decoder, which plays all frames of sound and prints nothing about them."""
        head = data[self.spans[0].start : self.spans[0].start + _HEADER_BYTES]
        head = bytes((head[0], head[1] | 1, _PLAIN_BITS | head[2] & 0x0C, head[3]))
        silent = head.ljust(_sizes(self.kind)[head[:3]], b"\0")
        # It leaves out its own delay whatever it is told. Where that is to be heard, it gets a frame of
        # silence more, and is told to leave out just that.
        more = 0 if self.before else 1
        left_out = (self.before or self.kind.frame_samples) - _DECODER_DELAY, self.behind + _DECODER_DELAY
        tag = b"".join(
            (
                b"Info",
                _HAS_FRAMES.to_bytes(4),
                (self.count + more).to_bytes(4),
                b"LAME".ljust(_PADDING_AT, b"\0"),
                (left_out[0] << 12 | left_out[1]).to_bytes(3),
            )
        )
        first = head.ljust(self.kind.tag_at, b"\0") + tag
        sound = (_with_its_beginning(data[span.start : span.end], self.kind) for span in self.spans)
        return b"".join((first.ljust(len(silent), b"\0"), silent * more, *sound, silent * self.is_cut))


def read(data: bytes) -> Mp3 | None:
    """Return the frames of a file, cut at both ends as FFmpeg cuts them; None where none tells its bit rate.

    Raises
    ------
    AudioError
        Fewer frames than the file says it has; none with sound; another rate or number of channels on the
        way; much that is neither frame nor tag.
    """
    spans = list(_spans(data))
    if not spans:
        return None
    kind, start = spans[0].kind, spans[0].start
    first = data[start : start + _sizes(kind)[data[start : start + 3]]]
    announced, before, behind = _tag(first, kind)
    if announced is not None:
        spans[0] = replace(spans[0], start=start + len(first), count=spans[0].count - 1)
    count = sum(span.count for span in spans)
    missing = max(0, (announced or 0) - count)
    # The last frames may hold nothing but what the encoder put in behind the sound. Encoders that say nothing
    # of that may count their first frame, too.
    if missing * kind.frame_samples > (behind or kind.frame_samples):
        raise AudioError(f"the MP3 file is truncated: it has {count} of {announced} frames")
    is_cut = _kind(data[spans[-1].end : spans[-1].end + _HEADER_BYTES]) == kind
    # Of files that were joined the first one's end is in the middle.
    missing_samples = max(0, missing - is_cut) * kind.frame_samples
    behind = max(0, behind - missing_samples) if count <= (announced or 0) else 0
    found = Mp3(kind, count + is_cut, tuple(spans), before, behind, is_cut)
    if not found.frames:
        raise AudioError("no audio: the MP3 file holds no samples")
    return found


def _spans(data: bytes) -> Iterator[_Span]:
    at = _next_frame(data, 0)
    kind = None
    while at is not None:
        found = _kind(data[at : at + _HEADER_BYTES])
        if found is None or kind not in {None, found}:
            raise AudioError("the MP3 data changes its sample rate or channels on the way; split it there")
        kind, sizes = found, _sizes(found)
        start, count = at, 0
        while at + (size := sizes.get(data[at : at + 3], len(data) + 1)) <= len(data):
            if (data[at + 3] >> 6 == _MONO) != kind.is_mono:
                break
            count += 1
            at += size
        yield _Span(kind, start, at, count)
        at = _next_frame(data, at)


def _with_its_beginning(frames: bytes, kind: Kind) -> bytes:
    """Return frames of which the first are silent where they begin in bytes that went before and are lost."""
    silent: list[bytes] = []
    kept_bytes = at = 0
    while head := frames[at : at + 3]:
        sound_at = at + _HEADER_BYTES + (0 if head[1] & 1 else 2)
        back_bytes = int.from_bytes(frames[sound_at : sound_at + 2]) >> (7 if kind.version == _MPEG_1 else 8)
        if back_bytes <= kept_bytes:
            break
        size = _sizes(kind)[head]
        kept_at = sound_at + kind.tag_at - _HEADER_BYTES
        silent += frames[at:sound_at], bytes(kept_at - sound_at), frames[kept_at : at + size]
        kept_bytes += at + size - kept_at
        at += size
    return b"".join((*silent, frames[at:]))


def _next_frame(data: bytes, at: int) -> int | None:
    """Return where the next frame begins that another of its kind follows, or the end of the file."""
    for _ in range(_MAX_CANDIDATES):
        found = _BEGINNING.search(data, at)
        if found is None:
            return None
        at = found.start()
        if found.group() == b"ID3":
            # Its size is written in seven bits a byte.
            at += _ID3_BYTES + sum(
                (byte & 0x7F) << shift
                for byte, shift in zip(data[at + 6 : at + 10], (21, 14, 7, 0), strict=False)
            )
            continue
        kind = _kind(data[at : at + _HEADER_BYTES])
        if kind is not None:
            end = at + _sizes(kind)[data[at : at + 3]]
            if end == len(data) or _kind(data[end : end + _HEADER_BYTES]) == kind:
                return at
        at += 1
    raise AudioError("the MP3 data is damaged: there is too much in it that is no sound")


def _kind(head: bytes) -> Kind | None:
    """Return what the four bytes of a header say of all frames of their file; None where they are none."""
    if len(head) < _HEADER_BYTES:
        return None
    version, rate = head[1] >> 3 & 3, head[2] >> 2 & 3
    if version not in _RATES_HZ or rate == len(_RATES_HZ[version]):
        return None
    kind = Kind(version, rate, head[3] >> 6 == _MONO)
    return kind if head[:3] in _sizes(kind) else None


@cache
def _sizes(kind: Kind) -> Mapping[bytes, int]:
    """Return the size in bytes of a frame by the first three of them, where these tell a bit rate."""
    kbits = _KBITS_1 if kind.version == _MPEG_1 else _KBITS_2
    found = {}
    for (code, rate), padding, others in product(enumerate(kbits, 1), (0, 1), product((0, 1), (0, 1))):
        protection, private = others
        head = bytes(
            (0xFF, 0xE2 | kind.version << 3 | protection, code << 4 | kind.rate << 2 | padding << 1 | private)
        )
        found[head] = kind.frame_samples // 8 * rate * 1000 // kind.sample_rate_hz + padding
    return found


def _tag(first: bytes, kind: Kind) -> tuple[int | None, int, int]:
    """Return what the first frame says of the file, None where it is one of sound.

    These are the frames behind it (0 for unknown), and what to cut before and behind their sound.
    """
    if first[_VBRI_AT : _VBRI_AT + 4] == b"VBRI":
        return int.from_bytes(first[_VBRI_FRAMES_AT : _VBRI_FRAMES_AT + 4]), 0, 0
    at = kind.tag_at
    if first[at : at + 4] not in {b"Xing", b"Info"}:
        return None, 0, 0
    parts = int.from_bytes(first[at + 4 : at + 8])
    at += 8
    frames = int.from_bytes(first[at : at + 4]) if parts & _HAS_FRAMES else 0
    at += sum(size for part, size in _TAG_PARTS_BYTES.items() if parts & part)
    if first[at : at + 4] not in _ENCODERS:
        return frames, 0, 0
    packed = int.from_bytes(first[at + _PADDING_AT : at + _PADDING_AT + 3])
    return frames, (packed >> 12) + _DECODER_DELAY, max(0, (packed & 0xFFF) - _DECODER_DELAY)
