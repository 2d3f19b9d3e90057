"""From a table to a run folder that is planned and has cost nothing yet."""

import contextlib
import hashlib
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from speechframe._version import __version__
from speechframe.errors import InvalidRows, RunMismatch, StoreError
from speechframe.old_batch.adopt import adopt, standing_keys
from speechframe.old_batch.ahead import check_ledger
from speechframe.old_batch.connection import Connection
from speechframe.old_batch.naming import COST, ROW_ID
from speechframe.old_batch.operation import Operation
from speechframe.old_batch.options import Options
from speechframe.old_batch.planner import NO_TAKES, Planner, plan_table
from speechframe.old_batch.prepared import (
    FIRST_TAKE,
    RETAKEN,
    Known,
    Prepared,
    options_json,
    reopen,
    retaken_in,
    sources_of,
)
from speechframe.old_batch.table import problem
from speechframe.old_batch.threads import in_thread
from speechframe.old_store import (
    RunFolder,
    RunManifest,
    clips,
    draft_in,
    draft_parent,
    is_draft,
    is_left_over,
    is_remote,
    locate,
)
from speechframe.old_store.manifest import TableEntry
from speechframe.old_store.run_state import PLANNED, STATE_KEY
from speechframe.old_store.table import ARGUMENT

DEFAULT_ROOT = Path("speechframe-runs")


async def prepare(
    table: Any,
    arguments: Mapping[str, Any],
    operation: Operation,
    connection: Connection,
    options: Options,
    known: Known | None = None,
) -> Prepared:
    """Check every row of `table` and return its run folder, planned.

    Parameters
    ----------
    table
        See :func:`speechframe.old_batch.table.open_table`.
    arguments
        The verb's arguments as the caller gave them.
    operation, connection, options
        The verb, the service, the run options.
    known
        What the run that this is for knows of the table, to be used instead of `arguments`.

    Raises
    ------
    InvalidRows
        For rows that cannot be sent, with ``on_invalid="raise"``; nothing was written.
    RunMismatch, StoreError
        When the folder holds something else or cannot be written. :class:`TableReplaced` when its newest
        table is another one than `known` says.
    """
    # In a thread: a hundred thousand rows take seconds, and other runs share this loop.
    told = threading.Event()
    # Its draft must be gone before a caller who is cancelled goes on.
    return await in_thread(
        _prepare,
        table,
        arguments,
        operation,
        connection,
        options,
        known,
        told,
        tell=told.set,
    )


def _prepare(
    table: Any,
    arguments: Mapping[str, Any],
    operation: Operation,
    connection: Connection,
    options: Options,
    known: Known | None,
    told: threading.Event,
) -> Prepared:
    _check_takes(operation, options, connection)
    planner = plan_table(table, arguments, operation, options, None if known is None else known.sources)
    if known is not None and known.row_ids is not None:
        planner.table.row_ids = known.row_ids
    planner.is_stopped = told.is_set
    planner.has_takes = may_have_takes(connection)
    if options.run_dir is None:
        return _in_default_folder(planner, operation, connection, options)
    target = locate(options.run_dir)
    if RunFolder.exists(target):
        return _in_existing(RunFolder.open(target), planner, operation, connection, options, known)
    check_free(target)
    return _in_new_folder(planner, operation, connection, options, lambda _: target)


class TableReplaced(StoreError):
    """A run was given another table since its newest one was planned."""


def check_table(prepared: Prepared) -> None:
    """Raise TableReplaced when the run's table is not the one that was planned; under the lock."""
    _check_newest(prepared.folder, prepared.entry)


