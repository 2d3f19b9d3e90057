"""Strict Base64: by pybase64 where it is installed, else by numpy, which is faster than `binascii`."""

import binascii
import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

pybase64: Any
try:
    import pybase64
except ModuleNotFoundError:  # the extra [speed]
    pybase64 = None

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_GROUP = 4
# Four groups of letters become three whole words of 32 bits.
_STRIDE = 4 * _GROUP
_BLOCK = 1 << 16
"""Letters that are decoded at once: what is in between stays in the processor's cache."""
_NO_LETTER = 1 << 24


def decode_base64(value: bytes | memoryview) -> bytes | None:
    """Return the bytes of strictly right Base64: its letters alone, in whole groups, padded; else None.

    Examples
    --------
    >>> decode_base64(b"aGk="), decode_base64(b"aGk"), decode_base64(b"aG k")
    (b'hi', None, None)
    """
    # One of the decoders takes a fourth character that is padding too many.
    if len(value) % _GROUP:
        return None
    try:
        if pybase64 is not None:
            decoded: bytes = pybase64.b64decode(value, validate=True)
            return decoded
        return _decoded(value)
    except ValueError:
        return None


def _decoded(value: bytes | memoryview) -> bytes:
    # The end may be padded, and is left to `binascii`.
    plain = max(0, len(value) - _GROUP) // _STRIDE * _STRIDE
    if plain < _BLOCK // 16:
        return binascii.a2b_base64(value, strict_mode=True)
    blocks = [_block(value[at : min(at + _BLOCK, plain)]) for at in range(0, plain, _BLOCK)]
    return b"".join([*blocks, binascii.a2b_base64(value[plain:], strict_mode=True)])


def _block(letters: bytes | memoryview) -> bytes:
    first, second = _tables()
    pairs = np.frombuffer(letters, "<u2")
    # Three bytes in each word of 32 bits, and a mark above them where a letter was none.
    groups = first.take(pairs[0::2]) | second.take(pairs[1::2])
    if groups.max() >= _NO_LETTER:
        raise ValueError("a character is none of Base64")
    a, b, c, d = (groups[n::4] for n in range(4))
    words = np.empty((len(a), 3), "<u4")
    words[:, 0] = a | b << 24
    words[:, 1] = b >> 8 | c << 16
    words[:, 2] = c >> 16 | d << 8
    return words.tobytes()


@functools.cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return what each pair of letters puts into its group's three bytes, as first and as second pair."""
    values = np.full(256, -1, np.int64)
    values[list(_ALPHABET)] = np.arange(len(_ALPHABET))
    # A pair of letters is read as one number of 16 bits, its second letter in the upper half.
    bits = values[None, :] << 6 | values[:, None]
    bad = (values[None, :] < 0) | (values[:, None] < 0)
    first = bits >> 4 | (bits & 0xF) << 12
    second = (bits >> 8) << 8 | (bits & 0xFF) << 16
    return tuple(np.where(bad, _NO_LETTER, table).astype("<u4").reshape(-1) for table in (first, second))  # type: ignore[return-value]
