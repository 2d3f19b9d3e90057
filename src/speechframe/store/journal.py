r"""What survives ``kill -9``: numbered segments, each a file of JSON lines and a file of bytes beside it.

A line is one write. ``{"sent": ...}`` stands before every attempt, ``{"ended": ..., "rows": [...]}`` after
it, and ``{"noted": ...}`` in between where an attempt notes something to go on with. The bytes of a row (its
audio) are appended to the other file before its line, which says where they are. So a line that is whole has
all its bytes, and a torn last line is of an attempt that has not counted yet.

One process writes, any number may read. A full segment is closed and becomes the part of the same number
(`speechframe.store.parts`). Before that the next segment repeats every ``sent`` that has no end yet, so that
each segment tells by itself which attempts are open.
"""

import base64
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from speechframe.store.folder import Folder, storing
from speechframe.store.schema import AUDIO, Row

orjson: Any
try:
    import orjson
except ImportError:  # it comes with the extra `speed`
    orjson = None

MOST_ROWS, MOST_BYTES = 2048, 64 << 20
"""A segment that has so many is full."""

LOG = "log"


@dataclass(slots=True)
class Ended:
    """How an attempt ended, for one row of its call.

    Parameters
    ----------
    millicredits, basis
        What the attempt cost and how that is known.
    row
        The row's record, if its call has ended with this attempt.
    audio
        The bytes of the record's audio.
    """

    millicredits: int
    basis: str
    row: Row | None = None
    audio: bytes | None = None


class Journal:
    """The segments of a run while it is written, by one thread.

    Parameters
    ----------
    folder
        The run's folder, locked.
    number
        Of the first segment: higher than that of any earlier one.
    header
        Columns of the ledger that are the same for all attempts of this process.
    """

    def __init__(self, folder: Folder, number: int, header: Row) -> None:
        self._folder, self._header = folder, header
        self._open: dict[str, list[Row]] = {}
        self._files = _Files(folder, number, header)

    @property
    def is_full(self) -> bool:
        """Whether the segment is to become a part."""
        return self._files.rows >= MOST_ROWS or self._files.bytes >= MOST_BYTES

    def sent(
        self, call: str, attempt: int, lane: str, time: float, parts: Sequence[Row], **facts: Any
    ) -> None:
        """Write that an attempt begins, before it does.

        Parameters
        ----------
        call
            The key of the call's first row.
        attempt
            1 for the first of a call.
        lane
            Where it goes.
        time
            Seconds since 1970.
        parts
            For each row ``request_key``, ``take``, ``price``, ``millicredits`` (what the ledger is to count
            should no end be written) and what the ledger says of it besides.
        **facts
            What the ledger says of the attempt besides.
        """
        line = {
            "sent": {"call": call, "attempt": attempt, "lane": lane, "time": time, **facts, "parts": parts}
        }
        self._open[call] = [line]
        self._files.append(dumps(line))

    def noted(self, call: str, data: bytes) -> None:
        """Write what an open attempt needs to be gone on with after a crash; :meth:`sync` makes it last."""
        line = {"noted": {"call": call, "data": base64.b64encode(data).decode()}}
        self._open[call].append(line)
        self._files.append(dumps(line))

    def ended(self, call: str, status: str, costs: Sequence[Ended], **facts: Any) -> None:
        """Write how an attempt ended; a row that is among `costs` counts from here on.

        Parameters
        ----------
        call
            As in :meth:`sent`.
        status
            For the ledger.
        costs
            One for each of the call's rows.
        **facts
            What the ledger says of it: ``latency_ms``, ``trace_id``, ``balance_after``, ``error_code``.
        """
        rows = [None if cost.row is None else self._placed(cost.row, cost.audio) for cost in costs]
        ended = {"call": call, "status": status, **facts}
        ended["costs"] = [[cost.millicredits, cost.basis] for cost in costs]
        self._files.append(dumps({"ended": ended, "rows": rows}))
        self._open.pop(call, None)

    def kept(self, row: Row, audio: bytes | None) -> None:
        """Write the record of a row for which no attempt was made."""
        self._files.append(dumps({"kept": self._placed(row, audio)}))

    def _placed(self, row: Row, audio: bytes | None) -> Row:
        """Return a record with the place of its audio, which is written first."""
        self._files.rows += 1
        if audio is None:
            return row
        place = [self._files.bytes, len(audio), row.get(AUDIO)]
        self._files.append_bytes(audio)
        return {**row, AUDIO: place}

    def sync(self) -> None:
        """Make all lines so far survive a power cut."""
        self._files.sync()

    def roll(self) -> Callable[[], int]:
        """Begin a new segment; return what closes the one before and returns its number, in any thread."""
        before = self._files
        self._files = _Files(self._folder, before.number + 1, self._header)
        for lines in self._open.values():
            for line in lines:
                self._files.append(dumps(line))
        return before.close

    def close(self) -> int:
        """Close the last segment and return its number."""
        return self._files.close()


