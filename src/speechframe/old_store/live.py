"""The log of a writer at work, read beside it: no lock, nothing disturbed, no audio held.

What a reader sees of a segment are its whole entries, from its beginning to the
first that is still being written. It reads by ``pread`` and never maps the file:
a writer whose disk is full takes back half an entry, and a mapping would die of it.
"""

import json
import os
import weakref
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from speechframe.old_store import log, parts
from speechframe.old_store.arrow import record_batch
from speechframe.old_store.entries import FIELDS, Decoder
from speechframe.old_store.log import HEADER_BYTES, MAGIC, Entry, Head, Kind
from speechframe.old_store.schema import AUDIO_COLUMN, Record, record_columns

_CHUNK_BYTES = 2**20


class SegmentFile:
    """A segment, open: it stays readable after its writer removed it, and takes room until it is let go.

    Raises
    ------
    FileNotFoundError
        When it has become a part.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # Snapshots are shared by iterators: the last of them lets go.
        self.close = weakref.finalize(self, os.close, self._descriptor)

    def size(self) -> int:
        """Return its length in bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, size: int, offset: int) -> bytes:
        """Return at most `size` bytes from `offset` on."""
        return os.pread(self._descriptor, size, offset)

    def head(self, offset: int) -> Head | None:
        """Return the head of the entry at `offset`, None if there is none."""
        return Head.of(self.read(HEADER_BYTES, offset))

    def meta(self, offset: int, head: Head) -> Any:
        """Return the JSON of the entry at `offset`."""
        return json.loads(self.read(head.meta_bytes, offset + HEADER_BYTES))

    def whole_entry(self, offset: int, size: int) -> Head | None:
        """Return the head of the entry at `offset` if it ends before `size` and is as it was written."""
        head = self.head(offset)
        if head is None or offset + head.size > size:
            return None
        front = self.read(head.body_at - HEADER_BYTES, offset + HEADER_BYTES)
        return head if head.holds(front, self._pieces(offset + head.body_at, offset + head.size)) else None

    def _pieces(self, at: int, end: int) -> Iterator[bytes]:
        while at < end:
            piece = self.read(min(_CHUNK_BYTES, end - at), at)
            if not piece:  # it was taken back
                return
            yield piece
            at += len(piece)


class Segment:
    """Where the entries of a segment lie, as far as it was read; holds neither audio nor the file.

    Attributes
    ----------
    path
        The segment.
    writer, number
        Which part and which file of the ledger it will become.
    started_at
        When its writer began; UTC, ISO 8601.
    keys, statuses
        Of every answer, in the order of the log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = path.parent.name
        self.number = int(path.stem)
        self.started_at = ""
        self.keys: list[str] = []
        self.statuses: list[str] = []
        self._position = 0
        self._entries = array("Q")
        self._answers = array("Q")
        self._body_bytes = array("Q")
        self._decoder = Decoder(FIELDS)

    @property
    def place(self) -> tuple[str, str, int]:
        """Return what orders segments by time: the later has the last word."""
        return self.started_at, self.writer, self.number

    def read_on(self, file: SegmentFile) -> None:
        """Take in what was written since the last look."""
        size = file.size()
        while self._position < size:
            head = file.whole_entry(self._position, size)
            if head is None:
                found = self._next_entry(file, size)
                if found is None:
                    return
                self._position = found
                continue
            self._note(file, head)
            self._position += head.size

    def _next_entry(self, file: SegmentFile, size: int) -> int | None:
        head = file.head(self._position)
        if head is not None and self._position + head.size > size:
            # Still being written; what looks like an entry further on may be its audio.
            return None
        at = self._position + 1
        while at < size:
            chunk = file.read(_CHUNK_BYTES, at)
            if not chunk:  # it was taken back
                return None
            found = chunk.find(MAGIC)
            if found < 0:
                at += max(len(chunk) - len(MAGIC) + 1, 1)
            elif file.whole_entry(at + found, size) is not None:
                return at + found
            else:
                at += found + 1
        return None

    def _note(self, file: SegmentFile, head: Head) -> None:
        self._entries.append(self._position)
        if head.kind == Kind.OPENING:
            opening = file.meta(self._position, head)
            self.started_at = str(opening.get("started_at", ""))
            self._decoder = Decoder(opening["fields"])
        elif head.kind == Kind.ANSWER:
            record, _ = self._decoder.answer(file.meta(self._position, head), b"")
            self._answers.append(self._position)
            self._body_bytes.append(head.body_bytes)
            self.statuses.append(record.status)
            self.keys.append(record.request_key)

    def entries(self, file: SegmentFile) -> Iterator[Entry]:
        """Yield the entries read so far, without their audio."""
        for offset in tuple(self._entries):
            head = _there(file, offset)
            yield Entry(head.kind, file.meta(offset, head), b"", offset)

    def record(self, file: SegmentFile, answer: int, *, audio: bool) -> Record:
        """Return an answer by its number; its audio is None unless asked for."""
        offset = self._answers[answer]
        head = _there(file, offset)
        body = file.read(head.body_bytes, offset + head.body_at) if audio else b""
        record, _ = self._decoder.answer(file.meta(offset, head), body)
        return record if audio else replace(record, audio_bytes=None)

    def body_bytes(self, answer: int) -> int:
        """Return the bytes of an answer's audio."""
        return self._body_bytes[answer]


