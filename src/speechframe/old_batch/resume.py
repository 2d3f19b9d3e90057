"""Going on with a run: the same rows, another table, or another take of some of them."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from speechframe.errors import InvalidRows, RunMismatch, SettingsError
from speechframe.old_batch.ahead import Outlook
from speechframe.old_batch.aligning import WORDS, aligner_for
from speechframe.old_batch.connection import Connection, settings_of
from speechframe.old_batch.drive import carry_out, check_rules
from speechframe.old_batch.naming import ROW_ID
from speechframe.old_batch.operation import Operation
from speechframe.old_batch.options import Options, RunOptions
from speechframe.old_batch.planner import plan_table
from speechframe.old_batch.prepare import check_same, may_have_takes, prepare, refuse_invalid
from speechframe.old_batch.prepared import (
    ID,
    Known,
    Prepared,
    budget_of,
    first_sources,
    problems_of,
    reopen,
    retaken_in,
    sources_of,
)
from speechframe.old_batch.progress import credits_in_words
from speechframe.old_batch.redo import with_new_takes
from speechframe.old_batch.row_calls import row_values
from speechframe.old_batch.run import Run
from speechframe.old_batch.table import problem
from speechframe.old_batch.verbs import VERBS, Verb, model_of
from speechframe.old_store import RunFolder
from speechframe.old_store.run_state import PLANNED, STATE_KEY

if TYPE_CHECKING:
    import pandas as pd


async def resume(
    run: Run | str | PathLike[str],
    table: Any = None,
    *,
    redo: str | Sequence[Any] | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Go on with a run and return it: what is missing is made, what is there is kept.

    All parameters come from the run's folder, its budget too: after a stop by ``max_credits`` give a
    higher one (``float("inf")`` for none). Failed rows are tried again.

    Parameters
    ----------
    run
        A run or its folder.
    table
        A new table for the run: rows whose text or parameters changed and new rows are made, unchanged
        ones cost nothing, rows that are gone leave the table but never the disk.
    redo
        Rows to make another take of: a list of row ids, a status such as ``"suspect"``, or ``"rejected"``:
        rows that a review rejected (see :attr:`Run.reviews`), unless they were made anew since. Earlier takes
        stay on disk; calling the verb itself again chooses its own take back. (Failed rows need no redo.)
    **options
        See :class:`RunOptions`; ``run_dir`` and ``take`` are the run's own, and so is ``id`` without a table.

    Raises
    ------
    NotARun, RunMismatch, RunLocked, StoreError
        When the folder cannot be gone on with.
    InvalidRows, SettingsError, ServiceError, ConnectionFailed
        As the run's verb.

    Examples
    --------
    >>> run = resume("runs/demo", table=frame)  # doctest: +SKIP
    """
    folder = _folder(run)
    manifest = folder.manifest
    verb = _verb_of(folder)
    if redo is not None and not verb.operation.takes:
        raise InvalidRows([problem("redo", f"makes other takes, and {manifest.operation} has none")])
    if redo is not None and table is not None:
        raise InvalidRows(
            [problem("redo", "is for the run's own table", allowed="redo= or table=, one at a time")]
        )
    _refuse_idle(options, has_table=table is not None)
    given = Options.of(**{**options, "run_dir": folder.path})
    if options.get("max_credits") is None and (kept := budget_of(folder)) is not None:
        # What the run was given goes before what all runs are given.
        given = replace(given, max_credits=kept)
    given = replace(given, id=given.id or manifest.options.get(ID))
    check_rules(given)
    aligner = await aligner_for(_constant(folder, WORDS))
    model = model_of(_constant(folder, "model"))
    connection = await Connection.open(
        settings_of(given), most=given.max_concurrency, verb=verb.name, model=model
    )
    try:
        operation = verb.operation_of(model).on(connection.service)
        check_same(folder, verb.name, connection)
        if redo is not None:
            _refuse_redo(connection)
            table, known = await asyncio.to_thread(with_new_takes, folder, redo)
            left_out = await asyncio.to_thread(problems_of, folder)
            _refuse_planned_invalid(folder, left_out, given)
            # Rows that the run was made without are not asked about again.
            own = replace(given, on_invalid="skip") if left_out else given
            prepared = await prepare(table, {}, operation, connection, own, known)
        elif table is not None:
            known = Known(first_sources(folder))
            prepared = await prepare(table, {}, operation, connection, given, known)
        else:
            prepared = await asyncio.to_thread(reopen, folder)
            if prepared.invalid:
                _refuse_planned_invalid(folder, await asyncio.to_thread(problems_of, folder), given)
    except BaseException:
        await connection.client.close()
        raise
    return await carry_out(prepared, operation, connection, given, aligner)


def _refuse_idle(options: Mapping[str, Any], *, has_table: bool) -> None:
    """Raise SettingsError for what a resume has no use for: nobody is to believe that it did something."""
    instead = {
        "run_dir": "a run goes on in its own folder",
        "take": "the takes are the run's own; redo= makes another one of some rows",
    }
    if not has_table:
        instead["id"] = "rows are named when a table is given"
    for name, words in instead.items():
        if options.get(name) is not None:
            raise SettingsError(f"resume() takes no {name}: {words}")


