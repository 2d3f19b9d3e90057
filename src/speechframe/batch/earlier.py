"""The requests that a run's table contains, as a memory of the decisions about its rows."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.batch.backend import HELD_COLUMN, EarlierRows, Request
from speechframe.store.folder import Folder, Manifest, convert_read_errors
from speechframe.store.journal import dump_json, load_json
from speechframe.store.reader import StoredRun
from speechframe.store.records import convert_to_hex, read_snapshot
from speechframe.store.reviews import KEEP
from speechframe.store.rows import ROW_ID_COLUMN
from speechframe.store.schema import (
    BASE_KEY,
    CACHED,
    COLUMN_PREFIX,
    DONE,
    PRICE,
    REQUEST,
    ROW_ID,
    TAGS,
    TAKE,
    compute_call_key,
    find_row_columns,
)

_ROWS_AT_ONCE = 4096
"""Number of rows of a table that are decoded at a time."""


def write_held_request(request: Request, key: str) -> str:
    """Return the column :data:`HELD_COLUMN` of a row: the key and the price of a request, and the request."""
    return f"{key} {request.price} {write_request(request).decode()}"


def read_held_request(request: Request) -> Request | None:
    """Return the request that is held back in a row, or None."""
    if (held := request.row_values.get(HELD_COLUMN)) is None:
        return None
    key, price, written = held.split(" ", 2)
    row = {REQUEST: written.encode(), BASE_KEY: key, TAKE: 0, PRICE: int(price), ROW_ID: request.row_id}
    return replace(read_request(row), row_values={**request.row_values, "held_back": None, HELD_COLUMN: None})


def write_request(request: Request) -> bytes:
    """Return the column REQUEST of a row: a line of JSON with facts, and then the body."""
    return dump_json([request.characters, request.varies, request.facts]) + b"\n" + request.body


def read_request(row: Mapping[str, Any], key: str | None = None) -> Request:
    """Return the request in a row of an input file. Without a call, its key and its body are empty.

    By default its `key` is computed.
    """
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
        key=(compute_call_key(base_key, take) if base_key else "") if key is None else key,
        row_id=row[ROW_ID],
        row_values={
            name.removeprefix(COLUMN_PREFIX): row[name]
            for name in find_row_columns(row)
            if row[name] is not None
        },
    )


class StoredEarlierRows(EarlierRows):
    """The rows of the newest table in a run's folder, which must exist. It is read at the first use."""

    def __init__(self, folder: Folder, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest

    def has_column(self, name: str) -> bool:
        """Return whether the table has a row column of this name."""
        return COLUMN_PREFIX + name in self._schema.names

    def find(self, row_id: str) -> Request | None:
        """Return the request of a row, or None if the table lacks the row."""
        position = self._positions.get(row_id)
        if position is None:
            return None
        # Read single values, because a conversion of one row of a table takes five times as long.
        return read_request({name: column[position].as_py() for name, column in self._columns.items()})

    def find_kept(self, row_id: str) -> str | None:
        """Return the key of a row's current audio if the newest review of the row keeps it, or None."""
        return self._kept.get(row_id)

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the requests of all rows."""
        for batch in self._table.to_batches(_ROWS_AT_ONCE):
            yield from map(read_request, batch.to_pylist())

    @cached_property
    def _schema(self) -> pa.Schema:
        with convert_read_errors(self._folder, file := self._manifest.table.file):
            return pq.read_schema(self._folder.get_source(file))

    @cached_property
    def _table(self) -> pa.Table:
        ours = [name for name in self._schema.names if name.startswith(COLUMN_PREFIX) and name != TAGS]
        with convert_read_errors(self._folder, file := self._manifest.table.file):
            return pq.read_table(self._folder.get_source(file), columns=ours).combine_chunks()

    @cached_property
    def _columns(self) -> dict[str, Any]:
        return dict(zip(self._table.column_names, self._table.columns, strict=True))

    @cached_property
    def _positions(self) -> dict[Any, int]:
        return {row_id: position for position, row_id in enumerate(self._table[ROW_ID].to_pylist())}

    @cached_property
    def _kept(self) -> dict[str, str]:
        run = StoredRun(self._folder)
        reviews = run.reviews
        names = [run.name_of(ROW_ID_COLUMN), run.name_of("request_key")]
        keys: dict[Any, Any] = dict(zip(*(c.to_pylist() for c in run.to_arrow(names).columns), strict=True))
        kept = reviews[(reviews["verdict"] == KEEP) & reviews["is_current"]]
        return {row_id: keys[row_id] for row_id in kept["row_id"]}


def read_seconds(folder: Folder) -> dict[str, float]:
    """Return the length in seconds of the audio of each good answer of a run, by the key of its call."""
    snapshot = read_snapshot(folder)
    positions = snapshot.index.find_with_status({DONE, CACHED})
    found = snapshot.read_records(positions, pa.schema([("audio_seconds", pa.float64())]))
    seconds: list[Any] = found[0].to_pylist()
    return dict(zip(convert_to_hex(snapshot.index.keys[positions]), seconds, strict=True))
