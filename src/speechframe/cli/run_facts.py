"""Read the facts of run folders for ``speechframe runs``. No service or web client is imported."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.batch.live import open_run
from speechframe.errors import NotARun, RunMismatch, StoreError
from speechframe.store.folder import RUN_FILE
from speechframe.store.schema import FINISHED_STATUSES


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run folder. For a damaged run, all fields after `problem` are None.

    Parameters
    ----------
    path
        Path of the folder.
    bytes
        Total size of the files in bytes.
    changed_at
        Time of the last change of any file, in UTC.
    status
        ``planned``, ``running``, ``finished`` or ``stopped``. ``damaged`` if the run cannot be read.
    problem
        Message of the error if the run is damaged, else None.
    operation, service
        The verb that made the run, such as ``generate``, and the identity of the service.
    rows, done
        Number of rows of the run's table, and number of rows with an answer.
    clips
        Number of distinct answers (clips or translations). An answer that equal rows share counts once.
        Answers to rows that only an earlier table of this run had count, too.
    has_audio
        True if the answers are audio, False if they are translations.
    audio_seconds
        Total length of the distinct answers in seconds. 0 for translations.
    credits
        Credits spent by all attempts.
    """

    path: Path
    bytes: int
    changed_at: datetime
    status: str
    problem: str | None = None
    operation: str | None = None
    service: str | None = None
    rows: int | None = None
    done: int | None = None
    clips: int | None = None
    has_audio: bool | None = None
    audio_seconds: float | None = None
    credits: float | None = None


def find_run_folders(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield each run folder among `roots` and below them. A missing root is skipped."""
    seen: set[Path] = set()
    for root in roots:
        for name, below, files in os.walk(root):
            if RUN_FILE in files:
                # Yield a folder once, even if one root is inside another or is given twice.
                if (path := Path(name).resolve()) not in seen:
                    seen.add(path)
                    yield Path(name)
                below.clear()
            # Skip hidden folders. They contain unfinished work, or files of other programs.
            below[:] = sorted(folder for folder in below if not folder.startswith("."))


def read_facts(folder: Path) -> RunFacts:
    """Return the facts of a run folder. If its files are unreadable, the status is ``damaged``.

    Raises
    ------
    NotARun
        If the folder is not a run.
    RunMismatch
        If another version of speechframe wrote the run, in another layout.
    """
    size, changed_at = _measure_size_and_time(folder)
    try:
        return RunFacts(folder, size, changed_at, **_read_run(folder))
    except (NotARun, RunMismatch):
        raise
    except StoreError as error:
        return RunFacts(folder, size, changed_at, "damaged", problem=str(error))


def _read_run(folder: Path) -> dict[str, Any]:
    run = open_run(folder)
    stats, records = run.stats, run.snapshot()
    has_audio = "audio_seconds" in run.manifest.schema.names
    seconds = 0.0
    if has_audio:
        columns = pa.schema([("audio_seconds", pa.float64())])
        seconds = (
            pc.sum(
                records.read_records(records.index.find_with_status(FINISHED_STATUSES), columns).column(0)
            ).as_py()
            or 0.0
        )
    calls = records.index.count_by_status()
    return {
        "status": run.status, "operation": run.operation, "service": run.service, "rows": stats["rows"],
        "done": sum(stats.get(status, 0) for status in FINISHED_STATUSES),
        "clips": sum(calls[status] for status in FINISHED_STATUSES), "has_audio": has_audio,
        "audio_seconds": round(seconds, 3), "credits": stats["credits"],
    }  # fmt: skip


def _measure_size_and_time(folder: Path) -> tuple[int, datetime]:
    files = list(_stat_files(folder))
    written = max((file.st_mtime for file in files), default=0.0)
    return sum(file.st_size for file in files), datetime.fromtimestamp(written, UTC)


def _stat_files(folder: Path) -> Iterator[os.stat_result]:
    for path in folder.rglob("*"):
        # A run that is in progress may remove a file between the listing and this call.
        with suppress(FileNotFoundError):
            if path.is_file():
                yield path.stat()
