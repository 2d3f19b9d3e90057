"""Make whole runs with speechframe, as jobs for child processes."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.child import Clock, read_status_mb
from benchmarks.texts import SAMPLE_RATE, VOICE, make_lines
from speechframe import aio
from speechframe.settings import Settings
from speechframe.store.journal import MAX_SEGMENT_ROWS

_MEMORY_INTERVAL_S = 0.25
"""Time between two measurements of memory, in seconds."""


def make_settings(to: dict[str, str]) -> Settings:
    """Return the settings for a service. `to` has its address, key and profile."""
    return Settings(base_url=to["url"], api_key=to["key"], profile=to["profile"])


def make_run_options(to: dict[str, str], format: str) -> dict[str, Any]:
    """Return the options that all runs have."""
    return {
        "voice": VOICE, "format": format, "sample_rate": SAMPLE_RATE, "service": make_settings(to), "progress": False,
    }  # fmt: skip


def generate(
    clock: Clock,
    to: dict[str, str],
    rows: int,
    characters: int,
    format: str = "WAV",
    warm: int = 0,
    first: int = 0,
    run_dir: str = "run",
    **options: Any,
):
    """Make a whole run as users do, with all files of a run.

    `first` is the number of the first text. `warm` rows are made before the clock starts. `options` are run options.
    """
    given = make_run_options(to, format) | options
    if warm:
        asyncio.run(aio.generate(list(make_lines(warm, characters, first + rows)), run_dir="warm", **given))
    texts = list(make_lines(rows, characters, first))
    with clock:
        run = asyncio.run(aio.generate(texts, run_dir=run_dir, **given))
    return _count_rows(run)


def generate_from_file(
    clock: Clock,
    to: dict[str, str],
    rows: int,
    characters: int,
    format: str,
    from_row: int = 0,
    run_dir: str = "run",
    **options: Any,
):
    """Make a whole run from a file, so that the table is not in memory, and measure the memory meanwhile.

    The growth of memory is measured from the time at which `from_row` rows are finished.
    """
    with Path("texts.csv").open("w", encoding="utf-8") as file:
        file.write("text\n")
        file.writelines(f'"{text}"\n' for text in make_lines(rows, characters))
    samples: list[tuple[int, float]] = []
    given = make_run_options(to, format) | options
    with clock, _watch_memory(Path(run_dir), samples):
        run = asyncio.run(aio.generate("texts.csv", run_dir=run_dir, **given))
    late = [mb for finished, mb in samples if finished >= from_row] or [samples[-1][1]]
    return {**_count_rows(run), "late_mb": late[0], "growth_mb": max(late) - late[0]}


@contextlib.contextmanager
def _watch_memory(path: Path, samples: list[tuple[int, float]]) -> Iterator[None]:
    """Append the number of finished rows of the run at `path`, and the memory in MB, until the end of the block."""
    ended = threading.Event()

    def take_sample() -> None:
        rows = len(list(path.glob("parts/*.parquet"))) * MAX_SEGMENT_ROWS
        samples.append((rows, read_status_mb("VmRSS")))

    def watch() -> None:
        while not ended.wait(_MEMORY_INTERVAL_S):
            take_sample()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        take_sample()


def _count_rows(run: Any) -> dict[str, Any]:
    return {"rows": run.stats["done"] + run.stats.get("suspect", 0)}
