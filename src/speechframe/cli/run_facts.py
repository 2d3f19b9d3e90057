"""Read the facts of a run folder. This imports no verb, no service and no web client."""

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
from speechframe.store.schema import FINISHED


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts of a run folder. A damaged run has only `path`, `status`, `problem`, `bytes`, `changed_at`.

    Parameters
    ----------
    path
        The folder.
    bytes
        Total size of the files.
    changed_at
        Time of the last change of a file, in UTC.
    status
        ``planned``, ``running``, ``finished`` or ``stopped``. ``damaged`` if the run cannot be read.
    problem
        The fault of a damaged run.
    operation, service
        The verb, and the identity of the service.
    rows, done
        Number of rows of the run's table, and of rows with an answer.
    clips
        Number of different answers. Equal rows share an answer. Answers to rows that only an earlier table of
        this run had count, too.
    has_audio
        True if the answers are audio, False if they are translations.
    audio_seconds
        Total length of the answers. An answer that several rows share counts once. 0 for translations.
    credits
        Credits that all attempts spent.
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


def run_folders(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield each run folder at or below `roots` once. A missing root is skipped."""
    seen: set[Path] = set()
    for root in roots:
        for name, below, files in os.walk(root):
            if RUN_FILE in files:
                # One root may lie within another, or be named twice.
                if (place := Path(name).resolve()) not in seen:
                    seen.add(place)
                    yield Path(name)
                below.clear()
            # Hidden folders contain unfinished work, or files of other programs.
            below[:] = sorted(folder for folder in below if not folder.startswith("."))


def read_facts(folder: Path) -> RunFacts:
    """Return the facts of a run folder. A run that cannot be read has the status ``damaged``.

    Raises
    ------
    NotARun, RunMismatch
        If the folder is not a run, or was made by another version.
    """
    size, changed_at = _on_disk(folder)
    try:
        return RunFacts(folder, size, changed_at, **_read(folder))
    except (NotARun, RunMismatch):
        raise
    except StoreError as error:
        return RunFacts(folder, size, changed_at, "damaged", problem=str(error))


def _read(folder: Path) -> dict[str, Any]:
    run = open_run(folder)
    stats, records = run.stats, run.snapshot()
    has_audio = "audio_seconds" in run.manifest.schema.names
    seconds = 0.0
    if has_audio:
        columns = pa.schema([("audio_seconds", pa.float64())])
        seconds = pc.sum(records.take(records.index.with_status(FINISHED), columns).column(0)).as_py() or 0.0
    calls = records.index.counts()
    return {
        "status": run.status, "operation": run.operation, "service": run.service, "rows": stats["rows"],
        "done": sum(stats.get(status, 0) for status in FINISHED),
        "clips": sum(calls[status] for status in FINISHED), "has_audio": has_audio,
        "audio_seconds": round(seconds, 3), "credits": stats["credits"],
    }  # fmt: skip


def _on_disk(folder: Path) -> tuple[int, datetime]:
    files = list(_files_below(folder))
    written = max((file.st_mtime for file in files), default=0.0)
    return sum(file.st_size for file in files), datetime.fromtimestamp(written, UTC)


def _files_below(folder: Path) -> Iterator[os.stat_result]:
    for path in folder.rglob("*"):
        # A running run may remove a file after the listing.
        with suppress(FileNotFoundError):
            if path.is_file():
                yield path.stat()
