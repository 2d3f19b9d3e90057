"""Sets of request keys that stay small: 16 bytes a row, whatever the number of rows."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

_KEY = np.dtype("V16")
NO_KEY = bytes(16)
"""Stands for a row without a call (an invalid row)."""

Keys = npt.NDArray[np.void]
Mask = npt.NDArray[np.bool_]

NO_KEYS: Keys = np.empty(0, dtype=_KEY)


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


def _sorted(keys: Keys) -> tuple[npt.NDArray[np.intp], Mask]:
    """Return the order of keys, equal ones as they stand, and in it where another one than before begins."""
    # Void has no order. Two columns of numbers have one, and are sorted in a tenth of the time of a record.
    halves = keys.view("u8").reshape(-1, 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    halves = halves[order]
    begins = np.ones(len(keys), dtype=bool)
    begins[1:] = (halves[1:] != halves[:-1]).any(axis=1)
    return order, begins


def first_of_each(keys: Keys) -> Mask:
    """Return True where a key stands for the first time; never for :data:`NO_KEY`."""
    return ~repeated(keys) & has_key(keys)


def has_key(keys: Keys) -> Mask:
    """Return True where a row has a call."""
    halves = keys.view("u8").reshape(-1, 2)
    return np.asarray((halves != 0).any(axis=1))


def among(keys: Keys, known: Keys) -> Mask:
    """Return True where a key is one of `known`."""
    if not len(keys) or not len(known):
        return np.zeros(len(keys), dtype=bool)
    # Both in one order: of equal keys a known one stands first, if there is any.
    order, begins = _sorted(np.concatenate([known, keys]))
    is_known = order[begins] < len(known)
    found = np.empty(len(order), dtype=bool)
    found[order] = is_known[np.cumsum(begins) - 1]
    return found[len(known) :]


def repeated(digests: Keys) -> Mask:
    """Return True where a value stands for the second time or later."""
    order, begins = _sorted(digests)
    repeats = np.empty(len(digests), dtype=bool)
    repeats[order] = ~begins
    return repeats
