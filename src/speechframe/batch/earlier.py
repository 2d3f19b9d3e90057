"""The requests that a run's table contains, as a memory of the decisions about its rows."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.batch.backend import Request
from speechframe.store.folder import Folder, Manifest, convert_read_errors
from speechframe.store.journal import dump_json, load_json
from speechframe.store.schema import (
    BASE_KEY,
    COLUMN_PREFIX,
    INPUT_COLUMNS,
    PRICE,
    REQUEST,
    ROW_ID,
    TAGS,
    TAKE,
    compute_call_key,
)


def find_row_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the row columns in an input file, with their prefix."""
    return [
        name for name in schema.names if name.startswith(COLUMN_PREFIX) and name not in INPUT_COLUMNS.names
    ]


def write_request(request: Request) -> bytes:
    """Return the column REQUEST of a row: a line of JSON with facts, and then the body."""
    return dump_json([request.characters, request.varies, request.facts]) + b"\n" + request.body


def read_request(row: Mapping[str, Any]) -> Request:
    """Return the request in a row of an input file. Without a call, its key and its body are empty."""
    known, _, body = (row[REQUEST] or b"[0, false, {}]\n").partition(b"\n")
    characters, varies, facts = load_json(known)
    if row.get(TAGS) is not None:
        facts["tags"] = load_json(row[TAGS])
    base_key, take = row[BASE_KEY] or "", row[TAKE]
    return Request(
        b"",
        body,
        row[PRICE],
        characters,
        facts,
        varies,
        base_key=base_key,
        take=take,
        key=compute_call_key(base_key, take) if base_key else "",
        row_id=row[ROW_ID],
        row_values={
            name.removeprefix(COLUMN_PREFIX): value
            for name, value in row.items()
            if name.startswith(COLUMN_PREFIX) and name not in INPUT_COLUMNS.names and value is not None
        },
    )


class EarlierRows:
    """Finds the request of a row in the run's table so far, by row id. The table is read at the first use."""

    def __init__(self, folder: Folder, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self._table: pa.Table | None = None
        self._positions: dict[str, int] = {}

    def __call__(self, row_id: str) -> Request | None:
        """Return the request of a row, or None if the run has no table or its table lacks the row."""
        table = self._read()
        position = self._positions.get(row_id)
        return None if position is None else read_request(table.slice(position, 1).to_pylist()[0])

    def _read(self) -> pa.Table:
        if self._table is None:
            self._table = INPUT_COLUMNS.empty_table()
            if self._manifest.tables and self._folder.exists(file := self._manifest.table.file):
                with convert_read_errors(self._folder, file):
                    names = pq.read_schema(self._folder.get_source(file)).names
                    ours = [name for name in names if name.startswith(COLUMN_PREFIX) and name != TAGS]
                    self._table = pq.read_table(self._folder.get_source(file), columns=ours).combine_chunks()
            ids: list[Any] = self._table[ROW_ID].to_pylist()
            self._positions = {row_id: position for position, row_id in enumerate(ids)}
        return self._table
