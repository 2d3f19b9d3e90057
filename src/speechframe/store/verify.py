"""Check the files of a run's folder, and remove the files of a run."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from speechframe.errors import NotARun, RunMismatch, StoreError
from speechframe.store import journal, parts, reviews
from speechframe.store.folder import HOLDER, LOCK, RUN_FILE, Folder, read_manifest, reading, storing
from speechframe.store.records import WORDS_FOLDER, hex_keys, packed, read_note
from speechframe.store.schema import AUDIO, BASE_KEY, FINISHED, STATUSES, check_times
from speechframe.writing.words import counted

CLIPS_FOLDER, DUBS_FOLDER = "clips", "dubs"
_TABLE_FOLDERS = ("input", parts.PARTS, parts.FAILED, parts.ATTEMPTS, WORDS_FOLDER)
_OURS = re.compile(
    rf"({'|'.join(_TABLE_FOLDERS)})/\d+\.parquet|{journal.LOG}/\d+\.(jsonl|bytes)"
    rf"|{CLIPS_FOLDER}/[0-9a-f]{{64}}(\.\w+)?|{DUBS_FOLDER}/[^/]+|reviews\.(parquet|lock)|([\w/]+/)?\.[^/]+\.tmp"
)
_AGAIN = "restore it from a copy of the folder"
_ROWS = 64  # number of rows in memory at a time, because audio may be large


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a file in a run's folder."""

    file: str  # name of the file, relative to the run's folder
    request_key: str | None  # key of the call concerned, or None if the whole file is concerned
    words: str  # the fault and advice, to be read after the name of the file


def verify(folder: Folder) -> list[Problem]:
    """Read all files of a run completely, and return all problems."""
    with storing(folder, "verifying the run"):
        return list(_problems(folder))


def _problems(folder: Folder) -> Iterator[Problem]:
    manifest = read_manifest(folder)
    # Read the journal before the Parquet files. A segment that leaves the journal meanwhile is then found
    # there.
    live = journal.segments(folder)
    names = {kind: folder.names(kind) for kind in (parts.PARTS, parts.FAILED)}
    cut = folder.numbers(parts.ATTEMPTS)
    for number in cut:
        name = parts.file_name(parts.ATTEMPTS, number)
        yield from _check(folder, name, _segment(folder, number, parts.part_schema(manifest.schema).names))
    for kind, files in names.items():
        for name in files:
            if (number := int(name.partition(".")[0])) not in {*live, *cut}:
                lost = parts.file_name(parts.ATTEMPTS, number)
                yield Problem(lost, None, f"is missing, so {kind}/{name} does not count: {_AGAIN}")
    words = [f"{WORDS_FOLDER}/{name}" for name in folder.names(WORDS_FOLDER)]
    rows = {entry.file: entry.rows for entry in manifest.tables}
    for name in [*rows, *words, *([reviews.FILE] if folder.exists(reviews.FILE) else [])]:
        yield from _check(folder, name, _table(folder, name, rows.get(name)))
    for path in sorted((folder.path / CLIPS_FOLDER).glob("[!.]*")) if folder.work == folder.path else ():
        name = f"{CLIPS_FOLDER}/{path.name}"
        if hashlib.sha256(folder.read(name)).hexdigest() != path.name.partition(".")[0]:
            changed = f"is not the clip that was handed in: {_AGAIN}, or hand the table in again"
            yield Problem(name, None, changed)
    waits = "is the journal of a run that was interrupted: nothing is lost, and resume(run) continues the run"
    for number in [] if live and folder.is_locked else live:
        yield Problem(f"{journal.LOG}/{number:06d}.jsonl", None, waits)


def _check(folder: Folder, name: str, problems: Iterator[Problem]) -> Iterator[Problem]:
    """Yield the problems of a file. If the file cannot be read, yield this as a further problem."""
    try:
        with reading(folder, name):
            yield from problems
    except StoreError as error:
        yield Problem(name, None, str(error))


