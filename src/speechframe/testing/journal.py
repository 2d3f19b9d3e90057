"""What was billed, on disk before it is answered: a file of one line a bill.

A line is handed to the kernel by one write, so that a process that is killed
loses nothing of it; a line that a full disk cut short is taken off on reading.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

__all__ = ["Bill", "Journal"]

_NAME = "billed.journal"
_NONE = "-"


class Bill(NamedTuple):
    """One billed call.

    Parameters
    ----------
    key
        Fingerprint of the key that pays.
    tag
        Of the text.
    characters
        Billed for it.
    mark
        What stands for the ``Idempotency-Key``, empty without one.
    body
        What stands for the request behind the mark.
    """

    key: str
    tag: int
    characters: int
    mark: str = ""
    body: str = ""

    def line(self) -> bytes:
        """Return the bill as it is written."""
        words = (self.key, f"{self.tag:016x}", str(self.characters), self.mark or _NONE, self.body or _NONE)
        return (" ".join(words) + "\n").encode()

    @classmethod
    def read(cls, line: str) -> Self:
        """Return the bill of a line."""
        key, tag, characters, mark, body = line.split()
        return cls(key, int(tag, 16), int(characters), mark.replace(_NONE, ""), body.replace(_NONE, ""))


class Journal:
    """The file of bills in a folder, open for more.

    Parameters
    ----------
    folder
        Where it lies; made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _NAME
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def bills(self) -> Iterator[Bill]:
        """Yield every bill so far, and take a last line off that is not whole."""
        whole = 0
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                yield Bill.read(line.decode())
        os.ftruncate(self._file, whole)

    def write(self, bill: Bill) -> None:
        """Put a bill on record.

        Raises
        ------
        OSError
            When the disk does not take it; nothing of it is on record then.
        """
        line = bill.line()
        written = os.write(self._file, line)
        if written < len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError("the journal of the faulty service was cut short: the disk is full")
