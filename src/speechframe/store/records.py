"""The records of a run, from parts and from the journal alike, and the words that were found in its audio."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.store import journal, parts
from speechframe.store.folder import Folder
from speechframe.store.index import (
    CODES,
    Index,
    Note,
    Numbers,
    packed,
    read_note,
    read_while_it_is_cut,
    reading,
)
from speechframe.store.schema import AUDIO, DONE, FINISHED, WORDS, WORDS_TYPE, Row

KEPT_BYTES = 64 << 20
"""Of row groups that were read, for the rows that follow: they are likely to be in the same ones."""

WORDS_FOLDER = "words"
WORDS_SCHEMA = pa.schema([("request_key", pa.string()), (WORDS, WORDS_TYPE)])
_READERS = 8


@dataclass(eq=False)
class Snapshot:
    """The records of a run at one moment; see :func:`read_snapshot`."""

    folder: Folder
    index: Index
    notes: dict[int, Note]  # of the segments that are parts
    sizes: dict[int, int]  # of the other segments, in bytes
    journal: dict[int, Sequence[Row]]  # their records
    words_files: list[str]
    _kept: dict[Any, pa.Table] = field(default_factory=dict)
    _starts: dict[str, Numbers] = field(default_factory=dict)

    @cached_property
    def words(self) -> "Words | None":
        """The words that were found in the run's audio afterwards, if anybody looked for any."""
        return Words(self.folder, self.words_files) if self.words_files else None

    def take(self, positions: Numbers, schema: pa.Schema) -> pa.Table:
        """Return these columns of the records at some positions of the index; a row of nulls for -1."""
        here = np.flatnonzero(positions >= 0)
        files = 2 * self.index.segments[positions[here]].astype(np.int64)
        files += self.index.having(positions[here], FINISHED)
        pieces, taken = [schema.empty_table()], [np.empty(0, np.int64)]
        for file in np.unique(files).tolist():
            which = here[files == file]
            rows = self.index.rows[positions[which]].astype(np.int64)
            for piece, chosen in self._rows(
                file // 2, parts.PARTS if file % 2 else parts.FAILED, rows, schema
            ):
                pieces.append(piece)
                taken.append(which[chosen])
        order = np.full(len(positions), -1)
        order[np.concatenate(taken)] = np.arange(len(here))
        wanted: Any = pa.array(order, mask=order < 0)
        return pa.concat_tables(pieces).take(wanted)

    def _rows(
        self, segment: int, kind: str, rows: Numbers, schema: pa.Schema
    ) -> Iterator[tuple[pa.Table, Numbers]]:
        """Yield some of these rows of a file, and which of them they are."""
        if segment in self.journal:
            # Not there: it became a part meanwhile, whose records have the same order.
            with suppress(FileNotFoundError):
                wanted = kind == parts.PARTS
                found = [row for row in self.journal[segment] if (row["status"] in FINISHED) is wanted]
                batches = parts.record_batches(self.folder, segment, [found[row] for row in rows], schema)
                yield pa.Table.from_batches(list(batches), schema), np.arange(len(rows))
                return
        name = parts.file_name(kind, segment)
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
        table = self._kept.pop(place, None)
        if table is None:
            is_remote = self.folder.work != self.folder.path
            source = self.folder.source(name)
            with reading(self.folder, name), pq.ParquetFile(source, pre_buffer=is_remote) as file:
                names = schema.names
                table = file.read(names) if group is None else file.read_row_group(group, names)
                table = table.select(names).cast(schema)
            while self._kept and table.nbytes + sum(kept.nbytes for kept in self._kept.values()) > KEPT_BYTES:
                del self._kept[next(iter(self._kept))]
        self._kept[place] = table  # the last: it was wanted last
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
    """Return the records of every call that has ended by now, whoever writes.

    It is `before` where nothing has changed since, and what that has of parts is not read again.
    """

    def read() -> Snapshot:
        # First the journal: what leaves it later is found in parts.
        live, log = journal.segments(folder), folder.work / journal.LOG
        cut, words = parts.cut_numbers(folder), folder.names(WORDS_FOLDER)
        sizes = {n: (log / f"{n:06d}.jsonl").stat().st_size for n in live if n not in cut}
        known: dict[int, Note] = {}
        if before is not None:
            known = before.notes
            if ({*known}, before.sizes, before.words_files) == ({*cut}, sizes, words):
                return before
        notes = {number: known[number] for number in cut if number in known}
        new = [number for number in cut if number not in known]
        notes.update(zip(new, _notes(folder, new), strict=True))
        recent: dict[int, Note] = {}
        rows: dict[int, Sequence[Row]] = {}
        for number in sizes:
            found = rows[number] = journal.read_contents(folder, number).rows
            codes = np.array([CODES[row["status"]] for row in found], np.uint8)
            recent[number] = packed([row["request_key"] for row in found]), codes
        return Snapshot(folder, Index(notes | recent), notes, sizes, rows, words)

    return read_while_it_is_cut(folder, read)


def _notes(folder: Folder, numbers: Sequence[int]) -> Iterable[Note]:
    read = partial(read_note, folder)
    if folder.work == folder.path:
        # Reading a footer of this machine takes less time than to hand it from thread to thread.
        return map(read, numbers)
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(read, numbers))


class Words:
    """The words that were found in a run's audio afterwards, in one file or more."""

    def __init__(self, folder: Folder, files: Sequence[str]) -> None:
        tables = []
        for file in files:
            with reading(folder, name := f"{WORDS_FOLDER}/{file}"):
                table = pq.read_table(folder.source(name)).select(WORDS_SCHEMA.names)
                tables.append(table.cast(WORDS_SCHEMA))
        keys, self._words = pa.concat_tables(tables).columns
        self._index = Index({0: (packed(keys), np.full(len(keys), CODES[DONE], np.uint8))})

    def of(self, keys: Any) -> Any:
        """Return the words found in each call's audio: null where nobody looked for any."""
        positions = self._index.find(keys)
        wanted: Any = pa.array(positions, mask=positions < 0)
        return self._words.take(wanted).combine_chunks()
