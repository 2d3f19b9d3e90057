"""The queue of dubbing jobs: whose turn it is, a process for each, and what becomes of its folder."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import shutil
import time
from collections.abc import Collection, Coroutine, Mapping
from pathlib import Path

from speechframe.dubbing.folder import DUB, OUTCOME, SOURCE, TASK, Outcome
from speechframe.service import dub_jobs
from speechframe.service.background import Background
from speechframe.service.config import ServiceConfig
from speechframe.service.database import Database
from speechframe.service.dub_jobs import Job
from speechframe.service.idempotency import Mark
from speechframe.service.webhooks import Webhooks
from speechframe.service.worker_process import killed, spawned
from speechframe.spec.dubbing import DubJob, JobStatusValue, Priority, is_terminal

log = logging.getLogger("speechframe.service")

FOLDER = "dubs"

_WORKER = "speechframe.dubbing.job"
_TRIES = 2
_LOOK_S = 2.0
"""How often it is looked for jobs that another service process left, or put there."""
_BASE_S = 300.0
"""That a job may take whatever its length: models load slowly where the machine is busy with other things."""
_PER_MEDIA_SECOND_S = 30.0
"""What a second of media and locale adds to the time that a job may take."""
_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 300.0
"""How long a job waits whose end could not be noted, each time twice as long: others have their turn then."""
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


class DubQueue(Background):
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
        super().__init__(config.dub_worker_count, _LOOK_S)
        self.folder = config.data / FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._database = database
        self._webhooks = webhooks
        self._under_way_ids: set[str] = set()
        self._pauses_s: dict[str, float] = {}
        self._take = functools.partial(
            dub_jobs.take, owner=owner, turn=Turns().next, under_way=self._under_way_ids
        )

    async def add(self, job: Job, source: Path, mark: Mark | None) -> DubJob:
        """Put a job into the queue, and its medium into its folder; return what its creator is told."""
        place = self.folder / job.job_id
        place.mkdir(mode=0o700)
        await asyncio.to_thread(source.rename, place / SOURCE)
        answer = await self._database.run(lambda c: dub_jobs.add(c, job, mark))
        if answer.job_id != job.job_id:
            await asyncio.to_thread(shutil.rmtree, place)
        self.wake()
        return answer

    async def outcome(self, job: Job, locale: str) -> Outcome | None:
        """Return what became of a locale; None before there is anything, and once it was removed."""
        return await asyncio.to_thread(Outcome.read, self.folder / job.job_id / locale / OUTCOME)

    async def take(self) -> Coroutine[None, None, None] | None:
        """Return the work at the job whose turn it is."""
        job = await self._database.run(self._take)
        # One that failed for want of credits has no process that would tell.
        self._webhooks.wake()
        if job is None:
            return None
        self._under_way_ids.add(job.job_id)
        return self._ended(job)

    async def _ended(self, job: Job) -> None:
        """Have a job done, in a second process where the first falls over, and keep what came of it."""
        try:
            for _ in range(_TRIES):
                if await self._is_worked(job, self.folder / job.job_id):
                    break
            outcomes = {locale: await self.outcome(job, locale) for locale in job.task.targets}
            await self._database.run(lambda c: dub_jobs.end(c, job.job_id, outcomes))
        except Exception:
            pause_s = self._pauses_s.get(job.job_id, _PAUSE_S)
            self._pauses_s[job.job_id] = min(2 * pause_s, _LONGEST_PAUSE_S)
            asyncio.get_running_loop().call_later(pause_s, self._under_way_ids.discard, job.job_id)
            raise
        self._pauses_s.pop(job.job_id, None)
        self._under_way_ids.discard(job.job_id)
        self._webhooks.wake()
        await self.tidy()

    async def _is_worked(self, job: Job, place: Path) -> bool:
        """Run a worker process; return whether it came to its own end."""
        limit_s = _BASE_S + _PER_MEDIA_SECOND_S * job.media_s * len(job.task.targets)
        process = None
        try:
            await asyncio.to_thread(job.task.write, place / TASK)
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
        """Keep what a worker says of itself, until it says no more, and each locale as soon as it is done."""
        assert process.stdout is not None  # noqa: S101 - asked for as a pipe
        async for line in process.stdout:
            locale, step = json.loads(line)
            outcome = await self.outcome(job, locale) if step == "done" else None
            note = functools.partial(
                dub_jobs.note, job_id=job.job_id, locale=locale, step=step, outcome=outcome
            )
            await self._database.run(note)

    async def tidy(self) -> None:
        """Remove what nobody can ask for any more, and what a service that was killed left without a job."""
        there = await asyncio.to_thread(lambda: list(self.folder.iterdir()))
        names = [place.name for place in there]
        jobs = await self._database.read(functools.partial(dub_jobs.known, job_ids=names))
        await asyncio.to_thread(_tidy, there, jobs)


def _tidy(there: Collection[Path], jobs: Mapping[str, Job]) -> None:
    before = time.time() - _ORPHAN_S
    for place in there:
        job = jobs.get(place.name)
        with contextlib.suppress(OSError):
            if job is None:
                is_left = place.stat().st_mtime < before
            else:
                is_left = job.is_over or job.status is JobStatusValue.FAILED
            if is_left:
                shutil.rmtree(place)
            elif job is not None and is_terminal(job.status):
                _strip(place)


def _strip(place: Path) -> None:
    """Leave of a job that is over its outcomes, and the files that can be fetched; its medium goes last."""
    if (source := place / SOURCE).exists():
        for path in place.rglob("*"):
            is_kept = path.name in {OUTCOME, SOURCE} or path.stem == DUB
            if path.is_file() and not is_kept:
                path.unlink()
        source.unlink()
