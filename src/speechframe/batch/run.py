"""Runs: made, gone on with, and compared with another table.

::

    make, resume -> prepare (checked, written down) -> plan (what is missing) -> engine -> the run's end
"""

import asyncio
import contextlib
import getpass
import logging
import math
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.batch.backend import MAKERS, Backend, Opened
from speechframe.batch.budget import Budget, Month
from speechframe.batch.decisions import Policy
from speechframe.batch.engine import Engine
from speechframe.batch.estimate import Changes, Estimate
from speechframe.batch.keys import Mask, among, as_keys, as_keys_of, first_of_each
from speechframe.batch.lanes import Lanes
from speechframe.batch.live import Live, Outcome, Run
from speechframe.batch.options import Options
from speechframe.batch.plan import Plan, plan_calls
from speechframe.batch.prepare import Prepared, check_same, prepare, reopen
from speechframe.batch.progress import Progress
from speechframe.batch.queue import Call, Queue
from speechframe.errors import InvalidRows, RunMismatch, SettingsError, SpeechframeError
from speechframe.settings import Settings
from speechframe.settings.rules import cache_rules, spending_rules
from speechframe.slots import shared_folder
from speechframe.store import parts
from speechframe.store.cache import Cache, open_cache
from speechframe.store.folder import Folder
from speechframe.store.journal import Journal
from speechframe.store.keys import call_key
from speechframe.store.manifest import FILE, read_manifest
from speechframe.store.month import MonthFile
from speechframe.store.reader import StoredRun, warning_kind
from speechframe.store.records import read_snapshot
from speechframe.store.remote import open_folder
from speechframe.store.reviews import REJECT
from speechframe.store.rows import Rows
from speechframe.store.schema import (
    BASE_KEY,
    CHARGED_UNKNOWN,
    FAILED,
    FINISHED,
    NOTED,
    PACK,
    REQUEST,
    ROW_ID,
    Row,
    StopReason,
)
from speechframe.tables.columns import Column, Source, problem
from speechframe.tables.table_input import Table, open_table

log = logging.getLogger(__name__)

REPEAT_MARGIN = 0.9
"""Of the time in which repeats are free: a repeat must arrive before the service forgets."""

REDO_STATUSES = ("failed", "suspect", "done", "rejected")


async def make(backend: Backend, table: Any, arguments: Mapping[str, Any], given: Mapping[str, Any]) -> Run:
    """Plan a table for a backend and make what is missing: what every verb does.

    Parameters
    ----------
    backend
        Not yet opened.
    table
        What the caller handed in.
    arguments
        Of the rows: constants, columns, or lists with a value for each row.
    given
        Run options.
    """
    options = Options.of(**given)
    rules = spending_rules(_settings(options))
    rules.of_run(options.max_credits)
    if options.max_answer_mb is not None:
        backend.max_answer_bytes = round(1e6 * options.max_answer_mb)
    async with contextlib.AsyncExitStack() as stack:
        opened = await backend.open()
        stack.push_async_callback(backend.close)
        given_table = partial(_open, table, backend, arguments, options)
        prepared = await _in_thread(
            lambda is_stopped: prepare(
                given_table(), arguments, backend, opened, options, is_stopped=is_stopped
            )
        )
        return await _carry_out(prepared, backend, opened, options, stack)


async def run(backend: Backend, table: Any, **options: Any) -> Run:
    """Make a call of a backend for every row of a table, and keep what comes of them.

    Parameters
    ----------
    backend
        Says how a row becomes a call; see :class:`Backend`.
    table
        As :func:`speechframe.generate` takes it. Each row is handed to :meth:`Backend.check` with its
        columns.
    **options
        See :class:`RunOptions`.

    Raises
    ------
    InvalidRows
        Before anything is sent, when rows cannot be.
    RunMismatch, RunLocked, StoreError
        When the folder cannot take this run.

    Examples
    --------
    >>> run = spf.run(MyBackend(), frame, run_dir="runs/mine", max_credits=500)  # doctest: +SKIP
    """
    return await make(backend, table, {}, options)


