"""Measure rows about pace, with the counters of the service.

The service refuses calls above a cap of calls in flight. In rows U the caller gets the cap. In rows W the caller has
to find it. The *utilisation* is the average number of calls in flight as a share of the cap.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.lab import BrokenRowError, Lab, compute_ratios
from benchmarks.report import Figure, at_least, at_most
from benchmarks.texts import TEXT_CHARACTERS
from speechframe.testing import Books, Lognormal

MEAN_LATENCY_S = 0.2
"""Mean time of the service for a call, in seconds."""

ALLOWED_CALLS, TRUE_CAP = 100, 15
"""Calls in flight that the caller allows itself in rows W, and the cap of the service that the caller has to find."""

UNKNOWN_CAP = f"{ALLOWED_CALLS} allowed, unknown cap {TRUE_CAP}"

_PHASE_S = 10.0
_CHANGING_CAPS = (15, 30, 5, 15)
"""Caps of the service in W2, one after the other. Each lasts `_PHASE_S` seconds."""


@dataclass(frozen=True)
class Observation:
    """The counters of a service during a job."""

    books: Books

    @property
    def utilisation(self) -> float:
        return next(iter(self.books.utilisation.values()))

    @property
    def refused_percent(self) -> float:
        return 100 * self.books.refused / self.books.requests

    @property
    def seconds(self) -> float:
        """Seconds from the first call to the last answer."""
        return (self.books.last_at or 0.0) - (self.books.started_at or 0.0)


def _observe(
    lab: Lab, job: str, knobs: dict[str, Any], rows: int, processes: int = 1, **arguments: Any
) -> Observation:
    """Run a job with a service of its own. Each of the processes makes an equal part of the rows at the same time."""
    part = rows // processes
    common = {"rows": part, "characters": TEXT_CHARACTERS["WAV", 60_000], **arguments}
    own = [{**common, "first": number * part} if number else common for number in range(processes)]
    latency = Lognormal(0.02 if lab.tiny else MEAN_LATENCY_S)
    with lab.run_service(**{"latency": latency, "cap": TRUE_CAP, **knobs}) as service:
        lab.run_children(job, service, own)
        books = service.books()
    if books.answered < processes * part:
        raise BrokenRowError(f"the service answered {books.answered} calls of {processes * part}")
    return Observation(books)


def _find_cap(lab: Lab, rows: int, processes: int = 1, **knobs: Any) -> Observation:
    """Make a run that does not know the cap of the service."""
    return _observe(lab, "jobs.generate", knobs, rows, processes, max_concurrency=ALLOWED_CALLS)


def _compute_median(found: Sequence[Observation], name: str) -> float:
    return statistics.median(getattr(seen, name) for seen in found)


def measure_known_cap(lab: Lab, *, cap: int, latencies: int, least: float) -> Iterator[Figure]:
    """Yield the utilisation of a published cap, and its ratio to a bare loop of `cap` workers.

    A job lasts `latencies` times the latency of a call, so that its start and its end count little.
    """
    rows, knobs = lab.limit_rows(cap * latencies), {"cap": cap, "publish_cap": True}
    ours, bare = lab.run_in_turns(
        partial(_observe, lab, "jobs.generate", knobs, rows, max_concurrency=cap),
        partial(_observe, lab, "references.run_bare_loop", knobs, rows, workers=cap),
    )
    reference = f"bare loop of {cap} workers, {_compute_median(bare, 'utilisation'):.3f}"
    what = f"utilisation of a cap of {cap}, {rows:,} rows of {MEAN_LATENCY_S * 1000:.0f} ms"
    yield Figure(what, [seen.utilisation for seen in ours], "share", at_least(least), reference)
    ratios = compute_ratios(ours, bare, "utilisation")
    yield Figure("the same against the bare loop", ratios, "x", None, reference)


def measure_w1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row W1, with one process and an unknown cap."""
    rows = lab.limit_rows(TRUE_CAP * 60)
    ours, known, alone = lab.run_in_turns(
        partial(_find_cap, lab, rows),
        partial(_observe, lab, "jobs.generate", {}, rows, max_concurrency=TRUE_CAP),
        partial(_observe, lab, "references.run_tenacity_alone", {}, rows, workers=ALLOWED_CALLS),
    )
    refused = [seen.refused_percent for seen in ours]
    peer = f"tenacity alone, {_compute_median(alone, 'refused_percent'):.0f} %"
    yield Figure(f"{UNKNOWN_CAP}, {rows:,} rows: refused", refused, "%", at_most(2.0), peer)
    slower, faster = compute_ratios(ours, known, "seconds"), compute_ratios(alone, ours, "seconds")
    peer = f"known cap, {_compute_median(known, 'seconds'):.1f} s"
    yield Figure("the same: time", slower, "x", at_most(1.05), peer)
    peer = f"tenacity alone, {_compute_median(alone, 'seconds'):.1f} s"
    yield Figure("the same: times faster", faster, "x", at_least(2.7), peer)


