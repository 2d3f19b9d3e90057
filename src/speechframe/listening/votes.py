"""Store votes on disk, one line a page. A line is written and synced before the page gets its reply.

The file ``votes/<listener>.jsonl`` in the folder of a test has the start and the votes of one listener, in
order. The first line has the start time and the answers. Each further line is the message with the vote on
one page. If the process was killed while it wrote a line, the line is incomplete, and its page got no reply.
An incomplete line is ignored, and removed before the next line is written. If a complete line cannot be read,
its fault is returned, and the other lines are used.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from filelock import FileLock

from speechframe.errors import VoteRefused
from speechframe.statistics.votes import VOTE_SCHEMA
from speechframe.store.folder import convert_os_errors, sync_to_disk

if TYPE_CHECKING:
    import pandas as pd

BEGIN, VOTE = "begin", "vote"
"""Kinds of a line: the start of a listener, and a vote. Messages of pages have the same kinds."""


class _Index(NamedTuple):
    """The size of a file, the size of its complete lines, and the trials with a vote in order."""

    size_bytes: int = 0
    complete_bytes: int = 0
    has_begun: bool = False
    trials: tuple[int, ...] = ()

    def add(self, line: Any) -> "_Index":
        """Return the index after a line. Its sizes are unchanged.

        Raise VoteRefused for a second start or a second vote of a trial, and ValueError for another content.
        """
        fields: dict[str, Any] = line if isinstance(line, dict) else {}
        kind, trial = fields.get("kind"), fields.get("trial")
        if kind == BEGIN and self.has_begun:
            raise VoteRefused("this test has begun already: reload the page to continue")
        if kind == BEGIN:
            return self._replace(has_begun=True)
        if kind != VOTE or not isinstance(trial, int):
            raise ValueError("the line is neither a start nor a vote")
        if trial in self.trials:
            raise VoteRefused("this trial has a vote already: reload the page", trial=trial)
        return self._replace(trials=(*self.trials, trial))


class VoteBook:
    """The file with the start and the votes of one listener. Lines are only added.

    An index of the file stays in memory. Another process may add lines, too, so the file is read again if its
    size has changed.

    Parameters
    ----------
    path
        Path of the file. The first line creates the file and its folder.

    Examples
    --------
    >>> book = VoteBook(Path("votes/listener-01.jsonl"))
    >>> book.add_line({"kind": "vote", "trial": 0})
    >>> book.read_progress()
    (False, [0])
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Replaced as a whole, because several threads may use it.
        self._index = _Index()

    def read_with_faults(self) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """Return the readable lines, and the faults of the unreadable lines, both by line number from 1.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        with convert_os_errors(self.path, "reading votes"):
            return _parse_lines(self.path.read_bytes() if self.path.exists() else b"")[:2]

    def read_progress(self) -> tuple[bool, list[int]]:
        """Return whether the listener has begun, and the trials with a vote, in the order of the votes.

        Raises
        ------
        StoreError
            The file cannot be read.
        """
        with convert_os_errors(self.path, "reading votes"):
            size_bytes = self.path.stat().st_size if self.path.exists() else 0
            if size_bytes != self._index.size_bytes:
                self._index = _parse_lines(self.path.read_bytes() if size_bytes else b"")[2]
        return self._index.has_begun, [*self._index.trials]

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
            old = self._index
            if os.fstat(descriptor).st_size != old.size_bytes:
                old = _parse_lines(file.read())[2]
            new = old.add(line)
            data = json.dumps(line).encode() + b"\n"
            file.truncate(old.complete_bytes)
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            except OSError:
                file.truncate(old.complete_bytes)
                raise
            size_bytes = old.complete_bytes + len(data)
            self._index = new._replace(size_bytes=size_bytes, complete_bytes=size_bytes)


def make_votes_frame(rows: Iterable[Mapping[str, Any]], method: str) -> "pd.DataFrame":
    """Return rows of votes as a DataFrame with exactly the columns of the method, in the same order.

    Parameters
    ----------
    rows
        Rows of votes.
    method
        Name of the test method.
    """
    frame: pd.DataFrame = pa.Table.from_pylist([*rows], VOTE_SCHEMA[method]).to_pandas()
    return frame


def _parse_lines(data: bytes) -> tuple[dict[int, dict[str, Any]], dict[int, str], _Index]:
    """Return the readable lines of a file and the faults of the others, by line number, and the index."""
    lines: dict[int, dict[str, Any]] = {}
    unreadable: dict[int, str] = {}
    complete_bytes = data.rfind(b"\n") + 1
    index = _Index(len(data), complete_bytes)
    for number, text in enumerate(data[:complete_bytes].splitlines(), 1):
        try:
            line = json.loads(text)
            index, lines[number] = index.add(line), line
        except (ValueError, RecursionError, VoteRefused) as error:
            unreadable[number] = str(error)
    return lines, unreadable, index


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, because one call of `os.write` may write only a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
