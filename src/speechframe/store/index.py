"""Where the record of each call is, whatever it was answered with.

A record is found by the number of its segment, by whether it is finished, and by its place among the records
of the segment that are, or are not. Cutting the segment into parts changes none of these, so what was looked
up in the journal is still found when the journal has become parts meanwhile.
"""

import base64
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store import parts
from speechframe.store.folder import Folder, storing
from speechframe.store.keys import KEY_BYTES, call_key
from speechframe.store.schema import DONE, FINISHED, STATUSES, SUSPECT

T = TypeVar("T")
Numbers = npt.NDArray[np.int64]
Note = tuple[npt.NDArray[np.bytes_], npt.NDArray[np.uint8]]
"""Key and status (its place in ``STATUSES``) of each record of a segment, the oldest first."""

CODES = {status: code for code, status in enumerate(STATUSES)}
_DIGITS = 2 * KEY_BYTES
_KEY = f"S{KEY_BYTES}"
_NO_RECORD: Note = np.zeros(1, _KEY), np.zeros(1, np.uint8)
_IS_FINISHED = np.array([status in FINISHED for status in STATUSES])
_TRIES = 20


class Index:
    """Finds records by ``request_key``; of equal keys the newest record is found.

    The arrays have an element for each record, `rows` the places in their files. The last element stands for
    no record, so that position -1 has the status ``pending`` and a key that no call has.
    """

    def __init__(self, notes: Mapping[int, Note]) -> None:
        numbers = sorted(notes)
        keys, codes = zip(*map(notes.__getitem__, numbers), _NO_RECORD, strict=True)
        self.keys, self.codes = np.concatenate(keys), np.concatenate(codes)
        self.segments = np.repeat(np.array([*numbers, 0], np.uint32), list(map(len, keys)))
        finished = [_IS_FINISHED[of_segment] for of_segment in codes]
        places = [np.where(done, np.cumsum(done), np.cumsum(~done)) - 1 for done in finished]
        self.rows = np.concatenate(places).astype(np.uint32)

    def __len__(self) -> int:
        return len(self.keys) - 1

    @cached_property
    def _sorted(self) -> tuple[Numbers, npt.NDArray[np.bytes_]]:
        order = np.argsort(self.keys, kind="stable")
        keys = self.keys[order]
        order[0] = -1  # the key that no call has
        return order, keys

    def find(self, keys: Any) -> Numbers:
        """Return where the record of each key is; -1 for null and for a key without a record."""
        order, known = self._sorted
        wanted = packed(keys)
        # The last of equal keys is the newest: the order is stable.
        at = np.searchsorted(known, wanted, side="right") - 1
        return np.where(known[at] == wanted, order[at], -1)

    def represent(self, base_keys: Any, takes: Numbers) -> Numbers:
        """Return which record represents each row, -1 for a row without one.

        It is the record of the row's own take; where that is missing or failed, of the nearest earlier take
        that is finished; where it is suspect, of the first later take that is done.
        """
        positions = self.find(of_takes(base_keys, takes))
        without = np.flatnonzero(~self.having(positions, FINISHED) & (takes > 0))
        suspect = np.flatnonzero(self.having(positions, {SUSPECT}))
        for left, step, wanted in ((without, -1, FINISHED), (suspect, 1, {DONE})):
            rows, tried = left, takes.copy()
            while len(rows):
                tried[rows] += step
                found = self.find(of_takes(base_keys.take(pa.array(rows)), tried[rows]))
                hit = self.having(found, wanted)
                positions[rows[hit]] = found[hit]
                # Later takes are made one after the other: behind a gap there are none.
                rows = rows[~hit & (tried[rows] > 0 if step < 0 else found >= 0)]
        return positions

    def having(self, positions: Numbers, statuses: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return which positions, as :meth:`find` returns them, are of records with these statuses."""
        wanted = np.array([status in statuses for status in STATUSES])
        found: npt.NDArray[np.bool_] = wanted[self.codes[positions]] & (positions >= 0)
        return found

    def with_status(self, statuses: Collection[str]) -> Numbers:
        """Return the positions of all records with these statuses, the oldest first."""
        return np.flatnonzero(self.having(np.arange(len(self)), statuses))

    def counts(self) -> dict[str, int]:
        """Return how many calls have each status."""
        order, known = self._sorted
        newest = order[np.append(known[1:] != known[:-1], [True])][1:]
        numbers = np.bincount(self.codes[newest], minlength=len(STATUSES)).tolist()
        return dict(zip(STATUSES, numbers, strict=True))

    def packed(self, statuses: Collection[str]) -> bytes:
        """Return the keys of all records with these statuses, 16 bytes each."""
        return self.keys[self.with_status(statuses)].tobytes()


def packed(keys: Any) -> npt.NDArray[np.bytes_]:
    """Return keys of 32 hex digits as 16 bytes each; of what is no key zeros, which no call has."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    elif not isinstance(keys, pa.Array):
        keys = pa.array(keys, pa.string())
    is_key: Any = pc.fill_null(pc.match_substring_regex(keys, f"^[0-9a-f]{{{_DIGITS}}}$"), False)
    digits = pc.if_else(is_key, keys, "0" * _DIGITS).cast(pa.binary()).cast(pa.binary(_DIGITS))
    return np.frombuffer(bytes.fromhex(digits.buffers()[1].to_pybytes().decode()), _KEY)


def hex_keys(keys: npt.NDArray[np.bytes_]) -> list[str]:
    """Return packed keys as hex digits."""
    digits = keys.tobytes().hex()
    return [digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS)]


def of_takes(keys: Any, takes: Numbers) -> Any:
    """Return the keys of these takes of calls."""
    if not takes.any():
        return keys
    pairs = zip(keys.to_pylist(), takes.tolist(), strict=True)
    return pa.array([None if key is None else call_key(key, take) for key, take in pairs], pa.string())


def read_note(folder: Folder, number: int) -> Note:
    """Return what the ``attempts/`` file of a cut segment notes of its records."""
    name = parts.file_name(parts.ATTEMPTS, number)
    with reading(folder, name):
        metadata = pq.read_metadata(folder.source(name)).metadata or {}
        content = base64.b64decode(metadata[parts.RECORDS.encode()])
    keys = len(content) // (KEY_BYTES + 1) * KEY_BYTES
    return np.frombuffer(content[:keys], _KEY), np.frombuffer(content[keys:], np.uint8)


def read_while_it_is_cut(folder: Folder, read: Callable[[], T]) -> T:
    """Return what `read` does, which is repeated when a segment became a part between two of its steps."""
    with storing(folder, "reading the run"):
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):
                return read()
    raise StoreError(f"{folder.path}: the journal changes faster than it can be read; try again")


@contextmanager
def reading(folder: Folder, name: str) -> Iterator[None]:
    """Turn whatever a damaged or missing file of the run raises into a StoreError that names it."""
    try:
        yield
    except (OSError, pa.ArrowException, LookupError, ValueError) as error:
        raise StoreError(
            f"{folder.path}/{name} cannot be read ({error}): restore it from a copy; "
            "speechframe runs verify says what else is damaged"
        ) from error
