"""Write and read the journal, a text file with one line for each bill.

The service writes the bill to the journal before it sends the answer. One system call writes the whole line,
so a killed process loses no line. If a full disk cut a line short, :meth:`BillsFile.read_bills` removes
the line.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FILE_NAME = "billed.journal"


class Bill(NamedTuple):
    """The bill of one text.

    Attributes
    ----------
    key
        Fingerprint (short hash) of the API key.
    tag
        Tag (64-bit hash) of the text.
    characters
        Number of billed characters.
    mark, body
        Hashes of the ``Idempotency-Key`` and of the request. Both are empty if the request had no such key.
    """

    key: str
    tag: int
    characters: int
    mark: str = ""
    body: str = ""


class BillsFile:
    """The journal in a folder, open for more bills. The constructor creates the folder if necessary."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _FILE_NAME
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def read_bills(self) -> Iterator[Bill]:
        """Yield every bill of the file. At the end, remove an incomplete last line from the file."""
        complete_bytes = 0
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                complete_bytes += len(line)
                key, tag, characters, *hashes = line.decode().removesuffix("\n").split(" ")
                yield Bill(key, int(tag), int(characters), *hashes)
        os.ftruncate(self._file, complete_bytes)

    def write(self, bill: Bill) -> None:
        """Write a bill. If the disk is full, raise OSError and leave no part of the bill in the file."""
        line = f"{' '.join(map(str, bill))}\n".encode()
        written = os.write(self._file, line)
        if written < len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError("the journal of the faulty service was cut short: the disk is full")
