"""A table becomes calls: every row is checked once, keyed and priced, and written down with its request.

Nothing is sent here, and the run's lock is held. The plan reads back what was written, so a resume plans from
the run's own files and needs nothing from the caller.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe.batch.backend import Backend, Request
from speechframe.batch.keys import NO_KEY, KeyMaker, Keys, Mask, among, as_keys, first_of_each
from speechframe.errors import InvalidRows
from speechframe.spec.check import FieldProblem
from speechframe.store.folder import Folder, storing
from speechframe.store.journal import dumps, loads
from speechframe.store.keys import call_key
from speechframe.store.manifest import TableEntry
from speechframe.store.schema import (
    BASE_KEY,
    INPUT_COLUMNS,
    PREFIX,
    PRICE,
    REQUEST,
    ROW_ID,
    TAGS,
    TAKE,
    part_schema,
)
from speechframe.tables.columns import Source, our_names, problem, rows
from speechframe.tables.table_input import Table

_MOST_PROBLEMS = 1000
_GROUP_ROWS = 8192
_AT_ONCE = 64
_END = b"\n"


class PlanningStopped(Exception):
    """Somebody asked for the end of the run while its table was read."""


@dataclass
class Spooled:
    """A table as it was checked: what its rows ask for, in memory, and the rest in a file.

    Attributes
    ----------
    entry
        The table, for run.json.
    base_keys
        Key of each row's first take; :data:`NO_KEY` of a row that cannot be sent.
    takes, prices
        Take and price of each row.
    problems
        The first problems found, and `problem_count` of all.
    identical_retakes
        Rows of which another take was asked that would be the same.
    notes
        How many rows of the source were dropped or merged, and why.
    """

    entry: TableEntry
    base_keys: bytearray = field(default_factory=bytearray)
    takes: "list[npt.NDArray[np.int32]]" = field(default_factory=list)
    prices: "list[npt.NDArray[np.int64]]" = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    problem_count: int = 0
    identical_retakes: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def keys(self) -> Keys:
        """Key of each row's call, its take included."""
        return call_keys(self.base_keys, np.concatenate(self.takes))

    def add_problem(self, found: dict[str, Any]) -> None:
        """Keep one more problem."""
        self.problem_count += 1
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(found)

    def refuse(self, *, leaves_out: bool) -> None:
        """Raise InvalidRows where the table must not be sent.

        Parameters
        ----------
        leaves_out
            Bad rows are left out, unless nothing is left then or rows cannot be told apart.
        """
        is_hopeless = self.entry.invalid >= self.entry.rows or any(p["field"] == "id" for p in self.problems)
        if self.problem_count and (is_hopeless or not leaves_out):
            raise InvalidRows(self.problems, total=self.problem_count)


def spool(
    table: Table,
    sources: Mapping[str, Source],
    backend: Backend,
    folder: Folder,
    file: str,
    *,
    tags: Mapping[str, Source],
    standing: Mapping[str, int],
    is_stopped: Callable[[], bool],
) -> Spooled:
    """Check every row of a table and write it to a temporary file of the run's folder.

    Parameters
    ----------
    table
        The caller's table, read to its end.
    sources
        Argument to where its values come from; ``take`` may be among them.
    backend
        Opened, and told its folder.
    folder, file
        Where the table is to lie, ``input/0001.parquet`` and so on.
    tags
        Tags whose values differ from row to row.
    standing
        Base key to the take that its rows have had so far, where that is not the first.
    is_stopped
        Asked now and then; planning ends then with :class:`PlanningStopped`.
    """
    names = our_names(table.schema, [*part_schema(backend.columns).names, "row_id"])
    reserved = [name for name in table.schema.names if name.startswith(PREFIX)]
    if reserved:
        raise InvalidRows(
            [problem("table", f"has a column {reserved[0]!r}", allowed="names that do not begin with spf:")]
        )
    given = {name: source.to_json() for name, source in sources.items()}
    hidden = [
        name
        for name in sorted(backend.data_arguments & {*backend.columns.names})
        if name in sources and sources[name].column in table.schema.names
    ]
    entry = TableEntry(file, 0, table.id_column, names, given, hidden)
    found = Spooled(entry)
    checker = _Checker(backend, sources, tags, standing, found, set(table.schema.names))
    metadata: Any = table.schema.metadata
    schema = pa.schema([*table.schema, *INPUT_COLUMNS], metadata=metadata)
    with (
        storing(folder, "writing the table"),
        pq.ParquetWriter(folder.temporary(file), schema, compression="zstd", use_dictionary=False) as writer,
    ):
        for batch, ids in table.batches():
            if is_stopped():
                raise PlanningStopped
            places, ours = checker.columns(batch, ids)
            kept = batch.select(table.schema.names)
            if places is not None:
                kept = kept.take(places)
            writer.write_batch(pa.RecordBatch.from_arrays([*kept.columns, *ours], schema=schema))
    found.notes = table.notes
    if not table.is_numbered:
        _check_ids(folder, file, found)
    return found


