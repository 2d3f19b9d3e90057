"""Read the rows of a run with their results, in the order of its table and with limited memory."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store.folder import convert_read_errors
from speechframe.store.records import compute_take_keys, convert_to_hex, find_group_starts, group_rows
from speechframe.store.schema import (
    AUDIO_COLUMN,
    BASE_KEY,
    BOOKKEEPING_COLUMNS,
    CACHED,
    COLUMN_PREFIX,
    DONE,
    ENDED,
    PROBLEM,
    ROW_ID,
    TAKE,
    WORDS_COLUMN,
    find_row_columns,
)
from speechframe.writing.words import format_count

if TYPE_CHECKING:
    import pandas as pd

MAX_BATCH_ROWS, MAX_AUDIO_BATCH_ROWS, FIRST_AUDIO_ROWS, AUDIO_BATCH_BYTES = 4096, 64, 8, 32 << 20
"""Largest number of rows of a batch without and with audio, number of rows of the first batch with audio, and
intended size of later batches with audio in bytes."""
MAX_FRAME_AUDIO_BYTES = 2 << 30
"""Largest amount of audio in bytes that :meth:`Rows.to_pandas` reads into memory."""

LAST_KEPT = COLUMN_PREFIX + "last_kept"
"""Row column with the key of the last audio that a review kept."""
ROW_ID_COLUMN, WORDS_BASIS_COLUMN = "row_id", "words_basis"
"""Columns that readers get but that no file contains: the id of a row, and the source of its words."""
NO_WORDS_WARNING = "no words were found in the audio"
"""Warning for audio in which alignment found no words."""


class Joined:
    """Reader of some rows and columns of a run: its table, joined to the results of its calls.

    `places` are the positions of the rows in the table in ascending order, or None for all rows.
    """

    def __init__(
        self, run: Any, columns: Sequence[str] | None, *, audio: bool, places: Sequence[int] | None
    ) -> None:
        if not run.manifest.tables:
            raise StoreError(f"{run.path}: the run has no table yet; pass a table to the verb that made it")
        entry, self._snapshot = run.manifest.table, run.snapshot()
        self.file, self.places = entry.file, places
        table, kept, has_words = run.read_table_schema(), run.record_schema, bool(self._snapshot.words_files)
        fields = {f.name: f for f in table if not f.name.startswith(COLUMN_PREFIX)}
        self._ours: dict[str, str] = {}
        basis = [pa.field(WORDS_BASIS_COLUMN, pa.string())] if has_words else []
        shown = [name for name in find_row_columns(table.names) if not name.startswith(COLUMN_PREFIX + "_")]
        own = [table.field(name).with_name(name.removeprefix(COLUMN_PREFIX)) for name in shown]
        self._row_columns = {f.name for f in own}
        own = [f for f in own if f.name not in kept.names]
        for f in [pa.field(ROW_ID_COLUMN, pa.string()), *own, *kept, *basis]:
            name = entry.names.get(f.name, f.name)
            while name in fields:
                name = f"speech_{name}"
            self._ours[name], fields[name] = f.name, f.with_name(name)
        if columns is None:
            hidden = {*entry.hidden} if audio else {*entry.hidden, AUDIO_COLUMN}
            columns = [name for name in fields if self._ours.get(name) not in hidden]
        if unknown := [name for name in columns if name not in fields]:
            raise StoreError(f"{run.path}: the run has no column {unknown[0]!r}; it has {', '.join(fields)}")
        wanted = {self._ours.get(name) for name in columns}
        self.has_audio = AUDIO_COLUMN in wanted
        if has_words and wanted & {WORDS_COLUMN, "warnings", WORDS_BASIS_COLUMN}:
            wanted |= {WORDS_COLUMN, "warnings", "request_key"}
        self._wanted = wanted
        has_kept = LAST_KEPT in table.names
        self._kept_columns = [LAST_KEPT] if run.shows_last_kept and has_kept else []
        self._read = pa.schema([f for f in kept if f.name in wanted - {"status", "request_key"}])
        metadata: dict[Any, Any] = dict(table.metadata or {})
        if self.has_audio:
            features = {"info": {"features": {self.name_of(AUDIO_COLUMN): {"_type": "Audio"}}}}
            metadata[b"huggingface"] = json.dumps(features).encode()
        self.schema = pa.schema([fields[name] for name in columns], metadata)

    def name_of(self, column: str) -> str:
        """Return the name that a column of speechframe has beside the caller's columns."""
        return next((name for name, ours in self._ours.items() if ours == column), column)

    def batches(self, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most `batch_rows`."""
        most = batch_rows or (MAX_AUDIO_BATCH_ROWS if self.has_audio else MAX_BATCH_ROWS)
        step = FIRST_AUDIO_ROWS if self.has_audio else most
        folder = self._snapshot.folder
        caller_columns = [name for name in self.schema.names if name not in self._ours]
        own_columns = [COLUMN_PREFIX + name for name in sorted(self._row_columns & self._wanted)]
        ours = dict.fromkeys([*own_columns, *self._kept_columns, ROW_ID, BASE_KEY, TAKE, ENDED, PROBLEM])
        columns = [*caller_columns, *ours]
        with convert_read_errors(folder, self.file), pq.ParquetFile(folder.get_source(self.file)) as file:
            for rows in self._read_table_rows(file, columns, most):
                start = 0
                while start < rows.num_rows:
                    yield (batch := self._join_batch(rows.slice(start, step)))
                    start += step
                    if self.has_audio:
                        # Aim at `AUDIO_BATCH_BYTES`, as if the next rows were as large as these.
                        step = max(1, AUDIO_BATCH_BYTES * batch.num_rows // max(1, batch.nbytes))

    def _read_table_rows(
        self, file: pq.ParquetFile, columns: list[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        if self.places is None:
            yield from file.iter_batches(batch_rows, columns=columns)
            return
        for group, inside, _ in group_rows(find_group_starts(file), np.asarray(self.places, np.int64)):
            table = file.read_row_group(group, columns=columns).take(inside).combine_chunks()
            yield from table.to_batches(batch_rows)

    def _join_batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        index, base_keys = self._snapshot.index, rows.column(BASE_KEY)
        takes = rows.column(TAKE).fill_null(0).to_numpy().astype(np.int64)
        positions = self._snapshot.find_shown_records(base_keys, takes)
        ended = rows.column(ENDED)
        for name in self._kept_columns:
            kept = index.find(rows.column(name))
            is_shown = (kept >= 0) & ~index.have_status(positions, {DONE, CACHED})
            positions = np.where(is_shown, kept, positions)
            ended = pc.if_else(pa.array(is_shown), None, ended)
        statuses = pc.coalesce(ended, index.get_statuses(positions))
        ours: dict[str, Any] = {ROW_ID_COLUMN: rows.column(ROW_ID), "status": statuses}
        if "request_key" in self._wanted:
            keys: Any = pa.array(convert_to_hex(index.keys[positions]), pa.string(), mask=positions < 0)
            ours["request_key"] = pc.coalesce(keys, compute_take_keys(base_keys, takes))
        if self._read.names:
            found = self._snapshot.read_records(positions, self._read)
            for name, column in zip(self._read.names, found.columns, strict=True):
                # A batch is far below 2 GB, so `combine_chunks` returns one array.
                ours[name] = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for name in self._row_columns & self._wanted:
            values = rows.column(COLUMN_PREFIX + name)
            ours[name] = pc.coalesce(ours[name], values) if name in ours else values
        if "error_message" in ours:
            ours["error_message"] = pc.coalesce(ours["error_message"], rows.column(PROBLEM))
        if WORDS_COLUMN in ours and self._snapshot.words_files:
            _add_words(ours, self._snapshot.get_aligned_words(ours["request_key"]))
        names = self.schema.names
        columns = [ours[self._ours[n]] if n in self._ours else rows.column(n) for n in names]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _add_words(ours: dict[str, Any], found: Any) -> None:
    """Add the words that alignment found (`found`), their source, and a warning if there are no words."""
    service_words = ours[WORDS_COLUMN]
    ours[WORDS_COLUMN] = pc.if_else(service_words.is_valid(), service_words, found)
    counts = [pc.fill_null(pc.list_value_length(words), -1).to_numpy() for words in (service_words, found)]
    basis = np.select([counts[0] > 0, counts[1] > 0], ["service", "aligned"], "")
    ours[WORDS_BASIS_COLUMN] = pa.array(basis, pa.string(), mask=basis == "")
    warnings = ours["warnings"].to_pylist()
    for position in np.flatnonzero(counts[1] == 0):
        warnings[position] = [*(warnings[position] or ()), NO_WORDS_WARNING]
    ours["warnings"] = pa.array(warnings, ours["warnings"].type)


class Rows(ABC):
    """Base of the readers of a run's rows: of all rows (a run), or of some rows (a selection)."""

    @abstractmethod
    def join_records(self, columns: Sequence[str] | None, *, audio: bool) -> Joined:
        """Return a reader of the rows, each with the current result of its call."""

    def batches(
        self, columns: Sequence[str] | None = None, *, audio: bool = True, batch_rows: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the table's order, with limited memory.

        The columns are those of the caller's table and those of speechframe.

        Parameters
        ----------
        columns
            Names of columns in the result. None for all columns.
        audio
            True includes the audio column if `columns` is None.
        batch_rows
            Largest number of rows in a batch.
        """
        return self.join_records(columns, audio=audio).batches(batch_rows)

    def to_arrow(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> pa.Table:
        """Return the rows as one Arrow table, like :meth:`to_pandas`."""
        joined = self.join_records(columns, audio=audio)
        size, batches = 0, []
        for batch in joined.batches():
            # Rows with equal calls share one answer on disk, but in a frame each row has a copy of the audio.
            size += batch.nbytes if joined.has_audio else 0
            if size > MAX_FRAME_AUDIO_BYTES:
                raise StoreError(
                    f"these rows have more than {MAX_FRAME_AUDIO_BYTES >> 30} GB of audio, too much for one "
                    "frame: read them with batches(), or leave audio out"
                )
            batches.append(batch)
        return pa.Table.from_batches(batches, joined.schema)

    def to_pandas(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> "pd.DataFrame":
        """Return the rows as a DataFrame with the caller's index.

        Parameters
        ----------
        columns
            Names of columns in the result, beside the index. None for all columns without audio.
        audio
            True includes the column ``audio`` (dicts of ``bytes`` and ``path``).

        Raises
        ------
        StoreError
            If the rows contain more than 2 GB of audio. Use :meth:`batches` instead.
        """
        import pandas as pd

        joined = self.join_records(columns, audio=audio)
        metadata: Any = joined.schema.pandas_metadata or {}
        levels = metadata.get("index_columns") or [{"start": 0, "step": 1}]
        if columns is not None:
            columns = list(dict.fromkeys([*columns, *(name for name in levels if isinstance(name, str))]))
        table = self.to_arrow(columns, audio=audio)
        frame: pd.DataFrame = table.to_pandas()
        kinds = {c["field_name"]: c["numpy_type"] for c in metadata.get("columns", ())}
        for name in frame.columns.intersection(table.column_names):
            is_object = kinds.get(name) == "object" and frame[name].dtype.kind in "fiu"
            if is_object or pa.types.is_nested(table.schema.field(name).type):
                # Build the column from Python values. Otherwise pandas converts a 1 in a list or beside None
                # to 1.0.
                frame[name] = pd.Series(table[name].to_pylist(), index=frame.index, dtype=object)
        if joined.places is not None and isinstance(levels[0], dict):
            # The caller's index is a range, so no column contains it. Arrow would number only the selected
            # rows.
            places = np.asarray(joined.places, np.int64)
            frame.index = pd.Index(levels[0]["start"] + levels[0]["step"] * places)
        return frame

    def as_batches(
        self, named: Iterable[str] = (), batch_rows: int | None = None
    ) -> tuple[pa.Schema, Iterator[tuple[pa.RecordBatch, list[Any]]]]:
        """Return the rows as the table of another run: a schema, and batches with the ids of their rows.

        Audio, status, credits and other columns about the calls are included only if `named` contains them.
        """
        whole = self.join_records(None, audio=True)
        own = {whole.name_of(name) for name in (*BOOKKEEPING_COLUMNS, AUDIO_COLUMN, ROW_ID_COLUMN)} - {*named}
        names = [name for name in whole.schema.names if name not in own]
        row_id = whole.name_of(ROW_ID_COLUMN)
        schema = self.join_records(names, audio=True).schema
        if whole.places is not None:
            schema = schema.remove_metadata()  # it describes a range as the index, which now has gaps

        def iterate_batches() -> Iterator[tuple[pa.RecordBatch, list[Any]]]:
            for batch in self.batches(list(dict.fromkeys([*names, row_id])), batch_rows=batch_rows):
                columns = [batch.column(name) for name in names]
                yield pa.RecordBatch.from_arrays(columns, schema=schema), batch.column(row_id).to_pylist()

        return schema, iterate_batches()


class Selection(Rows):
    """Some rows of a run, in the run's order. :meth:`Run.select` and :meth:`Run.sample` return selections."""

    def __init__(self, run: Any, positions: Sequence[int]) -> None:
        self.run, self.positions = run, tuple(positions)  # positions in the table, ascending

    def __len__(self) -> int:
        return len(self.positions)

    def __repr__(self) -> str:
        return f"<{format_count(len(self), 'row')} of {self.run!r}>"

    def clip(self, row_id: str | int) -> Any:
        """Return one row's clip, like :meth:`Run.clip`."""
        return self.run.clip(row_id)

    def join_records(self, columns: Sequence[str] | None, *, audio: bool) -> Joined:
        """Return a reader of these rows, each with the current result of its call."""
        return Joined(self.run, columns, audio=audio, places=self.positions)
