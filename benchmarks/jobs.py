"""What we do with a service: single attempts, and whole durable jobs."""

import asyncio
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.child import Clock, status_mb
from benchmarks.texts import SAMPLE_RATE, VOICE, lines
from speechframe import aio
from speechframe.old_client import Client
from speechframe.old_client.calls import make_call
from speechframe.old_store.parts import PART_ROWS, part_files
from speechframe.settings import Settings

_SAMPLE_S = 0.25


def settings_of(to: dict[str, str]) -> Settings:
    """Return how `to` is reached."""
    return Settings(base_url=to["url"], api_key=to["key"], profile=to["profile"])


def send_once(
    clock: Clock, to: dict[str, str], rows: int, characters: int, workers: int, format: str, warm: int = 0
):
    """Check, send and decode: the client without anything of a batch."""
    return asyncio.run(_send_once(clock, to, rows, characters, workers, format, warm))


async def _send_once(clock, to, rows, characters, workers, format, warm):
    audio_bytes = words = answered = 0

    async def work(client: Client, texts: Iterator[str]) -> None:
        nonlocal audio_bytes, words, answered
        for text in texts:
            call = make_call(text, voice=VOICE, format=format, sample_rate=SAMPLE_RATE, encode_as_base64=True)
            spoken = await client.send_once(call)
            audio_bytes, words = audio_bytes + len(spoken.audio), words + len(spoken.words)
            answered += 1

    async with Client(settings_of(to)) as client:
        early = lines(warm, characters, first=rows)
        await asyncio.gather(*(work(client, early) for _ in range(workers)))
        audio_bytes = words = answered = 0
        todo = lines(rows, characters)
        with clock:
            await asyncio.gather(*(work(client, todo) for _ in range(workers)))
    return {"rows": answered, "audio_bytes": audio_bytes, "words": words}


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
            samples.append((len(part_files(path)) * PART_ROWS, status_mb("VmRSS")))

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
