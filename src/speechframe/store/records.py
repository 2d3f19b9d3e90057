"""The records of a run, from parts and from the journal alike, and the words that were found in its audio.

Three things find a record: its segment, whether it is finished, and its place among the finished or
unfinished records of the segment. Cutting the segment into parts changes none of them. So a record that was
found in the journal is still found after the journal has become parts.
"""

import base64
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store import journal, parts, reviews
from speechframe.store.folder import Folder, reading, storing
from speechframe.store.ledger import AMOUNTS, billed_millis
from speechframe.store.schema import (
    AUDIO,
    CACHED,
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
_AreRejected = Callable[[Numbers], npt.NDArray[np.bool_]]
Note = tuple[npt.NDArray[np.bytes_], npt.NDArray[np.uint8]]
"""Key and status (its place in ``STATUSES``) of each record of a segment, the oldest first."""

CODES = {status: code for code, status in enumerate(STATUSES)}
_DIGITS = 2 * KEY_BYTES
_KEY = f"S{KEY_BYTES}"
_NO_RECORD: Note = np.zeros(1, _KEY), np.zeros(1, np.uint8)
_IS_FINISHED = np.array([status in FINISHED for status in STATUSES])

KEPT_BYTES = 64 << 20
"""Bytes of row groups that stay in memory, because the next rows are likely to be in them."""

WORDS_FOLDER = "words"
WORDS_SCHEMA = pa.schema([("request_key", pa.string()), (WORDS, WORDS_TYPE)])
_SHA256 = pa.schema([("sha256", pa.string())])
_READERS, _TRIES = 8, 20


class Index:
    """Find records by ``request_key``. The newest of several records of a key counts.

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
        """Return the position of each key's record, -1 for null and for a key without a record."""
        order, known = self._sorted
        wanted = packed(keys)
        # The last of equal keys is the newest, because the order is stable.
        at = np.searchsorted(known, wanted, side="right") - 1
        return np.where(known[at] == wanted, order[at], -1)

    def represent(self, base_keys: Any, takes: Numbers, are_rejected: "_AreRejected") -> Numbers:
        """Return the position of the record that represents each row, -1 for a row without one.

        A row's own take represents it. If that is missing or failed, the nearest earlier take that is
        finished does so. If it is suspect, the first later take that is good does so. A rejected take stands
        in for another one only after a suspect take, and only until there is a later take.
        """
        positions = self.find(of_takes(base_keys, takes))
        without = np.flatnonzero(~self.having(positions, FINISHED) & (takes > 0))
        suspect = np.flatnonzero(self.having(positions, {SUSPECT}))
        for left, step, wanted in ((without, -1, FINISHED), (suspect, 1, {DONE, CACHED})):
            rows, tried = left, takes.copy()
            while len(rows):
                tried[rows] += step
                found = self.find(of_takes(base_keys.take(pa.array(rows)), tried[rows]))
                hit = self.having(found, wanted)
                rejected = np.zeros(len(found), bool)
                rejected[hit] = are_rejected(found[hit])
                hit &= ~rejected
                positions[rows[hit]] = found[hit]
                if step > 0:
                    rejected &= self.having(positions[rows], {SUSPECT})
                    positions[rows[rejected]] = found[rejected]
                # Stop at a gap upwards, because takes are made one after the other.
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
    """Return keys of 32 hex digits as 16 bytes each. Anything else becomes zeros, which no call has."""
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
    """The records of a run at one moment, from :func:`read_snapshot`."""

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
        """Return the words that alignment found in each call's audio, null for audio without alignment."""
        index, words = self._words
        positions = index.find(keys)
        wanted: Any = pa.array(positions, mask=positions < 0)
        return words.take(wanted).combine_chunks()

    def represent(self, base_keys: Any, takes: Numbers) -> Numbers:
        """Return the position of the record that represents each row, as :meth:`Index.represent` does."""
        return self.index.represent(base_keys, takes, self.are_rejected)

    def are_rejected(self, positions: Numbers) -> npt.NDArray[np.bool_]:
        """Return which positions are of records whose audio a review rejected, by its last verdict."""
        found = np.zeros(len(positions), bool)
        if len(positions) and (rejected := reviews.rejected(self.folder)):
            hashes: Any = self.take(positions, _SHA256).column("sha256")
            found[:] = pc.is_in(hashes, pa.array(sorted(rejected))).to_numpy()
        return found

    def rejections(self) -> npt.NDArray[np.bool_]:
        """Return :meth:`are_rejected` of all records, and False for position -1."""
        found, finished = np.zeros(len(self.index) + 1, bool), self.index.with_status(FINISHED)
        found[finished] = self.are_rejected(finished)
        return found

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
            # If the journal's file is gone, the segment became a part with the same order of records.
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
        # Read one row group at a time, because audio may be large.
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

    If nothing has changed since `before`, return it. Parts that it has read are not read again.
    """
    with storing(folder, "reading the run"):
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # a segment became a part between two steps
                return _read_snapshot(folder, before)
    raise StoreError(f"{folder.path}: the journal changes faster than it can be read; try again")


def _read_snapshot(folder: Folder, before: Snapshot | None) -> Snapshot:
    # Read the journal first, because a segment that leaves it is found in parts.
    live = journal.segments(folder)
    cut, words = {*folder.numbers(parts.ATTEMPTS)}, folder.names(WORDS_FOLDER)
    sizes = {n: journal.file_of(folder, n, journal.LINES).stat().st_size for n in live if n not in cut}
    state = cut, sizes, words
    if before is not None and before.state == state:
        return before
    # Read the segments before the parts, because a segment may become a part at any moment.
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
    """Return the key and the status of each record of a cut segment, from its ``attempts/`` file."""
    name = parts.file_name(parts.ATTEMPTS, number)
    with reading(folder, name):
        metadata = pq.read_metadata(folder.source(name)).metadata or {}
        content = base64.b64decode(metadata[parts.RECORDS.encode()])
    keys = len(content) // (KEY_BYTES + 1) * KEY_BYTES
    return np.frombuffer(content[:keys], _KEY), np.frombuffer(content[keys:], np.uint8)


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


def senders(snapshot: Snapshot, request_keys: Collection[str]) -> dict[str, str]:
    """Return for each of these calls the fingerprint of the key that sent its last attempt."""
    if not request_keys:
        return {}
    attempts = ledger(snapshot, ["time", "request_key", "key_fingerprint"])
    sent = attempts.filter(pc.is_in(attempts.column("request_key"), pa.array([*request_keys], pa.string())))
    return dict(zip(*(sent.column(name).to_pylist() for name in sent.column_names[1:]), strict=True))


def all_attempts(folder: Folder, columns: Sequence[str]) -> pa.Table:
    """Return these columns of every attempt of a run, to count its spending.

    StoreError if a file of the ledger is missing, because the spending is unknown then.
    """
    # List the files first, because the snapshot has segments that become parts afterwards.
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
    """Return the spending of a run in thousandths of a credit, with the errors of :func:`all_attempts`."""
    return millicredits_of(all_attempts(folder, ["time", *AMOUNTS]))


def known_spending(folder: Folder) -> int:
    """Return the sum of a run's ledger in thousandths of a credit, even if files of it are missing."""
    return millicredits_of(ledger(read_snapshot(folder), ["time", *AMOUNTS]))


def millicredits_of(attempts: pa.Table) -> int:
    """Return the cost of attempts, in thousandths of a credit."""
    return pc.sum(billed_millis(attempts)).as_py() or 0
