"""What the store takes: a durable checkpoint, a resume over rows that are finished."""

import asyncio
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.child import Clock
from benchmarks.jobs import settings_of
from benchmarks.texts import SAMPLE_RATE, VOICE, line
from speechframe import aio
from speechframe.old_store import LedgerRow, Record, RunFolder, RunManifest, SentRecord

_SERVICE = "faulty-0"
_TEXT = line(0, 62)
_WORDS = [(word, i * 300, i * 300 + 250) for i, word in enumerate(_TEXT.split())]


def checkpoint(clock: Clock, folder: str, rows: int, audio_bytes: int):
    """Write the `sent` record and the answer of every row, as the engine does."""
    audio = os.urandom(audio_bytes)
    sha256 = hashlib.sha256(audio).hexdigest()
    run = RunFolder.create(Path(folder, "run"), RunManifest("bench", "generate", service=_SERVICE))
    made = [_records(f"{number:032x}", audio, sha256) for number in range(rows)]
    with run.lock(), run.writer() as writer, clock:
        thread_s = time.thread_time()
        for sent, record, row in made:
            writer.sent(sent)
            writer.answer(record, row)
        thread_s = time.thread_time() - thread_s
        # Until everything is in parts: the threads behind belong to the figure of the whole.
        writer.close()
    return {"rows": len(run.index()), "thread_s": thread_s}


def _records(key: str, audio: bytes, sha256: str) -> tuple[SentRecord, Record, LedgerRow]:
    """Return what is written of one call, every field filled in as the engine fills it."""
    about: dict[str, Any] = {"lane": "global/other", "model": "gen2", "voice_id": VOICE, "locale": "en-US"}
    price: dict[str, Any] = {"audio_seconds": 3.75, "credits_millis": 1860, "balance_after": 1_000_000}
    answer: dict[str, Any] = {**about, **price, "format": "WAV", "service": _SERVICE, "latency_ms": 200.0}
    sent = SentRecord(
        key, characters=62, millicredits=1860, idempotency_key=f"bench-{key}", format="WAV", **about
    )
    record = Record(
        key, "done", audio_bytes=audio, audio_path=f"{key}.wav", sha256=sha256, text=_TEXT, word_durations=_WORDS,
        sample_rate=SAMPLE_RATE, channels=1, billed_characters=62, trace_id=key[:8], **answer,
    )  # fmt: skip
    row = LedgerRow(
        key, "done", run_id="bench", attempt=1, operation="generate", characters=62, credits_basis="computed",
        key_fingerprint="0" * 12, user="bench", host="bench", trace_id=key[:8], idempotency=True, **answer,
    )  # fmt: skip
    return sent, record, row


def build_finished(clock: Clock, to: dict[str, str], table: str, folder: str):
    """Make a run folder whose every row is done, without a call: planned by us, answered by nobody."""
    path = Path(folder, "finished")
    with clock:
        asyncio.run(
            aio.generate(
                table, voice=VOICE, format="WAV", sample_rate=SAMPLE_RATE, service=settings_of(to),
                run_dir=path, progress=False, dry_run=True,
            )
        )  # fmt: skip
        run = RunFolder.open(path)
        with run.lock(), run.writer() as writer, run.table() as file:
            for batch in file.iter_batches(columns=["request_key"]):
                for key in batch.column(0).to_pylist():
                    writer.sent(SentRecord(key))
                    writer.answer(
                        Record(key, "done", audio_bytes=b"RIFF", format="WAV"),
                        LedgerRow(key, "done", credits_millis=90, credits_basis="computed", service=_SERVICE),
                    )
            rows = writer.rows_written
    return {"rows": rows, "path": str(path)}


def scan(clock: Clock, path: str):
    """Read which rows are finished."""
    run = RunFolder.open(path)
    with tempfile.TemporaryDirectory(dir=path) as small:
        # What is done once a process must not count as many times as there are rows to a million.
        parts = Path(small, "parts")
        parts.mkdir()
        first = next(Path(path, "parts").glob("*.parquet"))
        os.link(first, parts / first.name)
        RunFolder(Path(small), run.manifest).index()
    with clock:
        rows = len(run.index())
    return {"rows": rows}


def resume(clock: Clock, to: dict[str, str], path: str):
    """Go on with a run in which nothing is left to do."""
    with clock:
        run = asyncio.run(aio.resume(path, service=settings_of(to), progress=False))
    return {"rows": len(RunFolder.open(path).index()), "ended": run.status == "finished"}
