"""From a caller's table to a planned run: in its folder, under its lock, with nothing sent.

::

    open_folder, lock -> check_table (every row) -> _adopt (the table becomes the run's) -> Prepared

A run without ``run_dir`` is planned in a folder under a temporary name, which then gets the name of its
calls: the same calls find the same folder.
"""

import contextlib
import filecmp
import hashlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe._version import __version__
from speechframe.batch.backend import Backend, Opened
from speechframe.batch.options import Options
from speechframe.batch.plan import NO_KEY, CheckedTable, keys_of_takes, written
from speechframe.errors import InvalidRows, RunMismatch, StoreError
from speechframe.store.folder import RUN_FILE as FILE
from speechframe.store.folder import Folder, Manifest, TableEntry, described, read_manifest, storing
from speechframe.store.journal import dumps
from speechframe.store.remote import open_folder
from speechframe.store.schema import (
    BASE_KEY,
    INPUT_COLUMNS,
    KEY_BYTES,
    PERSON,
    PREFIX,
    PRICE,
    ROW_ID,
    TAKE,
    part_schema,
)
from speechframe.tables.columns import Column, our_names, problem, rows
from speechframe.tables.table import Table, resolve

DEFAULT_ROOT = Path("speechframe-runs")
INPUT = "input/{:04d}.parquet"
_OWN = frozenset({"lock", "holder.json", "input", "clips", "log", f".{FILE}.tmp"})
"""What a process that was killed while it planned leaves in a folder that holds no run yet."""
_MOST_PROBLEMS = 1000


class PlanningStopped(Exception):
    """Somebody asked for the end of the run while its table was read."""


@dataclass
class Prepared:
    """A planned run, its folder locked until `unlock` is closed."""

    folder: Folder
    manifest: Manifest
    table: CheckedTable
    unlock: contextlib.ExitStack
    problems: list[dict[str, Any]] = field(default_factory=list)  # the first ones that were found
    problem_count: int = 0
    notes: list[str] = field(default_factory=list)  # rows of the source that were dropped or merged, and why


def prepare(
    table: Table,
    given: Mapping[str, Any],
    backend: Backend,
    opened: Opened,
    options: Options,
    *,
    is_resumed: bool = False,
    is_stopped: Callable[[], bool],
) -> Prepared:
    """Check a table and make it the table of a run.

    Parameters
    ----------
    table
        The caller's, to be read once.
    given
        The arguments of its rows: as the caller gave them, or those of the run that goes on.
    backend, opened, options
        The verb, what its service offers, and the run options.
    is_resumed
        Rows keep the take that they had in the run's table.
    is_stopped
        Asked now and then; planning ends then with :class:`PlanningStopped`.

    Raises
    ------
    InvalidRows
        When rows cannot be sent.
    RunLocked, RunMismatch, StoreError
        When the folder cannot take this run.
    """
    if not backend.arguments or not given.keys() - {"take"}:
        # Of `run`, whose caller names no arguments: they are columns.
        names = [name for name in table.schema.names if name in backend.arguments or not backend.arguments]
        given = {**{name: Column(name) for name in names}, **given}
    checker = _Checker(table, given, backend, options.tags)

    def check(folder: Folder, file: str, manifest: Manifest) -> CheckedTable:
        backend.folder = folder.work
        checker.standing = _standing_takes(folder_of_run, manifest) if is_resumed else {}
        checked = checker.write(folder, file, is_stopped)
        checker.refuse(leaves_out=options.on_invalid == "skip" or options.dry_run)
        return checked

    with contextlib.ExitStack() as stack:
        draft = None if options.run_dir is not None else DEFAULT_ROOT / f".{uuid.uuid4().hex}.draft"
        folder = folder_of_run = open_folder(draft or options.run_dir or DEFAULT_ROOT)
        if options.dry_run and folder.exists(FILE):
            # A look at what another table would cost changes nothing in the run's folder.
            manifest = read_manifest(folder)
            check_same(folder, manifest, backend)
            scratch = Folder(Path(stack.enter_context(tempfile.TemporaryDirectory())))
            checked = check(scratch, INPUT.format(1), manifest)
            scratch.publish(checked.entry.file)
            return checker.prepared(folder, manifest, checked, stack.pop_all())
        if not folder.exists(FILE):
            _check_free(folder)
            stack.callback(_remove_unplanned, folder)
        unlock = stack.enter_context(contextlib.ExitStack())
        unlock.enter_context(folder.lock())
        manifest = read_manifest(folder) if folder.exists(FILE) else _manifest(backend, opened)
        check_same(folder, manifest, backend)
        file = _next_input(manifest)
        stack.callback(lambda: folder_of_run.temporary(file).unlink(missing_ok=True))
        checked = check(folder, file, manifest)
        if draft is not None:
            folder, manifest = _named_by_calls(folder, manifest, checked, backend, unlock)
            checked.folder, backend.folder = folder, folder.work
        checked.entry = _adopt(folder, manifest, checked.entry)
        held = unlock.pop_all()
        stack.pop_all()
        return checker.prepared(folder, manifest, checked, held)


