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
from speechframe.errors import InvalidRows
from speechframe.old_batch.table import BATCH_ROWS, open_table

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


POLARS = pl.DataFrame(
    {
        "text": pl.Series(["a", "b", "a", None], dtype=pl.Categorical),
        "kind": pl.Series(["x", "y", None, "x"], dtype=pl.Enum(["y", "x"])),
        "kinds": pl.Series([["x"], ["y", None], None, []], dtype=pl.List(pl.Categorical)),
        "pair": pl.Series([["a", "b"], None, ["c", None], ["d", "e"]], dtype=pl.Array(pl.String, 2)),
        "inner": pl.Series([{"k": "x", "n": [1]}] * 4, dtype=pl.Struct({"k": pl.Categorical, "n": pl.List(pl.Int8)})),
    }
)  # fmt: skip
ARROW = pa.table(
    {
        "runs": pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None], pa.string_view())),
        "lists": pa.array([["a", "b"], ["c"], None], pa.list_view(pa.string_view())),
        "map": pa.array([[("k", "v")], [], None], pa.map_(pa.string_view(), pa.string_view())),
        "records": pa.DictionaryArray.from_arrays([0, None, 0], pa.array([{"a": 1}])),
    }
)


@pytest.mark.parametrize(("table", "rows"), [
    (pl.concat([POLARS, POLARS[1:]], rechunk=False), [*POLARS.to_dicts(), *POLARS.to_dicts()[1:]]),
    (ARROW, ARROW.to_pylist()),
    (pd.DataFrame({"n": pd.arrays.SparseArray([0, 0, 1]), "s": pd.arrays.SparseArray(["a", "b", "c"])}),
     [{"n": 0, "s": "a"}, {"n": 0, "s": "b"}, {"n": 1, "s": "c"}]),
    (pd.DataFrame({"n": [2**64, 2**70, 1, None]}, dtype=object),
     [{"n": "18446744073709551616"}, {"n": str(2**70)}, {"n": "1"}, {"n": None}]),
], ids=["polars", "arrow", "sparse", "long numbers"])  # fmt: skip
def test_columns_of_rare_types_are_stored_and_can_be_read(tmp_path, table, rows):
    read = open_table(table)
    pq.write_table(pa.Table.from_batches(read.batches, read.schema), tmp_path / "t.parquet")
    stored = pq.read_table(tmp_path / "t.parquet")
    assert [dict(row) for row in stored.to_pylist()] == rows
    assert len(stored.to_pandas()) == len(rows)
    assert stored.take([len(rows) - 1, 0]).to_pylist() == [rows[-1], rows[0]]


@pytest.mark.parametrize(("column", "why"), [
    ([{}, {}], "no child field"),
    (pd.array([1j, 2j]), "complex128"),
    ([10**5000, 1], "4300 digits"),
    (pl.Series([object(), 1], dtype=pl.Object), "it is Object"),
    (pl.Series([2**65, 1], dtype=pl.Int128), "it is Int128"),
    (pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]), "union"),
    (pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()), "interval"),
    (pa.array([[{}], []], pa.list_(pa.struct([]))), "no child field"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_a_column_that_no_file_can_hold_is_named(column, why):
    kind = type(column).__module__.partition(".")[0]
    make = {"polars": pl.DataFrame, "pyarrow": pa.table}.get(kind, pd.DataFrame)
    with pytest.raises(
        InvalidRows, match=rf"column 'odd' cannot be stored: .*{why}.*; allowed: texts, numbers"
    ) as caught:
        open_table(make({"text": ["a", "b"], "odd": column}))
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("table", [pl.Series(["a"]), {"text": {"a", "b"}}], ids=["series", "set"])
def test_what_arrow_or_pandas_cannot_read_is_a_clear_error(table):
    with pytest.raises(InvalidRows, match="cannot be read"):
        open_table(table)


def test_only_the_ends_of_lines_end_a_line_of_a_text_file(tmp_path):
    lines = ["One\u2028still one.", "Two\x0cstill\x0btwo.", "Three\x85\x1c\x1dstill\u2029three."]
    (tmp_path / "t.txt").write_bytes(f"{lines[0]}\r\n\n{lines[1]}\r{lines[2]}\n".encode())
    assert [row["text"] for row in rows_of(tmp_path / "t.txt")] == lines


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "t.csv", FRAME)
    assert [row["text"] for row in rows_of("~/t.csv")] == TEXTS
    with pytest.raises(InvalidRows, match=r"~nobody-of-that-name/t\.csv does not exist"):
        open_table("~nobody-of-that-name/t.csv")
    with pytest.raises(InvalidRows, match="is no table file"):
        open_table("~nobody, a line.")


