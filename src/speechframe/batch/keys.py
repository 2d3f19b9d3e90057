"""Sets of request keys that stay small: 16 bytes a row, whatever the number of rows."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_KEY = np.dtype("V16")
NO_KEY = bytes(16)
"""Stands for a row without a call (an invalid row)."""

Keys = npt.NDArray[np.void]
Mask = npt.NDArray[np.bool_]


class KeyColumn:
    """A growing column of keys.

    Examples
    --------
    >>> column = KeyColumn()
    >>> for key in ("00" * 15 + "01", None, "00" * 15 + "01"):
    ...     column.append(key)
    >>> first_of_each(column.to_array()).tolist()
    [True, False, False]
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def append(self, key: str | None) -> None:
        """Add one key of 32 hex digits, or None for a row without a call."""
        self._bytes += bytes.fromhex(key) if key else NO_KEY

    def to_array(self) -> Keys:
        """Return all keys so far."""
        return np.frombuffer(bytes(self._bytes), dtype=_KEY)


def as_keys(hex_keys: Iterable[str]) -> Keys:
    """Return keys of 32 hex digits as an array."""
    return np.frombuffer(b"".join(map(bytes.fromhex, hex_keys)), dtype=_KEY)


def _ordered(keys: Keys) -> npt.NDArray[np.bytes_]:
    # Void has no order; two unsigned halves do, and unlike byte strings they keep zero bytes at the end.
    return keys.view([("high", ">u8"), ("low", ">u8")])


def first_of_each(keys: Keys) -> Mask:
    """Return True where a key stands for the first time; never for :data:`NO_KEY`."""
    first = np.zeros(len(keys), dtype=bool)
    if len(keys):
        first[np.unique(_ordered(keys), return_index=True)[1]] = True
        first &= has_key(keys)
    return first


def has_key(keys: Keys) -> Mask:
    """Return True where a row has a call."""
    halves = keys.view("u8").reshape(-1, 2)
    return np.asarray((halves != 0).any(axis=1))


def among(keys: Keys, known: Keys) -> Mask:
    """Return True where a key is one of `known`."""
    if not len(keys) or not len(known):
        return np.zeros(len(keys), dtype=bool)
    return np.isin(_ordered(keys), _ordered(known))


def repeated(digests: Keys) -> Mask:
    """Return True where a value stands for the second time or later."""
    repeats = np.ones(len(digests), dtype=bool)
    if len(digests):
        repeats[np.unique(_ordered(digests), return_index=True)[1]] = False
    return repeats
