"""Start services and children for the rows of the table."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks.texts import make_lines
from speechframe.testing import FaultyService

PROJECT_ROOT = Path(__file__).parents[1]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class BrokenRowError(Exception):
    """Raised if a job for a row of the table did not do its work, so its figure would be wrong."""


@dataclass(frozen=True)
class JobResult:
    """The measurements and results of a child's job.

    `before_mb` and `peak_mb` are the memory before the job and its maximum. `rows` is the number of rows that the job
    finished. `service_share` is the share of one core that the service used. `more` has the job's own results.
    """

    wall_s: float
    cpu_s: float
    before_mb: float
    peak_mb: float
    rows: int
    service_share: float
    more: dict[str, Any]

    @classmethod
    def from_values(cls, values: dict[str, Any], service_share: float) -> Self:
        """Return the measurements that a child printed."""
        names = ("wall_s", "cpu_s", "before_mb", "peak_mb", "rows")
        more = {name: value for name, value in values.items() if name not in names}
        return cls(**{name: values[name] for name in names}, service_share=service_share, more=more)

    @property
    def over_mb(self) -> float:
        """Peak memory in MB, minus the memory after the imports and before the job."""
        return self.peak_mb - self.before_mb


class Child:
    """A child process. It first imports the modules of a job, and starts the job on request."""

    def __init__(self) -> None:
        self.job = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child"],
            cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def get_ready(self, order: dict[str, Any]) -> None:
        """Let the child import the modules of a job, and wait until it is ready."""
        self.job = order["job"]
        self._write(order)
        self._read()

    def start(self) -> None:
        """Start the job."""
        self._write({})

    def read_result(self) -> dict[str, Any]:
        """Wait for the end of the job and return its values."""
        return self._read()

    def end(self) -> None:
        """End the process, even if its job still runs."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _write(self, value: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        # If the child has died, the next `_read` raises the error.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.end()
            raise BrokenRowError(f"the child for {self.job} ended without a result; read its standard error")
        values: dict[str, Any] = json.loads(line)
        return values


class Lab:
    """Starter of services and children for the rows of the table. Its ``with`` block ends the children.

    `rounds` is the number of repeated measurements. `long` uses a million rows in M2 and R1. `tiny` makes every row as
    small as possible, which only tests that the row works. `profiled` profiles every child.
    """

    def __init__(
        self, *, rounds: int, long: bool = False, tiny: bool = False, profiled: bool = False
    ) -> None:
        self.rounds = 1 if tiny else rounds
        self.long = long
        self.tiny = tiny
        self._profiled = profiled
        self._folder = Path()
        self._idle: dict[bool, list[Child]] = {}

    def __enter__(self) -> Self:
        # The folder /tmp may be in memory, but writing to the disk is part of the measurement.
        parent = PROJECT_ROOT / "build"
        parent.mkdir(exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
        return self

    def __exit__(self, *error: object) -> None:
        for child in (child for children in self._idle.values() for child in children):
            child.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def limit_rows(self, rows: int, tiny: int = 40) -> int:
        """Return the number of rows to make: `rows`, or at most `tiny` of them if the lab is tiny."""
        return min(rows, tiny) if self.tiny else rows

    def limit_rounds(self, most: int) -> int:
        """Return the number of rounds, but at most `most`, for measurements that take long."""
        return min(self.rounds, most)

    @contextlib.contextmanager
    def make_folder(self) -> Iterator[str]:
        """Provide a new folder until the end of the block."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            yield name

    @contextlib.contextmanager
    def run_service(self, **knobs: Any) -> Iterator[FaultyService]:
        """Run a service until the end of the block. Its key is new, because clients may store facts about a key."""
        given = {
            "audio_bytes": 60_000,
            "retry_after": None,
            "keys": [f"bench-{secrets.token_hex(8)}"],
            **knobs,
        }
        with FaultyService(**given) as service:
            yield service

    def write_table(self, rows: int, characters: int, folder: str) -> str:
        """Write a CSV file with texts into a folder, and return its path."""
        path = Path(folder, "texts.csv")
        with path.open("w", encoding="utf-8") as file:
            file.write("text\n")
            file.writelines(f'"{text}"\n' for text in make_lines(rows, characters))
        return str(path)

    def run_child(
        self,
        job: str,
        service: FaultyService | None = None,
        *,
        tuned: bool = False,
        **arguments: Any,
    ) -> JobResult:
        """Run a job in a new process. If `arguments` contain ``rows``, the job must finish this number of rows.

        `job` is the name of a module and its function, such as ``jobs.generate``. `tuned` tunes the memory allocator.
        """
        return self.run_children(job, service, [arguments], tuned=tuned)[0]

    def run_children(
        self,
        job: str,
        service: FaultyService | None,
        arguments: Sequence[dict[str, Any]],
        *,
        tuned: bool = False,
    ) -> list[JobResult]:
        """Run a job in one new process for each of `arguments`. All start together. See :meth:`run_child`."""
        to = {} if service is None else {"to": _get_address(service)}
        common = {"job": job, "tuned": tuned, "profiled": self._profiled}
        with contextlib.ExitStack() as ends:
            started = [ends.enter_context(self._get_child(is_tuned=tuned)) for _ in arguments]
            for child, own in zip(started, arguments, strict=True):
                child.get_ready({**common, "arguments": {**to, **own}})
            busy_s = _read_cpu_s(service)
            for child in started:
                child.start()
            results = [child.read_result() for child in started]
            busy_s = _read_cpu_s(service) - busy_s
        longest_s = max(values["wall_s"] for values in results)
        for own, values in zip(arguments, results, strict=True):
            if values["rows"] != own.get("rows", values["rows"]):
                raise BrokenRowError(f"{job} ended {values['rows']} rows of {own['rows']}")
        return [JobResult.from_values(values, busy_s / longest_s) for values in results]

    @contextlib.contextmanager
    def _get_child(self, *, is_tuned: bool) -> Iterator[Child]:
        """Provide a new child until the end of the block. A tiny lab uses earlier children again to save time."""
        idle = self._idle.setdefault(is_tuned, [])
        child = idle.pop() if idle else Child()
        try:
            yield child
        except BaseException:
            child.end()
            raise
        if self.tiny:
            idle.append(child)
        else:
            child.end()


def _get_address(service: FaultyService) -> dict[str, str]:
    settings = service.settings
    return {"url": service.url, "key": service.api_key.get_secret_value(), "profile": settings.profile or ""}


def _read_cpu_s(service: FaultyService | None) -> float:
    """Return the processor time of a service so far, in seconds."""
    if service is None:
        return 0.0
    # The second field is the name in brackets, which may contain spaces, so the fields behind it are split. User and
    # system time are fields 14 and 15 of the whole line.
    fields = Path(f"/proc/{service.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
