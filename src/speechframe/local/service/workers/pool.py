"""A pool of worker processes with one queue, in which keys take turns.

If a worker crashes or hangs, only the job in this worker fails. The pool repeats no job. The client decides
whether to retry after a 500.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from speechframe.errors import SettingsError
from speechframe.local.service.config import MEBIBYTE, WorkerLimits
from speechframe.local.service.workers.job import WorkerJob, WorkerReply
from speechframe.local.service.workers.process import EXIT_TIMEOUT_S, WorkerProcess

log = logging.getLogger("speechframe.service")

_FIRST_PAUSE_S = 0.2
"""Seconds to wait before a worker is started again. The pause doubles after each failure."""
_LONGEST_PAUSE_S = 5.0
"""Largest such pause in seconds."""
_MAX_CHECK_INTERVAL_S = 1.0
"""Longest time in seconds between two checks of the CPU time of busy workers."""
_ACTIVE_CPU_S = 0.02
"""CPU time in seconds that a worker must use between two checks to count as active."""
ABANDONED_S = 2.0
"""Seconds that a worker may go on after its caller has left. Replacing the worker takes about as long."""
_MIN_JOB_DIFFERENCE = 3
"""A job may push a job of another key out of a full queue if that key has this many more waiting jobs."""


@dataclass(eq=False)
class Saturated(Exception):
    """The queue is full, or no worker can be started. The queue may have room after `wait_s` seconds."""

    wait_s: float


class PoolClosed(Exception):
    """The service is stopping."""


class WorkerLost(Exception):
    """The worker crashed or hung during this job. The pool replaced it."""


@dataclass(eq=False)
class PendingJob:
    """A job whose caller waits for the reply.

    Attributes
    ----------
    message
        The job as bytes.
    key_hash
        Hash of the key that pays.
    limit_s
        CPU time in seconds that a worker may use for the job.
    path
        The file that the worker writes, if there is one.
    under_way
        Whether the job belongs to a call that has begun. A full queue does not refuse or drop such a job.
    is_begun
        Whether a worker has the job.
    cpu_s
        CPU time in seconds that the worker has used for the job so far.
    cpu_before_s
        CPU time in seconds that the worker had used before the job. None until the first check.
    active_at_s
        Time of the event loop's clock at which the worker last counted as active.
    limit
        The timeout of the worker's reply, while a worker has the job.
    answer
        The future of the reply, for which the caller waits.
    """

    message: bytes
    key_hash: bytes
    limit_s: float
    path: Path | None
    under_way: bool
    is_begun: bool = False
    cpu_s: float = 0.0
    cpu_before_s: float | None = None
    active_at_s: float = 0.0
    limit: asyncio.Timeout | None = None
    answer: "asyncio.Future[WorkerReply]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def give_up(self) -> None:
        """Stop waiting for the worker's reply now. The pool then replaces the worker."""
        # A timeout that has ended raises RuntimeError, because the reply has just arrived.
        with contextlib.suppress(RuntimeError):
            if self.limit is not None:
                self.limit.reschedule(asyncio.get_running_loop().time())


CALL_JOBS: ContextVar[set[PendingJob] | None] = ContextVar("call_jobs", default=None)
"""The pending jobs of the HTTP call of this task. None if the call gets no interim answers."""


