"""Measure the row E60, the processor time of the caller for a whole run."""

import statistics
from collections.abc import Iterator

from benchmarks.lab import JobResult, Lab
from benchmarks.report import Figure, at_most
from benchmarks.texts import TEXT_CHARACTERS

CALLS_IN_FLIGHT = 15
"""Number of calls in flight."""


def measure_e60(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row E60."""
    yield from _measure_format(lab, "WAV", lab.limit_rows(2000), bare=1.3, naive=1.0, unchecked=0.9)
    # FLAC does not have targets, because only speechframe decodes the audio (to check it), and the references do not.
    yield from _measure_format(lab, "FLAC", lab.limit_rows(2000))


def _measure_format(
    lab: Lab,
    format: str,
    rows: int,
    bare: float | None = None,
    naive: float | None = None,
    unchecked: float | None = None,
) -> Iterator[Figure]:
    """Yield the ratios of a whole run's processor time to those of a bare loop and of a naive notebook.

    `bare` and `naive` are the largest allowed ratios. `unchecked` is the largest ratio to the bare loop if the audio is
    not checked.
    """
    job = {
        "rows": rows,
        "characters": TEXT_CHARACTERS[format, 60_000],
        "format": format,
        "warm": lab.limit_rows(100, 10),
    }
    loop = {**job, "workers": CALLS_IN_FLIGHT}
    whole = {**job, "max_concurrency": CALLS_IN_FLIGHT, "max_credits": 1e6}
    loops, notebooks, ours, tuned, trusting = [], [], [], [], []
    with lab.run_service(quota=10**9) as service:
        for _ in range(lab.rounds):
            loops.append(lab.run_child("references.run_bare_loop", service, **loop))
            with lab.make_folder() as folder:
                ours.append(lab.run_child("jobs.generate", service, folder=folder, **whole))
            with lab.make_folder() as folder:
                notebooks.append(lab.run_child("notebook.run_naive_notebook", service, folder=folder, **loop))
            with lab.make_folder() as folder:
                tuned.append(lab.run_child("jobs.generate", service, tuned=True, folder=folder, **whole))
            with lab.make_folder() as folder:
                given = {**whole, "truth_checks": False}
                trusting.append(lab.run_child("jobs.generate", service, folder=folder, **given))
    what = f"CPU of the whole job, {format}"
    yield _make_cpu_ratio("E60", what, ours, loops, bare, "bare loop")
    yield _make_cpu_ratio("E60", what, ours, notebooks, naive, "naive notebook")
    yield _make_cpu_ratio("E60", f"{what}, truth checks off", trusting, loops, unchecked, "bare loop")
    yield _make_cpu_ratio("E60", f"{what}, tuned allocator", tuned, loops, None, "bare loop")
    for name, peer in (("bare loop", loops), ("naive notebook", notebooks)):
        ratios = [one.wall_s / other.wall_s for one, other in zip(ours, peer, strict=True)]
        what = f"wall time of the whole job, {format}"
        yield Figure.from_rounds("E60", what, ratios, "x", None, name, _list_service_shares(ours))


def _make_cpu_ratio(
    id: str, what: str, ran: list[JobResult], peer: list[JobResult], bound: float | None, name: str
) -> Figure:
    ratios = [one.cpu_s / other.cpu_s for one, other in zip(ran, peer, strict=False)]
    if ran:
        what = f"{what}: {_compute_us_per_row(ran):.0f} us a row"
    target = None if bound is None else at_most(bound)
    return Figure.from_rounds(
        id,
        what,
        ratios,
        "x",
        target,
        f"{name}, {_compute_us_per_row(peer):.0f} us",
        _list_service_shares(ran),
    )


def _list_service_shares(ran: list[JobResult]) -> list[float]:
    return [one.service_share for one in ran]


def _compute_us_per_row(ran: list[JobResult]) -> float:
    """Return the median processor time of a row, in microseconds."""
    return statistics.median(one.cpu_s / one.rows * 1e6 for one in ran)


ROWS = {"E60": measure_e60}
