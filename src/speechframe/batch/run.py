"""Runs: made, gone on with, and compared with another table.

::

    make, resume -> prepare (checked, written down) -> plan (what is missing) -> engine -> the run's end
"""

import asyncio
import contextlib
import itertools
import math
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from speechframe.batch.backend import MAKERS, Backend, Opened
from speechframe.batch.budget import Budget
from speechframe.batch.engine import Engine
from speechframe.batch.estimate import Changes
from speechframe.batch.lanes import Lanes
from speechframe.batch.live import Live, Run
from speechframe.batch.options import Options
from speechframe.batch.plan import Mask, Plan, among, as_keys_of, plan
from speechframe.batch.prepare import Prepared, check_same, prepare, reopen
from speechframe.batch.progress import Outcome, Progress
from speechframe.batch.queue import Call, Queue
from speechframe.errors import InvalidRows, RunMismatch, SettingsError, SpeechframeError
from speechframe.settings import Settings
from speechframe.settings.rules import cache_rules, spending_rules
from speechframe.slots import shared_folder
from speechframe.store import parts
from speechframe.store.cache import Cache, open_cache
from speechframe.store.folder import RUN_FILE as FILE
from speechframe.store.folder import Folder, read_manifest, user_name
from speechframe.store.journal import Journal
from speechframe.store.month import MonthFile
from speechframe.store.reader import StoredRun
from speechframe.store.records import spent_by_month
from speechframe.store.remote import open_folder
from speechframe.store.reviews import REJECT
from speechframe.store.schema import (
    BASE_KEY,
    CHARGED_UNKNOWN,
    FAILED,
    FINISHED,
    KEY_BYTES,
    NOTED,
    PACK,
    REQUEST,
    ROW_ID,
    StopReason,
    call_key,
)
from speechframe.tables.columns import Source, column_of, problem
from speechframe.tables.table_input import Table, open_table

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
    spending_rules(_settings(options)).of_run(options.max_credits)
    if options.max_answer_mb is not None:
        backend.max_answer_bytes = round(1e6 * options.max_answer_mb)
    async with contextlib.AsyncExitStack() as stack:
        opened = await _open_backend(backend, stack)
        sources = {**arguments, "take": options.take}
        prepared = await _prepare(table, sources, backend, opened, options, is_resumed=False)
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
        opened = await _open_backend(backend, stack)
        check_same(folder, manifest, backend)
        if table is not None:
            prepared = await _prepare(table, sources, backend, opened, options, is_resumed=True)
        else:
            takes = {} if redo is None else await asyncio.to_thread(_new_takes, folder, redo, opened)
            prepared = await asyncio.to_thread(reopen, folder, backend, takes)
            invalid = prepared.table.entry.invalid
            if manifest.state == "planned" and invalid and options.on_invalid == "raise":
                prepared.unlock.close()
                words = f"{invalid:,} rows cannot be sent"
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
    async with contextlib.AsyncExitStack() as stack:
        opened = await _open_backend(backend, stack)
        looks = replace(options, dry_run=True)
        prepared = await _prepare(table, sources, backend, opened, looks, is_resumed=True)
        stack.callback(prepared.unlock.close)
        if options.on_invalid == "raise" and prepared.problems:
            raise InvalidRows(prepared.problems, total=prepared.problem_count)
        return await asyncio.to_thread(_compare, folder, prepared, backend, opened, options)


# -- from what the caller gave to a planned run ------------------------------------------


async def _open_backend(backend: Backend, stack: contextlib.AsyncExitStack) -> Opened:
    opened = await backend.open()
    stack.push_async_callback(backend.close)
    return opened


async def _prepare(
    table: Any,
    sources: Mapping[str, Any],
    backend: Backend,
    opened: Opened,
    options: Options,
    *,
    is_resumed: bool,
) -> Prepared:
    """Check a table in a thread, and give the lock back where this is cancelled meanwhile."""
    told = threading.Event()

    def prepared() -> Prepared:
        found = _open_table(table, backend, sources, options)
        return prepare(
            found, sources, backend, opened, options, is_resumed=is_resumed, is_stopped=told.is_set
        )

    task = asyncio.ensure_future(asyncio.to_thread(prepared))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        told.set()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            task.result().unlock.close()
        raise


