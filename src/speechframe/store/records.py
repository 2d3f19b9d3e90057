"""The records of a run, from parts and from the journal alike, and the words that were found in its audio.

A record is found by the number of its segment, by whether it is finished, and by its place among the records
of the segment that are, or are not. Cutting the segment into parts changes none of these, so what was looked
up in the journal is still found when the journal has become parts meanwhile.
"""

import base64
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store import journal, parts
from speechframe.store.folder import Folder, storing
from speechframe.store.schema import (
    AUDIO,
    DONE,
    FINISHED,
    INVALID,
    KEY_BYTES,
    LEDGER,
    STATUSES,
    SUSPECT,
    WORDS,
    WORDS_TYPE,
    call_key,
    check_times,
)

Numbers = npt.NDArray[np.int64]
Note = tuple[npt.NDArray[np.bytes_], npt.NDArray[np.uint8]]
"""Key and status (its place in ``STATUSES``) of each record of a segment, the oldest first."""

CODES = {status: code for code, status in enumerate(STATUSES)}
_DIGITS = 2 * KEY_BYTES
_KEY = f"S{KEY_BYTES}"
_NO_RECORD: Note = np.zeros(1, _KEY), np.zeros(1, np.uint8)
_IS_FINISHED = np.array([status in FINISHED for status in STATUSES])

KEPT_BYTES = 64 << 20
"""How much of the row groups that were read stays in memory: the next rows are likely to be in them."""

