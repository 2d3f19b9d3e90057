"""A run folder goes elsewhere, whole: nobody finds half a run there."""

import re
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from speechframe.errors import StoreError
from speechframe.old_store import aligned, clips, files, ledger, log, parts, reviews, table
from speechframe.old_store.manifest import FILE_NAME, RunManifest, content_of, read_manifest
from speechframe.old_store.remote import Remote

_TABLE = re.compile(r"\.?\d{4}-[0-9a-f]{16}\.parquet(\.tmp)?")
_CLIP = re.compile(r"\.?[0-9a-f]{64}(\.tmp)?")


def move(folder: Path, target: Path) -> None:
    """Give the local run in `folder`, which nobody writes to, the place `target`.

    Raises
    ------
    StoreError
        When there is a run already, or it cannot be put there.
    """
    if not isinstance(target, Remote):
        with files.storing(target, "moving the run"):
            if target.is_dir():
                _move_into(folder, target)
            else:
                folder.rename(target)
                files.sync_folder(target.parent)
        return
    if next((folder / log.FOLDER_NAME).glob("*/*.log"), None) is not None:
        raise StoreError(f"{folder} has a log that is no part yet: run recover() on it before it is moved")
    with files.storing(target, "putting the run"):
        _put(folder, target)


def is_left_over(path: Path) -> bool:
    """Return whether a remote folder holds no more than a run that was not put there to its end.

    Nothing was sent for such a run: that begins when its run.json is there.
    """
    return isinstance(path, Remote) and path.is_dir() and _is_left(path, PurePosixPath(path.name))


def _is_left(folder: Remote, name: PurePosixPath) -> bool:
    pattern = {table.FOLDER_NAME: _TABLE, clips.FOLDER_NAME: _CLIP}.get(str(name))
    return all(
        (pattern is not None and pattern.fullmatch(path.name) is not None and path.is_file())
        or (path.is_dir() and _is_left(path, name / path.name))
        for path in folder.iterdir()
    )


def _put(folder: Path, target: Remote) -> None:
    taken = f"{target} holds a run already: open it, or choose another run_dir"
    run_json = target / FILE_NAME
    if run_json.is_file():
        raise StoreError(taken)
    here = read_manifest(folder)
    manifest = _with_own_tables(here)
    tables = [entry.file for entry in manifest.tables]
    names = dict(zip((entry.file for entry in here.tables), tables, strict=True))
    try:
        for path in _files_of(folder):
            name = path.relative_to(folder).as_posix()
            (target / names.get(name, name)).put(path)
        # The last: a folder with this file is a run.
        is_put = run_json.claim(content_of(manifest))
    except BaseException:
        # Else the next call finds files there that are no run. But a run may stand there all the same: of
        # somebody who was faster, or this one, if only the answer was lost.
        if run_json.is_surely_missing():
            _take_back(target, tables)
        raise
    if not is_put:
        _take_back(target, tables)
        raise StoreError(taken)
    _sweep(target / table.FOLDER_NAME, {PurePosixPath(name).name for name in tables})


def _with_own_tables(manifest: RunManifest) -> RunManifest:
    """Let tables have names that no other run has: of two that are put there at once, only one is the run."""
    token = uuid.uuid4().hex[:16]
    named = [PurePosixPath(entry.file) for entry in manifest.tables]
    own = [file.with_name(f"{file.stem.partition('-')[0]}-{token}{file.suffix}") for file in named]
    tables = zip(manifest.tables, own, strict=True)
    return replace(manifest, tables=tuple(replace(entry, file=str(file)) for entry, file in tables))


def _take_back(target: Remote, tables: Iterable[str]) -> None:
    """Remove a run's own tables, which are nobody else's.

    Clips have the names of their content: another run that is being put there may be made of the same ones.
    """
    for name in tables:
        (target / name).take_back()


def _sweep(folder: Remote, own: Collection[str]) -> None:
    """Remove tables of runs that were not put there to their end: who reads them all would see it."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name not in own and _TABLE.fullmatch(path.name):
                path.unlink(missing_ok=True)


def _files_of(folder: Path) -> Iterator[Path]:
    """Yield the files of a run but for its run.json."""
    for room in (clips, table, parts, ledger, aligned):
        yield from sorted(p for p in (folder / room.FOLDER_NAME).glob("[!.]*") if p.is_file())
    if (said := folder / reviews.FILE_NAME).exists():
        yield said


def _move_into(folder: Path, target: Path) -> None:
    """Fill an empty folder, which keeps its mode and owner, and may be a link or the root of a disk."""
    for path in sorted(p for p in folder.iterdir() if p.is_dir()):
        path.rename(target / path.name)
    # The last: a folder with this file is a run.
    (folder / FILE_NAME).rename(target / FILE_NAME)
    files.sync_folder(target)
