"""Tables: every row is there, every value is what it was, and what cannot be so is refused by name."""

import csv
import io
import json
import os
import tempfile
from itertools import islice

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rooms.scripted import Scripted

import datasets
import speechframe as spf
from speechframe.errors import InvalidRows, SettingsError
from speechframe.tables.table_input import open_table
from speechframe.testing import FaultyService


class Taken(Scripted):
    """Takes every row, and needs nothing of it."""

    arguments = ("none of a table",)

    def check(self, values):
        body = repr(values).encode()
        return spf.Request(body, body, price=0)

    async def send(self, request, attempt):
        return spf.Answer(("", b""))


def planned(source, **options):
    """Return a table that was read, ours left out, and the ids of its rows."""
    with tempfile.TemporaryDirectory() as folder:
        run = spf.run(Taken(), source, run_dir=f"{folder}/run", dry_run=True, progress=False, **options)
        table, ours = run.to_arrow(), run.name_of("row_id")
    return table.select(table.column_names[: table.column_names.index(ours)]), table[ours].to_pylist()


def rows_of(source, **options):
    return planned(source, **options)[0].to_pylist()


class Distributed:
    """A frame of a library that is not installed here. Its items are the names of its columns."""

    columns = ("text",)

    def __iter__(self):
        return iter(self.columns)

    def compute(self):
        raise AssertionError("a table that is refused is not computed")


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


FIELDS = st.text(st.sampled_from('ab "",;\t\n'), max_size=8)


@settings(max_examples=30)
@given(st.lists(st.tuples(FIELDS, FIELDS), min_size=1, max_size=6), st.sampled_from(",\t;"), st.booleans())
def test_what_a_csv_writer_wrote_is_read_or_refused_but_never_changed(
    tmp_path_factory, table, sep, quotes_all
):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    quoting = csv.QUOTE_ALL if quotes_all else csv.QUOTE_MINIMAL
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=sep, quoting=quoting, lineterminator="\n").writerows(
            [("id", "text"), *table]
        )
    try:
        found = rows_of(path)
    except SettingsError:
        assert any("\n" in value for row in table for value in row)  # a text whose lines look like rows
    else:
        # An empty field that stands in no quotes is null, and a row of them is none.
        rows = [row for row in table if quotes_all or any(row)]
        assert [tuple(value or "" for value in row.values()) for row in found] == rows


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (['1\tHe is 5" tall', "2\tb"], ['He is 5" tall', "b"]),
        (['1\t"Hi," she said.', "2\tb", '3\t"never ended'], ['"Hi," she said.', "b", '"never ended']),
        (['1\t"Hi, ""you"""', "2\tb"], ['Hi, "you"', "b"]),
    ],
)
def test_quotes_are_what_the_file_shows_them_to_be(tmp_path, lines, texts, end):
    path = written(tmp_path / "t.tsv", end.join(["id\ttext", *lines, ""]))
    assert [row["text"] for row in rows_of(path)] == texts


def test_a_broken_quote_among_quoted_fields_is_refused_with_its_line(tmp_path):
    path = written(tmp_path / "t.csv", 'id,text\n1,"a, b"\n2,"never ended\n3,c\n4,"d, e"\n')
    with pytest.raises(SettingsError, match=r't\.csv: on line 3 .*quoting="none"'):
        planned(path)


@pytest.mark.parametrize(
    ("name", "content", "texts", "notes"),
    [
        ("t.csv", '\ufeffid,text\n1,"two\nlines"\n\n2,""\n', ["two\nlines", ""],
         ["left out of t.csv: 1 row without a value", "1 line of t.csv inside a quoted field"]),
        ("t.txt", "One\u2028still one.\r\n\n \nTwo\x0cstill two.\rThree",
         ["One\u2028still one.", "Two\x0cstill two.", "Three"], ["2 of 5 lines of t.txt without a value: no rows"]),
    ],
)  # fmt: skip
def test_lines_that_become_no_rows_are_counted(tmp_path, capsys, name, content, texts, notes):
    for is_plan in (True, False):
        file = written(tmp_path / name, content)
        found = spf.run(Taken(), file, run_dir=tmp_path / "run", dry_run=is_plan)
        assert found.to_pandas()["text"].tolist() == texts
        said = capsys.readouterr().err
        assert all(note in said for note in notes), said