def reopen(folder: Folder, backend: Backend, redo: Mapping[str, int]) -> Prepared:
    """Lock a run and return it with its own table.

    Parameters
    ----------
    folder
        The run's.
    backend
        Opened.
    redo
        Row id to the take it is to have from now on.

    Raises
    ------
    StoreError
        When the table is lost: it is to be handed in again.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.lock())
        manifest = read_manifest(folder)
        check_same(folder, manifest, backend)
        backend.folder = folder.work
        entry = manifest.table
        if not folder.exists(entry.file):
            raise StoreError(
                f"{folder.path}: {entry.file} is missing, which is the run's table: hand the table in again, "
                "as resume(run, table=...)"
            )
        if redo:
            entry = _with_takes(folder, manifest, redo)
        with storing(folder, "reading the table"):
            columns = pq.read_table(folder.source(entry.file), columns=[BASE_KEY, TAKE, PRICE])
        base_keys = bytearray(_packed(columns[BASE_KEY].to_pylist()))
        keys = keys_of_takes(base_keys, columns[TAKE].to_numpy())
        checked = CheckedTable(folder, entry, keys, columns[PRICE].to_numpy())
        return Prepared(folder, manifest, checked, stack.pop_all())


# -- every row is checked once, keyed, priced, and written down with its request -----------


class _Checker:
    """Checks the rows of a table and writes them, with columns of ours beside the caller's."""

    def __init__(
        self, table: Table, given: Mapping[str, Any], backend: Backend, tags: Mapping[str, Any]
    ) -> None:
        self._table, self._backend = table, backend
        self._sources = resolve(given, backend.data_arguments, backend.table_arguments, table)
        in_tags = resolve(dict(tags), frozenset(), frozenset(), table)
        self._tags = {name: source for name, source in in_tags.items() if source.column or source.values}
        self._key_of = key_maker(backend.operation, backend.service)
        self._expands = type(backend).expand is not Backend.expand
        self._rows = self._invalid = self._identical_retakes = self._problem_count = 0
        self._base_keys = bytearray()
        self._takes: list[np.ndarray[Any, np.dtype[np.int32]]] = []
        self._prices: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        self.problems: list[dict[str, Any]] = []
        self.standing: Mapping[str, int] = {}  # base key to the take its rows have had, unless the first

    def write(self, folder: Folder, file: str, is_stopped: Callable[[], bool]) -> CheckedTable:
        """Write the table to the temporary of `file`."""
        table, columns = self._table, self._backend.columns
        caller_names = table.schema.names
        if reserved := [name for name in caller_names if name.startswith(PREFIX)]:
            words = f"has a column {reserved[0]!r}"
            raise InvalidRows([problem("table", words, allowed="names that do not begin with spf:")])
        metadata: Any = table.schema.metadata
        schema = pa.schema([*table.schema, *INPUT_COLUMNS], metadata=metadata)
        temporary = folder.temporary(file)
        with (
            storing(folder, "writing the table"),
            pq.ParquetWriter(temporary, schema, compression="zstd", use_dictionary=False) as writer,
        ):
            for batch, ids in table.batches():
                if is_stopped():
                    raise PlanningStopped
                places, ours = self._columns(batch, ids)
                kept = batch.select(caller_names)
                if places is not None:
                    kept = kept.take(pa.array(places, pa.int64()))
                writer.write_batch(pa.RecordBatch.from_arrays([*kept.columns, *ours], schema=schema))
        if not table.is_numbered:
            self._check_ids(pq.read_table(temporary, columns=[ROW_ID])[ROW_ID])
        entry = TableEntry(
            file,
            self._rows,
            table.id_column,
            our_names(table.schema, [*part_schema(columns).names, "row_id"]),
            {name: source.to_json() for name, source in self._sources.items()},
            [
                name
                for name in sorted(self._backend.data_arguments & {*columns.names})
                if name in self._sources and self._sources[name].column in caller_names
            ],
            self._invalid,
        )
        keys = keys_of_takes(self._base_keys, np.concatenate(self._takes))
        return CheckedTable(folder, entry, keys, np.concatenate(self._prices), self._identical_retakes)

    def prepared(
        self, folder: Folder, manifest: Manifest, checked: CheckedTable, unlock: contextlib.ExitStack
    ) -> Prepared:
        """Return the run with what was found in its table."""
        notes = self._table.notes
        return Prepared(folder, manifest, checked, unlock, self.problems, self._problem_count, notes)

    def refuse(self, *, leaves_out: bool) -> None:
        """Raise InvalidRows where the table must not be sent.

        Parameters
        ----------
        leaves_out
            Bad rows are left out, unless nothing is left then or rows cannot be told apart.
        """
        is_hopeless = self._invalid >= self._rows or any(p["field"] == "id" for p in self.problems)
        if self._problem_count and (is_hopeless or not leaves_out):
            raise InvalidRows(self.problems, total=self._problem_count)

    def _columns(
        self, batch: pa.RecordBatch, ids: list[str]
    ) -> "tuple[list[int] | None, list[pa.Array[Any]]]":
        """Return from which row of the batch each row comes (None: they are the same), and our columns."""
        values = rows(batch, self._sources)
        places: list[int] | None = None
        if self._expands:
            spread = [
                (place, f"{row_id}{suffix}", dict(more))
                for place, (row_id, row) in enumerate(zip(ids, values, strict=True))
                for suffix, more in self._backend.expand(row)
            ]
            places, ids = [s[0] for s in spread], [s[1] for s in spread]
            values = iter([s[2] for s in spread])
        tags: list[str | None] = [None] * len(ids)
        if self._tags:
            texts = [
                dumps({name: str(tag) for name, tag in row.items()}).decode()
                for row in rows(batch, self._tags)
            ]
            tags = list(texts) if places is None else [texts[place] for place in places]
        ours = [
            self._row(row_id, row, tag, self._rows + number)
            for number, (row_id, row, tag) in enumerate(zip(ids, values, tags, strict=True))
        ]
        self._rows += len(ids)
        columns = [list(column) for column in zip(*ours, strict=True)] or [[] for _ in INPUT_COLUMNS]
        arrays: list[Any] = [
            pa.array(column, kind) for column, kind in zip(columns, INPUT_COLUMNS.types, strict=True)
        ]
        self._base_keys += _packed(columns[1])
        self._takes.append(arrays[2].to_numpy())
        self._prices.append(arrays[3].to_numpy())
        return places, arrays

    def _row(self, row_id: str, row: dict[str, Any], tag: str | None, number: int) -> tuple[Any, ...]:
        """Return our columns of one row."""
        take = row.pop("take", None)
        request = self._backend.check(row)
        if isinstance(request, list):
            self._invalid += 1
            for one in request:
                allowed, source = one.allowed, self._sources.get(one.field)
                constant = None if source is None else source.constant
                if isinstance(constant, str) and constant in self._table.schema.names:
                    hint = f"did you mean {one.field}=col({constant!r})?"
                    allowed = f"{allowed}; {hint}" if allowed else hint
                self._note(
                    one.field, one.problem, value=one.value, allowed=allowed, row=number, row_id=row_id
                )
            words = "; ".join(f"{one.field} {one.problem}" for one in request)
            return row_id, None, 0, 0, None, tag, words
        key = self._key_of(request.content)
        take = self.standing.get(key, 0) if take is None else int(take)
        if take and not request.varies:
            self._identical_retakes += 1
            take = 0
        return row_id, key, take, request.price, written(request), tag, None

    def _check_ids(self, ids: "pa.ChunkedArray[Any]") -> None:
        """Note every row id that more than one row has: such rows could not be told apart."""
        counted: Any = ids.value_counts()
        is_shared: Any = pc.greater(counted.field("counts"), pa.scalar(1))
        for twice in counted.filter(is_shared).to_pylist():
            often = "twice" if twice["counts"] == 2 else f"{twice['counts']:,} times"  # noqa: PLR2004
            words = f"stands {often} in {self._table.id_column or 'the index'}"
            self._note("id", words, value=twice["values"], allowed="one id a row", row_id=twice["values"])

    def _note(self, *words: str, **facts: Any) -> None:
        self._problem_count += 1
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem(*words, **facts))


