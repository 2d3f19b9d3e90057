"""Start a run for a table, or continue an earlier run."""

import asyncio
import contextlib
import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any, TypeVar

import numpy as np

from speechframe.batch.backend import Backend, Opened
from speechframe.batch.budget import Alert, Budget, open_budget
from speechframe.batch.engine import CallMaker, Engine
from speechframe.batch.lanes import MAX_CALLS_PER_LANE, Lane, compute_max_calls
from speechframe.batch.live import Run
from speechframe.batch.notebook import find_dashboard, is_notebook
from speechframe.batch.options import Options
from speechframe.batch.plan import Estimate, ExecutorWorkers, plan_calls
from speechframe.batch.prepare import Prepared, reopen_run
from speechframe.batch.progress import Live, Outcome, Progress, print_line
from speechframe.batch.queue import Plan, Queue
from speechframe.errors import SettingsError, SpeechframeError, StoreError
from speechframe.processes.loop import INTERRUPT_MESSAGE
from speechframe.processes.slots import make_shared_folder
from speechframe.settings import Settings, find_default_ledger_folder
from speechframe.settings.spending import SpendingRules, read_cache_rules, read_spending_rules
from speechframe.spec.billing import convert_to_credits
from speechframe.store import parts, shards
from speechframe.store.cache import Cache, open_cache
from speechframe.store.folder import PLANNED_STATE, Folder, convert_os_errors, get_user_name, read_manifest
from speechframe.store.journal import Journal
from speechframe.store.ledger import Ledger
from speechframe.store.reader import StoredRun, open_folder
from speechframe.store.records import read_known_spending
from speechframe.store.schema import StopReason
from speechframe.tables.column import Column
from speechframe.tables.table import Source

T = TypeVar("T")
logger = logging.getLogger(__name__)


# -- open the backend ---------------------------------------------------------------------


async def open_backend(
    backend: Backend, options: Options, stack: contextlib.AsyncExitStack
) -> tuple[Opened, SpendingRules, int | None]:
    """Open a backend. Return facts about its service, the spending rules, and the run's limit.

    `stack` closes the backend. The spending rules come from the settings. The limit is in thousandths of a
    credit, or None for no limit. SettingsError is raised if the options break the rules.
    """
    rules = read_spending_rules(_get_settings(options))
    rules.check_tags(options.tags)
    credits = rules.compute_run_limit(options.max_credits)
    # Round down, so that the run never spends more than `max_credits`. First remove the rounding error of
    # floats, such as 1.001 * 1000 < 1001.
    limit = None if credits is None or math.isinf(credits) else math.floor(round(credits * 1000, 6))
    if options.max_answer_mb is not None:
        backend.max_answer_bytes = round(1e6 * options.max_answer_mb)
    backend.is_budgeted = limit is not None or rules.max_credits_per_month is not None or bool(rules.budgets)
    opened = await backend.open()
    stack.push_async_callback(backend.close)
    return opened, rules, limit


def _get_settings(options: Options) -> Settings:
    return options.service if isinstance(options.service, Settings) else Settings()


async def run_in_thread(function: Callable[[Callable[[], bool]], T]) -> T:
    """Run `function` in a thread and return its result.

    The argument of `function` is a callable that returns True once this task was cancelled. Even then this
    coroutine waits for the end of `function`, because `function` writes under a lock that must stay held.
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
        await asyncio.gather(task, return_exceptions=True)  # otherwise asyncio logs the exception
        raise cancelled
    return task.result()


# -- continue an earlier run --------------------------------------------------------------


@dataclass(frozen=True)
class EarlierRun:
    """A run to continue.

    Parameters
    ----------
    folder, operation
        The run's folder, and the operation of its backend.
    sources
        The arguments of the run's rows: the constant, column or list behind each argument.
    options
        The run options: the new options, completed by options that the run's folder stores.
    """

    folder: Folder
    operation: str
    sources: Mapping[str, Source]
    options: Options

    @property
    def constants(self) -> dict[str, Any]:
        """The arguments with one value for all rows."""
        return {name: source.constant for name, source in self.sources.items() if source.column is None}


def read_run(run: Run | str | PathLike[str], given: Mapping[str, Any]) -> EarlierRun:
    """Read a run's folder and return the run to continue. `given` contains the new run options."""
    folder = run.folder if isinstance(run, StoredRun) else open_folder(run)
    manifest = read_manifest(folder)
    options = Options.from_given(**given)
    kept = {
        name: kept["constant"] if "constant" in kept else Column(kept["column"])
        for name, kept in manifest.tags.items()
    }
    given_dir: Any = folder  # a Folder also contains its filesystem
    options = replace(
        options,
        run_dir=given_dir,
        id=options.id or manifest.table.id_column,
        max_credits=manifest.max_credits if options.max_credits is None else options.max_credits,
        tags={**kept, **options.tags},
    )
    sources = {name: Source.from_json(name, kept) for name, kept in manifest.table.arguments.items()}
    return EarlierRun(folder, manifest.operation, sources, options)


