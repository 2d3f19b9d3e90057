"""From a table to a run folder that is planned and has cost nothing yet."""

import hashlib
import shutil
import tempfile
import threading
import uuid
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speechframe._version import __version__
from speechframe.batch.columns import Source
from speechframe.batch.connection import Connection
from speechframe.batch.keys import KeyColumn, Keys, has_key
from speechframe.batch.naming import COST, ROW_ID
from speechframe.batch.operation import Operation
from speechframe.batch.options import Options
from speechframe.batch.planner import NO_TAKES, Planner, plan_table
from speechframe.batch.table import problem
from speechframe.batch.threads import in_thread
from speechframe.errors import InvalidRows, RunMismatch, StoreError
from speechframe.store import RunFolder, RunManifest, draft_parent, locate
from speechframe.store.manifest import TableEntry
from speechframe.store.run_state import PLANNED, STATE_KEY
from speechframe.store.table import ARGUMENT, PROBLEM

DEFAULT_ROOT = Path("speechframe-runs")
SOURCES = "arguments"
ID = "id"
CONTENT = "content"
RETAKEN = "retaken"
FIRST_TAKE = "first_take"


@dataclass(frozen=True)
class Prepared:
    """A run folder whose newest table is checked, keyed and priced.

    Attributes
    ----------
    folder
        The run.
    sources
        Where each argument's values come from.
    keys, costs
        One a row: the call's key and its price in thousandths of a credit.
    entry
        The table in the run's manifest that these are of; None for one that was only looked at.
    invalid, identical_retakes
        Rows without a call, and rows whose take cannot differ.
    problems
        What is wrong with the invalid rows.
    is_default_dir
        The caller named no folder.
    """

    folder: RunFolder
    sources: Mapping[str, Source]
    keys: Keys
    costs: Sequence[int]
    entry: TableEntry | None
    invalid: int = 0
    identical_retakes: int = 0
    problems: Sequence[dict[str, Any]] = ()
    is_default_dir: bool = False


async def prepare(
    table: Any,
    arguments: Mapping[str, Any],
    operation: Operation,
    connection: Connection,
    options: Options,
    *,
    known: Mapping[str, Source] | None = None,
) -> Prepared:
    """Check every row of `table` and return its run folder, planned.

    Parameters
    ----------
    table
        See :func:`speechframe.batch.table.open_table`.
    arguments
        The verb's arguments as the caller gave them.
    operation, connection, options
        The verb, the service, the run options.
    known
        Sources of an earlier call of the run, to be used instead of `arguments`.

    Raises
    ------
    InvalidRows
        For rows that cannot be sent, with ``on_invalid="raise"``; nothing was written.
    RunMismatch, StoreError
        When the folder holds something else or cannot be written.
    """
    # In a thread: a hundred thousand rows take seconds, and other runs share this loop.
    told = threading.Event()
    # Its draft must be gone before a caller who is cancelled goes on.
    return await in_thread(
        _prepare, table, arguments, operation, connection, options, known, told, tell=told.set
    )


def _prepare(
    table: Any,
    arguments: Mapping[str, Any],
    operation: Operation,
    connection: Connection,
    options: Options,
    known: Mapping[str, Source] | None,
    told: threading.Event,
) -> Prepared:
    _check_takes(operation, options, connection)
    planner = plan_table(table, arguments, operation, options, known)
    planner.is_stopped = told.is_set
    planner.has_takes = may_have_takes(connection)
    if options.run_dir is None:
        return _in_default_folder(planner, operation, connection, options)
    target = locate(options.run_dir)
    if RunFolder.exists(target):
        folder = RunFolder.open(target)
        planner.retaken = retaken_in(folder)
        return _in_existing(folder, planner, operation, connection, options)
    check_free(target)
    return _in_new_folder(planner, operation, connection, options, lambda _: target)


def check_table(prepared: Prepared) -> None:
    """Raise StoreError when the run's table is not the one that was planned; under the lock."""
    tables = prepared.folder.tables()
    if not tables or tables[-1] != prepared.entry:
        raise StoreError(
            f"{prepared.folder.path} was given another table while this call was planned, and nothing was "
            "sent for this one: call again, or choose another run_dir"
        )


def retaken_in(folder: RunFolder) -> dict[str, int]:
    """Return the calls of a run that a take made by itself stands for, and which take."""
    return dict(folder.manifest.extra.get(RETAKEN, {}))


def _check_takes(operation: Operation, options: Options, connection: Connection) -> None:
    if not operation.takes and not (isinstance(options.take, int) and not options.take):
        raise InvalidRows([problem("take", f"is nothing that {operation.name} has", value=options.take)])
    if isinstance(options.take, int) and options.take and not may_have_takes(connection):
        raise InvalidRows([problem("take", NO_TAKES, value=options.take, allowed="take=0")])


