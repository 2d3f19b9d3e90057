"""The queue of dubbing jobs: their order, a process for each running job, and the folders of jobs."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import shutil
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path

from speechframe.local.dubbing.folder import DUB_STEM, OUTCOME, SOURCE, TASK, LocaleOutcome
from speechframe.local.service.background import Background
from speechframe.local.service.books.database import Database
from speechframe.local.service.books.idempotency import IdempotencyMark
from speechframe.local.service.books.keys import Key
from speechframe.local.service.books.unreadable import SkippedRecords, UnreadableRecord
from speechframe.local.service.config import ServiceConfig
from speechframe.local.service.dubbing import jobs as dub_jobs
from speechframe.local.service.dubbing.jobs import JobRow
from speechframe.local.service.dubbing.webhooks import Webhooks
from speechframe.local.service.workers.process import kill_process, spawn_module
from speechframe.spec.dubbing import (
    DubJob,
    JobStatusValue,
    Priority,
    UtteranceCorrection,
    is_terminal,
)

log = logging.getLogger("speechframe.service")

FOLDER_NAME = "dubs"
"""Folder of the jobs, below the data folder."""

_WORKER_MODULE = "speechframe.local.dubbing.job"
"""Module that the worker process runs."""
_MAX_ATTEMPTS = 2
"""Largest number of processes for one job, if they crash or take too long."""
_SEARCH_INTERVAL_S = 2.0
"""Seconds between two searches for jobs that other service processes left."""
_BASE_LIMIT_S = 300.0
"""Seconds that any job may take, because models load slowly on a busy machine."""
_PER_MEDIA_SECOND_S = 30.0
"""Further seconds that a job may take for each second of media and each locale."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 300.0
"""First and longest pause in seconds of a job whose end could not be stored. Each pause is twice the last."""
_ORPHAN_S = 3600.0
"""Age in seconds at which a folder without a row is removed. A killed service has left it."""
_MAX_REMOVALS = 50
"""Largest number of transactions that remove old jobs in one clean-up. The first one delays the start."""
_STARTS_PER_LOW_PRIORITY = 5
"""A waiting priority gets about every fifth start, even if higher priorities wait."""
_PRIORITIES_FROM_HIGH = (Priority.HIGH, Priority.NORMAL, Priority.LOW)
"""Priorities from the highest to the lowest."""


class Turns:
    """The order in which priorities start. The highest waiting priority starts, with one exception.

    A lower priority that was passed over four times in a row starts next.

    Examples
    --------
    >>> turns = Turns()
    >>> [turns.choose_next([Priority.HIGH, Priority.LOW]).value for _ in range(6)]
    ['HIGH', 'HIGH', 'HIGH', 'HIGH', 'LOW', 'HIGH']
    """

    def __init__(self) -> None:
        self._passed_over = dict.fromkeys(_PRIORITIES_FROM_HIGH, 0)

    def choose_next(self, waiting: Collection[Priority]) -> Priority:
        """Return the priority that starts next, one of those that wait."""
        waiting_priorities = [priority for priority in _PRIORITIES_FROM_HIGH if priority in waiting]
        longest = max(waiting_priorities, key=self._passed_over.__getitem__)
        started = (
            longest if self._passed_over[longest] >= _STARTS_PER_LOW_PRIORITY - 1 else waiting_priorities[0]
        )
        for priority in _PRIORITIES_FROM_HIGH:
            is_passed_over = priority in waiting_priorities and priority is not started
            self._passed_over[priority] = self._passed_over[priority] + 1 if is_passed_over else 0
        return started


