"""Check a caller's table and store it as the table of a run, in the run's locked folder. Nothing is sent.

A run without ``run_dir`` is first prepared in a draft, which is a folder with a temporary name. The final
name contains a hash of the keys of the run's calls. The table then moves to the folder with this name, so
equal calls use the same folder.
"""

import asyncio
import contextlib
import filecmp
import hashlib
import itertools
import os
import shutil
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe._version import __version__
from speechframe.batch.backend import (
    CORRECTION_COLUMNS,
    HELD_COLUMN,
    Backend,
    EarlierRows,
    Opened,
    Request,
    RowWithoutCall,
)
from speechframe.batch.earlier import (
    StoredEarlierRows,
    read_held_request,
    read_request,
    read_seconds,
    write_held_request,
    write_request,
)
from speechframe.batch.options import Options
from speechframe.errors import InvalidRows, RunMismatch, StoreError, make_problem, refuse
from speechframe.spec.check import FieldProblem
from speechframe.store.folder import (
    PLANNED_STATE,
    RUN_FILE,
    Folder,
    Manifest,
    TableEntry,
    convert_os_errors,
    read_manifest,
    serialise_schema,
)
from speechframe.store.journal import dump_json, load_json
from speechframe.store.parts import make_part_schema
from speechframe.store.reader import StoredRun, open_folder
from speechframe.store.records import compute_take_keys, convert_to_hex, pack_keys, read_snapshot
from speechframe.store.reviews import REJECT
from speechframe.store.rows import Rows
from speechframe.store.schema import (
    BASE_KEY,
    CACHED,
    COLUMN_PREFIX,
    DONE,
    ENDED,
    FINISHED_STATUSES,
    INPUT_COLUMNS,
    INVALID,
    KEY_BYTES,
    KEY_PERSON,
    PRICE,
    PROBLEM,
    REQUEST,
    ROW_ID,
    SKIPPED,
    SUSPECT,
    TAGS,
    TAKE,
    compute_call_key,
    find_row_columns,
)
from speechframe.tables.column import Column
from speechframe.tables.table import (
    Source,
    Table,
    choose_column_names,
    contains_bytes,
    get_column_name,
    is_missing,
    make_rows,
    resolve_sources,
)
from speechframe.tables.table_input import open_table
from speechframe.writing.words import format_count

DEFAULT_ROOT = Path("speechframe-runs")
"""Parent folder of runs without ``run_dir``, in the working directory."""
INPUT_FILE = "input/{:04d}.parquet"
"""File name of a run's table. Each new table of the run has the next number."""
REDO_STATUSES = ("failed", "suspect", "done", "rejected")
"""Words for `redo` that select rows. All but ``rejected`` are values of ``status``."""
CORRECTED = "corrected"
"""Word for `redo` that selects the rows with a corrected text in a review."""
_PLANNING_FILES = frozenset({"lock", "holder.json", "input", "clips", "log", f".{RUN_FILE}.tmp"})
"""Files and folders that planning writes before run.json. A killed process leaves them behind."""
_MAX_PROBLEMS = 1000
"""Largest number of problems that are kept. Further problems are only counted."""
_BATCH_ROWS = 4096
"""Number of rows of an input file in memory at a time."""


@dataclass
class Prepared:
    """A run with its checked table. A preview, which changes no run, has the table in a temporary folder."""

    folder: Folder
    manifest: Manifest
    table_folder: Folder  # folder of the table's file, either the run's folder or a temporary folder
    entry: TableEntry
    keys: bytearray  # 16 bytes per row: the key of its call, or zeros if the row cannot be sent
    prices: npt.NDArray[np.int64]  # price of each row's call in thousandths of a credit
    identical_retakes: int = 0  # number of rows that get take 0, because other takes would equal it
    problems: list[dict[str, Any]] = field(default_factory=list)  # the first problems found
    notes: list[str] = field(default_factory=list)  # notes for the user, such as numbers of dropped rows


