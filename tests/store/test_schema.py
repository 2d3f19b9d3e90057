"""Records become rows of exactly the documented columns, whatever stands in them."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from store_cases import MOMENT, all_rows, audio_of, done, failed, key_of, sent, tried

from speechframe.old_store import LEDGER_SCHEMA, PART_SCHEMA, Record
from speechframe.old_store.parts import open_part, part_files

KEY = key_of(1)
AUDIO = audio_of(KEY)
ROW = {
    "audio": {"bytes": AUDIO, "path": f"{KEY}.flac"},
    "text": f"text of {KEY}",
    "word_durations": [
        {"word": "text", "start_ms": 0, "end_ms": 120},
        {"word": "of", "start_ms": 120, "end_ms": 260},
    ],
    "format": "FLAC",
    "sample_rate": 24_000,
    "channels": 1,
    "audio_seconds": 0.26,
    "billed_characters": 9,
    "credits": 9.5,
    "balance_after": 991,
    "status": "done",
    "error_code": None,
    "error_message": None,
    "error_status": None,
    "trace_id": "trace-1",
    "attempts": 0,
    "latency_ms": 12.5,
    "lane": "main",
    "service": "local/espeak-1",
    "model": "gen2",
    "voice_id": "en-US-nora",
    "locale": "en-US",
    "warnings": ["short"],
    "sha256": hashlib.sha256(AUDIO).hexdigest(),
    "request_key": KEY,
    "take": 0,
    "finished_at": MOMENT,
}


def write(run, *answers):
    with run.lock(), run.writer() as writer:
        for answer in answers:
            writer.answer(*answer)


def test_a_record_comes_back_with_every_column(run):
    write(run, (done(KEY),))
    assert all_rows(run) == [ROW]
    with open_part(part_files(run.path)[0]) as file:
        assert file.schema_arrow.equals(PART_SCHEMA)


def test_a_failure_has_the_same_columns_and_no_audio(run):
    write(run, (failed(KEY),))
    with open_part(run.path / "parts" / "failed.parquet") as file:
        assert file.schema_arrow.equals(PART_SCHEMA)
    (row,) = all_rows(run)
    assert row["audio"] is None
    assert (row["error_code"], row["error_status"], row["credits"]) == ("BadRequest", 400, None)


def test_the_ledger_has_its_columns_and_takes_the_attempt_from_the_sent_record(run):
    with run.lock(), run.writer() as writer:
        writer.sent(sent(KEY, 3))
        writer.answer(done(KEY), tried(KEY, tags=["demo"], user="ada", time=MOMENT, idempotency=True))
    ledger = run.ledger()
    assert ledger.schema.equals(LEDGER_SCHEMA)
    (row,) = ledger.to_pylist()
    assert (row["attempt"], row["credits"], row["tags"], row["user"]) == (3, 9.5, ["demo"], "ada")
    assert (row["time"], row["idempotency"], row["latency_ms"]) == (MOMENT, True, None)


def test_the_ledger_never_holds_text():
    assert not {"text", "error_message", "word_durations"} & set(LEDGER_SCHEMA.names)


def test_lone_surrogates_are_repaired_where_they_come_in(run):
    broken = done(
        KEY, text="a\ud800b", word_durations=[("\udfff", 0, 1)], warnings=["\udc00!"], lane="l\ud801"
    )
    with run.lock(), run.writer() as writer:
        writer.sent(sent(KEY, 1, lane="\ud800"))
        writer.attempt(tried(KEY, "error", error_code="e\ud800"))
        writer.sent(sent(KEY, 2, lane="\ud800"))
        writer.answer(broken, tried(KEY, error_code="\ud800", tags=["\udbff"]))
        writer.answer(done(key_of(2), text="naïve 日本 👋"))
    rows = {row["request_key"]: row for row in all_rows(run)}
    row = rows[KEY]
    assert (row["text"], row["word_durations"][0]["word"], row["warnings"], row["lane"]) == (
        "a?b",
        "?",
        ["?!"],
        "l?",
    )
    assert row["audio"]["bytes"] == AUDIO
    assert rows[key_of(2)]["text"] == "naïve 日本 👋"
    ledger = run.ledger().sort_by("attempt").to_pylist()
    assert [row["error_code"] for row in ledger] == ["e?", "?"]
    assert ledger[1]["tags"] == ["?"]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("field", "value", "kept"),
    [
        ("sample_rate", 8000.0, 8000),
        ("sample_rate", np.int64(8000), 8000),
        ("sample_rate", 2**40, None),
        ("sample_rate", "fast", None),
        ("balance_after", float("nan"), None),
        ("balance_after", 2**63, None),
        ("latency_ms", 3, 3.0),
        ("latency_ms", np.float32(0.5), 0.5),
        ("text", 17, "17"),
        ("warnings", None, None),
        ("word_durations", None, None),
        (
            "word_durations",
            [("a", 0.0, 5), ("b", 2**40, 1), "odd"],
            [{"word": "a", "start_ms": 0, "end_ms": 5}],
        ),
        ("finished_at", "yesterday", None),
        ("finished_at", MOMENT.replace(tzinfo=None), MOMENT),
        ("audio_bytes", bytearray(AUDIO), {"bytes": AUDIO, "path": f"{KEY}.flac"}),
        ("audio_path", "nora-1.flac", {"bytes": AUDIO, "path": "nora-1.flac"}),
    ],
)
def test_a_value_of_another_type_costs_at_most_that_value(run, field, value, kept):
    write(run, (done(KEY, **{field: value}),), (done(key_of(2)),))
    column = "audio" if field.startswith("audio_") else field
    rows = {row["request_key"]: row for row in all_rows(run)}
    assert rows[KEY] == {**ROW, column: kept}
    assert rows[key_of(2)]["text"] == f"text of {key_of(2)}"


def test_audio_of_no_bytes_is_not_no_audio(run):
    write(run, (Record(KEY, "done", audio_bytes=b""),), (Record(key_of(2), "done"),))
    assert run.clip_bytes(KEY) == b""
    assert run.clip_bytes(key_of(2)) is None
    assert run.clip_bytes(key_of(3)) is None


def test_audio_and_what_a_resume_reads_are_plain_and_the_rest_is_compressed(run):
    write(run, (done(KEY),))
    with open_part(part_files(run.path)[0]) as file:
        group = file.metadata.row_group(0)
        leaves = [group.column(i) for i in range(group.num_columns)]
    for leaf in leaves:
        audio = leaf.path_in_schema.startswith("audio.")
        plain = audio or leaf.path_in_schema in {"request_key", "status"}
        assert leaf.compression == ("UNCOMPRESSED" if plain else "ZSTD"), leaf.path_in_schema
        if audio:
            assert not any("DICTIONARY" in encoding for encoding in leaf.encodings)
            assert leaf.statistics is None


def test_the_schema_names_audio_for_hugging_face():
    assert b'"_type": "Audio"' in PART_SCHEMA.metadata[b"huggingface"]
    assert PART_SCHEMA.field("audio").type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
