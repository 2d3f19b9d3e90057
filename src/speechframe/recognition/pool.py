"""Processes of this machine that recognise speech. Each does one clip at a time, on one core.

This module imports no engine. Each process runs :mod:`speechframe.recognition.worker`, which imports them. A
message to a process is a line of JSON and the bytes of a clip. Its answer is a line of JSON.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from speechframe.errors import AudioError, EngineError, ServerError, SettingsError, SpeechframeError
from speechframe.settings.hidden import copy_environment_without_keys

_TICK_S = 30.0  # seconds between two extensions of the time for a clip
_END_S = 2.0  # seconds to wait for the exit status of a process that closed its pipes
# Each process uses one thread, because several processes run in parallel.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

_Process = subprocess.Popen[bytes]


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RecogniserPool:
    """Processes with one recogniser. A process starts when a clip finds all others at work.

    Parameters
    ----------
    name
        Name of the recogniser. None for the first one that works.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        # These threads wait for replies.
        self._threads = ThreadPoolExecutor(2 * count_cores(), "speechframe-recogniser")

    async def open(self) -> str:
        """Start the first process. Return the recogniser's name and version once its model is loaded.

        Raises
        ------
        SettingsError
            If no recogniser works, or none has the name. The message contains the command to install one.
        """
        try:
            found = await self.ask({}, b"", bool)
        except SpeechframeError as error:
            await self.close()
            raise SettingsError(f"transcribe needs a speech recogniser: {error}") from None
        return f"{found['name']}-{found['version']}"

    async def ask(
        self, facts: Mapping[str, Any], audio: bytes, extend: Callable[[], object]
    ) -> dict[str, Any]:
        """Return the answer of a process. `extend` is called from time to time until the answer is there.

        Raises
        ------
        AudioError, EngineError
            If the clip cannot be decoded or recognised.
        ServerError
            If the process ended. Another process replaces it.
        """
        # Start processes in this thread. The kernel kills a child when the thread that started it ends.
        process = self._idle.pop() if self._idle else self._start()
        asking = asyncio.get_running_loop().run_in_executor(self._threads, _exchange, process, facts, audio)
        # A call that was cancelled does not read the error of its ended process.
        asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            while not (await asyncio.wait({asking}, timeout=_TICK_S))[0]:
                extend()
            answer = asking.result()
        except BaseException:
            self._all.discard(process)
            _end(process)
            raise
        self._idle.append(process)
        if "error" in answer:
            raise (AudioError if answer["is_audio"] else EngineError)(answer["error"])
        return answer

    async def close(self) -> None:
        """End all processes, even during a clip."""
        while self._all:
            _end(self._all.pop())
        await asyncio.to_thread(self._threads.shutdown)

    def _start(self) -> _Process:
        command = [sys.executable, "-P", "-m", "speechframe.recognition.worker", str(os.getpid())]
        process = subprocess.Popen(  # noqa: S603 - our own module
            [*command, *([] if self._name is None else [self._name])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**copy_environment_without_keys(), **_ENVIRONMENT},
            # Ctrl-C must reach this process only, because clips in work finish first.
            start_new_session=True,
        )
        self._all.add(process)
        return process


def _exchange(process: _Process, facts: Mapping[str, Any], audio: bytes) -> dict[str, Any]:
    """Send a clip and return the answer. ServerError if the process ended before its answer."""
    assert process.stdin is not None  # noqa: S101 - true, because `_start` requests pipes
    assert process.stdout is not None  # noqa: S101 - same
    try:
        process.stdin.write(json.dumps({**facts, "audio_bytes": len(audio)}).encode() + b"\n" + audio)
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
    except (OSError, ValueError):  # ValueError for no line, and for a pipe that `_end` closed
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        code = process.returncode or 0
        description = (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        )
        raise ServerError(f"the recogniser process {description}", status=500) from None
    return answer


def _end(process: _Process) -> None:
    """Kill a process, even during a clip, and close its pipes."""
    process.kill()
    with suppress(OSError), process:
        pass