async def make_calls(
    backend: Backend, options: Options, prepare: Callable[..., Prepared], workers: ExecutorWorkers | None
) -> Run:
    """Plan a run, make its missing calls, and return the run.

    `backend` must not be open yet. If it is revised, then also make the calls that this adds. `prepare` is
    :func:`prepare_run` or :func:`reopen_run` with the first arguments. `workers` are those of the option
    ``executor``. SettingsError is raised if a run that is revised should not be waited for.
    """
    if backend.is_revised and not options.wait and not options.dry_run:
        raise SettingsError(
            "slot= needs wait=True, because a second step follows the first calls: leave wait out"
        )
    run = await _carry_out(backend, options, prepare, workers)
    if not backend.is_revised or options.dry_run or run.stopped_because is not None:
        return run
    revised = await _carry_out(backend, options, partial(reopen_run, run.folder, None), workers)
    revised.notes = [*run.notes, *revised.notes]
    # Without further calls, return the run that describes the calls.
    return revised if revised.estimate is not None and revised.estimate.calls else run.refresh()


# -- the run itself ---------------------------------------------------------------------


@dataclass
class _PlannedRun:
    """A planned run. A dry run has no journal and no ledger."""

    prepared: Prepared
    plan: Plan
    estimate: Estimate
    cache: Cache | None
    journal: Journal | None = None
    ledger: Ledger | None = None  # also None if the default ledger is not writable
    budget: Budget | None = None  # None if no limit applies to the run
    update_budget: Callable[[], None] | None = None  # function that adds the new spending of other machines
    spent_before: int = 0  # spending of the run so far, in thousandths of a credit


async def _carry_out(
    backend: Backend, options: Options, prepare: Callable[..., Prepared], workers: ExecutorWorkers | None
) -> Run:
    """Plan a run, and make its calls unless it is a dry run. Return the run.

    The run is at its end, or still live if the option ``wait`` is False.
    """
    async with contextlib.AsyncExitStack() as stack:
        opened, rules, limit = await open_backend(backend, options, stack)
        begin = partial(_plan_run, prepare, backend, opened, options, rules, limit, workers, stack)
        begun = await run_in_thread(begin)
        prepared, planned, folder = begun.prepared, begun.estimate, begun.prepared.folder
        # The engines of a local service have long names with versions. `run.service` contains them.
        service = "local" if backend.service.startswith("local/") else backend.service
        name = f"{backend.operation} on {service}"
        if begun.journal is None:
            # Do not show the line in a notebook, because a notebook shows the returned run with the same
            # line.
            shown = bool(options.progress) and not is_notebook()
            print_line(f"{name}: {planned.line()} (dry run: nothing was sent)", shown=shown)
            for note in prepared.notes:
                print_line(note, shown=shown)
            return Run(folder, estimate=planned, problems=prepared.problems, notes=prepared.notes)
        learned = make_shared_folder()
        most = compute_max_calls(len(opened.lanes))
        # With an executor, the lanes are at the workers.
        specs = opened.lanes if workers is None else ()
        lanes = [Lane(spec, options.max_concurrency, learned, most=most) for spec in specs]
        for lane in lanes:
            stack.callback(lane.close)
        progress = Progress(backend.unit, planned.calls + planned.cached, options, name, planned.line)
        progress.budget = None if limit is None else convert_to_credits(limit)
        progress.currency = planned.currency or ""
        progress.spent_before = progress.credits_millis = begun.spent_before
        progress.money_per_credit = (planned.money or 0.0) / (planned.credits or 1.0)
        for note in prepared.notes:
            progress.note(note)
        wanted = [options.max_concurrency or spec.published or 0 for spec in specs]
        if max(wanted, default=0) > most:
            reason = (
                ""
                if most == MAX_CALLS_PER_LANE
                else ", because it may open few files (ulimit -n raises that)"
            )
            progress.note(f"this process has at most {most:,} calls in flight in each lane{reason}")
        if begun.budget is not None:
            begun.budget.alert = partial(_report_alert, progress, options.on_alert)
        backend.tell = progress.note
        lane_count = max(1, sum(not spec.is_fallback for spec in opened.lanes))
        most_at_once = {work: each.calls_at_once * lane_count for work, each in opened.throughputs.items()}
        queue = Queue(begun.plan, backend, begun.budget, most_at_once)
        make_engine: Callable[..., CallMaker] = Engine if workers is None else workers.make_engine
        engine = make_engine(
            backend=backend,
            opened=opened,
            options=options,
            queue=queue,
            lanes=lanes,
            progress=progress,
            run_id=prepared.manifest.run_id,
            folder=folder,
            journal=begun.journal,
            ledger=begun.ledger,
            cache=begun.cache,
            budget=begun.budget,
            update_budget=begun.update_budget,
        )
        live = Live(progress, options, engine.stop)
        run = Run(folder, estimate=planned, problems=prepared.problems, notes=prepared.notes, live=live)
        # From here on the run's own task closes all resources, even if no caller waits for the run.
        live.start(_run_engine(run, live, begun, queue, engine, backend, stack.pop_all()), run.run_id)
        return await _return_run(run, live)


