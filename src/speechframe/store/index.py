"""Where the record of each call is: 29 bytes a call, whatever it was answered with.

A record is found by the number of its segment, by whether it is finished, and by its place among the records
of the segment that are, or are not. Cutting the segment into parts changes none of these, so what was looked
up in the journal is still found when the journal has become parts meanwhile.
"""

import base64
import threading
from binascii import unhexlify
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store import journal, parts
from speechframe.store.folder import Folder, storing
from speechframe.store.keys import KEY_BYTES, call_key
from speechframe.store.schema import DONE, FINISHED, STATUSES, SUSPECT, Row

T = TypeVar("T")
Numbers = npt.NDArray[np.int64]

CODES = {status: code for code, status in enumerate(STATUSES)}
_DIGITS = 2 * KEY_BYTES
_NO_KEY = "0" * _DIGITS
_READERS = 8
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Index:
    """Finds records by ``request_key``.

    Attributes
    ----------
    high, low
        Both halves of each key, by `high`; of equal keys the newest record is first, and is the one found.
    segments, rows, codes
        Of each record: its segment, its place there, and its status as a place in ``STATUSES``.
    """

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    segments: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.uint32]
    codes: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.high)

    def find(self, keys: Any) -> Numbers:
        """Return where each key is in this index; -1 for null and for a key without a record.

        Parameters
        ----------
        keys
            Arrow strings, or a sequence of texts and None.
        """
        high, low = halves(keys)
        found = np.full(len(high), -1, np.int64)
        if not len(self):
            return found
        # In order: the search is then twice as fast.
        order = np.argsort(high)
        at = np.empty(len(high), np.int64)
        at[order] = np.searchsorted(self.high, high[order])
        left = np.flatnonzero(self.high[np.minimum(at, len(self) - 1)] == high)
        # As a rule once: two keys with one half in common are hardly ever met.
        while len(left):
            hit = self.low[at[left]] == low[left]
            found[left[hit]] = at[left[hit]]
            left = left[~hit]
            at[left] += 1
            left = left[at[left] < len(self)]
            left = left[self.high[at[left]] == high[left]]
        return found

    def represent(self, base_keys: Any, takes: Sequence[int] | Numbers) -> Numbers:
        """Return which record represents each row, -1 for a row without one.

        It is the record of the row's own take; where that is missing or failed, of the nearest earlier take
        that is finished; where it is suspect, of the first later take that is done.

        Parameters
        ----------
        base_keys
            Keys of the rows' first takes; null for a row without a call.
        takes
            The rows' own takes.
        """
        keys, own = _strings(base_keys), np.asarray(takes, np.int64)
        positions = self.find(_with_takes(keys, own))
        has_none = np.asarray(keys.is_valid()) & ~self.having(positions, FINISHED)
        suspect = np.flatnonzero(self.having(positions, {SUSPECT}))
        positions = self._walk(positions, keys, own, np.flatnonzero(has_none & (own > 0)), -1, FINISHED)
        return self._walk(positions, keys, own, suspect, 1, {DONE})

    def _walk(
        self, positions: Numbers, keys: Any, takes: Numbers, rows: Numbers, step: int, wanted: Collection[str]
    ) -> Numbers:
        """Replace the records of `rows` by those of the nearest other take with a `wanted` status."""
        positions, takes = positions.copy(), takes.copy()
        while len(rows):
            takes[rows] += step
            found = self.find(_with_takes(keys.take(pa.array(rows)), takes[rows]))
            hit = self.having(found, wanted)
            positions[rows[hit]] = found[hit]
            # Later takes are made one after the other: behind a gap there are none.
            goes_on = ~hit & (takes[rows] > 0 if step < 0 else found >= 0)
            rows = rows[goes_on]
        return positions

    def having(self, positions: Numbers, statuses: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return which positions, as :meth:`find` returns them, are of records with these statuses."""
        wanted = np.array([status in statuses for status in STATUSES], np.bool_)
        found = positions >= 0
        found[found] = wanted[self.codes[positions[found]]]
        return found

    def counts(self) -> dict[str, int]:
        """Return how many calls have each status."""
        is_newest = np.ones(len(self), np.bool_)
        is_newest[1:] = (self.high[1:] != self.high[:-1]) | (self.low[1:] != self.low[:-1])
        numbers = np.bincount(self.codes[is_newest], minlength=len(STATUSES)).tolist()
        return dict(zip(STATUSES, numbers, strict=True))

    def packed(self, statuses: Collection[str]) -> bytes:
        """Return the keys of all records with these statuses, 16 bytes each."""
        wanted = np.flatnonzero(self.having(np.arange(len(self)), statuses))
        return _joined(self.high[wanted], self.low[wanted])

    def keys(self, positions: Numbers) -> list[str]:
        """Return the keys at these positions."""
        digits = _joined(self.high[positions], self.low[positions]).hex()
        return [digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS)]

    def newest(self, count: int) -> list[str]:
        """Return the keys of the records that were finished last, the newest first."""
        finished = np.flatnonzero(self.having(np.arange(len(self)), FINISHED))
        ages = self.segments[finished].astype(np.int64) << 32 | self.rows[finished]
        return self.keys(finished[np.argsort(-ages)[:count]])

    def over(self, older: "Index") -> "Index":
        """Return both as one, in which a record of this index counts before an older one."""
        if not len(self) or not len(older):
            return self if len(self) else older
        both = [np.concatenate([getattr(i, f.name) for i in (self, older)]) for f in fields(self)]
        return _ordered(*both)


def index_of(segment: int, keys: Any, codes: Any) -> Index:
    """Return the index of records of one segment.

    Parameters
    ----------
    segment
        Its number.
    keys, codes
        Of each record, the oldest first.
    """
    return _ordered(*_placed(segment, *halves(keys), np.asarray(codes, np.uint8)))


def _placed(segment: int, high: Any, low: Any, codes: Any) -> list[Any]:
    """Return the columns of an index, the newest record first."""
    finished = np.array([status in FINISHED for status in STATUSES], np.bool_)[codes]
    rows = np.where(finished, np.cumsum(finished), np.cumsum(~finished)) - 1
    columns = [high, low, np.full(len(codes), segment, np.uint32), rows.astype(np.uint32), codes]
    return [column[::-1] for column in columns]


def _ordered(*columns: Any) -> Index:
    # Stable, and fast where long stretches are ordered already.
    order = np.argsort(columns[0], kind="stable")
    return Index(*(column[order] for column in columns))


def empty_index() -> Index:
    """Return the index of no records."""
    return index_of(0, [], [])


def halves(keys: Any) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return both halves of each key; of what is no key zeros, which no call has."""
    keys = _strings(keys)
    is_key: Any = pc.equal(pc.binary_length(keys), pa.scalar(_DIGITS, pa.int32()))
    if keys.null_count or not pc.all(is_key).as_py():
        keys = pc.if_else(pc.fill_null(is_key, pa.scalar(value=False)), keys, _NO_KEY)
    if not len(keys):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
    # Every text has the same length, so they lie one behind the other.
    _, offsets, text = keys.buffers()
    first = int(np.frombuffer(offsets, np.int32)[keys.offset])
    try:
        packed = unhexlify(memoryview(text)[first : first + len(keys) * _DIGITS])
    except ValueError:
        is_key = pc.match_substring_regex(keys, "^[0-9a-f]*$")
        return halves(pc.if_else(is_key, keys, _NO_KEY))
    return _split(np.frombuffer(packed, np.uint8))


def _split(keys: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    both = keys.reshape(-1, KEY_BYTES).view(">u8").astype(np.uint64)
    return both[:, 0].copy(), both[:, 1].copy()


def _joined(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> bytes:
    return np.stack([high, low], axis=1).astype(">u8").tobytes()


def _strings(keys: Any) -> Any:
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    return keys.cast(pa.string()) if isinstance(keys, pa.Array) else pa.array(keys, pa.string())


def _with_takes(keys: Any, takes: Numbers) -> Any:
    """Return the keys of these takes of calls."""
    if not takes.any():
        return keys
    pairs = zip(keys.to_pylist(), takes.tolist(), strict=True)
    return pa.array([None if key is None else call_key(key, take) for key, take in pairs], pa.string())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one moment.

    Attributes
    ----------
    index
        Where records are.
    cut
        Numbers of the segments that are parts.
    journal
        The records of those that are not, as :class:`journal.Contents` has them.
    """

    index: Index
    cut: frozenset[int]
    journal: dict[int, Sequence[Row]]


class SnapshotReader:
    """Looks at a run again and again; what was read of parts once is not read again.

    Parameters
    ----------
    folder
        The run's folder.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._cut: frozenset[int] = frozenset()
        self._parts = empty_index()
        self._last: tuple[Any, Snapshot] | None = None
        self._lock = threading.Lock()

    def read(self) -> Snapshot:
        """Return every call that has ended by now, whoever writes."""
        with self._lock:
            return read_while_it_is_cut(self._folder, self._read)

    def _read(self) -> Snapshot:
        # First the journal: what leaves it later is found in parts.
        segments = journal.segments(self._folder)
        cut = frozenset(parts.cut_numbers(self._folder))
        segments = [number for number in segments if number not in cut]
        log = self._folder.work / journal.LOG
        state = cut, [(number, (log / f"{number:06d}.jsonl").stat().st_size) for number in segments]
        if self._last is not None and self._last[0] == state:
            return self._last[1]
        added = cut - self._cut
        if not cut >= self._cut or min(added, default=0) < max(self._cut, default=0):
            added, self._parts = cut, empty_index()
        if added:
            self._parts = _read_notes(self._folder, sorted(added)).over(self._parts)
        self._cut = cut
        index = self._parts
        rows: dict[int, Sequence[Row]] = {}
        for number in segments:
            found = rows[number] = journal.read_contents(self._folder, number).rows
            keys = [row["request_key"] for row in found]
            index = index_of(number, keys, [CODES[row["status"]] for row in found]).over(index)
        snapshot = Snapshot(index, cut, rows)
        self._last = state, snapshot
        return snapshot


def read_while_it_is_cut(folder: Folder, read: Callable[[], T]) -> T:
    """Return what `read` does, which is repeated when a segment became a part between two of its steps."""
    with storing(folder, "reading the run"):
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):
                return read()
    raise StoreError(f"{folder.path}: the journal changes faster than it can be read; try again")


def _read_notes(folder: Folder, numbers: Sequence[int]) -> Index:
    newest_first = sorted(numbers, reverse=True)

    def read(number: int) -> list[Any]:
        keys, codes = _noted(folder, number)
        return _placed(number, *_split(keys), codes)

    if folder.work == folder.path:
        # Reading a footer of this machine takes less time than to hand it from thread to thread.
        found = [read(number) for number in newest_first]
    else:
        with ThreadPoolExecutor(_READERS) as pool:
            found = list(pool.map(read, newest_first))
    return _ordered(*map(np.concatenate, zip(*found, strict=True)))


def read_note(folder: Folder, number: int) -> list[tuple[str, str]]:
    """Return key and status of each record of a cut segment, as its ``attempts/`` file notes them."""
    keys, codes = _noted(folder, number)
    digits = keys.tobytes().hex()
    names = [digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS)]
    return list(zip(names, (STATUSES[code] for code in codes.tolist()), strict=True))


def _noted(folder: Folder, number: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    name = parts.file_name(parts.ATTEMPTS, number)
    with reading(folder, name):
        metadata = pq.read_metadata(folder.source(name)).metadata or {}
        content = np.frombuffer(base64.b64decode(metadata[parts.RECORDS.encode()]), np.uint8)
    count = len(content) // (KEY_BYTES + 1)
    return content[: count * KEY_BYTES], content[count * KEY_BYTES :]


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
