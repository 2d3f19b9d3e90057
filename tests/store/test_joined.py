"""The caller's rows in the caller's order, whatever the order in which calls were answered."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_cases import TABLE_SCHEMA, audio_of, done, failed, key_of, manifest, table_batch

from speechframe.errors import StoreError
from speechframe.old_store import PART_SCHEMA, RunFolder, join, parts, writer

KEYS = [key_of(i) for i in range(40)]


def answer(run, *records):
    with run.lock(), run.writer() as out:
        for record in records:
            out.answer(record)


def table_of(run, *args, **options):
    return pa.Table.from_batches(run.joined(*args, **options), run.joined_schema(*args, **_known(options)))


def _known(options):
    return {name: value for name, value in options.items() if name == "audio"}


def test_every_row_has_its_record_its_failure_or_its_reason(run):
    schema = TABLE_SCHEMA.append(pa.field("speech_problem", pa.string())).append(pa.field("cost", pa.int64()))
    keys = [KEYS[3], KEYS[0], KEYS[1], None, KEYS[0], KEYS[2]]
    with run.add_table(schema, hidden=["cost"]) as table:
        batch = table_batch(keys)
        notes = [None, None, None, "text is empty", None, None]
        table.write(
            pa.RecordBatch.from_arrays([*batch.columns, pa.array(notes), pa.array([1] * 6)], schema=schema)
        )
    answer(run, done(KEYS[0]), failed(KEYS[1]), failed(KEYS[2], "charged_unknown"))
    rows = table_of(run).to_pylist()
    assert [row["line"] for row in rows] == [f"line {i}" for i in range(6)]
    assert [row["status"] for row in rows] == [
        "pending",
        "done",
        "failed",
        "invalid",
        "done",
        "charged_unknown",
    ]
    assert [row["error_message"] for row in rows] == [
        None, None, "no such voice", "text is empty", None, "no such voice",
    ]  # fmt: skip
    assert [row["audio_seconds"] for row in rows] == [None, 0.26, None, None, 0.26, None]
    assert list(rows[0]) == [
        "line", "speech_row_id", *(n for n in PART_SCHEMA.names if n not in {"audio", "request_key"}),
        "request_key",
    ]  # fmt: skip


def test_columns_are_chosen_by_name_and_order(run, add_rows):
    add_rows(run, KEYS[:2])
    answer(run, done(KEYS[1]))
    table = table_of(run, ["status", "audio", "line"])
    assert table.column_names == ["status", "audio", "line"]
    assert table.column("audio").to_pylist() == [
        None,
        {"bytes": audio_of(KEYS[1]), "path": f"{KEYS[1]}.flac"},
    ]
    assert table_of(run, ["speech_row_id", "line"]).to_pylist()[1] == {
        "speech_row_id": "id-1",
        "line": "line 1",
    }
    with pytest.raises(StoreError, match=r"columns='line' is text: give a list of names, \['line'\]"):
        table_of(run, "line")
    with pytest.raises(StoreError, match="no column 'colour'; it has line"):
        run.joined(["colour"])


def test_our_columns_have_the_names_the_run_gave_them(run):
    schema = pa.schema(
        [(n, pa.string()) for n in ("text", "status", "audio", "request_key", "speech_request_key")]
    )
    names = {n: f"speech_{n}" for n in ("text", "status", "audio", "request_key")}
    with run.add_table(schema, column_map=names) as table:
        table.write(
            pa.record_batch([[v] for v in ("mine", "new", "a.wav", "my key", KEYS[0])], schema=schema)
        )
    answer(run, done(KEYS[0]))
    (row,) = table_of(run, audio=True).to_pylist()
    assert (row["text"], row["status"], row["audio"], row["request_key"]) == (
        "mine",
        "new",
        "a.wav",
        "my key",
    )
    assert (row["speech_text"], row["speech_status"]) == (f"text of {KEYS[0]}", "done")
    assert row["speech_audio"]["bytes"] == audio_of(KEYS[0])
    assert row["speech_request_key"] == KEYS[0]
    features = json.loads(run.joined_schema(audio=True).metadata[b"huggingface"])["info"]["features"]
    assert features == {"speech_audio": {"_type": "Audio"}}
    assert RunFolder.open(run.path).manifest.column_map == names


def test_a_removed_row_leaves_the_table_but_not_the_disk(run, add_rows):
    add_rows(run, KEYS[:3])
    answer(run, *map(done, KEYS[:3]))
    add_rows(run, [KEYS[2], KEYS[0], KEYS[5]])
    assert table_of(run, ["request_key", "status"]).to_pylist() == [
        {"request_key": KEYS[2], "status": "done"},
        {"request_key": KEYS[0], "status": "done"},
        {"request_key": KEYS[5], "status": "pending"},
    ]
    assert run.clip_bytes(KEYS[1]) == audio_of(KEYS[1])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    wanted=st.lists(st.sampled_from([*KEYS, None]), max_size=80),
    answered=st.lists(st.sampled_from(KEYS), unique=True),
    batch_rows=st.integers(1, 30),
    cache_bytes=st.sampled_from([0, 3_000, 2**27]),
    audio=st.booleans(),
)
def test_any_order_any_size(tmp_path_factory, monkeypatch, wanted, answered, batch_rows, cache_bytes, audio):
    monkeypatch.setattr(parts, "GROUP_ROWS", 3)
    monkeypatch.setattr(writer, "PART_ROWS", 7)
    monkeypatch.setattr(join, "BATCH_BYTES", 4_000)
    monkeypatch.setattr(join, "_OPEN_FILES", 2)
    run = RunFolder.create(tmp_path_factory.mktemp("any") / "run", manifest())
    with run.add_table(TABLE_SCHEMA) as table:
        table.write(table_batch(wanted))
    answer(run, *(done(key) if i % 4 else failed(key) for i, key in enumerate(answered)))
    status = run.keys()
    batches = list(run.joined(audio=audio, batch_rows=batch_rows, cache_bytes=cache_bytes))
    assert all(0 < batch.num_rows <= batch_rows for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["line"] for row in rows] == [f"line {i}" for i in range(len(wanted))]
    for row, key in zip(rows, wanted, strict=True):
        assert row["request_key"] == key
        assert row["status"] == ("invalid" if key is None else status.get(key, "pending"))
        assert row["text"] == {"done": f"text of {key}", "failed": "t"}.get(row["status"])
        if audio:
            assert row["audio"] == (
                {"bytes": audio_of(key), "path": f"{key}.flac"} if row["status"] == "done" else None
            )
    if audio:
        for batch in batches:
            held = sum(len(row["bytes"]) for row in batch.column("audio").to_pylist() if row)
            assert held <= 4_000


def test_batches_of_audio_are_bounded_by_bytes(run, add_rows, monkeypatch):
    monkeypatch.setattr(join, "BATCH_BYTES", 10_000)
    add_rows(run, KEYS)
    answer(run, *(done(key, size=3_000) for key in KEYS))
    assert [batch.num_rows for batch in run.joined(audio=True)] == [3] * 13 + [1]
    assert [batch.num_rows for batch in run.joined()] == [40]


def test_the_index_sees_new_parts(run, add_rows):
    add_rows(run, KEYS[:3])
    answer(run, done(KEYS[0]), failed(KEYS[1]))
    assert table_of(run, ["status"]).column(0).to_pylist() == ["done", "failed", "pending"]
    answer(run, done(KEYS[1]), done(KEYS[2]))
    assert table_of(run, ["status"]).column(0).to_pylist() == ["done"] * 3


def test_the_index_sees_a_part_that_came_within_one_tick_of_the_clock(run):
    answer(run, done(KEYS[0]))
    folder = run.path / "parts"
    tick = time.time_ns()
    os.utime(folder, ns=(tick, tick))
    assert KEYS[1] not in run.index()
    answer(run, done(KEYS[1]))
    os.utime(folder, ns=(tick, tick))
    assert KEYS[1] in run.index()


def test_one_clip_reads_one_row_group(run, monkeypatch):
    monkeypatch.setattr(parts, "GROUP_ROWS", 4)
    answer(run, *(done(key, size=50_000) for key in KEYS))
    (path,) = parts.part_files(run.path)
    before = path.stat().st_size
    read = count_bytes_read()
    assert run.clip_bytes(KEYS[17]) == audio_of(KEYS[17], 50_000)
    assert count_bytes_read() - read < before / 3
    assert run.row(KEYS[17], ["sample_rate", "take"]) == {"sample_rate": 24_000, "take": 0}
    assert run.row(key_of("nobody")) is None


def count_bytes_read():
    return int(dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())["rchar"])


MEMORY = """
import sys
sys.path[:0] = sys.argv[2:]
import random
from peak import peak_kb
from store_cases import TABLE_SCHEMA, done, key_of, manifest, table_batch
from speechframe.old_store import RunFolder

