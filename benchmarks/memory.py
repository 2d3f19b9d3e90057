"""Measure the rows M1 and M2 about memory, and R1 about resuming a finished run."""

import asyncio
import os
import statistics
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from benchmarks.child import Clock
from benchmarks.cost import CALLS_IN_FLIGHT
from benchmarks.jobs import make_settings
from benchmarks.lab import BrokenRowError, JobResult, Lab
from benchmarks.report import Figure, at_most
from benchmarks.texts import TEXT_CHARACTERS
from speechframe import aio
from speechframe.store.folder import Folder
from speechframe.store.records import read_snapshot
from speechframe.store.schema import FINISHED_STATUSES
from speechframe.testing import FaultyService

MILLION = 1_000_000
LONG_RUN_ROWS, WARM_ROWS = 100_000, 50_000
"""Rows of the run that the rows M2, R1 and X2 share, and the row from which on M2 measures its memory."""


def measure_m1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row M1, the peak memory of two runs of different length."""
    few, many = lab.limit_rows(20_000, 40), lab.limit_rows(40_000, 80)
    small, large = lab.run_in_turns(partial(_generate, lab, few), partial(_generate, lab, many))
    reference = f"{few:,} rows, {statistics.median(one.over_mb for one in small):.0f} MB"
    what = f"peak memory over import, {many:,} rows of 60 KB"
    yield Figure(what, [one.over_mb for one in large], "MB", at_most(120), reference)
    growths = [100 * (more.over_mb / less.over_mb - 1) for more, less in zip(large, small, strict=True)]
    yield Figure("the same: growth", growths, "%", at_most(5.0), reference)


def _generate(lab: Lab, rows: int) -> JobResult:
    with lab.run_service() as service:
        return lab.run_child("jobs.generate_from_file", service, **_make_job(rows, "WAV", 60_000))


def _make_job(rows: int, format: str, audio_bytes: int) -> dict[str, object]:
    return {
        "rows": rows, "characters": TEXT_CHARACTERS[format, audio_bytes], "format": format,
        "max_concurrency": CALLS_IN_FLIGHT, "max_credits": 10.0**9,
    }  # fmt: skip


@cache
def make_long_run(lab: Lab) -> tuple[FaultyService, str, JobResult]:
    """Make the run that several rows share. Return its service, its folder and the measurements."""
    service, folder = lab.keep(lab.run_service(audio_bytes=2_000)), lab.keep(lab.make_folder())
    path, rows = str(Path(folder, "run")), lab.limit_rows(LONG_RUN_ROWS, 100)
    job = {**_make_job(rows, "FLAC", 2_000), "from_row": lab.limit_rows(WARM_ROWS, 0), "run_dir": path}
    return service, path, lab.run_child("jobs.generate_from_file", service, **job)


def measure_m2(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row M2, the growth of memory during a long run."""
    _, _, ran = make_long_run(lab)
    what = f"growth of memory from row {WARM_ROWS:,} to {ran.rows:,}, 2 KB a row"
    reference = f"at row {WARM_ROWS:,}, {ran.more['late_mb']:.0f} MB"
    yield Figure(what, [ran.more["growth_mb"]], "MB", at_most(15), reference)


def measure_r1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row R1, the cost of resuming a run whose rows are all finished."""
    service, path, ran = make_long_run(lab)
    rows, calls = ran.rows, service.books().requests
    scans, wholes = lab.run_in_turns(
        partial(lab.run_child, "memory.scan_keys", path=path, rows=rows),
        partial(lab.run_child, "memory.resume", service, path=path, rows=rows),
    )
    calls = service.books().requests - calls
    if calls or not all(one.more["ended"] for one in wholes):
        raise BrokenRowError(f"the resume of {rows} finished rows made {calls} calls, or did not end")
    per_million_s = [one.cpu_s * MILLION / rows for one in scans]
    what = f"CPU of scanning the keys of {rows:,} finished rows, scaled to a million"
    yield Figure(what, per_million_s, "s", at_most(1.0), "a million rows")
    a_row_us = [one.cpu_s / rows * 1e6 for one in wholes]
    yield Figure("CPU of the whole resume, a row", a_row_us, "us", at_most(20), "all rows are finished")
    over_mb = [one.over_mb for one in wholes]
    yield Figure("its peak memory over import", over_mb, "MB", at_most(250), f"{rows:,} rows")


def scan_keys(clock: Clock, path: str, rows: int):
    """Read the keys of the finished rows, and return their number."""
    del rows
    with tempfile.TemporaryDirectory(dir=path) as small:
        # A first scan of one file does the work that a process does only once. It must not be scaled to a million rows.
        attempts = Path(small, "attempts")
        attempts.mkdir()
        first = min(Path(path, "attempts").glob("*.parquet"))
        os.link(first, attempts / first.name)
        _count_finished_rows(small)
    with clock:
        found = _count_finished_rows(path)
    return {"rows": found}


def _count_finished_rows(path: str) -> int:
    index = read_snapshot(Folder(Path(path))).index
    return len(index.keys[index.find_with_status(FINISHED_STATUSES)].tobytes()) // 16


def resume(clock: Clock, to: dict[str, str], path: str, rows: int):
    """Resume a run whose rows are all finished."""
    del rows
    with clock:
        run = asyncio.run(aio.resume(path, service=make_settings(to), progress=False))
    return {"rows": _count_finished_rows(path), "ended": run.status == "finished"}
