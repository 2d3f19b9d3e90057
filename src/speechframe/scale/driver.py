"""Hands the rows of a run out to workers as shards, one shard at a time for each worker.

The driver is the process that planned the run. It holds the run's lock, its budget and its ledger (the table
of all attempts). A worker gets a share of the limit on calls in flight, and a part of the budget.
"""

import asyncio
import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from speechframe._version import __version__
from speechframe.batch.backend import Backend, LaneSpec, Opened, Request
from speechframe.batch.budget import Budget
from speechframe.batch.lanes import Lane
from speechframe.batch.options import Options
from speechframe.batch.progress import Progress
from speechframe.batch.queue import Queue
from speechframe.errors import RunLocked, SettingsError, SpeechframeError
from speechframe.local.start import is_shared_service
from speechframe.scale.shard import DEFAULT_WIDTH, Job, Report, Shard, ShardLimits, add_counters, cut_shard
from speechframe.scale.worker import run_shard
from speechframe.settings import Settings
from speechframe.store import parts, shards
from speechframe.store.cache import Cache
from speechframe.store.folder import Folder, convert_os_errors
from speechframe.store.journal import Journal, load_json
from speechframe.store.ledger import AMOUNT_COLUMNS, Ledger, compute_billed_millicredits
from speechframe.store.records import find_group_starts, read_ledger, read_snapshot, sum_millicredits
from speechframe.store.remote import RemoteFolder
from speechframe.store.schema import KEY_BYTES, TAGS, StopReason
from speechframe.store.verify import CLIPS_FOLDER

TICK_S, REMOTE_TICK_S = 0.5, 5.0
"""Seconds between two looks at the counters of the workers, on a disk and at an address."""
FIRST_ROUNDS, SHARD_S, MAX_SHARD_ROWS = 4, 60.0, 20_000
"""A first shard has `FIRST_ROUNDS` rows for each call in flight. Later shards take about `SHARD_S` seconds.
They have at most `MAX_SHARD_ROWS` rows."""
FIRST_UNKNOWN_ROWS = 500
"""Number of rows of a first shard that learns the limit on calls in flight."""
MAX_TRIES = 5
"""A run ends once this number of workers died while they made the same shard."""
_SHARED_SETTINGS = ("base_url", "regions", "region_urls", "profile", "allow_http", "trust_env", "ca_file")
"""Settings that workers get. They read the keys themselves."""
_DRIVERS_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {"service": None, "executor": None, "on_alert": None, "tags": {}, "progress": False}
)
"""Options that workers do not get."""


@dataclass
class _HeldShard:
    """A shard that is handed out until its rows are made."""

    places: npt.NDArray[np.int64]  # positions of its rows in the table
    price: int  # price of the calls still to make, in thousandths of a credit
    shard: Shard | None = None  # set when the task is first handed out
    tries: int = 0
    spent: int = 0  # spending so far, in thousandths of a credit
    request: Request = field(default_factory=partial(Request, b"", b"", 0))  # reservation in the budget
    tag_prices: Counter[str] = field(default_factory=Counter)  # by tags as JSON, if a budget counts tags
    spent_by_tags: Counter[str] = field(default_factory=Counter)
    slot: int = 0  # number of the share of the limits that it uses now


