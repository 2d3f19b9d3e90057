"""The folder of a run at an address such as ``s3://bucket/run``.

Files at an address are uploaded whole and never changed in place. The journal, the lock and unfinished files
stay on this machine, in ``~/.local/state/speechframe/remote``. So a crashed run can be read from any machine,
but must be resumed on the machine that wrote it. A small lock file at the address names the machine that
writes to the run, or that crashed while it wrote. Other machines refuse to write as long as this file exists.
"""

import hashlib
import io
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tenacity import RetryCallState, retry, retry_if_not_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from speechframe.errors import RunLocked, StoreError
from speechframe.store.folder import RUN_FILE, Folder, convert_os_errors, describe_process, parse_holder

LOCK_FILE, TOKEN_FILE = "lock.json", "token"
"""The lock file at the address, and the file on this machine with the random text that identifies its
locks."""

BUCKET_PROTOCOLS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})
"""Protocols of object stores. Their paths begin with a bucket, and a file appears only when it is
complete."""

_MAX_REMOVED_AT_ONCE = 1000
"""Number of files that one request of an object store may remove."""

# Errors that a retry would get again, because they are about the file and not about the connection.
_FINAL_ERRORS = (
    FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError, ImportError,
)  # fmt: skip


def _raise_last_error(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None  # clients of stores raise any type of error
    raise OSError(f"{type(error).__name__}: {error}") from error


_retry = retry(
    stop=stop_after_attempt(6),
    wait=wait_random_exponential(0.2, 8.0),
    retry=retry_if_not_exception_type(_FINAL_ERRORS),
    retry_error_callback=_raise_last_error,
)


@dataclass(frozen=True)
class Address:
    """The address of a run or of a file.

    `text` is for people and contains no password. `on_filesystem` is the path on the filesystem of fsspec.
    """

    text: str
    on_filesystem: str

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> "Address":
        return Address(f"{self.text.rstrip('/')}/{name}", f"{self.on_filesystem.rstrip('/')}/{name}")


class RemoteFolder(Folder):
    """A run's folder at an address on a filesystem of fsspec."""

    def __init__(self, filesystem: Any, address: Address) -> None:
        super().__init__(cast("Path", address))
        self.filesystem = filesystem
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        name = hashlib.blake2b(address.text.encode(), digest_size=10).hexdigest()
        self.work = Path(state) / "speechframe" / "remote" / name
        self._puts_whole = not (BUCKET_PROTOCOLS | {"memory"}).isdisjoint(_list_protocols(filesystem))
        self._is_held = False

    def exists(self, name: str = "") -> bool:
        """Return whether a file or folder exists."""
        with convert_os_errors(self, f"looking for {name}"), suppress(FileNotFoundError, NotADirectoryError):
            self._call_filesystem("info", name)
            return True
        return False

    def _list(self, folder: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self._call_filesystem("ls", folder, detail=False)]

    def read(self, name: str) -> bytes:
        """Return the bytes of a file."""
        return bytes(self._call_filesystem("cat_file", name))

    def get_source(self, name: str) -> Any:
        """Return what pyarrow needs to read a file, here a file object."""
        size = self._call_filesystem("info", name)["size"]
        return _RangeFile(
            lambda start, end: self._call_filesystem("cat_file", name, start=start, end=end), size
        )

    def publish(self, name: str) -> None:
        """Upload the temporary file whole, under its final name."""
        if self._is_held:  # check again, because a user may have removed the lock file meanwhile
            self._check_holder()
        self._upload(self.make_temporary_path(name), self._find_remote_path(name))
        self.make_temporary_path(name).unlink()

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            self._call_filesystem("rm_file", name)

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove many files at once, as far as they exist."""
        for start in range(0, len(names), _MAX_REMOVED_AT_ONCE):
            paths = [self._find_remote_path(name) for name in names[start : start + _MAX_REMOVED_AT_ONCE]]
            with suppress(FileNotFoundError):
                self.filesystem.rm(paths)

    def put(self, name: str, content: bytes, mode: str = "overwrite") -> None:
        """Upload a small file. With the mode ``create``, FileExistsError is raised if the file exists."""
        if not self._puts_whole:
            self.filesystem.makedirs(self._find_remote_path(name).rpartition("/")[0], exist_ok=True)
        self._call_filesystem("pipe_file", name, content, mode=mode)

    def claim(self, name: str) -> bool:
        """Create an empty file. Return False if the file exists, so that only one process gets True."""
        try:
            self.put(name, b"", mode="create")
        except FileExistsError:
            return False
        return True

    @_retry
    def _upload(self, temporary: Path, path: str) -> None:
        draft = path
        if not self._puts_whole:
            parent, _, last = path.rpartition("/")
            draft = f"{parent}/.{last}.tmp"
            self.filesystem.makedirs(parent, exist_ok=True)
        self.filesystem.put_file(str(temporary), draft)
        self.filesystem.invalidate_cache(draft)
        found, size = self.filesystem.info(draft)["size"], temporary.stat().st_size
        if found != size:
            raise OSError(f"{found} bytes arrived instead of {size}")
        if draft != path:
            self.filesystem.mv(draft, path)

    def _find_remote_path(self, name: str) -> str:
        self.split_name(name)
        return cast("Address", self.path / name).on_filesystem.rstrip("/")

    @_retry
    def _call_filesystem(self, method: str, name: str, *args: Any, **options: Any) -> Any:
        """Clear the filesystem's cache of a file, then call a method of the filesystem for the file."""
        path = self._find_remote_path(name)
        self.filesystem.invalidate_cache(path)
        return getattr(self.filesystem, method)(path, *args, **options)

    # -- one writer ------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the run for this writer, against all machines. Raise RunLocked if the lock is taken."""
        with super().lock():
            with convert_os_errors(self, "taking the run's lock"):
                self._take_remote_lock()
                log = self.work / "log"
                if log.exists() and not self.exists(RUN_FILE):
                    # The run was removed at its address. Put its journal aside, so that no other run
                    # continues it.
                    log.rename(self.work / f"log-of-a-removed-run-{secrets.token_hex(4)}")
            self._is_held = True
            try:
                yield
            finally:
                self._is_held = False
                # If the lock file cannot be removed, only this machine can lock the run again.
                with suppress(OSError, RunLocked):
                    self._check_holder()
                    self._call_filesystem("rm_file", LOCK_FILE)

    @property
    def is_locked(self) -> bool:
        """True if a process writes to the run, or crashed while writing on another machine."""
        return super().is_locked or self._read_holder().get("token", self._token) != self._token

    def _take_remote_lock(self) -> None:
        if not self._token:
            self.find_path(TOKEN_FILE).write_text(secrets.token_hex(16))
        content = json.dumps({**describe_process(), "token": self._token}).encode()
        with suppress(FileExistsError):
            self.put(LOCK_FILE, content, mode="create")
        # The lock file may exist already. It may be this machine's, from a killed process or from an attempt
        # whose answer was lost.
        self._check_holder()
        # Write the file again, because workers of a killed process end once they see another holder.
        self.put(LOCK_FILE, content)

    def describe_lock(self) -> str:
        """Return a text that identifies the process that wrote the lock file, dead or alive."""
        return json.dumps(self._read_holder(), sort_keys=True)

    def _check_holder(self) -> None:
        if self._read_holder().get("token") != self._token:
            raise RunLocked(
                f"{self._describe_holder()}; if it is dead and the run cannot be resumed on that machine, "
                f"remove {LOCK_FILE}: answers that were paid but not uploaded yet are then paid again"
            )

    @property
    def _token(self) -> str:
        """Random text that identifies locks of this machine for this run. Empty before the first lock."""
        token = self.work / TOKEN_FILE
        return token.read_text() if token.exists() else ""

    def _read_holder(self) -> dict[str, Any]:
        try:
            return parse_holder(self.read(LOCK_FILE))
        except FileNotFoundError:
            return {}


class _RangeFile(io.RawIOBase):
    """A remote file that pyarrow can read. Each read is one request, which is retried after errors."""

    def __init__(self, read_range: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size, self._position = read_range, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._position + size, self._size)
        content = self._read(self._position, end) if end > self._position else b""
        self._position += len(content)
        return content


def open_remote_folder(address: str) -> Folder:
    """Return the folder at an address of any filesystem that fsspec supports."""
    protocol, _, rest = address.partition("://")
    if re.match("[^/]*:[^/]*@", rest):  # the message leaves out the rest, because it contains a password
        raise StoreError(
            f"the address of a run ({protocol}://...) must be protocol://host/folder, with no password: give "
            "the password in the configuration of fsspec"
        )
    try:
        import fsspec

        found = fsspec.url_to_fs(f"{protocol.lower()}://{rest}")
    except Exception as error:  # some filesystems connect or read here, and raise any type of error
        raise StoreError(
            f"{address} cannot be used as the address of a run ({type(error).__name__}: {error}): check it. "
            "It may need a library: pip install 'speechframe[s3]' for s3://, for others what fsspec names"
        ) from error
    return open_folder_on(*found)


def open_folder_on(filesystem: Any, path: str) -> Folder:
    """Return the folder at a path of a filesystem of fsspec."""
    protocols = _list_protocols(filesystem)
    stripped = str(filesystem._strip_protocol(path))  # noqa: SLF001 - the name under which fsspec documents it
    if "file" in protocols:
        return Folder(Path(stripped))
    stripped = stripped.rstrip("/")
    text = filesystem.unstrip_protocol(stripped.lstrip("/"))
    bucket, _, key = stripped.lstrip("/").partition("/")
    if key.startswith("/") and not BUCKET_PROTOCOLS.isdisjoint(protocols):
        # Object stores list a folder without a name as empty, so paid answers would never be found again.
        raise StoreError(
            f"{text} has a folder without a name; likely meant: {protocols[0]}://{bucket}/{key.lstrip('/')}"
        )
    return RemoteFolder(filesystem, Address(text, stripped))


def _list_protocols(filesystem: Any) -> tuple[str, ...]:
    """Return the protocols of a filesystem. Its addresses begin with one of them."""
    protocols = filesystem.protocol
    return (protocols,) if isinstance(protocols, str) else tuple(protocols)
