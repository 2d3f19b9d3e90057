"""Where each call's record lies: 25 bytes a call, whatever the number of calls."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.old_store.footer import Noted, packed, read_note
from speechframe.old_store.locate import is_remote
from speechframe.old_store.parts import fitted, open_part
from speechframe.old_store.schema import record_columns
from speechframe.old_store.sources import PartSource, Source

_READERS = 2
_REMOTE_READERS = 8
_KEYS = record_columns(["request_key", "status"])

Strings: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"
Halves = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


class Columns(NamedTuple):
    """The index itself: both halves of every key, its file, its row there, and its status as a number."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    files: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.uint32]
    codes: npt.NDArray[np.uint8]

    def ordered(self) -> "Columns":
        """Return the columns by key; of equal keys the first stays first."""
        order = np.argsort(self.high, kind="stable")
        columns: list[Any] = [column[order] for column in self]
        return Columns(*columns)

    def merged(self, more: "Columns") -> "Columns":
        """Return both as one; to sort a million keys again would take longer than reading the new ones."""
        at = np.searchsorted(self.high, more.high, side="right")
        pairs: Any = zip(self, more, strict=True)
        return Columns(*(np.insert(mine, at, others) for mine, others in pairs))


class KeyIndex:
    """Finds records by request_key.

    Parameters
    ----------
    paths
        The files, those that win first.
    halves
        Both halves of every key, in file order.
    file_numbers, rows
        Where each lies.
    codes, statuses
        Each one's status as a number, and the names of the numbers.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        halves: Halves,
        file_numbers: npt.NDArray[np.uint32],
        rows: npt.NDArray[np.uint32],
        codes: npt.NDArray[np.uint8],
        statuses: Sequence[str],
    ) -> None:
        self.paths = tuple(paths)
        self.statuses = tuple(statuses)
        self.pinned: Mapping[int, Source] = {}
        self.columns = Columns(*halves, file_numbers, rows, codes).ordered()

    @classmethod
    def read(cls, paths: Sequence[Path]) -> "KeyIndex":
        """Return the index of these files, the first of which win; reads only the columns it needs."""
        names: dict[str, int] = {}
        highs, lows, numbers, rows, codes = (
            [np.empty(0, d)] for d in (np.uint64, np.uint64, np.uint32, np.uint32, np.uint8)
        )
        for number, (keys, statuses, told) in enumerate(_noted(paths)):
            high, low = _halves(keys)
            highs.append(high)
            lows.append(low)
            numbers.append(np.full(len(high), number, np.uint32))
            rows.append(np.arange(len(high), dtype=np.uint32))
            known = np.array([names.setdefault(name, len(names)) for name in told], np.uint8)
            codes.append(known[statuses])
        joined = [np.concatenate(parts) for parts in (highs, lows, numbers, rows, codes)]
        return cls(paths, (joined[0], joined[1]), joined[2], joined[3], joined[4], list(names))

    @classmethod
    def of(
        cls,
        sources: Sequence[Source],
        keys: Strings,
        statuses: Strings,
        file_numbers: npt.NDArray[np.uint32],
        rows: npt.NDArray[np.uint32],
    ) -> "KeyIndex":
        """Return the index of these keys; it keeps the files open, whose names may soon be gone."""
        names: dict[str, int] = {}
        codes = _codes(statuses, names)
        paths = [source.path for source in sources]
        index = cls(paths, halves_of(keys), file_numbers, rows, codes, list(names))
        index.pinned = dict(enumerate(sources))
        return index

    def extended(self, more: "KeyIndex") -> "KeyIndex":
        """Return this index and `more` as one; `more` has no key that is here, and may be small beside it."""
        if not more.paths or not self.paths:
            return more if more.paths else self
        both = copy(self)
        both.paths = (*self.paths, *more.paths)
        both.statuses = tuple(dict.fromkeys((*self.statuses, *more.statuses)))
        numbered = {number + len(self.paths): source for number, source in more.pinned.items()}
        both.pinned = {**self.pinned, **numbered}
        codes = np.array([both.statuses.index(name) for name in more.statuses], np.uint8)
        files = more.columns.files + np.uint32(len(self.paths))
        renumbered = more.columns._replace(files=files, codes=codes[more.columns.codes])
        both.columns = self.columns.merged(renumbered)
        return both

    def open(self, file_number: int) -> Source:
        """Return a file of :attr:`paths`, to be closed; it holds what it held when this index was made."""
        return self.pinned.get(file_number) or PartSource(self.paths[file_number])

    def is_pinned(self, file_number: int) -> bool:
        """Return whether a file stays open as long as this index is held."""
        return file_number in self.pinned

    def __len__(self) -> int:
        return len(self.columns.high)

    def __contains__(self, request_key: object) -> bool:
        return isinstance(request_key, str) and bool(self.find([request_key])[0] >= 0)

    def find(
        self, request_keys: "Sequence[str | None] | pa.Array[Any] | pa.ChunkedArray[Any]"
    ) -> npt.NDArray[np.int64]:
        """Return each key's position in this index, -1 for a key without a record."""
        keys = (
            request_keys
            if isinstance(request_keys, pa.Array | pa.ChunkedArray)
            else pa.array(request_keys, pa.string())
        )
        found = self.find_halves(halves_of(keys))
        if keys.null_count:
            found[np.asarray(keys.is_null())] = -1
        return found

    def find_halves(self, halves: Halves) -> npt.NDArray[np.int64]:
        """Return the same of keys that :func:`halves_of` has taken apart; ordered ones are found faster."""
        high, low = halves
        found = np.full(len(high), -1, np.int64)
        if not len(self):
            return found
        at = np.searchsorted(self.columns.high, high)
        looking = self._matches(at, high)
        while looking.any():
            here = np.minimum(at, len(self) - 1)
            hit = looking & (self.columns.low[here] == low)
            found[hit] = at[hit]
            at += 1
            looking &= ~hit & self._matches(at, high)
        return found

    def _matches(self, at: npt.NDArray[np.int64], high: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        inside = at < len(self)
        found: npt.NDArray[np.bool_] = inside & (self.columns.high[np.where(inside, at, 0)] == high)
        return found

    def place(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return file numbers (of :attr:`paths`) and rows for positions that :meth:`find` found."""
        return self.columns.files[positions].astype(np.int64), self.columns.rows[positions].astype(np.int64)

    def counts(self, positions: npt.NDArray[np.int64] | None = None) -> dict[str, int]:
        """Return how many calls have each status; of all, or of the positions that :meth:`find` found."""
        codes = self.columns.codes
        chosen = codes if positions is None else codes[positions[positions >= 0]]
        numbers = np.bincount(chosen, minlength=len(self.statuses)).tolist()
        return dict(zip(self.statuses, numbers, strict=True))

    def with_status(
        self, positions: npt.NDArray[np.int64], statuses: Collection[str]
    ) -> npt.NDArray[np.bool_]:
        """Return which positions, as :meth:`find` returns them, are of calls with these statuses."""
        found = positions >= 0
        found[found] = self._having(statuses)[self.columns.codes[positions[found]]]
        return found

    def _having(self, statuses: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return for each status's number whether it is one of these."""
        return np.array([name in statuses for name in self.statuses], bool)

    def packed(self, statuses: Collection[str]) -> npt.NDArray[np.void]:
        """Return the keys with these statuses as 16 bytes each (the keys' hex digits), in no order."""
        wanted = self._having(statuses)[self.columns.codes]
        both = np.stack([self.columns.high[wanted], self.columns.low[wanted]], axis=1).astype(">u8")
        return both.view("V16").reshape(-1)


def read_keys(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield request_key and status of each file, reading nothing else of it."""
    with ThreadPoolExecutor(_READERS) as pool:
        yield from pool.map(_read_keys, paths)


def _read_keys(path: Path) -> pa.Table:
    # A part never changes: mapped, its keys cost no reading ahead of the audio beside them.
    with open_part(path, memory_map=True) as file:
        return _keys_of(file, path)


def _keys_of(file: pq.ParquetFile, path: Path) -> pa.Table:
    return fitted(file.read(columns=_KEYS.names, use_threads=False), _KEYS, path)


def _noted(paths: Sequence[Path]) -> Iterator[Noted]:
    if not any(map(is_remote, paths)):
        # A footer is read faster than two threads agree on whose turn it is.
        yield from map(_noted_keys, paths)
        return
    with ThreadPoolExecutor(_REMOTE_READERS) as pool:
        yield from pool.map(_noted_keys, paths)


def _noted_keys(path: Path) -> Noted:
    with open_part(path) as file:
        noted = read_note(file.metadata.metadata or {}, file.metadata.num_rows)
        if noted is not None:
            return noted
        table = _keys_of(file, path)
    names: dict[str, int] = {}
    codes = _codes(table.column("status"), names)
    keys = [packed(chunk) for chunk in table.column("request_key").chunks]
    return np.concatenate([np.empty((0, 16), np.uint8), *keys]), codes, list(names)


def halves_of(keys: "pa.Array[Any] | pa.ChunkedArray[Any]") -> Halves:
    """Return both halves of each key: 32 hex digits are 16 bytes, anything else is hashed to 16."""
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    whole = np.concatenate([np.empty((0, 16), np.uint8), *map(packed, chunks)])
    return _halves(whole)


def _halves(keys: npt.NDArray[np.uint8]) -> Halves:
    both = np.ascontiguousarray(keys).view(">u8").astype(np.uint64)
    return both[:, 0].copy(), both[:, 1].copy()


def _codes(statuses: Any, names: dict[str, int]) -> npt.NDArray[np.uint8]:
    whole = statuses.combine_chunks() if isinstance(statuses, pa.ChunkedArray) else statuses
    encoded = whole.dictionary_encode()
    known = [names.setdefault(name or "", len(names)) for name in encoded.dictionary.to_pylist()]
    codes: npt.NDArray[np.uint8] = np.asarray([*known, 0], np.uint8)[
        np.asarray(encoded.indices.fill_null(len(known)))
    ]
    return codes