def _refuse_redo(connection: Connection) -> None:
    if not may_have_takes(connection):
        words = "makes other takes, which this service does not offer: they would be the same, billed again"
        raise InvalidRows([problem("redo", words)])


def _refuse_planned_invalid(folder: RunFolder, problems: Sequence[dict[str, Any]], options: Options) -> None:
    # A dry run shows its problems instead of raising; what starts it must not leave rows out unasked.
    planned = folder.manifest.extra.get(STATE_KEY) == PLANNED
    if planned and problems and options.on_invalid == "raise" and not options.dry_run:
        raise InvalidRows(problems)


def _constant(folder: RunFolder, argument: str) -> Any:
    """Return an argument that holds for the whole of a run's newest table; None where it was not given."""
    source = sources_of(folder).get(argument)
    return None if source is None else source.constant


def _folder(run: Run | str | PathLike[str]) -> RunFolder:
    return RunFolder.open(run.path if isinstance(run, Run) else run)


def _verb_of(folder: RunFolder) -> Verb:
    """Return the verb that made a run; raise RunMismatch for one that this version does not know."""
    name = folder.manifest.operation
    if name not in VERBS:
        raise RunMismatch(
            f"{folder.path} holds a {name} run; this version knows {', '.join(VERBS)}: upgrade speechframe, "
            "or name another run"
        )
    return VERBS[name]


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


async def changes(run: Run | str | PathLike[str], table: Any, **options: Unpack[RunOptions]) -> Changes:
    """Return how `table` differs from a run's table, and what the difference would cost; sends nothing.

    Parameters
    ----------
    run
        A run or its folder.
    table
        The table that would be given to :func:`resume`.
    **options
        ``id``, ``service`` and ``on_invalid``; see :class:`RunOptions`.

    Raises
    ------
    InvalidRows
        When rows of the table cannot be sent.
    NotARun, RunMismatch, StoreError
        When the folder holds no run, one of another service, verb or version, or cannot be read.
    SettingsError, ServiceError, ConnectionFailed
        When an option or a setting is not allowed, or the service cannot be asked.
    """
    folder = _folder(run)
    verb = _verb_of(folder)
    given = Options.of(**{**options, "run_dir": folder.path})
    given = replace(given, id=given.id or folder.manifest.options.get(ID))
    model = model_of(_constant(folder, "model"))
    connection = await Connection.open(settings_of(given), verb=verb.name, model=model)
    async with connection:
        operation = verb.operation_of(model).on(connection.service)
        check_same(folder, verb.name, connection)
        return await asyncio.to_thread(_compare, folder, table, operation, connection, given)


def _compare(
    folder: RunFolder, table: Any, operation: Operation, connection: Connection, options: Options
) -> Changes:
    sources = first_sources(folder)
    planner = plan_table(table, {}, operation, options, sources)
    planner.retaken = retaken_in(folder)
    entry = folder.tables()[-1]
    of_run = (entry.name_of(ROW_ID), entry.name_of("request_key"))
    before = {row_id: key for batch in _own_batches(folder, of_run) for row_id, key in _named(batch, of_run)}
    after: dict[str, str | None] = {}
    # Values of rows that differ only: of a million rows that are as they were, nothing is to be held.
    values: dict[str, dict[str, Any]] = {}
    for batch in planner.batches():
        named = _named(batch, (planner.names[ROW_ID], planner.names["request_key"]))
        after.update(named)
        differs = (row_id in before and before[row_id] != key for row_id, key in named)
        rows = zip(named, row_values(batch, sources), differs, strict=True)
        values.update({row_id: found for (row_id, _), found, is_other in rows if is_other})
    refuse_invalid(planner, options)
    columns: dict[str, tuple[str, ...]] = {}
    used = [source.column for source in sources.values() if source.column is not None]
    for batch in _own_batches(folder, [*of_run, *used]) if values else ():
        for (row_id, _), found in zip(_named(batch, of_run), row_values(batch, sources), strict=True):
            if row_id in values:
                columns[row_id] = _differing(found, values[row_id])
    planned = Prepared(folder, sources, planner.keys.to_array(), planner.costs, None, planner.invalid)
    run_id = folder.manifest.run_id
    outlook = Outlook(run_id, planned, operation, connection, options, cache=None, remark=None)
    return Changes(
        new=tuple(row_id for row_id in after if row_id not in before),
        changed=tuple(values),
        removed=tuple(row_id for row_id in before if row_id not in after),
        unchanged=tuple(
            row_id for row_id, key in after.items() if row_id in before and before[row_id] == key
        ),
        columns={row_id: columns[row_id] for row_id in values},
        credits=outlook.ahead().plan.estimate.credits,
    )


def _own_batches(folder: RunFolder, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with folder.table() as file:
        yield from file.iter_batches(columns=list(dict.fromkeys(columns)))


def _named(batch: pa.RecordBatch, names: tuple[str, str]) -> list[tuple[str, str | None]]:
    """Return id and key of each row."""
    ids, keys = (batch.column(name).to_pylist() for name in names)
    return list(zip(map(str, ids), keys, strict=True))


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in sorted({*old, *new}) if old.get(name) != new.get(name))
