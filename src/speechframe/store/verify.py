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
from speechframe.store.folder import (
    HOLDER_FILE,
    LOCK_FILE,
    RUN_FILE,
    Folder,
    convert_os_errors,
    convert_read_errors,
    read_manifest,
)
from speechframe.store.records import WORDS_FOLDER, convert_to_hex, pack_keys, read_note
from speechframe.store.schema import AUDIO_COLUMN, BASE_KEY, FINISHED_STATUSES, STATUSES, check_times
from speechframe.writing.words import format_count

CLIPS_FOLDER, DUBS_FOLDER = "clips", "dubs"
_TABLE_FOLDERS = ("input", parts.PARTS_FOLDER, parts.FAILED_FOLDER, parts.ATTEMPTS_FOLDER, WORDS_FOLDER)
_RUN_FILES_PATTERN = re.compile(
    rf"({'|'.join(_TABLE_FOLDERS)})/\d+\.parquet|{journal.LOG_FOLDER}/\d+\.(jsonl|bytes)"
    rf"|{journal.LOG_FOLDER}/shards\.lock|shards/(order|\d+\.json)|claims/\d+|intents/[\d-]+\.jsonl"
    rf"|{CLIPS_FOLDER}/[0-9a-f]{{64}}(\.\w+)?|{DUBS_FOLDER}/[^/]+|reviews\.(parquet|lock)|([\w/]+/)?\.[^/]+\.tmp"
)
RESTORE_ADVICE = "restore it from a copy of the folder"
RESUME_ADVICE = "nothing is lost, and a resume continues the run"
"""Ends of :attr:`Problem.words`. The command ``speechframe runs verify`` prints each advice once."""
_ROWS_AT_ONCE = 64  # number of rows in memory at a time, because audio may be large


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault of a file in a run's folder."""

    file: str  # name of the file, relative to the run's folder
    request_key: str | None  # key of the call concerned, or None if the whole file is concerned
    words: str  # the fault and advice, to be read after the name of the file


def verify(folder: Folder) -> list[Problem]:
    """Read all files of a run completely, and return all problems."""
    with convert_os_errors(folder, "verifying the run"):
        return list(_find_problems(folder))


def _find_problems(folder: Folder) -> Iterator[Problem]:
    manifest = read_manifest(folder)
    # Read the journal before the Parquet files. A segment that leaves the journal meanwhile is then found
    # there.
    live = journal.list_segments(folder)
    names = {kind: folder.list_names(kind) for kind in (parts.PARTS_FOLDER, parts.FAILED_FOLDER)}
    cut = folder.list_numbers(parts.ATTEMPTS_FOLDER)
    for number in cut:
        name = parts.format_file_name(parts.ATTEMPTS_FOLDER, number)
        yield from _check_file(
            folder, name, _check_segment(folder, number, parts.make_part_schema(manifest.schema).names)
        )
    for kind, files in names.items():
        for name in files:
            if (number := int(name.partition(".")[0])) not in {*live, *cut}:
                lost = parts.format_file_name(parts.ATTEMPTS_FOLDER, number)
                yield Problem(lost, None, f"is missing, so {kind}/{name} does not count: {RESTORE_ADVICE}")
    word_files = [f"{WORDS_FOLDER}/{name}" for name in folder.list_names(WORDS_FOLDER)]
    rows = {entry.file: entry.rows for entry in manifest.tables}
    review_files = [reviews.REVIEWS_FILE] if folder.exists(reviews.REVIEWS_FILE) else []
    for name in [*rows, *word_files, *review_files]:
        yield from _check_file(folder, name, _check_table(folder, name, rows.get(name)))
    for path in sorted((folder.path / CLIPS_FOLDER).glob("[!.]*")) if folder.work == folder.path else ():
        name = f"{CLIPS_FOLDER}/{path.name}"
        if hashlib.sha256(folder.read(name)).hexdigest() != path.name.partition(".")[0]:
            changed = f"is not the clip that was handed in: {RESTORE_ADVICE}, or hand the table in again"
            yield Problem(name, None, changed)
    waits = f"is the journal of a run that was interrupted: {RESUME_ADVICE}"
    for number in [] if live and folder.is_locked else live:
        yield Problem(f"{journal.LOG_FOLDER}/{number:06d}.jsonl", None, waits)