def key_maker(operation: str, service: str) -> Callable[[bytes], str]:
    """Return what makes the key of a call of its content: 32 hex digits, equal for equal calls of any run.

    Parameters
    ----------
    operation
        The run's operation.
    service
        Identity of the service: never an address or port.

    Examples
    --------
    >>> key_maker("generate", "local/espeak")(b"a") == key_maker("generate", "api.example.com")(b"a")
    False
    """
    begun = hashlib.blake2b(digest_size=KEY_BYTES, person=PERSON)
    for part in (operation.encode(), service.encode("utf-8", "replace")):
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        begun.update(len(part).to_bytes(8, "big") + part)

    def key_of(content: bytes) -> str:
        digest = begun.copy()
        digest.update(content)
        return digest.hexdigest()

    return key_of


def _packed(hex_keys: "list[str | None]") -> bytes:
    return b"".join(NO_KEY if key is None else bytes.fromhex(key) for key in hex_keys)


# -- the run's folder --------------------------------------------------------------------


def check_same(folder: Folder, manifest: Manifest, backend: Backend) -> None:
    """Raise RunMismatch when a run is of another operation or service than what is to be added."""
    if manifest.operation != backend.operation:
        raise RunMismatch(
            f"{folder.path} holds a {manifest.operation} run, not {backend.operation}: choose another run_dir"
        )
    if manifest.service != backend.service:
        raise RunMismatch(
            f"{folder.path} was made by {manifest.service}, this service is {backend.service}: rows of two "
            "services are not mixed. Choose another run_dir, or go on with the service that made it."
        )