def _segment(folder: Folder, number: int, columns: list[str]) -> Iterator[Problem]:
    name = parts.file_name(parts.ATTEMPTS, number)
    keys, codes = read_note(folder, number)
    noted = dict(zip(hex_keys(keys), np.array(STATUSES)[codes].tolist(), strict=True))
    with pq.ParquetFile(folder.source(name)) as file:
        for batch in file.iter_batches(_ROWS):
            check_times(batch)
            for row in batch.select(["request_key", "status"]).to_pylist():
                if row["status"] in FINISHED and row["request_key"] not in noted:
                    yield Problem(name, row["request_key"], "has an answer, but its result was never written")
    for kind in (parts.PARTS, parts.FAILED):
        wanted = {key for key, status in noted.items() if (status in FINISHED) is (kind == parts.PARTS)}
        file_name = parts.file_name(kind, number)
        if wanted and not folder.exists(file_name):
            lost = f"is missing, with the records of {counted(len(wanted), 'call')}: {_AGAIN}"
            yield Problem(file_name, None, lost)
        elif wanted:
            yield from _check(folder, file_name, _records(folder, file_name, wanted, columns))


def _records(folder: Folder, name: str, wanted: set[str], columns: list[str]) -> Iterator[Problem]:
    with pq.ParquetFile(folder.source(name)) as file:
        for batch in file.iter_batches(_ROWS, columns=columns):
            for row, key in enumerate(batch.column("request_key").to_pylist()):
                wanted.discard(key)
                audio = batch.column(AUDIO)[row].as_py() if AUDIO in columns else None
                content, sha256 = audio and audio["bytes"], batch.column("sha256")[row].as_py()
                if content is not None and hashlib.sha256(content).hexdigest() != sha256:
                    yield Problem(name, key, f"the audio has changed, because its sha256 differs: {_AGAIN}")
    for key in sorted(wanted):
        yield Problem(name, key, f"its record is missing: {_AGAIN}")


def _table(folder: Folder, name: str, rows: int | None) -> Iterator[Problem]:
    """Yield the problems of a file other than the results. Reading the file checks that it is readable.

    `rows` is the number of rows of a table of the run, whose keys are checked, too. It is None for other
    files.
    """
    count = wrong = 0
    with pq.ParquetFile(folder.source(name)) as file:
        for batch in file.iter_batches(_ROWS):
            count += batch.num_rows
            if rows is not None:
                wrong += int((packed(batch.column(BASE_KEY).drop_null()) == b"").sum())
    if rows is not None and count != rows:
        yield Problem(name, None, f"has {counted(count, 'row')}, but {rows:,} in run.json: {_AGAIN}")
    if wrong:
        yield Problem(name, None, f"has {counted(wrong, 'row')} with an invalid key: {_AGAIN}")


# -- remove a run ------------------------------------------------------------------


def remove_run(folder: Folder) -> list[str]:
    """Remove the files of a run on this machine, and its folder if no other files are left.

    Return the names of the files that are left. Links are not followed and stay. After an error the folder is
    still a run, so that the removal can be repeated.
    """
    path = folder.path
    if path.is_symlink():
        raise StoreError(f"{path} is a symbolic link: name the folder it points to, {path.resolve()}")
    try:
        read_manifest(folder)
    except (NotARun, RunMismatch):
        raise
    except StoreError:
        # Another program may have written a run.json that this version cannot read. Continue only if the
        # folder also has the folders of a run.
        if not all((path / name).is_dir() for name in ("input", parts.ATTEMPTS)):
            raise
    with storing(folder, "removing the run"):
        with folder.lock():
            for name in filter(_OURS.fullmatch, _files(path)):
                if not (path / name).is_symlink():
                    (path / name).unlink()
            for name in (*_TABLE_FOLDERS, journal.LOG, CLIPS_FOLDER, DUBS_FOLDER):
                with suppress(OSError):  # the folder is a link, is not empty, or does not exist
                    (path / name).rmdir()
            # Remove run.json late, so that an error leaves a run. The lock is last, because it keeps others
            # from writing.
            for name in (RUN_FILE, HOLDER, LOCK):
                (path / name).unlink(missing_ok=True)
        left = sorted(_files(path))
        if not any(path.iterdir()):
            path.rmdir()
    return left


def _files(folder: Path) -> Iterator[str]:
    """Yield the names of the files and links in a folder, at any depth, relative to the folder."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()
