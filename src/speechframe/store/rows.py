"""The rows of a run's table, in its order and in bounded memory, with what became of each beside them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store.folder import Folder
from speechframe.store.index import CODES, Numbers, reading
from speechframe.store.manifest import TableEntry
from speechframe.store.records import Records
from speechframe.store.schema import AUDIO, BASE_KEY, INVALID, PENDING, PREFIX, PROBLEM, ROW_ID, TAKE, WORDS

BATCH_ROWS, AUDIO_BATCH_ROWS, BATCH_BYTES = 4096, 64, 32 << 20
OUR_ROW_ID, WORDS_BASIS = "row_id", "words_basis"


NO_WORDS = "no words were found in the audio"
"""The warning of a row whose words were looked for in its audio."""


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Rows of the table, and where in `records` is the one that represents each."""

    rows: pa.RecordBatch
    records: Records
    positions: Numbers

    def statuses(self) -> Any:
        """Return the status of each row."""
        codes = np.full(len(self.positions), CODES[PENDING], np.int64)
        codes[np.asarray(self.rows.column(BASE_KEY).is_null())] = CODES[INVALID]
        found = self.positions >= 0
        codes[found] = self.records.index.codes[self.positions[found]]
        return pa.array(list(CODES)).take(codes)


class Joined:
    """A run's table joined to its records.

    Parameters
    ----------
    folder
        The run's folder.
    entry, table
        The table, and the columns of its file: see :func:`table_schema`.
    records
        Of the run.
    words
        See :func:`records.words_of`.
    columns
        Names in the result, in this order; None for all.
    audio
        With the audio, where `columns` is None.
    """

    def __init__(
        self,
        folder: Folder,
        entry: TableEntry,
        table: pa.Schema,
        records: Records,
        words: Records | None = None,
        columns: Sequence[str] | None = None,
        *,
        audio: bool = False,
    ) -> None:
        if isinstance(columns, str):
            raise StoreError(f"columns={columns!r} is text: give a list of names, [{columns!r}]")
        self._folder, self._entry, self._records, self._words = folder, entry, records, words
        self._table_names = table.names
        theirs = [f for f in table if not f.name.startswith(PREFIX)]
        own = [pa.field(OUR_ROW_ID, pa.string()), *records.schema]
        if words is not None:
            own.append(pa.field(WORDS_BASIS, pa.string()))
        names = {f.name for f in theirs}
        self._ours = {beside(names, entry, f.name): f.name for f in own}
        fields = {f.name: f for f in theirs}
        fields |= {name: f.with_name(name) for name, f in zip(self._ours, own, strict=True)}
        if columns is None:
            hidden = {*entry.hidden} if audio else {*entry.hidden, AUDIO}
            columns = [name for name in fields if self._ours.get(name) not in hidden]
        if unknown := [name for name in columns if name not in fields]:
            raise StoreError(
                f"{folder.path}: the run has no column {unknown[0]!r}; it has {', '.join(fields)}"
            )
        self._read = [name for name in columns if name not in self._ours]
        self._wanted = {self._ours[name] for name in columns if name in self._ours}
        self._columns = [self._ours.get(name) for name in columns]
        metadata: dict[Any, Any] = dict(table.metadata or {})
        metadata.pop(b"ARROW:schema", None)
        if self.has_audio:
            features = {"info": {"features": {self.name_of(AUDIO): {"_type": "Audio"}}}}
            metadata[b"huggingface"] = json.dumps(features).encode()
        self.schema = pa.schema([fields[name] for name in columns], metadata)

    def name_of(self, column: str) -> str:
        """Return what our column is called beside the caller's."""
        return next((name for name, ours in self._ours.items() if ours == column), column)

    @property
    def index_columns(self) -> list[str]:
        """The columns that pandas makes the index of: a frame without them would name other rows."""
        levels = (self.schema.pandas_metadata or {}).get("index_columns", ())
        return [level for level in levels if isinstance(level, str)]

    @property
    def has_audio(self) -> bool:
        """Whether audio is read."""
        return AUDIO in self._wanted

    def batches(
        self, batch_rows: int | None = None, places: Sequence[int] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows in the table's order.

        Parameters
        ----------
        batch_rows
            At most so many at a time; by default fewer with audio.
        places
            Where they are in the table, ascending; None for all.
        """
        most = batch_rows or (AUDIO_BATCH_ROWS if self.has_audio else BATCH_ROWS)
        few = places is not None and len(places) * 8 < self._entry.rows
        for some in self.with_records(self._read, most, places):
            for start, end in self._spans(some.positions):
                rows = some.rows.slice(start, end - start)
                yield self._join(RowRecords(rows, self._records, some.positions[start:end]), few=few)

    def rows(self, places: Sequence[int]) -> pa.RecordBatch:
        """Return the rows at these places of the table, in this order."""
        wanted, back = np.unique(np.asarray(places, np.int64), return_inverse=True)
        found = list(self.batches(None, wanted.tolist()))
        table = pa.Table.from_batches(found, self.schema).take(back).combine_chunks()
        return pa.RecordBatch.from_arrays([_whole(column) for column in table.columns], schema=self.schema)

    def with_records(
        self, columns: Sequence[str], batch_rows: int, places: Sequence[int] | None = None
    ) -> Iterator[RowRecords]:
        """Yield some columns of the table with the record of each row, without reading any record."""
        ours = [ROW_ID, BASE_KEY, TAKE, PROBLEM]
        with (
            reading(self._folder, self._entry.file),
            pq.ParquetFile(self._folder.source(self._entry.file)) as file,
        ):
            for batch in _table_batches(file, [*columns, *ours], batch_rows, places):
                takes = np.nan_to_num(batch.column(TAKE).to_numpy(zero_copy_only=False)).astype(np.int64)
                positions = self._records.index.represent(batch.column(BASE_KEY), takes)
                yield RowRecords(batch, self._records, positions)

    def _spans(self, positions: Numbers) -> Iterator[tuple[int, int]]:
        start = held = 0
        if self.has_audio:
            for place, size in enumerate(self._records.audio_bytes(positions).tolist()):
                if held and held + size > BATCH_BYTES:
                    yield start, place
                    start, held = place, 0
                held += size
        yield start, len(positions)

    def _join(self, some: RowRecords, *, few: bool) -> pa.RecordBatch:  # noqa: C901 - a case a column
        rows = some.rows
        computed = {OUR_ROW_ID, WORDS_BASIS, "status", "request_key"}
        names = [name for name in self._records.schema.names if name in self._wanted - computed]
        if WORDS_BASIS in self._wanted and WORDS not in names:
            names.append(WORDS)
        found = self._records.take(some.positions, names, few=few) if names else None
        columns = []
        theirs = iter(self._read)
        for ours in self._columns:
            if ours is None:
                columns.append(rows.column(next(theirs)))
            elif ours == OUR_ROW_ID:
                columns.append(rows.column(ROW_ID))
            elif ours == "status":
                columns.append(some.statuses())
            elif ours == "request_key":
                columns.append(self._keys(some))
            elif ours == WORDS and self._words is not None:
                columns.append(self._all_words(some, found))
            elif ours == "warnings" and self._words is not None:
                columns.append(self._all_warnings(some, found))
            elif ours == WORDS_BASIS:
                columns.append(self._words_basis(some, found))
            else:
                assert found is not None  # noqa: S101 - for the type
                column = _whole(found.column(ours))
                if ours == "error_message":
                    column = pc.coalesce(column, rows.column(PROBLEM))
                columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _keys(self, some: RowRecords) -> Any:
        """Return the key of each row's record; of a row without one the key of its first take."""
        has_record = some.positions >= 0
        keys = np.full(len(has_record), None, object)
        keys[has_record] = self._records.index.keys(some.positions[has_record])
        return pc.coalesce(pa.array(keys, pa.string()), some.rows.column(BASE_KEY))

    def _all_words(self, some: RowRecords, found: Any) -> Any:
        assert self._words is not None  # noqa: S101 - for the type
        told = _whole(found.column(WORDS))
        positions = self._words.index.find(self._keys(some))
        return pc.if_else(told.is_valid(), told, _whole(self._words.take(positions, [WORDS]).column(0)))

    def _all_warnings(self, some: RowRecords, found: Any) -> Any:
        """Return the warnings of each row, and that no words were found where they were looked for."""
        assert self._words is not None  # noqa: S101 - for the type
        positions = self._words.index.find(self._keys(some))
        looked_for = _whole(self._words.take(positions, [WORDS]).column(0))
        lengths: Any = pc.fill_null(pc.list_value_length(looked_for), -1)
        warnings = _whole(found.column("warnings")).to_pylist()
        for place in np.flatnonzero(lengths.to_numpy() == 0):
            warnings[place] = [*(warnings[place] or ()), NO_WORDS]
        return pa.array(warnings, found.column("warnings").type)

    def _words_basis(self, some: RowRecords, found: Any) -> Any:
        told, all_words = (
            _has_words(_whole(found.column(WORDS))),
            _has_words(self._all_words(some, found)),
        )
        aligned = pc.if_else(all_words, "aligned", pa.scalar(None, pa.string()))
        return pc.if_else(told, "service", aligned)


def table_schema(folder: Folder, entry: TableEntry) -> pa.Schema:
    """Return the columns of the file that holds a table."""
    with reading(folder, entry.file), pq.ParquetFile(folder.source(entry.file)) as file:
        return file.schema_arrow


def beside(theirs: "set[str] | Sequence[str]", entry: TableEntry, name: str) -> str:
    """Return what our column `name` is called beside the caller's columns."""
    name = entry.name_of(name)
    while name in theirs:
        name = f"speech_{name}"
    return name


def _table_batches(
    file: pq.ParquetFile, columns: Sequence[str], batch_rows: int, places: Sequence[int] | None
) -> Iterator[pa.RecordBatch]:
    if places is None:
        yield from file.iter_batches(batch_rows, columns=list(columns))
        return
    wanted, start = np.asarray(places, np.int64), 0
    for group in range(file.metadata.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        here = wanted[np.searchsorted(wanted, start) : np.searchsorted(wanted, end)] - start
        if len(here):
            table = file.read_row_group(group, columns=list(columns)).take(here).combine_chunks()
            yield from table.to_batches(batch_rows)
        start = end


def _has_words(lists: Any) -> Any:
    lengths: Any = pc.fill_null(pc.list_value_length(lists), 0)
    return pc.greater(lengths, pa.scalar(0, lengths.type))


def _whole(column: "pa.ChunkedArray[Any]") -> Any:
    # Batches are far below the 2 GB above which this would be several arrays.
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
