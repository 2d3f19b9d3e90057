"""Reads a table once: every row is checked, keyed and priced before the first credit is spent."""

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from speechframe.errors import InvalidRows
from speechframe.old_batch.columns import Column, Source
from speechframe.old_batch.keys import KeyColumn, repeated
from speechframe.old_batch.naming import (
    COST,
    ROW_ID,
    argument_of,
    column_map,
    is_argument,
    no_column,
    resolve_sources,
)
from speechframe.old_batch.operation import Checked, Operation
from speechframe.old_batch.options import Options
from speechframe.old_batch.progress import counted
from speechframe.old_batch.row_calls import checked, row_values
from speechframe.old_batch.table import PlanningStopped, TableInput, Taker, as_texts, is_text, problem
from speechframe.old_batch.table_arrow import unstorable
from speechframe.old_batch.table_input import UNFIT, first_line
from speechframe.old_store import RunFolder
from speechframe.old_store.table import ARGUMENT, PROBLEM, TARGET
from speechframe.spec.check import FieldProblem, shown
from speechframe.spec.chosen import MAX_TAKE

TARGET_ARGUMENT = "target"
NO_TAKES = "is not offered by this service"
MOST_PROBLEMS = 10_000
"""Problems kept in full; beyond that they are only counted."""


@dataclass
class Planner:
    """Reads a table once; afterwards it knows every row's key and every problem.

    Parameters
    ----------
    table
        The rows.
    operation
        The verb.
    sources
        Where each argument's values come from.
    per_row
        Values given as Series or list: argument to values, to be spooled.
    id_column
        The column of row ids, or None for the index.
    names
        Our column name to its name in this table (:func:`column_map`).
    retaken
        Calls that another take stands for, and which.
    has_takes
        Whether the service may have takes; without any, another one is the same, and billed again.
    folder
        Where the run is made; None for a look only.
    targets
        What each row of the table is made for: so many rows in the run stand for it, one after the other.
    """

    table: TableInput
    operation: Operation
    sources: Mapping[str, Source]
    per_row: Mapping[str, list[Any]]
    id_column: str | None
    names: Mapping[str, str]
    keys: KeyColumn = field(default_factory=KeyColumn)
    ids: KeyColumn = field(default_factory=KeyColumn)
    problems: list[dict[str, Any]] = field(default_factory=list)
    problem_count: int = 0
    rows: int = 0
    invalid: int = 0
    identical_retakes: int = 0
    costs: "array[int]" = field(default_factory=lambda: array("q"))
    is_stopped: Callable[[], bool] = bool
    retaken: Mapping[str, int] = field(default_factory=dict)
    has_takes: bool = True
    targets: Sequence[str] = ()
    _id_texts: list["pa.Array[Any]"] = field(default_factory=list)
    _constants_said: set[tuple[str, str]] = field(default_factory=set)
    folder: RunFolder | None = None
    _digest: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=8))

    def __post_init__(self) -> None:
        self._check_columns()
        takers = self.table.takers
        self._arguments = {
            name: self._given(name, values) for name, values in self.per_row.items() if name not in takers
        }
        kept = list(self.table.schema)
        for name, values in self._arguments.items():
            kept.append(pa.field(ARGUMENT + name, values.type))
        kept += [pa.field(ARGUMENT + name, taker.type) for name, taker in takers.items()]
        if self.targets:
            kept.append(pa.field(TARGET, pa.string()))
        kept += [
            pa.field(self.names[ROW_ID], pa.string()),
            pa.field(self.names["request_key"], pa.string()),
            pa.field(self.names[PROBLEM], pa.string()),
            pa.field(self.names[COST], pa.int64()),
        ]
        self.schema = pa.schema(kept).with_metadata(self._metadata())

    def _metadata(self) -> dict[Any, Any]:
        kept: dict[Any, Any] = dict(self.table.schema.metadata or {})
        index = (self.table.schema.pandas_metadata or {}).get("index_columns")
        if not self.targets or not index or not isinstance(index[0], dict):
            return kept
        # An index that is only counted has fewer numbers than the run has rows.
        return {name: value for name, value in kept.items() if name != b"pandas"}

    def _given(self, name: str, values: list[Any]) -> "pa.Array[Any]":
        try:
            if name in self.operation.data_arguments:
                values, self.table.odd_values[ARGUMENT + name] = as_texts(values)
            array: pa.Array[Any] = pa.array(values, from_pandas=True)
        except UNFIT as error:
            words = f"holds values of several kinds, or one that cannot be stored: {first_line(error)}"
            raise InvalidRows([problem(name, words)]) from None
        why = unstorable(pa.schema([pa.field(name, array.type)]))
        if why:
            raise InvalidRows([problem(name, f"cannot be stored: {why}")])
        return array

    def _check_columns(self) -> None:
        problems = []
        if self.id_column is not None and self.id_column not in self.table.schema.names:
            problems.append(no_column("id", self.id_column, self.table))
        for name, source in self.sources.items():
            is_data = name in self.operation.data_arguments and source.taken_from is None
            if is_data and source.column in self.table.schema.names:
                kind = self.table.schema.field(source.column).type
                if not is_text(kind) and not is_argument(source.column) and not pa.types.is_null(kind):
                    problems.append(
                        problem(name, f"column {source.column!r} is {kind}, not text", allowed="text")
                    )
        if problems:
            raise InvalidRows(problems)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows with id, key and problem beside the caller's columns."""
        for batch in self.table.batches:
            if self.is_stopped():
                raise PlanningStopped
            yield self._plan(batch)
        self._check_ids()
        for name, values in self.per_row.items():
            if len(values) != self.rows:
                raise InvalidRows(
                    [
                        problem(
                            name,
                            f"has {counted(len(values), 'value')} for {counted(self.rows, 'row')}",
                            allowed="one value a row",
                        )
                    ]
                )

    def _plan(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        start, rows = self.rows, batch.num_rows
        for name, given in self.per_row.items():
            if len(given) < start + rows:
                words = f"has {counted(len(given), 'value')}, the table has more rows"
                raise InvalidRows([problem(name, words, allowed="one value a row")])
        arguments = {name: array.slice(start, rows) for name, array in self._arguments.items()}
        for name, taker in self.table.takers.items():
            arguments[name] = taker.take(self._to_take(name, batch), self.folder, self.is_stopped)
        own = self.table.schema.names
        wide = pa.RecordBatch.from_arrays(
            [*(batch.column(name) for name in own), *arguments.values()],
            names=[*own, *(ARGUMENT + n for n in arguments)],
        )
        ids = self._row_ids(batch)
        if self.targets:
            wide = self._spread(wide)
            ids = [f"{row_id}:{target}" for row_id in ids for target in self.targets]
        times, planned = max(1, len(self.targets)), len(self.costs)
        keys: list[str | None] = []
        notes: list[str | None] = []
        for i, values in enumerate(row_values(wide, self.sources)):
            checked = self._check(values, start + i // times, ids[i])
            key = checked.planned.request_key if checked.planned else None
            self.costs.append(checked.planned.millicredits if checked.planned else 0)
            self.keys.append(key)
            keys.append(key)
            notes.append("; ".join(map(self._words, checked.problems)) if checked.problems else None)
        named = [f"{key}\0{row_id}\0" for key, row_id in zip(keys, ids, strict=True)]
        self._digest.update("".join(named).encode("utf-8", "surrogatepass"))
        self.rows += rows
        texts = [pa.array(column, pa.string()) for column in (ids, keys, notes)]
        costs = pa.array(self.costs[planned:], pa.int64())
        return pa.RecordBatch.from_arrays([*wide.columns, *texts, costs], schema=self.schema)

    def _to_take(self, argument: str, batch: pa.RecordBatch) -> Iterable[Any]:
        """Return an argument's values for the rows of `batch`."""
        column = self.sources[argument].taken_from or ""
        values = self.per_row.get(argument) or self.table.carried.get(column)
        if values is not None:
            return values[self.rows : self.rows + batch.num_rows]
        # One at a time: a clip may be large.
        return (value.as_py() for value in batch.column(column))

    def _spread(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        times = len(self.targets)
        several = batch.take(np.repeat(np.arange(batch.num_rows), times))
        targets = pa.array(list(self.targets) * batch.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([*several.columns, targets], names=[*several.schema.names, TARGET])

    def _row_ids(self, batch: pa.RecordBatch) -> list[str]:
        start = self.rows
        if self.id_column is not None:
            values = batch.column(self.id_column).to_pylist()
            for i, value in enumerate(values):
                if value is None:
                    self._add(
                        problem(
                            "id", "is missing", row=start + i, row_id=str(start + i), allowed="one id a row"
                        )
                    )
            ids = ["" if v is None else str(v) for v in values]
        elif self.table.row_ids is not None:
            ids = list(self.table.row_ids[start : start + batch.num_rows])
        else:
            return [str(i) for i in range(start, start + batch.num_rows)]
        self._id_texts.append(pa.array(ids, pa.string()))
        for value in ids:
            self.ids.append(hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=16).hexdigest())
        return ids

    def _check_ids(self) -> None:
        if not self._id_texts:
            return
        texts = pa.chunked_array(self._id_texts)
        for row in np.flatnonzero(repeated(self.ids.to_array())).tolist():
            what = f"column {self.id_column!r}" if self.id_column else "the index"
            self._add(
                problem(
                    "id",
                    f"stands twice in {what}",
                    value=texts[row].as_py(),
                    allowed="a different id for each row",
                    row=row,
                    row_id=texts[row].as_py(),
                )
            )
            self.invalid += 1

    def _check(self, values: dict[str, Any], row: int, row_id: str) -> Checked:
        problems = self._odd_values(values, row) if self.table.odd_values else ()
        checked = Checked(None, tuple(problems)) if problems else self._of(values)
        if checked.problems:
            self.invalid += 1
            for p in checked.problems:
                self._report(p, row, row_id)
        elif checked.note == "retake_identical":
            self.identical_retakes += 1
        return checked

    def _odd_values(self, values: Mapping[str, Any], row: int) -> list[FieldProblem]:
        return [
            FieldProblem(name, f"is {kind}, not text", shown(values.get(name)), "text")
            for name in self.operation.data_arguments
            if (kind := self.table.odd_values.get(self.sources[name].column or "", {}).get(row))
        ]

    def _of(self, values: dict[str, Any]) -> Checked:
        take = values.pop("take", 0)
        if isinstance(take, str) and take.isdecimal():
            take = int(take)
        is_take = isinstance(take, int) and not isinstance(take, bool) and 0 <= take <= MAX_TAKE
        if is_take and (self.has_takes or not take):
            return checked(self.operation, values, take, self.retaken)
        wrong, allowed = (
            (NO_TAKES, "0") if is_take else ("is no take", f"a whole number from 0 to {MAX_TAKE}")
        )
        return Checked(None, (FieldProblem("take", wrong, repr(take), allowed),))

    def _words(self, found: FieldProblem) -> str:
        allowed = f" (allowed: {found.allowed})" if found.allowed else ""
        return f"{argument_of(found.field, self.operation)} {found.problem}{allowed}"

    def _report(self, found: FieldProblem, row: int, row_id: str) -> None:
        argument = argument_of(found.field, self.operation)
        source = self.sources.get(argument)
        if source is not None and source.column is None:
            # A constant is wrong once, not once a row.
            said = (argument, found.problem)
            if said in self._constants_said:
                return
            self._constants_said.add(said)
            allowed = found.allowed
            if isinstance(source.constant, str) and source.constant in self.table.schema.names:
                allowed = f'did you mean col("{source.constant}")? {allowed}'
            self._add(problem(argument, found.problem, value=found.value, allowed=allowed))
        else:
            self._add(
                problem(
                    argument, found.problem, value=found.value, allowed=found.allowed, row=row, row_id=row_id
                )
            )

    def _add(self, line: dict[str, Any]) -> None:
        self.problem_count += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(line)

    @property
    def content_hash(self) -> str:
        """16 hex digits that name these rows, ids and calls in this order."""
        return str(self._digest.hexdigest())


def plan_table(
    table: Any,
    arguments: Mapping[str, Any],
    operation: Operation,
    options: Options,
    known: Mapping[str, Source] | None = None,
) -> Planner:
    """Return a planner that has not read the table yet."""
    read = operation.open(table, _columns(arguments, operation, known))
    if known is None:
        # Only the default itself is left out: of an array there is no truth, and "" or False are mistakes.
        is_first = type(options.take) is int and options.take == 0
        given = {**arguments, "take": None if is_first else options.take}
        sources, per_row = resolve_sources(given, operation, read)
    else:
        sources, per_row = {name: source for name, source in known.items() if source.column != TARGET}, {}
        # A run's own table has what was taken in for it before.
        read.takers = {n: t for n, t in read.takers.items() if sources[n].column not in read.schema.names}
        missing = [s for s in sources.values() if _origin(s, read.takers) not in {None, *read.names}]
        if missing:
            raise InvalidRows([_lost_column(source, read.names) for source in missing])
    targets = operation.spread(sources)
    if targets:
        sources[TARGET_ARGUMENT] = Source(TARGET_ARGUMENT, column=TARGET)
    names = column_map(read.schema, operation.name, of_run=read.is_run)
    return Planner(read, operation, sources, per_row, options.id, names, targets=targets)


def _columns(
    arguments: Mapping[str, Any], operation: Operation, known: Mapping[str, Source] | None
) -> dict[str, str]:
    """Return the column each argument names."""
    if known is not None:
        found = {name: source.taken_from or source.column for name, source in known.items()}
    else:
        found = {
            name: value.name
            if isinstance(value, Column)
            else value
            if name in operation.data_arguments and isinstance(value, str)
            else None
            for name, value in arguments.items()
        }
    return {name: column for name, column in found.items() if column is not None}


def _origin(source: Source, takers: Mapping[str, Taker]) -> str | None:
    return source.taken_from if source.field in takers and source.taken_from else source.column


def _lost_column(source: Source, names: Sequence[str]) -> dict[str, Any]:
    if source.taken_from is None and is_argument(source.column):
        words = "was given as a list for the run's first table; call the verb itself with this table"
        return problem(source.field, words)
    return problem(
        source.field,
        "comes from a column this table does not have",
        value=source.taken_from or source.column,
        allowed=", ".join(names),
    )
