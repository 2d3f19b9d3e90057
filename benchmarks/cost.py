"""Rows about the client's CPU: single attempts (C60, C150), the durable job (E60), the checkpoint (K1)."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.lab import Lab, Ran
from benchmarks.report import Figure, at_most
from benchmarks.texts import CHARACTERS

IN_FLIGHT = 15
_TUNED = "[speed], tuned allocator"
_VARIANTS: dict[str, dict[str, Any]] = {
    _TUNED: {"tuned": True},
    "[speed]": {},
    "standard library only": {"hide": ("orjson", "pybase64")},
}


_LEAN = [name for name, how in _VARIANTS.items() if "hide" not in how]


def c60(lab: Lab) -> Iterator[Figure]:
    return _attempts(lab, "C60", 60_000, lab.size(3000), bounds=(0.25, 0.40, 0.65))


def c150(lab: Lab) -> Iterator[Figure]:
    return _attempts(lab, "C150", 150_000, lab.size(1500), bounds=(0.20, 0.38, 0.70))


def _attempts(lab: Lab, id: str, audio_bytes: int, rows: int, bounds: Sequence[float]) -> Iterator[Figure]:
    job = {"rows": rows, "characters": CHARACTERS["WAV", audio_bytes], "format": "WAV"}
    job |= {"workers": IN_FLIGHT, "warm": lab.size(200, 10)}
    bare: list[Ran] = []
    ours: dict[str, list[Ran]] = {name: [] for name in _VARIANTS}
    lean: dict[str, list[Ran]] = {name: [] for name in _LEAN}
    with lab.serving(audio_bytes=audio_bytes) as service:
        for _ in range(lab.rounds):
            bare.append(lab.child("references.bare_loop", service, **job))
            for name, how in _VARIANTS.items():
                ours[name].append(lab.child("jobs.send_once", service, **how, **job))
                if name in lean:
                    lean[name].append(lab.child("references.lean_loop", service, **how, **job))
    for (name, ran), bound in zip(ours.items(), bounds, strict=True):
        yield _cpu_ratio(id, f"CPU of an attempt, {name}", ran, bare, bound, "bare loop")
    for name, ran in lean.items():
        # What the same libraries give to a loop that checks nothing: no target, but a floor.
        yield _cpu_ratio(id, f"CPU of a lean loop without checks, {name}", ran, bare, None, "bare loop")


def e60(lab: Lab) -> Iterator[Figure]:
    for format in ("WAV", "FLAC"):
        yield from _durable(lab, format, lab.size(2000))


def _durable(lab: Lab, format: str, rows: int) -> Iterator[Figure]:
    job = {
        "rows": rows,
        "characters": CHARACTERS[format, 60_000],
        "format": format,
        "warm": lab.size(100, 10),
    }
    loop = {**job, "workers": IN_FLIGHT}
    whole = {**job, "max_concurrency": IN_FLIGHT, "max_credits": 1e6}
    bare, naive, ours, tuned = [], [], [], []
    with lab.serving(quota=10**9) as service:
        for _ in range(lab.rounds):
            bare.append(lab.child("references.bare_loop", service, **loop))
            with lab.folder() as folder:
                ours.append(lab.child("jobs.generate", service, folder=folder, **whole))
            with lab.folder() as folder:
                naive.append(lab.child("notebook.naive_notebook", service, folder=folder, **loop))
            with lab.folder() as folder:
                tuned.append(lab.child("jobs.generate", service, tuned=True, folder=folder, **whole))
    for name, ran in (("", ours), (", tuned allocator", tuned)):
        what = f"CPU of the whole job, {format}{name}"
        yield _cpu_ratio("E60", what, ran, bare, 1.0, "bare loop")
        yield _cpu_ratio("E60", what, ran, naive, 0.5, "naive notebook")
    for name, peer, bound in (("bare loop", bare, 1.0), ("naive notebook", naive, 0.5)):
        ratios = [one.wall_s / other.wall_s for one, other in zip(ours, peer, strict=True)]
        what = f"wall time of the whole job, {format}"
        yield Figure.of("E60", what, ratios, "x", at_most(bound), name, _shares(ours))


def k1(lab: Lab) -> Iterator[Figure]:
    job = {"rows": lab.size(6000), "audio_bytes": 60_000}
    ours, raw = [], []
    for _ in range(lab.rounds):
        with lab.folder() as folder:
            ours.append(lab.child("stored.checkpoint", folder=folder, **job))
        with lab.folder() as folder:
            raw.append(lab.child("references.raw_append", folder=folder, **job))
    reference = f"one write a row, fdatasync every 64: {_us_a_row(raw):.0f} us"
    called = [one.more["thread_s"] / one.rows * 1e6 for one in ours]
    yield Figure.of(
        "K1", "durable checkpoint, CPU of the calling thread a row", called, "us", at_most(50), reference
    )
    everything = [one.cpu_s / one.rows * 1e6 for one in ours]
    what = "the same with the threads behind it: Parquet parts, ledger, fsync"
    yield Figure.of("K1", what, everything, "us", None, reference)


def _cpu_ratio(id: str, what: str, ran: list[Ran], peer: list[Ran], bound: float | None, name: str) -> Figure:
    ratios = [one.cpu_s / other.cpu_s for one, other in zip(ran, peer, strict=False)]
    if ran:
        what = f"{what}: {_us_a_row(ran):.0f} us a row"
    target = None if bound is None else at_most(bound)
    return Figure.of(id, what, ratios, "x", target, f"{name}, {_us_a_row(peer):.0f} us", _shares(ran))


def _shares(ran: list[Ran]) -> list[float]:
    return [one.service_share for one in ran]


def _us_a_row(ran: list[Ran]) -> float:
    return statistics.median(one.cpu_s / one.rows * 1e6 for one in ran)


ROWS = {"C60": c60, "C150": c150, "E60": e60, "K1": k1}
