"""Votes on disk: one line a page, written and synced before the page is told.

``votes/<listener>.jsonl`` in the folder of a test holds what one listener did, in order: when they began and
what they answered, then a line for each page with its votes as rows. A line that was torn by a kill was never
confirmed: it is left out, and cut off before the next one is written.
"""

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from filelock import FileLock

from speechframe.analysis.votes import VOTE_SCHEMA
from speechframe.errors import StoreError, VoteRefused
from speechframe.store.files import storing, sync_folder

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BEGIN", "VOTE", "VoteBook", "votes_frame"]

BEGIN, VOTE = "begin", "vote"


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

    def lines(self) -> list[dict[str, Any]]:
        """Return what was written whole.

        Raises
        ------
        StoreError
            A line in the middle cannot be read: somebody else wrote into the file.
        """
        try:
            with storing(self.path, "reading votes"):
                data = self.path.read_bytes() if self.path.exists() else b""
        except FileNotFoundError:
            return []
        return self._read(data)[0]

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
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Two pages of one listener may vote at once, in two processes.
            with FileLock(self.path.with_name(f".{self.path.name}.lock")):
                self._append(line)
            if is_new:
                sync_folder(self.path.parent)
                sync_folder(self.path.parent.parent)

    def _append(self, line: Mapping[str, Any]) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            lines, whole = self._read(file.read())
            _refuse_double(line, lines)
            file.truncate(whole)
            try:
                _write_all(file.fileno(), json.dumps(line, ensure_ascii=False).encode() + b"\n")
                os.fsync(file.fileno())
            except OSError:
                file.truncate(whole)
                raise

    def _read(self, data: bytes) -> tuple[list[dict[str, Any]], int]:
        """Return the whole lines, and how many bytes they are."""
        whole = data.rfind(b"\n") + 1
        lines = []
        for number, text in enumerate(data[:whole].splitlines(), 1):
            try:
                lines.append(json.loads(text))
            except ValueError as error:
                raise StoreError(
                    f"{self.path}, line {number} is no vote ({error}); put the file back as it was, or take "
                    "the line out"
                ) from error
        return lines, whole


def votes_frame(rows: Iterable[Mapping[str, Any]], method: str) -> "pd.DataFrame":
    """Return votes as a frame with exactly the columns of the method, in the order they were given.

    Parameters
    ----------
    rows
        As they stand in the files: times are texts.
    method
        Of the test.
    """
    schema = VOTE_SCHEMA[method]
    times = [name for name in schema.names if pa.types.is_timestamp(schema.field(name).type)]
    read = [
        {**row, **{name: datetime.fromisoformat(row[name]) for name in times if row.get(name) is not None}}
        for row in rows
    ]
    frame: pd.DataFrame = pa.Table.from_pylist(read, schema).to_pandas()
    return frame


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
