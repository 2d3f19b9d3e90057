"""Make a finished run, read its keys, and resume it, as jobs for child processes."""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.child import Clock
from benchmarks.jobs import make_settings
from benchmarks.texts import SAMPLE_RATE, VOICE
from speechframe import aio, open_run
from speechframe.store import parts
from speechframe.store.folder import Folder
from speechframe.store.journal import Ended, Journal
from speechframe.store.records import read_snapshot
from speechframe.store.schema import BASE_KEY, FINISHED_STATUSES


def build_finished(clock: Clock, to: dict[str, str], table: str, folder: str):
    """Make a run folder in which every row is done, without calls. The answers are written to the journal."""
    path = Path(folder, "finished")
    with clock:
        asyncio.run(
            aio.generate(
                table, voice=VOICE, format="WAV", sample_rate=SAMPLE_RATE, service=make_settings(to),
                run_dir=path, progress=False, dry_run=True,
            )
        )  # fmt: skip
        run = open_run(path)
        with run.folder.lock():
            rows = _write_answers(run)
    return {"rows": rows, "path": str(path)}


def _write_answers(run) -> int:
    """Write an answer for every row of a planned run, and return the number of rows."""
    columns, rows = run.manifest.schema, 0
    log = Journal(run.folder, 1, {"run_id": run.run_id, "operation": "generate", "service": run.service})
    table = pq.ParquetFile(run.folder.get_source(run.manifest.table.file))
    for batch in table.iter_batches(columns=[BASE_KEY]):
        for key in batch.column(0).to_pylist():
            now = time.time()
            part = {"request_key": key, "take": 0, "price": 90, "millicredits": 90}
            log.write_sent(key, 1, "global", now, [part])
            row = {
                "request_key": key, "take": 0, "status": "done", "credits": 0.09, "attempts": 1,
                "finished_at": now, "format": "WAV", "audio": f"{key}.wav",
            }  # fmt: skip
            log.write_end(key, "done", [Ended(90, "computed", row, b"RIFF")])
            rows += 1
            if log.is_full:
                parts.convert_segment(run.folder, log.begin_next_segment()(), columns)
    parts.convert_segment(run.folder, log.close(), columns)
    return rows


def scan_keys(clock: Clock, path: str):
    """Read the keys of the finished rows, and return their number."""
    with tempfile.TemporaryDirectory(dir=path) as small:
        # A first scan of one file does the work that a process does only once. It must not be scaled to a million rows.
        attempts = Path(small, "attempts")
        attempts.mkdir()
        first = min(Path(path, "attempts").glob("*.parquet"))
        os.link(first, attempts / first.name)
        _count_finished_rows(small)
    with clock:
        rows = _count_finished_rows(path)
    return {"rows": rows}


def _count_finished_rows(path: str) -> int:
    index = read_snapshot(Folder(Path(path))).index
    return len(index.keys[index.find_with_status(FINISHED_STATUSES)].tobytes()) // 16


def resume(clock: Clock, to: dict[str, str], path: str):
    """Resume a run whose rows are all finished."""
    with clock:
        run = asyncio.run(aio.resume(path, service=make_settings(to), progress=False))
    return {"rows": _count_finished_rows(path), "ended": run.status == "finished"}
