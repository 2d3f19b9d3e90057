"""Start services and children for the rows of the table."""

import contextlib
import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from speechframe.local.start import LocalService
from speechframe.testing import FaultyService

PROJECT_ROOT = Path(__file__).parents[1]


class BrokenRowError(Exception):
    """Raised if a job for a row of the table did not do its work, so its figure would be wrong."""


@dataclass(frozen=True)
class JobResult:
    """The measurements and results of a child's job.

    `before_mb` and `peak_mb` are the memory before the job and its maximum. `rows` is the number of rows that the job
    finished. `more` has the job's own results.
    """

    wall_s: float
    cpu_s: float
    before_mb: float
    peak_mb: float
    service_cpu_s: float
    service_growth_mb: float
    rows: int
    more: dict[str, Any]

    @property
    def over_mb(self) -> float:
        """Peak memory in MB, minus the memory after the imports and before the job."""
        return self.peak_mb - self.before_mb


def compute_ratios(ours: Sequence[Any], others: Sequence[Any], name: str) -> list[float]:
    """Return the ratio of an attribute of our result to that of the other result, for each round."""
    return [getattr(one, name) / getattr(other, name) for one, other in zip(ours, others, strict=True)]


class Lab:
    """Starter of services and children for the rows of the table. Its ``with`` block ends what it keeps.

    `rounds` is the number of repeated measurements. `tiny` makes every row as small as possible, which only tests that
    the row works. `service_share` is the largest share of one core that a `FaultyService` used. Near 1, the service
    limits the pace of its callers.
    """

    def __init__(self, *, rounds: int, tiny: bool = False) -> None:
        self.rounds = 1 if tiny else rounds
        self.tiny = tiny
        self.service_share = 0.0
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Self:
        # The folder /tmp may be in memory, but writing to the disk is part of the measurement.
        parent = PROJECT_ROOT / "build"
        parent.mkdir(exist_ok=True)
        self._folder = self._ends.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=parent))
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    def keep(self, context: contextlib.AbstractContextManager[Any]) -> Any:
        """Enter a context that several rows share, until the end of the lab."""
        return self._ends.enter_context(context)

    def limit_rows(self, rows: int, tiny: int = 40) -> int:
        """Return the number of rows to make: `rows`, or at most `tiny` of them if the lab is tiny."""
        return min(rows, tiny) if self.tiny else rows

    def run_in_turns(self, *runs: Callable[[], Any]) -> list[list[Any]]:
        """Call functions one after the other in each round, and return the results of each function."""
        rounds = [[run() for run in runs] for _ in range(self.rounds)]
        return [list(results) for results in zip(*rounds, strict=True)]

    def make_folder(self) -> tempfile.TemporaryDirectory[str]:
        """Return a context with a new folder, which is removed at its end."""
        return tempfile.TemporaryDirectory(dir=self._folder)

    def run_service(self, **knobs: Any) -> FaultyService:
        """Return a service, not started yet. Its key is new, because clients may store facts about a key."""
        given = {"audio_bytes": 60_000, "retry_after": None, "keys": [f"bench-{secrets.token_hex(8)}"]}
        return FaultyService(**given | knobs)

    def run_child(
        self, job: str, service: FaultyService | LocalService | None = None, **arguments: Any
    ) -> JobResult:
        """Run a job in a new process. If `arguments` contain ``rows``, the job must finish this number of rows.

        `job` is the name of a module and its function, such as ``jobs.generate``.
        """
        return self.run_children(job, service, [arguments])[0]

    def run_children(
        self, job: str, service: FaultyService | LocalService | None, arguments: Sequence[dict[str, Any]]
    ) -> list[JobResult]:
        """Run a job in one new process for each of `arguments`. All start together. See :meth:`run_child`."""
        to = {} if service is None else {"to": _get_address(service)}
        with contextlib.ExitStack() as ends:
            children = [ends.enter_context(_start_child()) for _ in arguments]
            for child, own in zip(children, arguments, strict=True):
                order = {"job": job, "folder": ends.enter_context(self.make_folder())}
                order["service_pid"] = None if service is None else service.pid
                _write(child, {**order, "arguments": {**to, **own}})
            for child in children:
                _read(child, job)
            for child in children:
                _write(child, {})
            results = [JobResult(**_read(child, job)) for child in children]
        for own, result in zip(arguments, results, strict=True):
            if result.rows != own.get("rows", result.rows):
                raise BrokenRowError(f"{job} ended {result.rows} rows of {own['rows']}")
            if isinstance(service, FaultyService):
                self.service_share = max(self.service_share, result.service_cpu_s / result.wall_s)
        return results


@contextlib.contextmanager
def _start_child() -> Iterator[subprocess.Popen[str]]:
    """Start a child process, and wait for its end. If an error ends the block, the child is killed."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.child"],
        cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        try:
            yield child
        except BaseException:
            child.kill()
            raise


def _write(child: subprocess.Popen[str], value: dict[str, Any]) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(value) + "\n")
    child.stdin.flush()


def _read(child: subprocess.Popen[str], job: str) -> dict[str, Any]:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise BrokenRowError(f"the child for {job} ended without a result; read its standard error")
    values: dict[str, Any] = json.loads(line)
    return values


def _get_address(service: FaultyService | LocalService) -> dict[str, str]:
    settings = service.settings
    return {"url": service.url, "key": service.api_key.get_secret_value(), "profile": settings.profile or ""}
