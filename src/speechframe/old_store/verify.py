"""Whether a run folder is what it says: files readable, audio as it was, each call there once."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from speechframe.errors import StoreError
from speechframe.old_store import clips, log
from speechframe.old_store.aligned import SCHEMA as ALIGNED_SCHEMA
from speechframe.old_store.aligned import aligned_files
from speechframe.old_store.footer import Noted, packed, read_note
from speechframe.old_store.ledger import ledger_files, read_attempts
from speechframe.old_store.locate import is_remote, work_folder
from speechframe.old_store.manifest import RunManifest, TableEntry, read_manifest
from speechframe.old_store.parts import failed_file, open_part, part_files
from speechframe.old_store.run_state import RUNNING, STATE_KEY
from speechframe.old_store.schema import AUDIO_COLUMN, FINISHED, LEDGER_SCHEMA, NEEDED_COLUMNS, part_schema
from speechframe.old_store.table import count_rows

_READ_ROWS = 1024
"""At once: a table may have thousands of columns."""

_GIVE_AGAIN = "restore it, or hand the table in again"


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


def verify(folder: Path, manifest: RunManifest) -> list[Problem]:
    """Return everything that is wrong with the files of a run, reading each of them whole."""
    return list(_problems(folder, manifest))


def _problems(folder: Path, manifest: RunManifest) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    tried: dict[str, str] = {}
    schema = part_schema(manifest.operation)
    # Listed first: a writer that begins later adds attempts whose parts are not there yet.
    work = work_folder(folder)
    left = sorted((work / log.FOLDER_NAME).glob("*/"))
    ledgers = ledger_files(folder)
    part_problems = [
        found for path in part_files(folder) for found in _part_problems(folder, path, schema, seen, tried)
    ]
    if (failed := failed_file(folder)).exists():
        # Beside a log, here or on the machine that writes, what has its audio by now may stand there too.
        before = {} if left or is_remote(folder) else seen
        part_problems += _part_problems(folder, failed, schema, before, {})
        seen |= before
    yield from part_problems
    # A file that cannot be read, or a log, says more than what is missing because of it.
    is_all_seen = not left and all(problem.request_key is not None for problem in part_problems)
    needed = NEEDED_COLUMNS.intersection(LEDGER_SCHEMA.names)
    unreadable = [found for path in ledgers for found in _table_problems(folder, path, needed)]
    yield from unreadable
    if is_all_seen and not unreadable:
        yield from _missing(folder, ledgers, seen)
        yield from _unbooked(folder, tried)
    for path in aligned_files(folder):
        yield from _table_problems(folder, path, ALIGNED_SCHEMA.names)
    tables: list[TableEntry] = []
    for entry in manifest.tables:
        try:
            rows = count_rows(folder, entry)
        except StoreError as error:
            yield Problem(entry.file, None, str(error))
        else:
            tables.append(entry)
            if rows != entry.rows:
                yield Problem(entry.file, None, f"has {rows} rows, run.json says {entry.rows}")
    yield from _clip_problems(folder, tables)
    for path in (segment for writer in left for segment in log.segment_files(writer)):
        words = "is the log of a run that is being written or was interrupted: the next run takes it up"
        yield Problem(str(path.relative_to(work)), None, words)


def _clip_problems(folder: Path, tables: Iterable[TableEntry]) -> Iterator[Problem]:
    """Yield which clips that were handed in, and have no file of their own, are damaged or gone."""
    there, found = set(), []
    for path in clips.kept_in(folder):
        name = f"{clips.FOLDER_NAME}/{path.name}"
        there.add(name)
        try:
            if not clips.is_whole(path):
                found.append(Problem(name, None, f"is not the clip that was handed in: {_GIVE_AGAIN}"))
        except OSError as error:
            found.append(Problem(name, None, f"cannot be read: {error}"))
    yield from sorted(found, key=lambda problem: problem.file)
    for entry in tables:
        missing = {name for name in clips.needed_by(folder, entry) if name not in there}
        there |= missing
        for name in sorted(missing):
            yield Problem(name, None, f"is missing, and rows of {entry.file} are made of it: {_GIVE_AGAIN}")


def _missing(folder: Path, ledgers: list[Path], seen: Mapping[str, str]) -> Iterator[Problem]:
    """Yield which files of the ledger have calls as answered that no part holds."""
    last: dict[tuple[str, int], tuple[int, str, Path]] = {}
    for path in ledgers:
        (told,) = read_attempts([path], ["request_key", "take", "attempt", "status"])
        for key, take, attempt, status in zip(*told.to_pydict().values(), strict=True):
            # What was sent once more has the outcome of its last attempt, and that may be none yet.
            if key not in seen and (attempt or 0, status, path) > last.get((key, take), (-1,)):
                last[key, take] = attempt or 0, status, path
    counts = Counter(path for _, status, path in last.values() if status in FINISHED)
    for path, count in sorted(counts.items()):
        calls, them = ("1 call was", "it") if count == 1 else (f"{count:,} calls were", "them")
        words = f"{calls} answered and no part holds {them}: restore parts/ from a copy of the folder"
        yield Problem(str(path.relative_to(folder)), None, words)


def _unbooked(folder: Path, tried: dict[str, str]) -> Iterator[Problem]:
    """Yield which parts have calls that were made, and the ledger has no attempt of them."""
    if _is_being_written(folder):
        # A part has its name before its file of the ledger has one.
        return
    # Listed after the parts: what stood in them by then is in the ledger by now.
    for told in read_attempts(ledger_files(folder), ["request_key"]):
        for key in told.column(0).to_pylist():
            tried.pop(str(key), None)
    for name, count in sorted(Counter(tried.values()).items()):
        calls, them = ("1 call", "it") if count == 1 else (f"{count:,} calls", "they")
        words = f"of {calls} no attempt is in the ledger, so what {them} cost is not counted: "
        yield Problem(name, None, f"{words}restore attempts/ from a copy of the folder")


def _is_being_written(folder: Path) -> bool:
    """Return whether a writer is at work or was interrupted; one on another machine says so in run.json."""
    if any((work_folder(folder) / log.FOLDER_NAME).glob("*/")):
        return True
    return is_remote(folder) and read_manifest(folder).extra.get(STATE_KEY) == RUNNING


def _table_problems(folder: Path, path: Path, needed: Iterable[str]) -> Iterator[Problem]:
    name = str(path.relative_to(folder))
    try:
        with open_part(path) as file:
            missing = sorted(set(needed).difference(file.schema_arrow.names))
            for _ in file.iter_batches(_READ_ROWS):
                pass
    except (StoreError, OSError, pa.ArrowException) as error:
        yield Problem(name, None, f"cannot be read: {error}")
    else:
        if missing:
            yield Problem(name, None, f"has no column {', '.join(missing)}")


def _part_problems(
    folder: Path, path: Path, schema: pa.Schema, seen: dict[str, str], tried: dict[str, str]
) -> Iterator[Problem]:
    """Yield what is wrong with a part; note in `seen` which calls it has, in `tried` those that were sent."""
    name = str(path.relative_to(folder))
    # Others may lack in a part of an earlier version. Readers do without the hash too, but without it nobody
    # can tell here whether the audio is what was answered.
    needed = (NEEDED_COLUMNS | {"sha256"}).intersection(schema.names)
    unreadable = list(_table_problems(folder, path, needed))
    if unreadable:
        yield from unreadable
        return
    with open_part(path) as file:
        keys = file.read(columns=["request_key", "status"])
        noted = read_note(file.metadata.metadata or {}, file.metadata.num_rows)
        if noted is not None and not _is_of(noted, keys):
            yield Problem(name, None, "the keys in its footer are not those of its rows")
        has = file.schema_arrow.names
        wanted = [name for name in (AUDIO_COLUMN, "sha256", "request_key", "attempts") if name in has]
        for batch in file.iter_batches(batch_size=64, columns=wanted):
            for row in batch.to_pylist():
                key = row["request_key"]
                if key in seen:
                    yield Problem(name, key, f"stands in {seen[key]} too")
                seen[key] = name
                if row.get("attempts"):  # none for what a cache had
                    tried[key] = name
                content = (row.get(AUDIO_COLUMN) or {}).get("bytes")
                if content is not None and hashlib.sha256(content).hexdigest() != row["sha256"]:
                    yield Problem(name, key, "the audio is not what was answered: its sha256 differs")


def _is_of(noted: Noted, table: pa.Table) -> bool:
    keys, codes, names = noted
    statuses = [names[code] if code < len(names) else None for code in codes.tolist()]
    wanted = packed(pa.array(table.column(0).to_pylist(), pa.string()))
    return bool((keys == wanted).all()) and statuses == table.column(1).to_pylist()
