"""The log: what survives a SIGKILL at any instant.

A segment is a file of entries, appended by one write each::

    magic 4 | kind 1 | length of meta 4 | length of body 8 | crc32 4 | meta (JSON) | body (audio bytes)

little-endian; the checksum covers everything but itself. Where the SHA-256 of
the body is known anyway, the highest bit of the kind is set, the 32 bytes of it
stand between meta and body, and the checksum ends with them: a body is not
summed twice (since format 2; both ways are read). It is read by walking the
lengths. A torn entry can only be the last one, unless the disk itself lost
pages: then the walk goes on at the next entry whose checksums hold.
"""

import hashlib
import json
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from speechframe.old_store import files

FOLDER_NAME = "log"
FORMAT = 2
MAGIC = b"\xa5SFL"
_HEAD = struct.Struct("<4sBIQ")
_CRC = struct.Struct("<I")
HEADER_BYTES = _HEAD.size + _CRC.size
_LONGEST_META = 2**26
_IS_SEALED = 0x80
SHA256_BYTES = 32

SYNC_RECORDS = 64
SYNC_SECONDS = 0.25


class Kind(IntEnum):
    """What an entry is."""

    OPENING = 0
    """First of a segment: who writes, and the field names of the other kinds."""
    SENT = 1
    ATTEMPT = 2
    ANSWER = 3
    """A record, and the ledger row of its last attempt if both came at once; the body is the audio."""
    CARRIED = 4
    """Calls in flight when the previous segment ended."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a segment: its kind, its JSON and its bytes."""

    kind: int
    meta: Any
    body: bytes
    offset: int


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _plain_encode(meta: Any) -> bytes:
    return _encode(meta).encode()


def _encoder() -> Callable[[Any], bytes]:
    try:
        import orjson
    except ImportError:
        return _plain_encode
    # Times are written as numbers: one that is left is a mistake here as with the standard library.
    return partial(orjson.dumps, option=orjson.OPT_PASSTHROUGH_DATETIME)


encode_meta = _encoder()
"""Return a value as JSON bytes; UnicodeEncodeError or TypeError for what JSON cannot hold.

With the extra ``[speed]`` it takes a tenth of the time.
"""


def _front(kind: Kind, meta: bytes, body: bytes) -> bytes:
    head = _HEAD.pack(MAGIC, kind, len(meta), len(body))
    return head + _CRC.pack(zlib.crc32(body, zlib.crc32(meta, zlib.crc32(head)))) + meta


class Segment:
    """A file entries are appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        self._closing = threading.Lock()

    def append(self, kind: Kind, meta: bytes, body: bytes = b"", *, sha256: bytes | None = None) -> None:
        """Write one entry; when it returns, the entry survives the death of the process.

        Parameters
        ----------
        kind, meta, body
            The entry.
        sha256
            Of the body, 32 bytes, where it is known already; with a wrong one the entry counts as damaged.

        Raises
        ------
        OSError
            When it could not be written; the segment is then as it was before.
        """
        if sha256 is None:
            front = _front(kind, meta, body)
        else:
            head = _HEAD.pack(MAGIC, kind | _IS_SEALED, len(meta), len(body))
            meta += sha256
            front = head + _CRC.pack(zlib.crc32(meta, zlib.crc32(head))) + meta
        self._write(front, body)

    def append_all(self, entries: Sequence[tuple[Kind, bytes, bytes]]) -> None:
        """Write several entries at once: a process that is killed leaves all of them or none.

        Raises
        ------
        OSError
            When they could not be written; the segment is then as it was before.
        """
        self._write(b"".join(piece for entry in entries for piece in (_front(*entry), entry[2])))

    def _write(self, front: bytes, body: bytes = b"") -> None:
        whole = len(front) + len(body)
        try:
            written = os.writev(self._descriptor, (front, body))
            while written != whole:
                written += os.write(self._descriptor, memoryview(front + body)[written:])
        except OSError:
            self._take_back()
            raise
        self.size += whole

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            # The reader finds the entries after a torn one; they begin behind it, and must not be cut off.
            self.size = os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        """Wait until everything appended so far is on the disk."""
        with self._closing:
            if self._descriptor >= 0:
                os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._closing:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class LogWriter:
    """Segments ``<folder>/0001.log`` and so on, synced to the disk in the background.

    One thread at a time may call :meth:`append` and :meth:`rotate`.

    Parameters
    ----------
    folder
        ``log/<writer>``; created.
    opening
        JSON that begins every segment.
    """

    def __init__(self, folder: Path, opening: dict[str, Any]) -> None:
        self.folder = folder
        self.number = 0
        self.trouble: OSError | None = None
        self._opening = opening
        self._unsynced = 0
        self._some = threading.Event()
        self._many = threading.Event()
        self._closed = False
        folder.mkdir(parents=True)
        files.sync_folder(folder.parent)
        self._ended: set[Segment] = set()
        self._is_new = False
        self.segment = self._next()
        self._thread = threading.Thread(target=self._sync_now_and_then, name="speechframe-log", daemon=True)
        self._thread.start()

    def append(self, kind: Kind, meta: bytes, body: bytes = b"", *, sha256: bytes | None = None) -> None:
        """Write one entry to the current segment; see :meth:`Segment.append`."""
        self.segment.append(kind, meta, body, sha256=sha256)
        self._unsynced += 1
        if not self._some.is_set():
            self._some.set()
        if self._unsynced >= SYNC_RECORDS:
            self._many.set()

    def append_all(self, entries: Sequence[tuple[Kind, bytes, bytes]]) -> None:
        """Write several entries to the current segment, all or none."""
        self.segment.append_all(entries)
        self._unsynced += len(entries)
        self._some.set()
        if self._unsynced >= SYNC_RECORDS:
            self._many.set()

    def rotate(self, carried: Sequence[Any]) -> Segment:
        """Begin the next segment with the calls in flight, and return the last one."""
        last, following = self.segment, self._next(carried)
        self._ended.add(last)
        self.segment = following
        return last

    def sync(self) -> None:
        """Wait until everything appended so far is on the disk."""
        self._unsynced = 0
        # In this order: a segment that ends meanwhile is among those that ended.
        current, ended = self.segment, [*self._ended]
        if self._is_new:
            # Without its name in the folder, the content of a new file is as good as lost.
            self._is_new = False
            files.sync_folder(self.folder)
        for segment in ended:
            # Its part may take long: until then, only the log has what it holds.
            segment.sync()
            self._ended.discard(segment)
        current.sync()

    def close(self) -> None:
        """Stop the background thread and close the segment."""
        self._closed = True
        self._some.set()
        self._many.set()
        self._thread.join()
        self.segment.close()

    def _next(self, carried: Sequence[Any] = ()) -> Segment:
        segment = Segment(self.folder / f"{self.number + 1:04d}.log")
        try:
            segment.append(Kind.OPENING, encode_meta({**self._opening, "segment": self.number + 1}))
            if carried:
                segment.append(Kind.CARRIED, encode_meta(carried))
        except OSError:
            segment.close()
            with suppress(OSError):
                segment.path.unlink()
            raise
        self.number += 1
        self._is_new = True
        return segment

    def _sync_now_and_then(self) -> None:
        while not self._closed:
            self._some.wait()
            self._many.wait(SYNC_SECONDS)
            # Cleared before the sync: an entry that comes during it asks for the next one.
            self._some.clear()
            self._many.clear()
            try:
                self.sync()
            except OSError as error:
                self.trouble = error


@dataclass
class SegmentReader:
    """Walks a segment; afterwards says what was not readable.

    Parameters
    ----------
    path
        The segment.

    Attributes
    ----------
    torn_bytes
        Bytes after the last whole entry.
    damaged_bytes
        Bytes between whole entries that are none.
    """

    path: Path
    torn_bytes: int = field(default=0, init=False)
    damaged_bytes: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Entry]:
        self.torn_bytes = self.damaged_bytes = 0
        if not self.path.stat().st_size:
            return
        with self.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield from self._walk(content)

    def _walk(self, content: mmap.mmap) -> Iterator[Entry]:
        position, end = 0, len(content)
        while position < end:
            entry = _entry_at(content, position)
            if entry is not None:
                yield entry[0]
                position = entry[1]
                continue
            found = _next_entry(content, position + 1)
            if found < 0:
                self.torn_bytes = end - position
                return
            self.damaged_bytes += found - position
            position = found


def segment_files(folder: Path) -> list[Path]:
    """Return a writer's segments, oldest first."""
    numbered = (path for path in folder.glob("*.log") if path.stem.isdecimal())
    return sorted(numbered, key=lambda path: int(path.stem))