class DubQueue(Background):
    """Runs dubbing jobs, a few at the same time, each in its own worker process.

    Parameters
    ----------
    config
        Contains the data folder and ``dub_worker_count``.
    database
        Contains the jobs.
    owner
        Name of this service process.
    webhooks
        Delivers webhooks. The queue wakes it when a job ends.
    """

    def __init__(self, config: ServiceConfig, database: Database, owner: str, webhooks: Webhooks) -> None:
        super().__init__(config.dub_worker_count, _SEARCH_INTERVAL_S)
        self.folder = config.data / FOLDER_NAME
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._database = database
        self._owner = owner
        self._webhooks = webhooks
        self._turns = Turns()
        self._under_way_ids: set[str] = set()
        self._skipped = SkippedRecords()
        self._pauses_s: dict[str, float] = {}

    async def check_room(self, key: Key, repeats: bytes | None = None) -> None:
        """Refuse with 503 if a key has too many waiting jobs; see :func:`dub_jobs.check_room`."""
        skipped = self._skipped.names
        await self._database.run(lambda c: dub_jobs.check_room(c, key.key_hash, skipped, repeats))

    async def add(self, job: JobRow, source: Path, mark: IdempotencyMark | None) -> DubJob:
        """Put a job into the queue, and move its media file `source` into the job's folder.

        Return the answer of the job. For a repeat, return the answer of the earlier job and add nothing.

        Raises
        ------
        Refusal
            503 if the key has too many waiting jobs.
        """
        folder = self.folder / job.job_id
        folder.mkdir(mode=0o700)
        try:
            await asyncio.to_thread(source.rename, folder / SOURCE)
            answer = await self._database.run(lambda c: dub_jobs.add_job(c, job, mark, self._skipped.names))
        except Exception:  # not CancelledError, because the job may be in the queue by then
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        if answer.job_id != job.job_id:
            await asyncio.to_thread(shutil.rmtree, folder)
        self.wake()
        return answer

    async def correct(
        self, job: JobRow, locale: str, corrections: Sequence[UtteranceCorrection]
    ) -> JobStatusValue:
        """Put a job under review back into the queue. Return its status before; see `dub_jobs.correct`."""
        skipped = self._skipped.names
        status = await self._database.run(
            lambda c: dub_jobs.correct_job(c, job, locale, corrections, skipped)
        )
        self.wake()
        return status

    async def read_outcome(self, job: JobRow, locale: str) -> LocaleOutcome | None:
        """Return the outcome of a locale from the job's folder, or None if the file does not exist."""
        return await asyncio.to_thread(LocaleOutcome.read, self.folder / job.job_id / locale / OUTCOME)

    async def find_work(self) -> Coroutine[None, None, None] | None:
        """Return a coroutine that runs the next job, or None if no job waits."""
        while True:
            left_out = {*self._under_way_ids, *self._skipped.names}
            try:
                job = await self._database.run(
                    functools.partial(
                        dub_jobs.take_job, owner=self._owner, turn=self._turns.choose_next, left_out=left_out
                    )
                )
            except UnreadableRecord as record:
                self._skipped.add(record)
                continue
            if job is None:
                return None
            if not is_terminal(job.status):
                break
            self._webhooks.wake()
        self._under_way_ids.add(job.job_id)
        return self._run_job(job)

    async def _run_job(self, job: JobRow) -> None:
        """Run a job and store its end. If the first process crashes, run a second one."""
        try:
            for _ in range(_MAX_ATTEMPTS):
                if await self._run_worker(job, self.folder / job.job_id):
                    break
            outcomes = {locale: await self.read_outcome(job, locale) for locale in job.task.targets}
            await self._database.run(lambda c: dub_jobs.end_job(c, job.job_id, outcomes))
        except Exception:
            pause_s = self._pauses_s.get(job.job_id, _FIRST_PAUSE_S)
            self._pauses_s[job.job_id] = min(2 * pause_s, _LONGEST_PAUSE_S)
            asyncio.get_running_loop().call_later(pause_s, self._under_way_ids.discard, job.job_id)
            raise
        self._pauses_s.pop(job.job_id, None)
        self._under_way_ids.discard(job.job_id)
        self._webhooks.wake()
        await self._clean_up_places([self.folder / job.job_id])

    async def _run_worker(self, job: JobRow, folder: Path) -> bool:
        """Run a worker process. Return False if it crashed, failed or took too long."""
        limit_s = _BASE_LIMIT_S + _PER_MEDIA_SECOND_S * job.media_s * len(job.task.targets)
        process = None
        try:
            await asyncio.to_thread(job.task.write, folder / TASK)
            async with asyncio.timeout(limit_s):
                process = await spawn_module(_WORKER_MODULE, str(folder), str(os.getpid()))
                await self._store_steps(job, process)
                code = await process.wait()
        except (OSError, ValueError) as error:
            log.error("a dubbing process with a limit of %.0f s failed: %r", limit_s, error)  # noqa: TRY400 - message is enough
            return False
        finally:
            if process is not None:
                await kill_process(process)
        if code:
            log.error("a dubbing process ended with status %d", code)
        return not code

    async def _store_steps(self, job: JobRow, process: asyncio.subprocess.Process) -> None:
        """Store each step that a worker prints, and the outcome of each locale when it is done."""
        assert process.stdout is not None  # noqa: S101 - asked for as a pipe
        async for line in process.stdout:
            locale, step = json.loads(line)
            outcome = await self.read_outcome(job, locale) if step == "done" else None
            note = functools.partial(
                dub_jobs.record_step, job_id=job.job_id, locale=locale, step=step, outcome=outcome
            )
            await self._database.run(note)

    async def clean_up(self) -> None:
        """Remove expired jobs, and folders that a killed service left without a job."""
        for _ in range(_MAX_REMOVALS):
            if not await self._database.run(dub_jobs.remove_old):
                break
        await self._clean_up_places(await asyncio.to_thread(lambda: list(self.folder.iterdir())))

    async def _clean_up_places(self, folders: Collection[Path]) -> None:
        names = [folder.name for folder in folders]
        statuses = await self._database.read(functools.partial(dub_jobs.read_statuses, job_ids=names))
        await asyncio.to_thread(_remove_files, folders, statuses)


def _remove_files(folders: Collection[Path], statuses: Mapping[str, str]) -> None:
    before = time.time() - _ORPHAN_S
    for folder in folders:
        status = statuses.get(folder.name)
        with contextlib.suppress(OSError):
            is_orphan = status is None and folder.stat().st_mtime < before
            if is_orphan or status == JobStatusValue.FAILED:
                shutil.rmtree(folder)
            elif status is not None and is_terminal(status):
                _remove_inputs(folder)


def _remove_inputs(folder: Path) -> None:
    """Remove the files of an ended job, except its outcomes and dubs. Remove the media file last.

    A folder without the media file is already stripped.
    """
    if (source := folder / SOURCE).exists():
        for path in folder.rglob("*"):
            is_kept = path.name in {OUTCOME, SOURCE} or path.stem == DUB_STEM
            if path.is_file() and not is_kept:
                path.unlink()
        source.unlink()
