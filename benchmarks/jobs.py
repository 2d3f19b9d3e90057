"""What we do with a service: whole durable jobs."""

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

from benchmarks.child import Clock, status_mb
from benchmarks.texts import SAMPLE_RATE, VOICE, lines
from speechframe import aio
from speechframe.settings import Settings
from speechframe.store.journal import MOST_ROWS

_SAMPLE_S = 0.25


def settings_of(to: dict[str, str]) -> Settings:
    """Return how `to` is reached."""
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
    """The durable job as users have it: log, keys, checks, ledger, Parquet, idempotency."""
    given = {
        "voice": VOICE,
        "format": format,
        "sample_rate": SAMPLE_RATE,
        "service": settings_of(to),
        "progress": False,
    }
    given |= options
    if warm:
        asyncio.run(
            aio.generate(list(lines(warm, characters, first + rows)), run_dir=Path(folder, "warm"), **given)
        )
    texts = list(lines(rows, characters, first))
    with clock:
        run = asyncio.run(aio.generate(texts, run_dir=Path(folder, "run"), **given))
    return _whole(run)


def generate_file(
    clock: Clock, to: dict[str, str], table: str, format: str, folder: str, from_row: int = 0, **options: Any
):
    """The same from a file, so that the caller's table is in nobody's memory; with samples of that."""
    given = {
        "voice": VOICE,
        "format": format,
        "sample_rate": SAMPLE_RATE,
        "service": settings_of(to),
        "progress": False,
    }
    path = Path(folder, "run")
    samples: list[tuple[int, float]] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_SAMPLE_S):
            samples.append((len(list(path.glob("parts/*.parquet"))) * MOST_ROWS, status_mb("VmRSS")))

    watcher = threading.Thread(target=watch)
    with clock:
        watcher.start()
        try:
            run = asyncio.run(aio.generate(table, run_dir=path, **given, **options))
        finally:
            samples.append((from_row, status_mb("VmRSS")))
            ended.set()
            watcher.join()
    late = [mb for rows, mb in samples if rows >= from_row]
    return {**_whole(run), "late_mb": late[0], "growth_mb": max(late) - late[0]}


def _whole(run: Any) -> dict[str, Any]:
    stats = run.stats
    path = run.path
    # Dozens of rounds would fill the disk.
    shutil.rmtree(path)
    return {"rows": stats["done"] + stats.get("suspect", 0), "suspect": stats.get("suspect", 0)}
