"""A run folder goes elsewhere, whole: nobody finds half a run there."""

from collections.abc import Iterator
from pathlib import Path

from speechframe.errors import StoreError
from speechframe.store import aligned, clips, files, ledger, log, parts, reviews, table
from speechframe.store.manifest import FILE_NAME
from speechframe.store.remote import Remote


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
        begun: list[Remote] = []
        try:
            for path in _files_of(folder):
                begun.append(target / path.relative_to(folder).as_posix())
                begun[-1].put(path)
            # The last: a folder with this file is a run.
            is_put = (target / FILE_NAME).claim((folder / FILE_NAME).read_bytes())
        except BaseException:
            # Else the next call finds files there that are no run. But a run may stand there all the same: of
            # somebody who was faster, or this one, if only the answer was lost.
            if (target / FILE_NAME).is_surely_missing():
                for put in reversed(begun):
                    put.take_back()
            raise
        if not is_put:
            raise StoreError(f"{target} holds a run already: open it, or choose another run_dir")


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
