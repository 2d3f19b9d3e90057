"""Makes one shard of a run in a worker process.

:func:`run_shard` may be called again for the same shard at any time, for example because a worker died. It
keeps the outcomes of earlier workers, and makes only the other calls. If another process still holds the lock
of the shard, RunLocked is raised. For a run at an address, it waits until processes on other machines have
ended.
"""

import asyncio
import contextlib
import functools
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Sequence
from multiprocessing import parent_process
from typing import Any

import numpy as np
import pyarrow.compute as pc

from speechframe._version import __version__
from speechframe.backends.service import ServiceBackend
from speechframe.batch.backend import Backend, Opened
from speechframe.batch.budget import Budget
from speechframe.batch.engine import Engine
from speechframe.batch.lanes import Lane, compute_max_calls
from speechframe.batch.plan import find_ended, find_wait_ends, make_key_array, mark_known_keys
from speechframe.batch.prepare import Prepared
from speechframe.batch.progress import Outcome, Progress
from speechframe.batch.queue import Plan, Queue
from speechframe.batch.run import read_run
from speechframe.errors import BudgetExceeded, RunMismatch, SettingsError, StoreError
from speechframe.local.start import get_shared_service
from speechframe.processes.loop import run_sync
from speechframe.processes.slots import make_shared_folder
from speechframe.scale.intents import IntentQueue
from speechframe.scale.shard import DEFAULT_WIDTH, Job, Report, Shard, ShardLimits, read_progress
from speechframe.settings import Settings, resolve_settings
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT
from speechframe.store import parts, shards
from speechframe.store.cache import open_cache
from speechframe.store.folder import Folder, Manifest, read_manifest
from speechframe.store.journal import Journal
from speechframe.store.ledger import AMOUNT_COLUMNS
from speechframe.store.reader import open_folder
from speechframe.store.records import read_ledger, read_snapshot, sum_millicredits
from speechframe.store.remote import RemoteFolder
from speechframe.store.schema import CHARGED_UNKNOWN, PACK, StopReason

TICK_S, REMOTE_TICK_S = 0.5, 3.0
"""Seconds between two looks at the driver's order, on a disk and at an address."""
MAX_INTERRUPTIONS = 2
"""A call is not sent again in this run if this number of workers died while the call was in flight."""


def run_shard(version: str, pickled_job: bytes, shard: Shard, limits: ShardLimits) -> Report:
    """Make the calls of a shard that have no outcome yet, and return a report.

    Parameters
    ----------
    version
        Version of speechframe of the driver.
    pickled_job
        The pickled :class:`~speechframe.scale.shard.Job`.
    shard, limits
        The rows, and the limits on their calls.

    Raises
    ------
    RunMismatch
        If this worker has another version of speechframe, or another service.
    SettingsError
        If this worker cannot import the backend, or has another API key.
    RunLocked
        If another process makes the shard.
    """
    if version != __version__:
        raise RunMismatch(
            f"a worker has speechframe {__version__}, the run has {version}: install the same version there"
        )
    try:
        job: Job = pickle.loads(pickled_job)  # noqa: S301 - from the driver, through its executor
        backend: Backend | None = None
        if isinstance(job.backend, bytes):
            backend = pickle.loads(job.backend)  # noqa: S301 - same
    except Exception as error:  # the import of a user's module can raise any error
        raise SettingsError(
            f"a worker cannot import the backend ({type(error).__name__}: {error}): put the backend into a "
            "module that all workers can import"
        ) from error
    is_in_pool = parent_process() is not None and threading.current_thread() is threading.main_thread()
    if is_in_pool:
        # In a terminal Ctrl-C reaches all processes of a pool. Only the driver decides what follows.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end_with_pool()
    with _BUSY if is_in_pool else contextlib.nullcontext():
        return run_sync(_run_shard(job, backend, shard, limits))


_BUSY = threading.Lock()
"""Held by a pool's worker while it makes a shard, so that the worker does not exit during a shard."""


