"""Hands the rows of a run out to workers as shards. A worker makes one shard at a time.

The driver is the process that planned the run. It holds the run's lock, its budget and its ledger (the table
of all attempts). A worker gets a share of the limit on calls in flight, and a part of the budget.
"""

import asyncio
import contextlib
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from speechframe._version import __version__
from speechframe.batch.backend import Backend, LaneSpec, Opened, Request
from speechframe.batch.engine import CallMaker
from speechframe.batch.options import Options
from speechframe.errors import (
    ConnectionFailed,
    RunLocked,
    SettingsError,
    SpeechframeError,
    StoreError,
    Unavailable,
)
from speechframe.local.start import is_shared_service
from speechframe.scale.shard import (
    DEFAULT_WIDTH,
    Job,
    Report,
    Shard,
    ShardLimits,
    add_counters,
    cut_shard,
    read_progress,
)
from speechframe.scale.worker import run_shard
from speechframe.settings import Settings
from speechframe.store import parts, shards
from speechframe.store.folder import Folder, convert_os_errors
from speechframe.store.journal import load_json
from speechframe.store.records import find_group_starts, read_known_spending
from speechframe.store.remote import RemoteFolder
from speechframe.store.schema import TAGS, StopReason
from speechframe.store.verify import CLIPS_FOLDER

TICK_S, REMOTE_TICK_S = 0.5, 5.0
"""Seconds between two looks at the counters of the workers, on a disk and at an address."""
FIRST_ROUNDS, SHARD_S, MAX_SHARD_ROWS = 4, 60.0, 20_000
"""The first shards have `FIRST_ROUNDS` rows for each call in flight of a worker. Later shards should take
about `SHARD_S` seconds. No shard has more than `MAX_SHARD_ROWS` rows."""
FIRST_UNKNOWN_ROWS = 500
"""Number of rows of a first shard whose worker learns the limit on calls in flight."""
LONGEST_DISCONNECTION_S = 20.0
"""A run ends once its executor has had no connection for this number of seconds."""
MAX_TRIES = 5
"""A run ends once this number of workers died or failed while they made the same shard."""
_SHARED_SETTINGS = ("base_url", "regions", "region_urls", "profile", "allow_http", "trust_env", "ca_file")
"""Settings that workers get. They read the keys themselves."""


@dataclass
class _HeldShard:
    """Rows of one shard. They are handed out again until all are made, because workers may die."""

    places: npt.NDArray[np.int64]  # positions of its rows in the table
    price: int  # price of the calls still to make, in thousandths of a credit
    tags: Mapping[str, str]  # tags of its rows, if a budget counts tags
    shard: Shard | None = None  # set when the rows are first handed out
    tries: int = 0  # number of times that the shard was handed out
    spent: int = 0  # spending so far, in thousandths of a credit
    request: Request = field(default_factory=partial(Request, b"", b"", 0))  # reservation in the budget
    reported: set[str] = field(default_factory=set)  # keys whose outcomes are reported
    slot: int = 0  # number of the share of the limits that the shard uses now


