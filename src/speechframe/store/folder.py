"""The folder of a run: files that are whole or not there, and one writer at a time."""

import errno
import fcntl
import getpass
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from speechframe.errors import RunLocked, StoreError

LOCK, HOLDER = "lock", "holder.json"
_LOOK_S = 0.1
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Folder:
    """A run's folder on this machine; `speechframe.store.remote` has one that lies elsewhere.

    Names are relative, with ``/`` between them.

    Parameters
    ----------
    path
        The folder.

    Attributes
    ----------
    path
        What people call it.
    work
        Where the journal, the lock and unfinished files lie: on this machine.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path

    def __str__(self) -> str:
        return str(self.path)

    def exists(self, name: str = "") -> bool:
        """Return whether a file or folder is there."""
        return (self.path / name).exists()

    def names(self, folder: str) -> list[str]:
        """Return the names of the Parquet files in a folder, in their order; none where it is not there."""
        with storing(self, f"reading {folder}"):
            try:
                found = [path.name for path in (self.path / folder).iterdir()]
            except FileNotFoundError:
                return []
        return sorted(name for name in found if name.endswith(".parquet") and not name.startswith("."))

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        Raises
        ------
        FileNotFoundError
            When it is not there.
        """
        return self.inside(name).read_bytes()

    def source(self, name: str) -> Any:
        """Return what pyarrow reads a file by."""
        return self.inside(name)

    def temporary(self, name: str) -> Path:
        """Return where a file is written until :meth:`publish`; a dot keeps it out of every glob."""
        final = self.path / name
        final.parent.mkdir(parents=True, exist_ok=True)
        return final.with_name(f".{final.name}.tmp")

    def publish(self, name: str) -> None:
        """Give the temporary file its name; afterwards it survives a power cut."""
        temporary = self.temporary(name)
        sync(temporary)
        temporary.replace(self.path / name)
        sync((self.path / name).parent)

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole: whoever reads it sees the old or the new content."""
        self.temporary(name).write_bytes(content)
        self.publish(name)

    def remove(self, name: str) -> None:
        """Remove a file; nothing where there is none."""
        self.inside(name).unlink(missing_ok=True)

    def inside(self, name: str) -> Path:
        """Return the path of a file of the run.

        Raises
        ------
        StoreError
            When a link leads out of the folder: nothing is read or removed there.
        """
        path = self.path / name
        if path.is_symlink() or (path.parent != self.path and path.parent.is_symlink()):
            raise StoreError(
                f"{path} is a link; a run's files lie in its own folder: put the file itself there"
            )
        return path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer.

        Raises
        ------
        RunLocked
            When another process or thread is; it says which.
        """
        with storing(self, "taking the run's lock"):
            self.work.mkdir(parents=True, exist_ok=True)
            # thread_local=False: the thread that ends a run is often not the one that began it.
            lock = FileLock(self.work / LOCK, timeout=_LOOK_S, poll_interval=_LOOK_S / 5, thread_local=False)
            try:
                lock.acquire()
            except Timeout:
                raise RunLocked(self._held_by()) from None
        try:
            with storing(self, "taking the run's lock"):
                (self.work / HOLDER).write_text(json.dumps(_this_process()))
            yield
        finally:
            lock.release()

    @property
    def is_locked(self) -> bool:
        """Whether a living process of this machine writes to it."""
        try:
            descriptor = os.open(self.work / LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            # Shared: two that look do not see each other.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _held_by(self) -> str:
        try:
            holder = json.loads((self.work / HOLDER).read_text())
            who = f"process {holder['pid']} of {holder['user']} on {holder['host']} since {holder['since']}"
        except (OSError, ValueError, LookupError):
            who = "another process"
        return f"{self.path} is being written by {who}: wait for its end, or choose another run_dir"


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storing(place: Folder | Path, doing: str) -> Iterator[None]:
    """Turn an OSError into a StoreError that names the folder or file and says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            hint = "make room and run again: everything that was paid is still there"
        else:
            hint = "everything that was paid is still there; mend it and run again, or choose another run_dir"
        raise StoreError(f"{place}: {doing} failed ({error}); {hint}") from error


def user_name() -> str:
    """Return who runs this process, as far as the machine knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def _this_process() -> dict[str, Any]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "user": user_name(), "host": socket.gethostname(), "since": since}
