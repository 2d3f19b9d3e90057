"""A short FLAC file cut out of a long one: two of its frames under a header that counts only them.

Decoding is most of what it costs to look at FLAC, a seek costs as much as two
frames, and opening a file nearly as much as one. Frames stand on their own, each
with its own checksums: so some of them are a file again, and the decoder says
whether they are whole. It fills what is missing between two numbers with
silence, so the first gets the number before the second's. Its checksums then
change by what the new number changes, and one that was wrong stays wrong.

Source: RFC 9639, sections 9 and 9.1.
"""

from functools import cache

from speechframe.audio._headers import BLOCK_SIZE_BYTES, RATE_BYTES, crc_8

_MAGIC = b"fLaC"
_SYNC = b"\xff\xf8"
"""Begins a frame of a stream whose frames are all of one length."""
_INFO_BYTES = 34
_INFO_BLOCKS = (_MAGIC + b"\x00\x00\x00\x22", _MAGIC + b"\x80\x00\x00\x22")
_IS_LAST = 0x80
_TOTAL_BITS = 36
_PREFIX_BYTES = 3
_NUMBER_AT = 4
_HIGHEST_NUMBER = 0xD000
"""Frames: hours of audio. Up to here a number is written as UTF-8 would write it."""
_SHORTEST = 4
_PLACES = (0.2, 0.35, 0.5, 0.65, 0.8)
_TRIES = 64
_LEADS = (0xC0, 0xE0)
"""From here on the first byte of a number says that it has one more."""
_CRC_BYTES = 2
_LONGEST_HEAD_BYTES = 16
_CRC_POLYNOMIAL = 0x18005


def total_frames(data: bytes) -> int:
    """Return how many samples of each channel a FLAC file's header counts."""
    return int.from_bytes(data[18:26], "big") & ((1 << _TOTAL_BITS) - 1)


def excerpt(data: bytes) -> bytes | None:
    """Return a FLAC file of two frames: one from the middle of `data`, and its last.

    Of five in the middle it is the one with most bytes: what is loud or rich
    takes many, silence next to none. None when frames cannot be told apart by
    their first bytes, when the last is not where the header says, or when there
    are so few that cutting does not pay: then all of it is to be decoded.

    Parameters
    ----------
    data
        A FLAC file.
    """
    first = _first_frame(data)
    if first is None:
        return None
    info = data[8 : 8 + _INFO_BYTES]
    frame, total = int.from_bytes(info[:2], "big"), total_frames(data)
    if info[:2] != info[2:4] or not _SHORTEST * frame <= total < _HIGHEST_NUMBER * frame:
        return None
    number = (total - 1) // frame
    last = _last_frame(data, first, number)
    middle = None if last is None else _richest(data, first, last)
    middle = None if middle is None else _renumbered(middle, number - 1)
    if middle is None:
        return None
    head = int.from_bytes(info[10:18], "big") - total + frame + (total - 1) % frame + 1
    # Zeros for the checksum of all samples say that there is none.
    return b"".join((_INFO_BLOCKS[1], info[:10], head.to_bytes(8, "big"), bytes(16), middle, data[last:]))


def _renumbered(frame: bytes, number: int) -> bytes | None:
    """Return a frame under another number; None when it is too short to be one."""
    behind = _NUMBER_AT + 1 + (frame[_NUMBER_AT] >= _LEADS[0]) + (frame[_NUMBER_AT] >= _LEADS[1])
    end = behind + BLOCK_SIZE_BYTES.get(frame[2] >> 4, 0) + RATE_BYTES.get(frame[2] & 0x0F, 0)
    if end + 1 + _CRC_BYTES > len(frame):
        return None
    head = frame[:_NUMBER_AT] + chr(number).encode() + frame[behind:end]
    head += bytes((crc_8(head),))
    samples = frame[end + 1 : -_CRC_BYTES]
    # Checksums are linear: they differ by what the headers' differ by, carried on over all that follows.
    difference = int.from_bytes(head, "big") ^ int.from_bytes(frame[: end + 1], "big")
    change = _carried(_crc_16(difference.to_bytes(_LONGEST_HEAD_BYTES, "big")), len(samples))
    crc = int.from_bytes(frame[-_CRC_BYTES:], "big") ^ change
    return head + samples + crc.to_bytes(_CRC_BYTES, "big")


def _crc_16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc = crc << 8 & 0xFFFF ^ _of_byte(crc >> 8 ^ byte)
    return crc


@cache
def _of_byte(byte: int) -> int:
    return _carried(byte, 2)


def _carried(crc: int, count: int) -> int:
    """Return a checksum after so many more bytes of zeros: times x to the power of eight for each."""
    step = 0
    while count:
        if count & 1:
            highs, lows = _steps(step)
            crc = highs[crc >> 8] ^ lows[crc & 0xFF]
        count >>= 1
        step += 1
    return crc


@cache
def _steps(step: int) -> tuple[tuple[int, ...], ...]:
    """Return what each high and each low byte of a checksum becomes by two to the power of `step` zeros."""
    return tuple(tuple(_product(byte << at, _power(step)) for byte in range(256)) for at in (8, 0))


@cache
def _power(step: int) -> int:
    return 1 << 8 if not step else _product(_power(step - 1), _power(step - 1))


def _product(left: int, right: int) -> int:
    product = 0
    while right:
        if right & 1:
            product ^= left
        left <<= 1
        if left > 0xFFFF:  # noqa: PLR2004
            left ^= _CRC_POLYNOMIAL
        right >>= 1
    return product


def _first_frame(data: bytes) -> int | None:
    """Return where the first frame begins, behind the blocks about the file."""
    if data[:8] not in _INFO_BLOCKS:
        return None
    at, is_last = len(_MAGIC), False
    while not is_last:
        if at + 4 > len(data):
            return None
        is_last = bool(data[at] & _IS_LAST)
        at += 4 + int.from_bytes(data[at + 1 : at + 4], "big")
    return at if data[at : at + 2] == _SYNC else None


def _last_frame(data: bytes, first: int, number: int) -> int | None:
    """Return where the frame of the last number begins: a file that was cut off has none."""
    written = chr(number).encode()
    at = len(data)
    for _ in range(_TRIES):
        at = data.rfind(_SYNC, first, at)
        if at < 0 or data.startswith(written, at + _NUMBER_AT):
            return None if at < 0 else at
    return None


def _richest(data: bytes, first: int, last: int) -> bytes | None:
    prefix = data[first : first + _PREFIX_BYTES]
    found: list[bytes] = []
    for place in _PLACES:
        start = data.find(prefix, first + int((last - first) * place), last)
        end = data.find(prefix, start + _PREFIX_BYTES, last)
        if 0 <= start < end:
            found.append(data[start:end])
    return max(found, key=len, default=None)
