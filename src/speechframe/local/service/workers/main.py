"""Run a worker process. It does one job at a time, and gets jobs and sends replies through its pipes.

Run as ``python -m speechframe.local.service.workers.main PARENT_PID``. If a native library
crashes, hangs or leaks, only this process fails, and one request. The process ends
with its service. Between jobs, it ends at the end of its standard input. During a
job, the kernel signals the death of the parent.
"""

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, BinaryIO

from speechframe.engines import registry
from speechframe.engines.faults import CALLER_WORDS, without_paths
from speechframe.engines.kinds import KINDS
from speechframe.errors import EngineError, EngineFault
from speechframe.local.service.workers import changer as worker_changer
from speechframe.local.service.workers import speech as worker_speech
from speechframe.local.service.workers import translation as worker_translate
from speechframe.local.service.workers.job import JOB_HEAD, Facts, WorkerReply
from speechframe.processes.allocator import tune_allocator
from speechframe.processes.parent import die_with_parent

_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031

TASKS: Mapping[str, Callable[[dict[str, Any]], WorkerReply]] = MappingProxyType(
    {
        "speak": worker_speech.speak,
        "stream": worker_speech.speak_part,
        "measure": worker_changer.measure,
        "change": worker_changer.change,
        "translate": worker_translate.translate,
        "tell_languages": worker_translate.tell_languages,
        "probe": worker_changer.probe,
    }
)
"""The functions of a worker, by the job's ``kind``."""


def main() -> None:
    """Serve jobs from standard input until it ends."""
    # Without prctl, the end of standard input remains.
    die_with_parent(int(sys.argv[1]))
    tune_allocator()
    # Ctrl-C in a terminal signals the whole group, but the service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs, replies = _pipes()
    # The service itself logs left-out engines once. Workers would repeat the log records.
    logging.getLogger("speechframe").setLevel(logging.ERROR)
    _send_hello(replies, _hello())
    while (job := _read_job(jobs)) is not None:
        for part in _answer(job):
            replies.write(part)
        replies.flush()


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    # A native library that prints must not print into the replies.
    replies = os.fdopen(os.dup(1), "wb", buffering=_PIPE_BYTES)
    os.dup2(2, 1)
    with contextlib.suppress(OSError, ImportError):
        import fcntl

        # A clip of usual length passes at once, without a context switch every 64 KB.
        fcntl.fcntl(replies.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)
    return sys.stdin.buffer, replies


def _hello() -> dict[str, Any]:
    reports = registry.describe()
    engines: dict[str, dict[str, str | None]] = {kind.name: {} for kind in KINDS}
    for report in reports:
        if report.works:
            engines[report.kind][report.name] = report.version
    # A broken or missing engine does not affect the other engines.
    broken = {f"{report.kind} {report.name}": report.problem for report in reports if not report.works}
    left_out = [report.problem for report in reports if not report.works and not report.is_missing]
    left_out += [words for report in reports for words in report.left_out]
    return {"engines": engines, "broken": broken, "left_out": left_out}


def _send_hello(replies: BinaryIO, hello: dict[str, Any]) -> None:
    body = json.dumps(hello).encode()
    replies.write(JOB_HEAD.pack(len(body)) + body)
    replies.flush()


def _read_job(jobs: BinaryIO) -> dict[str, Any] | None:
    head = jobs.read(JOB_HEAD.size)
    if len(head) < JOB_HEAD.size:
        return None
    job: dict[str, Any] = json.loads(jobs.read(JOB_HEAD.unpack(head)[0]))
    return job


def _answer(job: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    """Return the reply to a job as a message. An engine's fault costs one request, not the worker."""
    try:
        reply = TASKS[job.pop("kind")](job)
        return _with_memory(reply).encoded()
    except BaseException as error:  # noqa: BLE001 - of a plug-in even sys.exit and a panic of a native library
        return _with_memory(WorkerReply(_facts_of(error))).encoded()


def _facts_of(error: BaseException) -> Facts:
    if isinstance(error, EngineFault):
        return Facts(failed=CALLER_WORDS, fault=str(error))
    if isinstance(error, EngineError):
        return Facts(refused=without_paths(str(error)))
    named = type(error).__name__
    return Facts(failed=f"{error.strerror} ({named})" if isinstance(error, OSError) else named)


def _with_memory(reply: WorkerReply) -> WorkerReply:
    return replace(reply, facts=replace(reply.facts, memory_bytes=_memory_bytes()))


def _memory_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - once a job, as cheap as it gets
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
