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

from aiohttp import StreamReader

from speechframe.local.service.http.threads import KeyThreads

log = logging.getLogger("speechframe.service")

FOLDER_NAME = "uploads"
"""Folder of the uploads, below the data folder."""

_BLOCK_BYTES = 1 << 18
"""Bytes that are collected before a write to disk."""
_MIN_BYTES_PER_S = 16 * 1024
"""Bytes per second that a sender must reach on average."""


class TooLarge(Exception):
    """The file is larger than the limit."""


@dataclass(eq=False)
class FileNotWritten(Exception):
    """The file cannot be written, such as on a full disk. `reason` is that of the operating system."""

    reason: str


class TooSlow(Exception):
    """The sender paused for too long, or sends too slowly on average."""


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A file that arrived completely.

    Parameters
    ----------
    path
        Path of the file. It has no extension, so no program guesses the format from the path.
    size_bytes, sha256
        Size and hash of the content.
    file_name
        Name that the sender gave. It is only shown to people. Empty if the sender gave none.
    """

    path: Path
    size_bytes: int
    sha256: bytes
    file_name: str = ""


class Uploads:
    """The folder for the uploads of one service process.

    Parameters
    ----------
    data
        The data folder of the service.
    owner
        Name of the process, as in :mod:`~speechframe.local.service.books.owners`.
    """

    def __init__(self, data: Path, owner: str) -> None:
        self._parent = data / FOLDER_NAME
        self._folder = self._parent / owner
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lend_path(self) -> Iterator[Path]:
        """Yield a new path for a file. At the end of the block, a file at this path is removed."""
        path = self._folder / secrets.token_hex(16)
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def remove_dead_folders(self, remove_lock_if_dead: Callable[[str], bool]) -> int:
        """Remove the folders of dead processes. Return the number of removed folders."""
        left = [
            path for path in self._parent.iterdir() if path != self._folder and remove_lock_if_dead(path.name)
        ]
        for path in left:
            shutil.rmtree(path, ignore_errors=True)
        return len(left)

    def close(self) -> None:
        """Remove the folder of this process."""
        shutil.rmtree(self._folder, ignore_errors=True)


class Receiver:
    """Writes a file piece by piece, up to a limit.

    Parameters
    ----------
    path
        A path from :meth:`Uploads.lend_path`.
    limit_bytes
        Size of the largest accepted file.
    threads
        Threads of the sending key. They write the file.

    Raises
    ------
    NotKept
        The file cannot be created.
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
            raise _make_not_written(error) from None
        self._file = os.fdopen(file, "wb", buffering=0)

    def check(self, declared_bytes: int) -> None:
        """Raise :class:`TooLarge` if the announced size is above the limit."""
        if declared_bytes > self._limit_bytes:
            raise TooLarge

    async def write(self, data: bytes) -> None:
        """Add a piece to the file.

        Raises
        ------
        TooLarge
            The file would exceed the limit with this piece. Nothing of the piece is written.
        NotKept
            The file cannot be written.
        """
        self._size_bytes += len(data)
        if self._size_bytes > self._limit_bytes:
            raise TooLarge
        self._waiting += data
        if len(self._waiting) >= _BLOCK_BYTES:
            await self._flush()

    async def finish(self) -> ReceivedFile:
        """Write the rest, close the file and return it.

        Raises
        ------
        NotKept
            The file cannot be written.
        """
        await self._flush()
        self.close()
        return ReceivedFile(self._path, self._size_bytes, self._hash.digest())

    async def _flush(self) -> None:
        block, self._waiting = bytes(self._waiting), bytearray()
        # A write to a slow disk blocks, so it runs in a thread.
        writing = asyncio.ensure_future(self._threads.run(self._write_block, block))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # The thread cannot be stopped, and it needs the open file. So wait for it before cancelling.
            await asyncio.wait([writing])
            raise

    def _write_block(self, block: bytes) -> None:
        self._hash.update(block)
        left = memoryview(block)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise _make_not_written(error) from None

    def close(self) -> None:
        """Close the file, complete or not."""
        self._file.close()


def _make_not_written(error: OSError) -> FileNotWritten:
    why = error.strerror or type(error).__name__
    log.error("an upload cannot be written: %s", why)
    return FileNotWritten(why)


class UploadPace:
    """Bounds the time that a file may take to arrive over a network.

    Parameters
    ----------
    pause_s
        The longest pause in seconds. The whole file may take this time, plus one second for every 16 KB.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._started = asyncio.get_running_loop().time()
        self._size_bytes = 0

    @contextlib.asynccontextmanager
    async def limit_time(self) -> AsyncIterator[None]:
        """Limit the time of the block, in which the caller waits for one piece.

        Raises
        ------
        TooSlow
            The block takes longer than a pause may, or the whole file takes too long.
        """
        now = asyncio.get_running_loop().time()
        end = self._started + self._pause_s + self._size_bytes / _MIN_BYTES_PER_S
        try:
            async with asyncio.timeout_at(min(now + self._pause_s, end)):
                yield
        except TimeoutError:
            raise TooSlow from None

    async def read_pieces(self, content: StreamReader) -> AsyncIterator[bytes]:
        """Yield the content as it arrives. Its bytes extend the time for the whole file.

        Raises
        ------
        TooSlow
            As :meth:`limit_time`.
        """
        while True:
            async with self.limit_time():
                data = await content.readany()
            if not data:
                return
            self._size_bytes += len(data)
            yield data
