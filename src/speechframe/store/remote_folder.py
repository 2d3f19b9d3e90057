"""Runs at an address: immutable files are put there whole, everything else stays on this machine.

The journal, the lock and unfinished files are in ``~/.local/state/speechframe/remote``. So after a crash the
run is resumed on the machine that wrote it; from others it can be read. Who writes says so in a small file at
the address, and once a minute that it lives; a holder that was silent for ten minutes is taken for dead.
"""

import hashlib
import io
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from tenacity import Retrying, retry_if_not_exception_type, stop_after_attempt, wait_random_exponential

from speechframe.errors import RunLocked, StoreError
from speechframe.store.folder import Folder, storing, user_name
from speechframe.store.manifest import FILE as RUN_FILE

HOLDER = "lock.json"
BEAT_S, SILENT_S = 60.0, 600.0
ATTEMPTS, LONGEST_WAIT_S = 6, 8.0
_SETTLE_S = 1.0

BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})
"""Object stores: what comes first in a path is a bucket, and a file appears when its last byte has come."""

# What a filesystem says of the file, not of the way to it: another attempt would hear the same.
_FINAL = (
    FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError, ImportError,
)  # fmt: skip

_T = TypeVar("_T")


@dataclass(frozen=True)
class Address:
    """Where a run or a file of it is: what is used of a path.

    Parameters
    ----------
    text
        For people; never with a password.
    on_filesystem
        The path on the filesystem.
    """

    text: str
    on_filesystem: str

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> "Address":
        return Address(f"{self.text.rstrip('/')}/{name}", f"{self.on_filesystem.rstrip('/')}/{name}")

    def relative_to(self, other: Any) -> Any:
        """Raise ValueError, as a path does that is not below another."""
        raise ValueError(f"{self} is not below {other}")

    @property
    def name(self) -> str:
        """The last part."""
        return PurePosixPath(self.on_filesystem).name


