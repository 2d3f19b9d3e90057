"""Short FLAC files cut out of a long one: single frames, each under a header that counts only it.

Decoding is most of what it costs to look at FLAC, and a seek costs as much as
two frames. Frames stand on their own, each with its own checksum: so any of
them is a file again, and the decoder says whether it is whole. Two in one file
would not do: the decoder fills what is missing between them with silence.
"""

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


def total_frames(data: bytes) -> int:
    """Return how many samples of each channel a FLAC file's header counts."""
    return int.from_bytes(data[18:26], "big") & ((1 << _TOTAL_BITS) - 1)


def excerpts(data: bytes) -> tuple[bytes, bytes] | None:
    """Return a FLAC file of one frame from the middle of `data`, and one of its last.

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
    last = _last_frame(data, first, (total - 1) // frame)
    middle = None if last is None else _richest(data, first, last)
    if middle is None:
        return None
    rest = (total - 1) % frame + 1
    return _file(info, frame, middle), _file(info, rest, data[last:])


def _file(info: bytes, frames: int, frame: bytes) -> bytes:
    head = int.from_bytes(info[10:18], "big") >> _TOTAL_BITS << _TOTAL_BITS
    # Zeros for the checksum of all samples say that there is none.
    return b"".join((_INFO_BLOCKS[1], info[:10], (head | frames).to_bytes(8, "big"), bytes(16), frame))


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