def _plan_run(
    prepare: Callable[..., Prepared],
    backend: Backend,
    opened: Opened,
    options: Options,
    rules: SpendingRules,
    limit: int | None,
    workers: ExecutorWorkers | None,
    stack: contextlib.AsyncExitStack,
    is_stopped: Callable[[], bool],
) -> _PlannedRun:
    """Prepare and plan a run. Unless it is a dry run, also open its journal, ledger and budget.

    CancelledError is raised once `is_stopped` returns True.
    """
    prepared = prepare(backend, opened, options, stack, is_stopped)
    folder, manifest = prepared.folder, prepared.manifest
    shared = read_cache_rules(_get_settings(options))
    cache_option = shared["folder"] if options.cache is None else options.cache
    cache = open_cache(cache_option, **shared) if cache_option and not backend.leaves_files else None
    # `tags` has the tags with one value for all rows. Other tags are stored with the rows. The manifest
    # (run.json) has no lists of values, because a list belongs to one table.
    tags = {name: str(tag) for name, tag in options.tags.items() if not hasattr(tag, "name")}
    kept: dict[str, dict[str, Any]] = {name: {"constant": tag} for name, tag in tags.items()}
    kept |= {name: {"column": tag.name} for name, tag in options.tags.items() if isinstance(tag, Column)}
    past = open_folder(rules.ledger)
    if options.dry_run:
        found, estimate = plan_calls(prepared, backend, opened, options, cache, limit, past, workers)
        if manifest.state == PLANNED_STATE and (manifest.max_credits, manifest.tags) != (
            options.max_credits,
            kept,
        ):
            manifest.max_credits, manifest.tags = options.max_credits, kept
            manifest.write(folder)
        return _PlannedRun(prepared, found, estimate, cache)
    ledger = _begin_ledger(past, rules, prepared)
    header = {  # ledger fields with the same value for every attempt of this process
        "run_id": manifest.run_id,
        "operation": manifest.operation,
        "service": manifest.service,
        "key_fingerprint": opened.key_fingerprint,
        "user": get_user_name(),
        "host": socket.gethostname(),
        "tags": tags,
    }
    # Recover before planning. The journals of killed processes become parts (Parquet files), and the plan
    # reads outcomes only from parts.
    shards.wait_for_shards(folder)
    parts.recover_journal(folder, backend.columns, header, time.time(), ledger)
    shards.recover_intents(folder, backend.columns, header, ledger)
    if ledger is not None and shards.has_traces(folder):
        parts.copy_to_ledger(folder, ledger)
    journal = Journal(folder, parts.find_next_number(folder), header)
    stack.callback(journal.close)
    found, estimate = plan_calls(prepared, backend, opened, options, cache, limit, past, workers)
    budget: Budget | None = None
    update_budget: Callable[[], None] | None = None
    over_runs = rules.find_shared_budgets(manifest.service, opened.key_fingerprint)
    if limit is not None or over_runs:
        rule = rules.find_run_rule(options.max_credits)
        budget, update_budget = open_budget(folder, manifest.run_id, limit, over_runs, past, tags, rule)
        stack.push_async_callback(asyncio.to_thread, budget.close)
    if is_stopped():
        raise asyncio.CancelledError
    manifest.state, manifest.stopped_because, manifest.stopped_words = "running", None, None
    manifest.max_credits, manifest.tags = options.max_credits, kept
    manifest.cache = None if cache is None else str(cache.folder)
    manifest.write(folder)
    return _PlannedRun(
        prepared,
        found,
        estimate,
        cache,
        journal,
        ledger,
        budget,
        update_budget,
        spent_before=read_known_spending(folder) if budget is None else budget.spent,
    )


