"""A run folder: open it, lock it, read it, write to it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store import files, ledger, log, parts, table
from speechframe.store import recover as recovery
from speechframe.store import verify as verification
from speechframe.store.aligned import WORDS, AlignedWords, Words, write_aligned
from speechframe.store.index import KeyIndex, Location, read_keys
from speechframe.store.join import CACHE_BYTES, Joiner
from speechframe.store.lock import is_held, locked
from speechframe.store.look import Look, Looker
from speechframe.store.manifest import (
    FILE_NAME,
    RunManifest,
    TableEntry,
    claim_manifest,
    read_manifest,
    with_table,
    write_manifest,
)
from speechframe.store.move import move
from speechframe.store.remote import is_remote, locate, work_folder, working
from speechframe.store.schema import AUDIO_COLUMN, FINISHED, part_schema
from speechframe.store.tally import Origin
from speechframe.store.writer import RunWriter, host_name, user_name

ALIGNED_KEY = "aligned_by"
"""Where run.json says what found the words of the run, if anything did."""

_BATCH_ROWS = 4_096
_AUDIO_BATCH_ROWS = 64


class RunFolder:
    """A run on disk. Reading needs no lock and sees all that is acknowledged; writing needs :meth:`lock`.

    Each call of :meth:`keys`, :meth:`index`, :meth:`row`, :meth:`joined` and
    :meth:`ledger` sees what is there at that moment, from any process: parts,
    and the logs of a writer at work or of one that died. What :meth:`joined`
    yields is all of one moment.

    Made by :meth:`create` or :meth:`open`.

    Attributes
    ----------
    path
        The folder.
    manifest
        What run.json says.

    Examples
    --------
    >>> import tempfile
    >>> from speechframe.store import Record, RunFolder, RunManifest
    >>> path = tempfile.mkdtemp()
    >>> run = RunFolder.create(path, RunManifest("r1", "generate"))
    >>> with run.lock(), run.writer() as writer:
    ...     writer.answer(Record("00ff", "done", audio_bytes=b"RIFF"))
    >>> RunFolder.open(path).keys()
    {'00ff': 'done'}
    """

    def __init__(self, path: Path, manifest: RunManifest) -> None:
        self.path = path
        self.manifest = manifest
        self._locked = False
        self._writer: RunWriter | None = None
        self._looker = Looker(path)
        self._check_lock: Callable[[], None] = lambda: None

    @classmethod
    def create(
        cls, path: str | PathLike[str], manifest: RunManifest, *, filesystem: Any = None
    ) -> "RunFolder":
        """Return a new run in `path`, which is made if it is missing.

        Parameters
        ----------
        path, filesystem
            See :meth:`open`.
        manifest
            What the run is.

        Raises
        ------
        StoreError
            When the folder cannot be written or holds a run already.
        """
        folder = working(locate(path, filesystem), manifest.run_id)
        with files.storing(folder, "making the run folder"):
            is_new = not cls.exists(folder)
            if is_new:
                _make_folders(folder)
                if not is_remote(folder):
                    files.sync_folder(folder.absolute().parent)
        if not is_new or not claim_manifest(folder, manifest):
            raise StoreError(f"{folder} holds a run already: open it, or choose another run_dir")
        return cls(folder, manifest)

    @classmethod
    def open(cls, path: str | PathLike[str], *, filesystem: Any = None) -> "RunFolder":
        """Return the run in `path`.

        Parameters
        ----------
        path
            A folder, or the URL of one (``s3://bucket/run``) on a filesystem that fsspec knows. What is
            not there yet, the log and the lock lie in ``$XDG_STATE_HOME/speechframe/remote`` then.
        filesystem
            Of fsspec or pyarrow, on which `path` is; without it fsspec finds options and credentials.

        Raises
        ------
        NotARun
            When there is none.
        RunMismatch
            When its layout is newer than this version reads.
        """
        folder = locate(path, filesystem)
        manifest = read_manifest(folder)
        return cls(working(folder, manifest.run_id), manifest)

    @staticmethod
    def exists(path: str | PathLike[str], *, filesystem: Any = None) -> bool:
        """Return whether `path` holds a run.

        Raises
        ------
        StoreError
            When a remote folder does not answer.
        """
        folder = locate(path, filesystem)
        with files.storing(folder, f"looking for {FILE_NAME}"):
            return (folder / FILE_NAME).is_file()

    def move(self, path: str | PathLike[str], *, filesystem: Any = None) -> "RunFolder":
        """Give a local run that nobody writes to another place, also a remote one, and return it there.

        A remote place gets copies, its ``run.json`` last and only if it has none: nobody ever
        finds half a run there.

        Parameters
        ----------
        path, filesystem
            See :meth:`open`.

        Raises
        ------
        StoreError
            When there is a run already, or the run cannot be put there.
        """
        target = locate(path, filesystem)
        move(self.path, target)
        return self.open(target)

    def update_manifest(self, **changes: Any) -> RunManifest:
        """Change fields of run.json, atomically, and return the new manifest."""
        manifest = replace(self.manifest, **changes)
        write_manifest(self.path, manifest)
        self.manifest = manifest
        return manifest

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for writing during the block; the lock of a dead process is free at once.

        Raises
        ------
        RunLocked
            When it is held; the words name process, host and since when.
        """
        with locked(self.path) as self._check_lock:
            # What was read before may have been changed by the holder since.
            self.manifest = read_manifest(self.path)
            self._locked = True
            try:
                yield
            finally:
                self._locked = False
                if self._writer is not None and not self._writer.closed:
                    self._writer.close()

    @property
    def is_locked(self) -> bool:
        """Whether a living process of this machine writes to the run."""
        return is_held(self.path)

    def recover(self) -> recovery.Recovered:
        """Turn what dead writers left into parts and ledger; under the lock, before :meth:`writer`.

        May be killed at any instant and called again.
        """
        self._need_lock("recover")
        self._need_no_writer("recover")
        with files.storing(self.path, "recovering the run"):
            _make_folders(self.path)
            return recovery.recover(self.path, self._origin(()))

    def writer(self, *, tags: Sequence[str] = ()) -> RunWriter:
        """Return a writer of outcomes, one at a time; the end of the lock's block closes it.

        Parameters
        ----------
        tags
            For ledger rows of attempts whose end nobody saw.
        """
        self._need_lock("writer")
        self._need_no_writer("writer")
        with files.storing(self.path, "starting to write"):
            _make_folders(self.path)
        self._writer = RunWriter(self.path, self._origin(tags), self._check_lock)
        return self._writer

    def _origin(self, tags: Sequence[str]) -> Origin:
        said = self.manifest
        return Origin(
            run_id=said.run_id, operation=said.operation, service=said.service,
            key_fingerprint=said.key_fingerprint, user=user_name(), host=host_name(), tags=tuple(tags),
        )  # fmt: skip

    def _need_lock(self, what: str) -> None:
        if not self._locked:
            raise StoreError(f"{self.path}: {what}() needs the run's lock: with run.lock(): ...")

    def _need_no_writer(self, what: str) -> None:
        if self._writer is not None and not self._writer.closed:
            raise StoreError(f"{self.path}: {what}() while a writer is open: close that first")

    def add_table(
        self,
        schema: pa.Schema,
        *,
        column_map: Mapping[str, str] | None = None,
        id_column: str | None = None,
        hidden: Sequence[str] = (),
    ) -> table.TableWriter:
        """Return a writer of the caller's table; closed without an error, the table becomes the run's.

        Parameters
        ----------
        schema
            The caller's columns, ``speech_row_id`` and ``request_key`` (null for a row without a
            call) under the names of `column_map`, and whatever the verb wants beside them. A column
            ``speech_problem`` says why a row has no call. Its metadata restores the caller's index.
        column_map
            Our column name to its name in this table, where they differ.
        id_column
            The caller's column of row ids, for run.json.
        hidden
            Columns :meth:`joined` leaves out unless they are named.
        """
        entry = table.new_entry(
            len(self.manifest.tables) + 1, column_map=column_map, id_column=id_column, hidden=hidden
        )
        return table.TableWriter(self.path, schema, entry, self._take_table)

    def _take_table(self, entry: TableEntry) -> None:
        manifest = with_table(self.manifest, entry)
        write_manifest(self.path, manifest)
        self.manifest = manifest

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

    def _look(self) -> Look:
        with files.storing(self.path, "reading the run"):
            return self._looker.look()

    @property
    def schema(self) -> pa.Schema:
        """The columns of this run's parts."""
        return part_schema(self.manifest.operation)

    def locate(self, request_keys: Sequence[str | None]) -> list[Location | None]:
        """Return file, row and status of each call's record, None where there is none."""
        return self.index().locate(request_keys)

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
        return AlignedWords(self.path) if self.manifest.extra.get(ALIGNED_KEY) else None

    def keep_aligned(self, found: Mapping[str, Words], *, by: str) -> None:
        """Keep words that were found in the audio, by request_key; under the lock.

        Parameters
        ----------
        found
            Word, start and end in milliseconds.
        by
            What found them, for run.json.
        """
        self._need_lock("keep_aligned")
        if self.manifest.extra.get(ALIGNED_KEY) != by:
            self.update_manifest(extra={**self.manifest.extra, ALIGNED_KEY: by})
        write_aligned(self.path, found)

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

        Raises
        ------
        StoreError
            When the run has no table or no such column, or a file cannot be read.
        """
        joiner = self._joiner(columns, audio=audio, cache_bytes=cache_bytes)
        with_audio = self._entry().name_of(AUDIO_COLUMN) in joiner.schema.names
        return joiner.batches(batch_rows or (_AUDIO_BATCH_ROWS if with_audio else _BATCH_ROWS))

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

    def refresh(self) -> RunManifest:
        """Read run.json again, which another process may have changed, and return it."""
        self.manifest = read_manifest(self.path)
        return self.manifest

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

    def ledger(self) -> pa.Table:
        """Return every attempt that has ended and what it cost, by time; :data:`LEDGER_SCHEMA`."""
        with files.storing(self.path, "reading the run"):
            return self._looker.ledger(self._origin(()))

    def verify(self) -> list[verification.Problem]:
        """Return everything that is wrong with the folder's files; reads all of them, audio too."""
        return verification.verify(self.path, self.manifest)

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r}, {self.manifest.operation!r})"


def _pairs(keys: pa.Table) -> "Iterator[tuple[str, str]]":
    names, statuses = keys.column("request_key").to_pylist(), keys.column("status").to_pylist()
    return cast("Iterator[tuple[str, str]]", zip(names, statuses, strict=True))


def _make_folders(folder: Path) -> None:
    # Again before every writing: archives and version control lose folders that are empty.
    if is_remote(folder):
        (work_folder(folder) / log.FOLDER_NAME).mkdir(parents=True, exist_ok=True)
        return
    for name in (table.FOLDER_NAME, log.FOLDER_NAME, parts.FOLDER_NAME, ledger.FOLDER_NAME):
        (folder / name).mkdir(parents=True, exist_ok=True)
