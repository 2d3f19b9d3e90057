"""Measure rows about pace, with the counters of the service.

The service refuses calls above a cap of calls in flight. In rows U the caller gets the cap. In rows W the caller has
to find it. The *utilisation* is the average number of calls in flight as a share of the cap.
"""

import contextlib
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.lab import BrokenRowError, JobResult, Lab
from benchmarks.report import Figure, at_least, at_most
from benchmarks.texts import TEXT_CHARACTERS
from speechframe.testing import Books, Fixed, Lognormal

MEAN_LATENCY_S = 0.2
"""Mean time of the service for a call, in seconds."""

ALLOWED_CALLS, TRUE_CAP = 100, 15
"""Calls in flight that the caller allows itself in rows W, and the cap of the service that the caller has to find."""

PROCESS_COUNT = 4
"""Number of processes that share one key in W3."""

_PHASE_S = 10.0
_CHANGING_CAPS = (15, 30, 5, 15)
"""Caps of the service in W2, one after the other. Each lasts `_PHASE_S` seconds."""

_COMMON_ARGUMENTS: dict[str, Any] = {"characters": TEXT_CHARACTERS["WAV", 60_000], "format": "WAV"}
"""Arguments of all jobs."""


@dataclass(frozen=True)
class Observation:
    """The counters of a service (`books`) during a job, and the results of the children (`ran`)."""

    books: Books
    ran: list[JobResult]

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


def _run_observed(lab: Lab, job: str, knobs: dict[str, Any], *arguments: dict[str, Any]) -> Observation:
    """Run a job in one child for each of `arguments`, all at the same time, with a service of their own."""
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(
            lab.run_service(**{"latency": Lognormal(_get_mean_latency_s(lab)), **knobs})
        )
        own = [{**_COMMON_ARGUMENTS, **given} for given in arguments]
        if job.startswith("jobs."):
            own = [{**given, "folder": stack.enter_context(lab.make_folder())} for given in own]
        ran = lab.run_children(job, service, own)
        books = service.books()
        wanted = sum(given["rows"] for given in arguments)
        if books.answered < wanted:
            raise BrokenRowError(f"the service answered {books.answered} calls of {wanted}")
        return Observation(books, ran)


def _get_mean_latency_s(lab: Lab) -> float:
    return 0.02 if lab.tiny else MEAN_LATENCY_S


def _measure_published_cap(
    lab: Lab, id: str, cap: int, latencies: int, bound: float, least: float | None = None
) -> Iterator[Figure]:
    """Yield figures of the utilisation of a published cap, first with varying latencies, then with equal latencies."""
    for name, latency in (
        ("", Lognormal(_get_mean_latency_s(lab))),
        (" each, all alike", Fixed(_get_mean_latency_s(lab))),
    ):
        yield from _measure_utilisation(lab, id, cap, latencies, bound, least, name, {"latency": latency})


def _measure_utilisation(
    lab: Lab,
    id: str,
    cap: int,
    latencies: int,
    bound: float,
    least: float | None,
    name: str,
    knobs: dict[str, Any],
) -> Iterator[Figure]:
    """Yield the utilisation of a cap, and its ratio to a bare loop of `cap` workers.

    A job lasts `latencies` times the latency of a call, so that its start and its end count little.
    """
    rows = lab.limit_rows(cap * latencies)
    knobs = {"cap": cap, "publish_cap": True, **knobs}
    ours, bare = [], []
    for _ in range(lab.rounds if latencies <= 100 else lab.limit_rounds(2)):
        ours.append(_run_observed(lab, "jobs.generate", knobs, {"rows": rows, "max_concurrency": cap}))
        bare.append(_run_observed(lab, "references.run_bare_loop", knobs, {"rows": rows, "workers": cap}))
    reference = f"bare loop of {cap} workers, {statistics.median(seen.utilisation for seen in bare):.3f}"
    what = f"utilisation of a cap of {cap}, {rows:,} rows of {MEAN_LATENCY_S * 1000:.0f} ms{name}"
    shares = _list_service_shares(ours)
    yield Figure.from_rounds(
        id, what, [seen.utilisation for seen in ours], "share", at_least(bound), reference, shares
    )
    ratios = [one.utilisation / other.utilisation for one, other in zip(ours, bare, strict=True)]
    target = None if least is None else at_least(least)
    yield Figure.from_rounds(id, "the same against the bare loop", ratios, "x", target, reference, shares)