def _open_table(table: Any, backend: Backend, arguments: Mapping[str, Any], options: Options) -> Table:
    """Return the caller's table; a run, its folder or a list of runs is one too."""
    source = backend.source(table)
    if isinstance(source, str | PathLike) and open_folder(source).exists(FILE):
        source = Run.open(source)
    columns = {}
    for name, value in arguments.items():
        if column := column_of(value, is_data=name in backend.data_arguments):
            columns[name] = column
    return open_table(
        source,
        id=options.id,
        plain=next(iter(backend.data_arguments), "text"),
        carry=frozenset(column for name, column in columns.items() if name in backend.carried),
        named=set(columns.values()),
        sep=options.sep,
        quoting=options.quoting,
    )


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
    if backend is None:
        if manifest.operation not in MAKERS:
            raise RunMismatch(
                f"{folder.path} holds a {manifest.operation} run, which needs its backend: "
                "resume(run, backend=...)"
            )
        constants = {name: source.constant for name, source in sources.items() if source.column is None}
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
    rows = [tuple(row.values()) for batch in stored.batches(names, audio=False) for row in batch.to_pylist()]
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
    packed = stored.snapshot().index.packed({*FINISHED, FAILED, CHARGED_UNKNOWN})
    made = {packed[start : start + KEY_BYTES].hex() for start in range(0, len(packed), KEY_BYTES)}
    takes = {}
    for row_id, base_key in _columns_of(folder.source(stored.manifest.table.file), BASE_KEY):
        if row_id in wanted and base_key is not None:
            takes[row_id] = next(
                n for n in itertools.count(shown[row_id] + 1) if call_key(base_key, n) not in made
            )
    return takes


def _columns_of(file: Any, *names: str) -> Iterator[tuple[Any, ...]]:
    """Return row id and some columns of each row of an input file."""
    table = pq.read_table(file, columns=[ROW_ID, *names])
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _compare(
    folder: Folder, prepared: Prepared, backend: Backend, opened: Opened, options: Options
) -> Changes:
    old_file = folder.source(prepared.manifest.table.file)
    new_file = prepared.table.folder.source(prepared.table.entry.file)
    old, new = (dict(_columns_of(file, BASE_KEY)) for file in (old_file, new_file))
    changed = [row_id for row_id, key in new.items() if row_id in old and old[row_id] != key]
    before, after = (
        {row_id: (written or b"").partition(b"\n")[2] for row_id, written in _columns_of(file, REQUEST)}
        for file in (old_file, new_file)
    )
    found = plan(folder, prepared.manifest, prepared.table, backend, opened, options, None, None)
    return Changes(
        new=tuple(row_id for row_id in new if row_id not in old),
        changed=tuple(changed),
        removed=tuple(row_id for row_id in old if row_id not in new),
        unchanged=tuple(row_id for row_id, key in new.items() if row_id in old and old[row_id] == key),
        columns={row_id: backend.differences(before[row_id], after[row_id]) for row_id in changed},
        credits=found.estimate.credits,
    )


# -- the run itself ---------------------------------------------------------------------


async def _carry_out(
    prepared: Prepared, backend: Backend, opened: Opened, options: Options, stack: contextlib.AsyncExitStack
) -> Run:
    """Return a planned run as it is asked for: only planned, live, or at its end."""
    stack.callback(prepared.unlock.close)
    going = _Going(prepared, backend, opened, options)
    if options.dry_run:
        await asyncio.to_thread(going.plan)
        manifest = prepared.manifest
        if manifest.state == "planned" and options.max_credits is not None:
            manifest.max_credits = options.max_credits
            manifest.write(prepared.folder)
        Progress.say(f"{going.line} (dry run: nothing was sent)", options.progress)
        return going.run
    await going.start()
    # From here on the run closes what it uses, whoever waits for it.
    held = stack.pop_all()
    task = asyncio.create_task(going.drive(held), name=f"speechframe-run-{prepared.manifest.run_id}")
    going.run.attach(going.live, task)
    return await going.run.hand_over()


