"""Files that are whole or not there: temporary name, fsync, rename, fsync of the folder."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speechframe.errors import StoreError
from speechframe.old_store.holder import HOLDER_NAME
from speechframe.old_store.remote import RangeFile, Remote, Unreachable

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_NO_FOLDER = frozenset({errno.ENOTDIR, errno.ENOENT, errno.EEXIST})


def store_error(folder: Path, doing: str, error: OSError) -> StoreError:
    """Return `error` in words that name the folder and say what to do."""
    if _is_untouched(folder) and error.errno not in _FULL:
        what, hint = str(error), "nothing was sent; check the address and this machine's credentials"
    elif isinstance(error, Unreachable):
        what = str(error)
        hint = "nothing that was acknowledged is lost, it is in this machine's log; go on when it answers"
    elif error.errno in _FULL:
        what = os.strerror(error.errno)
        hint = "make room and run again: everything that was acknowledged is still in the folder"
    elif error.errno in _REFUSED:
        what = os.strerror(error.errno)
        hint = "make the folder writable, or choose another run_dir"
    elif error.errno in _NO_FOLDER:
        what = os.strerror(error.errno)
        hint = "choose another run_dir, or put back what is missing there"
    else:
        what, hint = str(error), "everything that was acknowledged is still in the folder"
    return StoreError(f"{folder}: {doing} failed ({what}); {hint}")


def _is_untouched(folder: Path) -> bool:
    """Return whether a folder is remote and this machine never wrote to a run there."""
    return isinstance(folder, Remote) and (folder.work is None or not (folder.work / HOLDER_NAME).exists())


@contextmanager
def storing(folder: Path, doing: str) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError that names `folder`."""
    try:
        yield
    except OSError as error:
        raise store_error(folder, doing, error) from error


def temp_path(final: Path) -> Path:
    """Return the name of a file while it is written: a dot keeps it out of every glob.

    What goes to a remote folder is written on this machine.
    """
    if isinstance(final, Remote):
        return final.draft()
    return final.with_name(f".{final.name}.tmp")


def sync_file(path: Path) -> None:
    """Wait until the file's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


sync_folder = sync_file
"""The same call makes a folder's names durable."""


def publish(final: Path) -> None:
    """Give the finished temporary file of `final` its name; afterwards both survive a power cut."""
    temp = temp_path(final)
    if isinstance(final, Remote):
        final.put(temp)
        temp.unlink()
        return
    sync_file(temp)
    temp.replace(final)
    sync_folder(final.parent)


def discard(path: Path) -> None:
    """Remove a file so that it stays removed after a power cut."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_whole(final: Path, content: bytes) -> None:
    """Replace a small file by `content`; a reader sees the old or the new one."""
    temp_path(final).write_bytes(content)
    publish(final)


def private_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into; one that is there keeps its mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def private_file(path: Path) -> None:
    """Make an empty file that only its owner can read, whatever the umask is and stood there before."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)


def write_private(final: Path, content: bytes) -> None:
    """Do as :func:`write_whole` does, in a file that only its owner can read."""
    private_file(temp_path(final))
    write_whole(final, content)


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed writer left under a temporary name."""
    if isinstance(folder, Remote):
        for draft in folder.draft().parent.iterdir():
            draft.unlink()
    for path in folder.glob(".*.tmp"):
        path.unlink()


def readable(path: Path) -> Any:
    """Return what pyarrow reads `path` by."""
    if isinstance(path, Remote):
        return RangeFile(path)
    return path
