"""Files that hold records, opened: a part, or a segment of a log that is no part yet."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from speechframe.errors import StoreError
from speechframe.old_store.parts import fitted, open_part
from speechframe.old_store.schema import record_columns


class Source(Protocol):
    """Records by row number and row group; several threads may read at once."""

    path: Path

    def groups(self) -> tuple[list[int], list[int]]:
        """Return the rows and the bytes of audio of each row group."""

    def read(self, columns: Sequence[str], group: int | None = None) -> pa.Table:
        """Return `columns` of one row group, or of all of them; no other column is read."""

    def read_row(self, columns: Sequence[str], row: int) -> pa.Table:
        """Return `columns` of one row, reading little else."""

    def close(self) -> None:
        """Let go of the file."""


class PartSource:
    """A part, or ``failed.parquet`` as it was when it was opened.

    Parameters
    ----------
    path
        The file.
    pinned
        It may be replaced while it is read.
    """

    def __init__(self, path: Path, *, pinned: bool = False) -> None:
        self.path = path
        self._file = open_part(path, pinned=pinned)
        self._reading = threading.Lock()

    def groups(self) -> tuple[list[int], list[int]]:
        """Return the rows and the bytes of audio of each row group."""
        metadata = self._file.metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        # The audio bytes are the first leaf of a part that has any.
        return [group.num_rows for group in groups], [
            group.column(0).total_uncompressed_size for group in groups
        ]

    def read(self, columns: Sequence[str], group: int | None = None) -> pa.Table:
        """Return `columns` of one row group, or of all of them; no other column is read."""
        names = list(columns)
        with self._reading:
            if group is None:
                found = self._file.read(columns=names, use_threads=False)
            else:
                found = self._file.read_row_group(group, columns=names, use_threads=False)
        return fitted(found, record_columns(names), self.path)

    def read_row(self, columns: Sequence[str], row: int) -> pa.Table:
        """Return `columns` of one row; reads its row group."""
        first = 0
        for group, rows in enumerate(self.groups()[0]):
            if row < first + rows:
                return self.read(columns, group).slice(row - first, 1)
            first += rows
        raise StoreError(f"{self.path} has fewer rows than its keys: verify() says more")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
