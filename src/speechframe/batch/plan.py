"""Which calls of a run's table are still to be made, and how a table differs from it.

Everything is read from the run's own files, so a resume needs nothing from the caller.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.batch.backend import Backend, Opened, Request
from speechframe.batch.estimate import Estimate, Mask, Sums, broken_down, caps_of, first_beyond, priced, timed
from speechframe.batch.options import Options
from speechframe.batch.prepare import Prepared
from speechframe.batch.progress import credits_in_words
from speechframe.batch.queue import Call
from speechframe.store import parts
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder, storing
from speechframe.store.journal import loads
from speechframe.store.records import read_snapshot, spent
from speechframe.store.schema import (
    BASE_KEY,
    CHARGED_UNKNOWN,
    FINISHED,
    KEY_BYTES,
    NOTED,
    PACK,
    PRICE,
    REQUEST,
    ROW_ID,
    TAGS,
    TAKE,
    Row,
)

if TYPE_CHECKING:
    import pandas as pd

Keys = Any
"""Keys of calls as an Arrow array, 16 bytes each: whatever the number of rows, they fit into memory."""

REPEAT_MARGIN = 0.9
"""Of the time in which repeats are free: a repeat must arrive before the service forgets."""

_ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Changes:
    """How a table differs from a run's own.

    Attributes
    ----------
    new, changed, removed, unchanged
        Row ids by what became of them.
    columns
        For each changed row id, the arguments that differ.
    credits
        What resuming the run with the table would cost.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    credits: float = 0.0

    def to_pandas(self) -> "pd.DataFrame":
        """Return one line a row: ``row_id``, ``change`` and, where it changed, ``columns``."""
        import pandas as pd

        lines = [
            (row_id, change, ", ".join(self.columns.get(row_id, ())))
            for change in ("new", "changed", "removed", "unchanged")
            for row_id in getattr(self, change)
        ]
        return pd.DataFrame(lines, columns=["row_id", "change", "columns"])

    def __str__(self) -> str:
        """Return the counts and the price on one line."""
        return (
            f"{len(self.new):,} new, {len(self.changed):,} changed, {len(self.removed):,} removed, "
            f"{len(self.unchanged):,} unchanged: {credits_in_words(self.credits)}"
        )


@dataclass
class Plan:
    """The calls of a run's table, and which of them are still to be made."""

    prepared: Prepared
    keys: Keys  # of each row's call
    estimate: Estimate
    todo: Mask  # rows whose call is to be made
    free: Mask  # those among them that cost nothing: they are paid already
    cached: Mask  # rows whose answer the cache has
    due: dict[str, Row]  # by key, the failed records of calls that may have been billed and are sent again

    def only_free(self) -> None:
        """Leave out what costs something, also where :meth:`calls` has begun."""
        self.todo &= self.free

    def calls(self, backend: Backend) -> Iterator[Call]:
        """Yield the calls to make: first those that went in packs before, as they were, then all others."""
        packs: dict[str, list[str]] = {}
        for key, row in self.due.items():
            if row[PACK] is not None:
                packs.setdefault(row[PACK], []).append(key)
        if packs:
            in_packs = self.todo & among(
                self.keys, as_keys_of(key for keys in packs.values() for key in keys)
            )
            again = {request.key: request for request in self.requests(in_packs)}
            for pack, keys in packs.items():
                noted = _noted(self.due[keys[0]])
                for request in backend.pack(iter([again[key] for key in keys if key in again])):
                    # Only the very same call is free once more, or one that goes on from what was noted;
                    # otherwise its rows stay as they are.
                    if request.key == pack or noted is not None:
                        yield Call(request, is_unknown=True, is_paid=True, noted=noted)
            self.todo &= ~in_packs
        for request in backend.pack(self.requests(self.todo)):
            if known := self.due.get(request.key):
                yield Call(request, is_unknown=True, is_paid=True, noted=_noted(known))
            else:
                yield Call(request)

    def requests(self, wanted: Mask) -> Iterator[Request]:
        """Yield the requests of rows that are wanted by then, reading the table as far as it is asked."""
        columns = [ROW_ID, BASE_KEY, TAKE, PRICE, REQUEST, TAGS]
        folder, start = self.prepared.table_folder, 0
        source = folder.source(self.prepared.entry.file)
        counts = count_of_each(self.keys)
        with storing(folder, "reading the table"), pq.ParquetFile(source) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
                if not wanted[start:].any():
                    return
                places = start + np.flatnonzero(wanted[start : start + batch.num_rows])
                rows = batch.take(places - start).to_pylist()
                keys, numbers = self.keys.take(places).to_pylist(), counts[places].tolist()
                for row, key, number in zip(rows, keys, numbers, strict=True):
                    known, _, body = row[REQUEST].partition(b"\n")
                    characters, varies, facts = loads(known)
                    if row[TAGS] is not None:
                        facts["tags"] = loads(row[TAGS])
                    if number > 1:
                        facts["rows"] = number
                    yield Request(
                        b"",
                        body,
                        row[PRICE],
                        characters,
                        facts,
                        varies,
                        base_key=row[BASE_KEY],
                        take=row[TAKE],
                        key=key.hex(),
                        row_id=row[ROW_ID],
                    )
                start += batch.num_rows


