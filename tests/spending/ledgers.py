"""Ledger files for tests of arithmetic."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from speechframe.store.schema import LEDGER_SCHEMA

USUAL = {
    "run_id": "r", "take": 0, "attempt": 1, "operation": "generate", "model": "gen2", "locale": "en-US",
    "voice_id": "v", "format": "WAV", "characters": 10, "audio_seconds": 1.0, "credits": 10.0,
    "credits_basis": "computed", "computed": 10.0, "saved": 0.0, "lane": "global", "service": "s",
    "key_fingerprint": "k1", "user": "u", "host": "h", "tags": [], "status": "done", "latency_ms": 100.0,
}  # fmt: skip
"""An answered attempt of ten characters."""


def at(seconds):
    """Return a moment after noon of 1 November 2026, UTC."""
    return datetime(2026, 11, 1, 12, tzinfo=UTC) + timedelta(seconds=seconds)


def make_ledger(folder, rows, name="run-000001"):
    """Write attempts that differ from the usual one by what each of `rows` says; return the ledger folder."""
    (folder / "attempts").mkdir(parents=True, exist_ok=True)
    table = [{**USUAL, "request_key": f"{number:032x}", **row} for number, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(table, schema=LEDGER_SCHEMA), folder / "attempts" / f"{name}.parquet")
    return folder