async def resume(
    run: Run | str | PathLike[str],
    table: Any = None,
    *,
    redo: str | Sequence[Any] | None = None,
    backend: Backend | None = None,
    **given: Any,
) -> Run:
    """Go on with a run and return it: what is missing is made, what is there is kept.

    All parameters come from the run's folder, its budget too: after a stop by ``max_credits`` give a higher
    one (``float("inf")`` for none). Failed rows are tried again.

    Parameters
    ----------
    run
        A run or its folder.
    table
        A new table for the run: rows whose text or parameters changed and new rows are made, unchanged ones
        cost nothing, rows that are gone leave the table but never the disk.
    redo
        Rows to make another take of: a list of row ids, a status such as ``"suspect"``, or ``"rejected"``:
        rows that a review rejected, unless they were made anew since. Earlier takes stay on disk; calling the
        verb itself again chooses its own take back. (Failed rows need no redo.)
    backend
        Of a run that :func:`run` made; verbs find their own.
    **given
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
    if redo is not None and table is not None:
        raise InvalidRows(
            [problem("redo", "is for the run's own table", allowed="redo= or table=, one at a time")]
        )
    _refuse_idle(given, has_table=table is not None)
    folder, backend, sources, options = _opened_run(run, backend, given)
    manifest = read_manifest(folder)
    if options.max_credits is None:
        options = replace(options, max_credits=manifest.max_credits)
    spending_rules(_settings(options)).of_run(options.max_credits)
    async with contextlib.AsyncExitStack() as stack:
        opened = await backend.open()
        stack.push_async_callback(backend.close)
        check_same(folder, manifest, backend)
        if table is not None:
            make_table = partial(_open, table, backend, sources, options)
            prepared = await _in_thread(
                lambda is_stopped: prepare(
                    make_table(), {}, backend, opened, options, sources=sources, is_stopped=is_stopped
                )
            )
        else:
            takes = {} if redo is None else await asyncio.to_thread(_new_takes, folder, redo, opened)
            prepared = await asyncio.to_thread(reopen, folder, backend, takes)
            if manifest.state == "planned" and prepared.entry.invalid and options.on_invalid == "raise":
                prepared.unlock.close()
                words = f"{prepared.entry.invalid:,} rows cannot be sent"
                raise InvalidRows([problem("table", words, allowed='on_invalid="skip" leaves them out')])
        return await _carry_out(prepared, backend, opened, options, stack)


async def changes(
    run: Run | str | PathLike[str], table: Any, *, backend: Backend | None = None, **given: Any
) -> Changes:
    """Return how `table` differs from a run's table, and what the difference would cost; sends nothing.

    Parameters
    ----------
    run
        A run or its folder.
    table
        The table that would be given to :func:`resume`.
    backend
        As for :func:`resume`.
    **given
        ``id``, ``service`` and ``on_invalid``; see :class:`RunOptions`.

    Raises
    ------
    InvalidRows
        When rows of the table cannot be sent.
    NotARun, RunMismatch, StoreError
        When the folder holds no run, one of another service, verb or version, or cannot be read.
    """
    folder, backend, sources, options = _opened_run(run, backend, given)
    options = replace(options, dry_run=True)
    async with contextlib.AsyncExitStack() as stack:
        opened = await backend.open()
        stack.push_async_callback(backend.close)
        make_table = partial(_open, table, backend, sources, options)
        found: Changes = await _in_thread(
            lambda is_stopped: _compare(folder, make_table(), backend, opened, options, sources, is_stopped)
        )
        return found


# -- from what the caller gave to a planned run ------------------------------------------


class _RunTable:
    """The rows of a run as the table of another."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def as_table(self, named: Iterable[str], batch_rows: int | None) -> Table:
        """Return the rows with their ids."""
        schema, batches = self._rows.as_batches(named, batch_rows)
        with_ids = (batch.append_column(ROW_ID, pa.array(ids, pa.string())) for batch, ids in batches)
        return Table(schema, with_ids, ids=ROW_ID)


