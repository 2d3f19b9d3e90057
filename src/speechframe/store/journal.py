r"""The journal of a run, which survives ``kill -9``.

It has numbered segments, each a file of JSON lines and a file of bytes beside it. A line is one write.
``{"sent": ...}`` stands before every attempt and ``{"ended": ..., "rows": [...]}`` after it. ``{"noted":
...}`` between them saves facts with which a later attempt goes on. A row from the cache has one line,
``{"kept": ...}``. The audio of a row is appended to the file of bytes first, and then its line gives the
place. So a whole line has all its bytes, and a torn last line counts for nothing.

One process writes, any number may read. A full segment is closed and becomes the part of the same number
(`speechframe.store.parts`). The next segment begins with the ``sent`` and ``noted`` of each attempt without
an end. So each segment shows by itself which attempts are open.
"""

import base64
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from speechframe.errors import SpeechframeError
from speechframe.spec.billing import CREDIT, MOST_CALL_CREDITS
from speechframe.store.folder import Folder, storing
from speechframe.store.schema import AUDIO, FINISHED, Row


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


dumps: Callable[[Any], bytes]
loads: Callable[[bytes | str], Any]
try:
    import orjson
except ImportError:  # it comes with the extra `speed`
    dumps, loads = _to_json, json.loads
else:
    dumps, loads = orjson.dumps, orjson.loads

MOST_ROWS, MOST_BYTES = 2048, 64 << 20
"""A segment with so many records, or so many bytes of audio, is full."""

LOG, LINES, BYTES = "log", "jsonl", "bytes"


@dataclass(slots=True)
class Ended:
    """The end of an attempt for one row of its call: its cost, and the row's record if it has one now."""

    millicredits: int
    basis: str
    row: Row | None = None
    audio: bytes | None = None
    error: SpeechframeError | None = None  # the reason for a row without a usable answer, in memory only


class Journal:
    """The segments of a run that is written. One thread writes, another may sync and close them.

    The caller has locked the run, and gives a `number` above that of every earlier segment. `header` has the
    columns of the ledger that are the same for all attempts of this process.
    """

    def __init__(self, folder: Folder, number: int, header: Row) -> None:
        self._folder, self._header = folder, header
        self._open: dict[str, list[bytes]] = {}  # by call: lines of an attempt that has not ended
        self._begin(number)

    def _begin(self, number: int) -> None:
        self._number, self._records, self._audio_bytes = number, 0, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL
        with storing(self._folder, "writing the journal"):
            self._folder.inside(LOG).mkdir(parents=True, exist_ok=True)
            # The file of lines is made first and removed last, so it is there as long as the segment.
            self._lines = os.open(file_of(self._folder, number, LINES), flags, 0o644)
            self._blobs = os.open(file_of(self._folder, number, BYTES), flags, 0o644)
        # Sync in this order, so that bytes are on disk before the lines that name them.
        self._files: tuple[int, ...] = self._blobs, self._lines
        header = dumps({"header": self._header}) + b"\n"
        self._write(self._lines, b"".join([header, *chain.from_iterable(self._open.values())]))

    @property
    def is_full(self) -> bool:
        """Whether the segment is due to become a part."""
        return self._records >= MOST_ROWS or self._audio_bytes >= MOST_BYTES

    def write_sent(
        self, call: str, attempt: int, lane: str, time: float, entries: Sequence[Row], **facts: Any
    ) -> None:
        """Write that an attempt of a call begins, before it does. `call` is the key of its request.

        `entries` has columns of the ledger for each row, among them ``request_key``, ``take``, ``price`` and
        ``millicredits``, the cost if no end is ever written. `facts` has columns that all rows share.
        """
        sent = {"call": call, "attempt": attempt, "lane": lane, "time": time, **facts, "entries": entries}
        line = dumps({"sent": sent}) + b"\n"
        self._open[call] = [line]
        self._write(self._lines, line)

    def write_note(self, call: str, data: bytes) -> None:
        """Write data with which a later attempt goes on. After :meth:`sync` it survives a power cut."""
        line = dumps({"noted": {"call": call, "data": base64.b64encode(data).decode()}}) + b"\n"
        self._open[call].append(line)
        self._write(self._lines, line)

    def write_end(self, call: str, status: str, ends: Sequence[Ended], **facts: Any) -> None:
        """Write how an attempt ended. A row with a record in `ends` counts from here on.

        `ends` has one item for each row of the call. `facts` are further columns of the ledger, such as
        ``latency_ms``, ``trace_id``, ``balance_after`` and ``error_code``.
        """
        rows, costs = [], []
        for end in ends:
            rows.append(None if end.row is None else self._write_audio(end.row, end.audio))
            costs.append([end.millicredits, end.basis])
        ended = {"call": call, "status": status, **facts, "costs": costs}
        self._write(self._lines, dumps({"ended": ended, "rows": rows}) + b"\n")
        self._open.pop(call, None)

    def cached(self, row: Row, audio: bytes | None, entry: Row) -> None:
        """Write the record of a row from the cache, which needs no attempt, and its `entry` in the ledger."""
        self._write(self._lines, dumps({"kept": self._write_audio(row, audio), "entry": entry}) + b"\n")

    def _write_audio(self, row: Row, audio: bytes | None) -> Row:
        """Count a record, write its audio, and return the record with the place of its audio."""
        self._records += 1
        if audio is None:
            return row
        row = {**row, AUDIO: [self._audio_bytes, len(audio), row.get(AUDIO)]}
        self._write(self._blobs, audio)
        self._audio_bytes += len(audio)
        return row

    def _write(self, file: int, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(file, data) :]
        except OSError:
            # Enter `storing` only after an error, because it would slow down every write.
            with storing(self._folder, "writing the journal"):
                raise

    def sync(self) -> None:
        """Make all lines so far survive a power cut."""
        with storing(self._folder, "writing the journal"):
            for file in self._files:
                os.fsync(file)

    def roll(self) -> Callable[[], int]:
        """Begin a new segment. Return a function that closes the old one, in any thread, for its number."""
        number, files = self._number, self._files
        self._begin(number + 1)
        return lambda: self._close(number, files)

    def close(self) -> int:
        """Close the last segment and return its number."""
        files, self._files = self._files, ()
        return self._close(self._number, files)

    def _close(self, number: int, files: tuple[int, ...]) -> int:
        with storing(self._folder, "writing the journal"):
            for file in files:
                os.fsync(file)
                os.close(file)
        return number


