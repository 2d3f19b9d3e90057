"""Reading a run folder: which calls have an outcome, their records, and the table they belong to."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.old_store import files, table
from speechframe.old_store import verify as verification
from speechframe.old_store.aligned import WORDS, AlignedWords, aligned_files
from speechframe.old_store.index import KeyIndex, read_keys
from speechframe.old_store.join import CACHE_BYTES, Joiner
from speechframe.old_store.locate import is_remote
from speechframe.old_store.look import Look, Looker, Standing
from speechframe.old_store.manifest import RunManifest, TableEntry, read_manifest
from speechframe.old_store.parts import GROUP_ROWS
from speechframe.old_store.schema import AUDIO_COLUMN, FINISHED, part_schema
from speechframe.old_store.tally import Origin
from speechframe.old_store.writer import host_name, user_name

ALIGNED_KEY = "aligned_by"
"""Where run.json says what found the words of the run, if anything did."""

_BATCH_ROWS = 4_096
_AUDIO_BATCH_ROWS = 64

_FEW = 2 * GROUP_ROWS
"""One row of so many is few: of more, most row groups have one, and whole parts are read faster."""


class RunReader:
    """A run on disk, for whoever reads it: no lock is needed, and all that is acknowledged is seen.

    Each call of :meth:`keys`, :meth:`index`, :meth:`row`, :meth:`joined` and
    :meth:`ledger` sees what is there at that moment, from any process: parts,
    and the logs of a writer at work or of one that died. What :meth:`joined`
    yields is all of one moment.

    Attributes
    ----------
    path
        The folder.
    manifest
        What run.json says.
    """

    def __init__(self, path: Path, manifest: RunManifest) -> None:
        self.path = path
        self.manifest = manifest
        self._looker = Looker(path)
        self._aligned: AlignedWords | None = None

    def refresh(self) -> RunManifest:
        """Read run.json again, which another process may have changed, and return it."""
        self.manifest = read_manifest(self.path)
        return self.manifest

    def tables(self) -> list[TableEntry]:
        """Return the tables handed to the run, the newest last."""
        return list(self.manifest.tables)

    def table(self) -> pq.ParquetFile:
        """Return the run's table, to be read by batches.

        Raises
        ------
        StoreError
            When the run has none, or it cannot be read.
        """
        return table.open_table(self.path, self._entry())

    def has_table(self) -> bool:
        """Return whether the run's table is there and readable: all of a local one, the end of a remote one.

        Raises
        ------
        StoreError
            When it may be there, but cannot be read now.
        """
        if not self.manifest.tables:
            return False
        entry = self._entry()
        try:
            if not is_remote(self.path):
                return table.count_rows(self.path, entry) == entry.rows
            # It was put there whole or not at all, and all of it may be a lot to fetch.
            with self.table() as file:
                return bool(file.metadata.num_rows == entry.rows)
        except table.TableLost:
            return False

    def _entry(self) -> TableEntry:
        if not self.manifest.tables:
            raise StoreError(f"{self.path}: the run was given no table yet")
        return self.manifest.tables[-1]

    def keys(self) -> dict[str, str]:
        """Return request_key to status of every call with an outcome; reads no other column.

        For very large runs :meth:`index` holds the same in an eighth of the memory.
        """
        look = self._look()
        found: dict[str, str] = {}
        if look.failed is not None:
            found.update(_pairs(look.failed.read(["request_key", "status"])))
        found.update(look.live)
        for keys in read_keys(look.parts):
            found.update(_pairs(keys))
        return found

    def index(self) -> KeyIndex:
        """Return where each call's record lies now: in a part, in ``failed.parquet`` or in a log."""
        return self._look().index

    def finished(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of every call with an answer, each once, in no order, a part or log at a time.

        Parameters
        ----------
        columns
            Of :attr:`schema`.
        """
        index = self.index()
        is_finished = index.with_status(np.arange(len(index)), FINISHED)
        for number in np.unique(index.columns.files[is_finished]).tolist():
            rows = index.columns.rows[is_finished & (index.columns.files == number)]
            source = index.open(number)
            try:
                yield source.read(columns).take(pa.array(rows))
            finally:
                if not index.is_pinned(number):
                    source.close()

    def _look(self) -> Look:
        with files.storing(self.path, "reading the run"):
            return self._looker.look()

    @property
    def schema(self) -> pa.Schema:
        """The columns of this run's parts."""
        return part_schema(self.manifest.operation)

    def row(self, request_key: str, columns: Sequence[str] | None = None) -> dict[str, Any] | None:
        """Return the record of one call as Python values, None if there is none; reads one row group.

        Parameters
        ----------
        request_key
            The call's content key.
        columns
            Of :attr:`schema`; None for all.
        """
        index = self.index()
        position = int(index.find([request_key])[0])
        if position < 0:
            return None
        (file_number,), (row,) = (numbers.tolist() for numbers in index.place(np.array([position])))
        source = index.open(file_number)
        try:
            found: dict[str, Any] = source.read_row(
                self.schema.names if columns is None else columns, row
            ).to_pylist()[0]
        finally:
            if not index.is_pinned(file_number):
                source.close()
        if WORDS in found and found[WORDS] is None and (aligned := self.aligned_words()) is not None:
            found[WORDS] = aligned.take([request_key]).to_pylist()[0]
        return found

    def aligned_words(self) -> AlignedWords | None:
        """Return the words that were found in the audio; None for a run whose words nobody looked for."""
        if not self.manifest.extra.get(ALIGNED_KEY):
            return None
        paths = aligned_files(self.path)
        # Thousands of files have thousands of footers: they are read again only when there are other files.
        if self._aligned is None or self._aligned.paths != paths:
            self._aligned = AlignedWords(paths)
        return self._aligned

    def clip_bytes(self, request_key: str) -> bytes | None:
        """Return the audio file of one call as the service sent it, or None; reads one row group."""
        if AUDIO_COLUMN not in self.schema.names:
            return None
        found = self.row(request_key, [AUDIO_COLUMN])
        return found[AUDIO_COLUMN]["bytes"] if found and found[AUDIO_COLUMN] else None

    def joined(
        self,
        columns: Sequence[str] | None = None,
        *,
        audio: bool = False,
        batch_rows: int | None = None,
        cache_bytes: int = CACHE_BYTES,
        places: Sequence[int] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the run's table in the caller's order, our columns beside the caller's.

        Memory does not grow with rows. A row whose call has no outcome yet is
        ``pending``, a row without a call ``invalid``. ``pyarrow.Table.from_batches(...).to_pandas()``
        restores the caller's index.

        Parameters
        ----------
        columns
            Names in the result, in order; None for all but audio and the hidden ones.
        audio
            With the column of audio, when `columns` is None.
        batch_rows
            At most so many rows a batch: 4,096, with audio 64 and about 32 MB.
        cache_bytes
            Of row groups kept for the rows that follow.
        places
            Where the rows lie in the table, counted from 0, ascending; None for all. Little else is read.

        Raises
        ------
        StoreError
            When the run has no table or no such column, or a file cannot be read.
        """
        few = places is not None and len(places) * _FEW < self._entry().rows
        joiner = self._joiner(columns, audio=audio, cache_bytes=cache_bytes, few=few)
        with_audio = self._entry().name_of(AUDIO_COLUMN) in joiner.schema.names
        return joiner.batches(batch_rows or (_AUDIO_BATCH_ROWS if with_audio else _BATCH_ROWS), places)

    def rows_at(self, places: Sequence[int], columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return some rows of the table, joined as :meth:`joined` does it; reads little else.

        Parameters
        ----------
        places
            Where they lie in the table, counted from 0; the result has their order.
        columns
            Names in the result; None for all but audio and the hidden ones.
        """
        return self._joiner(columns, audio=False, few=True).rows(places)

    def places_of(self, statuses: Collection[str]) -> npt.NDArray[np.int64]:
        """Return where the rows lie in the table whose calls have one of these outcomes; reads keys only."""
        index, name = self.index(), self._entry().name_of(table.REQUEST_KEY)
        pieces = [np.zeros(0, np.bool_)]
        with self.table() as file:
            pieces += [
                index.with_status(index.find(batch.column(0)), statuses)
                for batch in file.iter_batches(columns=[name])
            ]
        return np.flatnonzero(np.concatenate(pieces))

    def newest(self, count: int) -> list[str]:
        """Return the keys of the calls whose audio came last, the newest first."""
        look = self._look()
        found = [key for key, status in reversed(list(look.live.items())) if status in FINISHED]
        # A remote part tells no time that all filesystems agree on: any order will do there.
        by_age = [] if is_remote(self.path) else sorted(look.parts, key=lambda p: p.stat().st_mtime_ns)
        for path in reversed(by_age or list(look.parts)):
            if len(found) >= count:
                break
            for keys in read_keys([path]):
                found += [str(key) for key in reversed(keys.column("request_key").to_pylist())]
        return found[:count]

    def joined_schema(self, columns: Sequence[str] | None = None, *, audio: bool = False) -> pa.Schema:
        """Return the schema of :meth:`joined`'s batches."""
        return self._joiner(columns, audio=audio).schema

    def _joiner(
        self,
        columns: Sequence[str] | None,
        *,
        audio: bool,
        cache_bytes: int = CACHE_BYTES,
        few: bool = False,
    ) -> Joiner:
        return Joiner(
            self.path,
            self._entry(),
            self.index(),
            self.schema,
            columns=columns,
            audio=audio,
            cache_bytes=cache_bytes,
            aligned=self.aligned_words(),
            few=few,
        )

    def ledger(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return every attempt that has ended and what it cost, by time.

        Parameters
        ----------
        columns
            Some of :data:`LEDGER_SCHEMA`; None for all.
        """
        with files.storing(self.path, "reading the run"):
            return self._looker.ledger(self._origin(()), columns)

    def attempts(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the same in no order, in memory that does not grow with attempts.

        Parameters
        ----------
        columns
            Some of :data:`LEDGER_SCHEMA`; None for all.
        """
        with files.storing(self.path, "reading the run"):
            yield from self._looker.attempts(self._origin(()), columns)

    def ledger_parts(self, columns: Sequence[str] | None = None) -> tuple[Sequence[Path], pa.Table]:
        """Return the same in pieces, for who looks again and again: what was read once need not be again.

        Parameters
        ----------
        columns
            Of the attempts that are in no file: some of :data:`LEDGER_SCHEMA`; None for all.

        Returns
        -------
        tuple
            The files of the ledger, of which none ever changes, for :func:`read_ledger`; and by time the
            attempts that are in none of them yet.
        """
        with files.storing(self.path, "reading the run"):
            return self._looker.ledger_parts(self._origin(()), columns)

    def standing(self) -> Standing:
        """Return which calls may have been billed without an answer, and the ledger with them.

        As :meth:`RunFolder.recover` leaves both; of a run that is live, or was killed, as it would.
        """
        with files.storing(self.path, "reading the run"):
            return self._looker.standing(self._origin(()))

    def _origin(self, tags: Sequence[str]) -> Origin:
        said = self.manifest
        return Origin(
            run_id=said.run_id, operation=said.operation, service=said.service,
            key_fingerprint=said.key_fingerprint, user=user_name(), host=host_name(), tags=tuple(tags),
        )  # fmt: skip

    def verify(self) -> list[verification.Problem]:
        """Return everything that is wrong with the folder's files; reads all of them, audio too."""
        with files.storing(self.path, "verifying the run"):
            return verification.verify(self.path, self.manifest)


def _pairs(keys: pa.Table) -> "Iterator[tuple[str, str]]":
    names, statuses = keys.column("request_key").to_pylist(), keys.column("status").to_pylist()
    return cast("Iterator[tuple[str, str]]", zip(names, statuses, strict=True))