def _open(table: Any, backend: Backend, arguments: Mapping[str, Any], options: Options) -> Table:
    """Return the caller's table; a run, its folder or a list of runs is one too."""
    source = backend.source(table)
    if isinstance(source, str | PathLike) and open_folder(source).exists(FILE):
        source = Run.open(source)
    if isinstance(source, Rows):
        source = _RunTable(source)
    elif isinstance(source, list) and source and all(isinstance(one, Rows) for one in source):
        source = [_RunTable(one) for one in source]
    columns = {name: _column_of(value, name in backend.data_arguments) for name, value in arguments.items()}
    found: Table = open_table(
        source,
        id=options.id,
        plain=next(iter(backend.data_arguments), "text"),
        carry=frozenset(column for name, column in columns.items() if column and name in backend.carried),
        named={column for column in columns.values() if column},
        sep=options.sep,
        quoting=options.quoting,
    )
    return found


def _column_of(value: Any, is_data: bool) -> str | None:  # noqa: FBT001 - of one argument
    """Return the column that an argument names, if it names one."""
    if isinstance(value, Column):
        return value.name
    if isinstance(value, Source):
        return value.column
    return value if is_data and isinstance(value, str) else None


def _opened_run(
    run: Run | str | PathLike[str], backend: Backend | None, given: Mapping[str, Any]
) -> tuple[Folder, Backend, dict[str, Source], Options]:
    """Return a run's folder, its backend (not yet opened), its arguments, and the options in force."""
    folder = run.folder if isinstance(run, StoredRun) else open_folder(run)
    manifest = read_manifest(folder)
    options = Options.of(**given)
    given_dir: Any = folder  # which knows its own filesystem
    options = replace(options, run_dir=given_dir, id=options.id or manifest.table.id_column)
    sources = {name: Source.from_json(name, kept) for name, kept in manifest.table.arguments.items()}
    constants = {name: source.constant for name, source in sources.items() if source.column is None}
    if backend is None:
        if manifest.operation not in MAKERS:
            raise RunMismatch(
                f"{folder.path} holds a {manifest.operation} run, which needs its backend: "
                "resume(run, backend=...)"
            )
        backend = MAKERS[manifest.operation](options.service, constants)
    return folder, backend, sources, options


def _refuse_idle(given: Mapping[str, Any], *, has_table: bool) -> None:
    """Raise SettingsError for an option that a resume has no use for."""
    instead = {
        "run_dir": "a run goes on in its own folder",
        "take": "the takes are the run's own; redo= makes another one of some rows",
    }
    if not has_table:
        instead["id"] = "rows are named when a table is given"
    for name, words in instead.items():
        if given.get(name) is not None:
            raise SettingsError(f"resume() takes no {name}: {words}")


