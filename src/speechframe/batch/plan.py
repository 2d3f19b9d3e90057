"""Which calls of a run's table are still to be made, what they cost, and how a table differs from it.

Everything is read from the run's own files, so a resume needs nothing from the caller.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.batch.backend import Backend, Opened, Request
from speechframe.batch.options import Options
from speechframe.batch.prepare import Prepared
from speechframe.batch.progress import counted, credits_in_words, duration
from speechframe.batch.queue import Call
from speechframe.errors import SettingsError, nearest
from speechframe.settings.prices import Prices, prices_in_force
from speechframe.store import parts
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder, storing
from speechframe.store.journal import loads
from speechframe.store.ledger import mean_latency_s
from speechframe.store.records import read_snapshot, spent
from speechframe.store.schema import (
    BASE_KEY,
    CHARGED_UNKNOWN,
    FINISHED,
    KEY_BYTES,
    NOTED,
    PACK,
    PREFIX,
    PRICE,
    REQUEST,
    ROW_ID,
    TAGS,
    TAKE,
    Row,
    call_key,
)

if TYPE_CHECKING:
    import pandas as pd

Keys = Any
"""Keys of calls as an Arrow array, 16 bytes each: whatever the number of rows, they fit into memory."""
Mask = npt.NDArray[np.bool_]

REPEAT_MARGIN = 0.9
"""Of the time in which repeats are free: a repeat must arrive before the service forgets."""

_FACTS = ("model", "locale", "voice_id", "format")
_ROWS_AT_ONCE = 256
_LONG_S = 60
"""A run that takes less says nothing of its time."""


@dataclass(frozen=True)
class Estimate:
    """What a run would do and cost.

    Attributes
    ----------
    rows, unique, invalid
        Rows of the table, different calls among them, and rows that cannot be sent.
    finished, cached
        Calls that an earlier run of this folder has made, or that are in the cache: they cost nothing.
    calls, credits
        Calls still to make, and the price of those that were not paid before.
    paid
        Calls still to make that were billed, or perhaps, and whose repeat is free.
    unknown
        Calls that may have been billed without an answer, and are not sent again unasked.
    identical_retakes
        Rows whose further take would be the same as the first: they are not billed again.
    balance, budget
        Characters left on the key, and credits that the run's limit leaves; None where nothing is said.
    concurrency
        Calls in flight at most, as far as it is known before the first call.
    amount
        What the credits are paid for, in words, where they do not say it themselves.
    unit
        What a call is to people who count them: a text, where several go in one request.
    remark
        What else people are to know of the run, if anything.
    money, currency, price_from
        What the credits cost by the price of today, and the date of that price; None without one.
    ends_at
        Id of the first row that the budget does not cover; None where it covers all.
    seconds, lanes
        How long the calls take at the cap, and for each lane in words; without the time where no call of
        this kind has been answered yet.
    """

    rows: int
    unique: int
    finished: int
    invalid: int
    calls: int
    credits: float
    balance: int | None = None
    concurrency: int | None = None
    identical_retakes: int = 0
    cached: int = 0
    budget: float | None = None
    amount: str | None = None
    unit: str = "call"
    remark: str | None = None
    unknown: int = 0
    paid: int = 0
    money: float | None = None
    currency: str | None = None
    price_from: date | None = None
    ends_at: str | None = None
    seconds: float | None = None
    lanes: tuple[str, ...] = ()
    _calls: Callable[[Sequence[str]], Iterator[Row]] | None = field(default=None, repr=False, compare=False)

    def by(self, *columns: str) -> "pd.DataFrame":
        """Return what the calls still to make cost, by some columns.

        Parameters
        ----------
        *columns
            ``locale``, ``voice_id``, ``model``, ``format``, or any column of the table, such as the speaker.
            A call that several rows share counts for the first of them.

        Returns
        -------
        pandas.DataFrame
            The columns, and ``calls``, ``characters`` and ``credits``, the dearest first.

        Raises
        ------
        SettingsError
            For a column that there is not.

        Examples
        --------
        >>> run = generate(frame, voice="en-US-nora", dry_run=True)  # doctest: +SKIP
        >>> run.estimate.by("speaker", "locale")  # doctest: +SKIP
        """
        import pandas as pd

        found: dict[tuple[Any, ...], list[int]] = {}
        for row in self._calls(columns) if self._calls is not None else ():
            sums = found.setdefault(tuple(row[name] for name in columns), [0, 0, 0])
            for place, amount in enumerate((1, row["characters"], row["millicredits"])):
                sums[place] += amount
        rows = [(*group, calls, letters, millis / 1000) for group, (calls, letters, millis) in found.items()]
        frame = pd.DataFrame(rows, columns=[*columns, "calls", "characters", "credits"])
        return frame.sort_values("credits", ascending=False, ignore_index=True)

    def line(self) -> str:
        """Return the one line a run begins with."""
        left = self.budget or 0.0
        share = f" ({100 * self.credits / self.balance:,.3g} %)" if self.balance and self.credits else ""
        identical = f"{self.identical_retakes:,} rows cannot vary: retake_identical, not billed again"
        passes_budget = self.budget is not None and self.credits > left
        parts = (
            (True, counted(self.rows, "row")),
            (True, f"{self.unique:,} unique"),
            (self.finished, f"{self.finished:,} done before"),
            (self.unknown, f"{self.unknown:,} perhaps billed and not sent again"),
            (self.cached, f"{self.cached:,} cached"),
            (self.invalid, f"{self.invalid:,} invalid"),
            (True, counted(self.calls, self.unit)),
            (self.paid, f"{self.paid:,} of them paid before"),
            (self.amount and self.calls, self.amount or ""),
            (True, credits_in_words(self.credits)),
            (self.money, f"{self.money or 0:,.2f} {self.currency} by the price of {self.price_from}"),
            (self.balance is not None, f"of {self.balance or 0:,} left{share}"),
            (passes_budget, f"more than the {left:,.10g} that its budget leaves: it would stop there"),
            (passes_budget and self.ends_at, f"before row {self.ends_at}"),
            (self.concurrency and self.calls, f"{self.concurrency} at a time"),
            (self.seconds and self.seconds >= _LONG_S, f"about {duration(self.seconds or 0.0)} at that"),
            (self.identical_retakes, identical),
        )
        remark = f"; {self.remark}" if self.remark else ""
        return ", ".join(words for is_said, words in parts if is_said) + remark


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
                for request in backend.pack(iter([again[key] for key in keys if key in again])):
                    # Only the very same call is free once more; otherwise its rows stay as they are.
                    if request.key == pack:
                        yield Call(request, is_unknown=True, is_paid=True)
            self.todo &= ~in_packs
        for request in backend.pack(self.requests(self.todo)):
            if known := self.due.get(request.key):
                noted = None if known[NOTED] is None else bytes.fromhex(known[NOTED])
                yield Call(request, is_unknown=True, is_paid=True, noted=noted)
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
                here = wanted[start : start + batch.num_rows]
                numbers = counts[start : start + batch.num_rows][here].tolist()
                for row, number in zip(batch.filter(pa.array(here)).to_pylist(), numbers, strict=True):
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
                        key=call_key(row[BASE_KEY], row[TAKE]),
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
    estimate = Estimate(
        rows=prepared.entry.rows,
        unique=int(first.sum()),
        finished=int((first & is_done).sum()),
        invalid=prepared.entry.invalid,
        calls=int(todo.sum()),
        credits=price / 1000,
        balance=opened.balance,
        concurrency=sum(lane.published or 0 for lane in opened.lanes if not lane.is_fallback) or None,
        identical_retakes=prepared.identical_retakes,
        cached=int(cached.sum()),
        budget=None if left is None else left / 1000,
        amount=backend.describe(price) if todo.any() else None,
        unit=backend.unit,
        remark=backend.remark,
        unknown=int((first & is_kept & ~is_done).sum()),
        paid=int(free.sum()),
    )
    found = Plan(prepared, keys, estimate, todo, free, cached, due)
    if options.dry_run:
        found.estimate = replace(estimate, _calls=_breakdown(found))
    seconds, lanes = _timed(found, opened, ledger)
    found.estimate = replace(
        found.estimate,
        seconds=seconds,
        lanes=lanes,
        ends_at=_ends_at(found, left),
        **_priced(found, prices_in_force()),
    )
    return found


def _breakdown(found: Plan) -> Callable[[Sequence[str]], Iterator[Row]]:
    """Return what yields the calls to make with some columns, also when the table's file has been removed."""
    folder, file = found.prepared.table_folder, found.prepared.entry.file
    source = folder.source(file)
    # An open file of Arrow's can be read until nobody needs it.
    table = pq.ParquetFile(pa.OSFile(str(source), "rb") if isinstance(source, Path) else source)
    todo, free, names = found.todo.copy(), found.free.copy(), table.schema_arrow.names

    def calls(columns: Sequence[str]) -> Iterator[Row]:
        for name in columns:
            if name not in {*names, *_FACTS} or name.startswith(PREFIX):
                known = [*_FACTS, *(one for one in names if not one.startswith(PREFIX))]
                raise SettingsError(
                    f"the table has no column {name!r}; {nearest(name, known)}there are {', '.join(known)}"
                )
        start = 0
        for batch in table.iter_batches(_ROWS_AT_ONCE, columns=[REQUEST, PRICE, *({*columns} & {*names})]):
            for place, row in enumerate(batch.to_pylist(), start):
                if todo[place]:
                    characters, _, facts = loads(row[REQUEST].partition(b"\n")[0])
                    price = 0 if free[place] else row[PRICE]
                    yield {**row, **facts, "characters": characters, "millicredits": price}
            start += batch.num_rows

    return calls


