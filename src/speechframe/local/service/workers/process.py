"""Start a worker process, send it one job at a time, and end it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from speechframe.errors import SettingsError
from speechframe.local.service.config import MEBIBYTE
from speechframe.local.service.workers.job import JOB_HEAD, REPLY_HEAD, WorkerReply, read_facts
from speechframe.settings.hidden import copy_environment_without_keys

EXIT_TIMEOUT_S = 2.0
"""Seconds to wait for the exit status of a worker that has closed its pipes. Messages contain the status."""

# Environment of workers. Each process uses one thread, because several processes run in parallel. Audio
# buffers stay on the heap, because to map and unmap memory for every job takes a seventh of the CPU time of a
# short text.
_WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * MEBIBYTE),
    "MALLOC_TRIM_THRESHOLD_": str(64 * MEBIBYTE),
    "PYTHONUNBUFFERED": "1",
}


class WorkerProcess:
    """One worker process that is ready for jobs.

    Parameters
    ----------
    process
        The process, with pipes as standard input and output.
    hello
        The first message of the process. It reports the engines that work, and those that do not.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        hello: Mapping[str, Any],
    ) -> None:
        assert process.stdin is not None  # noqa: S101 - asked for as pipes
        assert process.stdout is not None  # noqa: S101 - same
        self.process = process
        self.engines: Mapping[str, Mapping[str, str]] = hello["engines"]
        self.broken: Mapping[str, str] = hello["broken"]
        self.left_out: Sequence[str] = hello["left_out"]
        self.jobs = 0
        self._usage = psutil.Process(process.pid)
        self._in, self._out = process.stdin, process.stdout
        self.exited = asyncio.ensure_future(process.wait())

    @classmethod
    async def start(cls, limit_s: float) -> "WorkerProcess":
        """Start a process, wait until it has reported its engines, and return the worker.

        Raises
        ------
        SettingsError
            The process does not start within `limit_s` seconds, or no speech engine works.
        """
        process = await spawn_module("speechframe.local.service.workers.main", str(os.getpid()))
        try:
            async with asyncio.timeout(limit_s):
                hello = await _read_hello(process)
        except BaseException as error:
            if isinstance(error, asyncio.IncompleteReadError):
                # The process is about to exit. Wait for its exit status, which the message contains.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), EXIT_TIMEOUT_S)
            await kill_process(process)
            if isinstance(error, TimeoutError | asyncio.IncompleteReadError):
                raise SettingsError(
                    f"a worker process did not start (exit status {process.returncode})"
                ) from None
            raise
        return cls(process, hello)

    async def send_job(self, message: bytes) -> WorkerReply:
        """Send a job, as a message of bytes, to the process and return the reply."""
        self.jobs += 1
        self._in.write(message)
        await self._in.drain()
        sizes = REPLY_HEAD.unpack(await self._out.readexactly(REPLY_HEAD.size))
        facts, result_json, audio = [await self._out.readexactly(size) if size else b"" for size in sizes]
        return WorkerReply(read_facts(facts), result_json, audio)

    async def end(self) -> None:
        """Kill the process, even during a job."""
        await kill_process(self.process)

    def measure_cpu_s(self) -> float:
        """Return the CPU time in seconds of the process and its children. Call this in a thread."""
        total = 0.0
        with contextlib.suppress(psutil.Error):
            for process in (self._usage, *self._usage.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += sum(process.cpu_times()[:4])  # with children that have ended
        return total

    def describe_end(self) -> str:
        """Return a phrase for the log, such as "exited with status 1", with the signal or exit status."""
        code = self.process.returncode
        if code is None:
            return "does not answer"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"


async def spawn_module(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start a module as a Python process with pipes, and return it. Its environment contains no keys."""
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=4 * MEBIBYTE,
            env={**copy_environment_without_keys(), **_WORKER_ENVIRONMENT},
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        # Wait for the start, then kill the process. A cancelled start would leave process and pipes behind.
        await kill_process(await spawning)
        raise


async def kill_process(process: asyncio.subprocess.Process) -> None:
    """Kill a process, even during a job, and close its pipes."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    # Read the pipes to their end and close them, even if this function is cancelled.
    ending = asyncio.ensure_future(process.communicate())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise


async def _read_hello(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None  # noqa: S101 - asked for as a pipe
    size = JOB_HEAD.unpack(await process.stdout.readexactly(JOB_HEAD.size))[0]
    hello: dict[str, Any] = json.loads(await process.stdout.readexactly(size))
    if not hello["engines"].get("speaker"):
        reasons = "; ".join(hello["broken"].values()) or "none is installed"
        raise SettingsError(f"no speech engine works: {reasons}")
    return hello
