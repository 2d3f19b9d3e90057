"""Votes on disk: one line a page, written and synced before the page is told.

``votes/<listener>.jsonl`` in the folder of a test holds what one listener did, in order: when they began and
what they answered, then a line for each page with its votes as rows. A line that was torn by a kill was never
confirmed: it is left out, and cut off before the next one is written. A whole line that cannot be read is set
aside under its name, and the others count.
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
from speechframe.store.folder import storing, sync

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BEGIN", "VOTE", "VoteBook", "votes_frame", "votes_table"]

BEGIN, VOTE = "begin", "vote"
_FIELDS: Mapping[str, Mapping[str, type]] = {
    BEGIN: {"begun_utc": str, "consent": bool, "answers": dict},
    VOTE: {"trial": int, "rows": list},
}


class VoteBook:
    """What one listener did, as a file that lines are only ever added to.

    Parameters
    ----------
    path
        The file; made with its folder when the first line is written.

    Examples
    --------
    >>> book = VoteBook(Path("votes/listener-01.jsonl"))
    >>> book.add({"kind": "vote", "trial": 0, "rows": []})
    >>> [line["trial"] for line in book.lines()]
    [0]
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """Return what was written whole, by number of line, and why the other lines cannot be read.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        with storing(self.path, "reading votes"):
            return _read(self.path.read_bytes() if self.path.exists() else b"")

    def lines(self) -> list[dict[str, Any]]:
        """Return what was written whole and can be read."""
        return [*self.read()[0].values()]

    def add(self, line: Mapping[str, Any]) -> None:
        """Write a line; when this returns it survives the death of the process, and of the machine.

        Raises
        ------
        VoteRefused
            The file holds this page, or this beginning, already.
        StoreError
            It could not be written; the file is as it was before.
        """
        with storing(self.path, "writing a vote"):
            is_new = not self.path.exists()
            # Without the folders above it: where a test was removed, no vote is kept in a folder of its own.
            self.path.parent.mkdir(mode=0o700, exist_ok=True)
            # Two pages of one listener may vote at once, in two processes.
            with FileLock(self.path.with_name(f".{self.path.name}.lock"), mode=0o600):
                self._append(line)
            if is_new:
                sync(self.path.parent)
                sync(self.path.parent.parent)

    def _append(self, line: Mapping[str, Any]) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            data = file.read()
            _refuse_double(line, _read(data)[0].values())
            whole = data.rfind(b"\n") + 1
            file.truncate(whole)
            try:
                _write_all(file.fileno(), json.dumps(line, ensure_ascii=False).encode() + b"\n")
                os.fsync(file.fileno())
            except OSError:
                file.truncate(whole)
                raise


def votes_table(rows: Iterable[Mapping[str, Any]], method: str) -> pa.Table:
    """Return rows as they stand in the files as a table with exactly the columns of the method.

    Raises
    ------
    ValueError, TypeError
        A value is none of its column.
    """
    schema = VOTE_SCHEMA[method]
    times = [name for name in schema.names if pa.types.is_timestamp(schema.field(name).type)]
    read = [
        {**row, **{name: datetime.fromisoformat(row[name]) for name in times if row.get(name) is not None}}
        for row in rows
    ]
    return pa.Table.from_pylist(read, schema)


def votes_frame(rows: Iterable[Mapping[str, Any]], method: str) -> "pd.DataFrame":
    """Return votes as a frame with exactly the columns of the method, in the order they were given.

    Parameters
    ----------
    rows
        As they stand in the files: times are texts.
    method
        Of the test.
    """
    frame: pd.DataFrame = votes_table(rows, method).to_pandas()
    return frame


def _read(data: bytes) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    lines: dict[int, dict[str, Any]] = {}
    unreadable: dict[int, str] = {}
    for number, text in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            lines[number] = _line(json.loads(text))
        except (ValueError, RecursionError) as error:
            unreadable[number] = str(error)
    return lines, unreadable


def _line(read: Any) -> dict[str, Any]:
    known: dict[str, Any] = read if isinstance(read, dict) else {}
    fields = _FIELDS.get(str(known.get("kind")), {})
    if not fields or not all(isinstance(known.get(name), kind) for name, kind in fields.items()):
        raise ValueError("it is neither a beginning nor a vote")
    if known["kind"] == BEGIN:
        datetime.fromisoformat(known["begun_utc"])
    return known


def _refuse_double(line: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> None:
    for old in lines:
        if old["kind"] == line["kind"] == BEGIN:
            raise VoteRefused("this test has begun already: go on where you were")
        if old["kind"] == line["kind"] == VOTE and old["trial"] == line["trial"]:
            raise VoteRefused("this trial has its vote already", trial=line["trial"])


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