@dataclass(frozen=True, slots=True)
class Head:
    """What the first bytes of an entry say: its kind, its lengths and its checksum."""

    kind: int
    meta_bytes: int
    body_bytes: int
    checksum: int
    started: int
    """The checksum so far, of the head alone."""
    is_sealed: bool
    """Whether the body has a SHA-256 of its own."""

    @property
    def body_at(self) -> int:
        """Where the body begins, from the beginning of the entry."""
        return HEADER_BYTES + self.meta_bytes + (SHA256_BYTES if self.is_sealed else 0)

    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
        return self.body_at + self.body_bytes

    @classmethod
    def of(cls, content: bytes) -> "Head | None":
        """Return the head that `content` begins with, None if that is no entry."""
        if len(content) < HEADER_BYTES:
            return None
        magic, kind, meta_bytes, body_bytes = _HEAD.unpack_from(content)
        if magic != MAGIC or meta_bytes > _LONGEST_META:
            return None
        (checksum,) = _CRC.unpack_from(content, _HEAD.size)
        started, is_sealed = zlib.crc32(content[: _HEAD.size]), bool(kind & _IS_SEALED)
        return cls(kind & ~_IS_SEALED, meta_bytes, body_bytes, checksum, started, is_sealed)

    def holds(self, front: bytes, body: Iterable[bytes]) -> bool:
        """Return whether an entry is as it was written.

        Parameters
        ----------
        front
            What stands between its head and its body.
        body
            Its body, in pieces.
        """
        checksum = zlib.crc32(front, self.started)
        if not self.is_sealed:
            for piece in body:
                checksum = zlib.crc32(piece, checksum)
            return checksum == self.checksum
        if checksum != self.checksum:
            return False
        found = hashlib.sha256()
        for piece in body:
            found.update(piece)
        return found.digest() == front[self.meta_bytes :]


def _entry_at(content: mmap.mmap, offset: int) -> tuple[Entry, int] | None:
    head = Head.of(content[offset : offset + HEADER_BYTES])
    if head is None or offset + head.size > len(content):
        return None
    body_at, end = offset + head.body_at, offset + head.size
    front, body = content[offset + HEADER_BYTES : body_at], content[body_at:end]
    if not head.holds(front, (body,)):
        return None
    return Entry(head.kind, json.loads(front[: head.meta_bytes]), body, offset), end


def _next_entry(content: mmap.mmap, start: int) -> int:
    while (start := content.find(MAGIC, start)) >= 0:
        if _entry_at(content, start) is not None:
            return start
        start += 1
    return -1