class Driver:
    """Makes the calls of a run with the workers of an executor. It takes the place of an engine."""

    def __init__(
        self,
        backend: Backend,
        opened: Opened,
        queue: Queue,
        lanes: Sequence[Lane],
        budget: Budget | None,
        *,
        executor: Executor,
        workers: int,
        maker: type[Backend] | bytes,
        folder: Folder,
        journal: Journal,
        run_id: str,
        cache: Cache | None,
        progress: Progress,
        options: Options,
        ledger: Ledger | None,
        update_budget: Callable[[], None] | None,
    ) -> None:
        del lanes, run_id, cache  # the workers have lanes and read the other two from run.json
        self._backend, self._queue, self._plan, self._budget = backend, queue, queue.plan, budget
        self._folder, self._journal, self._ledger, self._progress = folder, journal, ledger, progress
        self._executor, self._update_budget = executor, update_budget
        self._tick_s = REMOTE_TICK_S if isinstance(folder, RemoteFolder) else TICK_S
        _refuse_files_at_address(folder, backend)
        settings = options.service if isinstance(options.service, Settings) else None
        # Each worker starts a local service of its own, unless the user named the address of one.
        is_local = opened.is_local and (settings is None or is_shared_service(settings))
        shared = {} if is_local else {name: getattr(settings, name, None) for name in _SHARED_SETTINGS}
        job = Job(
            str(folder.path),
            folder.describe_lock(),
            maker,
            {name: _make_plain(value) for name, value in shared.items() if value},
            replace(
                options,
                service=None,
                executor=None,
                on_alert=None,
                run_dir=str(folder.path),
                tags={},
                progress=False,
            ),
            journal.header,
            opened.key_fingerprint,
            is_local,
        )
        self._job = pickle.dumps(job)
        self._total, self._spent_before = progress.total, progress.credits_millis
        self._shares = _Shares(opened.lanes, workers, options.max_concurrency, is_local=is_local)
        self._counters: dict[int, Mapping[str, Any]] = {}  # counters by shard
        self._rows_per_s = 0.0
        self._rest: npt.NDArray[np.int64] = np.empty(0, np.int64)  # rows that are in no shard yet
        self._number = 0  # first segment number of the next shard
        self._is_used_up = False

    def stop(self, *, drain: bool, reason: StopReason) -> None:
        """Hand out no more shards. Workers end after the calls under way, or without `drain` at once."""
        self._queue.stop(reason)
        shards.write_order(self._folder, shards.DRAIN if drain and not self._backend.is_long else shards.NOW)

    async def run(self) -> None:
        """Make the calls, and return once all shards have ended.

        SpeechframeError is raised if the executor fails, or if a worker cannot make calls at all.
        """
        await asyncio.to_thread(self._begin)
        plan = self._plan
        self._rest = np.flatnonzero(plan.todo & ~plan.in_packs)
        waiting: deque[_HeldShard] = deque()
        if len(packs := np.flatnonzero(plan.todo & plan.in_packs)):
            waiting.append(self._make_task(packs))  # the rows of a pack must be in one shard
        under_way: dict[asyncio.Future[Report], _HeldShard] = {}
        try:
            while under_way or ((waiting or len(self._rest)) and self._queue.stopped is None):
                await self._hand_out(waiting, under_way)
                if not under_way:
                    break
                await asyncio.wait(under_way, timeout=self._tick_s, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.to_thread(self._read_counters)
                self._show_counters()
                for future in [future for future in under_way if future.done()]:
                    task = under_way.pop(future)
                    self._shares.give_back(task.slot)
                    if (again := await self._note_end(future, task)) is not None:
                        waiting.append(again)
        except BaseException as error:
            await asyncio.to_thread(self.stop, drain=True, reason=StopReason.FAILED)
            for future in under_way:
                future.cancel()
            if isinstance(error, SpeechframeError) or not isinstance(error, Exception):
                raise
            raise SpeechframeError(
                f"the executor failed ({type(error).__name__}: {error}). All answers are kept: "
                "resume(run, executor=...) goes on with a new executor, and resume(run) in this process"
            ) from error
        self._show_counters()
        await asyncio.to_thread(shards.clear_messages, self._folder)
        self._end(waiting)

    def _begin(self) -> None:
        """Convert the segment of this process, and find the first numbers of shards."""
        number = self._journal.close()
        parts.convert_segment(self._folder, number, self._backend.columns, self._ledger)
        self._number = shards.get_block(parts.find_next_number(self._folder)).stop
        shards.write_order(self._folder, None)
        plan = self._plan
        source = plan.prepared.table_folder.get_source(plan.prepared.entry.file)
        with convert_os_errors(self._folder, "reading the table"), pq.ParquetFile(source) as file:
            self._group_starts = find_group_starts(file)

    def _end(self, waiting: Iterable[_HeldShard]) -> None:
        """Set the reason of an early end, if rows are left."""
        if self._is_used_up and self._budget is not None:
            rest = sum(task.price for task in waiting) + self._price_of(self._rest)
            self._queue.stop(StopReason.BUDGET, self._budget.explain_refusal(rest))
        elif self._queue.stopped is None:
            self._queue.end()

    # -- hand out ------------------------------------------------------------------------

    async def _hand_out(
        self, waiting: deque[_HeldShard], under_way: "dict[asyncio.Future[Report], _HeldShard]"
    ) -> None:
        """Send shards to the executor, as long as a share of the limits and a part of the budget is free."""
        while self._queue.stopped is None and (slot := self._shares.find_free()) is not None:
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
                task.tag_prices = await asyncio.to_thread(self._sum_prices_by_tags, task.shard)
            if not self._reserve(task, is_alone=not under_way):
                waiting.appendleft(task)
                return
            task.slot, task.tries = slot, task.tries + 1
            self._shares.take(slot)
            limit = None if self._budget is None else task.spent + task.request.price
            # In a thread, because a pool may fork a worker here.
            future = await asyncio.to_thread(
                self._executor.submit,
                run_shard,
                __version__,
                self._job,
                task.shard,
                ShardLimits(calls, limit),
            )
            under_way[asyncio.wrap_future(future)] = task

    def _take_rows(self, calls: Mapping[str, int | None] | None, others: Iterable[_HeldShard]) -> _HeldShard:
        """Take the next rows of the table: few at first, then those of a minute or of a fair share."""
        learns = calls is not None and None in calls.values()
        width = sum(each or DEFAULT_WIDTH for each in (calls or {"": None}).values())
        left = len(self._rest)
        for task in others:
            done = self._counters.get(task.shard.number if task.shard else 0, {}).get("done", 0)
            left += max(0, len(task.places) - done)
        first = FIRST_UNKNOWN_ROWS if learns else FIRST_ROUNDS * width
        size = max(first, int(self._rows_per_s * SHARD_S))
        size = min(size, max(1, -(-left // self._shares.count)), MAX_SHARD_ROWS)
        places, self._rest = self._rest[:size], self._rest[size:]
        return self._make_task(places)

    def _make_task(self, places: npt.NDArray[np.int64]) -> _HeldShard:
        return _HeldShard(places, self._price_of(places))

    def _price_of(self, places: npt.NDArray[np.int64]) -> int:
        """Return the price of the unpaid calls of some rows, in thousandths of a credit."""
        return int(self._plan.prepared.prices[places[~self._plan.already_paid[places]]].sum())

    # -- the budget -----------------------------------------------------------------------

    def _reserve(self, task: _HeldShard, *, is_alone: bool) -> bool:
        """Reserve the price of a task, or a part of it if no other task could free more of the budget.

        If nothing is left, only rows that cost nothing are handed out from now on.
        """
        if self._budget is None:
            return True
        request = self._make_reservation(task, min(task.price, self._budget.left or task.price))
        while not self._budget.reserve(request, request.price):
            if not is_alone:
                return False  # wait for the tasks under way, because they may cost less than reserved
            if request.price <= 1:
                self._is_used_up = True
                self._rest = self._rest[self._plan.already_paid[self._rest]]
                request = Request(b"", b"", 0)
                break
            request = self._make_reservation(task, request.price // 2)
        task.request = request
        return True

    def _make_reservation(self, task: _HeldShard, price: int) -> Request:
        """Return a part of a task's price as one request, with a part for each set of tags of its rows."""
        whole = task.tag_prices.total()
        made = [
            Request(b"", b"", price * each // whole, facts={"tags": load_json(tags)})
            for tags, each in task.tag_prices.items()
            if each
        ]
        return Request(b"", b"", sum(part.price for part in made) if made else price, parts=tuple(made))

    def _sum_prices_by_tags(self, shard: Shard) -> Counter[str]:
        """Return the price of a shard's calls by the tags of their rows. Empty if no budget counts tags."""
        found: Counter[str] = Counter()
        if self._budget is not None and self._budget.counts_tags:
            plan, free = self._plan, set(shard.failed_records)
            source = plan.prepared.table_folder.get_source(plan.prepared.entry.file)
            with convert_os_errors(self._folder, "reading the table"), pq.ParquetFile(source) as file:
                tags = file.read_row_groups(shard.groups, columns=[TAGS]).column(0).to_pylist()
            for row in np.flatnonzero(shard.todo).tolist():
                key = shard.keys[row * KEY_BYTES : (row + 1) * KEY_BYTES].hex()
                found[tags[row] or "{}"] += 0 if key in free else int(shard.prices[row])
        return found

    # -- the end of a shard ------------------------------------------------------------------

    async def _note_end(self, future: "asyncio.Future[Report]", task: _HeldShard) -> _HeldShard | None:
        """Note the end of a shard. Return its task if it must be handed out again."""
        shard = task.shard
        assert shard is not None  # noqa: S101 - it was handed out
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        await asyncio.to_thread(self._settle, task, shard)
        if error is not None:
            return await self._note_death(error, task)
        report = future.result()
        if self._ledger is not None and report.segments:
            await asyncio.to_thread(parts.copy_to_ledger, self._folder, self._ledger, report.segments)
        if self._update_budget is not None:
            await asyncio.to_thread(self._update_budget)
        if report.counters:
            self._counters[shard.number] = report.counters
        for note in report.notes:
            self._progress.note(note)
        self._progress.follow(report.outcomes)
        self._shares.learn(task.slot, report.learned)
        self._rows_per_s = report.made / max(report.seconds, 0.1)
        if report.balance is not None:
            self._progress.balance = report.balance
        if report.reason == StopReason.BUDGET:
            # Retakes cost more than planned, or only a part was reserved. Try again if the part was of use.
            task.price = report.missing
            self._is_used_up |= not report.made
            return task
        if report.reason is not None and self._queue.stopped is None:
            self.stop(drain=True, reason=StopReason(report.reason))
            self._queue.stopped_by = report.error
        return None

    async def _note_death(self, error: BaseException, task: _HeldShard) -> _HeldShard:
        """Note that a worker died or could not begin, and return the task for another worker."""
        if isinstance(error, RunLocked):
            # A worker that was taken for dead still makes the shard.
            task.tries -= 1
            await asyncio.sleep(1.0)
        elif isinstance(error, SpeechframeError | BrokenExecutor) or task.tries >= MAX_TRIES:
            raise error
        else:
            self._progress.note(f"a worker failed ({type(error).__name__}: {error}): another worker goes on")
        return task

    def _settle(self, task: _HeldShard, shard: Shard) -> None:
        """Book the spending of a shard in the budget."""
        if self._budget is None:
            return
        attempts = read_ledger(
            read_snapshot(self._folder, within=shard.block), ["time", "tags", *AMOUNT_COLUMNS]
        )
        spent = sum_millicredits(attempts)
        costs = [spent - task.spent]
        if task.request.parts:
            millicredits = compute_billed_millicredits(attempts).to_pylist()
            by_tags: Counter[str] = Counter()
            for tags, amount in zip(attempts.column("tags").to_pylist(), millicredits, strict=True):
                by_tags[_find_own_tags(tags, task.tag_prices)] += amount
            costs = [
                by_tags[tags] - task.spent_by_tags[tags] for tags, price in task.tag_prices.items() if price
            ]
            task.spent_by_tags = by_tags
        self._budget.settle(task.request, task.request.price, costs)
        task.price = max(0, task.price - (spent - task.spent))
        task.spent, task.request = spent, Request(b"", b"", 0)

    def _read_counters(self) -> None:
        """Read the counters of the shards under way."""
        self._counters |= shards.read_counters(self._folder)

    def _show_counters(self) -> None:
        """Show the sums of the counters of all shards."""
        add_counters(self._progress, self._counters, self._spent_before, self._total)
        self._progress.redraw()


class _Shares:
    """The shares of the workers in the limits on calls in flight. Each share has a number."""

    def __init__(self, lanes: Sequence[LaneSpec], workers: int, most: int | None, *, is_local: bool) -> None:
        self.count, self._free = workers, set(range(workers))
        known = {lane.name: [each for each in (lane.published, most) if each] for lane in lanes}
        self._caps: dict[str, int | None] = {name: min(caps, default=None) for name, caps in known.items()}
        # Each worker has a local service of its own, with limits of its own.
        self._is_unlimited = is_local and most is None
        self._lowered: dict[tuple[int, str], int] = {}

    def find_free(self) -> int | None:
        """Return the number of a free share with calls, or None. Fewer calls than workers may be allowed."""
        return next((share for share in sorted(self._free) if self.get_calls(share) != {}), None)

    def take(self, share: int) -> None:
        """Note that a shard uses this share."""
        self._free.remove(share)

    def give_back(self, share: int) -> None:
        """Note that no shard uses this share any more."""
        self._free.add(share)

    def get_calls(self, share: int) -> dict[str, int | None] | None:
        """Return the largest number of calls in flight by lane for a share. See :class:`ShardLimits`."""
        if self._is_unlimited:
            return None
        found: dict[str, int | None] = {}
        for place, (lane, cap) in enumerate(self._caps.items()):
            if cap is None:
                # One worker alone learns the limit of a lane.
                if place % self.count == share:
                    found[lane] = None
            elif calls := cap // self.count + (share < cap % self.count):
                found[lane] = min(calls, self._lowered.get((share, lane), calls))
        return found

    def learn(self, share: int, learned: Mapping[str, int]) -> None:
        """Note the limits of lanes that refused calls of a share."""
        for lane, limit in learned.items():
            if self._caps[lane] is None:
                self._caps[lane] = limit
            else:
                self._lowered[share, lane] = max(1, limit)


def _find_own_tags(tags: Sequence[tuple[str, str]] | None, known: Iterable[str]) -> str:
    """Return the tags of a row as JSON, one of `known`, from the tags of its attempt."""
    found = dict(tags or ())
    return next((each for each in known if load_json(each).items() <= found.items()), "{}")


def _refuse_files_at_address(folder: Folder, backend: Backend) -> None:
    """Raise SettingsError if workers would need files that lie only on this machine."""
    has_files = backend.leaves_files or any((folder.work / CLIPS_FOLDER).glob("*"))
    if isinstance(folder, RemoteFolder) and has_files:
        raise SettingsError(
            f"executor= cannot make this {backend.operation} run at {folder.path}, because its clips or "
            "results are files on this machine: use a run_dir on a shared disk"
        )


def _make_plain(value: Any) -> Any:
    """Return a value that can be pickled. A read-only mapping becomes a dict."""
    return dict(value) if isinstance(value, Mapping) else value
