"""Which calls of a run's table are still to be made, and what they cost.

Everything is read from the run's own files, so a resume needs nothing from the caller.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.batch.backend import Backend, Opened, Request
from speechframe.batch.estimate import Estimate
from speechframe.batch.options import Options
from speechframe.store import parts
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder, Manifest, TableEntry, storing
from speechframe.store.journal import dumps, loads
from speechframe.store.records import read_snapshot, spent_by_month
from speechframe.store.schema import (
    BASE_KEY,
    CHARGED_UNKNOWN,
    FINISHED,
    KEY_BYTES,
    NOTED,
    PRICE,
    REQUEST,
    ROW_ID,
    TAGS,
    TAKE,
    Row,
    call_key,
)

Keys = Any
"""Keys of calls as an Arrow array, 16 bytes each: whatever the number of rows, they fit into memory."""
Mask = npt.NDArray[np.bool_]
Prices = npt.NDArray[np.int64]

NO_KEY = bytes(KEY_BYTES)
"""The key of a row without a call."""

REPEAT_MARGIN = 0.9
"""Of the time in which repeats are free: a repeat must arrive before the service forgets."""

_GROUP_ROWS = 8192
_AT_ONCE = 64


@dataclass
class CheckedTable:
    """A table in which every row was checked; its file lies in `folder`."""

    folder: Folder
    entry: TableEntry
    keys: Keys  # of each row's call, its take included; NO_KEY of a row that cannot be sent
    prices: Prices  # thousandths of a credit, a row each
    identical_retakes: int = 0  # rows of which another take was asked that would be the same


@dataclass
class Plan:
    """The calls of a run's table, and which of them are still to be made."""

    table: CheckedTable
    estimate: Estimate
    todo: Mask  # rows whose call is to be made
    free: Mask  # those among them that cost nothing: they are paid already
    cached: Mask  # rows whose answer the cache has
    due: dict[str, Row]  # by key, the failed records of calls that may have been billed and are sent again

    def requests(self, wanted: Mask, *, only: Callable[[], Mask | None] = lambda: None) -> Iterator[Request]:
        """Yield the requests of some rows, reading the table as far as they are asked for.

        Parameters
        ----------
        wanted
            Which rows.
        only
            Asked now and then: rows that are still wanted, or None for all of them.
        """
        columns = [ROW_ID, BASE_KEY, TAKE, PRICE, REQUEST, TAGS]
        folder, start = self.table.folder, 0
        source = folder.source(self.table.entry.file)
        with storing(folder, "reading the table"), pq.ParquetFile(source) as file:
            for batch in file.iter_batches(_GROUP_ROWS, columns=columns):
                places = np.flatnonzero(wanted[start : start + batch.num_rows])
                for first in range(0, len(places), _AT_ONCE):
                    some = places[first : first + _AT_ONCE]
                    if (mask := only()) is not None:
                        some = some[mask[start + some]]
                    for row in batch.take(pa.array(some, pa.int64())).to_pylist():
                        yield _request_of(row)
                start += batch.num_rows
                if (mask := only()) is not None and not (mask & wanted)[start:].any():
                    return


def written(request: Request) -> bytes:
    """Return a request as the input file holds it: what is known of it as a line of JSON, then its body."""
    return dumps([request.characters, request.varies, request.facts]) + b"\n" + request.body


def _request_of(row: Row) -> Request:
    known, _, body = row[REQUEST].partition(b"\n")
    characters, varies, facts = loads(known)
    if row[TAGS] is not None:
        facts["tags"] = loads(row[TAGS])
    return Request(
        b"",
        body,
        row[PRICE],
        characters,
        facts,
        varies,
        base_key=row[BASE_KEY],
        take=row[TAKE],
        key=call_key(row[BASE_KEY], row[TAKE]),
        row_id=row[ROW_ID],
    )