class RemoteFolder(Folder):
    """A run's folder on a filesystem of fsspec.

    Parameters
    ----------
    filesystem
        The filesystem.
    address
        The folder.
    """

    def __init__(self, filesystem: Any, address: Address) -> None:
        super().__init__(cast("Path", address))
        self.filesystem = filesystem
        name = hashlib.blake2b(address.text.encode(), digest_size=10).hexdigest()
        self.work = _work_root() / name
        self._token: str | None = None
        self._said: dict[str, Any] = {}

    def exists(self, name: str = "") -> bool:
        """Return whether a file or folder is there."""
        return self._info(name) is not None

    def names(self, folder: str) -> list[str]:
        """Return the names of the Parquet files in a folder, in their order; none where it is not there."""
        path = self._on(folder)

        def listed() -> list[str]:
            self.filesystem.invalidate_cache(path)  # what others have written since must show
            return [PurePosixPath(name).name for name in self.filesystem.ls(path, detail=False)]

        with storing(self, f"reading {folder}"):
            try:
                found = self._reach(listed)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name for name in found if name.endswith(".parquet") and not name.startswith("."))

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return self._reach(lambda: cast("bytes", self.filesystem.cat_file(self._on(name))))

    def source(self, name: str) -> Any:
        """Return what pyarrow reads a file by."""
        return _RangeFile(self, name)

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Return some of the bytes of a file."""
        path = self._on(name)
        return self._reach(lambda: cast("bytes", self.filesystem.cat_file(path, start=start, end=end)))

    def size(self, name: str) -> int:
        """Return the length of a file in bytes."""
        if (info := self._info(name)) is None:
            raise FileNotFoundError(f"{self.path}/{name} is not there")
        return int(info["size"])

    def temporary(self, name: str) -> Path:
        """Return where a file is written on this machine until :meth:`publish`."""
        drafts = self.work / "drafts"
        drafts.mkdir(parents=True, exist_ok=True)
        return drafts / name.replace("/", "-")

    def publish(self, name: str) -> None:
        """Put the temporary file there whole, under its name."""
        if self._token is not None:
            self._check_holder()
        temporary = self.temporary(name)
        size = temporary.stat().st_size
        self._reach(lambda: self._put(temporary, name, size))
        temporary.unlink()

    def _put(self, temporary: Path, name: str, size: int) -> None:
        path = self._on(name)
        if self._puts_whole:
            self.filesystem.put_file(str(temporary), path)
        else:
            parent, _, last = path.rpartition("/")
            draft = f"{parent}/.{last}.tmp"
            self.filesystem.makedirs(parent, exist_ok=True)
            self.filesystem.put_file(str(temporary), draft)
            self._check_size(draft, size)
            self.filesystem.mv(draft, path)
        self._check_size(path, size)

    def _check_size(self, path: str, size: int) -> None:
        self.filesystem.invalidate_cache(path)
        found = self.filesystem.info(path)["size"]
        if found != size:
            raise OSError(f"{found} bytes arrived instead of {size}")

    @property
    def _puts_whole(self) -> bool:
        return not (BUCKETS | {"memory"}).isdisjoint(protocols_of(self.filesystem))

    def remove(self, name: str) -> None:
        """Remove a file; nothing where there is none."""
        with suppress(FileNotFoundError):
            self._reach(lambda: self.filesystem.rm_file(self._on(name)))

    def _info(self, name: str) -> dict[str, Any] | None:
        path = self._on(name)

        def ask() -> dict[str, Any]:
            self.filesystem.invalidate_cache(path)
            return cast("dict[str, Any]", self.filesystem.info(path))

        try:
            return self._reach(ask)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _on(self, name: str) -> str:
        path = cast("Address", self.path)
        return (path / name).on_filesystem if name else path.on_filesystem

    def _reach(self, call: Callable[[], _T]) -> _T:
        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(0.2, LONGEST_WAIT_S),
            retry=retry_if_not_exception_type(_FINAL),
            reraise=True,
        )
        try:
            return retrying(call)
        except _FINAL:
            raise
        except Exception as error:  # clients of stores raise what they like
            raise OSError(f"{type(error).__name__}: {error}") from error

    # -- one writer ------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer, of all machines.

        Raises
        ------
        RunLocked
            When another process is, here or on another machine; it says which.
        """
        with super().lock():
            with storing(self, "taking the run's lock"):
                self._take()
                self._set_aside()
            done = threading.Event()
            beating = threading.Thread(
                target=self._beat, args=(done,), name="speechframe-holder", daemon=True
            )
            beating.start()
            try:
                yield
            finally:
                done.set()
                beating.join()
                self._release()

    @property
    def is_locked(self) -> bool:
        """Whether a living process writes to it, here or on another machine."""
        if super().is_locked:
            return True
        holder = self._holder()
        return bool(holder) and holder.get("machine") != _machine() and not _is_silent(holder)

    def _take(self) -> None:
        self._token, since = secrets.token_hex(8), _seconds()
        self._said = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "user": user_name(),
            "machine": _machine(),
            "token": self._token,
            "since": datetime.fromtimestamp(since, UTC).isoformat(),
        }
        if self._claim():
            return
        holder = self._holder()
        is_ours = holder.get("machine") == _machine()  # then it is dead: this machine's lock is ours
        if holder and not is_ours and not _is_silent(holder):
            raise RunLocked(self._held_elsewhere(holder))
        self._say()
        if not is_ours:
            time.sleep(_SETTLE_S)  # another one may be taking over, too
        self._check_holder()

    def _claim(self) -> bool:
        """Put the holder's file if there is none; return whether it is ours."""
        path, content = self._on(HOLDER), self._sign()
        try:
            if not self._puts_whole:
                self._reach(lambda: self.filesystem.makedirs(self._on(""), exist_ok=True))
            self._reach(lambda: self.filesystem.pipe_file(path, content, mode="create"))
        except FileExistsError:
            pass  # perhaps by a first attempt of this process, whose answer was lost
        return self._holder().get("token") == self._token

    def _sign(self) -> bytes:
        return json.dumps({**self._said, "at": _seconds()}).encode()

    def _say(self) -> None:
        self._reach(lambda: self.filesystem.pipe_file(self._on(HOLDER), self._sign()))

    def _holder(self) -> dict[str, Any]:
        try:
            found = json.loads(self.read(HOLDER))
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _check_holder(self) -> None:
        holder = self._holder()
        if holder.get("token") != self._token:
            raise RunLocked(self._held_elsewhere(holder))

    def _beat(self, done: threading.Event) -> None:
        while not done.wait(BEAT_S):
            with suppress(OSError, StoreError):  # the writer finds out by itself before its next file
                self._check_holder()
                self._say()

    def _release(self) -> None:
        with suppress(OSError, StoreError):  # what cannot be said now, silence will say
            self._check_holder()
            self.remove(HOLDER)
        self._token = None

    def _held_elsewhere(self, holder: dict[str, Any]) -> str:
        if not holder:
            return (
                f"{self.path}: {HOLDER} was removed while the run was written, so another machine may write "
                "it now; nothing more is put there, and what was paid is on this machine: resume the run"
            )
        who = f"process {holder.get('pid')} of {holder.get('user')} on {holder.get('host')}"
        return (
            f"{self.path} is being written by {who} since {holder.get('since')}: wait for its end, or choose "
            f"another run_dir; if it is dead, the run is free {SILENT_S / 60:.0f} minutes after its last sign"
        )

    def _set_aside(self) -> None:
        """Move a journal away whose run is no longer at the address, so that no other run takes it up."""
        log = self.work / "log"
        if log.exists() and not self.exists(RUN_FILE):
            log.rename(self.work / f"log-of-a-removed-run-{secrets.token_hex(4)}")


class _RangeFile(io.RawIOBase):
    """A remote file for pyarrow: each read is one request, repeated when it fails."""

    def __init__(self, folder: RemoteFolder, name: str) -> None:
        self._folder, self._name = folder, name
        self._size, self._position = folder.size(name), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = (
            offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        )
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._position + size, self._size)
        content = self._folder.read_range(self._name, self._position, end) if end > self._position else b""
        self._position += len(content)
        return content


def protocols_of(filesystem: Any) -> tuple[str, ...]:
    """Return what addresses on a filesystem may begin with."""
    said = filesystem.protocol
    return (said,) if isinstance(said, str) else tuple(said)


def _work_root() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "speechframe" / "remote"


def _machine() -> str:
    """Return what tells this machine and user apart: its name, and a number beside its journals and locks."""
    path = _work_root() / "machine"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".machine-{secrets.token_hex(8)}")
        draft.write_text(secrets.token_hex(16))
        with suppress(FileExistsError):
            path.hardlink_to(draft)
        draft.unlink()
    return f"{socket.gethostname()} {path.read_text()}"


def _seconds() -> float:
    return round(time.time(), 3)


def _is_silent(holder: dict[str, Any]) -> bool:
    at = holder.get("at")
    return not isinstance(at, (int, float)) or _seconds() - at > SILENT_S