WORDS_FOLDER = "words"
WORDS_SCHEMA = pa.schema([("request_key", pa.string()), (WORDS, WORDS_TYPE)])
_READERS, _TRIES = 8, 20


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
        order[0] = -1  # zeros, the key that no call has, are first
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
                # Upwards stop at a gap: takes are made one after the other, so none follows.
                rows = rows[~hit & (tried[rows] > 0 if step < 0 else found >= 0)]
        return positions

    def having(self, positions: Numbers, statuses: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return which positions, as :meth:`find` returns them, are of records with these statuses."""
        wanted = [CODES[status] for status in statuses]
        found: npt.NDArray[np.bool_] = np.isin(self.codes[positions], wanted) & (positions >= 0)
        return found

    def statuses(self, positions: Numbers, is_invalid: npt.NDArray[np.bool_]) -> Any:
        """Return the status of rows with records at these positions; `is_invalid` marks those never sent."""
        codes: Any = pa.array(np.where(is_invalid, CODES[INVALID], self.codes[positions]))
        return pa.array(STATUSES).take(codes)

    def with_status(self, statuses: Collection[str]) -> Numbers:
        """Return the positions of all records with these statuses, the oldest first."""
        return np.flatnonzero(np.isin(self.codes[:-1], [CODES[status] for status in statuses]))

    def counts(self) -> dict[str, int]:
        """Return how many calls have each status."""
        order, known = self._sorted
        newest = order[np.append(known[1:] != known[:-1], [True])][1:]
        numbers = np.bincount(self.codes[newest], minlength=len(STATUSES)).tolist()
        return dict(zip(STATUSES, numbers, strict=True))


def packed(keys: Any) -> npt.NDArray[np.bytes_]:
    """Return keys of 32 hex digits as 16 bytes each; of what is no key zeros, which no call has."""
    if not isinstance(keys, pa.Array):
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


@dataclass(eq=False)
class Snapshot:
    """The records of a run at one moment; see :func:`read_snapshot`."""

    folder: Folder
    index: Index
    notes: dict[int, Note]  # by segment, of those that are parts
    live: dict[int, journal.Contents]  # by segment, of those that are still in the journal
    words_files: list[str]
    state: Any  # of the folder: equal as long as nothing has changed
    _kept: dict[Any, pa.Table] = field(default_factory=dict)
    _starts: dict[str, Numbers] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.Lock)  # widgets read in several threads

    @cached_property
    def _words(self) -> tuple[Index, Any]:
        tables = [WORDS_SCHEMA.empty_table()]
        for file in self.words_files:
            with reading(self.folder, name := f"{WORDS_FOLDER}/{file}"):
                table = pq.read_table(self.folder.source(name)).select(WORDS_SCHEMA.names)
                tables.append(table.cast(WORDS_SCHEMA))
        keys, words = pa.concat_tables(tables).columns
        codes = np.full(len(keys), CODES[DONE], np.uint8)
        return Index({0: (packed(keys.combine_chunks()), codes)}), words

    def words_of(self, keys: Any) -> Any:
        """Return the words found afterwards in each call's audio: null where nobody looked for any."""
        index, words = self._words
        positions = index.find(keys)
        wanted: Any = pa.array(positions, mask=positions < 0)
        return words.take(wanted).combine_chunks()

    def take(self, positions: Numbers, schema: pa.Schema) -> pa.Table:
        """Return these columns of the records at some positions of the index; a row of nulls for -1."""
        here = np.flatnonzero(positions >= 0)
        files = 2 * self.index.segments[positions[here]].astype(np.int64)
        files += self.index.having(positions[here], FINISHED)
        pieces, taken = [schema.empty_table()], [np.empty(0, np.int64)]
        for file in np.unique(files).tolist():
            which = here[files == file]
            rows = self.index.rows[positions[which]].astype(np.int64)
            for piece, chosen in self._rows(file // 2, file % 2, rows, schema):
                pieces.append(piece)
                taken.append(which[chosen])
        order = np.full(len(positions), -1)
        order[np.concatenate(taken)] = np.arange(len(here))
        wanted: Any = pa.array(order, mask=order < 0)
        return pa.concat_tables(pieces).take(wanted)

    def _rows(
        self, segment: int, is_finished: int, rows: Numbers, schema: pa.Schema
    ) -> Iterator[tuple[pa.Table, Numbers]]:
        """Yield these rows of a segment in pieces, each with the places in `rows` of what it holds."""
        if segment in self.live:
            # Where the journal's file is gone, the segment became a part, with its records in the same order.
            with suppress(FileNotFoundError):
                said = self.live[segment].rows
                found = [row for row in said if (row["status"] in FINISHED) == is_finished]
                batches = parts.record_batches(self.folder, segment, [found[row] for row in rows], schema)
                yield pa.Table.from_batches(list(batches), schema), np.arange(len(rows))
                return
        name = parts.file_name(parts.PARTS if is_finished else parts.FAILED, segment)
        if AUDIO not in schema.names:
            yield self._read(name, None, schema).take(rows), np.arange(len(rows))
            return
        # One row group at a time: audio may be large.
        if name not in self._starts:
            with reading(self.folder, name), pq.ParquetFile(self.folder.source(name)) as file:
                self._starts[name] = group_starts(file)
        for group, inside, chosen in by_group(self._starts[name], rows):
            yield self._read(name, group, schema).take(inside), chosen

    def _read(self, name: str, group: int | None, schema: pa.Schema) -> pa.Table:
        place = name, group, *schema.names
        with self._lock:
            table = self._kept.pop(place, None)
            if table is None:
                source, names = self.folder.source(name), schema.names
                with reading(self.folder, name), pq.ParquetFile(source, pre_buffer=True) as file:
                    table = file.read(names) if group is None else file.read_row_group(group, names)
                    table = table.select(names).cast(schema)
                    check_times(table)
            self._kept[place] = table  # at the end: the first, unused for longest, is dropped first
            while len(self._kept) > 1 and sum(kept.nbytes for kept in self._kept.values()) > KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        return table


def group_starts(file: pq.ParquetFile) -> Numbers:
    """Return the first row of each row group, and the number of rows."""
    groups = range(file.metadata.num_row_groups)
    return np.cumsum([0, *(file.metadata.row_group(group).num_rows for group in groups)])


def by_group(starts: Numbers, rows: Numbers) -> Iterator[tuple[int, Numbers, Numbers]]:
    """Yield row groups, which of their rows are wanted, and which of `rows` these are."""
    group_of = np.searchsorted(starts, rows, side="right") - 1
    for group in np.unique(group_of).tolist():
        chosen = np.flatnonzero(group_of == group)
        yield group, rows[chosen] - starts[group], chosen


def read_snapshot(folder: Folder, before: Snapshot | None = None) -> Snapshot:
    """Return the records of every call that has ended by now, whichever process writes them.

    Where nothing has changed since `before`, that is returned; what it has read of parts is not read again.
    """
    with storing(folder, "reading the run"):
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # a segment became a part between two steps
                return _read_snapshot(folder, before)
    raise StoreError(f"{folder.path}: the journal changes faster than it can be read; try again")


def _read_snapshot(folder: Folder, before: Snapshot | None) -> Snapshot:
    # First the journal: what leaves it later is found in parts.
    live = journal.segments(folder)
    cut, words = {*folder.numbers(parts.ATTEMPTS)}, folder.names(WORDS_FOLDER)
    sizes = {n: journal.file_of(folder, n, journal.LINES).stat().st_size for n in live if n not in cut}
    state = cut, sizes, words
    if before is not None and before.state == state:
        return before
    # Before the parts: these stay, while a segment may become a part at any moment.
    contents = {number: journal.read_contents(folder, number) for number in sizes}
    recent: dict[int, Note] = {}
    for number, said in contents.items():
        codes = np.array([CODES[row["status"]] for row in said.rows], np.uint8)
        recent[number] = packed([row["request_key"] for row in said.rows]), codes
    known = {} if before is None else {n: note for n, note in before.notes.items() if n in cut}
    new = [number for number in cut if number not in known]
    with ThreadPoolExecutor(_READERS) as pool:
        found = zip(new, pool.map(partial(read_note, folder), new), strict=True)
    notes = known | dict(found)
    return Snapshot(folder, Index(notes | recent), notes, contents, words, state)


def read_note(folder: Folder, number: int) -> Note:
    """Return what the ``attempts/`` file of a cut segment notes of its records."""
    name = parts.file_name(parts.ATTEMPTS, number)
    with reading(folder, name):
        metadata = pq.read_metadata(folder.source(name)).metadata or {}
        content = base64.b64decode(metadata[parts.RECORDS.encode()])
    keys = len(content) // (KEY_BYTES + 1) * KEY_BYTES
    return np.frombuffer(content[:keys], _KEY), np.frombuffer(content[keys:], np.uint8)


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


# -- the ledger: a row for each attempt of each row's call ----------------------------

FAILED_STATUSES = frozenset({"failed", "charged_unknown", "retried"})
"""Statuses of attempts that brought no answer."""


def attempts(
    snapshot: Snapshot, columns: Sequence[str], *, known: Collection[int] = ()
) -> Iterator[tuple[int | None, pa.Table]]:
    """Yield the attempts that have ended, a segment at a time, the oldest first, in the order of their ends.

    Each comes with the segment's number, None while it may still grow. Segments whose number is `known` are
    left out. `columns` are some of :data:`LEDGER`.
    """
    folder, schema = snapshot.folder, pa.schema([LEDGER.field(name) for name in columns])
    for number in sorted(snapshot.notes.keys() - known):
        name = parts.file_name(parts.ATTEMPTS, number)
        with reading(folder, name), pq.ParquetFile(folder.source(name)) as file:
            table = file.read(schema.names).select(schema.names)
            check_times(table)
        yield number, table
    for contents in snapshot.live.values():
        yield None, pa.Table.from_batches([parts.table_of(contents.attempts, schema)], schema)


def ledger(snapshot: Snapshot, columns: Sequence[str] = LEDGER.names) -> pa.Table:
    """Return every attempt that has ended, by the time it was sent."""
    tables = [LEDGER.empty_table().select(columns), *(table for _, table in attempts(snapshot, columns))]
    return pa.concat_tables(tables).sort_by("time")


def all_attempts(folder: Folder, columns: Sequence[str]) -> pa.Table:
    """Return these columns of every attempt of a run, to count what it has spent.

    StoreError when a file of the ledger is missing: what was spent cannot be told then.
    """
    # Listed first: what became a part since then is in the snapshot.
    names = sorted({*folder.names(parts.PARTS), *folder.names(parts.FAILED)})
    snapshot = read_snapshot(folder)
    known = {parts.file_name(parts.ATTEMPTS, number) for number in (*snapshot.notes, *snapshot.live)}
    if lost := [name for name in names if f"{parts.ATTEMPTS}/{name}" not in known]:
        raise StoreError(
            f"{folder.path}: {parts.ATTEMPTS}/{lost[0]} is missing, so what the run has spent is not known "
            "and a limit cannot be kept; put the file back, or resume with max_credits=inf where no rule "
            "forbids it"
        )
    return ledger(snapshot, columns)


def spent(folder: Folder) -> int:
    """Return the thousandths of a credit that a run has spent; errors are those of :func:`all_attempts`."""
    return round(1000 * (pc.sum(all_attempts(folder, ["time", "credits"]).column("credits")).as_py() or 0.0))
