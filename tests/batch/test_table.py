"""Every kind of table becomes the same rows."""

import json

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import datasets
from speechframe.batch.table import BATCH_ROWS, open_table
from speechframe.errors import InvalidRows

TEXTS = ["one", "two", None]
FRAME = pd.DataFrame({"id": ["0001", "0002", "0003"], "text": TEXTS})


def rows_of(table):
    read = open_table(table)
    return [row for batch in read.batches for row in batch.to_pylist()]


def write(path, table):
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".tsv":
        table.to_csv(path, index=False, sep="\t")
    elif path.suffix == ".jsonl":
        lines = [
            json.dumps(row, ensure_ascii=False) for row in table.replace({np.nan: None}).to_dict("records")
        ]
        path.write_text("\n".join(lines), encoding="utf-8")
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_excel(path, index=False)
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda f: f,
        pl.from_pandas,
        lambda f: pa.Table.from_pandas(f, preserve_index=False),
        lambda f: pa.Table.from_pandas(f, preserve_index=False).to_reader(),
        lambda f: pa.RecordBatch.from_pandas(f, preserve_index=False),
        lambda f: iter(pa.Table.from_pandas(f, preserve_index=False).to_batches(2)),
        lambda f: duckdb.from_arrow(pa.Table.from_pandas(f, preserve_index=False)),
        datasets.Dataset.from_pandas,
        lambda f: f.astype(object).where(f.notna(), None).to_dict("records"),
        lambda f: {"id": list(f["id"]), "text": TEXTS},
    ],
    ids=["pandas", "polars", "arrow", "reader", "batch", "iterator", "duckdb", "huggingface", "dicts", "mapping"],
)  # fmt: skip
def test_objects(make):
    expected = [{"id": f"000{i + 1}", "text": text} for i, text in enumerate(TEXTS)]
    assert [{k: row[k] for k in ("id", "text")} for row in rows_of(make(FRAME))] == expected


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet", ".xlsx"])
def test_files_keep_ids_as_strings(tmp_path, suffix):
    rows = rows_of(write(tmp_path / f"table{suffix}", FRAME))
    assert [row["id"] for row in rows] == ["0001", "0002", "0003"]
    assert [row["text"] for row in rows] == TEXTS


def test_csv_with_quotes_line_breaks_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes('\ufeffid,text\n007,"He said ""hi"",\nthen left."\n08,""\n'.encode())
    assert rows_of(path) == [{"id": "007", "text": 'He said "hi",\nthen left.'}, {"id": "08", "text": ""}]


def test_list_of_strings_is_the_column_text():
    assert rows_of(["a", "b"]) == [{"text": "a"}, {"text": "b"}]


@pytest.mark.parametrize(("named", "column"), [(["line"], "line"), (["text"], "text"), ([], "text")])
def test_a_series_keeps_its_index_and_a_name_that_is_asked_for(named, column):
    read = open_table(pd.Series(["a", "b"], index=["x", "y"], name="line"), named=named)
    assert read.row_ids == ["x", "y"]
    assert [row[column] for batch in read.batches for row in batch.to_pylist()] == ["a", "b"]


def test_hugging_face_selection_is_respected():
    dataset = datasets.Dataset.from_dict({"text": list("abcdef")}).select([4, 1])
    assert [row["text"] for row in rows_of(dataset)] == ["e", "b"]


def test_words_that_look_like_missing_values_are_text(tmp_path):
    frame = pd.DataFrame({"text": ["NA", "None", "null", "nan", "N/A"]})
    for suffix in (".csv", ".xlsx"):
        rows = rows_of(write(tmp_path / f"t{suffix}", frame))
        assert [row["text"] for row in rows] == frame["text"].tolist()


def test_a_dict_of_datasets_asks_for_one():
    several = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})})
    with pytest.raises(InvalidRows, match="one split of train"):
        open_table(several)


def test_audio_columns_are_not_copied():
    audio = pa.array([{"bytes": b"RIFF", "path": "a.wav"}])
    table = pa.table({"text": ["a"], "audio": audio, "blob": pa.array([b"x"], pa.large_binary())})
    assert open_table(table).schema.names == ["text"]


def test_batches_are_bounded():
    sizes = [
        batch.num_rows for batch in open_table(pd.DataFrame({"text": ["a"] * (BATCH_ROWS * 2 + 1)})).batches
    ]
    assert sizes == [BATCH_ROWS, BATCH_ROWS, 1]


def test_mixed_values_are_remembered_by_position():
    read = open_table(pd.DataFrame({"text": ["a", 5, None, 2.5]}, dtype=object))
    assert read.odd_values == {"text": {1: "int", 3: "float"}}
    assert [row["text"] for batch in read.batches for row in batch.to_pylist()] == ["a", "5", None, "2.5"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (42, "a int is no table"),
        (pd.Index(["a", "b"]), "a Index is no table.*allowed: a DataFrame"),
        (pd.Timestamp("2024-01-01"), "a Timestamp is no table.*allowed: a DataFrame"),
        (pd.Categorical(["a"]), "a Categorical is no table.*allowed: a DataFrame"),
        (FRAME.groupby("id"), "a DataFrameGroupBy is no table.*allowed: a DataFrame"),
        ("nowhere.csv", "does not exist"),
        ("table.docx", "is no table file"),
        ("Hello, this is a line.", r"\['a line'\], say\(\)"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "has two columns named 'text'"),
    ],
)
def test_what_is_no_table(table, words):
    with pytest.raises(InvalidRows, match=words):
        open_table(table)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("broken.parquet", b"PAR1 not really"),
        ("broken.jsonl", b'{"text": "a"\n'),
        ("latin.csv", "text\nd\xe9j\xe0\n".encode("latin-1")),
        ("empty.csv", b""),
        ("broken.xlsx", b"no zip"),
    ],
)
def test_broken_files_are_one_clear_error(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidRows, match=f"{name} cannot be read"):
        rows_of(path)


def test_categories_and_views(tmp_path):
    frame = pd.DataFrame({"text": pd.Categorical(["a", "b", "a"])})
    assert [row["text"] for row in rows_of(frame)] == ["a", "b", "a"]
    pq.write_table(pa.table({"text": pa.array(["a"], pa.string_view())}), tmp_path / "v.parquet")
    assert rows_of(tmp_path / "v.parquet") == [{"text": "a"}]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"a,b,c\n", "Expected 2 columns"),
        (b"\xff\xfe,1\n", "UTF-8"),
        (b'"' + b"x" * 3_000_000 + b'",1\n', "Parquet"),
    ],
)
def test_what_is_wrong_far_below_in_a_file_is_said_as_well(tmp_path, row, words):
    path = tmp_path / "long.csv"
    path.write_bytes(b"text,n\n" + b"A line of the table.,7\n" * 60_000 + row)
    table = open_table(path)
    with pytest.raises(InvalidRows, match=r"long\.csv cannot be read") as caught:
        for _ in table.batches:
            pass
    assert words in str(caught.value)