def _new_takes(folder: Folder, redo: str | Sequence[Any], opened: Opened) -> dict[str, int]:
    """Return the next take of each row that is to be made anew."""
    if not opened.takes:
        words = "makes other takes, which this service does not offer: they would be the same, billed again"
        raise InvalidRows([problem("redo", words)])
    stored = StoredRun(folder)
    names = [stored.name_of(name) for name in ("row_id", "status", "take")]
    rows = [
        row
        for batch in stored.batches(names, audio=False)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    shown = {str(row_id): take or 0 for row_id, _, take in rows}
    if redo == "rejected":
        said = stored.reviews
        wanted = set(said.loc[(said["verdict"] == REJECT) & said["is_current"], "row_id"])
    elif isinstance(redo, str):
        if redo not in REDO_STATUSES:
            allowed = f"{', '.join(REDO_STATUSES)}, or a list of row ids"
            raise InvalidRows([problem("redo", "is no status", value=redo, allowed=allowed)])
        wanted = {str(row_id) for row_id, status, _ in rows if status == redo}
    else:
        wanted = {str(row_id) for row_id in redo}
        if unknown := sorted(wanted - shown.keys()):
            raise InvalidRows(
                [problem("redo", "names no row of the run", value=row_id) for row_id in unknown]
            )
    table = pq.read_table(folder.source(stored.manifest.table.file), columns=[ROW_ID, BASE_KEY])
    made = set(map(bytes, as_keys(stored.snapshot().index.packed({*FINISHED, FAILED, CHARGED_UNKNOWN}))))
    takes = {}
    for row_id, base_key in zip(*(column.to_pylist() for column in table.columns), strict=True):
        if row_id in wanted and base_key is not None:
            take = shown[row_id] + 1
            while bytes.fromhex(call_key(base_key, take)) in made:
                take += 1
            takes[row_id] = take
    return takes


# -- what is missing, and what it costs ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Due:
    """A row's call that may have been billed: what its last attempt noted, and the pack it was sent in."""

    noted: bytes | None
    pack: str | None


@dataclass(frozen=True)
class _Missing:
    """What a run has still to make.

    Attributes
    ----------
    plan
        Its calls.
    due
        By key, calls that may have been billed and whose repeat is free.
    cached
        Rows whose answer the cache has.
    estimate
        The same for people.
    """

    plan: Plan
    due: "Mapping[str, _Due]"
    cached: Mask
    estimate: Estimate


def _missing(
    prepared: Prepared,
    backend: Backend,
    opened: Opened,
    options: Options,
    cache: Cache | None,
) -> _Missing:
    """Find out which calls of a table have no outcome yet."""
    folder, keys = prepared.folder, prepared.keys
    finished = as_keys(read_snapshot(folder).index.packed(FINISHED))
    failures = parts.failures(folder)
    unknown = {key: row for key, row in failures.items() if row["status"] == CHARGED_UNKNOWN}
    until = time.time() - REPEAT_MARGIN * opened.repeats_free_s
    same_key = prepared.manifest.key_fingerprint == opened.key_fingerprint
    due = {
        key: _Due(None if row[NOTED] is None else bytes.fromhex(row[NOTED]), row[PACK])
        for key, row in unknown.items()
        if row[NOTED] is not None or (same_key and row["finished_at"].timestamp() > until)
    }
    stays = [] if options.on_unknown == "retry" else [key for key in unknown if key not in due]
    known = np.concatenate([finished, as_keys_of(stays)])
    plan = plan_calls(folder, prepared.entry.file, keys, prepared.prices, ended=known, free=as_keys_of(due))
    cached = np.zeros(len(keys), dtype=bool)
    if cache is not None and plan.calls:
        cached[plan.todo] = cache.has([bytes(key).hex() for key in keys[plan.todo]])
    plan = replace(plan, todo=plan.todo & ~cached, free=plan.free & ~cached)
    first = first_of_each(keys)
    limit = _limit_of(options)
    found = prepared.spooled
    is_done, is_kept = among(keys, finished), among(keys, as_keys_of(stays))
    estimate = Estimate(
        rows=prepared.entry.rows,
        unique=int(first.sum()),
        finished=int((first & is_done).sum()),
        invalid=prepared.entry.invalid,
        calls=plan.calls,
        credits=plan.price / 1000,
        balance=opened.balance,
        concurrency=sum(lane.published or 0 for lane in opened.lanes if not lane.is_fallback) or None,
        identical_retakes=0 if found is None else found.identical_retakes,
        cached=int(cached.sum()),
        budget=None if limit is None else max(0, limit - sum(parts.spent_by_month(folder).values())) / 1000,
        amount=backend.describe(plan.price) if plan.calls else None,
        unit=backend.unit,
        remark=backend.remark,
        unknown=int((first & is_kept & ~is_done).sum()),
        paid=int(plan.free.sum()),
    )
    return _Missing(plan, due, cached, estimate)


def _limit_of(options: Options) -> int | None:
    """Return the run's limit in thousandths of a credit; None without one."""
    credits = spending_rules(_settings(options)).of_run(options.max_credits)
    return None if credits is None or math.isinf(credits) else _thousandths(credits)


def _thousandths(credits: float) -> int:
    # Never more than was allowed; but 1.001 is 1000.9999999999999 thousandths to a computer.
    return math.floor(round(credits * 1000, 6))


# -- the run itself ---------------------------------------------------------------------


async def _carry_out(
    prepared: Prepared, backend: Backend, opened: Opened, options: Options, stack: contextlib.AsyncExitStack
) -> Run:
    """Return a planned run as it is asked for: only planned, live, or at its end."""
    stack.callback(prepared.unlock.close)
    found = Run(prepared.folder, problems=[] if prepared.spooled is None else prepared.spooled.problems)
    cache = _cache(options)
    if options.dry_run:
        missing = await asyncio.to_thread(_missing, prepared, backend, opened, options, cache)
        found.estimate = missing.estimate
        if prepared.manifest.state == "planned" and options.max_credits is not None:
            prepared.manifest.max_credits = options.max_credits
            prepared.manifest.write(prepared.folder)
        line = f"{backend.operation} on {backend.service}: {missing.estimate.line()}"
        Progress.say(f"{line} (dry run: nothing was sent)", options.progress)
        return found
    going = _Going(prepared, backend, opened, options, cache, found)
    await going.start()
    # From here on the run closes what it uses, whoever waits for it.
    held = stack.pop_all()
    task = asyncio.create_task(going.drive(held), name=f"speechframe-run-{prepared.manifest.run_id}")
    found.attach(going.live, task)
    return await found.hand_over()


class _Going:
    """A run that goes on: its engine, its budget, and whoever follows it.

    Attributes
    ----------
    live
        For :class:`Run`.
    error
        What the caller of the verb is to see raised, once everything is kept.
    """

    def __init__(
        self,
        prepared: Prepared,
        backend: Backend,
        opened: Opened,
        options: Options,
        cache: Cache | None,
        run: Run,
    ) -> None:
        self._prepared, self._backend, self._opened = prepared, backend, opened
        self._options, self._cache, self._run = options, cache, run
        self._manifest, self._folder = prepared.manifest, prepared.folder
        self._engine: Engine | None = None
        self._stopped: tuple[bool, StopReason] | None = None
        self._wanted: Mask | None = None
        self.error: SpeechframeError | None = None

    async def start(self) -> None:
        """Recover what an earlier process left, plan, and say what the run will do."""
        manifest, folder, options = self._manifest, self._folder, self._options
        header = _header(manifest, options, self._opened)
        self._log, self._missing = await asyncio.to_thread(self._recover_and_plan, header)
        manifest.state, manifest.stopped_because, manifest.stopped_words = "running", None, None
        manifest.max_credits = options.max_credits
        await asyncio.to_thread(manifest.write, folder)
        estimate = self._run.estimate = self._missing.estimate
        line = f"{self._backend.operation} on {self._backend.service}: {estimate.line()}"
        self._progress = Progress(
            self._backend.unit, estimate.calls + estimate.cached, options.progress, line
        )
        self.live = Live(stop=self.stop, progress=self._progress, options=options)
        for note in [] if self._prepared.spooled is None else self._prepared.spooled.notes:
            self._progress.note(note)
        self._budget = await asyncio.to_thread(self._open_budget)

    def _recover_and_plan(self, header: Row) -> tuple[Journal, _Missing]:
        folder = self._folder
        recovered = Journal(folder, parts.next_number(folder), header)
        parts.recover(folder, self._backend.columns, recovered, time.time())
        # What was recovered becomes a part before the run is planned: one way to read what has an outcome.
        parts.cut(folder, recovered.close(), self._backend.columns)
        missing = _missing(self._prepared, self._backend, self._opened, self._options, self._cache)
        return Journal(folder, parts.next_number(folder), header), missing

    def _open_budget(self) -> Budget:
        rules, limit = spending_rules(_settings(self._options)), _limit_of(self._options)
        if limit is None and rules.max_credits_per_month is None:
            return Budget(None, 0)
        spent = parts.spent_by_month(self._folder)
        month = None
        if rules.max_credits_per_month is not None:
            month = Month(
                rules.ledger,
                self._account,
                self._manifest.run_id,
                limit=_thousandths(rules.max_credits_per_month),
                spent=spent,
                rule_from=rules.month_rule_from,
            )
        return Budget(limit, sum(spent.values()), month)

    @property
    def _account(self) -> str:
        return f"{self._manifest.service}/{self._opened.key_fingerprint}"

    def _close_budget(self) -> None:
        """Let the month's count say what the run has spent, with or without a limit."""
        self._budget.close()
        rules = spending_rules(_settings(self._options))
        if rules.max_credits_per_month is None and not self._opened.is_local:
            try:
                spent = parts.spent_by_month(self._folder)
                MonthFile(rules.ledger, self._account, self._manifest.run_id).correct(spent)
            except SpeechframeError as error:
                log.warning("this run is missing in the month's count: %s", error)

    def stop(self, drain: bool, reason: StopReason) -> None:  # noqa: FBT001 - `Live` hands both on
        """Send no more calls; those under way end, or are cancelled."""
        self._stopped = (drain, reason)
        if self._engine is not None:
            self._engine.stop(drain=drain, reason=reason)

    async def drive(self, held: contextlib.AsyncExitStack) -> None:
        """Make the calls, and let the run end in good order whatever happens."""
        error: BaseException | None = None
        try:
            async with held:
                await self._make()
        except BaseException as caught:
            error = caught
            raise
        finally:
            self._progress.close("" if self.live.stopped_by is None else str(self.live.stopped_by))
            self.live.close(error or self.error)

    async def _make(self) -> None:
        options, missing = self._options, self._missing
        lanes = Lanes(self._opened.lanes, max_concurrency=options.max_concurrency, folder=shared_folder())
        queue = Queue(self._calls(), self._budget, self._only_free)
        policy = Policy(
            max_attempts=options.max_attempts,
            patience_s=options.patience_s,
            timeout_s=options.timeout_s,
            repeats_are_free=self._opened.repeats_free_s > 0,
            retries_unknown=options.on_unknown == "retry",
            max_retakes=options.max_retakes,
        )
        self._engine = Engine(
            self._backend,
            queue,
            lanes,
            self._budget,
            policy,
            folder=self._folder,
            log=self._log,
            run_id=self._manifest.run_id,
            takes=self._opened.takes,
            cache=self._cache,
            judges=options.truth_checks,
            raises=options.on_error == "raise",
            tell=self._tell,
            progress=self._progress,
        )
        if self._stopped is not None:
            self.stop(*self._stopped)
        try:
            if self._cache is not None and missing.cached.any():
                await asyncio.to_thread(self._take_from_cache, self._cache)
            await self._engine.run()
            await self._backend.after(self._run, lambda: queue.stopped is not None)
        except BaseException:
            self._end("stopped", StopReason.FAILED, None)
            raise
        finally:
            lanes.close()
            await asyncio.to_thread(self._close_budget)
        self._end("finished" if queue.stopped is None else "stopped", queue.stopped, queue.stopped_by)

    def _end(self, state: str, reason: StopReason | None, error: SpeechframeError | None) -> None:
        manifest = self._manifest
        manifest.state = state
        manifest.stopped_because = None if reason is None else reason.value
        manifest.stopped_words = None if error is None else str(error)
        self.live.stopped_by = error
        if reason is StopReason.FAILED and self._options.on_error == "raise":
            self.error = error
        with contextlib.suppress(SpeechframeError):  # whatever ended the run says more
            manifest.write(self._folder)

    def _only_free(self) -> None:
        self._wanted = self._missing.plan.free

    def _calls(self) -> Iterator[Call]:
        """Yield the calls to make: first those that were sent before, as they were, then all others."""
        plan, due = self._missing.plan, self._missing.due
        packs: dict[str, list[str]] = {}
        for key, call in due.items():
            if call.pack is not None:
                packs.setdefault(call.pack, []).append(key)
        in_packs = plan.todo & among(plan.keys, as_keys_of(key for keys in packs.values() for key in keys))
        again = {request.key: request for request in plan.requests(in_packs)} if packs else {}
        for pack, keys in packs.items():
            rows = [again[key] for key in keys if key in again]
            for request in self._backend.pack(iter(rows)):
                # Only the very same call is free once more; otherwise its rows stay as they are.
                if request.key == pack:
                    yield Call(request, is_paid=True, counted=True, is_unknown=True)
        for request in self._backend.pack(plan.requests(plan.todo & ~in_packs, only=lambda: self._wanted)):
            known = due.get(request.key)
            is_due = known is not None
            noted = None if known is None else known.noted
            yield Call(request, is_paid=is_due, counted=is_due, is_unknown=is_due, noted=noted)

    def _take_from_cache(self, cache: Cache) -> None:
        """Keep the answers that other runs have paid for; a damaged one is made like any other."""
        missing = self._missing
        places = np.flatnonzero(missing.cached)
        for place, request in zip(places, missing.plan.requests(missing.cached), strict=True):
            found = cache.get(request.key)
            if found is None:
                missing.plan.todo[place] = True
                continue
            row, audio = found
            row |= {
                "request_key": request.key,
                "status": "cached",
                "credits": 0.0,
                "attempts": 0,
                "finished_at": time.time(),
            }
            self._log.kept(row, audio)
            self._tell(Outcome(request.row_id, request.key, "cached", 0, row.get("audio_seconds")), (), None)

    def _tell(self, ended: Outcome, warnings: Sequence[str], balance: int | None) -> None:
        if balance is not None:
            self._progress.balance = balance
        self.live.outcome(ended)
        for words in warnings:
            self._progress.warn(warning_kind(words), words)


def _header(manifest: Any, options: Options, opened: Opened) -> Row:
    """Return what the ledger says of every attempt of this process."""
    tags = {name: str(value) for name, value in options.tags.items() if not hasattr(value, "name")}
    return {
        "run_id": manifest.run_id,
        "operation": manifest.operation,
        "service": manifest.service,
        "key_fingerprint": opened.key_fingerprint,
        "user": getpass.getuser(),
        "host": socket.gethostname(),
        "tags": tags,
    }


def _settings(options: Options) -> Settings:
    return options.service if isinstance(options.service, Settings) else Settings()


def _cache(options: Options) -> Cache | None:
    """Return the cache that a run uses, if any."""
    rules = cache_rules(_settings(options))
    if options.cache is False or (options.cache is None and rules["folder"] is None):
        return None
    folder = rules["folder"] if options.cache in {None, True} else options.cache
    return open_cache(folder, max_gb=rules["max_gb"], max_age_days=rules["max_age_days"])


async def _in_thread(function: Any) -> Any:
    """Run a function in a thread; it asks ``is_stopped()``, which is true once this is cancelled."""
    told = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(function, told.is_set))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        told.set()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None and isinstance(found := task.result(), Prepared):
            found.unlock.close()
        raise


