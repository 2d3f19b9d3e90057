"""Writing of a fixed serial number to Ogg pages, and checks of the pages.

Encoders give each Ogg stream a random serial number. Each page has a checksum that includes the number. Equal
audio must give equal bytes, so this module rewrites the serial number and the checksums after encoding.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from speechframe.errors import AudioError

SERIAL_NUMBER = 0x73666F67
"""Serial number of every stream that we write. Any number is valid, because a file has only one stream."""

JOINED_FILES_ADVICE = "several files, one after another. Decode each file by itself."
"""End of an error message about joined files. The decoder would return only one of them without an error."""

_PAGE_HEADER = struct.Struct("<4sBBqIIIB")
_BEGINNING_OF_STREAM, _END_OF_STREAM = 0x02, 0x04
_FLAGS_OFFSET, _SERIAL_OFFSET, _CHECKSUM_OFFSET = 5, 14, 22

# The checksum of Ogg starts with the highest bit of each byte, and that of zlib with the lowest. With
# mirrored bytes and a mirrored result, the fast function of zlib computes the checksum of Ogg.
_MIRRORED_BYTES = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


@dataclass(frozen=True, slots=True)
class OggPage:
    """A page from byte `start` to `end`. `ends_stream` is True if it has the end mark of its stream."""

    start: int
    end: int
    ends_stream: bool


def iter_pages(data: bytes | bytearray) -> Iterator[OggPage]:
    """Yield the pages of an Ogg file in order. Raise AudioError if a page is missing or cut off."""
    at = 0
    while at < len(data):
        if len(data) - at < _PAGE_HEADER.size or data[at : at + 4] != b"OggS":
            raise AudioError("the OGG file is truncated or damaged: a page does not begin where it must")
        *_, flags, _, _, _, _, segments = _PAGE_HEADER.unpack_from(data, at)
        lacing = data[at + _PAGE_HEADER.size : at + _PAGE_HEADER.size + segments]
        end = at + _PAGE_HEADER.size + segments + sum(lacing)
        if len(lacing) < segments or end > len(data):
            raise AudioError("the OGG file is truncated: its last page is cut off")
        yield OggPage(at, end, bool(flags & _END_OF_STREAM))
        at = end


def has_end(data: bytes) -> bool:
    """Return whether the last page has the end mark of its stream. Some recorders do not write the mark."""
    ends = False
    for page in iter_pages(data):
        ends = page.ends_stream
    return ends


def refuse_damaged(data: bytes, *, needs_end: bool = True) -> None:
    """Raise AudioError for missing, cut-off or changed pages, for joined streams and for a missing end.

    The Vorbis decoder raises no error for these faults. Without `needs_end`, a stream may stop after any
    complete page.
    """
    last = None
    for page in iter_pages(data):
        if last is not None and last.ends_stream and data[page.start + _FLAGS_OFFSET] & _BEGINNING_OF_STREAM:
            raise AudioError(f"the OGG data is {JOINED_FILES_ADVICE}")
        last = page
        _refuse_wrong_checksum(data, page)
    if last is None or (needs_end and not last.ends_stream):
        raise AudioError("the OGG file is truncated: its end is missing")


def rewrite_serial(data: bytes) -> bytes:
    """Return the same Ogg stream with :data:`SERIAL_NUMBER` and new checksums."""
    changed = bytearray(data)
    for page in iter_pages(changed):
        struct.pack_into("<I", changed, page.start + _SERIAL_OFFSET, SERIAL_NUMBER)
        _write_checksum(changed, page)
    return bytes(changed)


def _refuse_wrong_checksum(data: bytes, page: OggPage) -> None:
    changed = bytearray(data[page.start : page.end])
    (stored_checksum,) = struct.unpack_from("<I", changed, _CHECKSUM_OFFSET)
    struct.pack_into("<I", changed, _CHECKSUM_OFFSET, 0)
    if stored_checksum != _compute_checksum(changed):
        raise AudioError("the OGG file is damaged: the checksum of a page is wrong")


def _write_checksum(changed: bytearray, page: OggPage) -> None:
    struct.pack_into("<I", changed, page.start + _CHECKSUM_OFFSET, 0)
    checksum = _compute_checksum(changed[page.start : page.end])
    struct.pack_into("<I", changed, page.start + _CHECKSUM_OFFSET, checksum)


def _compute_checksum(page: bytearray) -> int:
    mirrored = zlib.crc32(page.translate(_MIRRORED_BYTES), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)