class _Files:
    """The two files of one segment."""

    def __init__(self, folder: Folder, number: int, header: Row) -> None:
        self._folder, self.number = folder, number
        self.rows = self.bytes = 0
        self._is_closed = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL
        with storing(folder, "writing the journal"):
            (folder.work / LOG).mkdir(parents=True, exist_ok=True)
            # The lines are made first and removed last: where they are, there is a segment.
            self._lines = os.open(folder.work / _lines(number), flags, 0o644)
            self._blobs = os.open(folder.work / _blobs(number), flags, 0o644)
        self._closing = threading.Lock()
        self.append(dumps({"header": header}))

    def append(self, line: bytes) -> None:
        self._write(self._lines, line + b"\n")

    def append_bytes(self, data: bytes) -> None:
        self._write(self._blobs, data)
        self.bytes += len(data)

    def _write(self, file: int, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(file, left) :]
        except OSError:
            # Entered now only: most writes succeed, and there are three for each call.
            with storing(self._folder, "writing the journal"):
                raise

    def sync(self) -> None:
        with self._closing, storing(self._folder, "writing the journal"):
            if not self._is_closed:
                os.fsync(self._blobs)
                os.fsync(self._lines)

    def close(self) -> int:
        self.sync()
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._lines)
                os.close(self._blobs)
        return self.number


@dataclass(slots=True)
class Contents:
    """What a segment tells.

    Attributes
    ----------
    attempts
        Rows of the ledger.
    rows
        Records; their audio is ``[offset, length, name]`` in the file of bytes.
    open
        By call: ``sent`` of an attempt without an end, and what it noted (None without).
    closed
        Calls of which an attempt has ended here.
    """

    attempts: list[Row] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    open: dict[str, tuple[Row, bytes | None]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)


def read_contents(folder: Folder, number: int) -> Contents:
    """Return what a segment tells so far, whoever writes to it.

    Raises
    ------
    FileNotFoundError
        When it has become a part meanwhile.
    """
    contents, header = Contents(), {}
    for line in _whole_lines(folder, number):
        if "header" in line:
            header = line["header"]
        elif "sent" in line:
            contents.open[line["sent"]["call"]] = (line["sent"], None)
        elif "kept" in line:
            contents.rows.append(line["kept"])
        elif "noted" in line:
            sent, _ = contents.open[line["noted"]["call"]]
            contents.open[sent["call"]] = (sent, base64.b64decode(line["noted"]["data"]))
        else:
            ended = line["ended"]
            sent, _ = contents.open.pop(ended["call"])
            contents.closed.add(ended["call"])
            contents.attempts += ledger_rows(header, sent, ended, line["rows"])
            contents.rows += [row for row in line["rows"] if row is not None]
    return contents


def open_attempts(folder: Folder) -> list[tuple[Row, bytes | None]]:
    """Return ``sent`` of every attempt without an end, and what it noted; the run is locked."""
    found: dict[str, tuple[Row, bytes | None]] = {}
    for number in segments(folder):
        contents = read_contents(folder, number)
        for call in contents.closed - contents.open.keys():
            found.pop(call, None)
        found.update(contents.open)
    return list(found.values())


def ledger_rows(header: Row, sent: Row, ended: Row, rows: Sequence[Row | None]) -> Iterator[Row]:
    """Yield the rows of the ledger that one attempt has: one for each row of its call."""
    of_attempt = {name: value for name, value in sent.items() if name not in {"call", "parts"}}
    of_end = {name: value for name, value in ended.items() if name not in {"call", "costs"}}
    for part, (millicredits, basis), row in zip(sent["parts"], ended["costs"], rows, strict=True):
        seconds = row.get("audio_seconds") if row is not None else None
        cost = {"credits": millicredits / 1000, "credits_basis": basis, "audio_seconds": seconds}
        tags = {**(header.get("tags") or {}), **(part.get("tags") or {})}
        yield {**header, **of_attempt, **part, **of_end, **cost, "tags": tags}


def segments(folder: Folder) -> list[int]:
    """Return the numbers of the segments in the journal, the oldest first."""
    return sorted(int(path.stem) for path in (folder.work / LOG).glob("*.jsonl"))


def blobs_of(folder: Folder, number: int) -> int:
    """Return a descriptor of a segment's bytes, to be closed."""
    return os.open(folder.work / _blobs(number), os.O_RDONLY)


def remove_segment(folder: Folder, number: int) -> None:
    """Remove a segment that has become a part."""
    (folder.work / _blobs(number)).unlink(missing_ok=True)
    (folder.work / _lines(number)).unlink(missing_ok=True)


def dumps(value: Any) -> bytes:
    """Return a line of the journal."""
    if orjson is not None:
        line: bytes = orjson.dumps(value)
        return line
    return json.dumps(value, separators=(",", ":")).encode()


def loads(line: bytes | str) -> Any:
    """Return what a line of the journal says."""
    return json.loads(line) if orjson is None else orjson.loads(line)


def _whole_lines(folder: Folder, number: int) -> Iterator[Mapping[str, Any]]:
    data = (folder.work / _lines(number)).read_bytes()
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        yield loads(line)


def _lines(number: int) -> str:
    return f"{LOG}/{number:06d}.jsonl"


def _blobs(number: int) -> str:
    return f"{LOG}/{number:06d}.bytes"