SHEETS = {
    "blank columns and rows": (
        b"id,line,,\n7,Hi,,\n,,,\n8,Ho,,\n,,,\n",
        "2 rows without a value, 2 columns without",
    ),
    "spacer": (b"id,,line\n7,,Hi\n8,,Ho\n", "left out of t.csv: 1 column without a name and a value"),
    "fields beyond the header": (b'id,line\n7,"Hi",,\n8,Ho,,\n', "2 columns without a name and a value"),
    "lines before the header": (b"\n,\nid,line\n7,Hi\n8,Ho", "2 rows without a value"),
    "sep": (b"\xef\xbb\xbfsep=;\r\nid;line\r\n7;Hi\r\n8;Ho\r\n", ""),
    "UTF-16": ("id\tline\r\n7\tHi\r\n8\tHo\r\n".encode("utf-16"), ""),
}


@pytest.mark.parametrize("kind", SHEETS)
def test_what_spreadsheet_programs_write_is_read_and_what_is_left_out_is_said(tmp_path, kind):
    content, note = SHEETS[kind]
    table = open_table(written(tmp_path / "t.csv", content))
    found = [row for batch, _ in table.batches() for row in batch.to_pylist()]
    assert found == [{"id": "7", "line": "Hi"}, {"id": "8", "line": "Ho"}]
    assert note in " ".join(table.notes) if note else not table.notes


def test_a_sheet_is_read_like_a_csv_file(tmp_path):
    rows = [[None] * 4, ["id", None, "line", None], ["007", None, "Hi", None], [None] * 4]
    pd.DataFrame(rows).to_excel(tmp_path / "t.xlsx", header=False, index=False)
    table = open_table(tmp_path / "t.xlsx")
    assert [batch.to_pylist() for batch, _ in table.batches()] == [[{"id": "007", "line": "Hi"}]]
    assert "1 column without a name and a value" in table.notes[0]
    pd.DataFrame([["line", "line"], ["Hi", "Ho"]]).to_excel(tmp_path / "t.xlsx", header=False, index=False)
    with pytest.raises(InvalidRows, match="two columns named 'line'"):
        open_table(tmp_path / "t.xlsx")


@pytest.mark.parametrize("name", ["t.csv", "t.txt", "t.jsonl"])
def test_a_guessed_code_page_is_named_and_an_unclear_one_is_refused(tmp_path, name):
    def texts(line, encoding):
        content = {"t.csv": f"text\n{line}\n", "t.txt": line, "t.jsonl": f'{{"text": "{line}"}}'}[name]
        table = open_table(written(tmp_path / name, content.encode(encoding)))
        return [row["text"] for batch, _ in table.batches() for row in batch.to_pylist()], table.notes

    line = "Die Größe: 3 m³ bei 25°C … “ça va” it´s"
    assert texts(line, "utf-8-sig") == texts(line, "utf-16") == ([line], [])
    found, notes = texts(line, "cp1252")
    assert found == [line]
    assert "read as Windows-1252" in notes[0]
    for other, encoding in (
        ("Привет", "cp1251"),
        ("Może być", "cp1250"),
        ("你好吗", "gbk"),
        ("日本語です。", "shift-jis"),
    ):
        with pytest.raises(InvalidRows, match=f"{name} is not in UTF-8"):
            texts(other, encoding)


VALUES = st.recursive(
    st.none()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=30)
@given(
    values=st.lists(VALUES, min_size=1, max_size=4),
    kind=st.sampled_from(["rows", "columns", "pandas", "generator", "jsonl"]),
)
def test_values_come_back_or_their_column_is_refused_by_name(tmp_path_factory, values, kind):
    def make():
        if kind == "jsonl":
            lines = "\n".join(json.dumps({"odd": value}) for value in values)
            return written(tmp_path_factory.mktemp("jsonl") / "t.jsonl", lines)
        rows_ = [{"odd": value} for value in values]
        frame = pd.DataFrame({"odd": pd.Series(values, dtype=object)})
        return {"rows": rows_, "columns": {"odd": values}, "pandas": frame, "generator": iter(rows_)}[kind]

    try:
        found = [row["odd"] for row in rows_of(make())]
    except InvalidRows as refused:
        assert "'odd'" in str(refused)  # noqa: PT017 - one of two good ends
    except TypeError:
        assert kind == "jsonl"  # bytes are no JSON
    else:
        assert found == values


def test_polars_datasets_and_views_come_back():
    inner = pl.Struct({"k": pl.String, "n": pl.List(pl.Int8)})
    columns = {"text": ["a", None], "pair": [["a", "b"], None], "inner": [{"k": "x", "n": [1]}, None]}
    kinds = {"text": pl.Categorical, "pair": pl.Array(pl.String, 2), "inner": inner}
    frame = pl.DataFrame(columns, schema=kinds)
    assert rows_of(frame) == frame.to_dicts()
    assert rows_of(frame["text"]) == [{"text": "a"}, {"text": None}]
    dataset = datasets.Dataset.from_dict({"text": list("abcdef")})
    assert [row["text"] for row in rows_of(dataset.select([4, 1]))] == ["e", "b"]
    assert [row["text"] for row in rows_of(dataset.to_iterable_dataset())] == list("abcdef")
    with pytest.raises(InvalidRows, match=r"column 'odd' .* it is Object"):
        planned(pl.DataFrame({"odd": pl.Series([object()], dtype=pl.Object)}))


