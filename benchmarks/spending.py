"""Measure the row Q1, which compares `speechframe.usage` on a large ledger with the same query in DuckDB."""

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.child import Clock
from benchmarks.lab import Lab, compute_ratios
from benchmarks.report import Figure, at_most
from speechframe.store.schema import LEDGER_SCHEMA

FILE_COUNT, FILE_SPAN_S = 50, 40_000
"""Number of files of the ledger, and seconds that the attempts of a file span."""

DUCKDB_QUERY = """
select date_trunc('day', time), tags['team'], operation, count(*),
  count(case when status in ('done', 'suspect') then 1 end), count(case when status = 'retried' then 1 end),
  sum(cast(round(1000 * credits) as bigint)), sum(cast(round(1000 * computed) as bigint)),
  sum(cast(round(1000 * saved) as bigint)), sum(case when status = 'suspect' then credits else 0 end),
  sum(case when credits_basis = 'unknown' then credits else 0 end), sum(characters), sum(audio_seconds)
from read_parquet('{folder}/attempts/*.parquet') group by all
"""


def measure_q1(lab: Lab) -> Iterator[Figure]:
    """Yield the figures of the row Q1."""
    rows = lab.limit_rows(10_000_000, 1000)
    with lab.make_folder() as folder:
        _write_ledger(Path(folder), rows)
        job = {"folder": folder, "rows": rows}
        ours, hands = lab.run_in_turns(
            partial(lab.run_child, "spending.sum_with_speechframe", **job),
            partial(lab.run_child, "spending.sum_with_duckdb", **job),
        )
    what = f"summing up {rows:,} attempts by day, team and operation"
    yield Figure(what, compute_ratios(ours, hands, "wall_s"), "x", at_most(5.0), "DuckDB")
    over_mb = [one.over_mb for one in ours]
    yield Figure("its peak memory over import", over_mb, "MB", at_most(500), f"{rows:,} rows")


def sum_with_speechframe(clock: Clock, folder: str, rows: int):
    """Sum up a ledger with speechframe, and return the number of attempts."""
    del rows
    from speechframe.spending.usage import usage as summed

    with clock:
        found = summed(folder, ["tag:team", "operation"])
    return {"rows": int(found["attempts"].sum())}


def sum_with_duckdb(clock: Clock, folder: str, rows: int):
    """Sum up a ledger with DuckDB, and return the number of attempts."""
    del rows
    import duckdb

    with clock:
        found = duckdb.sql(DUCKDB_QUERY.format(folder=folder)).df()
    return {"rows": int(found.iloc[:, 3].sum())}


def _write_ledger(folder: Path, rows: int) -> None:
    """Write a ledger of some teams, voices and runs over 23 days."""
    (folder / "attempts").mkdir()
    draw, count = np.random.default_rng(1), rows // FILE_COUNT
    start = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
    for number in range(FILE_COUNT):
        times = (start + FILE_SPAN_S * number) * 10**6 + np.sort(draw.integers(0, FILE_SPAN_S * 10**6, count))
        teams = pa.array([f"team {team}" for team in draw.integers(0, 5, count)])
        tags = pa.MapArray.from_arrays(
            np.arange(count + 1, dtype=np.int32), pa.array(["team"] * count), teams
        )
        few = [f"{kind}" for kind in draw.integers(0, 4, count)]
        own = {
            "time": pa.array(times).cast(LEDGER_SCHEMA.field("time").type),
            "request_key": pa.array([f"{key:032x}" for key in draw.integers(0, 2**62, count)]),
            "status": pa.array(draw.choice(["done", "done", "done", "suspect", "retried"], count)),
            "credits_basis": pa.array(["computed"] * count),
            "tags": tags,
        }
        for field in LEDGER_SCHEMA:
            if field.name not in own:
                is_text = pa.types.is_string(field.type)
                values = pa.array(few) if is_text else pa.array(draw.integers(0, 400, count))
                is_flag = pa.types.is_boolean(field.type)
                own[field.name] = pa.nulls(count, field.type) if is_flag else values.cast(field.type)
        table = pa.table([own[field.name] for field in LEDGER_SCHEMA], schema=LEDGER_SCHEMA)
        pq.write_table(table, folder / "attempts" / f"run-{number:06d}.parquet", compression="zstd")
