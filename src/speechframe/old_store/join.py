"""The caller's table with our columns beside it, in the caller's order and in bounded memory."""

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import StoreError
from speechframe.old_store.aligned import WORDS, AlignedWords
from speechframe.old_store.index import KeyIndex
from speechframe.old_store.manifest import TableEntry
from speechframe.old_store.schema import AUDIO_COLUMN, CallStatus
from speechframe.old_store.sources import Source
from speechframe.old_store.table import PROBLEM, REQUEST_KEY, TARGET, batches_of, open_table, rows_of

CACHE_BYTES = 64 * 2**20
"""Row groups kept because the next rows are likely to lie in them too."""

BATCH_BYTES = 32 * 2**20
"""Audio in one batch, about."""

WORDS_BASIS = "words_basis"
"""Who said when words are heard: the service, or a recogniser that listened afterwards."""

_OPEN_FILES = 16
_GROUP_BITS = 32

Numbers = npt.NDArray[np.int64]


class Joiner:
    """Joins a run's table to its parts.

    Parameters
    ----------
    folder
        The run folder.
    entry
        The table.
    index
        Where records lie.
    schema
        The columns of the run's parts.
    columns
        Names in the result; None for all but the hidden ones.
    audio
        With the column of audio, if `columns` is None.
    cache_bytes
        See :data:`CACHE_BYTES`.
    aligned
        Words that were found in the audio, for calls of which the service told none; there is then a column
        ``words_basis`` as well: ``service``, ``aligned``, or null for no words.
    few
        Only some rows are asked for: read their row groups, not whole files.
    """

    def __init__(
        self,
        folder: Path,
        entry: TableEntry,
        index: KeyIndex,
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        audio: bool = False,
        cache_bytes: int = CACHE_BYTES,
        aligned: AlignedWords | None = None,
        few: bool = False,
    ) -> None:
        self._folder, self._entry, self._index, self._aligned = folder, entry, index, aligned
        with open_table(folder, entry) as file:
            theirs = file.schema_arrow
        self._key_name = entry.name_of(REQUEST_KEY)
        problem_name = entry.name_of(PROBLEM)
        self._problem_name = problem_name if problem_name in theirs.names else None
        self._target_name = TARGET if TARGET in theirs.names else None
        ours = {entry.name_of(f.name): f for f in schema if f.name != REQUEST_KEY}
        if aligned is not None:
            ours[_beside(theirs.names, WORDS_BASIS)] = pa.field(WORDS_BASIS, pa.string())
        available = {**{f.name: f for f in theirs}, **{name: f.with_name(name) for name, f in ours.items()}}
        wanted = self._default_names(theirs, ours, audio=audio) if columns is None else list(columns)
        if isinstance(columns, str):
            raise StoreError(f"columns={columns!r} is text: give a list of names, [{columns!r}]")
        unknown = [name for name in wanted if name not in available]
        if unknown:
            raise StoreError(f"{folder}: the run has no column {unknown[0]!r}; it has {', '.join(available)}")
        self._ours = {name: ours[name].name for name in wanted if name in ours}
        self._theirs = [name for name in wanted if name not in ours]
        self._with_audio = AUDIO_COLUMN in self._ours.values()
        self.schema = pa.schema([available[name] for name in wanted], metadata=self._metadata(theirs))
        needed = {*self._ours.values(), "status", *((WORDS,) if WORDS_BASIS in self._ours.values() else ())}
        read = [f for f in schema if f.name in needed]
        self._groups = _Groups(index, read, cache_bytes, whole_files=not self._with_audio and not few)

    def _default_names(
        self, theirs: pa.Schema, ours: "dict[str, pa.Field[Any]]", *, audio: bool
    ) -> list[str]:
        left_out = {*self._entry.hidden, self._problem_name, self._key_name}
        mine = [
            name for name, f in ours.items() if name not in left_out and (audio or f.name != AUDIO_COLUMN)
        ]
        return [*(name for name in theirs.names if name not in left_out), *mine, self._key_name]

    def _metadata(self, theirs: pa.Schema) -> dict[bytes | str, bytes | str]:
        metadata: dict[Any, Any] = {}
        metadata.update(theirs.metadata or {})
        if self._with_audio:
            features = {
                name: {"_type": "Audio"} for name, column in self._ours.items() if column == AUDIO_COLUMN
            }
            metadata[b"huggingface"] = json.dumps({"info": {"features": features}}).encode()
        return metadata

    def batches(self, batch_rows: int, places: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the table's rows in its order, at most `batch_rows` at a time; those at `places` only."""
        with open_table(self._folder, self._entry) as file, self._groups:
            if places is None:
                read = file.iter_batches(batch_size=batch_rows, columns=self._read())
            else:
                read = batches_of(file, self._read(), places, batch_rows)
            for rows in read:
                positions = self._index.find(rows.column(self._key_name))
                for start, end in self._spans(positions):
                    yield self._join(rows.slice(start, end - start), positions[start:end])

    def rows(self, places: Sequence[int]) -> pa.RecordBatch:
        """Return the rows at these places of the table, in this order; reads their row groups only."""
        with open_table(self._folder, self._entry) as file, self._groups:
            found = rows_of(file, self._read(), places)
            rows = pa.RecordBatch.from_arrays([*map(_whole, found.columns)], schema=found.schema)
            return self._join(rows, self._index.find(rows.column(self._key_name)))

    def _read(self) -> list[str]:
        """Return the columns of the table that are needed."""
        stand_ins = [name for name in (self._problem_name, self._target_name) if name is not None]
        return list(dict.fromkeys([*self._theirs, self._key_name, *stand_ins]))

    def _spans(self, positions: Numbers) -> Iterator[tuple[int, int]]:
        if not self._with_audio:
            yield 0, len(positions)
            return
        sizes = np.zeros(len(positions), np.int64)
        found = positions >= 0
        sizes[found] = self._groups.row_bytes(*self._index.place(positions[found]))
        start = held = 0
        for i, size in enumerate(sizes.tolist()):
            if held and held + size > BATCH_BYTES:
                yield start, i
                start, held = i, 0
            held += size
        yield start, len(positions)

    def _join(self, rows: pa.RecordBatch, positions: Numbers) -> pa.RecordBatch:
        # Of rows that are asked for nothing of ours, no part is read.
        mine = self._records(positions) if self._ours else self._groups.empty
        columns = []
        for f in self.schema:
            column = self._ours.get(f.name)
            if column is None:
                columns.append(rows.column(f.name))
            elif column == "status":
                columns.append(self._statuses(rows, mine))
            elif column == WORDS and self._aligned is not None:
                columns.append(self._words(rows, mine))
            elif column == WORDS_BASIS:
                columns.append(self._words_basis(rows, mine))
            elif column == "error_message" and self._problem_name:
                columns.append(_or_else(mine.column(column), rows.column(self._problem_name)))
            elif column == "locale" and self._target_name:
                columns.append(_or_else(mine.column(column), rows.column(self._target_name)))
            else:
                columns.append(_whole(mine.column(column)))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _statuses(self, rows: pa.RecordBatch, mine: pa.Table) -> "pa.Array[Any]":
        has_no_key = rows.column(self._key_name).is_null()
        waiting = pc.if_else(has_no_key, CallStatus.INVALID.value, CallStatus.PENDING.value)
        return pc.coalesce(_whole(mine.column("status")), waiting)

    def _words(self, rows: pa.RecordBatch, mine: pa.Table) -> "pa.Array[Any]":
        assert self._aligned is not None  # noqa: S101 - for the type
        own = _whole(mine.column(WORDS))
        if not own.null_count:
            return own
        aligned = self._aligned.take(rows.column(self._key_name))
        words: pa.Array[Any] = pc.if_else(own.is_valid(), own, aligned)
        return words

    def _words_basis(self, rows: pa.RecordBatch, mine: pa.Table) -> "pa.Array[Any]":
        told, found = _has_words(_whole(mine.column(WORDS))), _has_words(self._words(rows, mine))
        aligned = pc.if_else(found, "aligned", pa.scalar(None, pa.string()))
        basis: pa.Array[Any] = pc.if_else(told, "service", aligned)
        return basis

    def _records(self, positions: Numbers) -> pa.Table:
        found = np.flatnonzero(positions >= 0)
        file_numbers, rows = self._index.place(positions[found])
        groups, starts = self._groups.groups_of(file_numbers, rows)
        # One number for file and group: numpy sorts numbers thirty times faster than pairs.
        units, unit_of = np.unique(file_numbers << _GROUP_BITS | groups, return_inverse=True)
        pieces, order = [self._groups.empty], np.full(len(positions), -1, np.int64)
        taken = 0
        for number, unit in enumerate(units.tolist()):
            here = np.flatnonzero(unit_of == number)
            group = self._groups.get(unit >> _GROUP_BITS, unit & (2**_GROUP_BITS - 1))
            pieces.append(group.take(rows[here] - starts[here]))
            order[found[here]] = np.arange(taken, taken + len(here))
            taken += len(here)
        return pa.concat_tables(pieces).take(pa.array(order, pa.int64(), mask=order < 0))


class _Groups:
    """Row groups of parts, kept up to a number of bytes.

    Without audio a whole file is one group: its other columns are small, and
    one read of them is cheaper than thirty.
    """

    def __init__(
        self, index: KeyIndex, columns: "list[pa.Field[Any]]", cache_bytes: int, *, whole_files: bool
    ) -> None:
        self._index, self._columns = index, [f.name for f in columns]
        self._cache_bytes, self._whole_files = cache_bytes, whole_files
        self._files: OrderedDict[int, Source] = OrderedDict()
        self._kept: OrderedDict[tuple[int, int], pa.Table] = OrderedDict()
        self._kept_bytes = 0
        self._starts: dict[int, Numbers] = {}
        self._row_bytes: dict[int, Numbers] = {}
        self.empty = pa.schema(columns).empty_table()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._files:
            self._close(*self._files.popitem())
        self._kept.clear()
        self._kept_bytes = 0

    def groups_of(self, file_numbers: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Return each row's group and the first row of that group."""
        groups, starts = np.zeros_like(rows), np.zeros_like(rows)
        if not self._whole_files:
            for number in np.unique(file_numbers).tolist():
                here = file_numbers == number
                first_rows = self._group_starts(number)
                groups[here] = np.searchsorted(first_rows, rows[here], side="right") - 1
                starts[here] = first_rows[groups[here]]
        return groups, starts

    def row_bytes(self, file_numbers: Numbers, rows: Numbers) -> Numbers:
        """Return about how many bytes of audio each row holds."""
        sizes = np.zeros_like(rows)
        groups, _ = self.groups_of(file_numbers, rows)
        for number in np.unique(file_numbers).tolist():
            here = file_numbers == number
            sizes[here] = self._row_bytes[number][groups[here]]
        return sizes

    def get(self, file_number: int, group: int) -> pa.Table:
        """Return a row group, from memory if it was read lately."""
        place = file_number, group
        if place in self._kept:
            self._kept.move_to_end(place)
            return self._kept[place]
        table = self._file(file_number).read(self._columns, None if self._whole_files else group)
        table = table.replace_schema_metadata(self.empty.schema.metadata)
        self._kept[place] = table
        self._kept_bytes += table.nbytes
        while self._kept_bytes > self._cache_bytes and len(self._kept) > 1:
            self._kept_bytes -= self._kept.popitem(last=False)[1].nbytes
        return table

    def _file(self, number: int) -> Source:
        if number in self._files:
            self._files.move_to_end(number)
            return self._files[number]
        self._files[number] = file = self._index.open(number)
        if len(self._files) > _OPEN_FILES:
            self._close(*self._files.popitem(last=False))
        return file

    def _close(self, number: int, file: Source) -> None:
        if not self._index.is_pinned(number):
            file.close()

    def _group_starts(self, number: int) -> Numbers:
        if number not in self._starts:
            counts, sizes = (np.array(column, np.int64) for column in self._file(number).groups())
            self._starts[number] = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
            self._row_bytes[number] = sizes // np.maximum(counts, 1)
        return self._starts[number]


def _has_words(lists: "pa.Array[Any]") -> "pa.Array[Any]":
    # A call that failed has an empty list.
    lengths: Any = pc.fill_null(pc.list_value_length(lists), 0)
    found: pa.Array[Any] = pc.greater(lengths, pa.scalar(0, lengths.type))
    return found


def _beside(theirs: Sequence[str], name: str) -> str:
    while name in theirs:
        name = f"speech_{name}"
    return name


def _or_else(column: "pa.ChunkedArray[Any]", stand_in: "pa.Array[Any]") -> "pa.Array[Any]":
    return pc.coalesce(_whole(column), stand_in.cast(pa.string()))


def _whole(column: "pa.ChunkedArray[Any]") -> "pa.Array[Any]":
    # combine_chunks() of a chunked array is one array: these columns are far below the 2 GB where it is not.
    return cast("pa.Array[Any]", column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
