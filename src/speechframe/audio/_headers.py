"""Reading of container headers without a decoder, because opening a decoder takes far longer.

The functions recognise the container, check whether the file is complete, and read its headers. They read
only usual files and return None for unusual files, which a decoder must read. Only decoding can show whether
the samples are intact.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from speechframe.audio import _mp3, _ogg
from speechframe.audio._ogg import JOINED_FILES_ADVICE
from speechframe.errors import AudioError
from speechframe.spec.speech import Format

UNKNOWN_LENGTH = 0x7FFF_0000
"""A size in a WAV header from this value on means an unknown length.

The header of a stream is written before its length is known. Writers then use a size near the largest value.
"""

MATROSKA_START = b"\x1a\x45\xdf\xa3"
"""First bytes of MKV and WebM, which are the identifier of the first element."""

MP4_MARK = b"ftyp"
"""Bytes 4 to 7 of MP4, M4A and MOV files."""

MAGIC_BYTES = 12
"""Number of first bytes of a file that are enough to recognise its format."""

_MAX_CHUNKS = 10_000
"""Largest number of chunks of WAV, or boxes of MP4, to read. Real files have far fewer."""
_CHECKED_BOXES = frozenset({b"moov", b"mdat", b"moof"})
_SEGMENT_ID = b"\x18\x53\x80\x67"
_FLAC_START = b"fLaC\x00\x00\x00\x22"

_READABLE_FORMATS = "WAV, MP3, FLAC and OGG, or raw PCM, ALAW and ULAW when the format is given"
_PCM_KIND, _FLOAT_KIND, _EXTENSIBLE_KIND = 1, 3, 0xFFFE
_WAV_BITS_BY_KIND = {_PCM_KIND: {8, 16, 24, 32}, _FLOAT_KIND: {32, 64}, _EXTENSIBLE_KIND: {16}}
_MIN_NAME_BYTE = ord(" ")
_CHUNK_HEADER, _WAV_START, _FMT_OFFSET = struct.Struct("<4sI"), struct.Struct("<12x4sIHHIIHH"), 20

# Constants of FLAC (RFC 9639). The STREAMINFO block comes first. Each frame begins with a sync code of 15
# bits, and a bit that decides whether the header counts frames or samples.
_STREAMINFO_SIZE = (34).to_bytes(3, "big")
_FIRST_BLOCK_END = 42
_FLAC_SYNC_CODES = frozenset({b"\xff\xf8", b"\xff\xf9"})
_SHORTEST_FRAME_HEADER, _LONGEST_FRAME_HEADER = 6, 16
_BLOCK_FRAMES_BY_CODE = (
    {1: 192} | {code: 144 << code for code in range(2, 6)} | {code: 1 << code for code in range(8, 16)}
)
_BLOCK_SIZE_BYTES_BY_CODE = {6: 1, 7: 2}
_RATE_BYTES_BY_CODE = {12: 1, 13: 2, 14: 2}
_MAX_FLAC_FRAMES = (1 << 36) - 1
_MAX_FLAC_BLOCKS = 1000
_MAX_CANDIDATES = 10_000
"""Largest number of places to check that look like a start of a frame. Random data has one in 32 KB."""


def recognise_format(data: bytes, asked: Format | None = None) -> Format:
    """Return the format of a file by its first bytes. Raise AudioError if it is unknown or not `asked`."""
    if not data:
        raise AudioError("no audio: there are no bytes")
    found = recognise_container(data)
    if found is None:
        start = data[:MAGIC_BYTES].decode("ascii", "backslashreplace")
        raise AudioError(
            f"no audio that can be read: the bytes begin with {start!r}. Allowed: {_READABLE_FORMATS}"
        )
    if asked not in {None, found}:
        raise AudioError(f"the bytes are {found}, not {asked}. Leave the format out, or give {found}.")
    return found


def refuse_container(data: bytes, asked: Format) -> None:
    """Raise AudioError if bytes that should be raw samples are empty, or a file with a header."""
    if not data:
        raise AudioError("no audio: there are no bytes")
    found = recognise_container(data)
    if found is not None and found is not Format.MP3:  # raw samples may also begin like MP3
        raise AudioError(
            f"the bytes are a {found} file, not raw {asked} samples. Leave the format out, or give {found}."
        )


def refuse_truncated(data: bytes, found: Format, *, needs_end: bool = True) -> None:
    """Raise AudioError if a WAV or OGG file is truncated by its headers, or if OGG or FLAC files were joined.

    With `needs_end`, an OGG stream without its end mark counts as truncated. Audio from services has the
    mark, but some recorders do not write it.

    The decoder would return the first part of such files without an error. :mod:`speechframe.audio.codec`
    compares the lengths of FLAC and MP3 after decoding.
    """
    if found is Format.WAV:
        for name, _, size, present in read_riff_chunks(data):
            if name == b"data" and present < size < UNKNOWN_LENGTH:
                raise AudioError(f"the WAV file is truncated: it has {present} of {size} bytes of samples")
    elif found is Format.OGG:
        _ogg.refuse_damaged(data, needs_end=needs_end)
    elif found is Format.FLAC and data.find(_FLAC_START, len(_FLAC_START)) > 0:
        raise AudioError(f"the FLAC data is {JOINED_FILES_ADVICE}")


def refuse_truncated_matroska(data: bytes) -> None:
    """Raise AudioError if MKV or WebM ends before its segment (the element with the media) ends.

    A file whose header does not contain the size of the segment passes, because streams do not have the size.
    """
    head_end = _read_element_end(data, len(MATROSKA_START))
    if head_end is None or data[head_end : head_end + len(_SEGMENT_ID)] != _SEGMENT_ID:
        return
    end = _read_element_end(data, head_end + len(_SEGMENT_ID))
    if end is not None and end > len(data):
        raise AudioError(f"the file is truncated: it has {len(data)} of {end} bytes")


def _read_element_end(data: bytes, at: int) -> int | None:
    """Return the end of an element of Matroska whose size is stored at `at`, or None without a valid size."""
    width = 9 - data[at].bit_length() if at < len(data) else 9
    if width > 8 or at + width > len(data):  # noqa: PLR2004  (a size has at most 8 bytes)
        return None
    highest = (1 << 7 * width) - 1
    size = int.from_bytes(data[at : at + width], "big") & highest
    return None if size == highest else at + width + size


def refuse_truncated_mp4(data: bytes) -> None:
    """Raise AudioError if MP4, M4A or MOV ends before one of its boxes (parts with a size) ends."""
    end = max((end for name, _, end in _iter_boxes(data, 0) if name in _CHECKED_BOXES), default=0)
    if end > len(data):
        raise AudioError(f"the file is truncated: it has {len(data)} of {end} bytes")


def read_movie_seconds(data: bytes) -> float:
    """Return the length in seconds in the header of MP4, M4A or MOV, or 0 without a length."""
    movie = next((start for name, start, _ in _iter_boxes(data, 0) if name == b"moov"), None)
    head = (
        next((start for name, start, _ in _iter_boxes(data, movie) if name == b"mvhd"), None)
        if movie
        else None
    )
    if head is None or len(data) < head + 32:
        return 0.0
    # The header has version and flags, two dates, ticks per second, and the length in ticks. Dates and length
    # are longer in version 1.
    at, form = (head + 20, ">IQ") if data[head] else (head + 12, ">II")
    rate, ticks = struct.unpack_from(form, data, at)
    return ticks / rate if rate else 0.0


def _iter_boxes(data: bytes, at: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, start of the content, and end of each box from `at` on."""
    for _ in range(_MAX_CHUNKS):
        if at + 16 > len(data):
            return
        size, name = struct.unpack_from(">I4s", data, at)
        start = at + 8
        if size == 1:
            size, start = int.from_bytes(data[at + 8 : at + 16], "big"), at + 16
        end = at + size if size else len(data)
        if end < start:
            return
        yield name, start, end
        at = end


