"""Media files on disk for as long as a request needs them.

Each service process has a folder of its own. No index lists its files, and no address leads to them. A file
is removed when its request ends. The folder of a killed process is removed when another process starts.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from speechframe.local.service.http.threads import KeyThreads

log = logging.getLogger("speechframe.service")

FOLDER = "uploads"

_BLOCK_BYTES = 1 << 18
_SLOWEST_BYTES_S = 16 * 1024


class TooLarge(Exception):
    """The file is larger than the limit."""


class NotKept(Exception):
    """The file cannot be written, for example because the disk is full.

    Parameters
    ----------
    why
        The reason, as the system words it.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class TooSlow(Exception):
    """The sender stalled, or sends too slowly."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that arrived whole.

    Parameters
    ----------
    path
        Path of the file. It has no extension, so that nobody guesses the format from one.
    size_bytes, sha256
        Size and hash of the content.
    file_name
        Name that the sender gives, for people only. Empty if there is none.
    """

    path: Path
    size_bytes: int
    sha256: bytes
    file_name: str = ""


class Uploads:
    """The folder of one service process.

    Parameters
    ----------
    data
        The data folder.
    owner
        The name of the process, as in :mod:`~speechframe.local.service.books.owners`.
    """

    def __init__(self, data: Path, owner: str) -> None:
        self._all = data / FOLDER
        self._own = self._all / owner
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lent(self) -> Iterator[Path]:
        """Lend a path for a file. A file at this path is removed at the end of the block."""
        path = self._own / secrets.token_hex(16)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def sweep(self, is_dead: Callable[[str], bool]) -> int:
        """Remove the folders of dead processes. Return the number of folders."""
        left = [path for path in self._all.iterdir() if path != self._own and is_dead(path.name)]
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        return len(left)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._own, ignore_errors=True)


class Receiver:
    """Writes a file piece by piece, up to a limit.

    Parameters
    ----------
    path
        A name that :meth:`Uploads.lent` lent.
    limit_bytes
        The largest file that is accepted.
    threads
        Write the file. They belong to the key that sends it.

    Raises
    ------
    NotKept
        When no file can be made.
    """

    def __init__(self, path: Path, limit_bytes: int, threads: KeyThreads) -> None:
        self._path, self._threads = path, threads
        self._limit_bytes = limit_bytes
        self._hash = hashlib.sha256()
        self._size_bytes = 0
        self._waiting = bytearray()
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _not_kept(error) from None
        self._file = os.fdopen(file, "wb", buffering=0)

    def check(self, declared_bytes: int) -> None:
        """Raise :class:`TooLarge` if the announced size is above the limit."""
        if declared_bytes > self._limit_bytes:
            raise TooLarge

    async def write(self, data: bytes) -> None:
        """Take a piece.

        Raises
        ------
        TooLarge
            With the piece that passes the limit; nothing of it is written.
        NotKept
            When it cannot be written.
        """
        self._size_bytes += len(data)
        if self._size_bytes > self._limit_bytes:
            raise TooLarge
        self._waiting += data
        if len(self._waiting) >= _BLOCK_BYTES:
            await self._flush()

    async def finish(self) -> ReceivedFile:
        """Return the finished file. Raise the same errors as :meth:`write`."""
        await self._flush()
        self.close()
        return ReceivedFile(self._path, self._size_bytes, self._hash.digest())

    async def _flush(self) -> None:
        block, self._waiting = bytes(self._waiting), bytearray()
        # A slow disk makes its writers wait, so this runs in a thread.
        writing = asyncio.ensure_future(self._threads.run(self._keep, block))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # The thread cannot be stopped, and the file may not be closed under it.
            await asyncio.wait([writing])
            raise

    def _keep(self, block: bytes) -> None:
        self._hash.update(block)
        left = memoryview(block)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise _not_kept(error) from None

    def close(self) -> None:
        """Close the file, finished or not."""
        self._file.close()


def _not_kept(error: OSError) -> NotKept:
    why = error.strerror or type(error).__name__
    log.error("an upload cannot be kept: %s", why)
    return NotKept(why)


class UploadPace:
    """Bounds the time that a file may take to arrive over a network.

    Parameters
    ----------
    pause_s
        The longest pause in seconds. The whole file may take this long, and a second for every 16 KB.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._started = asyncio.get_running_loop().time()
        self._size_bytes = 0

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Limit the time that the block may take.

        Raises
        ------
        TooSlow
            The block takes longer.
        """
        now = asyncio.get_running_loop().time()
        end = self._started + self._pause_s + self._size_bytes / _SLOWEST_BYTES_S
        try:
            async with asyncio.timeout_at(min(now + self._pause_s, end)):
                yield
        except TimeoutError:
            raise TooSlow from None

    def count(self, size_bytes: int) -> None:
        """Count bytes that have arrived."""
        self._size_bytes += size_bytes
