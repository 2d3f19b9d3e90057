"""Ratios in one run against named references; absolute times belong to this machine alone.

    make bench            # or: python benchmarks/bench.py --rows 400 --rounds 3

References: *bare loop* is aiohttp with json and base64 that throws the audio away; *naive notebook* is gather
with tenacity around every call, a DataFrame and to_parquet; *one worker* is the local service with --workers 1.
Every figure is the median over the rounds; A and B take turns, so that a machine that drifts drifts for both.
"""

import argparse
import asyncio
import base64
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import pandas as pd
from tenacity import retry, stop_after_attempt, wait_exponential

import speechframe as spf
from speechframe.local import LocalService, local_service

VOICE = "en-US-nora"
CONCURRENCY = 8


@dataclass(frozen=True)
class Cost:
    """What one way of doing the job took."""

    wall_s: float
    cpu_s: float


def lines(rows: int, tag: str) -> list[str]:
    return [f"This is line {i} of round {tag}, spoken by the local service." for i in range(rows)]


def measured(job: Callable[[], None]) -> Cost:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, wall = used.ru_utime + used.ru_stime, time.perf_counter()
    job()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Cost(time.perf_counter() - wall, used.ru_utime + used.ru_stime - cpu)


def body(text: str) -> dict[str, object]:
    return {"text": text, "voiceId": VOICE, "format": "FLAC", "encodeAsBase64": True}


async def post(
    session: aiohttp.ClientSession, service: LocalService, text: str
) -> tuple[bytes, list[dict[str, object]]]:
    headers = {"api-key": service.api_key.get_secret_value()}
    async with session.post(f"{service.url}/v1/speech/generate", json=body(text), headers=headers) as answer:
        answer.raise_for_status()
        content = json.loads(await answer.read())
    return base64.b64decode(content["encodedAudio"]), content["wordDurations"]


def bare_loop(service: LocalService, texts: list[str]) -> None:
    async def main() -> None:
        todo = iter(texts)
        async with aiohttp.ClientSession() as session:

            async def work() -> None:
                for text in todo:
                    await post(session, service, text)

            await asyncio.gather(*(work() for _ in range(CONCURRENCY)))

    asyncio.run(main())


def naive_notebook(service: LocalService, texts: list[str], folder: Path) -> None:
    async def main() -> None:
        places = asyncio.Semaphore(CONCURRENCY)
        async with aiohttp.ClientSession() as session:

            @retry(wait=wait_exponential(), stop=stop_after_attempt(5))
            async def one(text: str) -> dict[str, object]:
                async with places:
                    audio, words = await post(session, service, text)
                return {"text": text, "audio": audio, "words": words}

            rows = await asyncio.gather(*map(one, texts))
        pd.DataFrame(rows).to_parquet(folder / "naive.parquet")

    asyncio.run(main())


def durable_job(service: LocalService, texts: list[str], folder: Path) -> None:
    run = spf.generate(
        texts,
        voice=VOICE,
        service=service,
        run_dir=folder / "run",
        progress=False,
        max_concurrency=CONCURRENCY,
    )
    if run.stats["done"] != len(texts):
        sys.exit(f"the job is not whole: {run.stats}")


def against(reference: str, rows: int, rounds: int, which: Callable[[Cost], float]) -> tuple[float, float]:
    """Return the medians of the durable job and of the reference."""
    ours, theirs = [], []
    with local_service(concurrency=CONCURRENCY) as service:
        durable_job(service, lines(20, "warm"), Path(tempfile.mkdtemp()))
        for i in range(rounds):
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                ours.append(which(measured(partial(durable_job, service, lines(rows, f"a{i}"), folder))))
                if reference == "bare loop":
                    other = partial(bare_loop, service, lines(rows, f"b{i}"))
                else:
                    other = partial(naive_notebook, service, lines(rows, f"b{i}"), folder)
                theirs.append(which(measured(other)))
    return statistics.median(ours), statistics.median(theirs)


def workers(count: int, rounds: int) -> float:
    """Return texts a second of the service with `count` workers, long texts."""
    texts = ["The quick brown fox jumps over the lazy dog near the river bank. " * 40] * 24
    rates = []
    with local_service(workers=count, concurrency=CONCURRENCY) as service:
        bare_loop(service, texts[:4])
        for _ in range(rounds):
            rates.append(len(texts) / measured(lambda: bare_loop(service, texts)).wall_s)
    return statistics.median(rates)


def import_cpu_ratio(rounds: int) -> float:
    """Return the CPU of ``import speechframe`` over that of a bare interpreter."""

    def cpu(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    pairs = [(cpu("import speechframe"), cpu("pass")) for _ in range(3 * rounds)]
    return statistics.median(a / b for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cores = os.cpu_count()
    print(
        f"{platform.machine()}, {cores} cores, Python {platform.python_version()}; {options.rows} rows, {options.rounds} rounds\n"
    )
    print("| what | against | ratio |\n|---|---|---|")
    ours, bare = against("bare loop", options.rows, options.rounds, lambda cost: cost.wall_s)
    print(f"| wall time of generate(), every promise on | bare loop | {ours / bare:.2f}x |", flush=True)
    ours, naive = against("naive notebook", options.rows, options.rounds, lambda cost: cost.wall_s)
    print(f"| wall time of generate(), every promise on | naive notebook | {ours / naive:.2f}x |", flush=True)
    ours, bare = against("bare loop", options.rows, options.rounds, lambda cost: cost.cpu_s)
    print(f"| client CPU of generate(), every promise on | bare loop | {ours / bare:.2f}x |", flush=True)
    print(
        f"| long texts a second, --workers 2 | one worker | {workers(2, options.rounds) / workers(1, options.rounds):.2f}x |",
        flush=True,
    )
    print(f"| CPU of import speechframe | bare interpreter | {import_cpu_ratio(options.rounds):.2f}x |")


if __name__ == "__main__":
    main()