def recognise_container(data: bytes) -> Format | None:
    """Return the format by the first :data:`MAGIC_BYTES` bytes of a file, or None for an unknown format."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return Format.WAV
    if data[:4] == b"fLaC":
        return Format.FLAC
    if data[:4] == b"OggS":
        return Format.OGG
    # A frame of MP3 begins with a sync code of eleven bits, then a valid version and layer.
    mp3_frame = len(data) > 3 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2 and data[1] & 0x18 != 0x08  # noqa: PLR2004
    return Format.MP3 if data[:3] == b"ID3" or mp3_frame else None


def is_open_ended(data: bytes, found: Format) -> bool:
    """Return True for OGG without its end mark, and for WAV with size 0. libsndfile cannot read these."""
    if found is Format.OGG:
        return not _ogg.has_end(data)
    return found is Format.WAV and any(
        name == b"data" and present and data[start - 4 : start] == bytes(4)
        for name, start, _, present in read_riff_chunks(data)
    )


def read_riff_chunks(data: bytes, at: int = 12) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield name, start, size by its header, and present size of each WAV chunk, from the chunk at `at` on.

    Some writers of streams leave size 0 in the header. The function then yields :data:`UNKNOWN_LENGTH`. It
    raises AudioError if there are more than 10,000 chunks, because millions of empty chunks would take
    minutes.
    """
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            return
        name, size = _CHUNK_HEADER.unpack_from(data, at)
        if name == b"data" and not size and len(data) > at + 8 and _read_riff_end(data) <= at + 8:
            size = UNKNOWN_LENGTH
        yield name, at + 8, size, min(size, len(data) - at - 8)
        at += 8 + size + size % 2
    raise AudioError(f"the WAV file is damaged: it has more than {_MAX_CHUNKS:,} chunks")


