"""What a run folder holds, by name: everything else in it is somebody else's."""

import re
from collections.abc import Iterator
from pathlib import Path

from speechframe.old_store import aligned, clips, ledger, log, parts, reviews, table
from speechframe.old_store.lock import HOLDER_NAME, LOCK_NAME
from speechframe.old_store.manifest import FILE_NAME

ROOMS = (table.FOLDER_NAME, log.FOLDER_NAME, parts.FOLDER_NAME, ledger.FOLDER_NAME)
"""What a run has from the beginning."""


def _any_of(*names: str) -> str:
    return f"({'|'.join(map(re.escape, names))})"


_FILES = _any_of(FILE_NAME, LOCK_NAME, HOLDER_NAME, reviews.FILE_NAME, reviews.LOCK_NAME, reviews.DRAFT_NAME)
_TABLES = _any_of(table.FOLDER_NAME, parts.FOLDER_NAME, ledger.FOLDER_NAME, aligned.FOLDER_NAME)
_CLIPS, _LOG = _any_of(clips.FOLDER_NAME), _any_of(log.FOLDER_NAME)
_OF_A_RUN = re.compile(
    rf"{_FILES}|{_TABLES}(/[^/]+\.parquet)?|{_CLIPS}(/[0-9a-f]{{64}})?|{_LOG}(/\w+(/\d+\.log)?)?"
    r"|([\w/]+/)?\.[^/]+\.tmp"
)
"""Paths a run has below its folder; unfinished files begin with a dot."""


def others_in(folder: Path) -> Iterator[str]:
    """Yield the names of what lies below a local folder and is nothing of a run, in no order.

    A link is nothing of a run, whatever its name: what it points to may be anybody's.
    """
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not _OF_A_RUN.fullmatch(name):
            yield name
