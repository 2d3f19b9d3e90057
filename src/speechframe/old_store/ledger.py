"""The ledger: one row an attempt, in ``attempts/``."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.old_store import files
from speechframe.old_store.arrow import ledger_batch
from speechframe.old_store.parts import LEDGER_OPTIONS, fitted, open_part
from speechframe.old_store.schema import LEDGER_SCHEMA, LedgerRow

FOLDER_NAME = "attempts"
_TIME = "time"


def ledger_path(folder: Path, writer: str, number: int) -> Path:
    """Return where the attempts of a writer's segment of this number lie."""
    return folder / FOLDER_NAME / f"{writer}-{number:04d}.parquet"


def ledger_files(folder: Path) -> list[Path]:
    """Return the files of the ledger, in a stable order."""
    return sorted((folder / FOLDER_NAME).glob("[!.]*.parquet"))


def write_ledger(path: Path, rows: Sequence[LedgerRow]) -> None:
    """Write a segment's attempts; no file when there are none."""
    if not rows:
        return
    with pq.ParquetWriter(files.temp_path(path), LEDGER_SCHEMA, **LEDGER_OPTIONS) as file:
        file.write_batch(ledger_batch(rows))
    files.publish(path)


def read_ledger(
    paths: Iterable[Path], columns: Sequence[str] | None = None, *, others: Sequence[LedgerRow] = ()
) -> pa.Table:
    """Return every attempt in these files, by time; parameters as of :func:`read_attempts`."""
    schema = _schema(columns)
    # There is nothing else to go by, so it is read in any case.
    names = schema.names if _TIME in schema.names else [*schema.names, _TIME]
    tables = [_schema(names).empty_table(), *read_attempts(paths, names, others=others)]
    return pa.concat_tables(tables).sort_by(_TIME).select(schema.names)


def read_attempts(
    paths: Iterable[Path], columns: Sequence[str] | None = None, *, others: Sequence[LedgerRow] = ()
) -> Iterator[pa.Table]:
    """Yield the attempts of one file after the other, in as much memory as one of them takes.

    Parameters
    ----------
    paths
        Files of the ledger.
    columns
        Some of :data:`LEDGER_SCHEMA`; None for all.
    others
        Attempts that are in no file yet.

    Raises
    ------
    StoreError
        When a file cannot be read, or lacks one of :data:`NEEDED_COLUMNS`.
    """
    schema = _schema(columns)
    for path in paths:
        with open_part(path) as file:
            yield fitted(file.read(columns=schema.names), schema, path)
    if others:
        yield pa.Table.from_batches([ledger_batch(others)], LEDGER_SCHEMA).select(schema.names)


def _schema(columns: Sequence[str] | None) -> pa.Schema:
    return LEDGER_SCHEMA if columns is None else pa.schema([LEDGER_SCHEMA.field(name) for name in columns])
