"""The ledger: one row an attempt, in ``attempts/``."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.store import files
from speechframe.store.arrow import ledger_batch
from speechframe.store.parts import LEDGER_OPTIONS, open_part
from speechframe.store.schema import LEDGER_SCHEMA, LedgerRow

FOLDER_NAME = "attempts"


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


def read_ledger(paths: Sequence[Path]) -> pa.Table:
    """Return every attempt in these files, by time."""
    tables = []
    for path in paths:
        with open_part(path) as file:
            tables.append(file.read(columns=LEDGER_SCHEMA.names))
    if not tables:
        return LEDGER_SCHEMA.empty_table()
    return pa.concat_tables(tables, promote_options="default").sort_by("time")
