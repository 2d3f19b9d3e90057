"""Some rows of a long run: they are what they are in the whole, and little else is read for them."""

import hashlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechframe import open_run
from speechframe.errors import InvalidRows, StoreError
from speechframe.old_batch import redo, run_rows
from speechframe.old_store import Record, RunFolder, RunManifest

ROWS = 6_000
PLACES = [0, 1, 63, 64, 65, 2_047, 2_048, 2_049, 4_095, 4_096, 5_000, ROWS - 2, ROWS - 1]
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("line", "speech_row_id", "request_key", "speech_problem")]
    + [("speech_millicredits", pa.int64())]
)


def key_of(place):
    return hashlib.blake2b(str(place).encode(), digest_size=16).hexdigest()


def write_table(folder, names):
    with folder.add_table(SCHEMA, hidden=["speech_row_id", "speech_millicredits"]) as table:
        for start in range(0, len(names), 1_000):
            here = range(start, min(start + 1_000, len(names)))
            columns = [
                [f"line {k}" for k in here], [names[k] for k in here],
                [None if k % 10 == 9 else key_of(k) for k in here], [None for _ in here],
            ]  # fmt: skip
            arrays = [*(pa.array(column, pa.string()) for column in columns), pa.array([90] * len(here))]
            table.write(pa.record_batch(arrays, schema=SCHEMA))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose calls are done, but for those that failed, are pending, or were never to be made."""
    found = RunFolder.create(tmp_path_factory.mktemp("few") / "run", RunManifest("r", "generate"))
    with found.lock():
        write_table(found, [f"r{k}" for k in range(ROWS)])
        with found.writer() as out:
            for k in range(ROWS):
                if k % 10 == 7:
                    out.answer(Record(key_of(k), "failed", error_code="BadRequest"))
                elif k % 10 not in {8, 9}:
                    audio = f"audio {k}".encode()
                    out.answer(Record(key_of(k), "done", audio_bytes=audio, format="WAV", sample_rate=8_000))
    return found.path


@pytest.fixture
def run(folder):
    return open_run(folder)


@pytest.fixture(scope="module")
def whole(folder):
    return open_run(folder).to_arrow(audio=True)


@pytest.fixture
def values_read(monkeypatch):
    """Counts the values that are read of Parquet files, in tables and parts alike."""
    count = [0]

    def counted(found):
        count[0] += found.num_rows * found.num_columns
        return found

    for name in ("read", "read_row_group"):
        real = getattr(pq.ParquetFile, name)
        monkeypatch.setattr(pq.ParquetFile, name, lambda *a, real=real, **k: counted(real(*a, **k)))
    batches = pq.ParquetFile.iter_batches
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *a, **k: map(counted, batches(*a, **k)))

    def values(do):
        count[0] = 0
        do()
        return count[0]

    return values


MANY = [set(range(0, ROWS, 7)), set(range(900, 1_300))]


@settings(max_examples=15)
@given(
    places=st.sets(st.sampled_from(PLACES)) | st.sampled_from(MANY),
    batch_rows=st.sampled_from([None, 90]),
    audio=st.booleans(),
)
def test_selected_rows_are_the_rows_of_the_run(folder, whole, places, batch_rows, audio):
    places = sorted(places)
    selection = open_run(folder).select([f"r{k}" for k in places])
    found = list(selection.batches(audio=audio, batch_rows=batch_rows))
    assert all(0 < batch.num_rows <= (batch_rows or 4_096) for batch in found)
    table = pa.Table.from_batches(found, selection.to_arrow(audio=audio).schema)
    expected = whole.take(pa.array(places, pa.int64())).select(table.column_names)
    assert table.equals(expected)
    assert ("audio" in table.column_names) == audio


def test_a_sample_as_a_table_has_the_ids_of_its_rows(run):
    selection = run.sample(20, seed=3)
    rows = selection.as_rows()
    assert rows.row_ids == [f"r{k}" for k in selection.positions]
    lines = [line for batch in rows.batches for line in batch.column("line").to_pylist()]
    assert lines == [f"line {k}" for k in selection.positions]


def test_a_sample_is_of_rows_with_audio(run):
    assert set(run.sample(ROWS).positions) == {k for k in range(ROWS) if k % 10 not in {7, 8, 9}}


@pytest.mark.parametrize("audio", [False, True])
def test_of_a_long_run_a_few_rows_read_a_few_row_groups(run, values_read, audio):
    few = run.sample(4)
    assert values_read(lambda: few.to_arrow(audio=audio)) < values_read(lambda: run.to_arrow(audio=audio)) / 5


def test_a_row_reads_its_row_group_of_the_table_and_no_part_for_what_is_the_callers_own(run, values_read):
    one = run.select(["r4000"])
    group = 3_000  # of a table that came by 1,000 rows
    line_key_and_problem = 3
    assert values_read(lambda: one.to_arrow(["line"])) == group * line_key_and_problem


def test_a_draw_reads_keys_only(run, values_read):
    run.sample(4)
    assert values_read(lambda: run.sample(4)) == ROWS


def test_ids_are_read_once_however_many_clips_are_asked_for(run, values_read):
    assert values_read(lambda: run.clip("r11")) > ROWS
    assert values_read(lambda: run.clip("r5990")) < ROWS
    assert run.clip("r5990").audio == b"audio 5990"
    with pytest.raises(KeyError, match="it is pending"):
        run.clip("r18")
    with pytest.raises(KeyError, match="it is invalid"):
        run.clip("r19")
    with pytest.raises(KeyError, match=r"no row has the id 'r6000'; .* such as 'r0', 'r1', 'r2'"):
        run.clip("r6000")


def test_ids_are_those_of_the_newest_table(tmp_path):
    folder = RunFolder.create(tmp_path / "run", RunManifest("r", "generate"))
    with folder.lock():
        write_table(folder, ["a", "b"])
        with folder.writer() as out:
            for k in range(2):
                out.answer(Record(key_of(k), "done", audio_bytes=b"%d" % k, format="WAV", sample_rate=8_000))
        run = open_run(folder.path)
        assert run.clip("a").audio == b"0"
        write_table(folder, ["b", "a"])
        assert run.clip("a").audio == b"0"
        assert run.refresh().clip("a").audio == b"1"


def test_a_redo_reads_the_table_piece_by_piece_as_it_is_taken(folder, values_read, monkeypatch):
    monkeypatch.setattr(redo, "BATCH_ROWS", 500)
    table, known = redo.with_new_takes(RunFolder.open(folder), ["r5", "r4000", "r4007"])
    assert known.sources["take"].column == "speech_arg_take"
    pieces = []
    assert values_read(lambda: pieces.append(table.read_next_batch())) <= 500 * 2
    found = pa.Table.from_batches([*pieces, *table])
    assert found.column("line").to_pylist() == [f"line {k}" for k in range(ROWS)]
    redone = {5, 4_000, 4_007}
    expected = [None if k % 10 == 9 else int(k in redone) for k in range(ROWS)]
    assert found.column("speech_arg_take").to_pylist() == expected
    assert found.column_names == ["line", "speech_arg_take"]


NUMBERS = ["Zero.", "One.", "Two."]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ids", [[2, 1, 0], ["b", "c", "a"], [10, 11, 12]])
@pytest.mark.parametrize("index", [None, [5, 6, 7], ["x", "x", "y"]])
def test_a_frame_names_its_rows_by_the_column_of_ids(faulty, speak, ids, index):
    run = speak(faulty, pd.DataFrame({"id": ids, "text": NUMBERS}, index=index), id="id")
    frame = run.to_pandas()
    two = frame[frame["text"] == "Two."]
    assert run.select(two).to_pandas()["text"].tolist() == ["Two."]
    assert run.select(lambda whole: whole[whole["text"] != "One."]).to_pandas()["text"].tolist() == [
        "Zero.",
        "Two.",
    ]


def test_a_frame_names_its_rows_by_an_index_that_names_each(faulty, speak):
    run = speak(faulty, pd.DataFrame({"id": [2, 1, 0], "text": NUMBERS}, index=["x", "x", "y"]), id="id")
    frame = run.to_pandas().drop(columns="id")
    with pytest.raises(KeyError, match="several rows alike"):
        run.select(frame[frame["text"] == "Two."])
    run = speak(faulty, pd.DataFrame({"id": [2, 1, 0], "text": NUMBERS}, index=[7, 8, 9]), id="id")
    frame = run.to_pandas().drop(columns="id")
    assert run.select(frame[frame["text"] == "Two."]).to_pandas()["text"].tolist() == ["Two."]
    with pytest.raises(KeyError, match="no row of the run has 3"):
        run.select(frame.set_axis([1, 2, 3]).iloc[[2]])


@pytest.mark.parametrize("index", [[(2, 1), (1, 2), (3,)], [[2, 1], [1, 2], [3]], [frozenset("a"), 1, "b"]])
def test_an_index_of_tuples_names_rows_and_what_cannot_be_stored_is_refused(faulty, speak, index):
    own = pd.DataFrame({"text": NUMBERS}, index=pd.Index(index, dtype=object, tupleize_cols=False))
    if 1 in index:
        with pytest.raises(InvalidRows, match="the index cannot be stored"):
            speak(faulty, own)
        assert faulty.seen == []
        return
    run = speak(faulty, own)
    for frame in (run.to_pandas(), own):
        assert run.select(frame.iloc[[2, 1]]).positions == (1, 2)
        assert run.select(frame["text"] == "One.").positions == (1,)
    with pytest.raises(KeyError, match=r"no row of the run has .* in its index"):
        run.select(own.iloc[[0]].set_axis(pd.Index([(9, 9)], tupleize_cols=False)))


def test_rows_whose_index_an_arrow_table_lost_are_named_by_their_places(faulty, speak):
    table = pa.Table.from_pandas(pd.DataFrame({"text": NUMBERS}, index=[b"x", b"y", b"z"]))
    run = speak(faulty, table)
    some = run.select(run.to_pandas().iloc[[2, 1]])
    assert (some.positions, run.select(some.to_pandas()).positions) == ((1, 2), (1, 2))


HOURS = pd.to_timedelta([3, 2, 1], unit="h")
PAIRS = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
DAYS = pd.to_datetime(["2024-01-03", "2024-01-02", "2024-01-01"])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("ids", "changed"),
    [
        ([2, 1, 0], "float64"), ([2, 1, 0], "Int64"), ([2, 1, 0], "str"), ([2.0, 1.0, 0.0], "int64"),
        ([2.5, 1.5, 0.5], "str"), (["2", "1", "0"], "float64"), (["007", "07", "7"], "category"),
        (np.array([0.3, 0.2, 0.1], "float32"), "float64"), (HOURS, "timedelta64[s]"), (DAYS, "object"),
        (pd.Categorical(["c", "b", "a"]), "object"), (pd.array([2, 1, 0], "UInt8"), "float32"),
        ([[2, 1], [1], []], "object"),
    ],
    ids=str,
)  # fmt: skip
def test_a_frame_names_its_rows_by_what_its_ids_are_equal_to(faulty, speak, ids, changed):
    run = speak(faulty, pd.DataFrame({"id": ids, "text": NUMBERS}), id="id")
    # What a merge, a concat or sorting makes of it: another index, and perhaps another type.
    frame = run.to_pandas().iloc[::-1].reset_index(drop=True)
    for found in (frame, frame.astype({"id": changed})):
        assert run.select(found.head(1)).to_pandas()["text"].tolist() == ["Two."]
        assert run.select(found[1:]).to_pandas()["text"].tolist() == ["Zero.", "One."]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "ids",
    [
        DAYS, DAYS + pd.to_timedelta([0, 12, 0], unit="h"), DAYS.tz_localize("Europe/Paris"),
        pd.to_datetime([3, 2, 1]), pd.Categorical(DAYS), list(DAYS.date), HOURS, HOURS * 24,
    ],
    ids=lambda ids: f"{getattr(ids, 'dtype', 'date')}-{ids[0]}",
)  # fmt: skip
def test_times_are_ids_as_texts_too(faulty, speak, ids, tmp_path):
    run = speak(faulty, pd.DataFrame({"id": ids, "text": NUMBERS}), id="id")
    frame = run.to_pandas()
    frame.iloc[::-1].to_csv(tmp_path / "run.csv", index=False)
    read = pd.read_csv(tmp_path / "run.csv")
    # Of some rows the texts may be shorter: pandas leaves hours out where they are all 0.
    texts = [frame.astype({"id": "str"}), *(frame[k : k + 1].astype({"id": "str"}) for k in range(3))]
    for found in (read, *texts):
        for place, text in enumerate(NUMBERS):
            here = found[found["text"] == text].reset_index(drop=True)
            assert run.select(here).positions == (place,) * len(here)
    assert run.select(read.set_index("id")["text"] == "Two.").positions == (2,)
    for wrong in ("2024-01-04", "4 days", "3", "x"):
        with pytest.raises(KeyError, match="no row has the id"):
            run.select(frame[:1].assign(id=wrong))


def test_days_are_ids_as_dates_and_as_times(faulty, speak):
    for ids in (DAYS, list(DAYS.date)):
        run = speak(faulty, pd.DataFrame({"id": ids, "text": NUMBERS}), id="id")
        for found in (DAYS, list(DAYS.date)):
            frame = run.to_pandas().assign(id=found).iloc[::-1].reset_index(drop=True)
            assert run.select(frame[:1]).positions == (2,)
    with pytest.raises(KeyError, match="no row has the id"):
        run.select(frame[:1].assign(id=DAYS[2] + pd.Timedelta(1, "h")))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("wrong", [7, None, "x", 1.5, pd.Timestamp(0)])
def test_an_id_of_a_frame_that_is_not_in_the_run_is_an_error_whatever_its_index(faulty, speak, wrong):
    run = speak(faulty, pd.DataFrame({"id": [2, 1, 0], "text": NUMBERS}), id="id")
    frame = pd.concat([run.to_pandas().iloc[:1], pd.DataFrame({"id": [wrong], "text": ["x"]})])
    with pytest.raises(KeyError, match=r"no row has the id .*; ids are such as '2', '1', '0'"):
        run.select(frame.reset_index(drop=True))


def test_a_float_that_stands_for_several_whole_numbers_is_the_id_of_none(faulty, speak):
    run = speak(faulty, pd.DataFrame({"id": [2**53, 2**53 + 1, 1], "text": NUMBERS}), id="id")
    frame = run.to_pandas()
    assert run.select(frame[1:2]).to_pandas()["text"].tolist() == ["One."]
    with pytest.raises(KeyError, match="no row has the id 9007199254740992"):
        run.select(frame.astype({"id": "float64"})[1:2])


def test_a_frame_with_two_columns_of_ids_does_not_say_its_rows(faulty, speak):
    run = speak(faulty, pd.DataFrame({"id": [2, 1, 0], "text": NUMBERS}), id="id")
    frame = run.to_pandas()
    with pytest.raises(KeyError, match="takes one column 'id'"):
        run.select(pd.concat([frame, frame[["id"]]], axis=1))


def test_ids_that_were_an_index_are_ids_as_a_column_too(faulty, speak):
    run = speak(faulty, pd.DataFrame({"text": NUMBERS}, index=pd.Index([2, 1, 0], name="k")), id="k")
    frame = run.to_pandas()
    for found in (frame, frame.reset_index(), frame.reset_index().iloc[::-1].reset_index(drop=True)):
        assert run.select(found[found["text"] == "Two."]).to_pandas()["text"].tolist() == ["Two."]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ids", [[2, 1, 0], [1, 2, 3], list("cab"), DAYS, [[2, 1], [1], []]], ids=str)
def test_an_index_of_ids_names_rows_by_their_ids(faulty, speak, ids):
    run = speak(faulty, pd.DataFrame({"id": ids, "text": NUMBERS}), id="id")
    frame = run.to_pandas()
    indexed = [frame.set_index("id")]
    if not isinstance(ids[0], list):  # pandas has no such levels
        indexed += [frame.set_index("id", append=True), frame.set_index(["text", "id"])]
    for some in indexed:
        mask = pd.Series([True, False, False], index=some.index)
        for order in ([0, 1, 2], [2, 0, 1]):
            is_zero, found = mask.iloc[order], some.iloc[order]
            assert run.select(is_zero).positions == (0,)
            assert run.select(found[is_zero.to_numpy()]).positions == (0,)


def test_an_index_of_ids_that_are_not_the_run_s_is_refused(faulty, speak):
    run = speak(faulty, pd.DataFrame({"id": list("cab"), "text": NUMBERS}), id="id")
    frame = run.to_pandas().set_index("id")
    twice = frame.set_axis(pd.MultiIndex.from_arrays([frame.index] * 2, names=["id", "id"]))
    with pytest.raises(KeyError, match=r"no row has the id 'x'; ids are such as 'c', 'a', 'b'"):
        run.select(frame.rename({"c": "x"}))
    with pytest.raises(KeyError, match="takes one column 'id'"):
        run.select(twice)
    for wrong in (frame.rename({"c": "x"}), frame.rename({"c": "a"}), twice):
        with pytest.raises(ValueError, match="goes by its index"):
            run.select(wrong["text"] == "Zero.")
    with pytest.raises(ValueError, match="a mask of 2 values does not fit a run of 3 rows"):
        run.select(frame["text"][:2] == "Zero.")


def test_an_index_with_the_name_of_the_ids_may_be_the_run_s_own(faulty, speak):
    table = pd.DataFrame({"id": list("cab"), "text": NUMBERS}, index=pd.Index([2, 1, 0], name="id"))
    run = speak(faulty, table, id="id")
    frame = run.to_pandas()
    for some in (frame, frame[["text"]], frame[::-1], frame.set_index("id"), frame.set_index("id")[::-1]):
        assert run.select(some[some["text"] == "Two."]).positions == (2,)
        assert run.select(some["text"] == "Two.").positions == (2,)


def test_an_index_of_another_column_is_not_taken_for_the_run_s_in_a_mask(faulty, speak):
    run = speak(faulty, pd.DataFrame({"n": [2, 1, 0], "text": NUMBERS}))
    frame = run.to_pandas()
    for some in (frame.set_index("n"), frame.set_index("n", append=True)):
        with pytest.raises(ValueError, match=r"goes by its index.*mask\.tolist\(\)"):
            run.select(some["text"] == "Zero.")
    # As an index without a name comes back from a merge.
    kept = frame.reset_index().sort_values("n").set_index("index")
    assert run.select(kept["text"] == "Zero.").positions == (0,)
    run = speak(faulty, pd.DataFrame({"index": [2, 1, 0], "text": NUMBERS}))
    with pytest.raises(ValueError, match="goes by its index"):
        run.select(run.to_pandas().set_index("index")["text"] == "Zero.")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("index", [None, [5, 7, 6], list("bca"), HOURS, PAIRS])
def test_a_mask_goes_by_its_index(faulty, speak, index):
    run = speak(faulty, pd.DataFrame({"text": NUMBERS, "n": [3, 2, 1]}, index=index))
    masks = [
        lambda frame: frame.sort_values("n")["n"] == 1,
        run.to_pandas()["n"] == 1,
        (run.to_pandas()["n"] == 1).astype("boolean").where([False, True, True]).iloc[[2, 0, 1]],
        [False, False, True],
        np.array([False, False, True]),
        (False, False, True),
    ]
    assert [run.select(mask).positions for mask in masks] == [(2,)] * len(masks)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("index", [None, [2, 0, 1], list("bca"), pd.Index([2, 0, 1], name="k"), PAIRS])
def test_some_columns_of_a_run_come_with_its_index(faulty, speak, index):
    run = speak(faulty, pd.DataFrame({"text": NUMBERS}, index=index))
    whole = run.to_pandas()
    some = run.to_pandas(["status", "text"])
    pd.testing.assert_frame_equal(some, whole[["status", "text"]])
    assert run.to_arrow(["status", "text"]).column_names == ["status", "text"]
    two = run.select(some[some["text"] == "Two."])
    pd.testing.assert_frame_equal(two.to_pandas(["text"]), whole.loc[whole["text"] == "Two.", ["text"]])
    assert two.positions == run.select(two.to_pandas(["text"])).positions == (2,)


def test_a_mask_with_another_index_is_refused(faulty, speak):
    run = speak(faulty, pd.DataFrame({"text": NUMBERS}, index=["a", "b", "c"]))
    for index in (range(3), ["a", "b", "x"], ["a", "a", "b"]):
        with pytest.raises(ValueError, match=r"goes by its index.*mask\.tolist\(\)"):
            run.select(pd.Series([False, True, True], index=index))
    with pytest.raises(ValueError, match="a mask of 2 values does not fit a run of 3 rows"):
        run.select(pd.Series([False, True], index=["a", "b"]))
    run = speak(faulty, pd.DataFrame({"id": [2, 1, 0], "text": NUMBERS}, index=["x", "x", "y"]), id="id")
    mask = run.to_pandas()["text"] != "One."
    assert run.select(mask).positions == (0, 2)
    with pytest.raises(ValueError, match="goes by its index"):
        run.select(mask[::-1])


def test_the_audio_of_one_frame_is_counted_by_its_rows(faulty, speak, monkeypatch):
    one = len(speak(faulty, ["The same line."]).to_pandas(audio=True)["audio"][0]["bytes"])
    run = speak(faulty, ["The same line."] * 20 + ["Another one."])
    monkeypatch.setattr(run_rows, "MOST_AUDIO_BYTES", 10 * one)
    with pytest.raises(StoreError, match=r"batches\(\)"):
        run.to_pandas(audio=True)
    with pytest.raises(StoreError, match=r"batches\(\)"):
        run.select(range(15)).to_pandas(audio=True)
    # Little, out of a folder that holds more than that.
    monkeypatch.setattr(run_rows, "MOST_AUDIO_BYTES", 3 * one)
    assert len(run.select([0, 20]).to_pandas(audio=True)) == 2
    assert len(run.to_pandas()) == 21