def measure_u15(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row U15, with a published cap of 15."""
    return _measure_published_cap(lab, "U15", 15, 100, 0.97)


def measure_u2(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row U2, with a published cap of 2."""
    return _measure_published_cap(lab, "U2", 2, 120, 0.985)


def measure_u100(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row U100, with a published cap of 100."""
    return _measure_published_cap(lab, "U100", 100, 60, 0.90, least=1.0)


def measure_w1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row W1, with one process and an unknown cap."""
    rows = lab.limit_rows(TRUE_CAP * 60)
    knobs = {"cap": TRUE_CAP}
    ours, known, alone = [], [], []
    for _ in range(lab.limit_rounds(2)):
        ours.append(
            _run_observed(lab, "jobs.generate", knobs, {"rows": rows, "max_concurrency": ALLOWED_CALLS})
        )
        known.append(_run_observed(lab, "jobs.generate", knobs, {"rows": rows, "max_concurrency": TRUE_CAP}))
        alone.append(
            _run_observed(
                lab, "references.run_tenacity_alone", knobs, {"rows": rows, "workers": ALLOWED_CALLS}
            )
        )
    refused, shares = [seen.refused_percent for seen in ours], _list_service_shares(ours)
    what = f"cap unknown ({ALLOWED_CALLS} allowed, true {TRUE_CAP}), {rows:,} rows: refused"
    peer = f"tenacity alone, {statistics.median(seen.refused_percent for seen in alone):.0f} %"
    yield Figure.from_rounds("W1", what, refused, "%", at_most(2.0), peer, shares)
    slower = [one.seconds / other.seconds for one, other in zip(ours, known, strict=True)]
    yield Figure.from_rounds(
        "W1",
        "the same: time",
        slower,
        "x",
        at_most(1.05),
        f"known cap, {_compute_median_s(known):.1f} s",
        shares,
    )
    faster = [other.seconds / one.seconds for one, other in zip(ours, alone, strict=True)]
    peer = f"tenacity alone, {_compute_median_s(alone):.1f} s"
    yield Figure.from_rounds("W1", "the same: times faster", faster, "x", at_least(2.7), peer, shares)


def measure_w2(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row W2, with an unknown cap that changes."""
    phase_s = 0.3 if lab.tiny else _PHASE_S
    # The rows are 92 % of what the caps allow, so that all rows end before the last phase ends.
    rows = lab.limit_rows(int(0.92 * sum(_CHANGING_CAPS) * _PHASE_S / MEAN_LATENCY_S), tiny=60)
    knobs = {
        "cap": _CHANGING_CAPS[0],
        "cap_plan": [(number * phase_s, cap) for number, cap in enumerate(_CHANGING_CAPS)],
    }
    job = {"rows": rows, "max_concurrency": ALLOWED_CALLS}
    found = [_run_observed(lab, "jobs.generate", knobs, job) for _ in range(lab.limit_rounds(2))]
    what, reference = (
        f"cap {'-'.join(map(str, _CHANGING_CAPS))}, unknown",
        f"what is allowed, {phase_s:g} s each",
    )
    used, refused = [seen.utilisation for seen in found], [seen.refused_percent for seen in found]
    yield Figure.from_rounds(
        "W2", f"{what}: utilisation", used, "share", at_least(0.85), reference, _list_service_shares(found)
    )
    yield Figure.from_rounds(
        "W2", f"{what}: refused", refused, "%", at_most(2.5), "all calls", _list_service_shares(found)
    )


def measure_w3(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row W3, with several processes that share one key and an unknown cap."""
    part = lab.limit_rows(TRUE_CAP * 60) // PROCESS_COUNT
    knobs = {"cap": TRUE_CAP}
    whole = {"rows": PROCESS_COUNT * part, "max_concurrency": ALLOWED_CALLS}
    parts = [
        {"rows": part, "first": n * part, "max_concurrency": ALLOWED_CALLS} for n in range(PROCESS_COUNT)
    ]
    one, four = [], []
    for _ in range(lab.limit_rounds(2)):
        one.append(_run_observed(lab, "jobs.generate", knobs, whole))
        four.append(_run_observed(lab, "jobs.generate", knobs, *parts))
    what, shares = f"{PROCESS_COUNT} processes, one key, unknown cap {TRUE_CAP}", _list_service_shares(four)
    rates = [single.seconds / many.seconds for single, many in zip(one, four, strict=True)]
    peer = f"one process, {_compute_median_s(one):.1f} s"
    yield Figure.from_rounds("W3", f"{what}: rate", rates, "x", at_least(0.95), peer, shares)
    peer = f"one process, {statistics.median(seen.refused_percent for seen in one):.1f} %"
    yield Figure.from_rounds(
        "W3", f"{what}: refused", [seen.refused_percent for seen in four], "%", at_most(3.0), peer, shares
    )


def measure_w4(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row W4, the number of retries before the time that the service named."""
    knobs = {"cap": TRUE_CAP, "retry_after": "mixed", "faults": {"429": 0.08, "503": 0.02}}
    # The service answers ten times as fast as in other rows, because the waits before retries take long enough.
    knobs |= {"retry_after_s": 0.2 if lab.tiny else 1.0, "latency": Lognormal(MEAN_LATENCY_S / 10)}
    job = {"rows": lab.limit_rows(240), "max_concurrency": ALLOWED_CALLS}
    found = [_run_observed(lab, "jobs.generate", knobs, job) for _ in range(lab.limit_rounds(2))]
    refused = sum(seen.books.statuses.get(status, 0) for seen in found for status in (429, 503))
    if not refused:
        raise BrokenRowError("the service sent no Retry-After, so no retry could be too early")
    early = [float(seen.books.early_retries) for seen in found]
    what = "retries earlier than Retry-After (seconds, decimal, date)"
    yield Figure.from_rounds(
        "W4", what, early, "count", at_most(0), f"{refused} answers 429 and 503", _list_service_shares(found)
    )


def measure_w5(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row W5, with two processes that share one key and an unknown cap."""
    part = lab.limit_rows(TRUE_CAP * 60) // 2
    parts = [{"rows": part, "first": n * part, "max_concurrency": ALLOWED_CALLS} for n in range(2)]
    found = [
        _run_observed(lab, "jobs.generate", {"cap": TRUE_CAP}, *parts) for _ in range(lab.limit_rounds(2))
    ]
    what, peer = f"two processes, one key, unknown cap {TRUE_CAP}", "what is allowed"
    used, refused = [seen.utilisation for seen in found], [seen.refused_percent for seen in found]
    yield Figure.from_rounds(
        "W5", f"{what}: utilisation", used, "share", at_least(0.88), peer, _list_service_shares(found)
    )
    yield Figure.from_rounds(
        "W5", f"{what}: refused", refused, "%", at_most(4.5), "all calls", _list_service_shares(found)
    )


def _list_service_shares(found: list[Observation]) -> list[float]:
    return [one.service_share for seen in found for one in seen.ran]


def _compute_median_s(found: list[Observation]) -> float:
    return statistics.median(seen.seconds for seen in found)


ROWS = {
    "U15": measure_u15,
    "U2": measure_u2,
    "U100": measure_u100,
    "W1": measure_w1,
    "W2": measure_w2,
    "W3": measure_w3,
    "W4": measure_w4,
    "W5": measure_w5,
}
