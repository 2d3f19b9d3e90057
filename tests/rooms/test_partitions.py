"""Tables in partitions: each row once, in their order, with an id of its own, and never all of them in memory."""

import gc
import tempfile
import time

import dask.dataframe as dd
import distributed
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rooms.test_tables import planned, rows_of

from peak import forget_peak, peak_kb
from speechframe.errors import InvalidRows
from speechframe.tables.table_input import open_table


def read(source, **options):
    """Return the rows of a table, and their ids."""
    batches = list(open_table(source, **options).batches())
    return [row for batch, _ in batches for row in batch.to_pylist()], [
        one for _, ids in batches for one in ids
    ]


def split(frame, sizes):
    """Return the rows of a frame in partitions of these sizes, each with the index 0, 1, 4, 9 and so on."""
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    parts = [frame.iloc[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return [part.set_axis(pd.Index([row * row for row in range(len(part))], dtype="int64")) for part in parts]


def dask_of(frames, name=None):
    if name is not None:
        frames = [frame.set_index(name) for frame in frames]
    return dd.from_map(lambda number: frames[number], range(len(frames)), meta=frames[0].iloc[:0])


def folder_of(frames, folder):
    for number, frame in enumerate(frames):
        frame.to_parquet(folder / f"part-{number}.parquet", index=False)
    return folder


@settings(max_examples=8)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6).filter(any))
def test_partitions_of_any_sizes_are_the_same_table_as_one_frame(tmp_path_factory, sizes):
    whole = pd.DataFrame({"key": [f"k{row}" for row in range(sum(sizes))]})
    whole = whole.assign(text=whole["key"] + " é", n=[row * row for row in range(len(whole))])
    frames = split(whole, sizes)
    folder = folder_of(frames, tmp_path_factory.mktemp("parts"))
    for source in (dask_of(frames), ds.dataset(folder), folder, f"file://{folder}"):
        assert read(source) == read(whole)
        assert read(source, id="key") == read(whole, id="key")
    is_small = ds.field("n") < 5
    assert read(ds.dataset(folder).filter(is_small)) == read(whole[whole["n"] < 5])
    assert read(dask_of(frames)["text"]) == read(whole["text"])
    for name in ("key", "n"):
        assert read(dask_of(frames, name))[1] == read(whole.set_index(name))[1]
    ranges = [frame.set_index(pd.RangeIndex(5, 5 + len(frame), name="row")) for frame in frames[:1]]
    assert read(dask_of(ranges))[1] == [str(5 + row) for row in range(sizes[0])]


def test_a_table_larger_than_the_memory_it_takes_is_read(tmp_path):
    rows, count, letters = 2048, 40, "x" * 4000

    def make(number):
        texts = [f"{number} {row} {letters}" for row in range(rows)]
        return pd.DataFrame({"text": texts}, index=pd.Index(texts, name="key"))

    table = pa.Table.from_pandas(make(0), preserve_index=False)
    for number in range(count):
        pq.write_table(table, tmp_path / f"{number:02}.parquet", row_group_size=512)
    for source in (tmp_path, ds.dataset(tmp_path), dd.from_map(make, range(count), meta=make(0).iloc[:0])):
        gc.collect()
        pa.default_memory_pool().release_unused()
        forget_peak()
        before = peak_kb()
        total = sum(batch.nbytes for batch, _ in open_table(source, id="text").batches())
        grown = (peak_kb() - before) * 1024
        assert total >= rows * count * len(letters)
        assert grown < total / 2, f"{grown / 1e6:.0f} of {total / 1e6:.0f} MB, {type(source)}"


