"""Measure runs over the workers of an executor: N1 on a service with a cap, N2 on neural voices of this machine."""

import contextlib
import os
import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import speechframe as spf
from benchmarks.child import Clock
from benchmarks.jobs import make_run_options
from benchmarks.lab import JobResult, Lab, compute_ratios
from benchmarks.report import Figure, Target, at_most
from benchmarks.texts import TEXT_CHARACTERS, make_lines
from speechframe.testing import Books, Fixed

CAP, LATENCY_S, WORKERS, ROW_COUNT = 32, 0.05, 3, 5000
"""Cap and latency of the service in N1, and the number of workers and rows."""
KOKORO_VOICE, KOKORO_WORKERS, KOKORO_ROWS = "pt-BR-dora", 2, 24
"""Voice, number of workers and number of rows in N2. One row takes seconds of CPU."""
_WARM_ROWS, _WARM_KOKORO_ROWS = 100, 4


def measure_n1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row N1: three workers of Dask beside one process, on a service with a cap."""
    rows = lab.limit_rows(ROW_COUNT)
    both: list[Books] = []

    def run(workers: int) -> JobResult:
        with lab.run_service(cap=CAP, publish_cap=True, latency=Fixed(LATENCY_S)) as service:
            result = lab.run_child("scaling.generate_hosted", service, rows=rows, workers=workers)
            if workers:
                both.append(service.books())
        return result

    alone, spread = lab.run_in_turns(partial(run, 0), partial(run, WORKERS))
    what = f"{WORKERS} workers of Dask, cap {CAP}, {rows:,} rows of {LATENCY_S * 1000:.0f} ms: time"
    yield _compare(what, spread, alone, at_most(1.1), "one process")
    refused, most = ([float(getattr(each, name)) for each in both] for name in ("refused", "most_in_flight"))
    yield Figure("the same: refused", refused, "count", at_most(0), "all calls")
    yield Figure("the same: most in flight", most, "count", at_most(CAP), f"cap of {CAP}")
    yield _judge_estimate(f"{WORKERS} workers", spread)
    yield _judge_estimate("one process", alone)


def measure_n2(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row N2: two workers with Kokoro beside one process with two engines."""
    rows = lab.limit_rows(KOKORO_ROWS, tiny=2)
    job = partial(lab.run_child, "scaling.generate_locally", rows=rows)
    alone, spread = lab.run_in_turns(partial(job, workers=0), partial(job, workers=KOKORO_WORKERS))
    what = f"Kokoro, {KOKORO_WORKERS} workers on this machine, {rows} rows: time"
    yield _compare(what, spread, alone, at_most(1.05), "one process with two engines")
    yield _judge_estimate(f"{KOKORO_WORKERS} workers", spread)


def _compare(what: str, ours: list[JobResult], others: list[JobResult], target: Target, peer: str) -> Figure:
    seconds = statistics.median(other.wall_s for other in others)
    return Figure(what, compute_ratios(ours, others, "wall_s"), "x", target, f"{peer}, {seconds:.1f} s")


def _judge_estimate(who: str, results: list[JobResult]) -> Figure:
    """Return by how many percent the estimate differs from the measured time."""
    errors = [100 * abs(each.more["estimate_s"] / each.wall_s - 1) for each in results]
    estimate_s = statistics.median(each.more["estimate_s"] for each in results)
    reference = f"{estimate_s:.1f} s, bound by {results[0].more['bound'] or 'calls in flight'}"
    return Figure(f"{who}: estimate beside the time", errors, "%", at_most(20), reference)


def generate_hosted(clock: Clock, to: dict[str, str], rows: int, workers: int):
    """Make a run on a hosted service with some workers of Dask, or in this process with 0 workers."""
    os.environ["SPEECHFRAME_API_KEY"] = to["key"]
    texts = list(make_lines(rows + _WARM_ROWS, TEXT_CHARACTERS["WAV", 60_000]))
    return _measure(clock, texts, _WARM_ROWS, workers, make_run_options(to, "WAV"))


def generate_locally(clock: Clock, rows: int, workers: int):
    """Make a run with Kokoro on a local service for each worker, or on one local service with 0 workers."""
    texts = [
        f"Esta é a linha número {number} de um livro que ninguém leu até o fim."
        for number in range(rows + _WARM_KOKORO_ROWS)
    ]
    given = {"voice": KOKORO_VOICE, "format": "WAV", "progress": False}
    return _measure(clock, texts, _WARM_KOKORO_ROWS, workers, given)


def _measure(
    clock: Clock, texts: list[str], warm: int, workers: int, given: dict[str, Any]
) -> dict[str, Any]:
    """Make the first `warm` rows in this process, so that the ledger has their speed, and then the other rows."""
    for name in ("cold", "before"):  # the first calls of a service are slow, so their ledger is not used
        os.environ["SPEECHFRAME_LEDGER"] = str(Path(f"ledger-{name}").resolve())
        spf.generate(texts[:warm], run_dir=name, **given)
    with contextlib.ExitStack() as stack:
        if workers:
            from dask.distributed import Client, LocalCluster

            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0")
            given["executor"] = stack.enter_context(Client(stack.enter_context(cluster)))
        planned = spf.generate(texts[warm:], run_dir="run", dry_run=True, **given).estimate
        if workers:  # the workers import speechframe and start their services before the clock starts
            spf.generate(texts[:warm], run_dir="warm", **given)
        with clock:
            run = spf.generate(texts[warm:], run_dir="run", **given)
    assert planned is not None
    return {"rows": run.stats["done"], "estimate_s": planned.seconds or 0.0, "bound": planned.bound}
