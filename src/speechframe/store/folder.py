"""The folder of a run: files that are whole or not there, and one writer at a time."""

import errno
import fcntl
import getpass
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout

from speechframe.errors import RunLocked, StoreError

LOCK, HOLDER = "lock", "holder.json"
_LOOK_S = 0.1
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Folder:
    """A run's folder on this machine; `speechframe.store.remote` has one that lies elsewhere.

    Names of files are relative, with ``/`` between them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path  # what people call it
        self.work = path  # on this machine: where the journal, the lock and unfinished files lie

    def __str__(self) -> str:
        return str(self.path)

    def inside(self, name: str | Path) -> Path:
        """Return the path of a file on this machine; StoreError where a link leads out of the folder."""
        path = self.work / name
        if path.is_symlink() or (path.parent != self.work and path.parent.is_symlink()):
            raise StoreError(
                f"{path} is a link; a run's files lie in its own folder: put the file itself there"
            )
        return path

    def exists(self, name: str = "") -> bool:
        """Return whether a file or folder is there."""
        return (self.path / name).exists()

    def names(self, folder: str) -> list[str]:
        """Return the names of the Parquet files in a folder, in their order; none where it is not there."""
        with storing(self, f"reading {folder}"):
            try:
                found = self._listed(folder)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name for name in found if name.endswith(".parquet") and not name.startswith("."))

    def _listed(self, folder: str) -> list[str]:
        return [path.name for path in self.inside(folder).iterdir()]

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; FileNotFoundError when it is not there."""
        return self.inside(name).read_bytes()

    def source(self, name: str) -> Any:
        """Return what pyarrow reads a file by."""
        return self.inside(name)

    def temporary(self, name: str) -> Path:
        """Return where a file is written until :meth:`publish`; a dot keeps it out of every glob."""
        final = self.inside(name)
        final.parent.mkdir(parents=True, exist_ok=True)
        return self.inside(Path(name).with_name(f".{final.name}.tmp"))

    def publish(self, name: str) -> None:
        """Give the temporary file its name; afterwards it survives a power cut."""
        temporary, final = self.temporary(name), self.inside(name)
        sync(temporary)
        temporary.replace(final)
        sync(final.parent)

    def write(self, name: str, content: bytes) -> None:
        """Write a file as a whole: whoever reads it sees the old or the new content."""
        self.temporary(name).write_bytes(content)
        self.publish(name)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer; RunLocked, which says who is, when another process or thread is."""
        with ExitStack() as stack:
            with storing(self, "taking the run's lock"):
                self.work.mkdir(parents=True, exist_ok=True)
                # thread_local=False: the thread that ends a run is often not the one that began it.
                lock = FileLock(
                    self.inside(LOCK), timeout=_LOOK_S, poll_interval=_LOOK_S / 5, thread_local=False
                )
                try:
                    stack.enter_context(lock)
                except Timeout:
                    raise RunLocked(self._held_by()) from None
                self.inside(HOLDER).write_text(json.dumps(this_process()))
            yield

    @property
    def is_locked(self) -> bool:
        """Whether a living process of this machine writes to it."""
        try:
            with (self.work / LOCK).open("rb") as file:
                # Shared: two that look do not see each other.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _holder(self) -> dict[str, Any]:
        """Return what the holder of the lock says of itself; nothing where that cannot be read."""
        try:
            return cast("dict[str, Any]", json.loads((self.work / HOLDER).read_bytes()))
        except (OSError, ValueError):
            return {}

    def _held_by(self) -> str:
        who = "another process"
        if holder := self._holder():
            who = f"process {holder['pid']} of {holder['user']} on {holder['host']} since {holder['since']}"
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
        hint = "everything that was paid is still there; mend it and run again, or choose another folder"
        if error.errno in _FULL:
            hint = "make room and run again: everything that was paid is still there"
        raise StoreError(f"{place}: {doing} failed ({error}); {hint}") from error


def user_name() -> str:
    """Return who runs this process, as far as the machine knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def this_process() -> dict[str, Any]:
    """Return what tells others who holds a lock."""
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return {"pid": os.getpid(), "user": user_name(), "host": socket.gethostname(), "since": since}