@dataclass(slots=True)
class Contents:
    """The contents of segments."""

    attempts: list[Row] = field(default_factory=list)  # rows of the ledger
    rows: list[Row] = field(default_factory=list)  # records; `audio` is [offset, length, name]
    open: dict[str, tuple[Row, bytes | None]] = field(default_factory=dict)
    """By call: the ``sent`` of an attempt without an end, and its note.

    ``sent`` has the columns of its segment's header, too: the key, the user and the tags that sent it.
    """


def read_contents(folder: Folder, *numbers: int) -> Contents:
    """Return the contents of segments. FileNotFoundError if one has become a part."""
    contents, header = Contents(), {}
    for number in numbers:
        with file_of(folder, number, LINES).open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # torn, or still being written
                written = loads(line)
                if "header" in written:
                    header = written["header"]
                elif "sent" in written:
                    contents.open[written["sent"]["call"]] = ({**header, **written["sent"]}, None)
                elif "kept" in written:
                    contents.rows.append(written["kept"])
                    contents.attempts.append(_entry(header, written["entry"]))
                elif "noted" in written:
                    sent, _ = contents.open[written["noted"]["call"]]
                    contents.open[sent["call"]] = (sent, base64.b64decode(written["noted"]["data"]))
                else:
                    sent, _ = contents.open.pop(written["ended"]["call"])
                    _add_ended(contents, sent, written["ended"], written["rows"])
    return contents


def if_billed(sent: Row) -> list[Row]:
    """Return an attempt without an end as rows of the ledger, with its cost if it was billed."""
    cost = {"status": "charged_unknown", "credits_basis": "unknown"}
    return [
        {**_entry({**sent, **cost}, known), "credits": known["millicredits"] / 1000}
        for known in sent["entries"]
    ]


def _add_ended(contents: Contents, sent: Row, ended: Row, rows: Sequence[Row | None]) -> None:
    """Add the rows of the ledger and the records of an attempt that has ended."""
    attempt = {**sent, **ended}
    entries, costs = sent["entries"], ended["costs"]
    del attempt["call"], attempt["entries"], attempt["costs"]
    for known, cost, row in zip(entries, costs, rows, strict=True):
        millicredits, basis = _correct_cost(known, *cost)
        if row is not None and basis != cost[1]:
            row["credits"] = known["price"] / CREDIT
        entry = _entry(attempt, known)
        entry["credits"], entry["credits_basis"] = millicredits / 1000, basis
        entry["reported"] = entry["credits"] if basis == "reported" else None
        entry["computed"] = known["millicredits"] / 1000 if basis == "reported" else entry["credits"]
        if row is not None and row["status"] in FINISHED:
            entry["saved"] = (known.get("rows", 1) - 1) * known["price"] / 1000
        entry["audio_seconds"] = None if row is None else row.get("audio_seconds")
        contents.attempts.append(entry)
        if row is not None:
            contents.rows.append(row)


def _correct_cost(known: Row, millicredits: int, basis: str) -> tuple[int, str]:
    """Return a cost and its basis; the computed price if no service can have billed that cost.

    Earlier versions wrote whatever number a service gave.
    """
    # An attempt whose price was booked before may cost less than nothing.
    least = known["millicredits"] - known["price"]
    if basis == "reported" and not least <= millicredits <= MOST_CALL_CREDITS * CREDIT:
        return known["millicredits"], "computed"
    return millicredits, basis


def _entry(attempt: Row, known: Row) -> Row:
    """Return the row of the ledger for one row of a call, with its own tags beside those of all rows."""
    tags = {**(attempt.get("tags") or {}), **(known.get("tags") or {})}
    return {**attempt, **known, "tags": [*tags.items()]}


def segments(folder: Folder) -> list[int]:
    """Return the numbers of the segments in the journal, the oldest first."""
    return sorted(int(path.stem) for path in folder.inside(LOG).glob(f"*.{LINES}"))


def remove_segment(folder: Folder, number: int) -> None:
    """Remove a segment that has become a part."""
    for kind in (BYTES, LINES):
        file_of(folder, number, kind).unlink(missing_ok=True)


def file_of(folder: Folder, number: int, kind: str) -> Path:
    """Return the path of a segment's file of one `kind`, :data:`LINES` or :data:`BYTES`."""
    return folder.inside(f"{LOG}/{number:06d}.{kind}")