def test_a_folder_is_its_parquet_files_sorted_by_path_with_the_names_of_its_folders(tmp_path):
    for name in ("locale=fr-FR/0.parquet", "locale=a%2Fb/1.pq", "locale=a%2Fb/0.parquet", "_old/0.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pd.DataFrame({"text": [name]}).to_parquet(tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").touch()
    (tmp_path / "notes.txt").touch()
    expected = [
        {"text": "locale=a%2Fb/0.parquet", "locale": "a/b"},
        {"text": "locale=a%2Fb/1.pq", "locale": "a/b"},
        {"text": "locale=fr-FR/0.parquet", "locale": "fr-FR"},
    ]
    fsspec.filesystem("memory").put(str(tmp_path), "/lines", recursive=True)
    for folder in (tmp_path, "memory://lines"):
        table, ids = planned(folder)
        assert (table.to_pylist(), ids) == (expected, ["0", "1", "2"])
    assert open_table(tmp_path).notes == [
        f"1 file of {tmp_path} without the ending .parquet or .pq: not read"
    ]


def test_a_part_that_cannot_be_read_is_named(tmp_path):
    def fail(number):
        return pd.DataFrame({"text": [str(1 // (2 - number))]})

    failing = dd.from_map(fail, range(4), meta=fail(0).iloc[:0])
    with pytest.raises(InvalidRows, match=r"partition 2 of 0 to 3 .*ZeroDivisionError.*partitions\[2\]"):
        planned(failing)
    twice = dask_of([pd.DataFrame({"n": [0], "text": ["a"]})] * 2, "n")
    with pytest.raises(InvalidRows, match=r"stands twice in the index.*reset_index"):
        planned(twice)
    with pytest.raises(InvalidRows, match="contains no Parquet files"):
        planned(tmp_path)
    folder_of([pd.DataFrame({"text": ["a"]}), pd.DataFrame({"text": ["b"], "n": [1]})], tmp_path)
    with pytest.raises(
        InvalidRows, match=r"only part-0.parquet or part-1.parquet has n; allowed: files with"
    ):
        planned(tmp_path)
    filled = ds.dataset(tmp_path, schema=pa.schema({"text": pa.string(), "n": pa.int64()}))
    assert rows_of(filled) == [{"text": "a", "n": None}, {"text": "b", "n": 1}]
    (tmp_path / "part-1.parquet").write_bytes(b"PAR1")
    with pytest.raises(InvalidRows, match=r"part-1.parquet cannot be read: ArrowInvalid"):
        planned(tmp_path)
    with pytest.raises(InvalidRows, match="nowhere cannot be read: FileNotFoundError"):
        planned(f"file://{tmp_path}/nowhere")


def test_the_client_of_dask_computes_the_partitions():
    def ask(_):
        return pd.DataFrame({"text": [f"worker {distributed.get_worker().name}"]})

    with distributed.Client(n_workers=1, processes=False, dashboard_address=":0"):
        made = dd.from_map(ask, range(2), meta=pd.DataFrame({"text": ["a"]}).iloc[:0])
        assert rows_of(made) == [{"text": "worker 0"}] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray warns about its own options
@pytest.mark.slow
def test_a_ray_dataset_is_read_in_the_order_of_its_blocks():
    import ray  # of the group ray, which only make test-all installs

    def make(batch):
        time.sleep(0.5 if batch["id"][0] == 0 else 0)
        return {"text": [f"line {number}" for number in batch["id"]]}

    def fail(batch):
        raise ZeroDivisionError(f"at {batch['id'][0]}")

    with tempfile.TemporaryDirectory(
        prefix="ray", dir="/tmp"
    ) as folder:  # the path of a socket must be short
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200_000_000, _temp_dir=folder)
        try:
            numbers = ray.data.range(1000, override_num_blocks=10)
            made = numbers.map_batches(make)
            assert read(made) == read([f"line {number}" for number in range(1000)])
            assert not made.context.execution_options.preserve_order
            with pytest.raises(InvalidRows, match=r"block at row 0 .*ZeroDivisionError: at .*materialize"):
                read(numbers.map_batches(fail))
        finally:
            ray.shutdown()
