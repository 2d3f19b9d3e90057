"""Runs: made, gone on with, and compared with another table."""

import asyncio
import contextlib
import logging
import math
import socket
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from speechframe._loop import INTERRUPT
from speechframe.batch.backend import MAKERS, Backend, Opened
from speechframe.batch.engine import Engine
from speechframe.batch.lanes import Lanes
from speechframe.batch.live import Live, Run
from speechframe.batch.options import Options
from speechframe.batch.plan import Changes, Plan, plan
from speechframe.batch.prepare import Prepared, prepare, reopen
from speechframe.batch.progress import Outcome, Progress, dashboard, is_notebook, say
from speechframe.batch.queue import Alert, Allowance, Budget, Queue
from speechframe.errors import InvalidRows, RunMismatch, SettingsError, SpeechframeError, StoreError
from speechframe.settings import Settings, default_ledger_folder
from speechframe.settings.spending import SpendingRules, cache_rules, spending_rules
from speechframe.slots import shared_folder
from speechframe.store import parts
from speechframe.store.budgets import COLUMNS as BUDGET_COLUMNS
from speechframe.store.budgets import Allotments, LedgerSums, spent_in
from speechframe.store.cache import Cache, open_cache
from speechframe.store.folder import Folder, read_manifest, storing, user_name
from speechframe.store.journal import Journal
from speechframe.store.ledger import Ledger
from speechframe.store.reader import StoredRun
from speechframe.store.records import all_attempts
from speechframe.store.remote import open_folder
from speechframe.store.schema import BASE_KEY, REQUEST, ROW_ID, StopReason
from speechframe.tables.columns import Column, Source, problem

T = TypeVar("T")
logger = logging.getLogger(__name__)

_Spending = tuple[SpendingRules, int | None]
"""The spending rules, and the thousandths of a credit that a run may spend; None for no limit."""
NOTHING_PAID = {"attempt": 0, "credits": 0.0, "credits_basis": "none", "computed": 0.0}
"""What the ledger says of an answer out of the cache."""


