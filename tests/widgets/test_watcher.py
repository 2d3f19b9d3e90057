"""What a run's dashboard knows of a run that another process makes: its folder, looked at again and again."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest

from speechframe.old_batch.run import Run
from speechframe.old_store import LedgerRow, Record, RunFolder, RunManifest, SentRecord
from speechframe.old_store.ledger import read_ledger
from speechframe.widgets import attempts
from speechframe.widgets.attempts import AttemptReader
from speechframe.widgets.watcher import Watcher

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
COUNTED = ("done", "cached", "suspect", "failed", "charged_unknown")


def key_of(k):
    return f"{k * 2654435761 % 2**64 + 1:032x}"


def planned(path, rows):
    """Make a run of rows, every tenth the same call as the one before, and every fiftieth no call at all."""
    keys = [None if k % 50 == 49 else key_of(k - (k % 10 == 9)) for k in range(rows)]
    folder = RunFolder.create(path, RunManifest("r1", "generate", extra={"state": "running"}))
    with folder.lock(), folder.add_table(pa.schema([("request_key", pa.string())])) as table:
        table.write(pa.record_batch([pa.array(keys, pa.string())], names=["request_key"]))
    return Run(folder), [key for key in dict.fromkeys(keys) if key]


def make(writer, key, chance):
    """Write the attempts of a call, at times that other calls have, too, and that come in no order."""
    attempt = 1
    while True:
        now = BEGAN + timedelta(milliseconds=chance.randrange(400))
        told = {
            "time": now,
            "attempt": attempt,
            "balance_after": chance.choice([None, chance.randrange(10**6)]),
        }
        status = chance.choice([*COUNTED, "done", "done", "error", "error", "error"])
        code = None if status in COUNTED[:3] else chance.choice(["429", "503", "500", None])
        kind = {"failed": "refused", "error": "error", "charged_unknown": "charged_unknown"}.get(
            status, "done"
        )
        seconds = None if code else chance.randrange(9000) / 1000
        row = LedgerRow(
            key,
            kind,
            error_code=code,
            audio_seconds=seconds,
            credits_millis=chance.choice([None, 90, 4321]),
            **told,
        )
        writer.sent(SentRecord(key, attempt=attempt, time=now))
        if status != "error":
            writer.answer(Record(key, status, audio_bytes=b"RIFF", format="WAV", error_code=code), row)
            return
        writer.attempt(row)
        attempt += 1


def plainly(run):
    """Return the figures as a reader of the whole ledger would count them, row by row."""
    folder = run._folder
    told = folder.ledger().to_pylist()
    outcomes = folder.keys()
    calls = set(folder.table().read().column(0).to_pylist()) - {None}
    states = Counter(outcomes.get(key) for key in calls)
    in_vain = [a for a in told if a["status"] in {"error", "refused", "charged_unknown"}]
    last_of = {a["request_key"]: a for a in in_vain}
    last = {key: str(a["error_code"]) for key, a in last_of.items()}
    lost = {key for key, status in outcomes.items() if status in {"failed", "charged_unknown"}}
    failed_by = Counter(code for key, code in last.items() if key in lost)
    spent = list(accumulate(round(1000 * (a["credits"] or 0)) for a in told))
    chosen = np.unique(np.linspace(0, len(spent) - 1, 200).astype(int)) if spent else []
    seconds = [(a["time"] - told[0]["time"]).total_seconds() for a in told]
    return {
        **{name: states[name] for name in COUNTED},
        "total": sum(states.values()),
        "retries": sum(
            1 for a in in_vain if (a["request_key"] not in lost) or a is not last_of[a["request_key"]]
        ),
        "audio_seconds": round(sum(a["audio_seconds"] or 0 for a in told), 3),
        "balance": next((a["balance_after"] for a in told[::-1] if a["balance_after"] is not None), None),
        "credits": spent[-1] / 1000 if spent else 0,
        "failed_by": list(failed_by.items()),
        "retried_by": list((Counter(str(a["error_code"]) for a in in_vain) - failed_by).items()),
        "points": [(0.0, 0), *((seconds[k], spent[k]) for k in chosen)] if spent else [],
    }


def seen(watcher, reader):
    told = watcher.look()
    names = (*COUNTED, "total", "retries", "audio_seconds", "balance", "credits")
    return {
        **{name: told.counts[name] for name in names},
        "failed_by": list(told.failed_by.items()),
        "retried_by": list(told.retried_by.items()),
        "points": list(reader.read(watcher.run._folder).points),
    }


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_every_look_has_the_figures_of_the_whole_ledger(tmp_path, seed):
    chance = random.Random(seed)
    run, keys = planned(tmp_path / "run", 400)
    watcher, reader = Watcher(Run(RunFolder.open(run.path))), AttemptReader()
    assert seen(watcher, reader) == plainly(run)
    todo = iter(keys[:-20])
    # Some drives after another, each of several files, whose names are in no order.
    for _ in range(4):
        with run._folder.lock(), run._folder.writer() as writer:
            for _ in range(3):
                for _, key in zip(range(chance.randrange(1, 40)), todo, strict=False):
                    make(writer, key, chance)
                assert seen(watcher, reader) == plainly(run), "what is in the log counts"
                writer.cut()
                assert seen(watcher, reader) == plainly(run)
        assert seen(watcher, reader) == plainly(run)
    assert len(list((run.path / "attempts").iterdir())) >= 12


def test_a_run_without_rows_is_looked_at(tmp_path):
    run, _ = planned(tmp_path / "run", 0)
    assert seen(Watcher(run), AttemptReader()) == plainly(run)


def test_a_file_of_the_ledger_is_read_once(tmp_path, monkeypatch):
    read = []

    def noted(paths, *args, **options):
        read.extend(paths)
        return read_ledger(paths, *args, **options)

    monkeypatch.setattr(attempts, "read_ledger", noted)
    chance = random.Random(0)
    run, keys = planned(tmp_path / "run", 200)
    todo = iter(keys)
    watcher = Watcher(Run(RunFolder.open(run.path)))
    with run._folder.lock(), run._folder.writer() as writer:
        for files in range(1, 6):
            for _, key in zip(range(20), todo, strict=False):
                make(writer, key, chance)
            writer.cut()
            for _ in range(3):
                watcher.look()
            assert len(read) == files
    assert sorted(read) == sorted((run.path / "attempts").glob("*.parquet"))
