"""Some rows of a run, and the newest calls, without reading the others."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_cases import TABLE_SCHEMA, done, failed, key_of, manifest

from speechframe.old_store import RunFolder

ROWS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of three row groups, with calls in two parts, one failed, one in a log at work."""
    run = RunFolder.create(tmp_path_factory.mktemp("pages") / "run", manifest())
    keys = [None if k % 7 == 3 else key_of(k) for k in range(ROWS)]
    with run.lock():
        with run.add_table(TABLE_SCHEMA) as table:
            for start in range(0, ROWS, 4_000):
                here = range(start, start + 4_000)
                columns = [[f"line {k}" for k in here], [f"r{k}" for k in here], keys[start : start + 4_000]]
                table.write(
                    pa.RecordBatch.from_arrays(
                        [pa.array(c, pa.string()) for c in columns], schema=TABLE_SCHEMA
                    )
                )
        with run.writer() as writer:
            for k in range(0, 300, 2):
                writer.answer(done(key_of(k)))
        with run.writer() as writer:
            writer.answer(failed(key_of(1)))
            writer.answer(done(key_of(19_999)))
            writer.cut()
            writer.answer(done(key_of(8_192)))
            writer.answer(failed(key_of(5)))
            yield run


@pytest.fixture(scope="module")
def whole(folder):
    return pa.Table.from_batches(folder.joined(), folder.joined_schema())


@given(
    places=st.lists(st.sampled_from([0, 1, 2, 3, 5, 298, 4_000, 8_191, 8_192, 16_384, 19_999]), max_size=12)
)
def test_rows_at_any_places_are_the_rows_that_lie_there(folder, whole, places):
    found = folder.rows_at(places)
    assert found.to_pylist() == whole.take(pa.array(places, pa.int64())).to_pylist()
    assert found.schema.equals(whole.schema)


def test_columns_may_be_chosen(folder):
    found = folder.rows_at([8_192, 0, 1, 3], ["status", "line"])
    assert found.to_pydict() == {
        "status": ["done", "done", "failed", "invalid"],
        "line": ["line 8192", "line 0", "line 1", "line 3"],
    }


def test_the_newest_calls_are_those_whose_audio_came_last(folder):
    assert folder.newest(3) == [key_of(8_192), key_of(19_999), key_of(298)]
    assert len(folder.newest(1_000)) == 152
    assert folder.newest(0) == []
