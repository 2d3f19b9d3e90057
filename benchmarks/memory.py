"""Measure the rows M1 and M2 about memory, and R1 about resuming a finished run."""

import statistics
from collections.abc import Iterator

from benchmarks.cost import CALLS_IN_FLIGHT
from benchmarks.lab import BrokenRowError, JobResult, Lab
from benchmarks.report import Figure, at_most
from benchmarks.texts import TEXT_CHARACTERS

MILLION = 1_000_000


def measure_m1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row M1, the peak memory of two runs of different length."""
    few, many = lab.limit_rows(20_000, 40), lab.limit_rows(40_000, 80)
    small, large = [], []
    for _ in range(lab.limit_rounds(2)):
        small.append(_generate(lab, few, "WAV", 60_000))
        large.append(_generate(lab, many, "WAV", 60_000))
    shares = [one.service_share for one in (*small, *large)]
    reference = f"{few:,} rows, {statistics.median(one.over_mb for one in small):.0f} MB"
    what = f"peak memory over import, {many:,} rows of 60 KB"
    yield Figure.from_rounds(
        "M1", what, [one.over_mb for one in large], "MB", at_most(120), reference, shares
    )
    growths = [100 * (more.over_mb / less.over_mb - 1) for more, less in zip(large, small, strict=True)]
    yield Figure.from_rounds("M1", "the same: growth", growths, "%", at_most(5.0), reference, shares)


def measure_m2(lab: Lab) -> Iterator[Figure]:
    """Yield the figure of the row M2, the growth of memory during a long run."""
    last = lab.limit_rows(MILLION if lab.long else 150_000, 40)
    first = lab.limit_rows(50_000, 0)
    ran = _generate(lab, last, "FLAC", 2_000, from_row=first)
    what = f"growth of memory from row {first:,} to {last:,}, 2 KB a row"
    reference = f"at row {first:,}, {ran.more['late_mb']:.0f} MB"
    yield Figure.from_rounds(
        "M2", what, [ran.more["growth_mb"]], "MB", at_most(30), reference, [ran.service_share]
    )


def _generate(lab: Lab, rows: int, format: str, audio_bytes: int, from_row: int = 0) -> JobResult:
    with lab.run_service(audio_bytes=audio_bytes) as service, lab.make_folder() as folder:
        table = lab.write_table(rows, TEXT_CHARACTERS[format, audio_bytes], folder)
        return lab.run_child(
            "jobs.generate_file", service, table=table, format=format, folder=folder, from_row=from_row,
            max_concurrency=CALLS_IN_FLIGHT, max_credits=10.0**9,
        )  # fmt: skip


def measure_r1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row R1, the cost of resuming a run whose rows are all finished."""
    rows = lab.limit_rows(MILLION if lab.long else 100_000, 100)
    scans, raws, wholes = [], [], []
    with lab.run_service(audio_bytes=2_000) as service, lab.make_folder() as folder:
        table = lab.write_table(rows, 8, folder)
        path = lab.run_child("stored.build_finished", service, table=table, folder=folder).more["path"]
        for _ in range(lab.rounds):
            scans.append(lab.run_child("stored.scan_keys", path=path))
            raws.append(lab.run_child("references.read_raw_keys", path=path))
            wholes.append(lab.run_child("stored.resume", service, path=path))
        paid = service.books().requests
    if paid or any(one.rows != rows for one in (*scans, *raws, *wholes)):
        raise BrokenRowError(
            f"the resume of {rows} finished rows found other rows or made calls ({paid} calls)"
        )
    if not all(one.more["ended"] for one in wholes):
        raise BrokenRowError(f"the resume of {rows} finished rows did not end with the status finished")
    what = f"CPU of scanning the keys of {rows:,} finished rows, scaled to a million"
    raw_s = statistics.median(one.cpu_s * MILLION / rows for one in raws)
    per_million = [one.cpu_s * MILLION / rows for one in scans]
    yield Figure.from_rounds("R1", what, per_million, "s", at_most(1.0), f"raw reader, {raw_s:.2f} s")
    a_row = [one.cpu_s / rows * 1e6 for one in wholes]
    yield Figure.from_rounds(
        "R1", "CPU of the whole resume, a row", a_row, "us", at_most(20), "all rows are finished"
    )
    over = [one.over_mb for one in wholes]
    yield Figure.from_rounds("R1", "its peak memory over import", over, "MB", at_most(250), f"{rows:,} rows")


ROWS = {"M1": measure_m1, "M2": measure_m2, "R1": measure_r1}
