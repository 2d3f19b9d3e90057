"""Run a job in a child process, and print its measurements.

The process is started as ``python -m benchmarks.child``. A line of JSON on standard input names a job. The child
imports the module of the job, and prints that it is ready. The next line starts the job. So start-up and imports are
not measured, and several children can start together.
"""

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, Self

import psutil

MB = 2**20
"""Number of bytes in a MB."""


def read_status_mb(field: str) -> float:
    """Return a field of /proc/self/status in MB. ``VmRSS`` is the memory now, ``VmHWM`` its maximum so far."""
    for text in Path("/proc/self/status").read_text("ascii").splitlines():
        name, _, value = text.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024 / MB
    raise LookupError(field)


class Clock:
    """Measure wall time, processor time (user and system) and memory of a ``with`` block, and keep them in `found`.

    The figures of the service are the sums over its process `service_pid` and the children of this process. Without a
    service they are 0.
    """

    def __init__(self, service_pid: int | None) -> None:
        self.found: dict[str, float] = {}
        self._service_pid = service_pid

    def __enter__(self) -> Self:
        self._service_cpu_s, self._service_mb = self._read_service()
        self.found["before_mb"] = read_status_mb("VmRSS")
        self._cpu_s, self._wall_s = _read_cpu_s(), time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.found["wall_s"] = time.perf_counter() - self._wall_s
        self.found["cpu_s"] = _read_cpu_s() - self._cpu_s
        self.found["peak_mb"] = read_status_mb("VmHWM")
        cpu_s, mb = self._read_service()
        self.found["service_cpu_s"] = cpu_s - self._service_cpu_s
        self.found["service_growth_mb"] = mb - self._service_mb

    def _read_service(self) -> tuple[float, float]:
        """Return the processor time of the service so far in seconds, and its memory in MB."""
        if self._service_pid is None:
            return 0.0, 0.0
        root = psutil.Process(self._service_pid)
        processes = [root, *root.children(recursive=True)]
        times = [process.cpu_times() for process in processes]
        memory_bytes = sum(process.memory_info().rss for process in processes)
        return sum(time.user + time.system for time in times), memory_bytes / MB


def _read_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    order = json.loads(sys.stdin.readline())
    module, _, name = order["job"].partition(".")
    job = getattr(importlib.import_module(f"benchmarks.{module}"), name)
    os.chdir(order["folder"])
    _write({"ready": True})
    if sys.stdin.readline():
        clock = Clock(order["service_pid"])
        more: dict[str, Any] = job(clock, **order["arguments"])
        _write({**clock.found, "rows": more.pop("rows"), "more": more})


def _write(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