class _Checker:
    """Turns the rows of a batch into the columns of ours beside it."""

    def __init__(
        self,
        backend: Backend,
        sources: Mapping[str, Source],
        tags: Mapping[str, Source],
        standing: Mapping[str, int],
        found: Spooled,
        columns: set[str],
    ) -> None:
        self._backend, self._tags, self._standing, self._found = backend, tags, standing, found
        self._sources, self._columns = sources, columns
        self._keys = KeyMaker(backend.operation, backend.service)
        self._expands = type(backend).expand is not Backend.expand

    def columns(
        self, batch: pa.RecordBatch, ids: list[str]
    ) -> "tuple[pa.Array[Any] | None, list[pa.Array[Any]]]":
        """Return from which row of the batch each row comes (None: they are the same), and our columns."""
        values = rows(batch, self._sources)
        places: list[int] | None = None
        if self._expands:
            spread = [
                (place, f"{row_id}{suffix}", more)
                for place, (row_id, row) in enumerate(zip(ids, values, strict=True))
                for suffix, more in self._backend.expand(row)
            ]
            places, ids = [s[0] for s in spread], [s[1] for s in spread]
            values = iter([dict(s[2]) for s in spread])
        tags = self._tags_of(batch, places)
        hex_keys: list[str | None] = []
        takes: list[int] = []
        prices: list[int] = []
        requests: list[bytes | None] = []
        problems: list[str | None] = [None] * len(ids)
        for row_id, row in zip(ids, values, strict=True):
            take = row.pop("take", None)
            checked = self._backend.check(row)
            if isinstance(checked, list):
                self._refuse(checked, self._found.entry.rows + len(hex_keys), row_id)
                problems[len(hex_keys)] = "; ".join(f"{one.field} {one.problem}" for one in checked)
                hex_keys.append(None)
                takes.append(0)
                prices.append(0)
                requests.append(None)
                continue
            key = self._keys.of(checked.content)
            hex_keys.append(key)
            takes.append(self._take(key, take, checked))
            prices.append(checked.price)
            requests.append(_written(checked))
        self._found.entry.rows += len(ids)
        self._found.base_keys += b"".join(NO_KEY if key is None else bytes.fromhex(key) for key in hex_keys)
        self._found.takes.append(np.array(takes, np.int32))
        self._found.prices.append(np.array(prices, np.int64))
        columns: list[Any] = [ids, hex_keys, takes, prices, requests, tags, problems]
        ours = [pa.array(column, kind) for column, kind in zip(columns, INPUT_COLUMNS.types, strict=True)]
        return None if places is None else pa.array(places, pa.int64()), ours

    def _take(self, key: str, asked: Any, request: Request) -> int:
        take = self._standing.get(key, 0) if asked is None else int(asked)
        if take and not request.varies:
            self._found.identical_retakes += 1
            return 0
        return take

    def _tags_of(self, batch: pa.RecordBatch, places: list[int] | None) -> Sequence[str | None]:
        count = batch.num_rows if places is None else len(places)
        if not self._tags:
            return [None] * count
        written = [
            dumps({name: str(value) for name, value in row.items()}).decode()
            for row in rows(batch, self._tags)
        ]
        return written if places is None else [written[place] for place in places]

    def _refuse(self, problems: list[FieldProblem], row: int, row_id: str) -> None:
        self._found.entry.invalid += 1
        for one in problems:
            allowed = one.allowed
            source = self._sources.get(one.field)
            if source is not None and isinstance(source.constant, str) and source.constant in self._columns:
                hint = f"did you mean {one.field}=col({source.constant!r})?"
                allowed = f"{allowed}; {hint}" if allowed else hint
            self._found.add_problem(
                problem(one.field, one.problem, value=one.value, allowed=allowed, row=row, row_id=row_id)
            )


