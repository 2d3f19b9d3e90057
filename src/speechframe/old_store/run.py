"""A run folder: make it, open it, lock it, write to it; reading stands in `reader`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from speechframe.errors import StoreError
from speechframe.old_store import clips, files, ledger, log, parts, table
from speechframe.old_store import recover as recovery
from speechframe.old_store.aligned import Words, write_aligned
from speechframe.old_store.draft import sweep_drafts
from speechframe.old_store.locate import is_remote, locate, work_folder, working
from speechframe.old_store.lock import is_held, locked
from speechframe.old_store.manifest import (
    FILE_NAME,
    RunManifest,
    TableEntry,
    claim_manifest,
    read_manifest,
    with_table,
    write_manifest,
)
from speechframe.old_store.move import move
from speechframe.old_store.reader import ALIGNED_KEY, RunReader
from speechframe.old_store.writer import RunWriter

__all__ = ["RunFolder"]


class RunFolder(RunReader):
    """A run on disk. Reading needs no lock and sees all that is acknowledged; writing needs :meth:`lock`.

    Made by :meth:`create` or :meth:`open`; how it is read stands at :class:`RunReader`.

    Attributes
    ----------
    path
        The folder.
    manifest
        What run.json says.

    Examples
    --------
    >>> import tempfile
    >>> from speechframe.old_store import Record, RunFolder, RunManifest
    >>> path = tempfile.mkdtemp()
    >>> run = RunFolder.create(path, RunManifest("r1", "generate"))
    >>> with run.lock(), run.writer() as writer:
    ...     writer.answer(Record("00ff", "done", audio_bytes=b"RIFF"))
    >>> RunFolder.open(path).keys()
    {'00ff': 'done'}
    """

    def __init__(self, path: Path, manifest: RunManifest) -> None:
        super().__init__(path, manifest)
        self._locked = False
        self._writer: RunWriter | None = None
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
        """Change fields of run.json, atomically, and return the new manifest; under the lock."""
        self._need_lock("update_manifest")
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
            if not is_remote(self.path):
                # A process that was killed while it planned into this folder has left its copy of the table.
                sweep_drafts(self.path)
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

        It takes the place of a newest one that is missing or torn; see :meth:`has_table`.

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

        Raises
        ------
        StoreError
            When nobody can tell whether the newest one is lost, or the folder cannot be written.
        """
        # One that was lost is in run.json no more, but its file may still be there.
        before = map(table.number_of, self.manifest.tables)
        entry = table.new_entry(
            max(before, default=0) + 1, column_map=column_map, id_column=id_column, hidden=hidden
        )
        # Before anything is written: where nobody can tell, the run stays as it is.
        lost = None if not self.manifest.tables or self.has_table() else self.manifest.tables[-1]
        return table.TableWriter(self.path, schema, entry, partial(self._take_table, lost), lost=lost)

    def take_clips(self, draft: "RunFolder") -> None:
        """Move the clips of a local run on the same disk into this one; under the lock.

        They get the place of any of the same name that are here: those may be damaged.
        """
        self._need_lock("take_clips")
        clips.take(self.path, draft.path)

    def _take_table(self, lost: TableEntry | None, entry: TableEntry) -> None:
        kept = tuple(standing for standing in self.manifest.tables if standing != lost)
        manifest = with_table(replace(self.manifest, tables=kept), entry)
        write_manifest(self.path, manifest)
        self.manifest = manifest

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

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r}, {self.manifest.operation!r})"


def _make_folders(folder: Path) -> None:
    # Again before every writing: archives and version control lose folders that are empty.
    if is_remote(folder):
        (work_folder(folder) / log.FOLDER_NAME).mkdir(parents=True, exist_ok=True)
        return
    for name in (table.FOLDER_NAME, log.FOLDER_NAME, parts.FOLDER_NAME, ledger.FOLDER_NAME):
        (folder / name).mkdir(parents=True, exist_ok=True)
