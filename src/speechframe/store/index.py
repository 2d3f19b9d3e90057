"""Where each call's record lies: 25 bytes a call, whatever the number of calls."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.store.parts import failed_file, open_part, part_files

_HEX_DIGITS = 32
_READERS = 2
_BAD = 255


def _digit_values() -> npt.NDArray[np.uint8]:
    table = np.full(256, _BAD, dtype=np.uint8)
    for value, digit in enumerate(b"0123456789abcdef"):
        table[digit] = value
    return table


_DIGIT = _digit_values()

Halves = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


@dataclass(frozen=True, slots=True)
class Location:
    """Where a record lies: file, row in the file, and its status."""

    path: Path
    row: int
    status: str


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
        order = np.argsort(halves[0], kind="stable")
        self.paths = tuple(paths)
        self.statuses = tuple(statuses)
        self._high, self._low = halves[0][order], halves[1][order]
        self._file_numbers, self._rows, self._codes = file_numbers[order], rows[order], codes[order]

    @classmethod
    def read(cls, folder: Path, *, failed: bool = True) -> "KeyIndex":
        """Return the index of a run's parts, reading only the columns it needs."""
        paths = part_files(folder)
        if failed and failed_file(folder).exists():
            paths.append(failed_file(folder))
        names: dict[str, int] = {}
        highs, lows, numbers, rows, codes = (
            [np.empty(0, d)] for d in (np.uint64, np.uint64, np.uint32, np.uint32, np.uint8)
        )
        for number, table in enumerate(read_keys(paths)):
            high, low = halves_of(table.column("request_key"))
            highs.append(high)
            lows.append(low)
            numbers.append(np.full(len(high), number, np.uint32))
            rows.append(np.arange(len(high), dtype=np.uint32))
            codes.append(_codes(table.column("status"), names))
        joined = [np.concatenate(parts) for parts in (highs, lows, numbers, rows, codes)]
        return cls(paths, (joined[0], joined[1]), joined[2], joined[3], joined[4], list(names))

    def __len__(self) -> int:
        return len(self._high)

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
        high, low = halves_of(keys)
        found = np.full(len(high), -1, np.int64)
        if not len(self):
            return found
        at = np.searchsorted(self._high, high)
        looking = self._matches(at, high)
        while looking.any():
            here = np.minimum(at, len(self) - 1)
            hit = looking & (self._low[here] == low)
            found[hit] = at[hit]
            at += 1
            looking &= ~hit & self._matches(at, high)
        if keys.null_count:
            found[np.asarray(keys.is_null())] = -1
        return found

    def _matches(self, at: npt.NDArray[np.int64], high: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        inside = at < len(self)
        found: npt.NDArray[np.bool_] = inside & (self._high[np.where(inside, at, 0)] == high)
        return found

    def place(self, positions: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return file numbers (of :attr:`paths`) and rows for positions that :meth:`find` found."""
        return self._file_numbers[positions].astype(np.int64), self._rows[positions].astype(np.int64)

    def locate(self, request_keys: Sequence[str | None]) -> list[Location | None]:
        """Return where each key's record lies, None for a key without one."""
        return [
            self._location(position) if position >= 0 else None
            for position in self.find(request_keys).tolist()
        ]

    def _location(self, position: int) -> Location:
        status = self.statuses[self._codes[position]]
        return Location(self.paths[self._file_numbers[position]], int(self._rows[position]), status)

    def counts(self) -> dict[str, int]:
        """Return how many calls have each status."""
        numbers = np.bincount(self._codes, minlength=len(self.statuses)).tolist()
        return dict(zip(self.statuses, numbers, strict=True))

    def packed(self, statuses: Collection[str]) -> npt.NDArray[np.void]:
        """Return the keys with these statuses as 16 bytes each (the keys' hex digits), in no order."""
        wanted = np.isin(self._codes, [i for i, name in enumerate(self.statuses) if name in statuses])
        both = np.stack([self._high[wanted], self._low[wanted]], axis=1).astype(">u8")
        return both.view("V16").reshape(-1)


def read_keys(paths: Sequence[Path]) -> Iterator[pa.Table]:
    """Yield request_key and status of each file, reading nothing else of it."""
    with ThreadPoolExecutor(_READERS) as pool:
        yield from pool.map(_read_keys, paths)


def _read_keys(path: Path) -> pa.Table:
    with open_part(path) as file:
        return file.read(columns=["request_key", "status"], use_threads=False)


def halves_of(keys: "pa.Array[Any] | pa.ChunkedArray[Any]") -> Halves:
    """Return both halves of each key: 32 hex digits are 16 bytes, anything else is hashed to 16."""
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    packed = np.concatenate([np.empty((0, 16), np.uint8), *map(_packed, chunks)])
    both = np.ascontiguousarray(packed).view(">u8").astype(np.uint64)
    return both[:, 0].copy(), both[:, 1].copy()


def _packed(keys: "pa.Array[Any]") -> npt.NDArray[np.uint8]:
    plain: Any = keys.cast(pa.string()) if keys.type != pa.string() else keys
    if (
        len(plain)
        and not plain.null_count
        and pc.all(pc.equal(pc.binary_length(plain), pa.scalar(_HEX_DIGITS))).as_py()
    ):
        _, offset_bytes, letters = (memoryview(buffer or b"") for buffer in plain.buffers())
        first = np.frombuffer(offset_bytes, np.int32)[plain.offset]
        digits = np.frombuffer(letters, np.uint8, len(plain) * _HEX_DIGITS, first)
        values = _DIGIT[digits.reshape(-1, _HEX_DIGITS)]
        if (values != _BAD).all():
            packed: npt.NDArray[np.uint8] = values[:, ::2] * np.uint8(16) + values[:, 1::2]
            return packed
    return np.frombuffer(b"".join(map(_packed_one, plain.to_pylist())), np.uint8).reshape(-1, 16)


def _packed_one(key: str | None) -> bytes:
    if key is None:
        return bytes(16)
    if len(key) == _HEX_DIGITS and set(key) <= set("0123456789abcdef"):
        return bytes.fromhex(key)
    return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16).digest()


def _codes(statuses: Any, names: dict[str, int]) -> npt.NDArray[np.uint8]:
    encoded = statuses.combine_chunks().dictionary_encode()
    known = [names.setdefault(name or "", len(names)) for name in encoded.dictionary.to_pylist()]
    codes: npt.NDArray[np.uint8] = np.asarray([*known, 0], np.uint8)[
        np.asarray(encoded.indices.fill_null(len(known)))
    ]
    return codes