async def make(backend: Backend, table: Any, arguments: Mapping[str, Any], given: Mapping[str, Any]) -> Run:
    """Plan a table for a backend that is not open yet and make what is missing: what every verb does.

    `arguments` of the rows are constants, columns, or lists with a value a row; `given` are run options.
    """
    options = Options.of(**given)
    spending = _spending(options)
    async with contextlib.AsyncExitStack() as stack:
        opened = await _open_backend(backend, options, spending, stack)
        sources = {**arguments, "take": options.take}
        prepared = await _in_thread(
            lambda is_stopped: prepare(table, sources, backend, opened, options, stack, is_stopped)
        )
        return await _carry_out(prepared, backend, opened, options, spending, stack)


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

    All parameters come from the run's folder, its tags and its budget too: after a stop by ``max_credits``
    give a higher one (``float("inf")`` for none). Failed rows are tried again.

    Parameters
    ----------
    run
        A run or its folder.
    table
        A new table for the run: rows whose text or parameters changed and new rows are made, unchanged ones
        cost nothing and keep their take, rows that are gone leave the table but never the disk.
    redo
        Rows to make another take of: a list of row ids, a status such as ``"suspect"``, or ``"rejected"``:
        rows that a review rejected, unless they were made anew since. Earlier takes stay on disk; calling the
        verb itself again chooses its own take back. A good row whose further take would be the same keeps the
        one it has, at no cost. (Failed rows need no redo.)
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
    instead = {
        "run_dir": "a run goes on in its own folder",
        "take": "the takes are the run's own; redo= makes another one of some rows",
        "id": "rows are named when a table is given",
    }
    for name, words in instead.items():
        if given.get(name) is not None and not (name == "id" and table is not None):
            raise SettingsError(f"resume() takes no {name}: {words}")
    folder, backend, sources, options = _read_run(run, backend, given)
    spending = _spending(options)
    async with contextlib.AsyncExitStack() as stack:
        opened = await _open_backend(backend, options, spending, stack)
        if table is None:
            prepared = await _in_thread(lambda _: reopen(folder, backend, opened, redo, options, stack))
            invalid = prepared.entry.invalid
            if prepared.manifest.state == "planned" and invalid and options.on_invalid == "raise":
                words = f"{invalid:,} rows cannot be sent"
                raise InvalidRows([problem("table", words, allowed='on_invalid="skip" leaves them out')])
        else:
            prepared = await _in_thread(
                lambda is_stopped: prepare(
                    table, sources, backend, opened, options, stack, is_stopped, is_resumed=True
                )
            )
        return await _carry_out(prepared, backend, opened, options, spending, stack)


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
    folder, backend, sources, options = _read_run(run, backend, given)

    def compare(is_stopped: Callable[[], bool]) -> Changes:
        found = prepare(
            table, sources, backend, opened, options, stack, is_stopped, is_resumed=True, is_preview=True
        )
        places = (folder, found.manifest.table.file), (found.table_folder, found.entry.file)
        old, new = (_calls_by_row(place.source(file)) for place, file in places)
        changed = [row_id for row_id, (key, _) in new.items() if row_id in old and old[row_id][0] != key]
        return Changes(
            new=tuple(row_id for row_id in new if row_id not in old),
            changed=tuple(changed),
            removed=tuple(row_id for row_id in old if row_id not in new),
            unchanged=tuple(row_id for row_id, (key, _) in new.items() if old.get(row_id, ("",))[0] == key),
            columns={row_id: backend.differences(old[row_id][1], new[row_id][1]) for row_id in changed},
            credits=plan(found, backend, opened, options).estimate.credits,
        )

    async with contextlib.AsyncExitStack() as stack:
        opened = await _open_backend(backend, options, _spending(options), stack)
        return await _in_thread(compare)


def _calls_by_row(file: Any) -> dict[str, tuple[str | None, bytes]]:
    """Return key and body of each row's call in an input file, by row id; None and b"" without a call."""
    columns = pq.read_table(file, columns=[ROW_ID, BASE_KEY, REQUEST]).columns
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return {row_id: (key, (written or b"").partition(b"\n")[2]) for row_id, key, written in rows}


# -- from what the caller gave to a run that is ready ------------------------------------


async def _open_backend(
    backend: Backend, options: Options, spending: _Spending, stack: contextlib.AsyncExitStack
) -> Opened:
    if options.max_answer_mb is not None:
        backend.max_answer_bytes = round(1e6 * options.max_answer_mb)
    rules, limit = spending
    backend.is_budgeted = limit is not None or rules.max_credits_per_month is not None or bool(rules.budgets)
    opened = await backend.open()
    stack.push_async_callback(backend.close)
    return opened


async def _in_thread(function: Callable[[Callable[[], bool]], T]) -> T:
    """Run `function` in a thread and return its result; its argument says whether this task was cancelled.

    Even then the end of the function is waited for: it writes under a lock, which must not be freed before.
    """
    stopped, cancelled = threading.Event(), None
    task = asyncio.ensure_future(asyncio.to_thread(function, stopped.is_set))
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as order:
            stopped.set()
            cancelled = cancelled or order
    if cancelled is not None:
        await asyncio.gather(task, return_exceptions=True)  # or asyncio would log what it raised
        raise cancelled
    return task.result()


def _read_run(
    run: Run | str | PathLike[str], backend: Backend | None, given: Mapping[str, Any]
) -> tuple[Folder, Backend, dict[str, Source], Options]:
    """Return a run's folder, its backend (not yet opened), its arguments, and the options in force."""
    folder = run.folder if isinstance(run, StoredRun) else open_folder(run)
    manifest = read_manifest(folder)
    options = Options.of(**given)
    kept = {
        name: kept["constant"] if "constant" in kept else Column(kept["column"])
        for name, kept in manifest.tags.items()
    }
    given_dir: Any = folder  # which knows its own filesystem
    options = replace(
        options,
        run_dir=given_dir,
        id=options.id or manifest.table.id_column,
        max_credits=manifest.max_credits if options.max_credits is None else options.max_credits,
        tags={**kept, **options.tags},
    )
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