def plan(
    prepared: Prepared,
    backend: Backend,
    opened: Opened,
    options: Options,
    cache: Cache | None = None,
    limit: int | None = None,
    ledger: Folder | None = None,
) -> Plan:
    """Find out which calls of a table have no outcome yet.

    `cache` has answers of other runs, `limit` is what the run may spend, in thousandths of a credit, `ledger`
    tells how long calls took before.
    """
    folder, keys = prepared.folder, as_keys(prepared.keys)
    index = read_snapshot(folder).index
    finished = as_keys(index.keys[index.with_status(FINISHED)].tobytes())
    unknown = {key: row for key, row in parts.failures(folder).items() if row["status"] == CHARGED_UNKNOWN}
    until = time.time() - REPEAT_MARGIN * opened.repeats_free_s
    is_same_key = prepared.manifest.key_fingerprint == opened.key_fingerprint
    due = {
        key: row
        for key, row in unknown.items()
        if row[NOTED] is not None or (is_same_key and row["finished_at"].timestamp() > until)
    }
    stays = as_keys_of([] if options.on_unknown == "retry" else unknown.keys() - due.keys())
    first = first_of_each(keys)
    is_done, is_kept = among(keys, finished), among(keys, stays)
    todo = first & ~is_done & ~is_kept
    cached = np.zeros(len(first), dtype=bool)
    if cache is not None and todo.any():
        cached[todo] = cache.has([key.hex() for key in keys.filter(pa.array(todo)).to_pylist()])
    todo &= ~cached
    free = todo & among(keys, as_keys_of(due))
    price = int(prepared.prices[todo & ~free].sum())
    left = None if limit is None else max(0, limit - spent(folder))
    caps = caps_of(opened.lanes, options.max_concurrency)
    breakdown = broken_down(prepared, todo, free)
    charged = Sums(millicredits=price, charged_calls=int((todo & ~free).sum()))
    estimate = Estimate(
        rows=prepared.entry.rows,
        unique=int(first.sum()),
        finished=int((first & is_done).sum()),
        invalid=prepared.entry.invalid,
        calls=int(todo.sum()),
        credits=price / 1000,
        balance=opened.balance,
        concurrency=sum(caps.values()) or None,
        identical_retakes=prepared.identical_retakes,
        cached=int(cached.sum()),
        budget=None if left is None else left / 1000,
        amount=backend.describe(price) if todo.any() else None,
        unit=backend.unit,
        remark=backend.remark,
        unknown=int((first & is_kept & ~is_done).sum()),
        paid=int(free.sum()),
        ends_at=None if left is None else first_beyond(prepared, todo & ~free, left),
        breakdown=breakdown,
        **timed(prepared.manifest, int(todo.sum()), caps, ledger),
        **priced(prepared.manifest, charged, breakdown, options.service),
    )
    return Plan(prepared, keys, estimate, todo, free, cached, due)


def _noted(row: Row) -> bytes | None:
    return None if row[NOTED] is None else bytes.fromhex(row[NOTED])


def as_keys(packed: bytes | bytearray) -> Keys:
    """Return keys that lie one after the other as an array."""
    count, kind = len(packed) // KEY_BYTES, pa.binary(KEY_BYTES)
    return pa.FixedSizeBinaryArray.from_buffers(kind, count, [None, pa.py_buffer(packed)])


def as_keys_of(hex_keys: Iterable[str]) -> Keys:
    """Return keys of 32 hex digits as an array."""
    return as_keys(bytes.fromhex("".join(hex_keys)))


def first_of_each(keys: Keys) -> Mask:
    """Return True where a key stands for the first time; never for the zeros of a row without a call."""
    # Codes are given in the order in which their keys come.
    codes = keys.dictionary_encode().indices.to_numpy()
    first = np.ones(len(keys), dtype=bool)
    first[1:] = codes[1:] > np.maximum.accumulate(codes)[:-1]
    return first & ~among(keys, as_keys(bytes(KEY_BYTES)))


def count_of_each(keys: Keys) -> npt.NDArray[np.int64]:
    """Return for each row how many rows have its call."""
    codes = keys.dictionary_encode().indices.to_numpy()
    counts: npt.NDArray[np.int64] = np.bincount(codes, minlength=1)[codes]
    return counts


def among(keys: Keys, known: Keys) -> Mask:
    """Return True where a key is one of `known`."""
    is_known: Any = pc.is_in(keys, known)
    found: Mask = is_known.to_numpy(zero_copy_only=False)
    return found
