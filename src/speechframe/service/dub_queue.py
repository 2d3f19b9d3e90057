"""The queue of dubbing jobs: whose turn it is, a process for each, and what becomes of its folder."""

import asyncio
import contextlib
import functools
import logging
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from speechframe.dubbing import folder as job_folder
from speechframe.dubbing.folder import Failure, Outcome, Step
from speechframe.service import dub_jobs
from speechframe.service.config import ServiceConfig
from speechframe.service.database import Database
from speechframe.service.dub_jobs import Job
from speechframe.service.idempotency import Mark
from speechframe.service.webhooks import Webhooks
from speechframe.service.worker_process import killed, spawned
from speechframe.spec.dubbing import DubJob, Priority

log = logging.getLogger("speechframe.service")

FOLDER = "dubs"

_WORKER = "speechframe.dubbing.worker"
_TRIES = 2
_LOOK_S = 2.0
"""How often it is looked for jobs that another service process left, or put there."""
_BASE_S = 300.0
"""That a job may take whatever its length: models load slowly where the machine is busy with other things."""
_PER_MEDIA_SECOND_S = 30.0
"""What a second of media and locale adds to the time that a job may take."""
_ORPHAN_S = 3600.0
"""A folder that no row names after this long was left by a service that was killed."""
_EVERY = 5
_FROM_HIGH = (Priority.HIGH, Priority.NORMAL, Priority.LOW)


class Turns:
    """Which priority is next: the highest, but each lower one that waits gets every fifth start.

    Examples
    --------
    >>> turns = Turns()
    >>> [turns.next([Priority.HIGH, Priority.LOW]).value for _ in range(6)]
    ['HIGH', 'HIGH', 'HIGH', 'HIGH', 'LOW', 'HIGH']
    """

    def __init__(self) -> None:
        self._passed_over = dict.fromkeys(_FROM_HIGH, 0)

    def next(self, waiting: Collection[Priority]) -> Priority:
        """Return which of those that wait is to start."""
        there = [priority for priority in _FROM_HIGH if priority in waiting]
        longest = max(there, key=self._passed_over.__getitem__)
        started = longest if self._passed_over[longest] >= _EVERY - 1 else there[0]
        for priority in _FROM_HIGH:
            is_passed_over = priority in there and priority is not started
            self._passed_over[priority] = self._passed_over[priority] + 1 if is_passed_over else 0
        return started


