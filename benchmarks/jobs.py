"""Make whole runs with speechframe, as jobs for child processes."""

import asyncio
import shutil
import threading
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


def generate(
    clock: Clock,
    to: dict[str, str],
    rows: int,
    characters: int,
    format: str,
    folder: str,
    warm: int = 0,
    first: int = 0,
    **options: Any,
):
    """Make a whole run as users do, with all files of a run.

    `first` is the number of the first text. `warm` rows are made before the clock starts. `options` are run options.
    """
    given = {
        "voice": VOICE,
        "format": format,
        "sample_rate": SAMPLE_RATE,
        "service": make_settings(to),
        "progress": False,
    }
    given |= options
    if warm:
        asyncio.run(
            aio.generate(
                list(make_lines(warm, characters, first + rows)), run_dir=Path(folder, "warm"), **given
            )
        )
    texts = list(make_lines(rows, characters, first))
    with clock:
        run = asyncio.run(aio.generate(texts, run_dir=Path(folder, "run"), **given))
    return _summarise_run(run)


def generate_file(
    clock: Clock, to: dict[str, str], table: str, format: str, folder: str, from_row: int = 0, **options: Any
):
    """Make a whole run from a file, so that the table is not in memory, and measure the memory meanwhile.

    The growth of memory is measured from the time at which `from_row` rows are finished.
    """
    given = {
        "voice": VOICE,
        "format": format,
        "sample_rate": SAMPLE_RATE,
        "service": make_settings(to),
        "progress": False,
    }
    path = Path(folder, "run")
    samples: list[tuple[int, float]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_MEMORY_INTERVAL_S):
            samples.append(
                (len(list(path.glob("parts/*.parquet"))) * MAX_SEGMENT_ROWS, read_status_mb("VmRSS"))
            )

    watcher = threading.Thread(target=watch)
    with clock:
        watcher.start()
        try:
            run = asyncio.run(aio.generate(table, run_dir=path, **given, **options))
        finally:
            samples.append((from_row, read_status_mb("VmRSS")))
            ended.set()
            watcher.join()
    late = [mb for rows, mb in samples if rows >= from_row]
    return {**_summarise_run(run), "late_mb": late[0], "growth_mb": max(late) - late[0]}


def _summarise_run(run: Any) -> dict[str, Any]:
    stats = run.stats
    path = run.path
    # The run is removed, because the runs of all rounds would fill the disk.
    shutil.rmtree(path)
    return {"rows": stats["done"] + stats.get("suspect", 0), "suspect": stats.get("suspect", 0)}
