"""Parts: finished calls as Parquet, laid out so that one clip is cheap to reach."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.errors import StoreError
from speechframe.old_store import files
from speechframe.old_store.arrow import record_batch
from speechframe.old_store.footer import note
from speechframe.old_store.locate import is_remote
from speechframe.old_store.schema import AUDIO_COLUMN, LEDGER_SCHEMA, NEEDED_COLUMNS, Record

FOLDER_NAME = "parts"
FAILED_NAME = "failed.parquet"

PART_ROWS = 2_048
PART_BYTES = 128 * 2**20
GROUP_ROWS = 64
GROUP_BYTES = 32 * 2**20

_LONGEST_NOTE_BYTES = 2**30
"""In a footer. Arrow reads 100 MB of one by itself: less than half a million calls in doubt can fill."""

# A dictionary pays where values repeat; ids and texts do not.
_REPEATING = frozenset({
    "status", "operation", "run_id", "model", "locale", "voice_id", "format", "credits_basis", "lane",
    "service", "key_fingerprint", "user", "host", "tags", "error_code", "take", "attempt", "idempotency",
})  # fmt: skip

_AT_ONCE_ROWS = 32
"""Rows between two looks at whether a page is full. With fewer, the room for a page of audio grows as it is
written, and the audio is copied each time; with more, a page holds all audio of its row group."""


def parquet_options(
    schema: pa.Schema, *, plain: Collection[str] = (), repeating: Collection[str] = ()
) -> Mapping[str, Any]:
    """Return how Parquet files of `schema` are written.

    Parameters
    ----------
    schema
        Its columns.
    plain
        Those that are not compressed.
    repeating
        Those whose values are written once and counted from there.
    """
    leaves = [leaf for f in schema for leaf in _leaves(f.name, f.type)]
    return {
        "compression": {leaf: "none" if leaf.partition(".")[0] in plain else "zstd" for leaf in leaves},
        "use_dictionary": [leaf for leaf in leaves if leaf.partition(".")[0] in repeating],
        # Nothing searches parts by value: statistics would only make every footer longer to read.
        "write_statistics": False,
    }


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield from _leaves(f"{path}.{kind.field(i).name}", kind.field(i).type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def part_options(schema: pa.Schema) -> Mapping[str, Any]:
    """Return how parts of `schema` are written."""
    # Audio does not shrink. Keys and statuses are what a resume reads of every part: unpacking them would
    # take as long again as reading them. In row groups as small as these a dictionary makes nothing smaller.
    options = parquet_options(schema, plain={AUDIO_COLUMN, "request_key", "status"})
    return {**options, "write_batch_size": _AT_ONCE_ROWS}


LEDGER_OPTIONS = parquet_options(LEDGER_SCHEMA, repeating=_REPEATING)


class Batch:
    """Records on their way into one row group."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.audio_bytes = 0

    def add(self, record: Record) -> bool:
        """Add a record; return True when the row group is full."""
        self.records.append(record)
        self.audio_bytes += len(record.audio_bytes or b"")
        return len(self.records) >= GROUP_ROWS or self.audio_bytes >= GROUP_BYTES


class PartFile:
    """A part while it is written; it has a name only after :meth:`publish`."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self.rows = 0
        self._schema = schema
        self._keys: list[str] = []
        self._statuses: list[str] = []
        self._file: pq.ParquetWriter | None = None

    def write(self, records: Sequence[Record]) -> None:
        """Write `records` as one row group."""
        batch = record_batch(records, self._schema)
        if self._file is None:
            self._file = pq.ParquetWriter(
                files.temp_path(self.path), self._schema, **part_options(self._schema)
            )
        self._file.write_batch(batch, row_group_size=len(records))
        self.rows += len(records)
        self._keys += [record.request_key for record in records]
        self._statuses += [str(record.status) for record in records]

    def publish(self) -> None:
        """Give the part its name, once it is on the disk; a part without rows has no file."""
        if self._file is not None:
            self._file.add_key_value_metadata(note(self._keys, self._statuses))
            self._file.close()
            self._file = None
            self._keys, self._statuses = [], []
            # Else Arrow keeps ten megabytes and more of what the part needed, until the next one is begun.
            # After each row group it would keep less still, and make every page anew: 45 us a row.
            pa.default_memory_pool().release_unused()
            files.publish(self.path)


def part_path(folder: Path, writer: str, number: int) -> Path:
    """Return where a writer's part of this number lies."""
    return folder / FOLDER_NAME / f"{writer}-{number:04d}.parquet"


def part_files(folder: Path) -> list[Path]:
    """Return the run's parts, in a stable order, without ``failed.parquet``."""
    return sorted(p for p in (folder / FOLDER_NAME).glob("[!.]*.parquet") if p.name != FAILED_NAME)


def failed_file(folder: Path) -> Path:
    """Return where the calls without audio lie, if there are any."""
    return folder / FOLDER_NAME / FAILED_NAME


def open_part(path: Path, *, memory_map: bool = False, pinned: bool = False) -> pq.ParquetFile:
    """Return a part for reading.

    Parameters
    ----------
    path
        The part.
    memory_map
        Map it, to read little of it.
    pinned
        It may be replaced while it is read: a remote one, which no open file keeps, is fetched whole.

    Raises
    ------
    StoreError
        When it is no Parquet file.
    """
    try:
        source = pa.BufferReader(path.read_bytes()) if pinned and is_remote(path) else files.readable(path)
        return pq.ParquetFile(source, memory_map=memory_map, thrift_string_size_limit=_LONGEST_NOTE_BYTES)
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"{path} cannot be read ({error}): restore it from a copy of the folder") from error


def fitted(found: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """Return what was read of a file with the columns of `schema`; null where an earlier version had none.

    Raises
    ------
    StoreError
        When it lacks one of :data:`NEEDED_COLUMNS`.
    """
    lost = [f for f in schema if f.name not in found.column_names]
    if needed := [f.name for f in lost if f.name in NEEDED_COLUMNS]:
        raise StoreError(f"{path} has no column {', '.join(needed)}: restore it from a copy of the folder")
    for f in lost:
        found = found.append_column(f, pa.nulls(found.num_rows, f.type))
    return found.select(schema.names)