def measure_w2(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row W2, with an unknown cap that changes."""
    phase_s = 0.3 if lab.tiny else _PHASE_S
    # The rows are 92 % of what the caps allow, so that all rows end before the last phase ends.
    rows = lab.limit_rows(int(0.92 * sum(_CHANGING_CAPS) * _PHASE_S / MEAN_LATENCY_S), tiny=60)
    plan = [(number * phase_s, cap) for number, cap in enumerate(_CHANGING_CAPS)]
    (found,) = lab.run_in_turns(partial(_find_cap, lab, rows, cap=_CHANGING_CAPS[0], cap_plan=plan))
    what = f"unknown cap {'-'.join(map(str, _CHANGING_CAPS))}, {phase_s:g} s each"
    yield from _judge_refusals(what, found, least=0.85, most=2.5)


def measure_w3(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row W3, with four processes that share one key and an unknown cap."""
    rows = lab.limit_rows(TRUE_CAP * 60)
    one, four = lab.run_in_turns(partial(_find_cap, lab, rows), partial(_find_cap, lab, rows, 4))
    peer = f"one process, {_compute_median(one, 'seconds'):.1f} s"
    rates = compute_ratios(one, four, "seconds")
    yield Figure(f"4 processes, one key, {UNKNOWN_CAP}: rate", rates, "x", at_least(0.95), peer)
    refused = [seen.refused_percent for seen in four]
    peer = f"one process, {_compute_median(one, 'refused_percent'):.1f} %"
    yield Figure("the same: refused", refused, "%", at_most(3.0), peer)


def measure_w4(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row W4, the number of retries before the time that the service named."""
    knobs = {"retry_after": "mixed", "faults": {"429": 0.08, "503": 0.02}}
    # The service answers ten times as fast as in other rows, because the waits before retries take long enough.
    knobs |= {"retry_after_s": 0.2 if lab.tiny else 1.0, "latency": Lognormal(MEAN_LATENCY_S / 10)}
    (found,) = lab.run_in_turns(partial(_find_cap, lab, lab.limit_rows(240), **knobs))
    refused = sum(seen.books.statuses.get(status, 0) for seen in found for status in (429, 503))
    if not refused:
        raise BrokenRowError("the service sent no Retry-After, so no retry could be too early")
    early = [float(seen.books.early_retries) for seen in found]
    what = "retries earlier than Retry-After (seconds, decimal, date)"
    yield Figure(what, early, "count", at_most(0), f"{refused} answers 429 and 503")


def measure_w5(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row W5, with two processes that share one key and an unknown cap."""
    (found,) = lab.run_in_turns(partial(_find_cap, lab, lab.limit_rows(TRUE_CAP * 60), 2))
    yield from _judge_refusals(f"2 processes, one key, {UNKNOWN_CAP}", found, least=0.88, most=4.5)


def _judge_refusals(
    what: str, found: Sequence[Observation], *, least: float, most: float
) -> Iterator[Figure]:
    """Yield the utilisation of an unknown cap and the share of refused calls."""
    used, refused = [seen.utilisation for seen in found], [seen.refused_percent for seen in found]
    yield Figure(f"{what}: utilisation", used, "share", at_least(least), "what is allowed")
    yield Figure("the same: refused", refused, "%", at_most(most), "all calls")