class DubQueue:
    """Has jobs done, as many at once as there are worker processes for.

    Parameters
    ----------
    config
        Holds the data folder and ``dub_worker_count``.
    database
        Where the jobs stand.
    owner
        The name of this process.
    webhooks
        Told of ends.
    """

    def __init__(self, config: ServiceConfig, database: Database, owner: str, webhooks: Webhooks) -> None:
        self.folder = config.data / FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._limit = config.dub_worker_count
        self._database = database
        self._owner = owner
        self._webhooks = webhooks
        self._turns = Turns()
        self._added = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Say that there may be a job to start."""
        self._added.set()

    async def add(self, job: Job, source: Path, mark: Mark | None) -> DubJob:
        """Put a job into the queue, and its medium into its folder; return what its creator is told."""
        place = self.folder / job.job_id
        place.mkdir(mode=0o700)
        await asyncio.to_thread(source.rename, place / job_folder.SOURCE)
        links = [secrets.token_hex(16) for _ in job.task.targets]
        answer = await self._database.run(lambda c: dub_jobs.add(c, job, links, mark))
        if answer.job_id != job.job_id:
            await asyncio.to_thread(shutil.rmtree, place)
        self.wake()
        return answer

    async def outcome(self, job: Job, locale: str) -> Outcome | None:
        """Return what became of a locale; None before there is anything, and once it was removed."""
        path = job_folder.outcome_path(self.folder / job.job_id, locale)
        return await asyncio.to_thread(Outcome.read, path)

    async def run(self) -> None:
        """Have jobs done for ever; cancelled, the processes are ended and their jobs wait again."""
        take = functools.partial(dub_jobs.take, owner=self._owner, turn=self._turns.next)
        try:
            while True:
                self._added.clear()
                try:
                    while len(self._under_way) < self._limit and (job := await self._database.run(take)):
                        task = asyncio.create_task(self._ended(job))
                        self._under_way.add(task)
                        task.add_done_callback(self._done)
                except sqlite3.Error:
                    log.exception("jobs cannot be read; this is tried again")
                # One that failed for want of credits had no process that would tell.
                self._webhooks.wake()
                # Not wait_for, which before Python 3.12 can overlook that it is cancelled.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._added.wait()
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a job could not be brought to its end; a later start will try", exc_info=error)

    async def _ended(self, job: Job) -> None:
        """Have a job done, in a second process where the first falls over, and keep what came of it."""
        place = self.folder / job.job_id
        for _ in range(_TRIES):
            if await self._is_worked(job, place):
                break
        found = {locale: await self.outcome(job, locale) for locale in job.task.targets}
        outcomes = {locale: outcome for locale, outcome in found.items() if outcome is not None}
        failure = await asyncio.to_thread(Failure.read, job_folder.failure_path(place))
        await self._database.run(lambda c: dub_jobs.end(c, job, outcomes, failure))
        self._webhooks.wake()
        await self.tidy()

    async def _is_worked(self, job: Job, place: Path) -> bool:
        """Run a worker process; return whether it came to its own end."""
        limit_s = _BASE_S + _PER_MEDIA_SECOND_S * job.media_s * len(job.task.targets)
        process = None
        try:
            await asyncio.to_thread(job.task.write, job_folder.task_path(place))
            async with asyncio.timeout(limit_s):
                process = await spawned(_WORKER, str(place), str(os.getpid()))
                await self._follow(job, process)
                code = await process.wait()
        except (OSError, ValueError) as error:
            log.error("a dubbing process that had %.0f s did not end well: %r", limit_s, error)  # noqa: TRY400 - words are enough
            return False
        finally:
            if process is not None:
                await killed(process)
        if code:
            log.error("a dubbing process ended with status %d", code)
        return not code

    async def _follow(self, job: Job, process: asyncio.subprocess.Process) -> None:
        """Keep what a worker says of itself, until it says no more."""
        assert process.stdout is not None  # noqa: S101 - asked for as a pipe
        said: tuple[str | None, str] | None = None
        async for line in process.stdout:
            step = Step.model_validate_json(line)
            # How much of a step is done comes often, and is not kept.
            if (step.locale, step.step) != said:
                said = step.locale, step.step
                await self._keep(job, step)

    async def _keep(self, job: Job, step: Step) -> None:
        """Keep a step; of a locale that is done its outcome, while others are still under way."""
        locale = step.locale
        outcome = await self.outcome(job, locale) if locale is not None and step.step == "done" else None
        if locale is None or outcome is None:
            await self._database.run(lambda c: dub_jobs.note_step(c, job.job_id, locale, step.step))
        else:
            await self._database.run(lambda c: dub_jobs.note_outcome(c, job, locale, outcome))

    async def tidy(self) -> None:
        """Remove what nobody can ask for any more, and what a service that was killed left without a job."""
        there = await asyncio.to_thread(lambda: list(self.folder.iterdir()))
        names = [place.name for place in there]
        needed = await self._database.run(functools.partial(dub_jobs.drop_links, job_ids=names))
        await asyncio.to_thread(_tidy, there, needed)


def _tidy(there: Collection[Path], needed: Mapping[str, set[str] | None]) -> None:
    before = time.time() - _ORPHAN_S
    for place in there:
        with contextlib.suppress(OSError):
            paths = needed.get(place.name, set())
            if paths:
                _strip(place, paths)
            elif paths is not None and (place.name in needed or place.stat().st_mtime < before):
                shutil.rmtree(place)


def _strip(place: Path, needed: set[str]) -> None:
    """Leave of a job that is over what can be fetched, and its outcomes; its medium goes last."""
    source = place / job_folder.SOURCE
    if source.exists():
        for path in place.rglob("*"):
            is_needed = str(path.relative_to(place)) in needed or path.name == "outcome.json"
            if path.is_file() and not is_needed and path != source:
                path.unlink()
        source.unlink()