def may_have_takes(connection: Connection) -> bool:
    """Return whether a service offers takes, or tells nothing of what it offers."""
    return connection.takes or not connection.limits


def check_free(target: Path) -> None:
    """Raise StoreError when `target` is something else than a run, an empty folder or nothing."""
    if target.is_dir():
        if any(target.iterdir()):
            raise StoreError(
                f"{target} holds other files and no run: name an empty or a new folder as run_dir"
            )
    elif target.exists():
        raise StoreError(f"{target} is a file: name a folder as run_dir")


def _in_default_folder(
    planner: Planner, operation: Operation, connection: Connection, options: Options
) -> Prepared:
    def name(planner: Planner) -> Path:
        content = f"{connection.identity}\0{planner.content_hash}"
        short = hashlib.blake2b(content.encode(), digest_size=5).hexdigest()
        return DEFAULT_ROOT / f"{operation.name}-{short}"

    return _in_new_folder(planner, operation, connection, options, name, is_default=True)


def _in_new_folder(
    planner: Planner,
    operation: Operation,
    connection: Connection,
    options: Options,
    name: Callable[[Planner], Path],
    *,
    is_default: bool = False,
) -> Prepared:
    # Written beside its place and renamed: an invalid table or a crash leaves no half-planned run behind.
    parent = DEFAULT_ROOT if is_default else draft_parent(name(planner))
    try:
        parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".planning-", dir=parent))
    except OSError as error:
        raise StoreError(f"{parent} cannot be written ({error.strerror}): choose another run_dir") from None
    try:
        folder = RunFolder.create(draft, _manifest(planner, operation, connection))
        with folder.lock():
            _write_table(folder, planner, options)
        said = folder.manifest.options
        target = name(planner)
        if is_default and RunFolder.exists(target):
            kept = RunFolder.open(target)
        else:
            target = _move(draft, target)
            kept = RunFolder.open(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    found = _prepared(kept, planner, is_default=is_default)
    # A default folder's name says what is in it. Anywhere else, another process may have put another table.
    return found if is_default or kept.manifest.options == said else replace(found, entry=None)


def _move(draft: Path, target: Path) -> Path:
    try:
        return RunFolder.open(draft).move(target).path
    except StoreError:
        if RunFolder.exists(target):  # made by another process while this one planned
            return target
        check_free(target)
        raise


def _in_existing(
    folder: RunFolder, planner: Planner, operation: Operation, connection: Connection, options: Options
) -> Prepared:
    check_same(folder, operation.name, connection)
    if options.dry_run and folder.tables():
        # A run that exists is not changed by a look at what another table would cost.
        for _ in planner.batches():
            pass
        refuse_invalid(planner, options)
        return replace(_prepared(folder, planner), entry=None)
    with folder.lock():
        _write_table(folder, planner, options)
    return _prepared(folder, planner)


def check_same(folder: RunFolder, operation: str, connection: Connection) -> None:
    """Raise RunMismatch when a run is of another operation or service than what is to be added."""
    said = folder.manifest
    if said.operation != operation:
        raise RunMismatch(
            f"{folder.path} holds a {said.operation} run, not {operation}: choose another run_dir"
        )
    if said.service != connection.identity:
        raise RunMismatch(
            f"{folder.path} was made by {said.service}, this service is {connection.identity}: rows of two "
            "services are not mixed. Choose another run_dir, or go on with the service that made it."
        )


def _write_table(folder: RunFolder, planner: Planner, options: Options) -> None:
    """Spool the table; it becomes the run's unless it is invalid or the run has just this table already."""
    digest = hashlib.blake2b(str(planner.schema).encode(), digest_size=16)
    renamed = {ours: name for ours, name in planner.names.items() if ours != name}
    hidden = [
        *_working_columns(planner),
        *(name for name in planner.schema.names if name.startswith(ARGUMENT)),
    ]
    planner.folder = folder
    writer = folder.add_table(planner.schema, column_map=renamed, id_column=options.id, hidden=hidden)
    try:
        for batch in planner.batches():
            digest.update(batch.serialize())
            writer.write(batch)
        refuse_invalid(planner, options)
    except BaseException:
        writer.abort()
        raise
    said = options_json(planner.sources, options.id, digest.hexdigest())
    if (first := _first_take(folder, planner)) is not None:
        said[FIRST_TAKE] = first
    if folder.manifest.tables and folder.manifest.options == said:
        writer.abort()
        return
    # One replacement of run.json takes both: arguments and table never disagree.
    folder.manifest = replace(folder.manifest, options=said)
    writer.close()


def _first_take(folder: RunFolder, planner: Planner) -> dict[str, Any] | None:
    """Return where takes came from before rows were redone, so that another table finds the way back."""
    take = planner.sources.get("take")
    if take is None or take.column != f"{ARGUMENT}take" or not folder.manifest.tables:
        return None
    before = sources_of(folder).get("take")
    if before is None or before.column == take.column:
        kept: dict[str, Any] | None = folder.manifest.options.get(FIRST_TAKE)
        return kept
    return before.to_json()


def _working_columns(planner: Planner) -> list[str]:
    """Return our columns that a reader of the table has already: its index or id, and its own text."""
    hidden = [planner.names[COST], planner.names[ROW_ID]]
    text = planner.sources.get("text")
    if text is not None and text.column in planner.table.schema.names:
        hidden.append(planner.names["text"])
    return hidden


def refuse_invalid(planner: Planner, options: Options) -> None:
    """Raise InvalidRows where the rows that a planner has read must not be sent."""
    refuses = options.on_invalid == "raise" and not options.dry_run
    if planner.problem_count and (refuses or _is_hopeless(planner)):
        raise InvalidRows(planner.problems, total=planner.problem_count)


def _is_hopeless(planner: Planner) -> bool:
    # Twice the same id, or a constant that is wrong: nothing that leaving out rows would mend.
    return planner.invalid >= len(planner.costs) or any(p["field"] == "id" for p in planner.problems)


def options_json(sources: Mapping[str, Source], id_column: str | None, content: str) -> dict[str, Any]:
    """Return what run.json keeps of a call, so that a resume needs nothing from the caller."""
    arguments = {name: source.to_json() for name, source in sorted(sources.items())}
    return {SOURCES: arguments, ID: id_column, CONTENT: content}


def sources_of(folder: RunFolder) -> dict[str, Source]:
    """Return where the arguments of a run's newest table come from."""
    kept = folder.manifest.options.get(SOURCES, {})
    return {name: Source.from_json(name, source) for name, source in kept.items()}


def first_sources(folder: RunFolder) -> dict[str, Source]:
    """Return where the arguments of a run come from, without takes that were redone since."""
    sources = sources_of(folder)
    take = sources.get("take")
    if take is not None and take.column == f"{ARGUMENT}take":
        first = folder.manifest.options.get(FIRST_TAKE)
        del sources["take"]
        if first is not None:
            sources["take"] = Source.from_json("take", first)
    return sources


def _manifest(planner: Planner, operation: Operation, connection: Connection) -> RunManifest:
    audio_format = planner.sources.get("format")
    return RunManifest(
        run_id=uuid.uuid4().hex[:16],
        operation=operation.name,
        speechframe_version=__version__,
        service=connection.identity,
        local=connection.is_local,
        key_fingerprint=connection.key_fingerprint,
        catalogue_hash=connection.book.hash,
        audio_format=str(audio_format.constant) if audio_format and audio_format.column is None else None,
        extra={STATE_KEY: PLANNED},
    )


def _prepared(folder: RunFolder, planner: Planner, *, is_default: bool = False) -> Prepared:
    return Prepared(
        folder,
        planner.sources,
        planner.keys.to_array(),
        planner.costs,
        folder.tables()[-1],
        planner.invalid,
        planner.identical_retakes,
        planner.problems,
        is_default,
    )


def reopen(folder: RunFolder) -> Prepared:
    """Return the newest table of a run as it was planned; reads keys and prices only."""
    entry = folder.tables()[-1] if folder.tables() else None
    if entry is None:
        raise StoreError(f"{folder.path} has no table yet: call the verb with one")
    keys, costs = KeyColumn(), array("q")
    names = [entry.name_of("request_key"), entry.name_of(COST)]
    with folder.table() as file:
        for batch in file.iter_batches(columns=names):
            for key in batch.column(names[0]).to_pylist():
                keys.append(key)
            costs.extend(cost or 0 for cost in batch.column(names[1]).to_pylist())
    found = keys.to_array()
    return Prepared(folder, sources_of(folder), found, costs, entry, invalid=int((~has_key(found)).sum()))


def problems_of(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the problems of a run's newest table, as they were written when it was planned."""
    entry = folder.tables()[-1]
    names = [entry.name_of(ROW_ID), entry.name_of(PROBLEM)]
    found = []
    with folder.table() as file:
        for batch in file.iter_batches(columns=names):
            for row_id, words in zip(
                batch.column(names[0]).to_pylist(), batch.column(names[1]).to_pylist(), strict=True
            ):
                if words:
                    name, _, rest = words.partition(" ")
                    found.append(problem(name, rest, row_id=row_id))
    return found