# -- the run itself ---------------------------------------------------------------------


async def _carry_out(
    prepared: Prepared,
    backend: Backend,
    opened: Opened,
    options: Options,
    spending: _Spending,
    stack: contextlib.AsyncExitStack,
) -> Run:
    """Return a run as it is asked for: only planned, live, or at its end."""
    folder, manifest = prepared.folder, prepared.manifest
    rules, limit = spending
    cache = None if backend.leaves_files else open_cache(options.cache, **cache_rules(_settings(options)))
    log, past = None, await _in_thread(lambda _: open_folder(rules.ledger))
    if not options.dry_run:
        # Before the run is planned, so that the plan finds every outcome of earlier processes in parts.
        ledger = await _in_thread(lambda _: _open_ledger(rules, prepared))
        log = await _in_thread(lambda _: _recover(prepared, backend, opened, options, stack, ledger))
    found = await _in_thread(lambda _: plan(prepared, backend, opened, options, cache, limit, past))
    line = f"{backend.operation} on {backend.service}: {found.estimate.line()}"
    if log is None:
        if manifest.state == "planned" and (options.max_credits is not None or options.tags):
            if options.max_credits is not None:
                manifest.max_credits = options.max_credits
            manifest.tags = _kept(options.tags) or manifest.tags
            manifest.write(folder)
        # A notebook shows the run, which says the same.
        shown = bool(options.progress) and not is_notebook()
        say(f"{line} (dry run: nothing was sent)", shown=shown)
        return Run(folder, estimate=found.estimate, problems=prepared.problems)
    tags = _constant(options.tags)
    budget, update_budget = await _in_thread(lambda _: _open_budget(rules, limit, prepared, opened, tags))
    stack.push_async_callback(asyncio.to_thread, budget.close)
    manifest.state, manifest.stopped_because, manifest.stopped_words = "running", None, None
    manifest.max_credits, manifest.tags = options.max_credits, _kept(options.tags)
    await _in_thread(lambda _: manifest.write(folder))
    lanes = Lanes(opened.lanes, max_concurrency=options.max_concurrency, folder=shared_folder())
    stack.callback(lanes.close)
    progress = Progress(backend.unit, found.estimate.calls + found.estimate.cached, options.progress, line)
    planned = found.estimate
    progress.budget, progress.currency = planned.budget, planned.currency or ""
    progress.money_per_credit = (planned.money or 0.0) / (planned.credits or 1.0)
    for note in prepared.notes:
        progress.note(note)
    budget.alert = partial(_alert, progress, options.on_alert)
    backend.tell = progress.note
    queue = Queue(found.calls(backend), budget, found.only_free)
    live = Live(
        stop=lambda drain, reason: engine.stop(drain=drain, reason=reason), progress=progress, options=options
    )
    engine = Engine(
        backend,
        opened,
        queue,
        lanes,
        budget,
        folder=folder,
        journal=log,
        run_id=manifest.run_id,
        cache=cache,
        live=live,
        ledger=ledger,
        update_budget=update_budget,
    )
    run = Run(folder, estimate=found.estimate, problems=prepared.problems, live=live)

    async def calls() -> None:
        if cache is not None:
            await _in_thread(lambda _: _take_from_cache(found, cache, log, live))
        await engine.run()
        await backend.after(run, lambda: queue.stopped is not None)
        if ledger is not None:
            await _in_thread(lambda _: ledger.end())

    # From here on the run's own task closes what it uses, even if nobody waits for it.
    live.start(_drive(run, live, queue, calls, stack.pop_all()), run.run_id)
    return await _hand_over(run, live)


