"""Ogg pages: a fixed serial number instead of a random one, and whether a file is whole.

An Ogg stream carries a serial number that encoders draw at random, and every
page a checksum over it. Equal audio must give equal bytes, so the number is
rewritten after encoding and the checksums with it.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from speechframe.errors import AudioError

SERIAL = 0x73666F67
"""The serial number of every stream we write; a stream of one file needs no other."""

JOINED = "of several files, one behind another: decode each for itself"
"""The decoder would hand over one of them, and keep quiet about the others."""

_HEADER = struct.Struct("<4sBBqIIIB")
_BEGINNING_OF_STREAM, _END_OF_STREAM = 0x02, 0x04
_FLAGS_AT, _SERIAL_AT, _CHECKSUM_AT = 5, 14, 22

# Ogg's checksum runs through the bits of each byte from the top, zlib's from the bottom. Mirrored bytes in,
# a mirrored sum out: so the fast one serves.
_MIRRORED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


@dataclass(frozen=True, slots=True)
class Page:
    """Where one page lies in the bytes, and whether it ends its stream."""

    start: int
    end: int
    ends_stream: bool


def pages(data: bytes | bytearray) -> Iterator[Page]:
    """Yield the whole pages of an Ogg file in order.

    Raises
    ------
    AudioError
        Bytes between pages that are none, or a last page that is cut off.
    """
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size or data[at : at + 4] != b"OggS":
            raise AudioError("the OGG file is truncated or damaged: a page is missing where one must begin")
        *_, flags, _, _, _, _, segments = _HEADER.unpack_from(data, at)
        lacing = data[at + _HEADER.size : at + _HEADER.size + segments]
        end = at + _HEADER.size + segments + sum(lacing)
        if len(lacing) < segments or end > len(data):
            raise AudioError("the OGG file is truncated: its last page is cut off")
        yield Page(at, end, bool(flags & _END_OF_STREAM))
        at = end


def has_end(data: bytes) -> bool:
    """Return True if the last page ends its stream. Some recorders write no such mark."""
    ends = False
    for page in pages(data):
        ends = page.ends_stream
    return ends


def refuse_damaged(data: bytes, *, needs_end: bool = True) -> None:
    """Raise when a page is missing, cut off or changed, and when the stream has no end or another follows.

    The Vorbis decoder conceals all of these and hands over what it makes of them. Without `needs_end` a
    stream may stop behind any whole page.
    """
    last = None
    for page in pages(data):
        if last is not None and last.ends_stream and data[page.start + _FLAGS_AT] & _BEGINNING_OF_STREAM:
            raise AudioError(f"the OGG data is {JOINED}")
        last = page
        _refuse_changed(data, page)
    if last is None or (needs_end and not last.ends_stream):
        raise AudioError("the OGG file is truncated: its end is missing")


def with_fixed_serial(data: bytes) -> bytes:
    """Return the same Ogg stream under :data:`SERIAL`, its checksums made anew."""
    changed = bytearray(data)
    for page in pages(changed):
        struct.pack_into("<I", changed, page.start + _SERIAL_AT, SERIAL)
        _sign(changed, page)
    return bytes(changed)


def _refuse_changed(data: bytes, page: Page) -> None:
    changed = bytearray(data[page.start : page.end])
    (told,) = struct.unpack_from("<I", changed, _CHECKSUM_AT)
    struct.pack_into("<I", changed, _CHECKSUM_AT, 0)
    if told != _checksum(changed):
        raise AudioError("the OGG file is damaged: the checksum of a page is wrong")


def _sign(changed: bytearray, page: Page) -> None:
    struct.pack_into("<I", changed, page.start + _CHECKSUM_AT, 0)
    checksum = _checksum(changed[page.start : page.end])
    struct.pack_into("<I", changed, page.start + _CHECKSUM_AT, checksum)


def _checksum(page: bytearray) -> int:
    mirrored = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{mirrored:032b}"[::-1], 2)