def _check_newest(folder: RunFolder, entry: TableEntry | None) -> None:
    tables = folder.tables()
    if not tables or tables[-1] != entry:
        raise TableReplaced(
            f"{folder.path} was given another table while this call was planned, and nothing was "
            "sent for this one: call again, or choose another run_dir"
        )


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
        if not all(is_draft(path) or is_left_over(path) for path in target.iterdir()):
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
    # Elsewhere until it is whole: nobody finds a half-planned run, and an invalid table leaves none behind.
    parent = DEFAULT_ROOT.absolute() if is_default else draft_parent(name(planner))
    with contextlib.ExitStack() as stack:
        try:
            draft = stack.enter_context(draft_in(parent))
        except OSError as error:
            words = f"{parent} cannot be written ({error.strerror}): choose another run_dir"
            raise StoreError(words) from None
        folder = RunFolder.create(draft, _manifest(planner, operation, connection))
        with folder.lock():
            _write_table(folder, planner, options)
        target = name(planner).absolute() if is_default else name(planner)
        if not is_default or not RunFolder.exists(target):
            target = _move(draft, target)
        kept = RunFolder.open(target)
        said = folder.manifest.options
        if is_default and not options.dry_run and (draft / clips.FOLDER_NAME).is_dir():
            # Not where the draft itself was moved. A clip that was lost or torn is handed in again here.
            with kept.lock():
                kept.take_clips(folder)
        retaken = retaken_in(kept)
        # What this call itself has put there needs no second look.
        is_new = kept.manifest.run_id == folder.manifest.run_id
        if kept.manifest.options == said and (is_new or kept.has_table()):
            return _reopened(kept, planner) if retaken else _prepared(kept, planner, is_default=is_default)
        if not is_default or options.dry_run:
            # Another process may have put another table there, and a look changes nothing.
            looked = replace(_prepared(kept, planner, is_default=is_default), entry=None)
            keys = standing_keys(folder, planner, operation.at(kept), retaken) if retaken else looked.keys
            return replace(looked, keys=keys)
        return _in_kept(kept, folder, planner, operation)


def _in_kept(kept: RunFolder, draft: RunFolder, planner: Planner, operation: Operation) -> Prepared:
    """Plan a default folder's table where its run was given another one since, or has other columns."""
    said = dict(draft.manifest.options)
    with kept.lock():
        if (first := _first_take(kept, planner)) is not None:
            said[FIRST_TAKE] = first
        if kept.manifest.options != said or not kept.has_table():
            adopt(kept, draft, planner, operation, said=said, retaken=retaken_in(kept))
    return _reopened(kept, planner)


def _reopened(kept: RunFolder, planner: Planner) -> Prepared:
    """Return a default folder as it is, with what was found when its table was planned beside it."""
    return replace(
        reopen(kept),
        invalid=planner.invalid,
        identical_retakes=planner.identical_retakes,
        problems=planner.problems,
        is_default_dir=True,
    )


def _move(draft: Path, target: Path) -> Path:
    try:
        return RunFolder.open(draft).move(target).path
    except StoreError:
        with contextlib.suppress(StoreError):
            if RunFolder.exists(target):  # made by another process while this one planned
                return target
        if not is_remote(target):
            check_free(target)
        # What lies there now may be our own, and says nothing of the cause.
        raise


def _in_existing(
    folder: RunFolder,
    planner: Planner,
    operation: Operation,
    connection: Connection,
    options: Options,
    known: Known | None,
) -> Prepared:
    check_same(folder, operation.name, connection)
    if options.dry_run and folder.tables():
        # A run that exists is not changed by a look at what another table would cost.
        planner.retaken = retaken_in(folder)
        for _ in planner.batches():
            pass
        refuse_invalid(planner, options)
        return replace(_prepared(folder, planner), entry=None)
    with folder.lock():
        if known is not None and known.instead_of is not None:
            _check_newest(folder, known.instead_of)
        takes = {} if known is None else known.takes
        retaken = {**retaken_in(folder), **takes}
        planner.retaken = {key: take for key, take in retaken.items() if take is not None}
        check = partial(check_ledger, folder, planner, operation, connection, options)
        _write_table(folder, planner, options, check)
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


def _write_table(
    folder: RunFolder, planner: Planner, options: Options, check: Callable[[], None] | None = None
) -> None:
    """Spool the table; it becomes the run's unless it is invalid or the run has just this one, readable."""
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
        if check is not None:
            check()
    except BaseException:
        writer.abort()
        raise
    said = options_json(planner.sources, options.id, digest.hexdigest())
    if (first := _first_take(folder, planner)) is not None:
        said[FIRST_TAKE] = first
    # What a default folder says of its table is of the calls that were asked for, whatever stands for them.
    is_as_before = folder.manifest.options == said and retaken_in(folder) == planner.retaken
    if is_as_before and folder.tables() and writer.lost is None:
        writer.abort()
        return
    extra = {name: value for name, value in folder.manifest.extra.items() if name != RETAKEN}
    if planner.retaken:
        extra[RETAKEN] = dict(planner.retaken)
    # One replacement of run.json takes all of it: arguments, takes and table never disagree.
    folder.manifest = replace(folder.manifest, options=said, extra=extra)
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
