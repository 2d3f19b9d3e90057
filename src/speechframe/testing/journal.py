"""The journal of bills, written to disk before the answer. Each line is a bill.

A single write passes a line to the kernel, so a killed process loses none of its lines. If a full disk cuts a
line short, reading removes it.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

__all__ = ["Bill", "BillsFile"]

_NAME = "billed.journal"
_NONE = "-"


class Bill(NamedTuple):
    """One billed call, with the fingerprint of its key, the tag of its text, and its characters.

    `mark` and `body` are hashes of the ``Idempotency-Key`` and of the request, or empty without that key.
    """

    key: str
    tag: int
    characters: int
    mark: str = ""
    body: str = ""

    def line(self) -> bytes:
        """Return the bill as a line of the file."""
        words = (self.key, f"{self.tag:016x}", str(self.characters), self.mark or _NONE, self.body or _NONE)
        return (" ".join(words) + "\n").encode()

    @classmethod
    def read(cls, line: str) -> Self:
        """Return the bill in a line."""
        key, tag, characters, mark, body = line.split()
        return cls(key, int(tag, 16), int(characters), mark.replace(_NONE, ""), body.replace(_NONE, ""))


class BillsFile:
    """The file of bills in a folder, open for more bills. Creates the folder if necessary."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _NAME
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def bills(self) -> Iterator[Bill]:
        """Yield every bill so far, and remove an incomplete last line from the file."""
        whole = 0
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                yield Bill.read(line.decode())
        os.ftruncate(self._file, whole)

    def write(self, bill: Bill) -> None:
        """Write a bill. OSError if the disk refuses it. Nothing of the bill is in the file then."""
        line = bill.line()
        written = os.write(self._file, line)
        if written < len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError("the journal of the faulty service was cut short: the disk is full")