def _manifest(backend: Backend, opened: Opened) -> Manifest:
    return Manifest(
        run_id=uuid.uuid4().hex[:16],
        operation=backend.operation,
        service=backend.service,
        columns=described(backend.columns),
        key_fingerprint=opened.key_fingerprint,
        is_local=opened.is_local,
        version=__version__,
        facts=dict(opened.facts),
        remark=backend.remark,
    )


def _next_input(manifest: Manifest) -> str:
    """Return the file of the next table of a run."""
    return INPUT.format(int(Path(manifest.table.file).stem) + 1 if manifest.tables else 1)


def _standing_takes(folder: Folder, manifest: Manifest) -> dict[str, int]:
    """Return the take of each call of the run's table that has had another take than its first."""
    if not manifest.tables or not folder.exists(manifest.table.file):
        return {}
    table = pq.read_table(folder.source(manifest.table.file), columns=[BASE_KEY, TAKE])
    retaken = table.take(np.flatnonzero(table[TAKE].to_numpy())).to_pydict()
    return dict(zip(retaken[BASE_KEY], retaken[TAKE], strict=True))


def _check_free(folder: Folder) -> None:
    """Raise StoreError where something lies that is no run of ours."""
    path = folder.path
    if folder.work != path:
        return
    if path.is_dir():
        others = [name.name for name in path.iterdir() if name.name not in _OWN]
        if others:
            raise StoreError(
                f"{path} holds other files and no run ({others[0]!r}): name an empty or a new folder"
            )
    elif path.exists():
        raise StoreError(f"{path} is a file: name a folder as run_dir")