@functools.cache
def _end_with_pool() -> None:
    """End this worker of a pool after its shard if its parent has died. Otherwise it would wait for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        with _BUSY:
            os._exit(1)

    threading.Thread(target=watch, name="speechframe-parent", daemon=True).start()


async def _run_shard(job: Job, backend: Backend | None, shard: Shard, limits: ShardLimits) -> Report:
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        folder, block, options = open_folder(job.address), shard.block, job.options
        stack.enter_context(shards.lock_shard(folder, block))
        numbers, segment_rows = shards.claim_numbers(folder, block)
        # First register, then look for the driver. A new driver first takes the lock, then waits for shards.
        shards.write_counters(folder, numbers, {})
        stack.callback(shards.remove_counters, folder, numbers)
        lease = _Lease(folder, job, numbers)
        if lease.look() is not None:
            return Report(reason=StopReason.STOPPED.value)
        await asyncio.to_thread(shards.wait_for_earlier_makers, folder, numbers)
        manifest = read_manifest(folder)
        backend = backend or await _make_backend(job)
        backend.is_budgeted, backend.folder = limits.millicredits is not None, folder.work
        if options.max_answer_mb is not None:
            backend.max_answer_bytes = round(1e6 * options.max_answer_mb)
        opened = await backend.open()
        stack.push_async_callback(backend.close)
        _check_service(job, manifest, backend, opened)
        header = {**job.header, "host": socket.gethostname()}
        shards.recover_shard(folder, backend.columns, header, block, numbers)
        plan, ended, spent, audio_seconds = _plan_shard(folder, manifest, shard, opened, job)
        total = int(plan.todo.sum()) + len(ended)
        progress = Progress(backend.unit, total, options, "", lambda _: "")
        progress.credits_millis, progress.audio_seconds = spent, audio_seconds
        notes: list[str] = []
        backend.tell = notes.append
        for outcome in ended:
            progress.add(outcome)
        journal = Journal(folder, parts.find_next_number(folder, numbers), header, segment_rows)
        stack.callback(journal.close)
        lanes = _make_lanes(opened, limits)
        for lane in lanes:
            stack.callback(lane.close)
        budget = None if limits.millicredits is None else Budget(limits.millicredits, spent)
        at_once = {work: each.calls_at_once * len(lanes) for work, each in opened.throughputs.items()}
        queue = Queue(plan, backend, budget, at_once)
        if isinstance(folder, RemoteFolder) and not opened.repeats_free_s:
            # Two groups of calls have intents and wait at most, so they have half of the calls in flight.
            width = -(-sum((limits.calls or {}).get(lane.name) or DEFAULT_WIDTH for lane in lanes) // 2)
            queue = IntentQueue(
                plan, backend, budget, at_once, folder=folder, numbers=numbers, header=header, width=width
            )
            queue.may_send = lease.is_valid
        engine = Engine(
            backend,
            opened,
            options,
            queue,
            lanes,
            progress,
            manifest.run_id,
            folder,
            journal,
            ledger=None,
            cache=None if manifest.cache is None else open_cache(manifest.cache),
            budget=budget,
            update_budget=None,
            had_answers=limits.had_answers,
        )
        watching = asyncio.create_task(_watch(lease, engine, progress, total))
        try:
            await _run_to_end(engine)
        finally:
            watching.cancel()
        await asyncio.to_thread(shards.remove_intents, folder, block)
        error = queue.stopped_by
        outcomes = progress.read_outcomes_since(0)[0]
        for sent in filter(None, [error, *(outcome.error for outcome in outcomes)]):
            # Some executors pickle the context of an error, too. The driver needs only the error itself.
            sent.__cause__ = sent.__context__ = sent.__traceback__ = None
        missing = error.needed_credits if isinstance(error, BudgetExceeded) else 0.0
        return Report(
            read_progress(progress, total),
            outcomes,
            round(missing * MILLICREDITS_PER_CREDIT),
            folder.list_numbers(parts.ATTEMPTS_FOLDER, block),
            None if queue.stopped is None else queue.stopped.value,
            error,
            time.monotonic() - began,
            progress.ended - len(ended),
            progress.balance,
            notes,
            _find_learned(lanes, limits),
        )


def _make_lanes(opened: Opened, limits: ShardLimits) -> list[Lane]:
    """Return the lanes of a shard, with the part of their limits that this worker may use."""
    most, shared = compute_max_calls(len(opened.lanes)), make_shared_folder()
    if limits.calls is None:
        return [Lane(spec, None, shared, most=most) for spec in opened.lanes]
    calls = limits.calls
    return [Lane(spec, calls[spec.name], shared, most=most) for spec in opened.lanes if spec.name in calls]


def _find_learned(lanes: Sequence[Lane], limits: ShardLimits) -> dict[str, int]:
    """Return the limits of lanes that refused calls, or whose limit was to be learned."""
    return {
        lane.name: lane.limit_here
        for lane in lanes
        if lane.has_refused or (limits.calls is not None and limits.calls[lane.name] is None)
    }


async def _run_to_end(engine: Engine) -> None:
    """Run the engine. After a cancellation, such as SIGTERM, end as an ordinary run does."""
    task = asyncio.create_task(engine.run())
    drain = True
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            engine.stop(drain=drain, reason=StopReason.STOPPED)
            drain = False
    task.result()


async def _make_backend(job: Job) -> Backend:
    """Return the backend of a run, with the settings of this worker."""
    maker: Any = job.backend
    settings: Settings | None = None
    if issubclass(maker, ServiceBackend):
        settings = resolve_settings(**job.settings)
        if job.is_local:
            settings = (await asyncio.to_thread(get_shared_service, settings.service)).settings
    constants = read_run(job.address, {}).constants
    made: Backend = maker.from_constants(settings, constants)
    return made


def _check_service(job: Job, manifest: Manifest, backend: Backend, opened: Opened) -> None:
    """Raise an error if this worker uses another service or another key than the run."""
    if backend.service != manifest.service:
        raise RunMismatch(
            f"a worker uses the service {backend.service}, the run uses {manifest.service}: install the same "
            "engines and voices there"
        )
    if not job.is_local and opened.key_fingerprint != job.key_fingerprint:
        raise SettingsError("a worker has another API key than the run: set SPEECHFRAME_API_KEY there")


def _plan_shard(
    folder: Folder, manifest: Manifest, shard: Shard, opened: Opened, job: Job
) -> tuple[Plan, list[Outcome], int, float]:
    """Return the plan of calls to make, the outcomes so far, their spending, and their audio in seconds.

    The outcomes are those of earlier workers that died or ended early. The spending is in thousandths of a
    credit.
    """
    keys, todo, records = make_key_array(shard.keys), shard.todo.copy(), dict(shard.failed_records)
    waits, in_packs = dict(shard.waits), shard.in_packs
    prepared = Prepared(folder, manifest, folder, manifest.table, bytearray(shard.keys), shard.prices)
    none = np.zeros(len(todo), dtype=bool)
    statuses: dict[str, str] = {}
    spent, audio_seconds = 0, 0.0
    if folder.list_numbers(parts.ATTEMPTS_FOLDER, shard.block):
        ended = find_ended(folder, keys, opened, job.options, shard.block)
        often = parts.count_interruptions(folder, shard.block)
        given_up = [key for key, count in often.items() if count >= MAX_INTERRUPTIONS]
        is_kept = ended.is_kept | mark_known_keys(keys, given_up)
        is_kept &= ~ended.is_done
        records |= ended.failed_records
        waits |= find_wait_ends(ended.failures)
        again = [key for key, row in ended.failed_records.items() if row[PACK] is not None]
        in_packs = in_packs | mark_known_keys(keys, again)
        index = ended.snapshot.index
        for row in np.flatnonzero(todo & (ended.is_done | is_kept)).tolist():
            key = keys[row].as_py().hex()
            known = index.get_statuses(index.find([key]))[0].as_py()
            statuses[key] = CHARGED_UNKNOWN if is_kept[row] else known
        columns = ["time", "audio_seconds", *AMOUNT_COLUMNS]
        attempts = read_ledger(read_snapshot(folder, within=shard.block), columns)
        spent = sum_millicredits(attempts)
        audio_seconds = pc.sum(attempts.column("audio_seconds")).as_py() or 0.0
    is_ended = todo & mark_known_keys(keys, statuses)
    todo &= ~is_ended
    free = todo & mark_known_keys(keys, records)
    plan = Plan(
        prepared, keys, todo, free, none, records, in_packs, waits, groups=shard.groups, sharers=shard.sharers
    )
    outcomes = [
        Outcome(request.row_id, request.key, statuses[request.key], 0)
        for request in plan.read_requests(is_ended)
    ]
    return plan, outcomes, spent, audio_seconds


class _Lease:
    """The right of a worker to make its shard.

    It ends if the driver dies or gives an order, or if another process claims the same shard later.
    """

    def __init__(self, folder: Folder, job: Job, numbers: range) -> None:
        self.folder, self.numbers, self._job = folder, numbers, job
        self.tick_s = REMOTE_TICK_S if isinstance(folder, RemoteFolder) else TICK_S
        self._looked_s = time.monotonic()

    def look(self) -> bytes | None:
        """Return the order of the driver, or `DRAIN` if the lease has ended, or None."""
        started_s = time.monotonic()
        order = shards.read_order(self.folder, self._job.holder)
        if order is None and shards.is_superseded(self.folder, self.numbers):
            order = shards.DRAIN
        self._looked_s = started_s
        return order

    async def is_valid(self) -> bool:
        """Return whether calls may be sent. Look again first if the last look was long ago.

        This process may have been paused for long, and another worker may make the shard now.
        """
        if time.monotonic() - self._looked_s < 2 * self.tick_s:
            return True
        return await asyncio.to_thread(self.look) is None


async def _watch(lease: _Lease, engine: Engine, progress: Progress, total: int) -> None:
    """Write the counters of the shard for the driver, until cancelled. Stop the engine if the lease ends."""
    while True:
        await asyncio.sleep(lease.tick_s)
        order = None
        with contextlib.suppress(OSError, StoreError):  # the next look follows soon
            order = await asyncio.to_thread(lease.look)
        if order is not None:
            engine.stop(drain=order == shards.DRAIN, reason=StopReason.STOPPED)
        counters = read_progress(progress, total)
        await asyncio.to_thread(shards.write_counters, lease.folder, lease.numbers, counters)