def _check_file(folder: Folder, name: str, problems: Iterator[Problem]) -> Iterator[Problem]:
    """Yield the problems of a file. If the file cannot be read, yield this as a further problem."""
    try:
        with convert_read_errors(folder, name):
            yield from problems
    except StoreError as error:
        yield Problem(name, None, str(error))


def _check_segment(folder: Folder, number: int, columns: list[str]) -> Iterator[Problem]:
    name = parts.format_file_name(parts.ATTEMPTS_FOLDER, number)
    keys, codes = read_note(folder, number)
    noted = dict(zip(convert_to_hex(keys), np.array(STATUSES)[codes].tolist(), strict=True))
    with pq.ParquetFile(folder.get_source(name)) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            check_times(batch)
            for row in batch.select(["request_key", "status"]).to_pylist():
                if row["status"] in FINISHED_STATUSES and row["request_key"] not in noted:
                    yield Problem(name, row["request_key"], "has an answer, but its result was never written")
    for kind in (parts.PARTS_FOLDER, parts.FAILED_FOLDER):
        is_finished = kind == parts.PARTS_FOLDER
        wanted = {key for key, status in noted.items() if (status in FINISHED_STATUSES) is is_finished}
        file_name = parts.format_file_name(kind, number)
        if wanted and not folder.exists(file_name):
            lost = f"is missing, with the records of {format_count(len(wanted), 'call')}: {RESTORE_ADVICE}"
            yield Problem(file_name, None, lost)
        elif wanted:
            yield from _check_file(folder, file_name, _check_records(folder, file_name, wanted, columns))


def _check_records(folder: Folder, name: str, wanted: set[str], columns: list[str]) -> Iterator[Problem]:
    with pq.ParquetFile(folder.get_source(name)) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
            for row, key in enumerate(batch.column("request_key").to_pylist()):
                wanted.discard(key)
                audio = batch.column(AUDIO_COLUMN)[row].as_py() if AUDIO_COLUMN in columns else None
                content, sha256 = audio and audio["bytes"], batch.column("sha256")[row].as_py()
                if content is not None and hashlib.sha256(content).hexdigest() != sha256:
                    yield Problem(
                        name, key, f"the audio has changed, because its sha256 differs: {RESTORE_ADVICE}"
                    )
    for key in sorted(wanted):
        yield Problem(name, key, f"its record is missing: {RESTORE_ADVICE}")


def _check_table(folder: Folder, name: str, rows: int | None) -> Iterator[Problem]:
    """Yield the problems of a file other than the results. Reading the file checks that it is readable.

    `rows` is the number of rows of a table of the run, whose keys are checked, too. It is None for other
    files.
    """
    count = wrong = 0
    with pq.ParquetFile(folder.get_source(name)) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE):
            count += batch.num_rows
            if rows is not None:
                wrong += int((pack_keys(batch.column(BASE_KEY).drop_null()) == b"").sum())
    if rows is not None and count != rows:
        yield Problem(
            name, None, f"has {format_count(count, 'row')}, but {rows:,} in run.json: {RESTORE_ADVICE}"
        )
    if wrong:
        yield Problem(name, None, f"has {format_count(wrong, 'row')} with an invalid key: {RESTORE_ADVICE}")


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
        if not all((path / name).is_dir() for name in ("input", parts.ATTEMPTS_FOLDER)):
            raise
    with convert_os_errors(folder, "removing the run"):
        with folder.lock():
            for name in filter(_RUN_FILES_PATTERN.fullmatch, _list_files(path)):
                if not (path / name).is_symlink():
                    (path / name).unlink()
            for name in (*_TABLE_FOLDERS, journal.LOG_FOLDER, CLIPS_FOLDER, DUBS_FOLDER):
                with suppress(OSError):  # the folder is a link, is not empty, or does not exist
                    (path / name).rmdir()
            # Remove run.json late, so that an error leaves a run. The lock is last, because it keeps others
            # from writing.
            for name in (RUN_FILE, HOLDER_FILE, LOCK_FILE):
                (path / name).unlink(missing_ok=True)
        left = sorted(_list_files(path))
        if not any(path.iterdir()):
            path.rmdir()
    return left


def _list_files(folder: Path) -> Iterator[str]:
    """Yield the names of the files and links in a folder, at any depth, relative to the folder."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()