@dataclass(eq=False, repr=False, kw_only=True)
class Driver(CallMaker):
    """Makes the calls of a run with the workers of an executor. It has no lanes, because the workers have."""

    executor: Executor
    is_connected: Callable[[], bool]
    workers: int
    maker: type[Backend] | bytes  # the backend's class, or the pickled backend before it is opened

    def __post_init__(self) -> None:
        folder, options, opened, self._plan = self.folder, self.options, self.opened, self.queue.plan
        self._connected_s = time.monotonic()
        self._tick_s = REMOTE_TICK_S if isinstance(folder, RemoteFolder) else TICK_S
        _refuse_files_at_address(folder, self.backend)
        settings = options.service if isinstance(options.service, Settings) else None
        is_local = has_own_services(opened, options)
        shared = {} if is_local else {name: getattr(settings, name, None) for name in _SHARED_SETTINGS}
        job = Job(
            str(folder.path),
            folder.describe_lock(),
            self.maker,
            # A read-only mapping cannot be pickled.
            {k: dict(v) if isinstance(v, Mapping) else v for k, v in shared.items() if v},
            replace(
                options,
                service=None,
                executor=None,
                on_alert=None,
                run_dir=str(folder.path),
                tags={},
                progress=False,
            ),
            self.journal.header,
            opened.key_fingerprint,
            is_local,
        )
        self._job = pickle.dumps(job)
        at_once = [each.calls_at_once for each in opened.throughputs.values()]
        self._local_width = max(at_once, default=DEFAULT_WIDTH)  # calls at once of a worker's own service
        self._tags: list[dict[str, str]] = []  # different tags of the rows, if a budget counts tags
        self._tag_codes: npt.NDArray[np.int32] = np.empty(0, np.int32)  # for each row, its place in `_tags`
        self._shares = _Shares(opened.lanes, self.workers, options.max_concurrency, is_local=is_local)
        self._counters: dict[int, Mapping[str, Any]] = {}  # counters by shard
        self._rows_per_s = 0.0
        self._rest: npt.NDArray[np.int64] = np.empty(0, np.int64)  # rows that are in no shard yet
        self._number = 0  # first segment number of the next shard
        self._is_used_up = False

    def stop(self, *, drain: bool, reason: StopReason) -> None:
        """Hand out no more shards, and order the workers to end.

        With `drain`, workers let the calls under way finish. Without `drain`, or if the calls are long,
        workers cancel these calls.
        """
        self.queue.stop(reason)
        shards.write_order(self.folder, shards.DRAIN if drain and not self.backend.is_long else shards.NOW)

    async def run(self) -> None:
        """Make the calls, and return once all shards have ended.

        SpeechframeError is raised if the executor fails, or if a worker cannot make calls at all.
        """
        await asyncio.to_thread(self._begin)
        plan = self._plan
        self._rest = np.flatnonzero(plan.todo & ~plan.in_packs)
        waiting: deque[_HeldShard] = deque()
        if len(packs := np.flatnonzero(plan.todo & plan.in_packs)):
            # The rows of a pack must be in one shard. They are paid already.
            waiting.append(_HeldShard(packs, self._price_of(packs), {}))
        under_way: dict[asyncio.Future[Report], _HeldShard] = {}
        try:
            while under_way or ((waiting or len(self._rest)) and self.queue.stopped is None):
                await self._hand_out(waiting, under_way)
                if not under_way:
                    break
                await asyncio.wait(under_way, timeout=self._tick_s, return_when=asyncio.FIRST_COMPLETED)
                self._check_connection()
                self._counters |= await asyncio.to_thread(shards.read_counters, self.folder)
                self._show_counters()
                for future in [future for future in under_way if future.done()]:
                    task = under_way.pop(future)
                    self._shares.free.add(task.slot)
                    if (again := await self._note_end(future, task)) is not None:
                        waiting.append(again)
        except BaseException as error:
            await asyncio.to_thread(self.stop, drain=True, reason=StopReason.FAILED)
            for future in under_way:
                future.cancel()
            if self.ledger is not None:
                with contextlib.suppress(SpeechframeError):
                    await asyncio.to_thread(parts.copy_to_ledger, self.folder, self.ledger)
            if isinstance(error, SpeechframeError) or not isinstance(error, Exception):
                raise
            raise SpeechframeError(
                f"the executor failed ({type(error).__name__}: {error}). All answers are kept: "
                "resume(run, executor=...) goes on with a new executor, and resume(run) in this process"
            ) from error
        self._show_counters()
        await asyncio.to_thread(shards.clear_messages, self.folder)
        self._end(waiting)

    def _check_connection(self) -> None:
        """Raise ConnectionError if the executor has had no connection for a while."""
        if self.is_connected():
            self._connected_s = time.monotonic()
        elif time.monotonic() - self._connected_s > LONGEST_DISCONNECTION_S:
            raise ConnectionError("its client has no connection to its scheduler")

    def _begin(self) -> None:
        """Convert the journal of this process to Parquet, and find the first segment number of the shards."""
        number = self.journal.close()
        parts.convert_segment(self.folder, number, self.backend.columns, self.ledger)
        self._number = shards.find_first_block(self.folder)
        self._before = read_progress(self.progress, 0)
        shards.clear_messages(self.folder)  # of an earlier driver
        self._find_tags()
        plan = self._plan
        source = plan.prepared.table_folder.get_source(plan.prepared.entry.file)
        with convert_os_errors(self.folder, "reading the table"), pq.ParquetFile(source) as file:
            self._group_starts = find_group_starts(file)

    def _end(self, waiting: Iterable[_HeldShard]) -> None:
        """End the queue. Set the budget as its reason if the budget does not suffice for the rows left."""
        if self._is_used_up and self.budget is not None:
            rest = sum(task.price for task in waiting) + self._price_of(self._rest)
            self.queue.stop(StopReason.BUDGET, self.budget.explain_refusal(rest))
        elif self.queue.stopped is None:
            self.queue.end()

    # -- hand out ------------------------------------------------------------------------

    async def _hand_out(
        self, waiting: deque[_HeldShard], under_way: "dict[asyncio.Future[Report], _HeldShard]"
    ) -> None:
        """Send shards to the executor, while a share of the limits and a part of the budget are free."""
        while self.queue.stopped is None and (slot := self._shares.find_free()) is not None:
            if not len(self._rest) and (self._is_used_up or not waiting):
                return
            calls = self._shares.get_calls(slot)
            if waiting and not self._is_used_up:
                task = waiting.popleft()
            else:
                task = self._take_rows(calls, under_way.values())
            if task.shard is None:
                task.shard = await asyncio.to_thread(
                    cut_shard, self._plan, self._number, task.places, self._group_starts
                )
                self._number += shards.BLOCK_NUMBERS
            if not self._reserve(task, is_alone=not under_way):
                waiting.appendleft(task)
                return
            task.slot, task.tries = slot, task.tries + 1
            self._shares.free.remove(slot)
            limit = None if self.budget is None else task.spent + task.request.price
            # In a thread, because a pool may fork a worker here.
            future = await asyncio.to_thread(
                self.executor.submit,
                run_shard,
                __version__,
                self._job,
                task.shard,
                ShardLimits(calls, limit, self.had_answers),
            )
            if not isinstance(future, Future):
                raise SettingsError("submit() of the executor must return a concurrent.futures.Future")
            under_way[asyncio.wrap_future(future)] = task

    def _take_rows(self, calls: Mapping[str, int | None] | None, others: Iterable[_HeldShard]) -> _HeldShard:
        """Take the next rows of the table: few at first, then enough for about `SHARD_S` seconds.

        No worker gets more than an equal share of the rows left, so that all workers end together.
        """
        learns = calls is not None and None in calls.values()
        width = self._local_width if calls is None else sum(each or DEFAULT_WIDTH for each in calls.values())
        left = len(self._rest)
        for task in others:
            done = self._counters.get(task.shard.number if task.shard else 0, {}).get("done", 0)
            left += max(0, len(task.places) - done)
        first = FIRST_UNKNOWN_ROWS if learns else FIRST_ROUNDS * width
        size = max(first, int(self._rows_per_s * SHARD_S))
        size = min(size, max(1, -(-left // self._shares.count)), MAX_SHARD_ROWS)
        chosen, tags = np.arange(min(size, len(self._rest))), {}
        if self._tags:
            # A shard has rows with equal tags, so that its budget is that of these tags.
            codes = self._tag_codes[self._rest]
            chosen, tags = np.flatnonzero(codes == codes[0])[:size], self._tags[codes[0]]
        places, self._rest = self._rest[chosen], np.delete(self._rest, chosen)
        return _HeldShard(places, self._price_of(places), tags)

    def _price_of(self, places: npt.NDArray[np.int64]) -> int:
        """Return the price of the unpaid calls of some rows, in thousandths of a credit."""
        return int(self._plan.prepared.prices[places[~self._plan.already_paid[places]]].sum())

    # -- the budget -----------------------------------------------------------------------

    def _reserve(self, task: _HeldShard, *, is_alone: bool) -> bool:
        """Reserve the price of a task, and return whether the task may be handed out.

        If the budget is too small, the task waits for other tasks, which may cost less than reserved. With
        `is_alone` no other task is under way, so the task gets the part of its price that is left. If nothing
        is left, only rows that cost nothing are handed out from now on.
        """
        if self.budget is None:
            return True
        request = Request(b"", b"", task.price, facts={"tags": task.tags})
        if is_alone:
            request = replace(request, price=min(task.price, self.budget.compute_left(request)))
        while not self.budget.reserve(request, request.price):
            if not is_alone:
                return False  # wait for the tasks under way, because they may cost less than reserved
            request = replace(request, price=request.price // 2)  # another run was faster
        if task.price and not request.price:
            self._is_used_up = True
            self._rest = self._rest[self._plan.already_paid[self._rest]]
        task.request = request
        return True

    def _find_tags(self) -> None:
        """Read the tags of all rows as codes, if a budget counts tags."""
        if self.budget is not None and self.budget.counts_tags:
            plan = self._plan
            source = plan.prepared.table_folder.get_source(plan.prepared.entry.file)
            with convert_os_errors(self.folder, "reading the table"):
                tags: Any = pq.read_table(source, columns=[TAGS]).column(0).combine_chunks()
            encoded = tags.fill_null("{}").dictionary_encode()
            self._tag_codes = encoded.indices.to_numpy()
            self._tags = [load_json(each) for each in encoded.dictionary.to_pylist()]

    # -- the end of a shard ------------------------------------------------------------------

    async def _note_end(self, future: "asyncio.Future[Report]", task: _HeldShard) -> _HeldShard | None:
        """Note that a worker ended with a shard. Return the task if it must be handed out again."""
        shard = task.shard
        assert shard is not None  # noqa: S101 - it was handed out
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        await asyncio.to_thread(self._settle, task, shard)
        if error is not None:
            return await self._note_death(error, task)
        return await self._note_report(future.result(), task, shard)

    async def _note_report(self, report: Report, task: _HeldShard, shard: Shard) -> _HeldShard | None:
        """Add the report of a worker to the run. Return the task if it must be handed out again."""
        if self.ledger is not None and report.segments:
            await asyncio.to_thread(parts.copy_to_ledger, self.folder, self.ledger, report.segments)
        if self.update_budget is not None:
            await asyncio.to_thread(self.update_budget)
        if report.counters:
            self._counters[shard.number] = report.counters
        for note in report.notes:
            self.progress.note(note)
        self.progress.follow([each for each in report.outcomes if each.request_key not in task.reported])
        task.reported |= {each.request_key for each in report.outcomes}
        self.had_answers |= bool(report.counters.get("done") or report.counters.get("suspect"))
        self._shares.learn(task.slot, report.learned)
        self._rows_per_s = report.made / max(report.seconds, 0.1)
        if report.balance is not None:
            self.progress.balance = report.balance
        if report.reason == StopReason.BUDGET:
            # Retakes cost more than planned, or only a part was reserved. Try again if that paid some calls.
            task.price, task.tries = report.missing, 0
            self._is_used_up |= not report.made
            return task
        if report.reason == StopReason.STOPPED and self.queue.stopped is None:
            # Another worker superseded this one, or this worker does not see the driver's lock.
            if task.tries >= MAX_TRIES:
                raise StoreError(
                    f"{self.folder.path}: workers do not see the lock of this run: use a run_dir on a disk "
                    "with file locks, which all workers mount under the same path"
                )
            return task
        if report.reason is not None and self.queue.stopped is None:
            self.stop(drain=True, reason=StopReason(report.reason))
            self.queue.stopped_by = report.error
        return None

    async def _note_death(self, error: BaseException, task: _HeldShard) -> _HeldShard:
        """Return the task of a worker that died or could not begin, for another worker.

        The error is raised if another worker would fail in the same way, or after `MAX_TRIES` tries.
        """
        if isinstance(error, RunLocked):
            # An earlier worker was taken for dead, but it still makes the shard. Do not count this try.
            task.tries -= 1
            await asyncio.sleep(1.0)
        elif task.tries >= MAX_TRIES or (
            isinstance(error, SpeechframeError | BrokenExecutor)
            and not isinstance(error, ConnectionFailed | Unavailable)
        ):
            raise error
        else:
            self.progress.note(f"a worker failed ({type(error).__name__}: {error}): another worker goes on")
        return task

    def _settle(self, task: _HeldShard, shard: Shard) -> None:
        """Replace the reservation of a shard in the budget by its spending."""
        if self.budget is None:
            return
        spent = read_known_spending(self.folder, shard.block)
        self.budget.settle(task.request, task.request.price, [spent - task.spent])
        task.price = max(0, task.price - (spent - task.spent))
        task.spent, task.request = spent, Request(b"", b"", 0)

    def _show_counters(self) -> None:
        """Show the sums of the counters of all shards."""
        add_counters(self.progress, self._counters, self._before)
        self.progress.redraw()


def has_own_services(opened: Opened, options: Options) -> bool:
    """Return whether each worker starts a local service of its own.

    If the user named the address of a local service, the workers use this service.
    """
    service = options.service
    return opened.is_local and (not isinstance(service, Settings) or is_shared_service(service))


class _Shares:
    """Divides the limits on calls in flight into numbered shares, one for each worker."""

    def __init__(self, lanes: Sequence[LaneSpec], workers: int, most: int | None, *, is_local: bool) -> None:
        self.count, self.free = workers, set(range(workers))  # `free` are those that no shard uses
        known = {lane.name: [each for each in (lane.published, most) if each] for lane in lanes}
        self._fallbacks = {lane.name for lane in lanes if lane.is_fallback}
        self._caps: dict[str, int | None] = {name: min(caps, default=None) for name, caps in known.items()}
        # Each worker has a local service of its own, with limits of its own.
        self._is_unlimited = is_local and most is None
        self._lowered: dict[tuple[int, str], int] = {}  # limits by share and lane, after refused calls

    def find_free(self) -> int | None:
        """Return the number of a free share with calls, or None. Fewer calls than workers may be allowed."""
        return next((share for share in sorted(self.free) if self.get_calls(share) != {}), None)

    def get_calls(self, share: int) -> dict[str, int | None] | None:
        """Return the largest number of calls in flight by lane for a share. See :class:`ShardLimits`.

        The dict is empty if the share must not make calls.
        """
        if self._is_unlimited:
            return None
        found: dict[str, int | None] = {}
        ordinary = [lane for lane in self._caps if lane not in self._fallbacks]
        for lane, cap in self._caps.items():
            place = ordinary.index(lane) if lane in ordinary else 0
            if cap is None:
                # One worker alone learns the limit of a lane.
                if place % self.count == share:
                    found[lane] = None
            elif calls := cap // self.count + (share < cap % self.count):
                found[lane] = min(calls, self._lowered.get((share, lane), calls))
        # A worker with the fall-back lane alone would use it while the other lanes work.
        return found if found.keys() - self._fallbacks else {}

    def learn(self, share: int, learned: Mapping[str, int]) -> None:
        """Note the limits of lanes that a worker with this share learned. See :attr:`Report.learned`."""
        for lane, limit in learned.items():
            if self._caps[lane] is None:
                self._caps[lane] = limit
            else:
                self._lowered[share, lane] = max(1, limit)


def _refuse_files_at_address(folder: Folder, backend: Backend) -> None:
    """Raise SettingsError if workers would need files that lie only on this machine."""
    has_files = backend.leaves_files or any((folder.work / CLIPS_FOLDER).glob("*"))
    if isinstance(folder, RemoteFolder) and has_files:
        raise SettingsError(
            f"executor= cannot make this {backend.operation} run at {folder.path}, because its clips or "
            "results are files on this machine: use a run_dir on a shared disk"
        )