def prepare_run(  # noqa: PLR0915 - one step after the other
    given: Any,
    arguments: Mapping[str, Any],
    backend: Backend,
    opened: Opened,
    options: Options,
    stack: contextlib.AsyncExitStack,
    is_stopped: Callable[[], bool],
    *,
    is_resumed: bool = False,
    is_preview: bool = False,
) -> Prepared:
    """Check the caller's table and store it as the table of a run. `stack` keeps the run locked.

    If the run `is_resumed`, each row keeps its take (the number of its rendering) from the run's table,
    unless a column contains takes. A preview writes the table to a temporary folder and leaves the run
    unchanged. A dry run is a preview if its run has started. A run that was only planned gets the new
    table, even in a dry run. InvalidRows is raised if rows cannot be sent and the options do not skip them.
    CancelledError is raised once `is_stopped` returns True.
    """
    table, arguments = _open_table(given, backend, arguments, options)
    checker = _Checker(table, arguments, backend, options.tags)
    leaves_out = options.on_invalid == "skip" or (options.dry_run and not is_preview)
    folder = open_folder(options.run_dir or DEFAULT_ROOT / f".{uuid.uuid4().hex}.draft")
    is_preview = (is_preview and folder.exists(RUN_FILE)) or (options.dry_run and _has_begun(folder))
    with contextlib.ExitStack() as undo:
        if is_preview:
            table_folder = Folder(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        else:
            table_folder = folder
            _check_folder_is_free(folder)
            stack.enter_context(folder.lock())
            if not folder.exists(RUN_FILE):
                undo.callback(_remove_leftovers, folder)
        manifest = read_manifest(folder) if folder.exists(RUN_FILE) else _make_manifest(backend, opened)
        check_same_service(folder, manifest, backend)
        checker.use_earlier(folder, manifest)
        if is_resumed:
            checker.current_takes = _read_current_takes(folder, manifest)
        backend.folder, file = table_folder.work, _name_next_input(manifest)
        with convert_os_errors(table_folder, "writing the table"):
            temporary = table_folder.make_temporary_path(file)
        undo.callback(temporary.unlink, missing_ok=True)
        with convert_os_errors(table_folder, "writing the table"):
            entry = checker.write(temporary, file, is_stopped, leaves_out=leaves_out)
        keys, prices = _read_calls(temporary)
        if not options.run_dir:
            checker.ended.update(keys)
            name = checker.ended.hexdigest()
            folder = Folder((DEFAULT_ROOT / f"{backend.operation}-{name}").absolute())
            is_preview = options.dry_run and _has_begun(folder)
            if is_preview:
                manifest = read_manifest(folder)
                check_same_service(folder, manifest, backend)
                stack.callback(_remove_leftovers, table_folder)
            else:
                manifest = _move_draft(table_folder, folder, manifest, entry, backend, stack)
                table_folder, backend.folder = folder, folder.work
        if manifest.tables and not checker.has_take:
            written = table_folder.make_temporary_path(entry.file)
            if _replace_rejected_takes(folder, manifest, written, keeps_takes=is_resumed):
                keys, prices = _read_calls(written)
        if is_preview:
            table_folder.publish(file)
        elif options.dry_run and manifest.state != PLANNED_STATE:
            raise StoreError(
                f"{folder.path}: another process started the run while this table was planned: plan it again"
            )
        else:
            entry = _publish_table(folder, manifest, entry)
        undo.pop_all()
    reasons = [f"{format_count(count, 'row')}: {why}" for why, count in checker.row_counts.items()]
    return Prepared(
        folder,
        manifest,
        table_folder,
        entry,
        keys,
        prices,
        checker.identical_retakes,
        checker.problems,
        [*table.notes, *checker.notes, *reasons],
    )


def reopen_run(
    folder: Folder,
    redo: str | Sequence[Any] | None,
    backend: Backend,
    opened: Opened,
    options: Options,
    stack: contextlib.AsyncExitStack,
    _: Callable[[], bool],
) -> Prepared:
    """Return a run with its own table, in which the rows to `redo` have their next take.

    `redo` is one of :data:`REDO_STATUSES`, a list of row ids, or None for no row. :data:`CORRECTED` makes
    rows with their corrected text. A backend that :attr:`~Backend.is_revised` may also change rows. `stack`
    keeps the run locked. A dry run writes the new table to a temporary folder and leaves the run's table
    unchanged.
    """
    stack.enter_context(folder.lock())
    manifest = read_manifest(folder)
    check_same_service(folder, manifest, backend)
    backend.folder = folder.work
    entry = manifest.table
    if manifest.state == PLANNED_STATE and entry.invalid and options.on_invalid == "raise":
        message = f"{format_count(entry.invalid, 'row')} cannot be sent"
        raise refuse("table", message, allowed='on_invalid="skip" leaves them out')
    if not folder.exists(entry.file):
        raise StoreError(
            f"{folder.path}: the run's table, {entry.file}, is missing: hand the table in again with "
            "resume(run, table=...)"
        )
    table_folder, retaken, identical = folder, None, 0
    notes: list[str] = []
    if redo == CORRECTED:
        retaken = _correct_rows(folder, manifest, backend, notes)
    elif redo is not None:
        table, released = _release_rows(_read_table(folder, manifest), backend, redo)
        redo = redo if isinstance(redo, str) else [one for one in redo if str(one) not in released]
        retaken, identical = _make_next_takes(folder, table, redo, opened) if len(redo) else (None, 0)
        retaken = table if retaken is None and released else retaken
    backend.possible_millicredits = 0
    if backend.is_revised:
        change = partial(backend.revise, seconds_of=read_seconds(folder).get)
        table = _read_table(folder, manifest) if retaken is None else retaken
        retaken = _change_rows(table, backend, backend.row_columns, change)
    if retaken is not None:
        entry = replace(entry, file=_name_next_input(manifest))
        if options.dry_run:
            table_folder = Folder(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        with convert_os_errors(table_folder, "writing the table"):
            temporary = table_folder.make_temporary_path(entry.file)
            pq.write_table(
                retaken, temporary, compression="zstd", use_dictionary=False, row_group_size=_BATCH_ROWS
            )
            if options.dry_run:
                table_folder.publish(entry.file)
            else:
                entry = _publish_table(folder, manifest, entry)
    with convert_os_errors(folder, "reading the table"):
        keys, prices = _read_calls(table_folder.get_source(entry.file))
    return Prepared(folder, manifest, table_folder, entry, keys, prices, identical, notes=notes)


def _open_table(
    given: Any, backend: Backend, arguments: Mapping[str, Any], options: Options
) -> tuple[Table, Mapping[str, Any]]:
    """Open the caller's table, and return it with the arguments for its rows.

    The table may also be a run, a run's folder, or a list of runs.
    """
    source = backend.source(given)
    if isinstance(source, str | os.PathLike) and open_folder(source).exists(RUN_FILE):
        source = StoredRun.open(source)
    columns = {
        name: get_column_name(value, is_data=name in backend.data_arguments)
        for name, value in arguments.items()
    }
    carry = {column for name, column in columns.items() if column and name in backend.carried}
    # If the backend declares no arguments, all columns of the table are arguments. If the caller gives no
    # argument other than the take, columns with the names of the backend's arguments are the arguments.
    are_columns = not backend.arguments or not arguments.keys() - {"take"}
    if are_columns:
        carry |= backend.carried - arguments.keys()
    table = open_table(
        source,
        id=options.id,
        plain=next(iter(backend.data_arguments), "text"),
        carry=frozenset(carry),
        named=filter(None, columns.values()),
        sep=options.sep,
        quoting=options.quoting,
    )
    if are_columns:
        stored = [
            column.name for column in table.schema if backend.arguments or not contains_bytes(column.type)
        ]
        names = [*stored, *table.carried]
        found = {name: Column(name) for name in backend.arguments or names if name in names}
        arguments = {**found, **arguments}
    if suspect := _count_suspect(source):
        table.notes.append(f"{format_count(suspect, 'row')} of the run that is the table: suspect")
    taken = {column for column in columns.values() if column}
    present = {n: Column(c) for n, c in backend.find_columns(table.schema.names, taken).items()}
    given_arguments = {name: value for name, value in arguments.items() if value is not None}
    return table, {**arguments, **present, **given_arguments}


def _count_suspect(source: Any) -> int:
    """Return the number of suspect rows if the table is a run or a list of runs."""
    count = 0
    for run in source if isinstance(source, list) else [source]:
        if isinstance(run, Rows):
            name = run.join_records(None, audio=False).name_of("status")
            count += run.to_arrow([name]).column(0).to_pylist().count(SUSPECT)
    return count


def _read_calls(file: Any) -> tuple[bytearray, npt.NDArray[np.int64]]:
    """Return the key and the price of each row's call in an input file, as in :class:`Prepared`."""
    keys = bytearray()
    with pq.ParquetFile(file) as parquet:
        prices = np.empty(parquet.metadata.num_rows, np.int64)
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=[BASE_KEY, TAKE, PRICE]):
            base_keys, takes, price = batch.columns
            prices[len(keys) // KEY_BYTES :][: len(price)] = price.to_numpy()
            keys += pack_keys(compute_take_keys(base_keys, takes.to_numpy())).tobytes()
    pa.default_memory_pool().release_unused()  # Arrow keeps freed memory, but the plan needs it next
    return keys, prices


# -- check each row once, and write the row with its key, price and request ----------------


class _Checker:
    """Checks the rows of a table and writes them, with columns of speechframe beside those of the caller."""

    def __init__(
        self, table: Table, arguments: Mapping[str, Any], backend: Backend, tags: Mapping[str, Any]
    ) -> None:
        self._table, self._backend = table, backend
        self._sources = resolve_sources(arguments, backend.data_arguments, backend.table_arguments, table)
        in_tags = resolve_sources(dict(tags), frozenset(), frozenset(), table)
        self._tags = {name: source for name, source in in_tags.items() if source.column or source.values}
        self.has_take = "take" in self._sources
        # In a resumed run a row's current take (`current_takes`) replaces a constant or missing take.
        take = self._sources.get("take", Source())
        self._is_take_constant = take.column is None and take.values is None
        self._expands_rows = type(backend).expand is not Backend.expand
        self._gives_row_id = "row_id" in backend.arguments
        self._gives_columns = "read_column" in backend.arguments
        self._make_key = make_key_function(backend)
        self._row_columns = backend.row_columns
        self.notes: list[str] = []  # notes of the backend about the table
        self.ended = hashlib.blake2b(digest_size=5)  # hash of the rows without a call
        self.row_counts: Counter[str] = Counter()  # number of rows without a call, by reason
        self._rows = self._invalid = self.identical_retakes = self._problem_count = 0
        self.problems: list[dict[str, Any]] = []
        self.current_takes: Mapping[str, int] = {}  # take by the key of take 0; take 0 is left out

    def use_earlier(self, folder: Folder, manifest: Manifest) -> None:
        """Give the backend the rows of the run's table so far. Corrections of their texts are kept."""
        has_table = manifest.tables and folder.exists(manifest.table.file)
        self._backend.earlier = StoredEarlierRows(folder, manifest) if has_table else EarlierRows()
        if self._backend.earlier.has_column(CORRECTION_COLUMNS.names[-1]):
            self._row_columns = _unite(self._row_columns, CORRECTION_COLUMNS)

    def write(self, path: Path, file: str, is_stopped: Callable[[], bool], *, leaves_out: bool) -> TableEntry:
        """Write the table to `path` and return its entry for run.json, under the name `file`.

        InvalidRows is raised if a row is invalid. If invalid rows may be left out (`leaves_out`), InvalidRows
        is raised only if all rows are invalid or two rows have the same id.
        """
        table, ours = self._table, self._backend.columns
        names = table.schema.names
        if reserved := [name for name in names if name.startswith(COLUMN_PREFIX)]:
            fault = f"has a column {reserved[0]!r}"
            raise refuse("table", fault, allowed="names that do not begin with spf:")
        metadata: Any = table.schema.metadata
        row_columns = [f.with_name(COLUMN_PREFIX + f.name) for f in self._row_columns]
        schema = pa.schema([*table.schema, *INPUT_COLUMNS, *row_columns], metadata=metadata)
        with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
            for batch, ids in table.batches():
                if is_stopped():
                    raise asyncio.CancelledError
                writer.write_batch(self._check_batch(batch, ids, schema))
        pa.default_memory_pool().release_unused()  # Arrow keeps the memory of the writer
        if not table.is_numbered:
            # Refuse equal ids, because results are looked up by row id.
            of_ids: Any = pq.read_table(path, columns=[ROW_ID])[ROW_ID].value_counts()
            is_shared: Any = pc.greater(of_ids.field("counts"), pa.scalar(1))
            for shared in of_ids.filter(is_shared).to_pylist():
                row_id, count = shared["values"], shared["counts"]
                often = "twice" if count == 2 else f"{count:,} times"  # noqa: PLR2004
                fault = f"stands {often} in {table.id_column or 'the index'}"
                allowed = "one id a row"
                if table.id_column is None:
                    allowed = f"{allowed}; table.reset_index() numbers the rows"
                self._add_problem("id", fault, value=row_id, allowed=allowed, row_id=row_id)
        is_hopeless = self._invalid >= self._rows or any(one["field"] == "id" for one in self.problems)
        if self._problem_count and (is_hopeless or not leaves_out):
            raise InvalidRows(self.problems, total=self._problem_count, rows=self._invalid or None)
        self.notes = self._backend.finish_table()
        return TableEntry(
            file,
            self._rows,
            table.id_column,
            choose_column_names(
                table.schema, [*make_part_schema(ours).names, *self._row_columns.names, "row_id"]
            ),
            {name: source.to_json() for name, source in self._sources.items()},
            [
                name
                for name in sorted(self._backend.data_arguments & {*ours.names})
                if name in self._sources and self._sources[name].column in names
            ],
            self._invalid,
        )

    def _check_batch(self, batch: pa.RecordBatch, ids: list[str], schema: pa.Schema) -> pa.RecordBatch:
        """Check the rows of a batch, and return the batch with the columns of speechframe added."""
        tags: list[str | None] = [None] * len(ids)
        if self._tags:
            tagged = make_rows(batch, self._tags)
            tags = [dump_json({name: str(tag) for name, tag in row.items()}).decode() for row in tagged]
        lines: Iterable[tuple[str, dict[str, Any], str | None]]
        lines = zip(ids, make_rows(batch, self._sources), tags, strict=True)
        if self._expands_rows:
            spread = [
                (position, f"{row_id}{suffix}", dict(values), tag)
                for position, (row_id, row, tag) in enumerate(lines)
                for suffix, values in self._backend.expand(row)
            ]
            batch = batch.take(pa.array([position for position, *_ in spread], pa.int64()))
            lines = [(row_id, row, tag) for _, row_id, row, tag in spread]
        ours: list[tuple[Any, ...]] = []
        row_names = self._row_columns.names
        for position, (row_id, row, tag) in enumerate(lines):
            take = row.pop("take", None)
            if self._gives_columns:
                row["read_column"] = partial(_read_cell, batch, position)
            if self._gives_row_id:
                row["row_id"] = row_id
            found = self._backend.check(row)
            row_values: Mapping[str, Any] = {}
            mine: tuple[Any, ...]
            if isinstance(found, Request):
                key, row_values = self._make_key(found), found.row_values
                self.row_counts.update([found.note] if found.note else [])
                if (held := found.held) is not None:
                    row_values = {**row_values, HELD_COLUMN: write_held_request(held, self._make_key(held))}
                take = found.take if found.base_key else self._choose_take(found, key, take)
                mine = (row_id, key, take, found.price, write_request(found), tag, None, None)
            elif isinstance(found, RowWithoutCall):
                self.row_counts[found.reason] += 1
                self.ended.update(repr((row_id, found)).encode("utf-8", "replace"))
                reason, row_values = found.reason if found.status == SKIPPED else None, found.row_values
                mine = (row_id, None, 0, 0, None, tag, found.status, reason)
            else:
                problem = self._add_invalid_row(row_id, found, partial(_read_cell, batch, position))
                mine = (row_id, None, 0, 0, None, tag, INVALID, problem)
            ours.append((*mine, *map(row_values.get, row_names)))
            self._rows += 1
        kinds = [*INPUT_COLUMNS.types, *self._row_columns.types]
        columns = [pa.array([row[position] for row in ours], kind) for position, kind in enumerate(kinds)]
        return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=schema)

    def _choose_take(self, request: Request, key: str, wanted: Any) -> int:
        """Return the take of a row. It is 0 if another take of its request would be the same."""
        if wanted is None or self._is_take_constant:
            wanted = self.current_takes.get(key, wanted or 0)
        take = int(wanted)
        if take and not request.varies:
            self.identical_retakes += 1
            return 0
        return take

    def _add_invalid_row(
        self, row_id: str, found: Sequence[FieldProblem | str], read_column: Callable[[str], Any]
    ) -> str:
        """Count a row as invalid, keep its problems, and return the problems in words."""
        self._invalid += 1
        texts = [found] if isinstance(found, str) else found
        problems = [FieldProblem("", one) if isinstance(one, str) else one for one in texts]
        for one in problems:
            allowed, source = one.allowed, self._sources.get(one.field)
            constant = None if source is None else source.constant
            if source is not None and source.balance is not None and not one.value:
                rule = source.balance.rule
                group = read_column(rule.by or "")
                allowed = f"{rule.by} {group!r} has none; there are values for {', '.join(rule.values)}"
            if isinstance(constant, str) and constant in self._table.schema.names:
                hint = f"did you mean {one.field}=col({constant!r})?"
                allowed = f"{allowed}; {hint}" if allowed else hint
            facts = {"value": one.value, "allowed": allowed, "row": self._rows, "row_id": row_id}
            self._add_problem(one.field, one.problem, **facts)
        return "; ".join(f"{one.field} {one.problem}".lstrip() for one in problems)

    def _add_problem(self, *words: str, **facts: Any) -> None:
        self._problem_count += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(make_problem(*words, **facts))


def _unite(columns: pa.Schema, others: pa.Schema) -> pa.Schema:
    """Return the columns, and those of `others` that they lack."""
    return pa.schema([*columns, *(one for one in others if one.name not in columns.names)])


def _read_cell(batch: pa.RecordBatch, position: int, column: str) -> Any:
    """Return a row's value in a column of a batch. Return None if it is missing or contains bytes."""
    if column not in batch.schema.names or contains_bytes(batch.schema.field(column).type):
        return None
    value = batch.column(column)[position].as_py()
    return None if is_missing(value) else value


def make_key_function(backend: Backend) -> Callable[[Request], str]:
    """Return a function that computes the key of a request's take 0."""
    # Every key begins with operation and service, so that equal calls have equal keys in all runs.
    begun = hashlib.blake2b(digest_size=KEY_BYTES, person=KEY_PERSON)
    for name in (backend.operation.encode(), backend.service.encode("utf-8", "replace")):
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        begun.update(len(name).to_bytes(8, "big") + name)

    def make_key(request: Request) -> str:
        if request.base_key:
            return request.base_key
        digest = begun.copy()
        digest.update(request.content)
        return digest.hexdigest()

    return make_key


# -- the run's folder --------------------------------------------------------------------


def check_same_service(folder: Folder, manifest: Manifest, backend: Backend) -> None:
    """Raise RunMismatch if a run has another operation or service than the backend."""
    if manifest.operation != backend.operation:
        raise RunMismatch(
            f"{folder.path} holds a {manifest.operation} run, not {backend.operation}: choose another run_dir"
        )
    if manifest.service != backend.service:
        raise RunMismatch(
            f"{folder.path} was made by {manifest.service}, this service is {backend.service}: rows of two "
            "services are not mixed. Choose another run_dir, or go on with the service that made it."
        )


def _make_manifest(backend: Backend, opened: Opened) -> Manifest:
    return Manifest(
        run_id=uuid.uuid4().hex[:16],
        operation=backend.operation,
        service=backend.service,
        columns=serialise_schema(backend.columns),
        key_fingerprint=opened.key_fingerprint,
        is_local=opened.is_local,
        version=__version__,
        facts=dict(opened.facts),
        remark=backend.remark,
    )


def _has_begun(folder: Folder) -> bool:
    """Return whether the folder contains a run that has started, and was not only planned."""
    return folder.exists(RUN_FILE) and read_manifest(folder).state != PLANNED_STATE


def _name_next_input(manifest: Manifest) -> str:
    """Return the name of the file for the next table of a run."""
    return INPUT_FILE.format(int(Path(manifest.table.file).stem) + 1 if manifest.tables else 1)


def _read_current_takes(folder: Folder, manifest: Manifest, wanted: Any = None) -> dict[str, int]:
    """Return the takes of calls in the run's table, by base key (the key of take 0).

    `wanted` are the base keys to look up. By default return all calls with a take other than 0. Return an
    empty dict if the run has no table, or if the file of the table is missing.
    """
    if not manifest.tables or not folder.exists(manifest.table.file):
        return {}
    table = pq.read_table(folder.get_source(manifest.table.file), columns=[BASE_KEY, TAKE])
    chosen: Any = (
        pc.not_equal(table[TAKE], pa.scalar(0)) if wanted is None else pc.is_in(table[BASE_KEY], wanted)
    )
    retaken = table.filter(chosen).to_pydict()
    return dict(zip(retaken[BASE_KEY], retaken[TAKE], strict=True))


def _check_folder_is_free(folder: Folder) -> None:
    """Raise StoreError if the folder is a file, or contains other files but no run."""
    if folder.work != folder.path or folder.exists(RUN_FILE):
        return
    if folder.path.is_file():
        raise StoreError(f"{folder} is a file: name a folder as run_dir")
    others = [path.name for path in folder.path.glob("*") if path.name not in _PLANNING_FILES]
    if others:
        raise StoreError(
            f"{folder} holds other files and no run ({others[0]!r}): name an empty or a new folder"
        )


def _remove_leftovers(folder: Folder) -> None:
    """Remove the files that planning wrote, unless the folder contains a run."""
    if folder.exists(RUN_FILE):
        return
    for name in _PLANNING_FILES:
        shutil.rmtree(folder.work / name, ignore_errors=True)  # removes folders only
        with contextlib.suppress(OSError):
            folder.work.joinpath(name).unlink()
    with contextlib.suppress(OSError):  # the folder may contain other files
        folder.work.rmdir()


def _move_draft(
    draft: Folder,
    target: Folder,
    manifest: Manifest,
    entry: TableEntry,
    backend: Backend,
    stack: contextlib.AsyncExitStack,
) -> Manifest:
    """Move the table of a draft to the `target` folder and remove the draft.

    Return the manifest (the content of run.json) of the run in the target folder. If the folder has no run
    yet, return `manifest`.
    """
    stack.enter_context(target.lock())
    if target.exists(RUN_FILE):
        manifest = read_manifest(target)
        check_same_service(target, manifest, backend)
    mine, entry.file = entry.file, _name_next_input(manifest)
    with convert_os_errors(target, "moving the table"):
        draft.make_temporary_path(mine).rename(target.make_temporary_path(entry.file))
        if (clips := draft.path / "clips").is_dir():
            shutil.copytree(clips, target.path / "clips", copy_function=os.replace, dirs_exist_ok=True)
        shutil.rmtree(draft.path)
    return manifest


def _publish_table(folder: Folder, manifest: Manifest, entry: TableEntry) -> TableEntry:
    """Make the new table, a temporary file so far, the run's current table. Return the entry of that table.

    If the run's table is local and equal to the new table, keep the old file and remove the new file.
    """
    temporary = folder.make_temporary_path(entry.file)
    if manifest.tables and folder.work == folder.path:
        before = manifest.table
        is_same = replace(before, file=entry.file) == entry and folder.exists(before.file)
        if is_same and filecmp.cmp(temporary, folder.find_path(before.file), shallow=False):
            temporary.unlink()
            return before
    with convert_os_errors(folder, "writing the table"):
        folder.publish(entry.file)
    # Leave tables whose file is missing out of run.json, so that no later step reads them.
    manifest.tables = [*(table for table in manifest.tables if folder.exists(table.file)), entry]
    manifest.write(folder)
    return entry


def _release_rows(table: pa.Table, backend: Backend, redo: str | Sequence[Any]) -> tuple[pa.Table, set[str]]:
    """Return a run's table in which rows with the ids in `redo` are no longer held back, and their ids."""
    if isinstance(redo, str) or COLUMN_PREFIX + HELD_COLUMN not in table.column_names:
        return table, set()
    wanted, released = set(map(str, redo)), set()

    def release(request: Request) -> Request | None:
        held = read_held_request(request) if request.row_id in wanted else None
        released.update([] if held is None else [request.row_id])
        return held

    return _change_rows(table, backend, backend.row_columns, release), released


def _make_next_takes(
    folder: Folder, table: pa.Table, redo: str | Sequence[Any], opened: Opened
) -> tuple[pa.Table | None, int]:
    """Return a run's table, in which the rows to `redo` have their next take, or None if no take changes.

    Also return the number of rows to `redo` that keep their take, because a further take would be the same.
    """
    if not opened.takes:
        fault = "makes other takes, which this service does not offer: they would be the same, billed again"
        raise refuse("redo", fault)
    stored = StoredRun(folder)
    columns: list[list[Any]] = [table[name].to_pylist() for name in (ROW_ID, BASE_KEY, TAKE)]
    (ids, keys, takes), found = columns, stored.statuses()
    if redo == "rejected":
        reviews = stored.reviews
        wanted = set(reviews.loc[(reviews["verdict"] == REJECT) & reviews["is_current"], "row_id"])
    elif isinstance(redo, str):
        if redo not in REDO_STATUSES:
            allowed = f"{', '.join([*REDO_STATUSES, CORRECTED])}, or a list of row ids"
            raise refuse("redo", "is not a status", value=redo, allowed=allowed)
        wanted = {row_id for row_id, status in zip(ids, found, strict=True) if status == redo}
    else:
        wanted = {str(row_id) for row_id in redo}
        if unknown := sorted(wanted.difference(ids)):
            fault = "names no row of the run"
            raise InvalidRows([make_problem("redo", fault, value=row_id) for row_id in unknown])
    chosen = [position for position, key in enumerate(keys) if key is not None and ids[position] in wanted]
    positions = [row for row in chosen if found[row] not in {DONE, CACHED} or _does_row_vary(table, row)]
    identical = len(chosen) - len(positions)
    if not positions:
        return None, identical
    made = set(convert_to_hex(stored.snapshot().index.keys))
    for position in positions:
        # The next take is the lowest number without a record, from the current take on and at least 1. So a
        # take that was requested but never made is requested again.
        later = itertools.count(max(1, takes[position]))
        takes[position] = next(take for take in later if compute_call_key(keys[position], take) not in made)
    column = table.schema.get_field_index(TAKE)
    return table.set_column(column, table.schema.field(column), pa.array(takes, pa.int32())), identical


def _read_table(folder: Folder, manifest: Manifest) -> pa.Table:
    with convert_os_errors(folder, "reading the table"):
        return pq.read_table(folder.get_source(manifest.table.file))


def _change_rows(
    table: pa.Table, backend: Backend, row_columns: pa.Schema, change: Callable[[Request], Request | None]
) -> pa.Table:
    """Return a run's table in which rows have the requests that `change` returns, if any.

    The table gets the `row_columns` that it lacks.
    """
    make_key = make_key_function(backend)
    added = [f for f in row_columns if COLUMN_PREFIX + f.name not in table.column_names]
    for new in added:
        table = table.append_column(COLUMN_PREFIX + new.name, pa.nulls(len(table), new.type))
    names = [name for name in INPUT_COLUMNS.names if name != TAGS] + find_row_columns(table.schema.names)
    changed: list[pa.RecordBatch] = []
    for batch in table.to_batches(_BATCH_ROWS):
        rows = batch.select(names).to_pylist()
        for row in rows:
            if (request := change(read_request(row))) is not None:
                key = make_key(request)
                row |= {BASE_KEY: key, TAKE: request.take, PRICE: request.price}
                row |= {REQUEST: write_request(request), ENDED: None, PROBLEM: None}
                row |= {COLUMN_PREFIX + name: value for name, value in request.row_values.items()}
        kinds = {name: table.schema.field(name).type for name in names}
        columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
        arrays = [columns.get(f.name, batch.column(f.name)) for f in table.schema]
        changed.append(pa.RecordBatch.from_arrays(arrays, schema=table.schema))
    return pa.Table.from_batches(changed, table.schema)


def _correct_rows(folder: Folder, manifest: Manifest, backend: Backend, notes: list[str]) -> pa.Table:
    """Return the run's table, in which rows with a corrected text in their newest review have this text.

    A correction of audio that the row no longer has is not applied, but counted in `notes`. InvalidRows is
    raised if a corrected text cannot be sent.
    """
    reviews = StoredRun(folder).reviews
    reviews = reviews[reviews["corrected_text"].notna()]
    current = reviews[reviews["is_current"]]
    if late := len(reviews) - len(current):
        notes.append(
            f"{format_count(late, 'correction')}: not applied, because the audio has changed since the review"
        )
    texts = dict(zip(current["row_id"], current["corrected_text"], strict=True))
    problems: list[dict[str, Any]] = []

    def correct(request: Request) -> Request | None:
        if (text := texts.get(request.row_id)) is None:
            return None
        found = backend.correct(request, text)
        if isinstance(found, Request):
            return found
        for one in found:
            facts: dict[str, Any] = {"value": one.value, "allowed": one.allowed, "row_id": request.row_id}
            problems.append(make_problem(one.field, f"{one.problem} (corrected text)", **facts))
        return None

    columns = _unite(backend.row_columns, CORRECTION_COLUMNS)
    table = _change_rows(_read_table(folder, manifest), backend, columns, correct)
    if problems:
        raise InvalidRows(problems)
    return table


def _replace_rejected_takes(folder: Folder, manifest: Manifest, path: Path, *, keeps_takes: bool) -> bool:
    """Replace takes that a review rejected in a new table. Return whether any row got another take.

    A row with a rejected take gets the take of the same call in the run's current table, whether this take
    was made or not. If a review rejected this take, too, the row gets the highest take that was made and not
    rejected. If no such take exists, the row keeps the take from the current table, so that the run buys no
    take by itself. If `keeps_takes`, all calls in the run's current table keep their take.
    """
    snapshot = read_snapshot(folder)
    index, is_rejected = snapshot.index, snapshot.find_rejections()
    if not is_rejected.any():
        return False
    table = pq.read_table(path, columns=[BASE_KEY, TAKE])
    keys, takes = table[BASE_KEY].combine_chunks(), table[TAKE].to_numpy().astype(np.int64)
    positions = index.find_shown_records(keys, takes, is_rejected.__getitem__)
    rejected_rows = np.flatnonzero(is_rejected[positions])
    current_takes = _read_current_takes(folder, manifest, keys.take(rejected_rows))

    def iterate_good_takes(key: str, until: int) -> Iterator[int]:
        """Yield the takes of a call that were made and not rejected, until one after `until` is missing."""
        for take in itertools.count():
            position = index.find([compute_call_key(key, take)])
            if position[0] < 0 and take > until:
                return
            if index.have_status(position, FINISHED_STATUSES)[0] and not is_rejected[position[0]]:
                yield take

    chosen = takes.copy()
    for row in rejected_rows.tolist():
        key = keys[row].as_py()
        current = current_takes.get(key, int(takes[row]))
        position = index.find_shown_records(pa.array([key]), np.array([current]), is_rejected.__getitem__)
        if is_rejected[position[0]] and not (keeps_takes and key in current_takes):
            current = max(iterate_good_takes(key, current), default=current)
        chosen[row] = current
    if (chosen == takes).all():
        return False
    with convert_os_errors(folder, "writing the table"):
        whole = pq.read_table(path)
        column = whole.schema.get_field_index(TAKE)
        whole = whole.set_column(column, whole.schema.field(column), pa.array(chosen, pa.int32()))
        pq.write_table(whole, path, compression="zstd", use_dictionary=False, row_group_size=_BATCH_ROWS)
    return True


def _does_row_vary(table: pa.Table, position: int) -> bool:
    """Return whether another take of a row of an input file would differ (:attr:`Request.varies`)."""
    known, _, _ = table[REQUEST][position].as_py().partition(b"\n")
    return bool(load_json(known)[1])