def _compare(
    folder: Folder,
    table: Table,
    backend: Backend,
    opened: Opened,
    options: Options,
    sources: Mapping[str, Source],
    is_stopped: Any,
) -> Changes:
    old_file = folder.source(read_manifest(folder).table.file)
    prepared = prepare(table, {}, backend, opened, options, sources=sources, is_stopped=is_stopped)
    with prepared.unlock:
        if prepared.spooled is not None:
            prepared.spooled.refuse(leaves_out=options.on_invalid == "skip")
        missing = _missing(prepared, backend, opened, options, None)
        new_file = prepared.table_folder.source(prepared.entry.file)
        old, new = _base_keys(old_file), _base_keys(new_file)
        changed = [row_id for row_id, key in new.items() if row_id in old and old[row_id] != key]
        before, after = _bodies(old_file, set(changed)), _bodies(new_file, set(changed))
    return Changes(
        new=tuple(row_id for row_id in new if row_id not in old),
        changed=tuple(changed),
        removed=tuple(row_id for row_id in old if row_id not in new),
        unchanged=tuple(row_id for row_id, key in new.items() if row_id in old and old[row_id] == key),
        columns={row_id: backend.differences(before[row_id], after[row_id]) for row_id in changed},
        credits=missing.estimate.credits,
    )


def _base_keys(file: Any) -> dict[str, str | None]:
    """Return the base key of each row of an input file."""
    table = pq.read_table(file, columns=[ROW_ID, BASE_KEY])
    return dict(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _bodies(file: Any, wanted: set[str]) -> dict[str, bytes]:
    """Return what would be sent for some rows of an input file."""
    if not wanted:
        return {}
    table = pq.read_table(file, columns=[ROW_ID, REQUEST])
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {row_id: (written or b"").partition(b"\n")[2] for row_id, written in rows if row_id in wanted}
