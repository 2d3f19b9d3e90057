"""Whether a run folder is what it says: files readable, audio as it came, no record and no attempt lost."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.store import journal, parts, reviews
from speechframe.store.folder import Folder, storing
from speechframe.store.index import halves, read_note, reading
from speechframe.store.manifest import read_manifest
from speechframe.store.records import WORDS_FOLDER
from speechframe.store.schema import AUDIO, BASE_KEY, FINISHED, ROW_ID, part_schema

CLIPS_FOLDER = "clips"
_AGAIN = "restore it from a copy of the folder"
_READ_ROWS, _AUDIO_ROWS = 1024, 64


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a run folder that is not as it should be.

    Parameters
    ----------
    file
        Below the run folder.
    request_key
        The call concerned; None for a file as a whole.
    words
        What is wrong.
    """

    file: str
    request_key: str | None
    words: str


def verify(folder: Folder) -> list[Problem]:
    """Return everything that is wrong with the files of a run, reading each of them whole.

    Raises
    ------
    NotARun, RunMismatch, StoreError
        When its run.json cannot be read.
    """
    with storing(folder, "verifying the run"):
        return _Verifier(folder).problems


class _Verifier:
    """Reads a run's files one after the other and collects what is wrong."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.problems: list[Problem] = []
        manifest = read_manifest(folder)
        # First: what is cut while this reads is in parts then.
        live = journal.segments(folder)
        names = {kind: folder.names(kind) for kind in (parts.PARTS, parts.FAILED)}
        cut = parts.cut_numbers(folder)
        for number in cut:
            self._segment(number, part_schema(manifest.schema).names)
        for kind, files in names.items():
            for name in files:
                if (number := int(name.partition(".")[0])) not in {*live, *cut}:
                    lost = parts.file_name(parts.ATTEMPTS, number)
                    self._add(lost, f"is missing, so {kind}/{name} does not count: {_AGAIN}")
        for entry in manifest.tables:
            self._table(entry.file, entry.rows)
        words = [f"{WORDS_FOLDER}/{name}" for name in folder.names(WORDS_FOLDER)]
        for name in [*words, reviews.FILE] if folder.exists(reviews.FILE) else words:
            self._read(name)
        self._clips()
        if live and not folder.is_locked:
            for number in live:
                self._add(
                    f"{journal.LOG}/{number:06d}.jsonl",
                    "is the journal of a run that was interrupted: nothing is lost, resume(run) takes it up",
                )

    def _add(self, file: str, words: str, request_key: str | None = None) -> None:
        self.problems.append(Problem(file, request_key, words))

    def _read(self, name: str, columns: Sequence[str] = ()) -> pa.Table | None:
        """Read all of a file and return some columns; None where that cannot be done."""
        found: list[pa.RecordBatch] = []
        try:
            with reading(self._folder, name), pq.ParquetFile(self._folder.source(name)) as file:
                found.extend(batch.select(list(columns)) for batch in file.iter_batches(_READ_ROWS))
                schema = pa.schema([file.schema_arrow.field(column) for column in columns])
        except StoreError as error:
            self._add(name, str(error))
            return None
        return pa.Table.from_batches(found, schema)

    def _segment(self, number: int, columns: Sequence[str]) -> None:
        name = parts.file_name(parts.ATTEMPTS, number)
        told = self._read(name, ["request_key", "status"])
        if told is None:
            return
        try:
            noted = dict(read_note(self._folder, number))
        except StoreError as error:
            self._add(name, str(error))
            return
        for row in told.to_pylist():
            if row["status"] in FINISHED and row["request_key"] not in noted:
                self._add(name, "was answered, and its record was never written", row["request_key"])
        for kind in (parts.PARTS, parts.FAILED):
            wanted = {key for key, status in noted.items() if (status in FINISHED) is (kind == parts.PARTS)}
            if wanted:
                self._records(parts.file_name(kind, number), wanted, columns)

    def _records(self, name: str, wanted: set[str], columns: Sequence[str]) -> None:
        if not self._folder.exists(name):
            self._add(name, f"is missing, with the records of {len(wanted):,} calls: {_AGAIN}")
            return
        seen: set[str] = set()
        try:
            with reading(self._folder, name), pq.ParquetFile(self._folder.source(name)) as file:
                for batch in file.iter_batches(_AUDIO_ROWS, columns=list(columns)):
                    for row in _audio_of(batch):
                        seen.add(row["request_key"])
                        content = (row.get(AUDIO) or {}).get("bytes")
                        if content is not None and hashlib.sha256(content).hexdigest() != row["sha256"]:
                            words = f"the audio is not what came: its sha256 differs; {_AGAIN}"
                            self._add(name, words, row["request_key"])
        except StoreError as error:
            self._add(name, str(error))
            return
        for key in sorted(wanted - seen):
            self._add(name, f"its record is missing: {_AGAIN}", key)

    def _table(self, name: str, rows: int) -> None:
        found = self._read(name, [ROW_ID, BASE_KEY])
        if found is None:
            return
        if len(found) != rows:
            self._add(name, f"has {len(found):,} rows, run.json says {rows:,}: {_AGAIN}")
        keys = found.column(BASE_KEY).drop_null()
        high, low = halves(keys)
        if wrong := int((high + low == 0).sum()):
            self._add(name, f"has {wrong:,} rows whose key is none: {_AGAIN}")

    def _clips(self) -> None:
        if not isinstance(self._folder.path, Path):
            return
        for path in sorted((self._folder.path / CLIPS_FOLDER).glob("[!.]*")):
            name = f"{CLIPS_FOLDER}/{path.name}"
            content = self._folder.read(name)
            if hashlib.sha256(content).hexdigest() != path.name.partition(".")[0]:
                self._add(name, f"is not the clip that was handed in: {_AGAIN}, or hand the table in again")


def _audio_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield what is needed of each record, one at a time: audio may be large."""
    names = [name for name in ("request_key", "sha256", AUDIO) if name in batch.schema.names]
    for row in range(batch.num_rows):
        yield {name: batch.column(name)[row].as_py() for name in names}