def _alert(progress: Progress, on_alert: Callable[[Alert], None] | None, alert: Alert) -> None:
    """Say that a share of a budget is used: in the log, beside the bar, and to `on_alert`."""
    logger.warning("%s", alert)
    progress.note(str(alert))
    if on_alert is not None:
        try:
            on_alert(alert)
        except Exception:
            logger.exception("on_alert failed; the run goes on")


def _constant(tags: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags that all rows have; the others stand with the rows."""
    return {name: str(tag) for name, tag in tags.items() if not hasattr(tag, "name")}


def _kept(tags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what run.json says of the tags, for a resume; values that belonged to one table are not kept."""
    columns = {name: {"column": tag.name} for name, tag in tags.items() if isinstance(tag, Column)}
    return {name: {"constant": tag} for name, tag in _constant(tags).items()} | columns


def _open_ledger(rules: SpendingRules, prepared: Prepared) -> Ledger | None:
    """Return the ledger folder; None, with a note, if it is the default one and cannot be written."""
    found = Ledger(open_folder(rules.ledger), prepared.manifest.run_id)
    try:
        with storing(found.folder, "writing the ledger"):
            found.begin(prepared.folder)
    except StoreError as error:
        if rules.ledger != default_ledger_folder():
            raise
        prepared.notes.append(f"what this run spends is in its own folder only: {error}")
        return None
    return found


def _recover(
    prepared: Prepared,
    backend: Backend,
    opened: Opened,
    options: Options,
    stack: contextlib.AsyncExitStack,
    ledger: Ledger | None,
) -> Journal:
    """Make parts of what earlier processes left; return the journal of this one, which `stack` closes."""
    folder, manifest, columns = prepared.folder, prepared.manifest, backend.columns
    header = {  # what the ledger says of every attempt of this process
        "run_id": manifest.run_id,
        "operation": manifest.operation,
        "service": manifest.service,
        "key_fingerprint": opened.key_fingerprint,
        "user": user_name(),
        "host": socket.gethostname(),
        "tags": _constant(options.tags),
    }
    recovered = Journal(folder, parts.next_number(folder), header)
    parts.recover(folder, columns, recovered, time.time(), ledger)
    parts.cut(folder, recovered.close(), columns, ledger)
    log = Journal(folder, parts.next_number(folder), header)
    stack.callback(log.close)
    return log


def _open_budget(
    rules: SpendingRules, limit: int | None, prepared: Prepared, opened: Opened, tags: Mapping[str, str]
) -> tuple[Budget, Callable[[], None]]:
    """Return what the run may spend, and what learns from the ledger how much other machines have spent.

    Processes of one machine share a file, and never pass a limit together. What runs have spent that is not
    in the file is read from the ledger: now, and if the ledger is at an address again after each part. So a
    limit can be passed by what other machines spend between two parts of this run, together with what this
    run was allotted (:data:`~speechframe.store.budgets.SHARE`).
    """
    folder, manifest = prepared.folder, prepared.manifest
    over_runs = rules.over_runs(manifest.service, opened.key_fingerprint)
    if limit is None and not over_runs:
        return Budget(None, 0), lambda: None
    attempts = all_attempts(folder, BUDGET_COLUMNS)
    ledger = open_folder(rules.ledger)
    is_remote = ledger.work != ledger.path
    place = default_ledger_folder() if is_remote else ledger.path
    allotments = Allotments(place, manifest.run_id)
    allowances = [Allowance(rule, allotments, time.time) for rule in over_runs]

    new = [one for one in allowances if is_remote or not allotments.is_known(one.id, one.period)]
    sums = LedgerSums(ledger, [one.rule for one in new], time.time())

    def update_budget() -> None:
        sums.read()
        for one in new:
            allotments.learn(one.id, one.period, sums.of(one.rule, one.period))

    update_budget()
    for one in allowances:
        by_period: Counter[Any] = Counter()
        for (period, _), spent in spent_in(one.rule, attempts).items():
            by_period[period] += spent
        allotments.correct(one.id, by_period)
    total = round(1000 * (pc.sum(attempts.column("credits")).as_py() or 0.0))
    budget = Budget(limit, total, allowances, tags=tags)
    return budget, update_budget if is_remote else lambda: None


def _take_from_cache(found: Plan, cache: Cache, log: Journal, live: Live) -> None:
    """Keep the answers that other runs have paid for; a damaged one is made like any other."""
    for place, request in zip(np.flatnonzero(found.cached), found.requests(found.cached), strict=False):
        if (kept := cache.get(request.key)) is None:
            found.todo[place] = True
            continue
        row, audio = kept
        own = {"request_key": request.key, "status": "cached", "credits": 0.0, "attempts": 0}
        now = time.time()
        facts = {
            "request_key": request.key,
            "take": request.take,
            "characters": request.characters,
            "time": now,
            "status": "cached",
            "saved": request.price * request.facts.get("rows", 1) / 1000,
        }
        log.cached({**row, **own, "finished_at": now}, audio, {**request.facts, **facts, **NOTHING_PAID})
        live.outcome(Outcome(request.row_id, request.key, "cached", 0, row.get("audio_seconds")))


async def _drive(
    run: Run, live: Live, queue: Queue, calls: Callable[[], Awaitable[None]], stack: contextlib.AsyncExitStack
) -> None:
    """Make the calls, write the run's end down whatever happens, and raise what its caller is to see."""
    reason: StopReason | None = StopReason.FAILED
    error: SpeechframeError | None = None
    try:
        async with stack:
            try:
                await calls()
                reason, error = queue.stopped, queue.stopped_by
            finally:
                manifest, live.stopped_by = run.manifest, error
                manifest.state = "finished" if reason is None else "stopped"
                manifest.stopped_because = None if reason is None else reason.value
                manifest.stopped_words = None if error is None else str(error)
                with contextlib.suppress(SpeechframeError):  # whatever ended the run says more
                    manifest.write(run.folder)
    finally:
        live.progress.close("" if error is None else str(error))
    if reason is StopReason.FAILED and error is not None:  # on_error="raise"
        raise error


async def _hand_over(run: Run, live: Live) -> Run:
    """Return the live run to its caller: at its end, or at once with ``wait=False``.

    With ``progress="dashboard"`` the dashboard is shown meanwhile in the notebook's cell.
    """
    show = dashboard(live.options.progress)
    shown = None if show is None else asyncio.create_task(asyncio.to_thread(show, run))
    if live.options.wait:
        try:
            await live.until_ended()
        except asyncio.CancelledError as order:
            # A synchronous caller gets what was made before Ctrl-C.
            if order.args != (INTERRUPT,):
                raise
            live.ended.result()
    if shown is not None:
        # Wait for the dashboard: what is shown after the end of its cell appears nowhere. A dashboard that
        # cannot be shown does not end the run.
        await asyncio.wait({shown})
        if (error := shown.exception()) is not None:
            live.progress.note(f"the dashboard of this run cannot be shown: {error}")
    return run


def _settings(options: Options) -> Settings:
    return options.service if isinstance(options.service, Settings) else Settings()


def _spending(options: Options) -> _Spending:
    """Return what a run may spend; SettingsError when its options ask for more than the rules allow."""
    rules = spending_rules(_settings(options))
    rules.check_tags(options.tags)
    limit = rules.of_run(options.max_credits)
    return rules, None if limit is None or math.isinf(limit) else _thousandths(limit)


def _thousandths(credits: float) -> int:
    # Rounded down to allow no more than was asked, but not where floats fall short: 1.001 * 1000 < 1001.
    return math.floor(round(credits * 1000, 6))