def _read_riff_end(data: bytes) -> int:
    """Return the end of a WAV file by its header, or 0 if the header has an unknown length."""
    size = int.from_bytes(data[4:8], "little")
    return 0 if size >= UNKNOWN_LENGTH else 8 + size


class WavHeaders(NamedTuple):
    """Content of the headers of a WAV file. The samples are `size` bytes that begin at `start`."""

    channels: int
    sample_rate_hz: int
    frame_bytes: int
    bits: int
    start: int
    size: int


def read_plain_wav(data: bytes) -> WavHeaders | None:
    """Return the headers of a WAV file that all decoders read in the same way, or None for any other file.

    Raise AudioError if the file has more than 10,000 chunks.
    """
    if len(data) < _WAV_START.size:
        return None
    first, fmt_size, kind, channels, rate_hz, byte_rate, frame_bytes, bits = _WAV_START.unpack_from(data)
    is_known = bits in _WAV_BITS_BY_KIND.get(kind, ()) and frame_bytes == channels * bits // 8
    if first != b"fmt " or not is_known or not frame_bytes or byte_rate != rate_hz * frame_bytes:
        return None
    wav = None
    for name, start, size, present in read_riff_chunks(data, _FMT_OFFSET + fmt_size + fmt_size % 2):
        is_whole = present == size or (name == b"data" and size >= UNKNOWN_LENGTH)
        # Decoders read two data chunks, a truncated chunk and a chunk without a name in different ways.
        if not is_whole or name == b"fmt " or min(name) < _MIN_NAME_BYTE or (wav and name == b"data"):
            return None
        if name == b"data":
            wav = WavHeaders(channels, rate_hz, frame_bytes, bits, start, present)
    return wav


class HeaderFacts(NamedTuple):
    """Sample rate in Hz, number of channels and length in frames. A frame has one sample of each channel."""

    sample_rate_hz: int
    channels: int
    frames: int


