"""A run in the making: in a folder that no reader looks for, until it is whole and gets its place."""

import re
import shutil
import stat
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from speechframe.old_store.contents import others_in
from speechframe.old_store.locate import is_remote, work_root
from speechframe.old_store.lock import is_held
from speechframe.old_store.remote import Remote

_PREFIX = ".planning-"
# Whole: people have hidden folders with names like ours.
_NAME = re.compile(rf"{re.escape(_PREFIX)}[0-9a-f]{{12}}")
_LEFT_BEHIND_S = 86_400
"""Of a folder that nobody holds: planning itself holds it, putting it on another machine does not."""


def draft_parent(path: Path) -> Path:
    """Return the local folder in which a run for `path` is made before :meth:`RunFolder.move`.

    A folder that is there takes the draft in: only there is what is moved certain to be on its disk.
    """
    if isinstance(path, Remote):
        return work_root() / "new"
    path = path.absolute()
    return path if path.is_dir() else path.parent


def is_draft(path: Path) -> bool:
    """Return whether a path is that of a run in the making, of a living process or a dead one.

    A folder with anything else in it is none, nor is a link: it may be somebody's own.
    """
    if is_remote(path) or not _NAME.fullmatch(path.name):
        return False
    try:
        return stat.S_ISDIR(path.lstat().st_mode) and next(others_in(path), None) is None
    except FileNotFoundError:
        return True  # its maker took it away, or some of it, at this moment


def drafts_in(folder: Path) -> list[Path]:
    """Return the runs in the making that lie in a local folder."""
    return [path for path in sorted(folder.glob(f"{_PREFIX}*")) if is_draft(path)]


@contextmanager
def draft_in(parent: Path) -> Iterator[Path]:
    """Make a folder in `parent` for the block; drafts of processes that were killed long ago go.

    Raises
    ------
    OSError
        When it cannot be made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep_drafts(parent)
    # Not tempfile: a run that others are to read has the mode and group that a new folder has here.
    draft = parent / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    draft.mkdir()
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sweep_drafts(folder: Path) -> None:
    """Remove the drafts in a local folder whose processes were killed long ago."""
    for path in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # its maker was faster
            is_old = time.time() - path.lstat().st_mtime > _LEFT_BEHIND_S
            if is_old and not is_held(path) and is_draft(path):
                shutil.rmtree(path, ignore_errors=True)
