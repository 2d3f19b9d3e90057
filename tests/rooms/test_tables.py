"""Tables: every row is there, every value is what it was, and what cannot be so is refused by name."""

import csv
import json
import os

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import datasets
from peak import forget_peak, peak_kb
from speechframe.errors import InvalidRows, SettingsError
from speechframe.tables.columns import Source, col, rows
from speechframe.tables.table import resolve
from speechframe.tables.table_input import open_table


def read(table):
    """Return rows and ids of an open table."""
    found = list(table.batches())
    return [row for batch, _ in found for row in batch.to_pylist()], [i for _, ids in found for i in ids]


def rows_of(source, **options):
    return read(open_table(source, **options))[0]


def arguments_of(source, arguments, **options):
    table = open_table(source, **options)
    sources = resolve(arguments, {"text", "audio"}, {"targets"}, table)
    return [row for batch, _ in table.batches() for row in rows(batch, sources)]


def written(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


FIELDS = st.text(st.sampled_from('ab "",;\t\n'), max_size=8)


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
        # An empty field that stands in no quotes is null.
        assert [tuple(value or "" for value in row.values()) for row in found] == table


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


def test_a_quote_that_swallows_lines_is_refused_with_its_line(tmp_path):
    texts = [f"line {number}" for number in range(500)]
    texts[7], texts[14] = '"seven', 'fourteen 5"'
    lines = ["id\ttext", *(f"{number}\t{text}" for number, text in enumerate(texts))]
    path = written(tmp_path / "t.csv", "\n".join(lines))
    with pytest.raises(SettingsError, match=r't\.csv: on line 9 .*quoting="none"'):
        open_table(path)
    table = open_table(path, quoting="none")
    assert [row["text"] for row in read(table)[0]] == texts
    assert not table.notes


def test_a_broken_quote_among_quoted_fields_is_refused_with_its_line(tmp_path):
    path = written(tmp_path / "t.csv", 'id,text\n1,"a, b"\n2,"never ended\n3,c\n4,"d, e"\n')
    with pytest.raises(SettingsError, match="on line 3"):
        open_table(path)


def test_separators_are_seen(tmp_path):
    path = written(tmp_path / "t.csv", "id;text\n0007;a, b\n")
    assert rows_of(path) == [{"id": "0007", "text": "a, b"}]


def test_lines_that_become_no_rows_are_counted(tmp_path):
    table = open_table(written(tmp_path / "t.csv", '\ufeffid,text\n1,"two\nlines"\n\n2,""\n'))
    assert read(table)[0] == [{"id": "1", "text": "two\nlines"}, {"id": "2", "text": ""}]
    assert [note.split(" of ")[0] for note in table.notes] == ["1 lines", "1 lines"]
    table = open_table(written(tmp_path / "t.txt", "One\u2028still one.\r\n\n \nTwo\x0cstill two.\rThree"))
    assert [row["text"] for row in read(table)[0]] == ["One\u2028still one.", "Two\x0cstill two.", "Three"]
    assert table.notes == ["2 of 5 lines of t.txt are empty: no rows"]


def test_a_frame_with_nested_arrow_types_comes_back():
    lists = pd.arrays.ArrowExtensionArray(pa.array([["a"], None]))
    frame = pd.DataFrame({"text": ["a", None], "lists": lists}, index=pd.Index([10, 20], name="line"))
    table = open_table(frame)
    back = pa.Table.from_batches([batch for batch, _ in table.batches()], table.schema).to_pandas()
    assert back.index.equals(frame.index)
    assert [None if value is None else list(value) for value in back["lists"]] == [["a"], None]


VALUES = st.recursive(
    st.none()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)


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
    assert rows_of(frame["text"], named=["text"]) == [{"text": "a"}, {"text": None}]
    dataset = datasets.Dataset.from_dict({"text": list("abcdef")})
    assert [row["text"] for row in rows_of(dataset.select([4, 1]))] == ["e", "b"]
    assert [row["text"] for row in rows_of(dataset.to_iterable_dataset())] == list("abcdef")
    with pytest.raises(InvalidRows, match=r"column 'odd' .* it is Object"):
        open_table(pl.DataFrame({"odd": pl.Series([object()], dtype=pl.Object)}))


def test_types_of_a_json_file_may_come_late(tmp_path):
    lines = [{"id": n, "text": "2026-01-01"} for n in range(5000)] + [{"id": 0.5, "share": 0.5, "text": None}]
    path = written(tmp_path / "t.jsonl", "\n".join(map(json.dumps, lines)))
    assert rows_of(path) == [{"share": None} | line for line in lines]
    with pytest.raises(InvalidRows, match=r"u\.jsonl cannot be read: line 2 is no JSON"):
        open_table(written(tmp_path / "u.jsonl", '{"text": "a"}\n{"text":'))


def test_ids_are_the_index_the_column_or_the_number():
    frame = pd.DataFrame({"id": ["a", "b"], "text": ["x", "y"]}, index=["p", "q"])
    assert read(open_table(frame))[1] == ["p", "q"]
    assert read(open_table(frame.reset_index(drop=True)))[1] == ["0", "1"]
    table = open_table(frame, id="id")
    assert (read(table)[1], table.id_column) == (["a", "b"], "id")
    assert read(open_table([{"n": 7, "text": "x"}], id="n"))[1] == ["7"]
    with pytest.raises(InvalidRows, match=r"id: names a column .*value key.*allowed: id, text"):
        open_table(frame, id="key")
    for missing in (None, np.nan, pd.NaT):
        frame = pd.DataFrame({"id": ["a", missing, "c"], "text": ["x", "y", "z"]})
        with pytest.raises(InvalidRows, match=r"row '1', id: is missing"):
            read(open_table(frame, id="id"))
        with pytest.raises(InvalidRows, match="id: the index is missing in row 1"):
            open_table(frame.set_index("id"))


class RunLike:
    """A run, as far as tables know one."""

    def __init__(self, ids):
        self.ids = ids

    def as_batches(self, named=(), batch_rows=None):
        audio = [{"bytes": b"x", "path": "x.wav"}] * len(self.ids)
        batch = pa.record_batch({"text": self.ids, "row_id": self.ids, "audio": audio})
        batch = batch.select([name for name in batch.schema.names if name in {"text", *named}])
        return batch.schema, iter([(batch, self.ids)])


def test_a_run_brings_its_ids_and_its_audio_where_it_is_named():
    run = RunLike(["greeting/pt-BR", "reset/pt-BR"])
    assert read(open_table(run)) == ([{"text": i} for i in run.ids], run.ids)
    assert read(open_table([run, run]))[1] == ["0", "1", "2", "3"]
    carry = frozenset({"audio"})
    found = arguments_of(run, {"audio": "audio"}, plain="audio", carry=carry)
    assert found == [{"audio": {"bytes": b"x", "path": "x.wav"}}] * 2
    assert open_table(run, carry=carry).schema.names == ["text"]


def test_columns_constants_and_lists():
    frame = pd.DataFrame({"line": ["a", "b", "c"], "who": ["x", None, "z"], "rate": [1.0, np.nan, 2.0]})
    given_ = {"text": "line", "voice": col("who"), "rate": col("rate"), "pitch": pd.Series([1, 2, 3])}
    given_ |= {"style": "who", "targets": ["a"], "model": None}
    assert arguments_of(frame, given_) == [
        {"text": "a", "voice": "x", "rate": 1.0, "pitch": 1, "style": "who", "targets": ["a"]},
        {"text": "b", "pitch": 2, "style": "who", "targets": ["a"]},
        {"text": "c", "voice": "z", "rate": 2.0, "pitch": 3, "style": "who", "targets": ["a"]},
    ]
    with pytest.raises(InvalidRows, match=r"voice: names a column .*value name.*allowed: line, who, rate"):
        arguments_of(frame, {"voice": col("name")})
    with pytest.raises(InvalidRows, match="text: names a column that holds bytes"):
        arguments_of({"text": [b"x"]}, {"text": "text"})


@pytest.mark.parametrize("length", [3, 9999, 10_001])
def test_a_list_beside_a_generator_must_end_with_it(length):
    with pytest.raises(InvalidRows, match=f"rate: has {length:,} values for 10,000 rows"):
        arguments_of((f"line {n}" for n in range(10_000)), {"text": "text", "rate": list(range(length))})


def test_sources_survive_their_json_but_lists_belong_to_one_table():
    table = open_table(["a"])
    sources = resolve({"text": "text", "rate": np.int64(3), "pitch": [1]}, {"text"}, (), table)
    kept = json.loads(json.dumps({name: source.to_json() for name, source in sources.items()}))
    again = {name: Source.from_json(name, value) for name, value in kept.items()}
    assert (again["text"], again["rate"]) == (Source(column="text"), Source(3))
    with pytest.raises(InvalidRows, match="pitch: was a list"):
        list(rows(pa.record_batch({"text": ["a"]}), again))
    with pytest.raises(InvalidRows, match="text: names a column"):
        resolve({"text": again["text"]}, {"text"}, (), open_table({"line": ["a"]}))


@pytest.mark.parametrize("make", [list, iter, lambda clips: pd.Series(clips, name="clip")])
def test_audio_is_handed_over_as_it_is_and_not_stored(make, tmp_path):
    clips = [b"RIFF", (np.zeros(3), 8000), {"bytes": b"x", "path": None}, tmp_path / "a.wav", None] * 30
    table = open_table(make(clips), plain="audio", carry=frozenset({"audio"}))
    assert "audio" not in table.schema.names
    sources = resolve({"audio": "audio"}, {"audio"}, (), table)
    found = [row.get("audio") for batch, _ in table.batches() for row in rows(batch, sources)]
    assert all(one is two for one, two in zip(found, clips, strict=True))
    paths = open_table([tmp_path / "a.wav", "b.wav"], plain="audio", carry=frozenset({"audio"}))
    assert read(paths)[0] == [{"audio": str(tmp_path / "a.wav")}, {"audio": "b.wav"}]


def breaking(items, at):
    for number, item in enumerate(items):
        if number == at:
            raise OSError("the disk is gone")
        yield item


BATCH = pa.record_batch({"text": ["a"] * 100})


@pytest.mark.parametrize(
    ("items", "row"), [(map(str, range(9000)), 5000), (iter([{"text": "a"}]), 0), ([BATCH] * 9, 300)]
)
def test_a_source_that_breaks_off_says_at_which_row(items, row):
    with pytest.raises(InvalidRows, match=f"at row {row:,}: OSError: the disk is gone") as caught:
        read(open_table(breaking(items, row if row != 300 else 3)))
    assert isinstance(caught.value.__cause__, OSError)


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
        read(open_table(iter(batches)))


@pytest.mark.parametrize(
    "wrap", [str, lambda n: {"text": str(n), "n": n}, lambda n: pa.record_batch({"text": [str(n)] * 100})]
)
def test_a_generator_is_read_as_far_as_it_is_asked_for(wrap):
    taken = []

    def endless():
        try:
            while True:
                taken.append(1)
                yield wrap(len(taken))
        finally:
            taken.append("closed")

    table = open_table(endless())
    batches = table.batches()
    assert sum(len(ids) for _, ids in (next(batches) for _ in range(3))) <= 3 * 4096
    assert len(taken) <= 4 * 4096
    del table, batches
    assert taken[-1] == "closed"


def test_empty_tables_are_one_empty_batch(tmp_path):
    file = written(tmp_path / "t.csv", "text\n")
    for source in ([], iter([]), pd.DataFrame({"text": []}), {"text": []}, file, pa.table({"text": []})):
        [(batch, ids)] = open_table(source).batches()
        assert (batch.num_rows, batch.schema.names, ids) == (0, ["text"], [])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (42, "a int is no table"),
        ("nowhere.csv", "does not exist"),
        ("Hello, this is a line.", r"is no table file.*\['a line'\], say\(\)"),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), "has two columns named 'text'"),
        ({"text": {"a", "b"}}, "column 'text' is a set"),
        ({"a": [1, 2], "b": [1]}, "different lengths: 'a' has 2, 'b' has 1"),
        ({"train": datasets.Dataset.from_dict({"text": ["a"]})}, "'train' is a Dataset"),
        (["a", "\ud800"], "half a character"),
        (pa.table({"odd": pa.array([], pa.month_day_nano_interval())}), "column 'odd' cannot be stored"),
    ],
)
def test_what_is_no_table(source, words):
    with pytest.raises(InvalidRows, match=words):
        open_table(source)


def test_files_are_regular(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.csv"):
        with pytest.raises(InvalidRows, match="a device, pipe or socket"):
            open_table(tmp_path / name)


def test_a_million_rows_take_little_memory():
    def take(count):
        table = open_table(f"This is line {n} of a long table." for n in range(count))
        return sum(len(ids) for _, ids in table.batches())

    take(10_000)
    forget_peak()
    before = peak_kb()
    assert take(1_000_000) == 1_000_000
    assert peak_kb() - before < 60_000