def _there(file: SegmentFile, offset: int) -> Head:
    head = file.head(offset)
    if head is None:
        raise OSError(f"{file.path}: the entry at {offset} is gone")
    return head


class SegmentSource:
    """The answers a segment had at one look, as if they were a part already."""

    def __init__(self, segment: Segment, file: SegmentFile) -> None:
        self.path = segment.path
        self.segment = segment
        self.file = file
        self.rows = len(segment.keys)

    def groups(self) -> tuple[list[int], list[int]]:
        """Return the rows and the bytes of audio of each row group."""
        rows, sizes = [0], [0]
        for answer in range(self.rows):
            size = self.segment.body_bytes(answer)
            if rows[-1] and (rows[-1] >= parts.GROUP_ROWS or sizes[-1] + size > parts.GROUP_BYTES):
                rows.append(0)
                sizes.append(0)
            rows[-1] += 1
            sizes[-1] += size
        return rows, sizes

    def read(self, columns: Sequence[str], group: int | None = None) -> pa.Table:
        """Return `columns` of one row group, or of all of them; audio is read only if it is among them."""
        start, end = 0, self.rows
        if group is not None:
            ends = list(accumulate(self.groups()[0]))
            start, end = ([0, *ends])[group], ends[group]
        return self._rows(start, end, columns)

    def read_row(self, columns: Sequence[str], row: int) -> pa.Table:
        """Return `columns` of one row."""
        return self._rows(row, row + 1, columns)

    def _rows(self, start: int, end: int, columns: Sequence[str]) -> pa.Table:
        audio = AUDIO_COLUMN in columns
        records = [self.segment.record(self.file, answer, audio=audio) for answer in range(start, end)]
        schema = record_columns(columns)
        return pa.Table.from_batches([record_batch(records, schema)], schema)

    def close(self) -> None:
        """Do nothing: the last who reads from it lets go."""


def segment_paths(folder: Path) -> list[Path]:
    """Return the segments that lie below ``log/`` of `folder`, each writer's in their order."""
    found: list[Path] = []
    # Writers take their folders away when they end: also between two lines here.
    with suppress(FileNotFoundError, NotADirectoryError):
        with os.scandir(folder / log.FOLDER_NAME) as listing:
            writers = sorted(entry.path for entry in listing)
        for writer in writers:
            with suppress(FileNotFoundError, NotADirectoryError):
                found += log.segment_files(Path(writer))
    return found
