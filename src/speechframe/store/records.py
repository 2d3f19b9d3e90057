"""Find and read the records of a run, and the words that alignment found in its audio.

A record is the stored result of one call for one row. It is in a segment of the journal, or later in the
Parquet files that the segment becomes. Three facts locate a record: the number of its segment, whether it is
finished, and its position among the finished or unfinished records of the segment. The conversion of the
segment changes none of these facts. So a record that was located in the journal is also found after the
conversion.
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
from speechframe.store.folder import Folder, convert_os_errors, convert_read_errors
from speechframe.store.ledger import AMOUNT_COLUMNS, compute_billed_millicredits
from speechframe.store.schema import (
    AUDIO_COLUMN,
    CACHED,
    DONE,
    FINISHED_STATUSES,
    KEY_BYTES,
    LEDGER_SCHEMA,
    NOTED,
    STATUSES,
    SUSPECT,
    WORDS_COLUMN,
    WORDS_TYPE,
    check_times,
    compute_call_key,
)

Numbers = npt.NDArray[np.int64]
_AreRejected = Callable[[Numbers], npt.NDArray[np.bool_]]
Note = tuple[npt.NDArray[np.bytes_], npt.NDArray[np.uint8]]
"""The key of each record of a segment, and its status as an index into ``STATUSES``. Unfinished records are
first if the note comes from a file."""

CODE_BY_STATUS = {status: code for code, status in enumerate(STATUSES)}
"""Index into ``STATUSES`` by status."""
_KEY_DIGITS = 2 * KEY_BYTES
"""Number of hex digits of a call key."""
_KEY_TYPE = f"S{KEY_BYTES}"
"""NumPy type of a call key as bytes."""
_NO_RECORD: Note = np.zeros(1, _KEY_TYPE), np.zeros(1, np.uint8)
_IS_FINISHED = np.array([status in FINISHED_STATUSES for status in STATUSES])

MAX_KEPT_BYTES = 64 << 20
"""Size in bytes of the row groups that stay in memory, because they probably contain the next rows, too."""

WORDS_FOLDER = "words"
WORDS_SCHEMA = pa.schema([("request_key", pa.string()), (WORDS_COLUMN, WORDS_TYPE)])
_SHA256_SCHEMA = pa.schema([("sha256", pa.string())])
_READER_THREADS, _MAX_TRIES = 8, 20
"""Number of threads that read files, and of attempts to read a run while its segments are converted."""


class Index:
    """Finds records by ``request_key``. If a key has several records, the newest counts.

    Each array has one element per record. The position of a record is its index in the arrays. `rows`
    contains the row of each record in its file. The last element of the arrays stands for a missing record.
    So position -1 has the status ``pending`` and a key that no call has.
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
        order[0] = -1  # the key of the missing record is all zeros, so it is first
        return order, keys

    def find(self, keys: Any) -> Numbers:
        """Return the position of the record of each key, or -1 for null and for a key without a record."""
        order, known = self._sorted
        wanted = pack_keys(keys)
        # The last of equal keys is the newest, because the sort is stable.
        at = np.searchsorted(known, wanted, side="right") - 1
        return np.where(known[at] == wanted, order[at], -1)

    def find_shown_records(self, base_keys: Any, takes: Numbers, are_rejected: "_AreRejected") -> Numbers:
        """Return the position of the record to show for each row, or -1 if there is no record.

        A take is one rendering of the same content, and `takes` are the takes of the rows. The record of a
        row's take is shown. If this take is missing or failed, the nearest earlier finished take is shown. If
        this take is suspect, the first later good take is shown. A take that a review rejected is not shown
        in place of another take. There is one exception: if all later good takes are rejected, the first of
        them is shown in place of a suspect take.
        """
        positions = self.find(compute_take_keys(base_keys, takes))
        without = np.flatnonzero(~self.have_status(positions, FINISHED_STATUSES) & (takes > 0))
        suspect = np.flatnonzero(self.have_status(positions, {SUSPECT}))
        for left, step, wanted in ((without, -1, FINISHED_STATUSES), (suspect, 1, {DONE, CACHED})):
            rows, tried = left, takes.copy()
            while len(rows):
                tried[rows] += step
                found = self.find(compute_take_keys(base_keys.take(pa.array(rows)), tried[rows]))
                hit = self.have_status(found, wanted)
                rejected = np.zeros(len(found), bool)
                rejected[hit] = are_rejected(found[hit])
                hit &= ~rejected
                positions[rows[hit]] = found[hit]
                if step > 0:
                    rejected &= self.have_status(positions[rows], {SUSPECT})
                    positions[rows[rejected]] = found[rejected]
                # In the upward direction stop at the first missing take, because takes are made one after the
                # other.
                rows = rows[~hit & (tried[rows] > 0 if step < 0 else found >= 0)]
        return positions

    def have_status(self, positions: Numbers, statuses: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return for each position whether its record has one of these statuses. Position -1 gives False."""
        wanted = [CODE_BY_STATUS[status] for status in statuses]
        found: npt.NDArray[np.bool_] = np.isin(self.codes[positions], wanted) & (positions >= 0)
        return found

    def get_statuses(self, positions: Numbers) -> Any:
        """Return the statuses of the records at these positions. Position -1 gives ``pending``."""
        codes: Any = pa.array(self.codes[positions])
        return pa.array(STATUSES).take(codes)

    def find_with_status(self, statuses: Collection[str]) -> Numbers:
        """Return the positions of all records with one of these statuses, the oldest segment first."""
        return np.flatnonzero(np.isin(self.codes[:-1], [CODE_BY_STATUS[status] for status in statuses]))

    def count_by_status(self) -> dict[str, int]:
        """Return the number of calls by status. Only the newest record of a call counts."""
        order, known = self._sorted
        newest = order[np.append(known[1:] != known[:-1], [True])][1:]
        numbers = np.bincount(self.codes[newest], minlength=len(STATUSES)).tolist()
        return dict(zip(STATUSES, numbers, strict=True))


def pack_keys(keys: Any) -> npt.NDArray[np.bytes_]:
    """Convert keys of 32 hex digits to 16 bytes each. Other values become zeros, the key that no call has."""
    if not isinstance(keys, pa.Array):
        keys = pa.array(keys, pa.string())
    is_key: Any = pc.fill_null(pc.match_substring_regex(keys, f"^[0-9a-f]{{{_KEY_DIGITS}}}$"), False)
    digits = pc.if_else(is_key, keys, "0" * _KEY_DIGITS).cast(pa.binary()).cast(pa.binary(_KEY_DIGITS))
    return np.frombuffer(bytes.fromhex(digits.buffers()[1].to_pybytes().decode()), _KEY_TYPE)


def convert_to_hex(keys: npt.NDArray[np.bytes_]) -> list[str]:
    """Convert keys of 16 bytes to 32 hex digits each."""
    digits = keys.tobytes().hex()
    return [digits[start : start + _KEY_DIGITS] for start in range(0, len(digits), _KEY_DIGITS)]


def compute_take_keys(keys: Any, takes: Numbers) -> Any:
    """Return the keys of the takes with the numbers `takes`. `keys` are the keys of take 0, or null."""
    if not takes.any():
        return keys
    pairs = zip(keys.to_pylist(), takes.tolist(), strict=True)
    return pa.array(
        [None if key is None else compute_call_key(key, take) for key, take in pairs], pa.string()
    )


@dataclass(eq=False)
class Snapshot:
    """The records of a run at one moment, from :func:`read_snapshot`."""

    folder: Folder
    index: Index
    notes: dict[int, Note]  # keys and statuses by segment, of converted segments
    live: dict[int, journal.Contents]  # contents by segment, of segments that are still in the journal
    words_files: list[str]  # names of the files with words that alignment found
    state: Any  # value that is equal as long as the folder has not changed
    _kept: dict[Any, pa.Table] = field(default_factory=dict)  # row groups in memory, the latest used last
    _starts: dict[str, Numbers] = field(default_factory=dict)  # first row of each row group, by file
    _lock: Any = field(default_factory=threading.Lock)  # needed because widgets read in several threads

    @cached_property
    def _words(self) -> tuple[Index, Any]:
        tables = [WORDS_SCHEMA.empty_table()]
        for file in self.words_files:
            with convert_read_errors(self.folder, name := f"{WORDS_FOLDER}/{file}"):
                table = pq.read_table(self.folder.get_source(name)).select(WORDS_SCHEMA.names)
                tables.append(table.cast(WORDS_SCHEMA))
        keys, words = pa.concat_tables(tables).columns
        codes = np.full(len(keys), CODE_BY_STATUS[DONE], np.uint8)
        return Index({0: (pack_keys(keys.combine_chunks()), codes)}), words

    def get_aligned_words(self, keys: Any) -> Any:
        """Return the words that alignment found in each call's audio, or null for calls without alignment."""
        index, words = self._words
        positions = index.find(keys)
        wanted: Any = pa.array(positions, mask=positions < 0)
        return words.take(wanted).combine_chunks()

    def find_shown_records(self, base_keys: Any, takes: Numbers) -> Numbers:
        """Return the position of the record to show for each row, or -1.

        See :meth:`Index.find_shown_records`.
        """
        return self.index.find_shown_records(base_keys, takes, self.are_rejected)

    def are_rejected(self, positions: Numbers) -> npt.NDArray[np.bool_]:
        """Return for each position whether the last verdict on the audio of its record is a rejection."""
        found = np.zeros(len(positions), bool)
        if len(positions) and (rejected := reviews.read_rejected_hashes(self.folder)):
            hashes: Any = self.read_records(positions, _SHA256_SCHEMA).column("sha256")
            found[:] = pc.is_in(hashes, pa.array(sorted(rejected))).to_numpy()
        return found

    def find_rejections(self) -> npt.NDArray[np.bool_]:
        """Return :meth:`are_rejected` for all positions, with False for position -1."""
        found, finished = np.zeros(len(self.index) + 1, bool), self.index.find_with_status(FINISHED_STATUSES)
        found[finished] = self.are_rejected(finished)
        return found

    def read_records(self, positions: Numbers, schema: pa.Schema) -> pa.Table:
        """Read the columns of `schema` for the records at these positions. For -1, give a row of nulls."""
        here = np.flatnonzero(positions >= 0)
        files = 2 * self.index.segments[positions[here]].astype(np.int64)
        files += self.index.have_status(positions[here], FINISHED_STATUSES)
        pieces, taken = [schema.empty_table()], [np.empty(0, np.int64)]
        for file in np.unique(files).tolist():
            which = here[files == file]
            rows = self.index.rows[positions[which]].astype(np.int64)
            for piece, chosen in self._read_rows(file // 2, file % 2, rows, schema):
                pieces.append(piece)
                taken.append(which[chosen])
        order = np.full(len(positions), -1)
        order[np.concatenate(taken)] = np.arange(len(here))
        wanted: Any = pa.array(order, mask=order < 0)
        return pa.concat_tables(pieces).take(wanted)

    def _read_rows(
        self, segment: int, is_finished: int, rows: Numbers, schema: pa.Schema
    ) -> Iterator[tuple[pa.Table, Numbers]]:
        """Yield records of a segment in pieces, each with the positions of its records in `rows`."""
        if segment in self.live:
            # If the file of the journal is gone, read the converted segment below. It has the same order of
            # records.
            with suppress(FileNotFoundError):
                records = self.live[segment].rows
                found = [row for row in records if (row["status"] in FINISHED_STATUSES) == is_finished]
                batches = parts.read_record_batches(
                    self.folder, segment, [found[row] for row in rows], schema
                )
                yield pa.Table.from_batches(list(batches), schema), np.arange(len(rows))
                return
        name = parts.format_file_name(parts.PARTS_FOLDER if is_finished else parts.FAILED_FOLDER, segment)
        if AUDIO_COLUMN not in schema.names:
            yield self._read_table(name, None, schema).take(rows), np.arange(len(rows))
            return
        # Read one row group at a time, because audio may be large.
        if name not in self._starts:
            with convert_read_errors(self.folder, name), pq.ParquetFile(self.folder.get_source(name)) as file:
                self._starts[name] = find_group_starts(file)
        for group, inside, chosen in group_rows(self._starts[name], rows):
            yield self._read_table(name, group, schema).take(inside), chosen

    def _read_table(self, name: str, group: int | None, schema: pa.Schema) -> pa.Table:
        key = name, group, *schema.names
        with self._lock:
            table = self._kept.pop(key, None)
            if table is None:
                source, names = self.folder.get_source(name), schema.names
                with convert_read_errors(self.folder, name), pq.ParquetFile(source, pre_buffer=True) as file:
                    table = file.read(names) if group is None else file.read_row_group(group, names)
                    table = table.select(names).cast(schema)
                    check_times(table)
            self._kept[key] = table  # the table goes to the end, so the least recently used table is first
            while len(self._kept) > 1 and sum(kept.nbytes for kept in self._kept.values()) > MAX_KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        return table


def find_group_starts(file: pq.ParquetFile) -> Numbers:
    """Return the number of the first row of each row group, and at the end the number of rows of the file."""
    groups = range(file.metadata.num_row_groups)
    return np.cumsum([0, *(file.metadata.row_group(group).num_rows for group in groups)])


def group_rows(starts: Numbers, rows: Numbers) -> Iterator[tuple[int, Numbers, Numbers]]:
    """Distribute `rows` of a file over its row groups.

    For each row group, yield its number, the wanted rows counted from its start, and their positions in
    `rows`.
    """
    group_of = np.searchsorted(starts, rows, side="right") - 1
    for group in np.unique(group_of).tolist():
        chosen = np.flatnonzero(group_of == group)
        yield group, rows[chosen] - starts[group], chosen


def read_snapshot(folder: Folder, before: Snapshot | None = None, within: range | None = None) -> Snapshot:
    """Return the records of all calls that have ended by now, even while another process writes records.

    If the folder has not changed since the snapshot `before`, return `before`. Files that `before` has read
    are not read again. With `within`, only segments with these numbers are read.
    """
    with convert_os_errors(folder, "reading the run"):
        for _ in range(_MAX_TRIES):
            with suppress(FileNotFoundError):  # a segment was converted between two steps
                return _read_snapshot(folder, before, within)
    raise StoreError(f"{folder.path}: the journal changes faster than it can be read; try again")


def _read_snapshot(folder: Folder, before: Snapshot | None, within: range | None) -> Snapshot:
    # List the journal before the Parquet files. A segment that leaves the journal meanwhile is then found
    # there.
    live = journal.list_segments(folder, within)
    cut, words = {*folder.list_numbers(parts.ATTEMPTS_FOLDER, within)}, folder.list_names(WORDS_FOLDER)
    sizes = {
        n: journal.get_segment_file(folder, n, journal.LINES_SUFFIX).stat().st_size
        for n in live
        if n not in cut
    }
    state = cut, sizes, words
    if before is not None and before.state == state:
        return before
    # Read the segments before the Parquet files, because a segment may be converted at any moment.
    contents = {number: journal.read_contents(folder, number) for number in sizes}
    recent: dict[int, Note] = {}
    for number, contents_of_segment in contents.items():
        codes = np.array([CODE_BY_STATUS[row["status"]] for row in contents_of_segment.rows], np.uint8)
        recent[number] = pack_keys([row["request_key"] for row in contents_of_segment.rows]), codes
    known = {} if before is None else {n: note for n, note in before.notes.items() if n in cut}
    new = [number for number in cut if number not in known]
    with ThreadPoolExecutor(_READER_THREADS) as pool:
        found = zip(new, pool.map(partial(read_note, folder), new), strict=True)
    notes = known | dict(found)
    return Snapshot(folder, Index(notes | recent), notes, contents, words, state)


def read_note(folder: Folder, number: int) -> Note:
    """Return the key and the status of each record of a converted segment, from its file in ``attempts/``."""
    name = parts.format_file_name(parts.ATTEMPTS_FOLDER, number)
    with convert_read_errors(folder, name):
        metadata = pq.read_metadata(folder.get_source(name)).metadata or {}
        content = base64.b64decode(metadata[parts.RECORDS_FOOTER.encode()])
    keys = len(content) // (KEY_BYTES + 1) * KEY_BYTES
    return np.frombuffer(content[:keys], _KEY_TYPE), np.frombuffer(content[keys:], np.uint8)


def read_notes(folder: Folder) -> dict[str, bytes]:
    """Return the last note of each call that is under way or failed, by ``request_key``.

    A note is data with which a later attempt can continue. A failed call may have been answered since.
    """
    # Read the journal first. A segment that is converted meanwhile is then found among the failures.
    live = read_snapshot(folder).live
    found = {key: row[NOTED] for key, row in parts.read_failures(folder).items() if row[NOTED] is not None}
    for contents in live.values():
        found |= {row["request_key"]: row[NOTED] for row in contents.rows if row.get(NOTED)}
        for sent, data in contents.open.values():
            if data is not None:
                found |= dict.fromkeys((entry["request_key"] for entry in sent["entries"]), data.hex())
    return {key: bytes.fromhex(data) for key, data in found.items()}


# -- the ledger, with one row for each attempt and each row of its call ----------------

FAILED_STATUSES = frozenset({"failed", "charged_unknown", "retried"})
"""Statuses of attempts without a usable answer."""


def read_attempts(
    snapshot: Snapshot, columns: Sequence[str], *, known: Collection[int] = ()
) -> Iterator[tuple[int | None, pa.Table]]:
    """Yield the attempts that have ended, segment by segment, in the order of their ends.

    Each table comes with the number of its segment, or with None if the segment is still in the journal.
    Converted segments whose number is `known` are left out. `columns` are some of :data:`LEDGER_SCHEMA`.
    """
    folder, schema = snapshot.folder, pa.schema([LEDGER_SCHEMA.field(name) for name in columns])
    for number in sorted(snapshot.notes.keys() - known):
        name = parts.format_file_name(parts.ATTEMPTS_FOLDER, number)
        with convert_read_errors(folder, name), pq.ParquetFile(folder.get_source(name)) as file:
            table = file.read(schema.names).select(schema.names)
            check_times(table)
        yield number, table
    for contents in snapshot.live.values():
        yield None, pa.Table.from_batches([parts.convert_to_arrow(contents.attempts, schema)], schema)


def read_ledger(snapshot: Snapshot, columns: Sequence[str] = LEDGER_SCHEMA.names) -> pa.Table:
    """Return all attempts that have ended, in the order in which they were sent."""
    tables = [
        LEDGER_SCHEMA.empty_table().select(columns),
        *(table for _, table in read_attempts(snapshot, columns)),
    ]
    return pa.concat_tables(tables).sort_by("time")


def find_senders(snapshot: Snapshot, request_keys: Collection[str]) -> dict[str, str]:
    """Return by call the fingerprint of the API key that sent the last attempt. Unsent calls are left out."""
    if not request_keys:
        return {}
    attempts = read_ledger(snapshot, ["time", "request_key", "key_fingerprint"])
    sent = attempts.filter(pc.is_in(attempts.column("request_key"), pa.array([*request_keys], pa.string())))
    return dict(zip(*(sent.column(name).to_pylist() for name in sent.column_names[1:]), strict=True))


def read_all_attempts(folder: Folder, columns: Sequence[str]) -> pa.Table:
    """Return these columns of all attempts of a run, for counting its spending.

    StoreError is raised if a file of attempts is missing, because the spending is then unknown.
    """
    # List the files before the snapshot, so that the snapshot contains at least their segments.
    names = sorted({*folder.list_names(parts.PARTS_FOLDER), *folder.list_names(parts.FAILED_FOLDER)})
    snapshot = read_snapshot(folder)
    known = {
        parts.format_file_name(parts.ATTEMPTS_FOLDER, number) for number in (*snapshot.notes, *snapshot.live)
    }
    if lost := [name for name in names if f"{parts.ATTEMPTS_FOLDER}/{name}" not in known]:
        raise StoreError(
            f"{folder.path}: {parts.ATTEMPTS_FOLDER}/{lost[0]} is missing, so what the run has spent is not "
            "known and a limit cannot be kept; put the file back, or resume with max_credits=inf if no rule "
            "forbids it"
        )
    return read_ledger(snapshot, columns)


def read_spending(folder: Folder) -> int:
    """Return the spending of a run in thousandths of a credit.

    Errors are those of :func:`read_all_attempts`.
    """
    return sum_millicredits(read_all_attempts(folder, ["time", *AMOUNT_COLUMNS]))


def read_known_spending(folder: Folder, within: range | None = None) -> int:
    """Return the spending of a run in thousandths of a credit, without attempts whose file is missing.

    With `within`, only segments with these numbers count.
    """
    return sum_millicredits(read_ledger(read_snapshot(folder, within=within), ["time", *AMOUNT_COLUMNS]))


def sum_millicredits(attempts: pa.Table) -> int:
    """Return the total cost of attempts in thousandths of a credit."""
    return pc.sum(compute_billed_millicredits(attempts)).as_py() or 0
