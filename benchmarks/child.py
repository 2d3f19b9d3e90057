"""Run jobs in a child process, one after the other, and print their measurements.

The process is started as ``python -m benchmarks.child``. A line of JSON on standard input names a job. The child
imports the module of the job, and prints that it is ready. The next line starts the job. So start-up and imports are
not measured, and several children can start together. After a job the child waits for another line. It ends when its
standard input is closed.
"""

import cProfile
import importlib
import json
import pstats
import resource
import sys
import time
from pathlib import Path
from typing import Any, Self

MB = 2**20
"""Number of bytes in a MB."""

_TOP_FUNCTIONS = 30
"""Number of functions that a profile prints."""


def read_status_mb(field: str) -> float:
    """Return a field of /proc/self/status in MB. ``VmRSS`` is the memory now, ``VmHWM`` its maximum so far."""
    for text in Path("/proc/self/status").read_text("ascii").splitlines():
        name, _, value = text.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024 / MB
    raise LookupError(field)


class Clock:
    """Measure wall time, processor time (user and system) and memory of a ``with`` block, and keep them in `found`."""

    def __init__(self, *, profiled: bool) -> None:
        self.found: dict[str, float] = {}
        self._profile = cProfile.Profile(time.thread_time) if profiled else None

    def __enter__(self) -> Self:
        self.found["before_mb"] = read_status_mb("VmRSS")
        self._cpu_s, self._wall_s = _read_cpu_s(), time.perf_counter()
        if self._profile is not None:
            self._profile.enable()
        return self

    def __exit__(self, *error: object) -> None:
        if self._profile is not None:
            self._profile.disable()
        self.found["wall_s"] = time.perf_counter() - self._wall_s
        self.found["cpu_s"] = _read_cpu_s() - self._cpu_s
        self.found["peak_mb"] = read_status_mb("VmHWM")
        if self._profile is not None:
            pstats.Stats(self._profile, stream=sys.stderr).sort_stats("tottime").print_stats(_TOP_FUNCTIONS)


def _read_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    for line in sys.stdin:
        _run_job(json.loads(line))


def _run_job(order: dict[str, Any]) -> None:
    if order["tuned"]:
        from speechframe.processes.allocator import tune_allocator

        tune_allocator()
    module, _, name = order["job"].partition(".")
    job = getattr(importlib.import_module(f"benchmarks.{module}"), name)
    clock = Clock(profiled=order["profiled"])
    _write({"ready": True})
    if sys.stdin.readline():
        result = job(clock, **order["arguments"])
        _write({**clock.found, **result})


def _write(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
