r"""The journal of a run, which survives ``kill -9``.

The journal consists of numbered segments. A segment is a file of JSON lines and a file of bytes. Each line is
one write. The line ``{"sent": ...}`` is written before each attempt of a call, and ``{"ended": ..., "rows":
[...]}`` after the attempt. A line ``{"noted": ...}`` between them contains data with which a later attempt
can continue. A row from the cache has one line, ``{"kept": ...}``. The audio of a row is appended to the file
of bytes before the line with the position of the audio is written. So the audio of a whole line is complete.
A last line that was not written completely is ignored.

One process writes the journal, and any number of processes may read it. A full segment is closed and becomes
the part with the same number, a Parquet file (`speechframe.store.parts`). The next segment begins with a copy
of the ``sent`` and ``noted`` lines of each attempt without an end. So each segment alone shows which attempts
are open.
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
from speechframe.spec.billing import MAX_CALL_CREDITS, MILLICREDITS_PER_CREDIT
from speechframe.store.folder import Folder, convert_os_errors
from speechframe.store.schema import AUDIO_COLUMN, FINISHED_STATUSES, Row


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


dump_json: Callable[[Any], bytes]
load_json: Callable[[bytes | str], Any]
try:
    import orjson
except ImportError:  # orjson is faster, and comes only with the extra `speed`
    dump_json, load_json = _to_json, json.loads
else:
    dump_json, load_json = orjson.dumps, orjson.loads

MAX_SEGMENT_ROWS, MAX_SEGMENT_BYTES = 2048, 64 << 20
"""Number of records, and size of the audio in bytes, with which a segment is full."""

LOG_FOLDER, LINES_SUFFIX, BYTES_SUFFIX = "log", "jsonl", "bytes"
"""Folder of the journal, and the endings of the two files of a segment."""


@dataclass(slots=True)
class Ended:
    """The end of an attempt for one row of its call.

    `millicredits` is the cost in thousandths of a credit. `basis` is the source of that cost (see
    ``credits_basis`` in :data:`speechframe.store.schema.LEDGER_SCHEMA`). `row` is the record of the row, or
    None if the call will be repeated. `audio` is the audio of the record.
    """

    millicredits: int
    basis: str
    row: Row | None = None
    audio: bytes | None = None
    error: SpeechframeError | None = None  # the reason for a row without a usable answer, in memory only


class Journal:
    """The journal of a run for its writer. One thread writes lines, another may sync and close segments.

    The caller must have locked the run, or the shard with these numbers. `number` is the number of the first
    segment to write, above those of all earlier segments. `header` contains the ledger columns with the same
    value for all attempts of this process. A segment with `most_rows` records is full.
    """

    def __init__(self, folder: Folder, number: int, header: Row, most_rows: int = MAX_SEGMENT_ROWS) -> None:
        self._folder, self.header, self._most_rows = folder, header, most_rows
        self._open: dict[str, list[bytes]] = {}  # lines of each attempt without an end, by call key
        self._begin(number)

    def _begin(self, number: int) -> None:
        self._number, self._records, self._audio_bytes = number, 0, 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL
        with convert_os_errors(self._folder, "writing the journal"):
            self._folder.find_path(LOG_FOLDER).mkdir(parents=True, exist_ok=True)
            # A segment exists if its file of lines exists. So this file is created first and removed last.
            self._lines = os.open(get_segment_file(self._folder, number, LINES_SUFFIX), flags, 0o644)
            self._blobs = os.open(get_segment_file(self._folder, number, BYTES_SUFFIX), flags, 0o644)
        # Sync in this order, so that bytes are on disk before the lines that name them.
        self._files: tuple[int, ...] = self._blobs, self._lines
        header = dump_json({"header": self.header}) + b"\n"
        self._write(self._lines, b"".join([header, *chain.from_iterable(self._open.values())]))

    @property
    def is_full(self) -> bool:
        """True if the current segment is full and should become a part."""
        return self._records >= self._most_rows or self._audio_bytes >= MAX_SEGMENT_BYTES

    def write_sent(
        self, call: str, attempt: int, lane: str, time: float, entries: Sequence[Row], **facts: Any
    ) -> None:
        """Write that an attempt of a call begins. Call this method before the attempt.

        `call` is the key of the request, and `time` is Unix time. `entries` contains the ledger columns of
        each row of the call. Among them are ``request_key``, ``take``, ``price`` and ``millicredits``, which
        is the cost if no end is ever written. `facts` contains ledger columns with the same value for all
        rows.
        """
        sent = {"call": call, "attempt": attempt, "lane": lane, "time": time, **facts, "entries": entries}
        line = dump_json({"sent": sent}) + b"\n"
        self._open[call] = [line]
        self._write(self._lines, line)

    def write_note(self, call: str, data: bytes) -> None:
        """Write data with which a later attempt can continue. After :meth:`sync` it survives a power cut."""
        line = dump_json({"noted": {"call": call, "data": base64.b64encode(data).decode()}}) + b"\n"
        self._open[call].append(line)
        self._write(self._lines, line)

    def write_end(self, call: str, status: str, ends: Sequence[Ended], **facts: Any) -> None:
        """Write the end of an attempt. Each row with a record in `ends` has its result from now on.

        `ends` has one item for each row of the call. `facts` are further columns of the ledger, such as
        ``latency_ms``, ``trace_id``, ``balance_after`` and ``error_code``.
        """
        rows, costs = [], []
        for end in ends:
            rows.append(None if end.row is None else self._write_audio(end.row, end.audio))
            costs.append([end.millicredits, end.basis])
        ended = {"call": call, "status": status, **facts, "costs": costs}
        self._write(self._lines, dump_json({"ended": ended, "rows": rows}) + b"\n")
        self._open.pop(call, None)

    def write_cached(self, row: Row, audio: bytes | None, entry: Row) -> None:
        """Write the record of a row whose answer is from the cache, and its `entry` for the ledger."""
        self._write(self._lines, dump_json({"kept": self._write_audio(row, audio), "entry": entry}) + b"\n")

    def _write_audio(self, row: Row, audio: bytes | None) -> Row:
        """Write the audio of a record. Return the record with the position of its audio, and count it."""
        self._records += 1
        if audio is None:
            return row
        row = {**row, AUDIO_COLUMN: [self._audio_bytes, len(audio), row.get(AUDIO_COLUMN)]}
        self._write(self._blobs, audio)
        self._audio_bytes += len(audio)
        return row

    def _write(self, file: int, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(file, data) :]
        except OSError:
            # Use `convert_os_errors` only after an error, because entering it at each write takes time.
            with convert_os_errors(self._folder, "writing the journal"):
                raise

    def sync(self) -> None:
        """Wait until all lines so far are on disk, so that they survive a power cut."""
        with convert_os_errors(self._folder, "writing the journal"):
            for file in self._files:
                os.fsync(file)

    def begin_next_segment(self) -> Callable[[], int]:
        """Begin a new segment. Return a function that closes the old segment and returns its number.

        Any thread may call this function.
        """
        number, files = self._number, self._files
        self._begin(number + 1)
        return lambda: self._close(number, files)

    def close(self) -> int:
        """Close the last segment and return its number."""
        files, self._files = self._files, ()
        return self._close(self._number, files)

    def _close(self, number: int, files: tuple[int, ...]) -> int:
        with convert_os_errors(self._folder, "writing the journal"):
            for file in files:
                os.fsync(file)
                os.close(file)
        return number


@dataclass(slots=True)
class Contents:
    """The contents of some segments."""

    attempts: list[Row] = field(default_factory=list)  # ledger rows of the attempts that have ended
    rows: list[Row] = field(default_factory=list)  # records; `audio` is [offset, length, name]
    open: dict[str, tuple[Row, bytes | None]] = field(default_factory=dict)
    """For each attempt without an end, its ``sent`` line and its note or None, by call key.

    The ``sent`` line is completed with the header of its segment: the key, the user and the tags of the
    sender.
    """


def read_contents(folder: Folder, *numbers: int) -> Contents:
    """Return the contents of some segments together. Raise FileNotFoundError if one has become a part."""
    contents, header = Contents(), {}
    for number in numbers:
        with get_segment_file(folder, number, LINES_SUFFIX).open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the line was not written completely, or is still being written
                written = load_json(line)
                if "header" in written:
                    header = written["header"]
                elif "sent" in written:
                    contents.open[written["sent"]["call"]] = ({**header, **written["sent"]}, None)
                elif "kept" in written:
                    contents.rows.append(written["kept"])
                    contents.attempts.append(_make_ledger_row(header, written["entry"]))
                elif "noted" in written:
                    sent, _ = contents.open[written["noted"]["call"]]
                    contents.open[sent["call"]] = (sent, base64.b64decode(written["noted"]["data"]))
                else:
                    sent, _ = contents.open.pop(written["ended"]["call"])
                    _add_ended(contents, sent, written["ended"], written["rows"])
    return contents


def make_unended_entries(sent: Row) -> list[Row]:
    """Return the ledger rows of an attempt without an end, with the cost that it has if it was billed."""
    cost = {"status": "charged_unknown", "credits_basis": "unknown"}
    return [
        {**_make_ledger_row({**sent, **cost}, known), "credits": known["millicredits"] / 1000}
        for known in sent["entries"]
    ]


def _add_ended(contents: Contents, sent: Row, ended: Row, rows: Sequence[Row | None]) -> None:
    """Add the ledger rows and the records of an attempt that has ended to `contents`."""
    attempt = {**sent, **ended}
    entries, costs = sent["entries"], ended["costs"]
    del attempt["call"], attempt["entries"], attempt["costs"]
    for known, cost, row in zip(entries, costs, rows, strict=True):
        millicredits, basis = _correct_cost(known, *cost)
        if row is not None and basis != cost[1]:
            row["credits"] = known["price"] / MILLICREDITS_PER_CREDIT
        entry = _make_ledger_row(attempt, known)
        entry["credits"], entry["credits_basis"] = millicredits / 1000, basis
        entry["reported"] = entry["credits"] if basis == "reported" else None
        entry["computed"] = known["millicredits"] / 1000 if basis == "reported" else entry["credits"]
        if row is not None and row["status"] in FINISHED_STATUSES:
            entry["saved"] = (known.get("rows", 1) - 1) * known["price"] / 1000
        entry["audio_seconds"] = None if row is None else row.get("audio_seconds")
        contents.attempts.append(entry)
        if row is not None:
            contents.rows.append(row)


def _correct_cost(known: Row, millicredits: int, basis: str) -> tuple[int, str]:
    """Return a cost and its basis. If no service can have billed the cost, return the computed price instead.

    Earlier versions wrote any number that a service reported.
    """
    # If the price was booked with an earlier attempt, the cost of this attempt may be negative.
    least = known["millicredits"] - known["price"]
    if basis == "reported" and not least <= millicredits <= MAX_CALL_CREDITS * MILLICREDITS_PER_CREDIT:
        return known["millicredits"], "computed"
    return millicredits, basis


def _make_ledger_row(attempt: Row, known: Row) -> Row:
    """Return the ledger row for one row of a call. Its tags are those of the run and those of the row."""
    tags = {**(attempt.get("tags") or {}), **(known.get("tags") or {})}
    return {**attempt, **known, "tags": [*tags.items()]}


def list_segments(folder: Folder, within: range | None = None) -> list[int]:
    """Return the numbers of the segments in the journal, in ascending order.

    With `within`, leave out all other numbers. A shard (rows that one worker makes) has numbers of its own.
    """
    found = sorted(int(path.stem) for path in folder.find_path(LOG_FOLDER).glob(f"*.{LINES_SUFFIX}"))
    return found if within is None else [number for number in found if number in within]


def remove_segment(folder: Folder, number: int) -> None:
    """Remove a segment that has become a part."""
    for kind in (BYTES_SUFFIX, LINES_SUFFIX):
        get_segment_file(folder, number, kind).unlink(missing_ok=True)


def get_segment_file(folder: Folder, number: int, kind: str) -> Path:
    """Return the path of one file of a segment. `kind` is :data:`LINES_SUFFIX` or :data:`BYTES_SUFFIX`."""
    return folder.find_path(f"{LOG_FOLDER}/{number:06d}.{kind}")
