"""What a run folder holds, read without its verb, a service or a web client; and taking it away."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import NotARun, RunLocked, RunMismatch, StoreError
from speechframe.old_store import RunFolder, drafts_in
from speechframe.old_store.contents import ROOMS, others_in
from speechframe.old_store.lock import HOLDER_NAME, LOCK_NAME, is_held, locked
from speechframe.old_store.manifest import FILE_NAME
from speechframe.old_store.run_state import PLANNED, RUNNING, STATE_KEY, STOPPED
from speechframe.old_store.schema import FINISHED

DAMAGED = "damaged"
"""The status of a run that cannot be read; a run folder never says so of itself."""

_LAST = (FILE_NAME, HOLDER_NAME, LOCK_NAME)
"""What a removal takes away last, in this order: what makes it a run, and what keeps others off it."""


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
            if FILE_NAME in files:
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
        When it is no run, one of a newer version, or cannot be read.
    """
    run = RunFolder.open(folder)
    status = str(run.manifest.extra.get(STATE_KEY, PLANNED))
    if run.is_locked:
        status = RUNNING
    elif status == RUNNING:
        # Its process died: nobody wrote an end.
        status = STOPPED
    try:
        rows, done = _rows(run)
        speaks = has_audio(run)
        clips_made, seconds = _clips(run, with_audio=speaks)
        credits = sum((pc.sum(some.column(0)).as_py() or 0.0 for some in run.attempts(["credits"])), 0.0)
    except (OSError, pa.ArrowException, LookupError, ValueError) as error:
        # The last two: Parquet that can be read, of other columns or with a note nobody can decode.
        raise StoreError(f"{folder} cannot be read ({error}): speechframe runs verify says more") from error
    size, changed_at = _on_disk(folder)
    return RunFacts(
        path=folder, operation=run.manifest.operation, service=run.manifest.service, status=status, rows=rows,
        done=done, clips=clips_made, has_audio=speaks, audio_seconds=round(seconds, 3),
        credits=round(credits, 3), bytes=size, changed_at=changed_at,
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


def _rows(run: RunFolder) -> tuple[int, int]:
    if not run.tables():
        return 0, 0
    counts: Counter[str] = Counter()
    for batch in run.joined([run.tables()[-1].name_of("status")]):
        found: Any = pc.value_counts(batch.column(0))
        counts.update({item["values"]: item["counts"] for item in found.to_pylist()})
    return counts.total(), sum(counts[status] for status in FINISHED)


def has_audio(run: RunFolder) -> bool:
    """Whether the calls of a run are answered with audio."""
    return "audio_seconds" in run.schema.names


def _clips(run: RunFolder, *, with_audio: bool) -> tuple[int, float]:
    """Return how many different answers there are, and the seconds of their audio."""
    count, seconds = 0, 0.0
    for some in run.finished(["audio_seconds" if with_audio else "status"]):
        count += some.num_rows
        if with_audio:
            seconds += pc.sum(some.column(0)).as_py() or 0.0
    return count, seconds


def check_removable(folder: Path) -> None:
    """Raise StoreError unless `folder` is a run that nobody writes to, and nothing else.

    One whose run.json cannot be read is taken for a run by the folders that every run has. What a killed
    process had planned there goes with it.

    Raises
    ------
    NotARun, RunMismatch
        When it is no run, or one whose files this version does not know.
    RunLocked
        When a living process has it open.
    StoreError
        When other files lie in it, or it is a symbolic link.
    """
    _check_run(folder)
    if folder.is_symlink():
        raise StoreError(f"{folder} is a symbolic link: name the folder it points to, {folder.resolve()}")
    drafts = drafts_in(folder)
    names = {draft.name for draft in drafts}
    others = sorted(name for name in others_in(folder) if name.partition("/")[0] not in names)
    if others:
        raise StoreError(
            f"{folder} holds other files than a run's: {', '.join(others[:3])}"
            f"{' ...' if others[3:] else ''}; move them away first, nothing was removed"
        )
    with locked(folder):
        pass
    for draft in filter(is_held, drafts):
        raise RunLocked(f"{draft} is a run that another process plans at the moment: wait for it, or stop it")


def _check_run(folder: Path) -> None:
    try:
        RunFolder.open(folder)
    except (NotARun, RunMismatch):
        raise
    except StoreError:
        # Its first file is cut off. Others may have a file of this name, but not all of these folders too.
        if not all((folder / name).is_dir() for name in ROOMS):
            raise


def remove(folder: Path) -> None:
    """Remove a run; what made it a run goes last, so that an interrupted removal can be repeated.

    Raises
    ------
    StoreError
        As :func:`check_removable`, and when a file cannot be removed.
    """
    check_removable(folder)
    try:
        with locked(folder):
            for path in sorted(folder.iterdir()):
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in _LAST:
                    path.unlink()
            for name in _LAST:
                (folder / name).unlink(missing_ok=True)
            # Not ".", which no system removes.
            shutil.rmtree(folder.absolute())
    except OSError as error:
        why = f"({error.strerror}: {error.filename})"
        if not RunFolder.exists(folder):
            raise StoreError(
                f"{folder} is no run any more, but its empty folder could not be removed {why}: remove it "
                "by hand"
            ) from error
        raise StoreError(
            f"{folder} could not be removed whole {why}; make it writable and repeat the command"
        ) from error
