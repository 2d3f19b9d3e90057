"""A run in the making: in a folder that no reader looks for, until it is whole and gets its place."""

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from speechframe.store.locate import work_root
from speechframe.store.lock import is_held
from speechframe.store.remote import Remote

_PREFIX = ".planning-"
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
    """Return whether a folder is a run in the making, of a living process or a dead one."""
    return path.name.startswith(_PREFIX)


@contextmanager
def draft_in(parent: Path) -> Iterator[Path]:
    """Make a folder in `parent` for the block; drafts of processes that were killed long ago go.

    Raises
    ------
    OSError
        When it cannot be made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    # Not tempfile: a run that others are to read has the mode and group that a new folder has here.
    draft = parent / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    draft.mkdir()
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for draft in parent.glob(f"{_PREFIX}*"):
        try:
            is_old = time.time() - draft.stat().st_mtime > _LEFT_BEHIND_S
        except OSError:
            continue  # its maker was faster
        if is_old and not is_held(draft):
            shutil.rmtree(draft, ignore_errors=True)
