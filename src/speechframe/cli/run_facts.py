"""What a run folder holds, read without its verb, a service or a web client."""

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
    """What a run folder holds; of a damaged one only `path`, `status`, `problem`, `bytes` and `changed_at`.

    Parameters
    ----------
    path
        The folder.
    bytes
        Of all files.
    changed_at
        UTC; when a file was last written.
    status
        ``planned``, ``running``, ``finished`` or ``stopped``; ``damaged`` where it cannot be read.
    problem
        What is wrong with a damaged run, in words.
    operation, service
        The verb, and the identity of the service.
    rows, done
        Rows of the run's table, and those that have audio, or a translation.
    clips
        Different answers, in parts or in a log: equal rows share one, and rows of earlier tables keep theirs.
    has_audio
        Whether clips are audio; they are translations otherwise.
    audio_seconds
        Of all clips; 0 for translations.
    credits
        Spent by all attempts.
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
    """Yield every run folder at or below `roots`, once; a root that is not there holds none."""
    seen: set[Path] = set()
    for root in roots:
        for name, below, files in os.walk(root):
            if RUN_FILE in files:
                # One root may lie within another, or be named twice.
                if (place := Path(name).resolve()) not in seen:
                    seen.add(place)
                    yield Path(name)
                below.clear()
            # Hidden folders hold what is not finished, or what others keep.
            below[:] = sorted(folder for folder in below if not folder.startswith("."))


def read_facts(folder: Path) -> RunFacts:
    """Return what is in the run `folder`.

    Raises
    ------
    NotARun, RunMismatch
        When it is no run, or one of another version; a run that cannot be read is ``damaged``.
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
    kept = list(_files_below(folder))
    written = max((said.st_mtime for said in kept), default=0.0)
    return sum(said.st_size for said in kept), datetime.fromtimestamp(written, UTC)


def _files_below(folder: Path) -> Iterator[os.stat_result]:
    for path in folder.rglob("*"):
        # Of a run that is being made: a file may be gone between its listing and the look at it.
        with suppress(FileNotFoundError):
            if path.is_file():
                yield path.stat()