class _Going:
    """A run that goes on: its plan, its budget, its engine, and whoever follows it."""

    def __init__(self, prepared: Prepared, backend: Backend, opened: Opened, options: Options) -> None:
        self._prepared, self._backend, self._opened, self._options = prepared, backend, opened, options
        self._manifest, self._folder = prepared.manifest, prepared.folder
        self._rules, self._cache = spending_rules(_settings(options)), _cache(options)
        limit = self._rules.of_run(options.max_credits)
        self._limit = None if limit is None or math.isinf(limit) else _thousandths(limit)
        self._engine: Engine | None = None
        self._stopped: tuple[bool, StopReason] | None = None
        self._wanted: Mask | None = None  # rows that are still to be sent; None: all of the plan
        self._error: SpeechframeError | None = None  # what the caller of the verb is to see raised at the end
        self.run = Run(prepared.folder, problems=prepared.problems)

    @property
    def line(self) -> str:
        """What the run will do, in one line."""
        return f"{self._backend.operation} on {self._backend.service}: {self._plan.estimate.line()}"

    def plan(self) -> None:
        """Find out what is to be made."""
        self._plan: Plan = plan(
            self._folder,
            self._manifest,
            self._prepared.table,
            self._backend,
            self._opened,
            self._options,
            self._cache,
            self._limit,
        )
        self.run.estimate = self._plan.estimate

    async def start(self) -> None:
        """Recover what an earlier process left, plan, and say what the run will do."""
        manifest, options = self._manifest, self._options
        self._log = await asyncio.to_thread(self._recover_and_plan)
        manifest.state, manifest.stopped_because, manifest.stopped_words = "running", None, None
        manifest.max_credits = options.max_credits
        await asyncio.to_thread(manifest.write, self._folder)
        estimate = self._plan.estimate
        self._progress = Progress(
            self._backend.unit, estimate.calls + estimate.cached, options.progress, self.line
        )
        self.live = Live(stop=self.stop, progress=self._progress, options=options)
        for note in self._prepared.notes:
            self._progress.note(note)
        self._budget = await asyncio.to_thread(self._open_budget)

    def _recover_and_plan(self) -> Journal:
        folder, columns = self._folder, self._backend.columns
        tags = {name: str(tag) for name, tag in self._options.tags.items() if not hasattr(tag, "name")}
        header = {  # what the ledger says of every attempt of this process
            "run_id": self._manifest.run_id,
            "operation": self._manifest.operation,
            "service": self._manifest.service,
            "key_fingerprint": self._opened.key_fingerprint,
            "user": user_name(),
            "host": socket.gethostname(),
            "tags": tags,
        }
        recovered = Journal(folder, parts.next_number(folder), header)
        parts.recover(folder, columns, recovered, time.time())
        # What was recovered becomes a part before the run is planned: one way to read what has an outcome.
        parts.cut(folder, recovered.close(), columns)
        self.plan()
        return Journal(folder, parts.next_number(folder), header)

    def _open_budget(self) -> Budget:
        rules = self._rules
        if self._limit is None and rules.max_credits_per_month is None:
            return Budget(None, 0)
        spent = spent_by_month(self._folder)
        month = None
        if rules.max_credits_per_month is not None:
            account = f"{self._manifest.service}/{self._opened.key_fingerprint}"
            month = MonthFile(rules.ledger, account, self._manifest.run_id)
            month.correct(spent)
        return Budget(
            self._limit,
            sum(spent.values()),
            month,
            month_limit=_thousandths(rules.max_credits_per_month or 0),
            month_rule_from=rules.month_rule_from,
        )

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
            self.live.close(error or self._error)

    async def _make(self) -> None:
        options = self._options
        lanes = Lanes(self._opened.lanes, max_concurrency=options.max_concurrency, folder=shared_folder())
        queue = Queue(self._calls(), self._budget, self._only_free)
        self._engine = Engine(
            self._backend,
            self._opened,
            queue,
            lanes,
            self._budget,
            folder=self._folder,
            log=self._log,
            run_id=self._manifest.run_id,
            cache=self._cache,
            live=self.live,
        )
        if self._stopped is not None:
            self.stop(*self._stopped)
        try:
            if self._cache is not None and self._plan.cached.any():
                await asyncio.to_thread(self._take_from_cache, self._cache)
            await self._engine.run()
            await self._backend.after(self.run, lambda: queue.stopped is not None)
        except BaseException:
            self._end(StopReason.FAILED, None)
            raise
        finally:
            lanes.close()
            await asyncio.to_thread(self._budget.close)
        self._end(queue.stopped, queue.stopped_by)

    def _end(self, reason: StopReason | None, error: SpeechframeError | None) -> None:
        manifest = self._manifest
        manifest.state = "finished" if reason is None else "stopped"
        manifest.stopped_because = None if reason is None else reason.value
        manifest.stopped_words = None if error is None else str(error)
        self.live.stopped_by = error
        if reason is StopReason.FAILED and self._options.on_error == "raise":
            self._error = error
        with contextlib.suppress(SpeechframeError):  # whatever ended the run says more
            manifest.write(self._folder)

    def _only_free(self) -> None:
        self._wanted = self._plan.free

    def _calls(self) -> Iterator[Call]:
        """Yield the calls to make: first those that were sent before, as they were, then all others."""
        plan, due = self._plan, self._plan.due
        packs: dict[str, list[str]] = {}
        for key, row in due.items():
            if row[PACK] is not None:
                packs.setdefault(row[PACK], []).append(key)
        keys_in_packs = as_keys_of(key for keys in packs.values() for key in keys)
        in_packs = plan.todo & among(plan.table.keys, keys_in_packs)
        again = {request.key: request for request in plan.requests(in_packs)} if packs else {}
        for pack, keys in packs.items():
            rows = [again[key] for key in keys if key in again]
            for request in self._backend.pack(iter(rows)):
                # Only the very same call is free once more; otherwise its rows stay as they are.
                if request.key == pack:
                    yield Call(request, is_unknown=True, is_paid=True)
        for request in self._backend.pack(plan.requests(plan.todo & ~in_packs, only=lambda: self._wanted)):
            if known := due.get(request.key):
                noted = None if known[NOTED] is None else bytes.fromhex(known[NOTED])
                yield Call(request, is_unknown=True, is_paid=True, noted=noted)
            else:
                yield Call(request)

    def _take_from_cache(self, cache: Cache) -> None:
        """Keep the answers that other runs have paid for; a damaged one is made like any other."""
        plan = self._plan
        places = np.flatnonzero(plan.cached)
        for place, request in zip(places, plan.requests(plan.cached), strict=True):
            found = cache.get(request.key)
            if found is None:
                plan.todo[place] = True
                continue
            row, audio = found
            own = {"request_key": request.key, "status": "cached", "credits": 0.0, "attempts": 0}
            self._log.kept({**row, **own, "finished_at": time.time()}, audio)
            self.live.outcome(Outcome(request.row_id, request.key, "cached", 0, row.get("audio_seconds")))


def _settings(options: Options) -> Settings:
    return options.service if isinstance(options.service, Settings) else Settings()


def _thousandths(credits: float) -> int:
    # Never more than was allowed; but 1.001 is 1000.9999999999999 thousandths to a computer.
    return math.floor(round(credits * 1000, 6))


def _cache(options: Options) -> Cache | None:
    """Return the cache that a run uses, if any."""
    return open_cache(options.cache, **cache_rules(_settings(options)))