def test_characters_of_a_workbook_are_decoded_as_its_standard_says(tmp_path):
    path = tmp_path / "lines.xlsx"
    pd.DataFrame({"te_x0078_t": ["Good_x000D_\nmorning", "_x005F_x000D_", "a_x b"]}).to_excel(
        path, index=False
    )
    assert rows_of(path) == [{"text": text} for text in ("Good\r\nmorning", "_x000D_", "a_x b")]


def test_types_of_a_json_file_may_come_late(tmp_path):
    lines = [{"id": n, "text": "2026-01-01"} for n in range(5000)] + [{"id": 0.5, "share": 0.5, "text": None}]
    path = written(tmp_path / "t.jsonl", "\n".join(map(json.dumps, lines)))
    assert rows_of(path) == [{"share": None} | line for line in lines]
    with pytest.raises(InvalidRows, match=r"u\.jsonl cannot be read: line 2 is not JSON"):
        planned(written(tmp_path / "u.jsonl", '{"text": "a"}\n{"text":'))


def test_ids_are_the_index_the_column_or_the_number():
    frame = pd.DataFrame({"id": ["a", "b"], "text": ["x", "y"]}, index=["p", "q"])
    assert planned(frame)[1] == ["p", "q"]
    assert planned(frame.reset_index(drop=True))[1] == ["0", "1"]
    assert planned(frame, id="id")[1] == ["a", "b"]
    assert planned([{"n": 7, "text": "x"}], id="n")[1] == ["7"]
    with pytest.raises(InvalidRows, match=r"id: names a column .*value key.*allowed: id, text"):
        planned(frame, id="key")
    for missing in (None, np.nan, pd.NaT):
        frame = pd.DataFrame({"id": ["a", missing, "c"], "text": ["x", "y", "z"]})
        with pytest.raises(InvalidRows, match=r"row '1', id: is missing"):
            planned(frame, id="id")
        with pytest.raises(InvalidRows, match="id: the index is missing in row 1"):
            planned(frame.set_index("id"))


def test_lists_and_columns_that_do_not_fit_are_refused_by_name(tmp_path):
    with FaultyService() as service:

        def plan(table, **options):
            given = {
                "voice": "nora",
                "run_dir": tmp_path / "run",
                "dry_run": True,
                "service": service.settings,
            }
            return spf.generate(table, **given | options, progress=False)

        for length in (3, 99, 101):
            with pytest.raises(InvalidRows, match=f"rate: has {length} values for 100 rows"):
                plan((f"line {number}" for number in range(100)), rate=[1] * length)
        with pytest.raises(InvalidRows, match=r"voice: names a column .*value name.*allowed: text, who"):
            plan({"text": ["a"], "who": ["nora"]}, voice=spf.col("name"))
        with pytest.raises(InvalidRows, match="text: names a column that holds bytes"):
            plan({"text": [b"x"]})
        run = plan(["a"], rate=[1], pitch=np.int64(3))
        with pytest.raises(InvalidRows, match="rate: was a list"):
            spf.resume(run, table=["b"], service=service.settings)
        with pytest.raises(InvalidRows, match="text: names a column"):
            spf.resume(run, table={"line": ["a"]}, service=service.settings)


BATCH = pa.record_batch({"text": ["a"] * 100})


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([BATCH, pa.record_batch({"text": ["a"], "n": [1]})], "different columns: n is not in all"),
        ([BATCH, pa.record_batch({"line": ["a"]})], "different columns: line, text"),
        ([BATCH, pa.record_batch({"text": [[1]]})], "column 'text' cannot be stored"),
        ([BATCH, "a line"], "cannot be read at row 100: AttributeError"),
        ([{"a": 1}] * 5000 + [{"a": 2, "b": 3}], "has a column 'b' that the rows before have not"),
        ([{"a": 1}] * 5000 + [{"a": "x"}], "row '5000', table: column 'a' cannot be stored"),
        ([{"a": {"b": 1}}] * 5000 + [{"a": {"b": 1, "c": 2}}], "would come back as"),
        (["a"] * 5000 + [5], "row '5000', table: column 'text' cannot be stored: 5 is int"),
    ],
)
def test_a_source_that_changes_says_where(batches, words):
    with pytest.raises(InvalidRows, match=words):
        planned(iter(batches))


