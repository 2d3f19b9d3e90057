"""What a run folder holds, read without its verb, a service or a web client."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.batch.live import open_run
from speechframe.errors import StoreError
from speechframe.store.folder import RUN_FILE
from speechframe.store.schema import FINISHED

DAMAGED = "damaged"
"""The status of a run that cannot be read; a run folder never says so of itself."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run folder holds.

    Parameters
    ----------
    path
        The folder.
    operation, service
        The verb, and the identity of the service.
    status
        ``planned``, ``running``, ``finished`` or ``stopped``.
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
    bytes
        Of all files.
    changed_at
        UTC; when a file was last written.
    problem
        None: all of it could be read; see :class:`DamagedRun`.
    """

    path: Path
    operation: str
    service: str | None
    status: str
    rows: int
    done: int
    clips: int
    has_audio: bool
    audio_seconds: float
    credits: float
    bytes: int
    changed_at: datetime
    problem: None = None


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """A run folder whose files cannot be read.

    Parameters
    ----------
    path
        The folder.
    problem
        What is wrong, in words.
    bytes, changed_at
        As :class:`RunFacts` has them.
    status
        ``damaged``.
    """

    path: Path
    problem: str
    bytes: int
    changed_at: datetime
    status: str = DAMAGED


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
    NotARun, RunMismatch, StoreError
        When it is no run, one of another version, or cannot be read.
    """
    run = open_run(folder)
    stats, records = run.stats, run.snapshot()
    has_audio = "audio_seconds" in run.manifest.schema.names
    seconds = 0.0
    if has_audio:
        columns = pa.schema([("audio_seconds", pa.float64())])
        seconds = pc.sum(records.take(records.index.with_status(FINISHED), columns).column(0)).as_py() or 0.0
    calls = records.index.counts()
    size, changed_at = _on_disk(folder)
    return RunFacts(
        path=folder, operation=run.operation, service=run.service, status=run.status, rows=stats["rows"],
        done=sum(stats.get(status, 0) for status in FINISHED),
        clips=sum(calls[status] for status in FINISHED), has_audio=has_audio,
        audio_seconds=round(seconds, 3), credits=stats["credits"], bytes=size, changed_at=changed_at,
    )  # fmt: skip


def damaged_run(folder: Path, error: StoreError) -> DamagedRun:
    """Return what can be said of the run `folder` of which :func:`read_facts` raised `error`."""
    size, changed_at = _on_disk(folder)
    return DamagedRun(path=folder, problem=str(error), bytes=size, changed_at=changed_at)


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
