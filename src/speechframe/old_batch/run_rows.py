"""The rows of a run, as its folder has them: as tables, by batches, as clips, and what people say of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.errors import StoreError
from speechframe.old_batch.clip import Clip
from speechframe.old_batch.naming import ROW_ID
from speechframe.old_batch.outcome import HEARD, INVALID, PENDING
from speechframe.old_batch.reviews import reviews_of, write_reviews
from speechframe.old_batch.selection import framed
from speechframe.old_batch.table import TableInput
from speechframe.old_store import RunFolder, is_remote, shown
from speechframe.old_store.parts import part_files
from speechframe.old_store.reviews import Review
from speechframe.old_store.schema import AUDIO_COLUMN, BOOKKEEPING
from speechframe.old_store.table import open_table, rows_of
from speechframe.old_store.writer import user_name
from speechframe.spec.speech import Format

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.dataset as ds

    from speechframe.old_store.manifest import TableEntry

__all__ = ["MOST_AUDIO_BYTES", "RunRows"]

MOST_AUDIO_BYTES = 2 * 2**30
"""Audio that :meth:`Run.to_pandas` takes into memory at most."""


class RunRows:
    """What a :class:`Run` holds, whether it goes on or is over."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        # Of the newest table, from the first row that is asked for by its id: else each such row reads all.
        self._ids: tuple[TableEntry, pa.ChunkedArray[Any]] | None = None

    @property
    def place(self) -> str:
        """The run's folder as people would type it in the folder they are in."""
        return shown(self.path)

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._folder.path

    @property
    def columns(self) -> list[str]:
        """The columns of the run's rows: the caller's and ours, audio among them."""
        return list(self._folder.joined_schema(audio=True).names)

    def name_of(self, column: str) -> str:
        """Return what a column of ours is called in this run: ``speech_...`` where the table has its name."""
        tables = self._folder.tables()
        return tables[-1].name_of(column) if tables else column

    def batches(
        self, columns: Sequence[str] | None = None, *, audio: bool = True, batch_rows: int | None = None
    ) -> "Iterator[pa.RecordBatch]":
        """Yield the rows in the table's order, our columns beside the caller's, in bounded memory.

        Parameters
        ----------
        columns
            Names in the result; None for all.
        audio
            With the column of audio, when `columns` is None.
        batch_rows
            Rows a batch at most.
        """
        return self._folder.joined(columns, audio=audio, batch_rows=batch_rows)

    def rows_at(self, places: Sequence[int], columns: Sequence[str] | None = None) -> "pa.RecordBatch":
        """Return some rows without their audio, reading little else: for pages of a long table.

        Parameters
        ----------
        places
            Where they lie in the run's table, counted from 0; the result has their order.
        columns
            Names in the result; None for all.
        """
        return self._folder.rows_at(places, columns)

    def newest(self, count: int) -> list[str]:
        """Return the ``request_key`` of the calls whose audio came last, the newest first."""
        return self._folder.newest(count)

    def to_arrow(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> "pa.Table":
        """Return the rows as one Arrow table; see :meth:`to_pandas`."""
        return self._arrow(columns, audio=audio)

    def _arrow(
        self, columns: Sequence[str] | None, *, audio: bool, places: Sequence[int] | None = None
    ) -> "pa.Table":
        import pyarrow as pa

        schema = self._folder.joined_schema(columns, audio=audio)
        batches = self._folder.joined(columns, audio=audio, places=places)
        if self.name_of(AUDIO_COLUMN) in schema.names:
            batches = _limited(batches, self.name_of(AUDIO_COLUMN))
        return pa.Table.from_batches(batches, schema)

    def to_pandas(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> "pd.DataFrame":
        """Return the rows as a DataFrame with the caller's index.

        Parameters
        ----------
        columns
            Names in the result, beside the index; None for all but audio.
        audio
            With the column ``audio`` (dicts of ``bytes`` and ``path``).

        Raises
        ------
        StoreError
            When that is more than 2 GB of audio: use :meth:`batches`.
        """
        return self.to_arrow(self._with_index(columns), audio=audio).to_pandas()

    def _with_index(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        """Return columns with those that pandas makes the index of: a frame without it names other rows."""
        if columns is None or isinstance(columns, str):
            return columns
        named_by = (self._folder.joined_schema().pandas_metadata or {}).get("index_columns", ())
        return list(dict.fromkeys([*columns, *(level for level in named_by if isinstance(level, str))]))

    def as_rows(self, named: Iterable[str] = (), *, batch_rows: int | None = None) -> TableInput:
        """Return the rows as the table of another run: what came of them, not how.

        These are the caller's columns and what the verb made of them (``translated_text``, ``locale`` and so
        on). A row without an answer is there all the same.

        Parameters
        ----------
        named
            Columns to have as well: audio, or status, price and the like, which are of this run alone.
        batch_rows
            Rows a batch at most.
        """
        return self._as_rows(named, batch_rows, None)

    def _as_rows(
        self, named: Iterable[str], batch_rows: int | None, places: Sequence[int] | None
    ) -> TableInput:
        import pyarrow as pa

        wanted = {*named}
        own = {self.name_of(name) for name in (*BOOKKEEPING, AUDIO_COLUMN)} - wanted
        whole = self._folder.joined_schema(audio=True)
        names = [name for name in whole.names if name not in own]
        kept = pa.schema([whole.field(name) for name in names]).with_metadata(
            self._folder.joined_schema(names).metadata
        )
        batches = self._folder.joined(names, batch_rows=batch_rows, places=places)
        return TableInput(kept, batches, row_ids=self._values(ROW_ID, places), is_run=True)

    def _values(self, column: str, places: Sequence[int] | None = None) -> list[str]:
        batches = self._folder.joined([self.name_of(column)], places=places)
        return [str(value) for batch in batches for value in batch.column(0).to_pylist()]

    @property
    def dataset(self) -> "ds.Dataset":
        """The finished calls as a pyarrow dataset over the part files."""
        from pyarrow import dataset

        files: list[Any] = self.part_files
        if is_remote(self.path):
            remote: Any = self.path
            there: ds.Dataset = dataset.dataset(
                [file.path for file in files], format="parquet", filesystem=remote.fs
            )
            return there
        return dataset.dataset([str(file) for file in files], format="parquet")

    @property
    def part_files(self) -> list[Path]:
        """The Parquet files of finished calls, for tools that read files."""
        return part_files(self.path)

    def clip(self, row_id: str | int) -> Clip:
        """Return one row's clip.

        Parameters
        ----------
        row_id
            The row's id: its value in the ``id`` column, or of the index.

        Raises
        ------
        KeyError
            When no row has this id, or the row has no audio; says which.
        """
        key, status = self._find(str(row_id))
        found = self._folder.row(key) if key is not None else None
        if (clip := _clip_of(found)) is None:
            raise KeyError(f"row {row_id!r} has no audio: it is {found['status'] if found else status}")
        return clip

    def clip_of_call(self, request_key: str) -> Clip:
        """Return the clip of a call: of every row whose ``request_key`` this is.

        Raises
        ------
        KeyError
            When there is no such call, or it has no audio.
        """
        if (clip := _clip_of(self._folder.row(request_key))) is None:
            raise KeyError(f"the call {request_key!r} has no audio")
        return clip

    def _find(self, row_id: str) -> tuple[str | None, str]:
        import pyarrow.compute as pc

        folder, entry = self._folder, self._folder.tables()[-1]
        with open_table(folder.path, entry) as file:
            if self._ids is None or self._ids[0] != entry:
                self._ids = entry, file.read([entry.name_of(ROW_ID)]).column(0)
            at = pc.index(self._ids[1], row_id).as_py()
            if at >= 0:
                key = rows_of(file, [entry.name_of("request_key")], [at]).column(0)[0].as_py()
                return key, PENDING if key else INVALID
        raise KeyError(f"no row has the id {row_id!r}; {self._ids_in_words()}")

    def _ids_in_words(self) -> str:
        entry = self._folder.tables()[-1]
        with self._folder.table() as file:
            name = entry.name_of(ROW_ID)
            first = next(file.iter_batches(3, columns=[name]), None)
        examples = ", ".join(map(repr, first.column(0).to_pylist())) if first is not None else "none"
        where = f"the column {entry.id_column!r}" if entry.id_column else "the table's index"
        return f"ids are the values of {where}, such as {examples}"

    @property
    def failed(self) -> "pd.DataFrame":
        """The rows without audio that were sent or refused: their ids, status and errors.

        A suspect row has audio: ``frame[frame["status"] == "suspect"]``.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        others, name = pa.array([*HEARD, PENDING]), self.name_of("status")
        found, places, start = [], [], 0
        for batch in self._folder.joined():
            mask = pc.invert(pc.is_in(batch.column(name), value_set=others))
            found.append(batch.filter(mask))
            places.extend((start + np.flatnonzero(mask.to_numpy(zero_copy_only=False))).tolist())
            start += batch.num_rows
        return framed(pa.Table.from_batches(found, self._folder.joined_schema()), places)

    @property
    def ledger(self) -> "pd.DataFrame":
        """Every attempt and what it cost, by time; never text."""
        return self._folder.ledger().to_pandas()

    @property
    def reviews(self) -> "pd.DataFrame":
        """What people said of the rows in :func:`speechframe.browse`: the last word on each, one line a row.

        Columns: ``row_id``, ``verdict`` (``keep``, ``reject`` or None), ``comment``, ``corrected_text``,
        ``reviewer``, ``reviewed_at``, ``sha256`` of the audio the verdict is of, and ``is_current``: whether
        the row still has that audio. All that was ever said stands in ``reviews.parquet`` of the folder.
        """
        return reviews_of(self._folder)

    def review(
        self,
        row_id: str | int,
        verdict: str | None = None,
        *,
        comment: str | None = None,
        corrected_text: str | None = None,
        sha256: str | None = None,
        reviewer: str | None = None,
    ) -> None:
        """Write down what somebody says of a row; it is on the disk when this returns.

        Parameters
        ----------
        row_id
            The row.
        verdict
            ``keep``, ``reject``, or ``""``, which takes it back.
        comment, corrected_text
            Words; ``""`` takes them back.
        sha256
            Of the audio that was heard; by default of what the row has now.
        reviewer
            Who says it; by default who runs this process.

        Raises
        ------
        InvalidRows
            For another verdict.
        KeyError
            When no row has the id.
        StoreError
            When the folder cannot be written.

        Examples
        --------
        >>> run = open_run("runs/demo")  # doctest: +SKIP
        >>> run.review("17", "reject", comment="the name is wrong")  # doctest: +SKIP
        >>> resume(run, redo="rejected")  # doctest: +SKIP
        """
        if sha256 is None:
            key, _ = self._find(str(row_id))
            found = self._folder.row(key, ["sha256"]) if key is not None else None
            sha256 = found["sha256"] if found is not None else None
        who = user_name() if reviewer is None else reviewer
        write_reviews(self._folder, Review(str(row_id), verdict, comment, corrected_text, sha256, who))


def _clip_of(found: Mapping[str, Any] | None) -> Clip | None:
    audio = (found or {}).get("audio")
    if found is None or not audio or audio["bytes"] is None:
        return None
    return Clip(
        audio=audio["bytes"],
        format=Format(found["format"]),
        sample_rate=found["sample_rate"],
        channels=found["channels"] or 1,
        text=found["text"] or "",
        words=tuple((w["word"], w["start_ms"], w["end_ms"]) for w in found["word_durations"] or ()),
        voice_id=found["voice_id"],
        credits=found["credits"] or 0.0,
        warnings=tuple(found["warnings"] or ()),
    )


def _limited(batches: "Iterator[pa.RecordBatch]", audio: str) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of one frame as long as their audio is not too much for it."""
    # Counted on the way: rows with equal calls share one answer on disk, and have one each in a frame.
    size = 0
    for batch in batches:
        size += batch.column(audio).nbytes
        if size > MOST_AUDIO_BYTES:
            raise StoreError(
                f"these rows hold more than {MOST_AUDIO_BYTES / 2**30:.0f} GB of audio, too much for one "
                "frame: read them with batches(), or leave audio out"
            )
        yield batch