def _report_alert(progress: Progress, on_alert: Callable[[Alert], None] | None, alert: Alert) -> None:
    """Report an alert in the log, beside the bar, and to `on_alert`."""
    logger.warning("%s", alert)
    progress.note(str(alert))
    if on_alert is not None:
        try:
            on_alert(alert)
        except Exception:
            logger.exception("on_alert failed; the run goes on")


def _begin_ledger(folder: Folder, rules: SpendingRules, prepared: Prepared) -> Ledger | None:
    """Return the ledger of the run. Return None, and add a note, if the default ledger is not writable."""
    ledger = Ledger(folder, prepared.manifest.run_id)
    try:
        with convert_os_errors(folder, "writing the ledger"):
            ledger.begin(prepared.folder)
    except StoreError as error:
        if rules.ledger != find_default_ledger_folder():
            raise
        prepared.notes.append(f"what this run spends is in its own folder only: {error}")
        return None
    return ledger


def _copy_from_cache(begun: _PlannedRun, progress: Progress) -> None:
    """Copy answers from the cache into the run. If an entry is damaged or gone, plan its call again."""
    plan, cache, journal = begun.plan, begun.cache, begun.journal
    for position, request in zip(np.flatnonzero(plan.cached), plan.read_requests(plan.cached), strict=False):
        if cache is None or journal is None or (kept := cache.get(request.key)) is None:
            plan.todo[position] = True
            continue
        row, audio = kept
        now, own = time.time(), {"request_key": request.key, "status": "cached", "credits": 0.0}
        entry = {
            **request.facts,
            **own,
            "take": request.take,
            "characters": request.characters,
            "time": now,
            "attempt": 0,
            "credits_basis": "none",
            "computed": 0.0,
            "saved": request.price * request.facts.get("rows", 1) / 1000,
        }
        journal.write_cached({**row, **own, "attempts": 0, "finished_at": now}, audio, entry)
        progress.add(Outcome(request.row_id, request.key, "cached", 0, row.get("audio_seconds")))


async def _run_engine(
    run: Run,
    live: Live,
    begun: _PlannedRun,
    queue: Queue,
    engine: CallMaker,
    backend: Backend,
    stack: contextlib.AsyncExitStack,
) -> None:
    """Make the calls. Write the end of the run to run.json, even after an error.

    Raise the error of a call only with ``on_error="raise"``. Always raise other errors, such as a full disk.
    """
    reason: StopReason | None = StopReason.FAILED
    error: SpeechframeError | None = None
    try:
        async with stack:
            try:
                if begun.cache is not None:
                    await run_in_thread(lambda _: _copy_from_cache(begun, live.progress))
                await engine.run()
                await backend.after(run, lambda: queue.stopped is not None)
                if (ledger := begun.ledger) is not None:
                    await run_in_thread(lambda _: ledger.end())
                reason, error = queue.stopped, queue.stopped_by
            finally:
                manifest, live.stopped_by = run.manifest, error
                manifest.state = "finished" if reason is None else "stopped"
                manifest.stopped_because = None if reason is None else reason.value
                manifest.stopped_words = None if error is None else str(error)
                # If run.json cannot be written, the error that ended the run is still the more useful one.
                with contextlib.suppress(SpeechframeError):
                    manifest.write(run.folder)
    finally:
        live.progress.close("" if error is None else str(error))
    if reason is StopReason.FAILED and error is not None:  # on_error="raise"
        raise error


async def _return_run(run: Run, live: Live) -> Run:
    """Return the live run at its end, or at once with ``wait=False``.

    If ``progress="dashboard"``, show the run's dashboard in the notebook first.
    """
    wanted = live.options.progress
    show = find_dashboard(wanted) if wanted else None
    shown = None if show is None else asyncio.create_task(asyncio.to_thread(show, run))
    if live.options.wait:
        try:
            await live.wait_until_ended()
        except asyncio.CancelledError as order:
            # After Ctrl-C a synchronous caller gets the run with all answers so far.
            if order.args != (INTERRUPT_MESSAGE,):
                raise
            live.ended.result()
    if shown is not None:
        # Wait for the dashboard, because a notebook drops all output after the end of its cell. A dashboard
        # that cannot be shown does not end the run.
        await asyncio.wait({shown})
        if (error := shown.exception()) is not None:
            live.progress.note(f"the dashboard of this run cannot be shown: {error}")
    return run
