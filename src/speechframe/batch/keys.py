"""Content keys: equal calls on one service have equal keys, whichever run makes them."""

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from speechframe.store.keys import KEY_BYTES, PERSON


class KeyMaker:
    """Makes the keys of one operation on one service.

    Parameters
    ----------
    operation
        The run's operation.
    service
        Identity of the service: never an address or port.

    Examples
    --------
    >>> keys = KeyMaker("generate", "local/espeak-1")
    >>> keys.of(b'{"text":"a"}') == KeyMaker("generate", "api.example.com").of(b'{"text":"a"}')
    False
    """

    def __init__(self, operation: str, service: str) -> None:
        self._begun = hashlib.blake2b(digest_size=KEY_BYTES, person=PERSON)
        for part in (operation.encode(), service.encode("utf-8", "replace")):
            # The length keeps ("ab", "c") and ("a", "bc") apart.
            self._begun.update(len(part).to_bytes(8, "big") + part)

    def of(self, content: bytes) -> str:
        """Return the key of a call: 32 hex digits."""
        digest = self._begun.copy()
        digest.update(content)
        return digest.hexdigest()


def key_of_pack(keys: Iterable[str]) -> str:
    """Return the key of one call for several rows: the same for the same rows in the same order."""
    return hashlib.blake2b("".join(keys).encode(), digest_size=KEY_BYTES, person=PERSON).hexdigest()


Keys = npt.NDArray[np.void]
"""Keys as an array, 16 bytes each: whatever the number of rows, they fit into memory."""
Mask = npt.NDArray[np.bool_]

NO_KEY = bytes(KEY_BYTES)
"""The key of a row without a call."""


def as_keys(packed: bytes | bytearray) -> Keys:
    """Return keys that lie one after the other as an array."""
    return np.frombuffer(bytes(packed), dtype=np.dtype((np.void, KEY_BYTES)))


def as_keys_of(hex_keys: Iterable[str]) -> Keys:
    """Return keys of 32 hex digits as an array."""
    return as_keys(bytes.fromhex("".join(hex_keys)))


def first_of_each(keys: Keys) -> Mask:
    """Return True where a key stands for the first time; never for :data:`NO_KEY`.

    Examples
    --------
    >>> first_of_each(as_keys_of(["01" * 16, "02" * 16, "01" * 16, "00" * 16])).tolist()
    [True, True, False, False]
    """
    order, begins = _sorted(keys)
    first = np.empty(len(keys), dtype=bool)
    first[order] = begins
    has_key: Mask = (_halves(keys) != 0).any(axis=1)
    return first & has_key


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


def _halves(keys: Keys) -> npt.NDArray[np.uint64]:
    return keys.view(np.uint64).reshape(-1, 2)


def _sorted(keys: Keys) -> tuple[npt.NDArray[np.intp], Mask]:
    """Return the order of keys, equal ones as they stand, and where in it another key begins."""
    # Bytes without a type have no order. Two columns of numbers have one, and are sorted fast.
    halves = _halves(keys)
    order = np.lexsort((halves[:, 1], halves[:, 0]))
    halves = halves[order]
    begins = np.ones(len(keys), dtype=bool)
    begins[1:] = (halves[1:] != halves[:-1]).any(axis=1)
    return order, begins
