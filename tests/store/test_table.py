"""The caller's table is kept as it was handed in."""

import errno
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from store_cases import TABLE_SCHEMA, key_of, table_batch

from speechframe.errors import StoreError
from speechframe.old_store import RunFolder, files
from speechframe.old_store.remote import Unreachable


def test_the_newest_table_is_the_runs(run, add_rows):
    add_rows(run, [key_of(1)])
    add_rows(run, [key_of(2), None], id_column="line")
    entries = RunFolder.open(run.path).tables()
    assert [(e.file, e.rows, e.id_column) for e in entries] == [
        ("input/0001.parquet", 1, None),
        ("input/0002.parquet", 2, "line"),
    ]
    with run.table() as file:
        assert file.read().column("request_key").to_pylist() == [key_of(2), None]


def test_many_batches_become_few_row_groups_in_order(run):
    with run.add_table(TABLE_SCHEMA) as table:
        for start in range(0, 20_000, 100):
            table.write(table_batch([f"{i:032x}" for i in range(start, start + 100)]))
        assert table.rows == 20_000
    with run.table() as file:
        assert file.metadata.num_row_groups == 10
        assert file.read().column("request_key").to_pylist() == [f"{i:032x}" for i in range(20_000)]


def test_an_empty_table_is_a_table(run):
    with run.add_table(TABLE_SCHEMA):
        pass
    with run.table() as file:
        assert file.metadata.num_rows == 0
    assert list(run.joined()) == []
    assert run.verify() == []


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(10, 16, 2, name="n"),
        pd.Index(["a", "b", "c"], name="id"),
        pd.MultiIndex.from_tuples([("x", 1), ("x", 2), ("y", 1)], names=["scene", None]),
        pd.DatetimeIndex(["2030-01-01", "2030-01-02", "2030-01-03"], tz="Europe/Berlin"),
    ],
)
def test_the_callers_index_is_restored(run, index):
    frame = pd.DataFrame({"line": ["a", "b", "c"], "kind": pd.Categorical(["x", "y", "x"])}, index=index)
    theirs = pa.Table.from_pandas(frame)
    schema = theirs.schema.append(TABLE_SCHEMA.field("speech_row_id")).append(
        TABLE_SCHEMA.field("request_key")
    )
    with run.add_table(schema) as table:
        for batch in theirs.to_batches(max_chunksize=2):
            ours = [pa.array(["1"] * len(batch)), pa.array([key_of(1)] * len(batch))]
            table.write(pa.RecordBatch.from_arrays([*batch.columns, *ours], schema=schema))
    restored = pa.Table.from_batches(run.joined()).to_pandas()
    pd.testing.assert_frame_equal(restored[["line", "kind"]], frame)


def write_and_fail(table):
    table.write(table_batch([key_of(2)]))
    raise KeyError


def test_an_error_while_writing_leaves_the_run_as_it_was(run, add_rows):
    add_rows(run, [key_of(1)])
    with pytest.raises(KeyError), run.add_table(TABLE_SCHEMA) as table:
        write_and_fail(table)
    assert [path.name for path in (run.path / "input").iterdir()] == ["0001.parquet"]
    assert len(RunFolder.open(run.path).tables()) == 1
    add_rows(run, [key_of(3)])
    assert [entry.file for entry in run.tables()] == ["input/0001.parquet", "input/0002.parquet"]


def test_a_table_that_was_being_written_when_the_process_died_is_forgotten(run, add_rows):
    add_rows(run, [key_of(1)])
    (run.path / "input" / ".0002.parquet.tmp").write_bytes(b"PAR1")
    (run.path / "input" / "0002.parquet").write_bytes(b"not yet in run.json")
    with run.lock():
        run.recover()
    assert not (run.path / "input" / ".0002.parquet.tmp").exists()
    add_rows(run, [key_of(2)])
    assert run.verify() == []
    with run.table() as file:
        assert file.read().column("request_key").to_pylist() == [key_of(2)]


def test_columns_that_no_file_can_hold_are_a_clear_error(run):
    odd = pa.schema([pa.field("line", pa.struct([]))])
    with pytest.raises(StoreError, match=r"the table cannot be stored .*no child field"):
        run.add_table(odd)
    # Of a view Arrow says so only when it writes.
    views = pa.record_batch({"line": pa.array(["a"], pa.string_view()).dictionary_encode()})
    with pytest.raises(StoreError, match="the table cannot be stored"), run.add_table(views.schema) as table:
        table.write(views)
    assert run.tables() == []


def test_batches_of_other_columns_are_refused_by_name(run):
    with pytest.raises(StoreError, match="line: int64"), run.add_table(TABLE_SCHEMA) as table:
        table.write(pa.record_batch({"line": [1], "speech_row_id": ["1"], "request_key": ["k"]}))


def test_the_table_is_on_the_disk_before_run_json_names_it(run, add_rows, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (order.append((name, a)), real(*a))[1])
    add_rows(run, [key_of(1)])
    assert [name for name, _ in order] == ["fsync", "replace", "fsync"] * 2
    renamed = [Path(args[1]).name for name, args in order if name == "replace"]
    assert renamed == ["0001.parquet", "run.json"]


def test_a_run_without_a_table_says_so(run):
    with pytest.raises(StoreError, match="no table"):
        run.table()


def test_a_missing_table_says_which_file(run, add_rows):
    add_rows(run, [key_of(1)])
    (run.path / "input" / "0001.parquet").unlink()
    with pytest.raises(StoreError, match=r"0001\.parquet is missing"):
        run.table()
    assert [problem.file for problem in run.verify()] == ["input/0001.parquet"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.EMFILE, "Too many open files"),
        PermissionError("not for this key"),
        Unreachable("an outage"),
        pa.ArrowMemoryError("malloc failed"),
    ],
    ids=repr,
)
def test_a_table_that_cannot_be_read_now_keeps_its_place(run, add_rows, monkeypatch, error):
    def fail(_):
        raise error

    add_rows(run, [key_of(1)])
    with monkeypatch.context() as failing:
        failing.setattr(files, "readable", fail)
        for ask in (run.has_table, lambda: run.add_table(TABLE_SCHEMA)):
            with pytest.raises(StoreError, match=r"0001\.parquet cannot be read now .*: call again"):
                ask()
    assert [path.name for path in (run.path / "input").iterdir()] == ["0001.parquet"]
    add_rows(run, [key_of(2)])
    assert [entry.file for entry in run.tables()] == ["input/0001.parquet", "input/0002.parquet"]


def test_a_table_that_is_torn_anywhere_gives_its_place(run, add_rows):
    add_rows(run, [key_of(i) for i in range(1_000)])
    path = run.path / "input" / "0001.parquet"
    content = path.read_bytes()
    for place in range(0, len(content), len(content) // 40):
        path.write_bytes(content[:place] + bytes(90) + content[place + 90 :])
        # Either way, and never an error: not all bytes are noticed.
        assert run.has_table() in {True, False}
        path.write_bytes(content[:place])
        assert not run.has_table()
    add_rows(run, [key_of(2)])
    assert [entry.file for entry in run.tables()] == ["input/0002.parquet"]
