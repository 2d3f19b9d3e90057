"""What several tests of the store build and check."""

import hashlib
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa

from speechframe.old_store import LedgerRow, Record, RunManifest, SentRecord
from speechframe.old_store.parts import failed_file, open_part, part_files

MOMENT = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
TABLE_SCHEMA = pa.schema(
    [("line", pa.string()), ("speech_row_id", pa.string()), ("request_key", pa.string())]
)


def manifest(**changes):
    said = {
        "run_id": "run-1",
        "operation": "generate",
        "service": "local/espeak-1",
        "key_fingerprint": "fp-1",
    }
    return RunManifest(**{**said, **changes})


def key_of(number):
    return hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest()


def audio_of(key, size=900):
    return hashlib.shake_128(key.encode()).digest(size)


def done(key, *, size=900, **changes):
    fields = {
        "request_key": key, "status": "done", "audio_bytes": audio_of(key, size), "text": f"text of {key}",
        "word_durations": [("text", 0, 120), ("of", 120, 260)], "format": "FLAC", "sample_rate": 24_000,
        "channels": 1, "audio_seconds": 0.26, "billed_characters": 9, "credits_millis": 9_500,
        "balance_after": 991, "trace_id": "trace-1", "latency_ms": 12.5, "lane": "main",
        "service": "local/espeak-1", "model": "gen2", "voice_id": "en-US-nora", "locale": "en-US",
        "warnings": ["short"], "finished_at": MOMENT, "attempts": 0,
    }  # fmt: skip
    return Record(**{**fields, **changes})


def failed(key, status="failed", **changes):
    fields = {"error_code": "BadRequest", "error_message": "no such voice", "error_status": 400, "text": "t"}
    return Record(key, status, **{**fields, **changes})


def sent(key, attempt=1, **changes):
    fields = {"lane": "main", "characters": 9, "millicredits": 9_500, "idempotency_key": f"idem-{key[:4]}"}
    return SentRecord(key, attempt, **{**fields, **changes})


def tried(key, status="done", **changes):
    fields = {
        "run_id": "run-1",
        "operation": "generate",
        "credits_millis": 9_500,
        "credits_basis": "computed",
    }
    return LedgerRow(key, status, **{**fields, **changes})


def table_batch(keys):
    rows = [[f"line {i}" for i in range(len(keys))], [f"id-{i}" for i in range(len(keys))], list(keys)]
    return pa.record_batch([pa.array(column, pa.string()) for column in rows], schema=TABLE_SCHEMA)


def all_rows(run):
    """Every row a glob over parts/ shows."""
    files = [*part_files(run.path), *([failed_file(run.path)] if failed_file(run.path).exists() else [])]
    rows = []
    for path in files:
        with open_part(path) as file:
            rows += file.read().to_pylist()
    return rows


def check_whole(run):
    """What holds of a run folder nobody writes to: no leftovers, every key once, audio and ledger right."""
    assert run.verify() == []
    assert sorted(p.name for p in run.path.rglob("*.tmp")) == []
    rows = all_rows(run)
    assert [key for key, n in Counter(row["request_key"] for row in rows).items() if n > 1] == []
    for row in rows:
        if row["status"] in {"done", "suspect"}:
            assert row["audio"]["bytes"] == audio_of(row["request_key"], len(row["audio"]["bytes"]))
        else:
            assert row["audio"] is None
    attempts = run.ledger().select(["request_key", "attempt"]).to_pylist()
    twice = [a for a, n in Counter((a["request_key"], a["attempt"]) for a in attempts).items() if n > 1]
    assert twice == []
    return {row["request_key"]: row for row in rows}


def statuses_in(index, keys):
    """Return each call's status as an index has it, None where it has none."""
    codes = index.columns.codes
    return [index.statuses[codes[at]] if at >= 0 else None for at in index.find(keys).tolist()]