def _timed(found: Plan, opened: Opened, ledger: Folder | None) -> tuple[float | None, tuple[str, ...]]:
    """Return how long the calls take at the cap, and what each lane makes of them, in words."""
    manifest, calls = found.prepared.manifest, found.estimate.calls
    caps = {lane.name: lane.published for lane in opened.lanes if lane.published and not lane.is_fallback}
    if not calls or not caps:
        return None, ()
    mean_s = None if ledger is None else mean_latency_s(ledger, manifest.service, manifest.operation)
    seconds = None if mean_s is None else calls * mean_s / sum(caps.values())
    took = "" if seconds is None else f" = {duration(seconds)}"
    words = [
        f"{name}: {counted(round(calls * cap / sum(caps.values())), 'row')} at cap {cap}{took}"
        for name, cap in caps.items()
    ]
    return seconds, tuple(words)


def _priced(found: Plan, prices: Prices) -> dict[str, Any]:
    """Return what the calls cost in money, as fields of the estimate."""
    manifest, estimate = found.prepared.manifest, found.estimate
    price = prices.of(manifest.operation, manifest.service, datetime.now(UTC).date())
    if price is None:
        return {}
    quantities = {"credit": Decimal(str(estimate.credits)), "request": Decimal(estimate.calls)}
    if price.unit == "character" and estimate._calls is not None:  # noqa: SLF001 - the plan's own
        quantities["character"] = Decimal(sum(row["characters"] for row in estimate._calls(())))  # noqa: SLF001
    if price.unit not in quantities:  # of seconds nothing is known before
        return {}
    return {
        "money": float(price.amount(quantities)), "currency": prices.currency, "price_from": price.valid_from,
    }  # fmt: skip


def _ends_at(found: Plan, limit: int | None) -> str | None:
    """Return the first row whose call passes the run's limit, in the order of the table."""
    if limit is None:
        return None
    sums = np.cumsum(np.where(found.todo & ~found.free, found.prepared.prices, 0))
    beyond = np.flatnonzero(sums > limit)
    if not len(beyond):
        return None
    folder, file = found.prepared.table_folder, found.prepared.entry.file
    ids = pq.read_table(folder.source(file), columns=[ROW_ID]).column(0)
    return str(ids[int(beyond[0])].as_py())


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