def read_shape(data: bytes, found: Format) -> HeaderFacts | None:
    """Return rate, channels and length by the headers of a file, or None if only a decoder can find them.

    Raise AudioError if FLAC or MP3 has fewer frames than its header states.
    """
    if found is Format.WAV:
        wav = read_plain_wav(data)
        return wav and HeaderFacts(wav.sample_rate_hz, wav.channels, wav.size // wav.frame_bytes)
    if found is Format.MP3:
        mp3 = _mp3.read_mp3(data)
        return (
            HeaderFacts(mp3.kind.sample_rate_hz, mp3.kind.channels, mp3.frames) if mp3 is not None else None
        )
    return _read_flac(data) if found is Format.FLAC else None


def write_length(data: bytes, found: Format) -> bytes:
    """Return a WAV or FLAC file with its length in the header, if the header has an unknown length.

    All other files are returned unchanged. Raise AudioError if a WAV file has more than 10,000 chunks.
    """
    if found is Format.FLAC and len(data) > _FIRST_BLOCK_END:
        packed = int.from_bytes(data[18:26], "big")
        shape = None if packed & _MAX_FLAC_FRAMES else _read_flac(data)
        if shape is None or not 0 < shape.frames <= _MAX_FLAC_FRAMES:
            return data
        return data[:18] + (packed | shape.frames).to_bytes(8, "big") + data[26:]
    if found is Format.WAV:
        for name, start, size, present in read_riff_chunks(data):
            if name == b"data" and present < size and size >= UNKNOWN_LENGTH:
                riff_size = struct.pack("<I", len(data) - 8)
                return b"".join(
                    (data[:4], riff_size, data[8 : start - 4], struct.pack("<I", present), data[start:])
                )
    return data


def _read_flac(data: bytes) -> HeaderFacts | None:
    start = _find_first_flac_frame(data)
    if start is None:
        return None
    packed = int.from_bytes(data[18:26], "big")
    rate_hz, channels, announced = packed >> 44, (packed >> 41 & 7) + 1, packed & _MAX_FLAC_FRAMES
    block_frames = int.from_bytes(data[10:12], "big")
    if not rate_hz or not block_frames:
        return None
    sync, at, is_found = data[start : start + 2], len(data), False
    # Search backwards for the last frame. Some places only look like a frame.
    for _ in range(_MAX_CANDIDATES):
        at = data.rfind(sync, start, at)
        if at < 0:
            break
        end = _read_flac_frame_end(data[at : at + _LONGEST_FRAME_HEADER], block_frames)
        # The length in the header is 0 for a stream.
        if end is not None and end == (announced or end):
            return HeaderFacts(rate_hz, channels, end)
        is_found |= end is not None
    if is_found:
        raise AudioError(
            f"the FLAC file is truncated: no frame ends at frame {announced}, its length by its header"
        )
    return None


def _find_first_flac_frame(data: bytes) -> int | None:
    """Return the position of the first frame after the metadata blocks, or None if the file is unusual."""
    if len(data) < _FIRST_BLOCK_END or data[4] & 0x7F or data[5:8] != _STREAMINFO_SIZE:
        return None
    at, is_last = 4, False
    for _ in range(_MAX_FLAC_BLOCKS):
        if is_last or at + 4 > len(data):
            break
        is_last = bool(data[at] & 0x80)
        at += 4 + int.from_bytes(data[at + 1 : at + 4], "big")
    return at if is_last and data[at : at + 2] in _FLAC_SYNC_CODES else None


def _read_flac_frame_end(header: bytes, block_frames: int) -> int | None:
    """Return the number of samples per channel up to the end of a FLAC frame, or None for other bytes."""
    if len(header) < _SHORTEST_FRAME_HEADER or header[3] & 1:
        return None
    block_code, rate_code = header[2] >> 4, header[2] & 0x0F
    # The number of the frame or sample is encoded like a character of UTF-8, but with up to seven bytes.
    first = header[4]
    further = 0 if first < 0x80 else 7 - (first ^ 0xFF).bit_length()  # noqa: PLR2004
    at = 5 + further
    number = first if not further else first & 0x3F >> further
    for byte in header[5:at]:
        if byte & 0xC0 != 0x80:  # noqa: PLR2004
            return None
        number = number << 6 | byte & 0x3F
    size_bytes = _BLOCK_SIZE_BYTES_BY_CODE.get(block_code, 0)
    crc_at = at + size_bytes + _RATE_BYTES_BY_CODE.get(rate_code, 0)
    crc = 0
    for byte in header[:crc_at]:
        crc = _CRC_8_TABLE[crc ^ byte]
    if crc_at >= len(header) or crc != header[crc_at]:
        return None
    frames = (
        int.from_bytes(header[at : at + size_bytes], "big") + 1
        if size_bytes
        else _BLOCK_FRAMES_BY_CODE.get(block_code)
    )
    if frames is None:
        return None
    is_sample_number = header[1] & 1
    return (number if is_sample_number else number * block_frames) + frames


def _compute_crc_8(byte: int) -> int:
    for _ in range(8):
        byte = byte << 1 ^ (0x107 if byte & 0x80 else 0)
    return byte


_CRC_8_TABLE = bytes(map(_compute_crc_8, range(256)))
"""Table for the checksum at the end of the header of a FLAC frame."""