TEXT = pa.record_batch({"text": ["a"]})
WIDE = pa.record_batch({"text": ["a"], "n": [1]})


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([WIDE, TEXT], "a batch without the column 'n', which the first one has;"),
        ([TEXT, WIDE], "a batch with a column 'n', which the first one has not;"),
        ([TEXT, pa.record_batch({"line": ["a"]})], "a batch without the column 'text'.*with a column 'line'"),
        ([TEXT, pa.record_batch([["a"], ["b"]], names=["text", "text"])], "has two columns named 'text'"),
        ([TEXT, pa.table({"line": ["a"]})], "a batch without the column 'text'"),
        ([TEXT, "a line"], "yields a str among Arrow batches"),
        ([TEXT, None], "yields a NoneType among Arrow batches"),
        ([TEXT, pa.record_batch({"text": [[1]]})], "column 'text' cannot be stored"),
    ],
)
def test_a_generator_of_batches_that_do_not_fit_says_which(batches, words):
    with pytest.raises(InvalidRows, match=f"(?s){words}"):
        rows_of(iter(batches))


def test_batches_of_one_table_may_have_their_columns_in_any_order():
    turned = WIDE.select(["n", "text"])
    assert rows_of(iter([WIDE, turned])) == [{"text": "a", "n": 1}] * 2


def odd(values):
    return pd.Index(values, dtype=object)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pd.DataFrame({"text": ["a", "b"]}, index=odd(["x", "\ud800"])), r"id: the index holds half a character.*ud800"),
        (pd.DataFrame({"text": ["a", "b"]}, index=pd.CategoricalIndex(odd(["x", "\ud800"]))), "id: the index holds half"),
        (pd.DataFrame({"text": ["a", "b"]}, index=[odd(["x", "\ud800"]), [1, 2]]), "id: the index holds half"),
        (pd.Series(["a", "b"], index=odd(["x", "\ud800"])), "id: the index holds half"),
        (pd.DataFrame({"text": ["a", "b"]}, index=[b"x", b"y"]), r"id: the index holds bytes.*allowed: texts"),
        (pd.DataFrame({"text": ["a", "b"]}, index=[[b"x", b"y"], [1, 2]]), "id: the index holds bytes"),
        (pd.DataFrame({"text": ["a", "b"]}, index=odd(["x", object()])), "id: the index cannot be stored"),
        (pd.DataFrame([["a", "b"]]).set_axis(odd(["text", "\ud800"]), axis=1), r"a column '\\ud800', whose name holds half"),
    ],
)  # fmt: skip
def test_an_index_or_a_name_that_cannot_come_back_is_refused(frame, words):
    with pytest.raises(InvalidRows, match=words):
        open_table(frame)


def back(table):
    """What a run of it gives back."""
    read = open_table(table)
    return pa.Table.from_batches(read.batches, read.schema).to_pandas()


ARROW_TYPES = {
    "dictionary": pa.array(["a", "b"]).dictionary_encode(),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
    "fixed list": pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)),
    "list": pa.array([["a"], None]),
    "list of dictionary": pa.array([["a"], ["b"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "struct": pa.array([{"a": 1}, None]),
    "runs": pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([1, 2])),
    "number": pa.array([1, None]),
    "time": pa.array([1, 2], pa.time64("us")),
    "view": pa.array(["a", None], pa.string_view()),
}


@pytest.mark.parametrize("values", ARROW_TYPES.values(), ids=ARROW_TYPES)
def test_columns_that_pandas_has_from_arrow_come_back(values):
    column = pd.arrays.ArrowExtensionArray(values)
    frame = pd.DataFrame({"text": ["a", "b"], "odd": column, "n": [1, 2]}, index=["x", "y"])
    for table in (frame, pa.Table.from_pandas(frame)):
        found = back(table)
        assert found.index.tolist() == ["x", "y"]
        stored = pa.array(found["odd"], open_table(table).schema.field("odd").type, from_pandas=True)
        assert stored.to_pylist() == values.to_pylist()


def test_a_type_that_pandas_can_read_again_stays():
    values = pa.array([1, None])
    found = back(pd.DataFrame({"n": pd.arrays.ArrowExtensionArray(values), "k": pd.array([1, None], "Int8")}))
    assert [str(dtype) for dtype in found.dtypes] == ["int64[pyarrow]", "Int8"]


def test_an_index_of_bytes_in_an_arrow_table_is_left_out_and_the_rows_are_counted():
    table = pa.Table.from_pandas(pd.DataFrame({"text": ["a", "b"]}, index=[b"x", b"y"]))
    read = open_table(table)
    assert read.schema.names == ["text"]
    assert read.schema.pandas_metadata["index_columns"] == []
    assert back(table).index.tolist() == [0, 1]


@pytest.mark.parametrize(
    "said",
    [b"{", b"[]", b"{}", b'{"index_columns": 1, "columns": []}', b'{"index_columns": [], "columns": [1]}'],
)
def test_metadata_that_pandas_did_not_write_is_left_out(said):
    table = pa.table({"text": ["a"]}).replace_schema_metadata({b"pandas": said, b"mine": b"kept"})
    assert open_table(table).schema.metadata == {b"mine": b"kept"}
    assert back(table)["text"].tolist() == ["a"]


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
