"""Run a worker process, ``python -m speechframe.local.service.workers.main PARENT_PID``.

The process reads jobs from its standard input, runs one at a time, and writes the replies to its standard
output. If a native library crashes, hangs or leaks memory, only this process and one request fail. The
process ends with its service. Between jobs, the end of standard input ends it. During a job, a signal from
the kernel ends it when the parent dies.
"""

import contextlib
import json
import logging
import os
import pickle
import signal
import sys
from dataclasses import replace
from typing import Any, BinaryIO

from speechframe.engines import registry
from speechframe.engines.faults import FAULT_WORDS_FOR_CALLERS, shorten_paths
from speechframe.engines.kinds import KINDS
from speechframe.errors import EngineError, EngineFault
from speechframe.local.service.workers.job import JOB_HEAD, Facts, WorkerJob, WorkerReply
from speechframe.processes.allocator import tune_allocator
from speechframe.processes.parent import end_with_parent

_PIPE_BYTES = 1 << 20
"""Size in bytes of the pipe for replies, and of the buffer before it."""
_F_SETPIPE_SZ = 1031
"""The fcntl command of Linux that sets the size of a pipe."""


def main() -> None:
    """Serve jobs from standard input until it ends."""
    # On systems without prctl, only the end of standard input ends this process.
    end_with_parent(int(sys.argv[1]))
    tune_allocator()
    # Ignore Ctrl-C, which a terminal sends to workers, too. The service decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs, replies = _open_pipes()
    # The service logs once which engines are left out. Workers would repeat these log records.
    logging.getLogger("speechframe").setLevel(logging.ERROR)
    _send_hello(replies, _make_hello())
    while (job := _read_job(jobs)) is not None:
        for part in _run_job(job):
            replies.write(part)
        replies.flush()


def _open_pipes() -> tuple[BinaryIO, BinaryIO]:
    # Redirect standard output to standard error, so that a native library cannot print into the replies.
    replies = os.fdopen(os.dup(1), "wb", buffering=_PIPE_BYTES)
    os.dup2(2, 1)
    with contextlib.suppress(OSError, ImportError):
        import fcntl

        # With a large pipe, most replies are written at once, without a context switch every 64 KB.
        fcntl.fcntl(replies.fileno(), _F_SETPIPE_SZ, _PIPE_BYTES)
    return sys.stdin.buffer, replies


def _make_hello() -> dict[str, Any]:
    reports = registry.report_engines()
    engines: dict[str, dict[str, str | None]] = {kind.name: {} for kind in KINDS}
    for report in reports:
        if report.works:
            engines[report.kind][report.name] = report.version
    # A broken or missing engine does not affect the other engines.
    broken = {f"{report.kind} {report.name}": report.problem for report in reports if not report.works}
    left_out = [report.problem for report in reports if not report.works and not report.is_missing]
    left_out += [message for report in reports for message in report.left_out]
    return {"engines": engines, "broken": broken, "left_out": left_out}


def _send_hello(replies: BinaryIO, hello: dict[str, Any]) -> None:
    body = json.dumps(hello).encode()
    replies.write(JOB_HEAD.pack(len(body)) + body)
    replies.flush()


def _read_job(jobs: BinaryIO) -> WorkerJob | None:
    head = jobs.read(JOB_HEAD.size)
    if len(head) < JOB_HEAD.size:
        return None
    # Only the service writes to this pipe.
    job: WorkerJob = pickle.loads(jobs.read(JOB_HEAD.unpack(head)[0]))  # noqa: S301
    return job


def _run_job(job: WorkerJob) -> tuple[bytes, bytes, bytes]:
    """Run a job and return the reply as a message. Errors of the job become facts of the reply."""
    try:
        reply = job.run()
        return _add_memory(reply).encode_message()
    except BaseException as error:  # noqa: BLE001 - of a plug-in even sys.exit and a panic of a native library
        return _add_memory(WorkerReply(_describe_error(error))).encode_message()


def _describe_error(error: BaseException) -> Facts:
    if isinstance(error, EngineFault):
        return Facts(failed=FAULT_WORDS_FOR_CALLERS, fault=str(error))
    if isinstance(error, EngineError):
        return Facts(refused=shorten_paths(str(error)))
    named = type(error).__name__
    return Facts(failed=f"{error.strerror} ({named})" if isinstance(error, OSError) else named)


def _add_memory(reply: WorkerReply) -> WorkerReply:
    return replace(reply, facts=replace(reply.facts, memory_bytes=_measure_memory_bytes()))


def _measure_memory_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - once a job, as cheap as it gets
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