def _check_ids(folder: Folder, file: str, found: Spooled) -> None:
    """Note every row id that more than one row has: such rows could not be told apart."""
    ids = pq.read_table(folder.temporary(file), columns=[ROW_ID])[ROW_ID]
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    counted: Any = ids.value_counts()
    for twice in counted.to_pylist():
        if twice["counts"] == 1:
            continue
        often = "twice" if twice["counts"] == 2 else f"{twice['counts']:,} times"  # noqa: PLR2004
        words = f"stands {often} in {found.entry.id_column or 'the index'}"
        found.add_problem(
            problem("id", words, value=twice["values"], allowed="one id a row", row_id=twice["values"])
        )


def _written(request: Request) -> bytes:
    """Return a request as the input file holds it: what is known of it as a line of JSON, then its body."""
    known = [request.characters, request.varies, request.facts]
    return dumps(known) + _END + request.body


@dataclass
class Plan:
    """The calls of a run's table, and which of them are still to be made.

    Attributes
    ----------
    folder, file
        The table, as :func:`spool` wrote it.
    keys
        Key of each row's call, its take included.
    prices
        Thousandths of a credit, a row each.
    todo
        Rows whose call is to be made.
    free
        Those among them that cost nothing: they are paid, or the cache has their answer.
    """

    folder: Folder
    file: str
    keys: Keys
    prices: "npt.NDArray[np.int64]"
    todo: Mask
    free: Mask

    @property
    def calls(self) -> int:
        """How many calls are to be made."""
        return int(self.todo.sum())

    @property
    def price(self) -> int:
        """What they cost, in thousandths of a credit."""
        return int(self.prices[self.todo & ~self.free].sum())

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
        start = 0
        with storing(self.folder, "reading the table"), pq.ParquetFile(self.folder.source(self.file)) as file:
            for batch in file.iter_batches(_GROUP_ROWS, columns=columns):
                places = np.flatnonzero(wanted[start : start + batch.num_rows])
                for first in range(0, len(places), _AT_ONCE):
                    some = places[first : first + _AT_ONCE]
                    if (mask := only()) is not None:
                        some = some[mask[start + some]]
                    yield from requests_of(batch.take(pa.array(some, pa.int64())))
                start += batch.num_rows
                if (mask := only()) is not None and not (mask & wanted)[start:].any():
                    return


def requests_of(batch: pa.RecordBatch) -> Iterator[Request]:
    """Yield the requests of rows of an input file."""
    for row in batch.to_pylist():
        take, (known, _, body) = row[TAKE], row[REQUEST].partition(_END)
        characters, varies, facts = loads(known)
        if row[TAGS] is not None:
            facts["tags"] = loads(row[TAGS])
        yield Request(
            b"",
            body,
            row[PRICE],
            characters,
            facts,
            varies,
            base_key=row[BASE_KEY],
            take=take,
            key=call_key(row[BASE_KEY], take),
            row_id=row[ROW_ID],
        )


def call_keys(base_keys: bytearray, takes: "npt.NDArray[np.int32]") -> Keys:
    """Return the keys of calls from the keys of their first takes."""
    packed = bytearray(base_keys)
    for place in np.flatnonzero(takes):
        at = slice(16 * place, 16 * place + 16)
        packed[at] = bytes.fromhex(call_key(bytes(base_keys[at]).hex(), int(takes[place])))
    return as_keys(packed)


def plan_calls(
    folder: Folder, file: str, keys: Keys, prices: "npt.NDArray[np.int64]", *, ended: Keys, free: Keys
) -> Plan:
    """Return which calls of a table are to be made.

    Parameters
    ----------
    folder, file, keys, prices
        The table.
    ended
        Calls that have an outcome that stays.
    free
        Calls that cost nothing more.
    """
    first = first_of_each(keys)
    todo = first & ~among(keys, ended)
    return Plan(folder, file, keys, prices, todo, todo & among(keys, free))
