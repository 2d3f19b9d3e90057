"""Measure runs over the workers of an executor: N1 on a service with a cap, N2 on neural voices of this machine."""

import contextlib
import os
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import speechframe as spf
from benchmarks.child import Clock
from benchmarks.jobs import make_settings
from benchmarks.lab import JobResult, Lab
from benchmarks.report import Figure, at_most
from benchmarks.texts import SAMPLE_RATE, TEXT_CHARACTERS, VOICE, make_lines
from speechframe.testing import Books, Fixed

CAP, LATENCY_S, WORKERS, ROW_COUNT = 32, 0.05, 3, 5000
"""Cap and latency of the service in N1, and the number of workers and rows."""
KOKORO_VOICE, KOKORO_WORKERS, KOKORO_ROWS = "pt-BR-dora", 2, 24
"""Voice, number of workers and number of rows in N2. One row takes seconds of CPU."""
_WARM_ROWS, _WARM_KOKORO_ROWS = 100, 4


def measure_n1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row N1: three workers of Dask beside one process, on a service with a cap."""
    rows = lab.limit_rows(ROW_COUNT)
    alone, spread = [], []
    books: list[Books] = []
    for _ in range(lab.rounds):
        for workers, results in ((0, alone), (WORKERS, spread)):
            with (
                lab.run_service(cap=CAP, publish_cap=True, latency=Fixed(LATENCY_S)) as service,
                lab.make_folder() as folder,
            ):
                results.append(
                    lab.run_child(
                        "scaling.generate_hosted", service, rows=rows, workers=workers, folder=folder
                    )
                )
                books.append(service.books())
    what = f"{WORKERS} workers of Dask, cap {CAP}, {rows:,} rows of {LATENCY_S * 1000:.0f} ms"
    yield _compare("N1", f"{what}: time", spread, alone, at_most(1.1), "one process")
    over_both = books[1::2]
    yield Figure.from_rounds(
        "N1",
        "the same: refused",
        [float(each.refused) for each in over_both],
        "count",
        at_most(0),
        "all calls",
    )
    most = [float(each.most_in_flight) for each in over_both]
    yield Figure.from_rounds("N1", "the same: most in flight", most, "count", at_most(CAP), f"cap of {CAP}")
    yield _judge_estimate("N1", f"{WORKERS} workers", spread)
    yield _judge_estimate("N1", "one process", alone)


def measure_n2(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row N2: two workers with Kokoro beside one process with two engines."""
    rows = lab.limit_rows(KOKORO_ROWS, tiny=2)
    alone, spread = [], []
    for _ in range(lab.limit_rounds(2)):
        for workers, results in ((0, alone), (KOKORO_WORKERS, spread)):
            with lab.make_folder() as folder:
                results.append(
                    lab.run_child("scaling.generate_locally", rows=rows, workers=workers, folder=folder)
                )
    what = f"Kokoro, {KOKORO_WORKERS} workers on this machine, {rows} rows: time"
    yield _compare("N2", what, spread, alone, at_most(1.05), "one process with two engines")
    yield _judge_estimate("N2", f"{KOKORO_WORKERS} workers", spread)
    yield _judge_estimate("N2", "one process", alone)


def _compare(
    id: str, what: str, ours: list[JobResult], others: list[JobResult], target: Any, peer: str
) -> Figure:
    ratios = [one.wall_s / other.wall_s for one, other in zip(ours, others, strict=True)]
    seconds = statistics.median(other.wall_s for other in others)
    shares = [each.service_share for each in ours]
    return Figure.from_rounds(id, what, ratios, "x", target, f"{peer}, {seconds:.1f} s", shares)


def _judge_estimate(id: str, who: str, results: list[JobResult]) -> Figure:
    """Return by how many percent the estimate differs from the measured time."""
    errors = [100 * abs(each.more["estimate_s"] / each.wall_s - 1) for each in results]
    bound = results[0].more["bound"] or "calls in flight"
    estimate = statistics.median(each.more["estimate_s"] for each in results)
    return Figure.from_rounds(
        id,
        f"{who}: estimate beside the time",
        errors,
        "%",
        at_most(20),
        f"{estimate:.1f} s, bound by {bound}",
    )


def generate_hosted(clock: Clock, to: dict[str, str], rows: int, workers: int, folder: str):
    """Make a run on a hosted service with some workers of Dask, or in this process with 0 workers."""
    os.environ["SPEECHFRAME_API_KEY"] = to["key"]
    characters = TEXT_CHARACTERS["WAV", 60_000]
    given = {"voice": VOICE, "format": "WAV", "sample_rate": SAMPLE_RATE, "service": make_settings(to)}
    return _measure(
        clock, list(make_lines(rows + _WARM_ROWS, characters)), _WARM_ROWS, workers, folder, given
    )


def generate_locally(clock: Clock, rows: int, workers: int, folder: str):
    """Make a run with Kokoro on a local service for each worker, or on one local service with 0 workers."""
    texts = [
        f"Esta é a linha número {number} de um livro que ninguém leu até o fim."
        for number in range(rows + _WARM_KOKORO_ROWS)
    ]
    given = {"voice": KOKORO_VOICE, "format": "WAV"}
    return _measure(clock, texts, _WARM_KOKORO_ROWS, workers, folder, given)


def _measure(
    clock: Clock, texts: list[str], warm: int, workers: int, folder: str, given: dict[str, Any]
) -> dict[str, Any]:
    """Make the first `warm` rows in this process, so that the ledger has their speed, and then the other rows."""
    given = {**given, "progress": False}
    run_dir = Path(folder, "run")
    for name in ("cold", "before"):  # the first calls of a service are slow, so their ledger is not used
        os.environ["SPEECHFRAME_LEDGER"] = str(Path(folder, f"ledger-{name}"))
        spf.generate(texts[:warm], run_dir=Path(folder, name), **given)
    with contextlib.ExitStack() as stack:
        if workers:
            from dask.distributed import Client, LocalCluster

            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
            given["executor"] = stack.enter_context(Client(stack.enter_context(cluster)))
        planned = spf.generate(texts[warm:], run_dir=run_dir, dry_run=True, **given).estimate
        if workers:  # the workers import speechframe and start their services before the clock starts
            spf.generate(texts[:warm], run_dir=Path(folder, "warm"), **given)
        with clock:
            run = spf.generate(texts[warm:], run_dir=run_dir, **given)
    assert planned is not None
    return {"rows": run.stats["done"], "estimate_s": planned.seconds or 0.0, "bound": planned.bound}


ROWS = {"N1": measure_n1, "N2": measure_n2}