class WorkerPool:
    """Worker processes and the queue of jobs that wait for them.

    A seat is a task that keeps one worker process running and replaces it if necessary.

    Parameters
    ----------
    count
        Largest number of processes.
    waiting_limit
        Number of jobs that may wait while all workers are busy.
    limits
        Limits after which a worker is replaced.
    """

    installed: Mapping[str, Mapping[str, str]]
    """For each kind of engine, the versions of the engines that work, by name."""
    broken: Mapping[str, str]
    """The reason why an engine cannot be used, by its kind and name, such as ``changer NAME``."""
    left_out: Sequence[str]
    """A sentence for each engine, voice and file that the newest worker could not use."""

    def __init__(self, count: int, waiting_limit: int, limits: WorkerLimits) -> None:
        self.count = count
        self.replaced = 0
        self.installed, self.broken, self.left_out = {}, {}, ()
        self._waiting_limit = waiting_limit
        self._limits = limits
        # Waiting jobs by key, in the order of turns. A key moves to the end when one of its jobs begins.
        self._waiting: dict[bytes, dict[PendingJob, None]] = {}
        self._begun_last = b""
        self._idle: list[asyncio.Future[PendingJob | None]] = []
        self._busy: dict[WorkerProcess, PendingJob] = {}
        self._alive: set[WorkerProcess] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._seats = 0
        self._replacing = asyncio.Lock()
        self._closed = False
        self._mean_s = 0.05

    async def start(self) -> None:
        """Start the first worker, and return when it is ready. Further workers start when jobs wait.

        Raises
        ------
        SettingsError
            The worker cannot be started.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start_seat(ready)
        await ready

    def _start_seat(self, ready: "asyncio.Future[None] | None" = None) -> None:
        if not self._tasks:
            self._tasks.append(asyncio.create_task(self._watch_workers()))
        self._tasks.append(asyncio.create_task(self._keep_worker(ready)))
        self._seats += 1

    async def close(self) -> None:
        """End every worker. Jobs in the queue and in workers fail with :class:`PoolClosed`."""
        self._closed = True
        self._fail_waiting(PoolClosed())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(
        self,
        job: WorkerJob,
        *,
        limit_s: float,
        abandoned_s: float = ABANDONED_S,
        key_hash: bytes = b"",
        under_way: bool = False,
    ) -> WorkerReply:
        """Return a worker's reply to `job`.

        If no worker is idle, the pool starts one more, up to `count`. Keys whose jobs wait take turns. If the
        caller is cancelled, its waiting job is dropped. If a worker has the job already, the worker may go on
        for `abandoned_s` and is then replaced. The reply and its file are discarded.

        Parameters
        ----------
        job
            The job.
        limit_s
            CPU time in seconds that a worker may use for the job.
        abandoned_s
            Seconds that a worker may go on after the caller is cancelled.
        key_hash
            Hash of the key that pays.
        under_way
            Whether the job belongs to a call that has begun. A full queue accepts such a job, too, because a
            call has few jobs in the queue at a time.

        Raises
        ------
        Saturated
            The queue is full, or a key with fewer jobs took the place of this job, or no worker can be
            started.
        WorkerLost
            The worker crashed, used `limit_s` seconds of CPU time, or used no CPU time for too long.
        PoolClosed
            The service is stopping.
        """
        pending = PendingJob(
            job.encode_message(),
            key_hash,
            limit_s,
            job.path,
            under_way,
        )
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
            starting = self._seats - len(self._alive)
            if self._seats < self.count and self._waiting_count > starting:
                self._start_seat()
        of_call = CALL_JOBS.get()
        if of_call is not None:
            of_call.add(pending)
        try:
            return await pending.answer
        except asyncio.CancelledError:
            asyncio.get_running_loop().call_later(abandoned_s, pending.give_up)
            raise
        finally:
            self._remove_waiting(pending)
            if of_call is not None:
                of_call.discard(pending)

    def check_room(self, key_hash: bytes = b"") -> None:
        """Raise the error that :meth:`run` would raise now for a new job of a key.

        Raises
        ------
        PoolClosed
            The service is stopping.
        Saturated
            The queue is full.
        """
        if self._closed:
            raise PoolClosed
        counts = self._count_waiting()
        if self._is_full(counts) and counts[key_hash] + _MIN_JOB_DIFFERENCE > max(counts.values(), default=0):
            raise Saturated(self.wait_s)

    def _count_waiting(self) -> Counter[bytes]:
        """Return the number of waiting jobs by key, without jobs of calls that have begun."""
        return Counter(
            pending.key_hash
            for pending in chain.from_iterable(self._waiting.values())
            if not pending.under_way
        )

    def _is_full(self, counts: Counter[bytes]) -> bool:
        return not self._idle and counts.total() >= self._waiting_limit

    def _make_room(self) -> None:
        """If the queue is full, drop the newest job of the key with the most waiting jobs."""
        counts = self._count_waiting()
        if self._is_full(counts):
            jobs = self._waiting[max(counts, key=counts.__getitem__)]
            last = next(pending for pending in reversed(jobs) if not pending.under_way)
            self._remove_waiting(last)
            _fail_job(last, Saturated(self.wait_s))

    def _fail_waiting(self, error: Exception) -> None:
        """Fail all jobs that wait for a worker with `error`."""
        for pending in chain.from_iterable(self._waiting.values()):
            _fail_job(pending, error)
        self._waiting.clear()

    @property
    def _waiting_count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _remove_waiting(self, pending: PendingJob) -> None:
        jobs = self._waiting.get(pending.key_hash, {})
        jobs.pop(pending, None)
        if not jobs:
            self._waiting.pop(pending.key_hash, None)

    @property
    def wait_s(self) -> float:
        """Estimated seconds that a new job would wait. The answer 503 contains this time."""
        return self._mean_s * (self._waiting_count + 1) / self.count

    @property
    def mean_s(self) -> float:
        """Moving average of the seconds that a job takes."""
        return self._mean_s

    def count_workers(self) -> dict[str, int]:
        """Return the numbers of workers and jobs for the health call."""
        busy = len(self._alive) - len(self._idle)
        return {
            "count": self._seats,
            "alive": len(self._alive),
            "busy": max(0, busy),
            "waiting": self._waiting_count,
            "replaced": self.replaced,
        }

    def list_pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return [worker.process.pid for worker in self._alive]

    async def _keep_worker(self, ready: "asyncio.Future[None] | None") -> None:
        """Keep one worker running until the pool is closed.

        A worker that must be replaced but still runs is ended only when the next one is ready. Only one seat
        at a time does this.
        """
        worker = await self._start_worker(_FIRST_PAUSE_S, ready)
        pause_s = _FIRST_PAUSE_S
        try:
            while worker is not None:
                await self._serve_jobs(worker)
                self.replaced += 1
                if worker.exited.done():
                    self._alive.discard(worker)
                    # Pause after a worker that ended before its first job, because the next may do the same.
                    pause_s = _FIRST_PAUSE_S if worker.jobs else min(pause_s * 2, _LONGEST_PAUSE_S)
                    await asyncio.sleep(0 if worker.jobs else pause_s)
                async with contextlib.nullcontext() if worker.exited.done() else self._replacing:
                    following = await self._start_worker(pause_s)
                self._alive.discard(worker)
                await worker.end()
                worker = following
        finally:
            if worker is not None:
                self._alive.discard(worker)
                await worker.end()

    async def _start_worker(
        self, pause_s: float, ready: "asyncio.Future[None] | None" = None
    ) -> WorkerProcess | None:
        """Start a worker and return it. Try again until it starts, with pauses.

        With `ready`, try only once. Set this future when the worker is ready. If the start fails, set its
        error and return None.
        """
        while True:
            try:
                worker = await WorkerProcess.start(self._limits.start_s)
            except (SettingsError, OSError) as error:
                if ready is not None:
                    ready.set_exception(SettingsError(str(error)))
                    return None
                log.error("a worker could not be started: %s", error)  # noqa: TRY400 - the message is enough
                if not self._alive:
                    self._fail_waiting(Saturated(pause_s))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            self.installed, self.broken = worker.engines, worker.broken
            self.left_out = worker.left_out
            self._alive.add(worker)
            if ready is not None:
                ready.set_result(None)
            return worker

    async def _serve_jobs(self, worker: WorkerProcess) -> None:
        """Give jobs to a worker until it must be replaced."""
        while worker.jobs < self._limits.jobs:
            pending = await self._wait_for_job(worker)
            if pending is None:
                log.warning("an idle worker %s and is replaced", worker.describe_end())
                return
            if pending.answer.done():
                continue
            try:
                reply = await self._send_job(worker, pending)
            except WorkerLost as error:
                _fail_job(pending, error)
                _discard_file(pending)
                return
            except BaseException:
                _fail_job(pending, PoolClosed())
                _discard_file(pending)
                raise
            if reply.facts.fault is not None:
                log.error("an engine is at fault: %s", reply.facts.fault)
            if pending.answer.done():
                _discard_file(pending)
            else:
                pending.answer.set_result(reply)
            if reply.facts.memory_bytes > self._limits.memory_bytes:
                log.info("a worker uses %d MB and is replaced", reply.facts.memory_bytes // MEBIBYTE)
                return

    async def _wait_for_job(self, worker: WorkerProcess) -> PendingJob | None:
        """Wait for the next job and return it. Return None if the worker ends before a job arrives."""
        if self._waiting:
            return self._take_job()
        job_future: asyncio.Future[PendingJob | None] = asyncio.get_running_loop().create_future()

        def wake(_: "asyncio.Future[int]") -> None:
            if not job_future.done():
                self._idle.remove(job_future)
                job_future.set_result(None)

        self._idle.append(job_future)
        worker.exited.add_done_callback(wake)
        try:
            return await job_future
        except asyncio.CancelledError:
            if job_future in self._idle:
                self._idle.remove(job_future)
            elif (
                job_future.done()
                and not job_future.cancelled()
                and (pending := job_future.result()) is not None
            ):
                _fail_job(pending, PoolClosed())
            raise
        finally:
            worker.exited.remove_done_callback(wake)

    def _take_job(self) -> PendingJob:
        """Choose the key whose turn it is. Remove its oldest job from the queue and return the job."""
        turns = [key for key in self._waiting if key != self._begun_last] or [self._begun_last]
        pending = next(iter(self._waiting[turns[0]]))
        jobs = self._waiting.pop(pending.key_hash)
        del jobs[pending]
        if jobs:
            self._waiting[pending.key_hash] = jobs
        self._begun_last = pending.key_hash
        return pending

    async def _send_job(self, worker: WorkerProcess, pending: PendingJob) -> WorkerReply:
        """Send a job to a worker and return the reply.

        Raises
        ------
        WorkerLost
            The worker ended, or :meth:`PendingJob.give_up` was called.
        """
        loop = asyncio.get_running_loop()
        began_s = pending.active_at_s = loop.time()
        pending.is_begun = True
        self._busy[worker] = pending
        try:
            async with asyncio.timeout(None) as pending.limit:
                reply = await worker.send_job(pending.message)
        except TimeoutError:
            if pending.answer.cancelled():
                log.info("a worker was still at a job that no caller waits for and is replaced")
            raise WorkerLost from None
        except (asyncio.IncompleteReadError, OSError):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(worker.exited), EXIT_TIMEOUT_S)
            log.error("a worker %s and is replaced", worker.describe_end())  # noqa: TRY400 - the message is enough
            raise WorkerLost from None
        finally:
            pending.limit = None
            del self._busy[worker]
        self._mean_s += 0.1 * (loop.time() - began_s - self._mean_s)
        return reply

    async def _watch_workers(self) -> None:
        """Give up jobs whose worker used too much CPU time, or none for too long, until cancelled."""
        loop, idle_s = asyncio.get_running_loop(), self._limits.idle_s
        while True:
            await asyncio.sleep(min(_MAX_CHECK_INTERVAL_S, idle_s / 4, self._limits.base_s / 4))
            watched = list(self._busy.items())
            totals_s = await asyncio.to_thread(lambda: [worker.measure_cpu_s() for worker, _ in watched])  # noqa: B023 - awaited here
            for (_, pending), total_s in zip(watched, totals_s, strict=True):
                if pending.cpu_before_s is None:
                    pending.cpu_before_s = total_s
                used_s = total_s - pending.cpu_before_s
                if used_s - pending.cpu_s >= _ACTIVE_CPU_S:
                    pending.cpu_s, pending.active_at_s = used_s, loop.time()
                if used_s > pending.limit_s:
                    log.error("a worker used %.0f s of CPU time for a job and is replaced", used_s)
                    pending.give_up()
                elif loop.time() - pending.active_at_s > idle_s:
                    log.error("a worker used no CPU time for %.0f s of a job and is replaced", idle_s)
                    pending.give_up()


def _fail_job(pending: PendingJob, error: Exception) -> None:
    if not pending.answer.done():
        pending.answer.set_exception(error)


def _discard_file(pending: PendingJob) -> None:
    """Remove the file of a job whose reply is discarded."""
    if pending.path is not None:
        with contextlib.suppress(OSError):
            pending.path.unlink(missing_ok=True)
