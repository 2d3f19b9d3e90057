"""Folders on another machine: the few things a run needs of them, whole or not at all.

A file is put under its name in one step or it is not there. Object stores do
that by themselves; elsewhere it is put under another name and moved. Nothing is
ever written through an open stream to its final name: an exception inside one
publishes a truncated file.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from speechframe.errors import StoreError

ATTEMPTS = 6
LONGEST_WAIT_SECONDS = 8.0

_T = TypeVar("_T")

# What filesystems say of a file that is another one when the file is: each says some of it.
_VERSION = ("name", "size", "ETag", "etag", "LastModified", "mtime", "created")

BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"})
"""Object stores: what comes first in a path is a bucket, the rest is an object's name, slashes and all."""

# Their files appear whole when the last byte has come, in place of what had that name.
_PUTS_WHOLE = BUCKETS | {"memory"}

# Said by the filesystem of the file, not of the way to it: no later attempt would hear anything else.
_FINAL = (
    FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError, ImportError,
)  # fmt: skip


class Unreachable(OSError):
    """A remote folder that did not answer, after several attempts."""


class _Passing(Exception):
    """An error that may be gone at the next attempt."""


@dataclass(frozen=True)
class Remote:
    """A path on an fsspec filesystem; what the store uses of :class:`pathlib.Path`, and :meth:`put`.

    Parameters
    ----------
    fs
        The filesystem.
    path
        On it, without protocol.
    address
        For people; never with a password.
    work
        The local folder that holds what is not there yet.
    """

    fs: Any
    path: str
    address: str
    work: Path | None = None

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str | PurePosixPath) -> "Remote":
        return replace(
            self, path=f"{self.path.rstrip('/')}/{name}", address=f"{self.address.rstrip('/')}/{name}"
        )

    def __lt__(self, other: "Remote") -> bool:
        return self.path < other.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def stem(self) -> str:
        """The last part of the path without its suffix."""
        return PurePosixPath(self.path).stem

    @property
    def parent(self) -> "Remote":
        """The folder."""
        return replace(self, path=self.path.rpartition("/")[0], address=self.address.rpartition("/")[0])

    def with_name(self, name: str) -> "Remote":
        """Return the path of a file beside this one."""
        return self.parent / name

    def relative_to(self, folder: "Remote") -> PurePosixPath:
        """Return the path below `folder`."""
        return PurePosixPath(self.path).relative_to(folder.path)

    def expanduser(self) -> "Remote":
        """Return the path itself."""
        return self

    absolute = resolve = expanduser

    def exists(self) -> bool:
        """Return whether there is a file or a folder."""
        return self._info() is not None

    def is_file(self) -> bool:
        """Return whether it is a file."""
        return (self._info() or {}).get("type") == "file"

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        return (self._info() or {}).get("type") == "directory"

    def stat(self) -> os.stat_result:
        """Return the size; nothing else is known of every filesystem."""
        info = self._info()
        if info is None:
            raise FileNotFoundError(f"{self} is not there")
        return os.stat_result((0, 0, 0, 0, 0, 0, info["size"], 0, 0, 0))

    def _info(self) -> dict[str, Any] | None:
        def ask() -> dict[str, Any]:
            self.fs.invalidate_cache(self.path)
            return cast("dict[str, Any]", self.fs.info(self.path))

        try:
            return self._reach(ask)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _listing(self) -> list[dict[str, Any]]:
        def ask() -> list[dict[str, Any]]:
            # What others have written since must show.
            self.fs.invalidate_cache(self.path)
            return cast("list[dict[str, Any]]", self.fs.ls(self.path, detail=True))

        try:
            found = self._reach(ask)
        except (FileNotFoundError, NotADirectoryError):
            return []
        # Some stores list a folder within itself.
        return [info for info in found if info["name"].strip("/") != self.path.strip("/")]

    def iterdir(self) -> Iterator["Remote"]:
        """Yield what lies in the folder, which may be missing."""
        return iter([self / PurePosixPath(info["name"]).name for info in self._listing()])

    def glob(self, pattern: str) -> Iterator["Remote"]:
        """Yield what lies in the folder and is called like `pattern`."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def state(self) -> int:
        """Return a number that changes with what lies in the folder."""
        said = [tuple(str(info.get(name)) for name in _VERSION) for info in self._listing()]
        return hash(tuple(sorted(said)))

    def read_bytes(self, start: int | None = None, end: int | None = None) -> bytes:
        """Return the content, or a range of it."""

        def read() -> bytes:
            if not is_wrapped(self.fs):
                return cast("bytes", self.fs.cat_file(self.path, start=start, end=end))
            with self.fs.open(self.path, "rb", seekable=True) as file:
                file.seek(start or 0)
                return cast("bytes", file.read() if end is None else file.read(end - (start or 0)))

        return self._reach(read)

    def put(self, local: Path) -> None:
        """Give the content of a local file this name, in one step.

        Raises
        ------
        Unreachable
            When it could not be put, after several attempts; nothing is there under this name then, or
            what was there before.
        """
        size = local.stat().st_size
        self._reach(lambda: self._put(local, size))

    def _put(self, local: Path, size: int) -> None:
        if self._puts_whole:
            self.fs.put_file(str(local), self.path)
        else:
            draft = self._draft
            self.fs.makedirs(self.parent.path, exist_ok=True)
            self.fs.put_file(str(local), draft.path)
            self._check_size(draft.path, size)
            self.fs.mv(draft.path, self.path)
        self._check_size(self.path, size)

    @property
    def _draft(self) -> "Remote":
        return self.with_name(f".{self.name}.tmp")

    def is_surely_missing(self) -> bool:
        """Return whether the filesystem says, at the first attempt, that there is nothing under this name."""
        with suppress(Exception):  # clients of stores raise what they like
            self.fs.invalidate_cache(self.path)
            try:
                self.fs.info(self.path)
            except FileNotFoundError:
                return True
        return False

    def take_back(self) -> None:
        """Undo :meth:`put` as far as one attempt can; an empty folder may stay."""
        for name in (self.path,) if self._puts_whole else (self.path, self._draft.path):
            with suppress(Exception):  # clients of stores raise what they like
                self.fs.rm_file(name)

    def _check_size(self, path: str, size: int) -> None:
        self.fs.invalidate_cache(path)
        found = self.fs.info(path)["size"]
        if found != size:
            raise OSError(f"{found} bytes arrived instead of {size}")

    @property
    def _puts_whole(self) -> bool:
        # pyarrow's filesystems are named like the stores behind them, but write by streams.
        return not is_wrapped(self.fs) and not _PUTS_WHOLE.isdisjoint(protocols_of(self.fs))

    def claim(self, content: bytes) -> bool:
        """Make a small file that must not be there yet; return False if another one is."""
        if not self._puts_whole:
            self._reach(lambda: self.fs.makedirs(self.parent.path, exist_ok=True))
        try:
            self._reach(lambda: self.fs.pipe_file(self.path, content, mode="create"))
        except FileExistsError:
            # It may be this one: of a first attempt whose answer was lost.
            return self.read_bytes() == content
        return True

    def replace_content(self, content: bytes) -> None:
        """Replace a small file."""
        self._reach(lambda: self.fs.pipe_file(self.path, content))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file."""
        try:
            self._reach(lambda: self.fs.rm_file(self.path))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, **_: Any) -> None:
        """Do nothing: folders come with their files."""

    def draft(self) -> Path:
        """Return where a file is written before it is put here."""
        if self.work is None:
            raise StoreError(f"{self}: open the run to write to it")
        name = hashlib.blake2b(self.path.encode(), digest_size=8).hexdigest()
        folder = self.work / "drafts"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}-{self.name}"

    def _reach(self, call: Callable[[], _T]) -> _T:
        def once() -> _T:
            try:
                return call()
            except _FINAL:
                raise
            except Exception as error:  # clients of stores raise what they like
                raise _Passing from error

        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(0.2, LONGEST_WAIT_SECONDS),
            retry=retry_if_exception_type(_Passing),
            reraise=True,
        )
        try:
            return retrying(once)
        except _Passing as passing:
            error = passing.__cause__
            raise Unreachable(f"{type(error).__name__}: {error}") from error


class RangeFile:
    """A remote file for pyarrow: each read is a request of its own, repeated when it fails."""

    def __init__(self, path: Remote) -> None:
        self._path = path
        self._size = path.stat().st_size
        self._position = 0
        self.closed = False

    def size(self) -> int:
        """Return the length in bytes."""
        return self._size

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes."""
        end = self._size if size < 0 else min(self._position + size, self._size)
        content = self._path.read_bytes(self._position, end) if end > self._position else b""
        self._position += len(content)
        return content

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Read no more."""
        self.closed = True


def protocols_of(fs: Any) -> tuple[str, ...]:
    """Return what addresses on a filesystem may begin with."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def is_wrapped(fs: Any) -> bool:
    """Return whether a filesystem is one of pyarrow's."""
    return type(fs).__name__ == "ArrowFSWrapper"
