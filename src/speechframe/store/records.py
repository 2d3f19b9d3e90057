"""Records of a run, from parts and from the journal alike, and the words that were found in its audio."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.store import parts
from speechframe.store.folder import Folder
from speechframe.store.index import CODES, Index, Look, Numbers, index_of, reading
from speechframe.store.schema import AUDIO, DONE, FINISHED, WORDS, WORDS_TYPE, Row, part_schema

KEPT_BYTES = 64 << 20
"""Of files that were read, for the rows that follow: they are likely to be in the same ones."""

WORDS_FOLDER = "words"
WORDS_SCHEMA = pa.schema([("request_key", pa.string()), (WORDS, WORDS_TYPE)])


class Records:
    """Reads records by their position in an index.

    Parameters
    ----------
    folder
        The run's folder.
    index
        Where they are.
    schema
        Their columns.
    names
        The file of a segment's records, by its number and kind (``parts`` or ``failed``).
    journal
        Records of segments that are no files yet.
    """

    def __init__(
        self,
        folder: Folder,
        index: Index,
        schema: pa.Schema,
        names: Callable[[int, str], str],
        journal: dict[int, Sequence[Row]],
    ) -> None:
        self.index, self.schema = index, schema
        self._folder, self._names, self._journal = folder, names, journal
        self._kept: OrderedDict[Any, pa.Table] = OrderedDict()
        self._kept_bytes = 0
        self._groups: dict[str, tuple[Numbers, Numbers]] = {}

    def take(self, positions: Numbers, columns: Sequence[str], *, few: bool = False) -> pa.Table:
        """Return some columns of the records at these positions; a row of nulls for -1.

        Parameters
        ----------
        positions
            In the index.
        columns
            Of the schema.
        few
            Read the row groups that are needed, not whole files.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        here = np.flatnonzero(positions >= 0)
        pieces, order = [schema.empty_table()], np.full(len(positions), -1, np.int64)
        taken = 0
        for (segment, kind), which in self._by_file(positions[here]):
            rows = self.index.rows[positions[here[which]]].astype(np.int64)
            for table, inside, chosen in self._tables(segment, kind, rows, schema, few=few):
                pieces.append(table.take(inside))
                order[here[which[chosen]]] = np.arange(taken, taken + len(chosen))
                taken += len(chosen)
        wanted: Any = pa.array(order, mask=order < 0)
        return pa.concat_tables(pieces).take(wanted)

    def audio_bytes(self, positions: Numbers) -> Numbers:
        """Return about how many bytes of audio the record at each position has."""
        sizes = np.zeros(len(positions), np.int64)
        here = np.flatnonzero(positions >= 0)
        for (segment, kind), which in self._by_file(positions[here]):
            rows = self.index.rows[positions[here[which]]]
            if segment in self._journal:
                found = self._of_journal(segment, kind)
                sizes[here[which]] = [(found[row].get(AUDIO) or (0, 0))[1] for row in rows.tolist()]
            else:
                starts, row_bytes = self._row_groups(self._names(segment, kind))
                sizes[here[which]] = row_bytes[np.searchsorted(starts, rows, side="right") - 1]
        return sizes

    def _by_file(self, positions: Numbers) -> Iterator[tuple[tuple[int, str], Numbers]]:
        files = self.index.segments[positions].astype(np.int64) * 2 + self.index.having(positions, FINISHED)
        for file in np.unique(files).tolist():
            yield (file // 2, parts.PARTS if file % 2 else parts.FAILED), np.flatnonzero(files == file)

    def _tables(
        self, segment: int, kind: str, rows: Numbers, schema: pa.Schema, *, few: bool
    ) -> Iterator[tuple[pa.Table, Numbers, Numbers]]:
        """Yield tables of one file, which rows of each are wanted, and which of `rows` they are."""
        everything = np.arange(len(rows))
        if segment in self._journal:
            # Not there: it became a part meanwhile, whose records have the same order.
            with suppress(FileNotFoundError):
                table = self._read_journal(segment, kind, rows, schema)
                yield table, everything, everything
                return
        name = self._names(segment, kind)
        if not few and AUDIO not in schema.names:
            yield self._read(name, schema, None), rows, everything
            return
        starts, _ = self._row_groups(name)
        groups = np.searchsorted(starts, rows, side="right") - 1
        for group in np.unique(groups).tolist():
            chosen = np.flatnonzero(groups == group)
            yield self._read(name, schema, group), rows[chosen] - starts[group], chosen

    def _of_journal(self, segment: int, kind: str) -> list[Row]:
        wanted = kind == parts.PARTS
        return [row for row in self._journal[segment] if (row["status"] in FINISHED) is wanted]

    def _read_journal(self, segment: int, kind: str, rows: Numbers, schema: pa.Schema) -> pa.Table:
        found = self._of_journal(segment, kind)
        wanted = [found[row] for row in rows.tolist()]
        return pa.Table.from_batches(parts.record_batches(self._folder, segment, wanted, schema), schema)

    def _read(self, name: str, schema: pa.Schema, group: int | None) -> pa.Table:
        place = name, group, tuple(schema.names)
        if place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place]
        is_remote = self._folder.work != self._folder.path
        with (
            reading(self._folder, name),
            pq.ParquetFile(self._folder.source(name), pre_buffer=is_remote) as file,
        ):
            table = file.read(schema.names) if group is None else file.read_row_group(group, schema.names)
            self._kept[place] = table = table.select(schema.names).cast(schema)
        self._kept_bytes += table.nbytes
        while len(self._kept) > 1 and self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return table

    def _row_groups(self, name: str) -> tuple[Numbers, Numbers]:
        """Return the first row of each row group, and about how many bytes a row of it has."""
        if name not in self._groups:
            with reading(self._folder, name), pq.ParquetFile(self._folder.source(name)) as file:
                groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            counts = np.array([group.num_rows for group in groups], np.int64)
            sizes = np.array([group.total_byte_size for group in groups], np.int64)
            self._groups[name] = np.cumsum(counts) - counts, sizes // np.maximum(counts, 1)
        return self._groups[name]


def records_of(folder: Folder, look: Look, columns: pa.Schema) -> Records:
    """Return the records of a run, whose backend keeps `columns`."""
    schema = part_schema(columns).remove_metadata()

    return Records(
        folder, look.index, schema, lambda number, kind: parts.file_name(kind, number), look.journal
    )


def words_of(folder: Folder, files: Sequence[str]) -> Records | None:
    """Return the words that were found in a run's audio afterwards; None without such files.

    Parameters
    ----------
    folder
        The run's folder.
    files
        Names of what is in its folder ``words``.
    """
    index: Index | None = None
    for file in files:
        name = f"{WORDS_FOLDER}/{file}"
        with reading(folder, name):
            keys = pq.read_table(folder.source(name), columns=["request_key"]).column(0)
        found = index_of(int(file.partition(".")[0]), keys, [CODES[DONE]] * len(keys))
        index = found if index is None else found.over(index)
    if index is None:
        return None
    return Records(folder, index, WORDS_SCHEMA, lambda number, _: f"{WORDS_FOLDER}/{number:04d}.parquet", {})