run = RunFolder.create(sys.argv[1], manifest())
keys = [key_of(i) for i in range(6_000)]
with run.lock(), run.writer() as out:
    for key in keys:
        out.answer(done(key, audio_bytes=bytes(bytearray(60_000)), sha256="0" * 64))
start = peak_kb()
with run.add_table(TABLE_SCHEMA) as table:
    table.write(table_batch(keys))
rows = sum(batch.num_rows for batch in run.joined(audio=True, cache_bytes=2**26))
assert rows == 6_000
print((peak_kb() - start) // 1024)
"""


@pytest.mark.slow
def test_reading_360_mb_of_audio_takes_a_bounded_part_of_that(tmp_path):
    here = Path(__file__).parent
    command = [sys.executable, "-c", MEMORY, tmp_path / "run", here, here.parent]
    more = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    shutil.rmtree(tmp_path / "run")
    assert more < 140, f"{more} MB more"


def test_aligned_words_are_read_again_only_when_there_are_more(run, add_rows):
    keys = [key_of(i) for i in range(4)]
    add_rows(run, keys)
    with run.lock():
        with run.writer() as out:
            for key in keys:
                out.answer(done(key, word_durations=None))
        run.keep_aligned({keys[0]: [("one", 0, 10)]}, by="somebody")
    first = run.aligned_words()
    assert run.row(keys[0])["word_durations"] == [{"word": "one", "start_ms": 0, "end_ms": 10}]
    assert run.row(keys[1])["word_durations"] is None
    assert run.aligned_words() is first
    with run.lock():
        run.keep_aligned({keys[1]: [("two", 5, 20)]}, by="somebody")
    assert run.row(keys[1])["word_durations"] == [{"word": "two", "start_ms": 5, "end_ms": 20}]
    assert run.aligned_words() is not first
