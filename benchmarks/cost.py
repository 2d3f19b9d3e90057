"""Measure the row E60, the processor time of the caller for a whole run."""

import statistics
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.lab import JobResult, Lab, compute_ratios
from benchmarks.report import Figure, Target, at_most
from benchmarks.texts import TEXT_CHARACTERS

CALLS_IN_FLIGHT = 15
"""Number of calls in flight."""


def measure_e60(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row E60."""
    yield from _measure_format(lab, "WAV", at_most(1.3), at_most(0.9), at_most(1.0))
    # FLAC does not have targets, because only speechframe decodes the audio (to check it), and the references do not.
    yield from _measure_format(lab, "FLAC", None, None, None)


def _measure_format(
    lab: Lab, format: str, bare: Target | None, unchecked: Target | None, naive: Target | None
) -> Iterator[Figure]:
    """Yield the ratios of a whole run's processor time to those of a bare loop and of a naive notebook.

    `unchecked` is the target of the ratio to the bare loop if the audio is not checked.
    """
    job = {
        "rows": lab.limit_rows(2000), "characters": TEXT_CHARACTERS[format, 60_000], "format": format,
        "warm": lab.limit_rows(100, 10),
    }  # fmt: skip
    loop = {**job, "workers": CALLS_IN_FLIGHT}
    whole = {**job, "max_concurrency": CALLS_IN_FLIGHT, "max_credits": 1e6}
    with lab.run_service(quota=10**9) as service:
        loops, ours, notebooks, trusting = lab.run_in_turns(
            partial(lab.run_child, "references.run_bare_loop", service, **loop),
            partial(lab.run_child, "jobs.generate", service, **whole),
            partial(lab.run_child, "notebook.run_naive_notebook", service, **loop),
            partial(lab.run_child, "jobs.generate", service, truth_checks=False, **whole),
        )
    what = f"CPU of the whole job, {format}"
    yield _compare(what, ours, loops, bare, "bare loop")
    yield _compare(f"{what}, truth checks off", trusting, loops, unchecked, "bare loop")
    yield _compare(what, ours, notebooks, naive, "naive notebook")


def _compare(
    what: str, ours: Sequence[JobResult], peer: Sequence[JobResult], target: Target | None, name: str
) -> Figure:
    own_us, peer_us = (
        statistics.median(one.cpu_s / one.rows * 1e6 for one in results) for results in (ours, peer)
    )
    ratios = compute_ratios(ours, peer, "cpu_s")
    return Figure(f"{what}: {own_us:.0f} us a row", ratios, "x", target, f"{name}, {peer_us:.0f} us")
