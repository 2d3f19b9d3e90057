"""The worker processes: keys take turns at them, one job at a time each, replaced when they fall over.

A crash or a hang costs the one request that was in that worker; a request that
does it every time costs itself only. Nothing is tried twice here: whether a
500 is worth another try is the caller's to say.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from speechframe.errors import SettingsError
from speechframe.service.config import MEBI, WorkerLimits
from speechframe.service.job import Job, Reply
from speechframe.service.worker_process import END_S, WorkerProcess

log = logging.getLogger("speechframe.service")

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
ABANDONED_S = 2.0
"""How long a worker may go on with a job that nobody waits for: about as long as it takes to replace it."""
_CLEARLY_MORE = 3
"""How many more jobs another key must have in a full queue to give up one: fewer are not worth a refusal."""


class Saturated(Exception):
    """As many requests wait for a worker as may."""


class PoolClosed(Exception):
    """The service is stopping."""


class WorkerLost(Exception):
    """The worker crashed or hung over this job, and was replaced."""


@dataclass(eq=False)
class _Pending:
    """A job and whoever waits for it."""

    message: bytes
    key_hash: bytes
    limit_s: float
    path: Path | None
    abandoned_s: float
    under_way: bool
    answer: "asyncio.Future[Reply]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def shorten_when_abandoned(self, limit: asyncio.Timeout) -> None:
        """Bring the end of a time limit nearer once nobody waits for the answer any more."""
        loop = asyncio.get_running_loop()

        def shorten(answer: "asyncio.Future[Reply]") -> None:
            soon = loop.time() + self.abandoned_s
            # The reply may have come in the same moment: then there is no limit any more.
            with contextlib.suppress(RuntimeError):
                if answer.cancelled() and (limit.when() or soon) >= soon:
                    limit.reschedule(soon)

        self.answer.add_done_callback(shorten)


class WorkerPool:
    """Worker processes and the queue in front of them.

    Parameters
    ----------
    count
        How many processes.
    waiting_limit
        How many jobs may wait while all are busy.
    limits
        When a worker is replaced.
    """

    def __init__(self, count: int, waiting_limit: int, limits: WorkerLimits) -> None:
        self.count = count
        self.replaced = 0
        self.installed: Mapping[str, Mapping[str, str]] = {}
        self.broken: Mapping[str, str] = {}
        """The reason for each engine that cannot be used, by kind and name."""
        self.left_out: Sequence[str] = ()
        """A sentence for each engine, voice and file that cannot be used, as the last worker found them."""
        self._waiting_limit = waiting_limit
        self._limits = limits
        # By key, in the order of their turns: a key is at the end once a job of it was begun.
        self._waiting: dict[bytes, dict[_Pending, None]] = {}
        self._begun_last = b""
        self._idle: list[asyncio.Future[_Pending | None]] = []
        self._alive: set[WorkerProcess] = set()
        self._seats: list[asyncio.Task[None]] = []
        self._closed = False
        self._mean_s = 0.05

    async def start(self) -> None:
        """Start every worker; return when the first is ready.

        Raises
        ------
        SettingsError
            When none can be started, with the reason.
        """
        first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._seats = [asyncio.create_task(self._seat(first)) for _ in range(self.count)]
        await first

    async def close(self) -> None:
        """End every worker; jobs in the queue and in workers fail with :class:`PoolClosed`."""
        self._closed = True
        for pending in chain.from_iterable(self._waiting.values()):
            _fail(pending, PoolClosed())
        self._waiting.clear()
        for seat in self._seats:
            seat.cancel()
        await asyncio.gather(*self._seats, return_exceptions=True)

    async def run(
        self,
        job: Job,
        *,
        limit_s: float,
        abandoned_s: float = ABANDONED_S,
        key_hash: bytes = b"",
        under_way: bool = False,
    ) -> Reply:
        """Return a worker's reply to `job`.

        The keys of jobs that wait take turns, so that one with much work does not keep the others waiting.
        Cancelled while it waits, the job is never done; cancelled while it is
        being done, its result is thrown away, its file too, and a worker that
        would still be long at it is replaced.

        Parameters
        ----------
        job
            What is to be done.
        limit_s
            Seconds it may take once it is begun.
        abandoned_s
            Seconds a worker may still take once nobody waits for the job any more, before it is replaced.
        key_hash
            Whose job it is.
        under_way
            Whether it belongs to a call that has begun, of which few jobs wait at a time: it finds a place in
            a full queue, too.

        Raises
        ------
        Saturated
            At once, when the queue is full; later, when a key with less work takes the place in it.
        WorkerLost
            When the worker crashed, or did not answer within `limit_s` seconds of starting the job.
        PoolClosed
            When the service is stopping.
        """
        path = Path(job.path) if job.path else None
        pending = _Pending(job.encoded(), key_hash, limit_s, path, abandoned_s, under_way)
        if self._closed:
            raise PoolClosed
        if not under_way:
            self.check_room(key_hash)
            self._make_room()
        if self._idle:
            self._idle.pop().set_result(pending)
            self._begun_last = key_hash
        else:
            self._waiting.setdefault(key_hash, {})[pending] = None
        try:
            return await pending.answer
        finally:
            self._forget(pending)

    def check_room(self, key_hash: bytes = b"") -> None:
        """Raise what :meth:`run` would raise now, before anything is spent on the job."""
        if self._closed:
            raise PoolClosed
        counts = self._counts()
        if self._is_full(counts) and counts[key_hash] + _CLEARLY_MORE > max(counts.values(), default=0):
            raise Saturated

    def _counts(self) -> Counter[bytes]:
        """Return how many jobs wait, by key, without those that belong to a call that has begun."""
        return Counter(
            pending.key_hash
            for pending in chain.from_iterable(self._waiting.values())
            if not pending.under_way
        )

    def _is_full(self, counts: Counter[bytes]) -> bool:
        return not self._idle and counts.total() >= self._waiting_limit

    def _make_room(self) -> None:
        """Send away, out of a full queue, what came last of the key that has the most in it."""
        counts = self._counts()
        if self._is_full(counts):
            jobs = self._waiting[max(counts, key=counts.__getitem__)]
            last = next(pending for pending in reversed(jobs) if not pending.under_way)
            self._forget(last)
            _fail(last, Saturated())

    @property
    def _waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _forget(self, pending: _Pending) -> None:
        jobs = self._waiting.get(pending.key_hash, {})
        jobs.pop(pending, None)
        if not jobs:
            self._waiting.pop(pending.key_hash, None)

    @property
    def wait_s(self) -> float:
        """About how long a job that came now would wait, in seconds: what a 503 tells."""
        return self._mean_s * (self._waiting_count + 1) / self.count

    @property
    def mean_s(self) -> float:
        """About how long a job takes, in seconds (moving average): what a 429 tells."""
        return self._mean_s

    @property
    def engines(self) -> Mapping[str, str]:
        """The speech engines that work here: name to version."""
        return self.installed.get("speaker", {})

    def figures(self) -> dict[str, int]:
        """Return how the pool is doing, for the health page."""
        busy = len(self._alive) - len(self._idle)
        return {
            "count": self.count,
            "alive": len(self._alive),
            "busy": max(0, busy),
            "waiting": self._waiting_count,
            "replaced": self.replaced,
        }

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [worker.process.pid for worker in self._alive]

    async def _seat(self, first: "asyncio.Future[None]") -> None:
        """Keep one worker alive and busy."""
        pause_s = _FIRST_PAUSE_S
        while not self._closed:
            try:
                worker = await WorkerProcess.started(self._limits.start_s)
            except (SettingsError, OSError) as error:
                if not first.done():
                    first.set_exception(SettingsError(str(error)))
                    return
                log.error("a worker could not be started: %s", error)  # noqa: TRY400 - the words are enough
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            self.installed, self.broken = worker.engines, worker.broken
            self.left_out = worker.left_out
            self._alive.add(worker)
            if not first.done():
                first.set_result(None)
            try:
                await self._serve(worker)
            finally:
                self._alive.discard(worker)
                await worker.end()
            self.replaced += 1
            # One that fell before it was given a job may be about to fall again: not in a tight loop.
            if worker.jobs:
                pause_s = _FIRST_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _serve(self, worker: WorkerProcess) -> None:
        """Give jobs to a worker until it is lost or worn out."""
        while worker.jobs < self._limits.jobs:
            pending = await self._next(worker)
            if pending is None:
                log.warning("an idle worker %s and is replaced", worker.words())
                return
            if pending.answer.done():
                continue
            try:
                reply = await self._asked(worker, pending)
            except WorkerLost as error:
                _fail(pending, error)
                _discard(pending)
                return
            except BaseException:
                _fail(pending, PoolClosed())
                _discard(pending)
                raise
            if reply.facts.fault is not None:
                log.error("an engine is at fault: %s", reply.facts.fault)
            if pending.answer.done():
                _discard(pending)
            else:
                pending.answer.set_result(reply)
            if reply.facts.memory_bytes > self._limits.memory_bytes:
                log.info("a worker holds %d MB and is replaced", reply.facts.memory_bytes // MEBI)
                return

    async def _next(self, worker: WorkerProcess) -> _Pending | None:
        """Return the next job, or None when the worker dies while it waits for one."""
        if self._waiting:
            return self._taken()
        given: asyncio.Future[_Pending | None] = asyncio.get_running_loop().create_future()

        def woken(_: "asyncio.Future[int]") -> None:
            if not given.done():
                self._idle.remove(given)
                given.set_result(None)

        self._idle.append(given)
        worker.exited.add_done_callback(woken)
        try:
            return await given
        except asyncio.CancelledError:
            if given in self._idle:
                self._idle.remove(given)
            elif given.done() and not given.cancelled() and (handed := given.result()) is not None:
                _fail(handed, PoolClosed())
            raise
        finally:
            worker.exited.remove_done_callback(woken)

    def _taken(self) -> _Pending:
        """Take the next job out of the queue: of the key whose turn it is, the one that came first."""
        turns = [key for key in self._waiting if key != self._begun_last] or [self._begun_last]
        pending = next(iter(self._waiting[turns[0]]))
        jobs = self._waiting.pop(pending.key_hash)
        del jobs[pending]
        if jobs:
            self._waiting[pending.key_hash] = jobs
        self._begun_last = pending.key_hash
        return pending

    async def _asked(self, worker: WorkerProcess, pending: _Pending) -> Reply:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(pending.limit_s) as limit:
                pending.shorten_when_abandoned(limit)
                reply = await worker.ask(pending.message)
        except TimeoutError:
            if pending.answer.cancelled():
                log.info("a worker did not end what nobody waits for and is replaced")
            else:
                log.error("a worker took longer than %.0f s and is replaced", pending.limit_s)  # noqa: TRY400 - same
            raise WorkerLost from None
        except (asyncio.IncompleteReadError, OSError):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(worker.exited), END_S)
            log.error("a worker %s and is replaced", worker.words())  # noqa: TRY400 - same
            raise WorkerLost from None
        self._mean_s += 0.1 * (loop.time() - started - self._mean_s)
        return reply


def _fail(pending: _Pending, error: Exception) -> None:
    if not pending.answer.done():
        pending.answer.set_exception(error)


def _discard(pending: _Pending) -> None:
    if pending.path is not None:
        with contextlib.suppress(OSError):
            pending.path.unlink(missing_ok=True)
