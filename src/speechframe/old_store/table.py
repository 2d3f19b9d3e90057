"""The caller's tables, spooled into ``input/`` so that a run needs nothing from the caller again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.old_store import files
from speechframe.old_store.manifest import TableEntry

FOLDER_NAME = "input"
REQUEST_KEY = "request_key"
PROBLEM = "speech_problem"
ARGUMENT = "speech_arg_"
"""What the name of a column begins with that holds an argument's values by row."""

TARGET = f"{ARGUMENT}target"
"""What a row is made for, where a verb makes several of each row: its locale until it has an answer."""

_READ_ROWS = 1_024
"""At once: a table may have thousands of columns."""

# What a run needs to read its table is what it needs for one of these, however many rows there are.
_GROUP_ROWS = 2_048
_GROUP_BYTES = 16 * 2**20


Numbers = npt.NDArray[np.int64]


class TableLost(StoreError):
    """A table of a run is not there, or not as it was written: it may be handed in again."""


class TableWriter:
    """Streams a table into the run folder; when it is closed, the table becomes the run's.

    Used as a context manager: an exception in the block leaves the run without the table.

    Parameters
    ----------
    folder
        The run folder.
    schema
        Of the batches, with the metadata that restores the caller's pandas index.
    entry
        What run.json will say of the table; the number of rows is filled in.
    on_close
        Called with the finished entry.
    lost
        The run's table so far, where it is lost: this one takes its place.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        entry: TableEntry,
        on_close: Callable[[TableEntry], None],
        *,
        lost: TableEntry | None = None,
    ) -> None:
        self._folder = folder
        self._schema = schema
        self._entry = entry
        self._on_close = on_close
        self._path = folder / entry.file
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._waiting_bytes = 0
        self.rows = 0
        self.lost = lost
        with _writing(folder):
            self._path.parent.mkdir(exist_ok=True)
            self._file = pq.ParquetWriter(files.temp_path(self._path), schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises
        ------
        StoreError
            When the folder cannot take them, or their columns are not the schema's.
        """
        if batch.schema != self._schema:
            difference = _difference(batch.schema, self._schema)
            raise StoreError(f"{self._path}: the batch's columns are not the table's: {difference}")
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= _GROUP_BYTES:
            self._write_group()

    def close(self) -> TableEntry:
        """Finish the file and make the table the run's."""
        self._write_group()
        with _writing(self._folder):
            self._file.close()
            files.publish(self._path)
        # Else Arrow keeps what the table needed as long as the run goes on, for a thread that is done.
        pa.default_memory_pool().release_unused()
        entry = TableEntry(**{**vars(self._entry), "rows": self.rows})
        self._on_close(entry)
        return entry

    def abort(self) -> None:
        """Leave the run without this table."""
        self._waiting.clear()
        with suppress(OSError):
            self._file.close()
        files.temp_path(self._path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.close()
        except BaseException:
            self.abort()
            raise

    def _write_group(self) -> None:
        if not self._waiting_rows:
            return
        group = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        with _writing(self._folder):
            self._file.write_table(group, row_group_size=group.num_rows)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        with files.storing(folder, "writing the table"):
            yield
    except pa.ArrowException as error:
        raise StoreError(
            f"{folder}: the table cannot be stored ({error}); hand in plainer columns"
        ) from error


def new_entry(
    number: int,
    *,
    column_map: Mapping[str, str] | None = None,
    id_column: str | None = None,
    hidden: Sequence[str] = (),
) -> TableEntry:
    """Return the entry of the table with this number, without its rows."""
    return TableEntry(
        file=f"{FOLDER_NAME}/{number:04d}.parquet",
        rows=0,
        added_at=datetime.now(UTC).isoformat(),
        id_column=id_column,
        column_map=dict(column_map or {}),
        hidden=tuple(hidden),
    )


def number_of(entry: TableEntry) -> int:
    """Return the number of a table; one that was put on another machine has more than that in its name."""
    return int(PurePosixPath(entry.file).stem.partition("-")[0])


def open_table(folder: Path, entry: TableEntry) -> pq.ParquetFile:
    """Return a table of the run, to be read by batches."""
    path = folder / entry.file
    with reading(path):
        return pq.ParquetFile(files.readable(path))


def count_rows(folder: Path, entry: TableEntry) -> int:
    """Return how many rows a table of the run has, reading it whole.

    Raises
    ------
    StoreError
        When it is not there, or some of it cannot be read.
    """
    with open_table(folder, entry) as file, reading(folder / entry.file):
        return sum(batch.num_rows for batch in file.iter_batches(_READ_ROWS))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what fails in the block into a StoreError that says what to do about the table in `path`.

    It is a :class:`TableLost` where the file is missing or torn, not where it only cannot be read now.
    """
    try:
        yield
    except FileNotFoundError:
        raise TableLost(f"{path} is missing: restore it, or hand the table in again") from None
    except (OSError, pa.ArrowException) as error:
        if not _is_of_content(error):
            raise StoreError(f"{path} cannot be read now ({error}): call again when it can be") from error
        raise TableLost(f"{path} cannot be read ({error}): restore it, or hand the table in again") from error


def _is_of_content(error: Exception) -> bool:
    """Return whether an error says that a file is torn, and not that it, or memory, is out of reach."""
    if isinstance(error, pa.ArrowException):
        return not isinstance(error, MemoryError)
    # What Arrow cannot decode has no number; what a disk or a filesystem says has one, or another class.
    return type(error) is OSError and error.errno is None


def rows_of(file: pq.ParquetFile, columns: Sequence[str], places: Sequence[int] | Numbers) -> pa.Table:
    """Return the rows at these places of a table, in this order; reads their row groups only."""
    wanted, names = np.asarray(places, np.int64), list(columns)
    groups, starts = _groups_of(file, wanted)
    pieces = [file.schema_arrow.empty_table().select(names)]
    order, taken = np.empty(len(wanted), np.int64), 0
    for group in np.unique(groups).tolist():
        here = np.flatnonzero(groups == group)
        piece = file.read_row_group(group, columns=names).select(names)
        pieces.append(piece.take(wanted[here] - starts[group]))
        order[here] = np.arange(taken, taken + len(here))
        taken += len(here)
    return pa.concat_tables(pieces).take(pa.array(order, pa.int64()))


def batches_of(
    file: pq.ParquetFile, columns: Sequence[str], places: Sequence[int] | Numbers, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows at these places of a table, which ascend; reads their row groups only.

    Unlike :func:`rows_of` it holds no more than a batch, however many the places are.
    """
    wanted = np.asarray(places, np.int64)
    groups, starts = _groups_of(file, wanted)
    read = np.unique(groups).tolist()
    if not read:
        return
    # Where the rows lie in what is read: as if there were no other row groups.
    counts = [file.metadata.row_group(group).num_rows for group in read]
    firsts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    at = wanted - starts[groups] + firsts[np.searchsorted(read, groups)]
    start = 0
    for batch in file.iter_batches(batch_rows, row_groups=read, columns=list(columns)):
        first, last = np.searchsorted(at, [start, start + batch.num_rows])
        if last > first:
            yield batch.take(pa.array(at[first:last] - start))
        start += batch.num_rows


def _groups_of(file: pq.ParquetFile, places: Numbers) -> tuple[Numbers, Numbers]:
    """Return each row's row group, and the first row of every row group of the file."""
    counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    return np.searchsorted(starts, places, side="right") - 1, starts


def _difference(got: pa.Schema, wanted: pa.Schema) -> str:
    return "; ".join(f"{a} instead of {b}" for a, b in zip(got, wanted, strict=False) if a != b) or (
        f"{len(got)} columns instead of {len(wanted)}"
    )


__all__ = [
    "ARGUMENT",
    "PROBLEM",
    "REQUEST_KEY",
    "TARGET",
    "TableLost",
    "TableWriter",
    "batches_of",
    "count_rows",
    "new_entry",
    "number_of",
    "open_table",
    "reading",
    "rows_of",
]