def plan(
    folder: Folder,
    manifest: Manifest,
    table: CheckedTable,
    backend: Backend,
    opened: Opened,
    options: Options,
    cache: Cache | None,
    limit: int | None,
) -> Plan:
    """Find out which calls of a table have no outcome yet.

    Parameters
    ----------
    folder, manifest
        The run.
    table
        Its table, or one that is only looked at.
    backend, opened, options
        The service and the run options.
    cache
        Answers of other runs; None for none.
    limit
        What the run may spend, in thousandths of a credit; None for no limit.
    """
    finished = as_keys(read_snapshot(folder).index.packed(FINISHED))
    unknown = {key: row for key, row in parts.failures(folder).items() if row["status"] == CHARGED_UNKNOWN}
    until = time.time() - REPEAT_MARGIN * opened.repeats_free_s
    is_same_key = manifest.key_fingerprint == opened.key_fingerprint
    due = {
        key: row
        for key, row in unknown.items()
        if row[NOTED] is not None or (is_same_key and row["finished_at"].timestamp() > until)
    }
    stays = as_keys_of([] if options.on_unknown == "retry" else unknown.keys() - due.keys())
    first = first_of_each(table.keys)
    is_done, is_kept = among(table.keys, finished), among(table.keys, stays)
    todo = first & ~is_done & ~is_kept
    cached = np.zeros(len(first), dtype=bool)
    if cache is not None and todo.any():
        cached[todo] = cache.has([key.hex() for key in table.keys.filter(pa.array(todo)).to_pylist()])
    todo &= ~cached
    free = todo & among(table.keys, as_keys_of(due))
    price = int(table.prices[todo & ~free].sum())
    spent = 0 if limit is None else sum(spent_by_month(folder).values())
    estimate = Estimate(
        rows=table.entry.rows,
        unique=int(first.sum()),
        finished=int((first & is_done).sum()),
        invalid=table.entry.invalid,
        calls=int(todo.sum()),
        credits=price / 1000,
        balance=opened.balance,
        concurrency=sum(lane.published or 0 for lane in opened.lanes if not lane.is_fallback) or None,
        identical_retakes=table.identical_retakes,
        cached=int(cached.sum()),
        budget=None if limit is None else max(0, limit - spent) / 1000,
        amount=backend.describe(price) if todo.any() else None,
        unit=backend.unit,
        remark=backend.remark,
        unknown=int((first & is_kept & ~is_done).sum()),
        paid=int(free.sum()),
    )
    return Plan(table, estimate, todo, free, cached, due)


# -- keys ----------------------------------------------------------------------------


def as_keys(packed: bytes | bytearray) -> Keys:
    """Return keys that lie one after the other as an array."""
    count = len(packed) // KEY_BYTES
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(KEY_BYTES), count, [None, pa.py_buffer(bytes(packed))]
    )


def as_keys_of(hex_keys: Iterable[str]) -> Keys:
    """Return keys of 32 hex digits as an array."""
    return as_keys(bytes.fromhex("".join(hex_keys)))


def keys_of_takes(base_keys: bytearray, takes: "npt.NDArray[np.int32]") -> Keys:
    """Return the keys of calls from the keys of their first takes."""
    for place in np.flatnonzero(takes):
        at = slice(KEY_BYTES * place, KEY_BYTES * (place + 1))
        base_keys[at] = bytes.fromhex(call_key(base_keys[at].hex(), int(takes[place])))
    return as_keys(base_keys)


def first_of_each(keys: Keys) -> Mask:
    """Return True where a key stands for the first time; never for :data:`NO_KEY`.

    Examples
    --------
    >>> first_of_each(as_keys_of(["01" * 16, "02" * 16, "01" * 16, "00" * 16])).tolist()
    [True, True, False, False]
    """
    # Codes are given in the order in which their keys come.
    codes = keys.dictionary_encode().indices.to_numpy()
    first = np.ones(len(keys), dtype=bool)
    first[1:] = codes[1:] > np.maximum.accumulate(codes)[:-1]
    return first & ~among(keys, as_keys(NO_KEY))


def among(keys: Keys, known: Keys) -> Mask:
    """Return True where a key is one of `known`."""
    is_known: Any = pc.is_in(keys, known)
    found: Mask = is_known.to_numpy(zero_copy_only=False)
    return found