def _remove_unplanned(folder: Folder) -> None:
    """Remove what planning left in a folder that holds no run."""
    if folder.exists(FILE) or not folder.work.is_dir():
        return
    for name in _OWN:
        path = folder.work / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # what else is in it is not ours
        folder.work.rmdir()


def _named_by_calls(
    draft: Folder, manifest: Manifest, checked: CheckedTable, backend: Backend, unlock: contextlib.ExitStack
) -> tuple[Folder, Manifest]:
    """Give a draft the name of its calls; where such a run is already, hand the table over to it."""
    name = hashlib.blake2b(b"".join(checked.keys.to_pylist()), digest_size=5).hexdigest()
    target = Folder((DEFAULT_ROOT / f"{backend.operation}-{name}").absolute())
    if not target.exists(FILE):
        with storing(target, "naming the run's folder"):
            _remove_unplanned(target)
            draft.path.rename(target.path)
        draft.path = draft.work = target.path
        return draft, manifest
    unlock.enter_context(target.lock())
    kept = read_manifest(target)
    check_same(target, kept, backend)
    mine, checked.entry.file = checked.entry.file, _next_input(kept)
    with storing(target, "handing the table over"):
        draft.temporary(mine).rename(target.temporary(checked.entry.file))
        if (draft.path / "clips").is_dir():
            shutil.copytree(draft.path / "clips", target.path / "clips", dirs_exist_ok=True)
        shutil.rmtree(draft.path)
    return target, kept


def _adopt(folder: Folder, manifest: Manifest, entry: TableEntry) -> TableEntry:
    """Make a table that was written the run's, unless it is the one the run has."""
    temporary = folder.temporary(entry.file)
    if manifest.tables and folder.work == folder.path:
        before = manifest.table
        is_same = replace(before, file=entry.file) == entry and folder.exists(before.file)
        if is_same and filecmp.cmp(temporary, folder.inside(before.file), shallow=False):
            temporary.unlink()
            return before
    with storing(folder, "writing the table"):
        folder.publish(entry.file)
    # A table that was lost is not asked for any more.
    manifest.tables = [*(table for table in manifest.tables if folder.exists(table.file)), entry]
    manifest.write(folder)
    return entry


def _with_takes(folder: Folder, manifest: Manifest, redo: Mapping[str, int]) -> TableEntry:
    """Write the run's table once more, with other takes for some rows."""
    entry = replace(manifest.table, file=_next_input(manifest))
    with storing(folder, "writing the table"):
        table = pq.read_table(folder.source(manifest.table.file))
        rows: Any = zip(table[ROW_ID].to_pylist(), table[TAKE].to_pylist(), strict=True)
        takes = [redo.get(row_id, take) for row_id, take in rows]
        place = table.schema.get_field_index(TAKE)
        table = table.set_column(place, table.schema.field(place), pa.array(takes, pa.int32()))
        temporary = folder.temporary(entry.file)
        pq.write_table(table, temporary, compression="zstd", use_dictionary=False)
    return _adopt(folder, manifest, entry)
