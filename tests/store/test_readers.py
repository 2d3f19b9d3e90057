"""Other tools open our files."""

import hashlib
import json

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from store_cases import audio_of, done, failed, key_of

KEYS = [key_of(i) for i in range(30)]


@pytest.fixture
def folder(run, add_rows, monkeypatch):
    """A run with two parts, a failure and an unknown, as files in parts/."""
    monkeypatch.setattr("speechframe.old_store.writer.PART_ROWS", 20)
    add_rows(run, KEYS)
    with run.lock(), run.writer() as out:
        for key in KEYS[:28]:
            out.answer(done(key))
        out.answer(failed(KEYS[28]))
        out.answer(failed(KEYS[29], "charged_unknown"))
    assert len(list((run.path / "parts").iterdir())) == 3
    return run.path / "parts"


def check(rows):
    rows = {row["request_key"]: row for row in rows}
    assert set(rows) == set(KEYS)
    for key in KEYS[:28]:
        assert rows[key]["audio"]["bytes"] == audio_of(key)
        words = [(word["word"], word["start_ms"], word["end_ms"]) for word in rows[key]["word_durations"]]
        assert words == [("text", 0, 120), ("of", 120, 260)]
        assert rows[key]["credits"] == 9.5
    assert rows[KEYS[28]]["status"] == "failed"


@pytest.fixture
def hugging_face(monkeypatch, tmp_path):
    """The `datasets` library, kept from the network and from the user's cache."""
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    import datasets

    datasets.disable_progress_bars()
    return datasets


def load(datasets, files, tmp_path):
    return datasets.load_dataset(
        "parquet", data_files=files, cache_dir=str(tmp_path / "cache"), split="train"
    )


def test_hugging_face_datasets_sees_audio(folder, hugging_face, tmp_path):
    found = load(hugging_face, str(folder / "*.parquet"), tmp_path)
    assert isinstance(found.features["audio"], hugging_face.Audio)
    check(found.cast_column("audio", hugging_face.Audio(decode=False)))


def test_hugging_face_datasets_sees_audio_whichever_file_comes_first(folder, hugging_face, tmp_path):
    for files in ([str(folder / "failed.parquet")], sorted(map(str, folder.glob("*.parquet")), reverse=True)):
        found = load(hugging_face, files, tmp_path)
        assert isinstance(found.features["audio"], hugging_face.Audio)


def test_hugging_face_datasets_sees_audio_in_the_joined_table(run, folder, hugging_face, tmp_path):
    table = pa.Table.from_batches(run.joined(audio=True))
    pq.write_table(table, tmp_path / "joined.parquet")
    found = load(hugging_face, str(tmp_path / "joined.parquet"), tmp_path)
    assert isinstance(found.features["audio"], hugging_face.Audio)
    check(found.cast_column("audio", hugging_face.Audio(decode=False)))
    assert found["line"][:2] == ["line 0", "line 1"]


def test_pandas(folder):
    check(pd.read_parquet(folder).to_dict("records"))


def test_polars(folder):
    check(pl.read_parquet(folder / "*.parquet").to_dicts())


def test_duckdb(folder):
    with duckdb.connect() as connection:
        check(connection.sql(f"select * from '{folder}/*.parquet'").to_arrow_table().to_pylist())
        sums = connection.sql(
            f"select status, count(*), sum(credits) from '{folder}/*.parquet' group by 1 order by 1"
        )
        assert sums.fetchall() == [("charged_unknown", 1, None), ("done", 28, 266.0), ("failed", 1, None)]


def test_pyarrow_datasets(folder):
    check(pyarrow.dataset.dataset(folder).to_table().to_pylist())


def test_the_features_are_json_of_the_form_datasets_writes(folder):
    for path in folder.iterdir():
        features = json.loads(pq.read_schema(path).metadata[b"huggingface"])["info"]["features"]
        assert features == {"audio": {"_type": "Audio"}}


def test_the_sha256_can_be_checked_with_any_tool(folder):
    row = pq.read_table(next(p for p in folder.iterdir() if p.name != "failed.parquet")).to_pylist()[0]
    assert hashlib.sha256(row["audio"]["bytes"]).hexdigest() == row["sha256"]