def test_frames_one_after_the_other_are_one_table(tmp_path):
    whole = pd.DataFrame({"id": range(5000), "text": ["x"] * 5000, "note": [None] * 4999 + ["seen"]})
    path = tmp_path / "t.csv"
    whole.to_csv(path, index=False)
    expected = whole.astype(object).where(whole.notna(), None).to_dict("records")
    for frames in (
        pd.read_csv(path, chunksize=2000),
        (pl.from_pandas(whole[start : start + 1000]) for start in range(0, 5000, 1000)),
        [whole.iloc[:0], whole],
        [datasets.Dataset.from_pandas(whole)],
    ):
        table, ids = planned(frames)
        assert table.to_pylist() == expected
        assert ids == [str(number) for number in range(5000)]
    chosen = (frame[frame["id"] % 1500 == 0] for frame in pd.read_csv(path, chunksize=2000))
    table, ids = planned(chosen)
    assert (table["id"].to_pylist(), ids) == ([0, 1500, 3000, 4500], ["0", "1", "2", "3"])
    named = (frame.set_index("id") for frame in pd.read_csv(path, chunksize=2000))
    assert planned(named)[1] == [str(number) for number in range(5000)]
    clips = pd.DataFrame({"audio": [np.zeros(3), np.ones(2)]})
    opened = open_table(iter([clips, clips]), carry=frozenset({"audio"}))
    given = [(ids, list(islice(opened.carried["audio"], len(ids)))) for _, ids in opened.batches()]
    assert [(ids, [len(clip) for clip in clips]) for ids, clips in given] == [
        (["0", "1"], [3, 2]),
        (["2", "3"], [3, 2]),
    ]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (pd.DataFrame({"id": [1], "line": ["b"]}), "different columns: line, text"),
        (pd.DataFrame({"id": ["007"], "text": ["b"]}), "column 'id' .* here, and int64 in the rows before"),
        (pd.DataFrame({"id": [0.5], "text": ["b"]}), "column 'id' cannot be stored"),
        (pd.DataFrame({"id": [1], "text": ["b"]}, index=["x"]), "with and without an index"),
    ],
)
def test_frames_that_differ_are_refused_by_name(second, words):
    with pytest.raises(InvalidRows, match=words):
        planned(iter([pd.DataFrame({"id": [1], "text": ["a"]}), second]))


def test_empty_tables_are_one_empty_batch(tmp_path):
    file = written(tmp_path / "t.csv", "text\n")
    for source in ([], iter([]), pd.DataFrame({"text": []}), {"text": []}, file, pa.table({"text": []})):
        table, ids = planned(source)
        assert (table.num_rows, table.column_names, ids) == (0, ["text"], [])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (42, "the type int is not a table"),
        (Distributed(), r"Distributed is not a table; allowed: table\.compute\(\)"),
        (pl.LazyFrame({"text": ["a"]}), r"polars LazyFrame is not a table; allowed: table\.collect\(\)"),
        ({"a", "b"}, r"set is not a table; .*sorted\(table\)"),
        (io.StringIO("a"), "StringIO is not a table; allowed: the path of the file"),
        (memoryview(b"a"), "memoryview is not a table"),
        ({"Sheet1": pd.DataFrame({"text": ["a"]})}, "column 'Sheet1' is of the type DataFrame"),
        (pd.DataFrame({"text": ["a"], "n": [1]}).groupby("n"), "values of the type DataFrame"),
        ([pl.DataFrame({"text": ["a"]}), "b"], "holds a str among its frames"),
        ("nowhere.csv", "does not exist"),
        ("Hello, this is a line.", r"is not a table file.*\['a line'\], say\(\)"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "has two columns named 'text'"),
        (pd.DataFrame([["a", "b"]], columns=["", ""]), "has 2 columns with values and without a name"),
        ({"text": {"a", "b"}}, "column 'text' is of the type set"),
        ({"a": [1, 2], "b": [1]}, "different lengths: 'a' has 2, 'b' has 1"),
        ({"train": datasets.Dataset.from_dict({"text": ["a"]})}, "'train' is of the type Dataset"),
        (["a", "\ud800"], "half a character"),
        (pa.table({"odd": pa.array([], pa.month_day_nano_interval())}), "column 'odd' cannot be stored"),
    ],
)
def test_what_is_no_table(source, words):
    with pytest.raises(InvalidRows, match=words):
        planned(source)


def test_files_of_tables_are_regular(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv"):
        with pytest.raises(InvalidRows, match="a device, pipe or socket"):
            planned(tmp_path / name)
