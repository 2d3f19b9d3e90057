"""Send interim answers with status 102, so that clients can wait for long calls without a timeout.

A client requests interim answers with a header. The service sends one every few seconds while the call has a
job in the queue or in a worker. Other clients get none, because some would regard a 102 as the final answer.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from speechframe.local.service.workers.pool import CALL_JOBS, PendingJob
from speechframe.spec import chosen


class InterimAnswers:
    """Sends interim answers to the callers that requested them.

    Parameters
    ----------
    every_s
        Seconds between two interim answers.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        # The keys are id(request), because a request is not hashable.
        self._calls: dict[int, tuple[web.BaseRequest, set[PendingJob]]] = {}

    @contextmanager
    def follow(self, request: web.Request) -> Iterator[None]:
        """Send interim answers to a request during a block, if the request has the header."""
        if request.headers.get(chosen.PROGRESS_HEADER) is None or request.version < (1, 1):
            yield
            return
        jobs: set[PendingJob] = set()
        self._calls[id(request)] = request, jobs
        token = CALL_JOBS.set(jobs)
        try:
            yield
        finally:
            CALL_JOBS.reset(token)
            self.end(request)

    def end(self, request: web.BaseRequest) -> None:
        """Send no more interim answers to a request. Call this when the answer begins."""
        self._calls.pop(id(request), None)

    async def run(self) -> None:
        """Send interim answers to all followed calls that have a job, until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            for request, jobs in list(self._calls.values()):
                if jobs and request.transport is not None and not request.transport.is_closing():
                    request.transport.write(_build_interim_answer(jobs))


def _build_interim_answer(jobs: set[PendingJob]) -> bytes:
    """Return a 102 answer with the state and the CPU time of a call, computed from its jobs."""
    state = "working" if any(job.is_begun for job in jobs) else "queued"
    cpu_s = sum(job.cpu_s for job in jobs)
    return (
        f"HTTP/1.1 102 Processing\r\n{chosen.CALL_STATE_HEADER}: {state}\r\n"
        f"{chosen.CALL_CPU_HEADER}: {cpu_s:.1f}\r\n\r\n"
    ).encode()
