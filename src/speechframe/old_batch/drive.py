"""Drives runs: from what a caller handed in to a run that is planned, live or ended."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from speechframe._ending import until_terminated
from speechframe._lasting import LastingTask
from speechframe._loop import INTERRUPT
from speechframe.errors import RunLocked, SettingsError
from speechframe.old_batch.aligning import WORDS, Aligner, aligner_for
from speechframe.old_batch.connection import Connection, settings_of
from speechframe.old_batch.driver import Driver
from speechframe.old_batch.live import Live
from speechframe.old_batch.operation import Operation
from speechframe.old_batch.options import Options, option_names
from speechframe.old_batch.prepare import prepare
from speechframe.old_batch.prepared import BUDGET_KEY, Prepared, budget_json, budget_of, reopen
from speechframe.old_batch.progress import display_of, say
from speechframe.old_batch.run import Run
from speechframe.old_batch.threads import in_thread
from speechframe.old_batch.verbs import VERBS, model_of
from speechframe.old_store import RunFolder
from speechframe.old_store.run_state import PLANNED, STATE_KEY, StopReason
from speechframe.settings.rules import spending_rules

log = logging.getLogger(__name__)


async def drive(verb: str, table: Any, arguments: Mapping[str, Any], given: Mapping[str, Any]) -> Run:
    """Plan `table` for `verb` and make what is missing.

    Parameters
    ----------
    verb
        A name in :data:`VERBS`.
    table, arguments
        What the caller handed in.
    given
        Run options; ``service`` must be resolved to :class:`Settings` by now.
    """
    _check_given(verb, arguments, given)
    options = Options.of(**given)
    check_rules(options)
    aligner = await aligner_for(arguments.get(WORDS))
    model = model_of(arguments.get("model"))
    connection = await Connection.open(
        settings_of(options), most=options.max_concurrency, verb=verb, model=model
    )
    try:
        operation = VERBS[verb].operation_of(model).on(connection.service)
        prepared = await prepare(table, arguments, operation, connection, options)
    except BaseException:
        await connection.client.close()
        raise
    return await carry_out(prepared, operation, connection, options, aligner)


def _check_given(verb: str, arguments: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    unknown = sorted(set(given) - option_names())
    if unknown:
        raise SettingsError(
            f"{verb}() has no argument {unknown[0]!r}; it takes {', '.join(arguments)} and the run options "
            f"{', '.join(sorted(option_names()))}"
        )


def check_rules(options: Options) -> None:
    """Raise SettingsError when a run asks for more than the house allows; nothing was sent by then."""
    spending_rules(settings_of(options)).of_run(options.max_credits)


async def carry_out(
    prepared: Prepared,
    operation: Operation,
    connection: Connection,
    options: Options,
    aligner: Aligner | None = None,
) -> Run:
    """Return the run of `prepared`: only planned (``dry_run``), live (``wait=False``) or ended.

    The connection is closed at the end. With an `aligner`, rows without words get them from their audio.
    """
    run = Run(prepared.folder, problems=prepared.problems)
    display = display_of(options.progress)
    if display is None:
        options = replace(options, progress=bool(options.progress))
    try:
        driver = Driver(run, prepared, operation, connection, options, aligner)
    except BaseException:
        await connection.client.close()
        raise
    if options.dry_run:
        async with connection:
            run.estimate = (await in_thread(driver.look_ahead)).plan.estimate
            await in_thread(_keep_budget, prepared, options.max_credits)
            say(
                f"{operation.name}: {run.estimate.line()} (dry run: nothing was sent)",
                shown=bool(options.progress),
            )
            return run
    started: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    task = LastingTask(
        driver.drive(started), name=f"speechframe-run-{run.run_id}", told=lambda: _loop_ends(run, driver)
    )
    task.add_done_callback(lambda ended: _mark(run, driver, started, ended))
    loop = asyncio.get_running_loop()
    run._live = Live(run.path, task, loop, driver.stop, driver.progress, driver.outcomes, options)  # noqa: SLF001 - the two are made for each other
    await _through(started, task, driver)
    # Beside the run, which does not wait for it; but the cell that shows it must not end before it is there.
    shown = None if display is None else asyncio.create_task(asyncio.to_thread(_show, display, run))
    if options.wait:
        await _to_the_end(task, driver)
    if shown is not None:
        await asyncio.wait({shown})
    if options.wait and (error := driver.error_to_raise()) is not None:
        raise error
    return run


def _keep_budget(prepared: Prepared, max_credits: float | None) -> None:
    """Let what starts a planned run later go no further than its budget; a dry run without one keeps it."""
    folder = prepared.folder
    if max_credits in (None, budget_of(folder)) or not _is_planned(folder):
        return
    # Locked, somebody starts it just now, with a budget of their own.
    with suppress(RunLocked), folder.lock():
        # By now it may have been started, or given another table.
        if _is_planned(folder) and _is_newest(prepared):
            folder.update_manifest(extra={**folder.manifest.extra, BUDGET_KEY: budget_json(max_credits)})


def _is_planned(folder: RunFolder) -> bool:
    return folder.manifest.extra.get(STATE_KEY) == PLANNED


def _is_newest(prepared: Prepared) -> bool:
    """Return whether a run's newest table has these very calls: a look at others is none of its business."""
    if prepared.entry is not None:
        return prepared.entry == prepared.folder.tables()[-1]
    return prepared.folder.has_table() and np.array_equal(reopen(prepared.folder).keys, prepared.keys)


def _show(display: Callable[[Run], None], run: Run) -> None:
    try:
        display(run)
    except Exception:
        log.exception("the dashboard of this run cannot be shown")


def _loop_ends(run: Run, driver: Driver) -> None:
    live = run._live  # noqa: SLF001
    if live is not None:
        live.end_with_loop(is_news=not driver.is_stopping)


def _mark(run: Run, driver: Driver, started: "asyncio.Future[bool]", task: "asyncio.Task[None]") -> None:
    live = run._live  # noqa: SLF001
    error = _error_of(task)
    if not started.done():
        started.set_result(False)
    error = error or driver.error_to_raise()
    if live is not None:
        live.stopped_by = driver.stopped_by
        live.close(error)
    driver.outcomes.close()


def _error_of(task: "asyncio.Task[None]") -> BaseException | None:
    try:
        return task.exception()
    except asyncio.CancelledError as order:
        # What failed in a thread that it waited for although it was cancelled.
        return order.__cause__


async def _through(started: "asyncio.Future[bool]", task: "asyncio.Task[None]", driver: Driver) -> None:
    """Wait until the run is planned, or raise why it is not; told to stop before, it sends nothing."""
    try:
        is_planned = await asyncio.shield(started)
    except asyncio.CancelledError:
        driver.stop(False, StopReason.INTERRUPTED)
        # Its folder must be whole and free before the caller goes on.
        await asyncio.wait({task})
        raise
    if not is_planned:
        await task


async def _to_the_end(task: "asyncio.Task[None]", driver: Driver) -> None:
    """Wait for the end of the run; told to stop, calls in flight finish, told again, they are cancelled."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as order:
            if task.done():
                break
            driver.stop(cancelled is None, StopReason.INTERRUPTED)
            cancelled = order
    await until_terminated()
    if cancelled is not None and cancelled.args != (INTERRUPT,):
        raise cancelled
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
