"""Taking a run away: what this package wrote, and nothing else that is in its folder."""

import re
from collections.abc import Iterator
from pathlib import Path

from speechframe.errors import NotARun, RunMismatch, StoreError
from speechframe.store.folder import HOLDER, LOCK, RUN_FILE, Folder, read_manifest, storing
from speechframe.store.journal import LOG
from speechframe.store.parts import ATTEMPTS, FAILED, PARTS
from speechframe.store.records import WORDS_FOLDER
from speechframe.store.reviews import FILE as REVIEWS
from speechframe.store.reviews import LOCK as REVIEWS_LOCK
from speechframe.store.verify import CLIPS_FOLDER

_TABLE_FOLDERS = ("input", PARTS, FAILED, ATTEMPTS, WORDS_FOLDER)
_OURS = re.compile(
    rf"({'|'.join(_TABLE_FOLDERS)})/\d+\.parquet|{LOG}/\d+\.(jsonl|bytes)|{CLIPS_FOLDER}/[0-9a-f]{{64}}(\.\w+)?"
    rf"|{re.escape(REVIEWS)}|{re.escape(REVIEWS_LOCK)}|([\w/]+/)?\.[^/]+\.tmp"
)


def remove_run(folder: Folder) -> list[str]:
    """Remove a run's files, and its folder when nothing else is in it; return what others wrote, and is left.

    Links are never followed, and stay. After an error it is still a run, so that it can be tried again.
    """
    path = folder.path
    if folder.work != path:
        raise StoreError(f"{path} is not on this machine: remove it with the tools of its store")
    if path.is_symlink():
        raise StoreError(f"{path} is a symbolic link: name the folder it points to, {path.resolve()}")
    try:
        read_manifest(folder)
    except (NotARun, RunMismatch):
        raise
    except StoreError:
        # A damaged run.json may be somebody else's file of that name.
        if not all((path / name).is_dir() for name in ("input", ATTEMPTS)):
            raise
    with storing(folder, "removing the run"):
        with folder.lock():
            for name in filter(_OURS.fullmatch, _files(path)):
                if not (path / name).is_symlink():
                    (path / name).unlink()
            for name in (*_TABLE_FOLDERS, LOG, CLIPS_FOLDER):
                _remove_empty(path / name)
            # Last what makes a folder a run, and then what keeps others from writing to it.
            for name in (RUN_FILE, HOLDER, LOCK):
                (path / name).unlink(missing_ok=True)
        left = sorted(_files(path))
        _remove_empty(path)
    return left


def _files(folder: Path) -> Iterator[str]:
    """Yield what is in a folder at any depth by its name below it; links as they are, empty folders not."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir()):
        folder.rmdir()
