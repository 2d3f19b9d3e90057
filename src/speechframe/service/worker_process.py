"""One worker process: started, told a job at a time, ended."""

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
from speechframe.service.config import MEBI
from speechframe.service.job import JOB_HEAD, REPLY_HEAD, Reply, read_facts
from speechframe.settings.hidden import environment_without_keys

END_S = 2.0
"""How long a worker that has closed its pipes may take to be gone: how it ended is worth a moment."""

# One thread each: the processes are the parallelism. Buffers of audio stay on the heap instead of being
# mapped and unmapped for every job: a seventh of the CPU of a short line.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 * MEBI),
    "MALLOC_TRIM_THRESHOLD_": str(64 * MEBI),
    "PYTHONUNBUFFERED": "1",
}


class WorkerProcess:
    """One worker process, ready for jobs."""

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
    async def started(cls, limit_s: float) -> "WorkerProcess":
        """Start a process, and wait until it has said which engines it has.

        Raises
        ------
        SettingsError
            When it does not come up within `limit_s`, or no engine that speaks works.
        """
        process = await spawned("speechframe.service.worker", str(os.getpid()))
        try:
            async with asyncio.timeout(limit_s):
                hello = await _hello(process)
        except BaseException as error:
            if isinstance(error, asyncio.IncompleteReadError):
                # It ends by itself; how, is worth a moment.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), END_S)
            await killed(process)
            if isinstance(error, TimeoutError | asyncio.IncompleteReadError):
                raise SettingsError(
                    f"a worker process did not start (exit status {process.returncode})"
                ) from None
            raise
        return cls(process, hello)

    async def ask(self, message: bytes) -> Reply:
        """Have a job done."""
        self.jobs += 1
        self._in.write(message)
        await self._in.drain()
        sizes = REPLY_HEAD.unpack(await self._out.readexactly(REPLY_HEAD.size))
        facts, words, audio = [await self._out.readexactly(size) if size else b"" for size in sizes]
        return Reply(read_facts(facts), words, audio)

    async def end(self) -> None:
        """End the process, whatever it does."""
        await killed(self.process)

    def cpu_s(self) -> float:
        """Return the CPU time in seconds that the process and its children have used; blocks a little."""
        total = 0.0
        with contextlib.suppress(psutil.Error):
            for process in (self._usage, *self._usage.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    total += sum(process.cpu_times()[:4])  # with children that have ended
        return total

    def describe_end(self) -> str:
        """Return a phrase for the log that says how the process ended."""
        code = self.process.returncode
        if code is None:
            return "does not answer"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"


async def spawned(module: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start a module of ours as a process, with pipes to it and no key of anybody."""
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=4 * MEBI,
            env={**environment_without_keys(), **_ENVIRONMENT},
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        # asyncio, interrupted while it connects the pipes, leaves a process and its pipes behind.
        await killed(await spawning)
        raise


async def killed(process: asyncio.subprocess.Process) -> None:
    """End a process, whatever it does, and close its pipes."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    # Its pipes are read to their end and closed, whatever was left in them; a cancellation waits for that.
    ending = asyncio.ensure_future(process.communicate())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise


async def _hello(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None  # noqa: S101 - asked for as a pipe
    size = JOB_HEAD.unpack(await process.stdout.readexactly(JOB_HEAD.size))[0]
    hello: dict[str, Any] = json.loads(await process.stdout.readexactly(size))
    if not hello["engines"].get("speaker"):
        reasons = "; ".join(hello["broken"].values()) or "none is installed"
        raise SettingsError(f"no speech engine works: {reasons}")
    return hello
