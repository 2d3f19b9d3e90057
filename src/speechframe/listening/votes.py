"""Store votes on disk, one line a page. A line is written and synced before the page gets its reply.

The file ``votes/<listener>.jsonl`` in the folder of a test has the start and the votes of one listener, in
order. The first line has the start time and the answers. Each further line has the rows of the vote on one
page. If the process was killed while it wrote a line, the line is incomplete, and its page got no reply. An
incomplete line is ignored, and removed before the next line is written. If a complete line cannot be read,
its fault is returned, and the other lines are used.
"""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from filelock import FileLock

from speechframe.errors import VoteRefused
from speechframe.statistics.votes import VOTE_SCHEMA
from speechframe.store.folder import convert_os_errors, sync_to_disk

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BEGIN", "VOTE", "VoteBook", "make_votes_frame", "make_votes_table"]

BEGIN, VOTE = "begin", "vote"
"""Kinds of a line: the start of a listener, and a vote. Messages of pages have the same kinds."""

_REQUIRED_FIELDS: Mapping[str, Mapping[str, type]] = {
    BEGIN: {"begun_utc": str, "consent": bool, "answers": dict},
    VOTE: {"trial": int, "rows": list},
}
"""Required fields of a line and their types, by kind of the line."""


class VoteBook:
    """The file with the start and the votes of one listener. Lines are only added.

    Parameters
    ----------
    path
        Path of the file. The first line creates the file and its folder.

    Examples
    --------
    >>> book = VoteBook(Path("votes/listener-01.jsonl"))
    >>> book.add_line({"kind": "vote", "trial": 0, "rows": []})
    >>> [line["trial"] for line in book.read_lines()]
    [0]
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_with_faults(self) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """Return the readable lines, and the faults of the unreadable lines, both by line number from 1.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        with convert_os_errors(self.path, "reading votes"):
            return _parse_lines(self.path.read_bytes() if self.path.exists() else b"")

    def read_lines(self) -> list[dict[str, Any]]:
        """Return the readable lines in order."""
        return [*self.read_with_faults()[0].values()]

    def add_line(self, line: Mapping[str, Any]) -> None:
        """Write a line. After this returns, the line survives a crash of the process or the machine.

        Raises
        ------
        VoteRefused
            The file already has a vote of the same trial. Or the line is a start, and the file has a start.
        StoreError
            The line could not be written. The file is unchanged.
        """
        with convert_os_errors(self.path, "writing a vote"):
            is_new = not self.path.exists()
            # The parent folder is not made. So the vote fails if the folder of the test was removed.
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            # A lock is needed, because two processes may store votes of the same listener at once.
            with FileLock(self.path.with_name(f".{self.path.name}.lock"), mode=0o600):
                self._append_line(line)
            if is_new:
                sync_to_disk(self.path.parent)
                sync_to_disk(self.path.parent.parent)

    def _append_line(self, line: Mapping[str, Any]) -> None:
        """Write and sync a line. Remove an incomplete last line before, and the new line after an error."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            data = file.read()
            _refuse_duplicate(line, _parse_lines(data)[0].values())
            complete_bytes = data.rfind(b"\n") + 1
            file.truncate(complete_bytes)
            try:
                _write_all(file.fileno(), json.dumps(line, ensure_ascii=False).encode() + b"\n")
                os.fsync(file.fileno())
            except OSError:
                file.truncate(complete_bytes)
                raise


def make_votes_table(rows: Iterable[Mapping[str, Any]], method: str) -> pa.Table:
    """Return stored rows of votes as an Arrow table with exactly the columns of the method.

    Raises
    ------
    ValueError, TypeError
        A value does not fit its column.
    """
    schema = VOTE_SCHEMA[method]
    times = [name for name in schema.names if pa.types.is_timestamp(schema.field(name).type)]
    converted_rows = [
        {**row, **{name: datetime.fromisoformat(row[name]) for name in times if row.get(name) is not None}}
        for row in rows
    ]
    return pa.Table.from_pylist(converted_rows, schema)


def make_votes_frame(rows: Iterable[Mapping[str, Any]], method: str) -> "pd.DataFrame":
    """Return stored rows of votes as a DataFrame with exactly the columns of the method, in the same order.

    Parameters
    ----------
    rows
        Rows of votes, with times as ISO 8601 texts.
    method
        Name of the test method.
    """
    frame: pd.DataFrame = make_votes_table(rows, method).to_pandas()
    return frame


def _parse_lines(data: bytes) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """Return the readable lines of a file, and the faults of the others, both by line number."""
    lines: dict[int, dict[str, Any]] = {}
    unreadable: dict[int, str] = {}
    for number, text in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            lines[number] = _check_line(json.loads(text))
        except (ValueError, RecursionError) as error:
            unreadable[number] = str(error)
    return lines, unreadable


def _check_line(value: Any) -> dict[str, Any]:
    """Return a line, or raise ValueError if its kind or a required field is missing or invalid."""
    known: dict[str, Any] = value if isinstance(value, dict) else {}
    fields = _REQUIRED_FIELDS.get(str(known.get("kind")), {})
    if not fields or not all(isinstance(known.get(name), kind) for name, kind in fields.items()):
        raise ValueError("the line has neither the kind begin nor the kind vote, or it lacks a field")
    if known["kind"] == BEGIN:
        datetime.fromisoformat(known["begun_utc"])
    return known


def _refuse_duplicate(line: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> None:
    """Raise VoteRefused if a stored line is a start or a vote of the same trial as `line`."""
    for old in lines:
        if old["kind"] == line["kind"] == BEGIN:
            raise VoteRefused("this test has begun already: reload the page to continue")
        if old["kind"] == line["kind"] == VOTE and old["trial"] == line["trial"]:
            raise VoteRefused("this trial has a vote already: reload the page", trial=line["trial"])


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, because one call of `os.write` may write only a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
