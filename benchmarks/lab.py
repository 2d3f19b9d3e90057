"""Where rows are measured: services and children to order, sizes, medians."""

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

from benchmarks.texts import lines
from speechframe.testing import FaultyService

ROOT = Path(__file__).parents[1]
_TICKS = os.sysconf("SC_CLK_TCK")


class BrokenRowError(Exception):
    """A row of the bench did not do its job: its figure would mean nothing."""


@dataclass(frozen=True)
class Ran:
    """What a child took and found."""

    wall_s: float
    cpu_s: float
    before_mb: float
    peak_mb: float
    rows: int
    service_share: float
    more: dict[str, Any]

    @classmethod
    def of(cls, said: dict[str, Any], service_share: float) -> Self:
        """Return what a child said it took."""
        names = ("wall_s", "cpu_s", "before_mb", "peak_mb", "rows")
        more = {name: value for name, value in said.items() if name not in names}
        return cls(**{name: said[name] for name in names}, service_share=service_share, more=more)

    @property
    def over_mb(self) -> float:
        """The highest memory over what there was before the job, right after the imports."""
        return self.peak_mb - self.before_mb


class Child:
    """A process that has imported what its job needs, and begins when told."""

    def __init__(self) -> None:
        self.job = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def get_ready(self, told: dict[str, Any]) -> None:
        """Let it import what a job needs."""
        self.job = told["job"]
        self._write(told)
        self._read()

    def go(self) -> None:
        """Let it begin."""
        self._write({})

    def found(self) -> dict[str, Any]:
        """Wait for its end and return what it said."""
        return self._read()

    def end(self) -> None:
        """End it, whatever it does."""
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
        # One that has died is told by what it does not say.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.end()
            raise BrokenRowError(f"the child for {self.job} ended without a word; see its standard error")
        found: dict[str, Any] = json.loads(line)
        return found


class Lab:
    """Services, children, sizes; a context manager that leaves nothing behind.

    `tiny` makes every row as small as it can be: it then shows that it works, and nothing else.
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
        # Beside the code and not under /tmp, which may be memory: the disk is part of what is measured.
        parent = ROOT / "build"
        parent.mkdir(exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix="bench-", dir=parent))
        return self

    def __exit__(self, *error: object) -> None:
        for child in (child for children in self._idle.values() for child in children):
            child.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def size(self, rows: int, tiny: int = 40) -> int:
        """Return how many rows to make."""
        return min(rows, tiny) if self.tiny else rows

    def rounds_up_to(self, most: int) -> int:
        """Return how often to measure what takes a minute each time."""
        return min(self.rounds, most)

    @contextlib.contextmanager
    def folder(self) -> Iterator[str]:
        """Make a folder for the block."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            yield name

    @contextlib.contextmanager
    def serving(self, **knobs: Any) -> Iterator[FaultyService]:
        """Run a service for the block, with a key of its own: what is learned of a key may be kept."""
        given = {
            "audio_bytes": 60_000,
            "retry_after": None,
            "keys": [f"bench-{secrets.token_hex(8)}"],
            **knobs,
        }
        with FaultyService(**given) as service:
            yield service

    def table(self, rows: int, characters: int, folder: str) -> str:
        """Write a table of texts and return its path."""
        path = Path(folder, "texts.csv")
        with path.open("w", encoding="utf-8") as file:
            file.write("text\n")
            file.writelines(f'"{text}"\n' for text in lines(rows, characters))
        return str(path)

    def child(
        self,
        job: str,
        service: FaultyService | None = None,
        *,
        tuned: bool = False,
        **arguments: Any,
    ) -> Ran:
        """Do a job in a fresh process; `arguments["rows"]`, where given, must all come to an end."""
        return self.children(job, service, [arguments], tuned=tuned)[0]

    def children(
        self,
        job: str,
        service: FaultyService | None,
        arguments: Sequence[dict[str, Any]],
        *,
        tuned: bool = False,
    ) -> list[Ran]:
        """Do a job in several fresh processes that begin together, one for each of `arguments`."""
        to = {} if service is None else {"to": _address(service)}
        common = {"job": job, "tuned": tuned, "profiled": self._profiled}
        with contextlib.ExitStack() as ends:
            started = [ends.enter_context(self._process(is_tuned=tuned)) for _ in arguments]
            for child, own in zip(started, arguments, strict=True):
                child.get_ready({**common, "arguments": {**to, **own}})
            busy_s = _cpu_s(service)
            for child in started:
                child.go()
            found = [child.found() for child in started]
            busy_s = _cpu_s(service) - busy_s
        longest_s = max(said["wall_s"] for said in found)
        for own, said in zip(arguments, found, strict=True):
            if said["rows"] != own.get("rows", said["rows"]):
                raise BrokenRowError(f"{job} ended {said['rows']} rows of {own['rows']}")
        return [Ran.of(said, busy_s / longest_s) for said in found]

    @contextlib.contextmanager
    def _process(self, *, is_tuned: bool) -> Iterator[Child]:
        """Give a child for the block: always a new one, but where figures do not matter."""
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


def _address(service: FaultyService) -> dict[str, str]:
    settings = service.settings
    return {"url": service.url, "key": service.api_key.get_secret_value(), "profile": settings.profile or ""}


def _cpu_s(service: FaultyService | None) -> float:
    if service is None:
        return 0.0
    # After the name in brackets, which may hold anything: user and system time are fields 14 and 15.
    fields = Path(f"/proc/{service.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
