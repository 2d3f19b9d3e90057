"""What a run's folder tells: rows in the table's order, whoever writes, whatever was cut."""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rooms.run_folders import Writer, frame_of, make_run, new_folder

from speechframe.errors import StoreError
from speechframe.store.folder import Folder
from speechframe.store.reader import StoredRun

FINISHED = {"done", "suspect", "cached"}
TEXTS = ["a", "b", "c"]
answers = st.tuples(
    st.sampled_from(TEXTS),
    st.sampled_from(["done", "suspect", "cached", "failed", "charged_unknown"]),
    st.integers(0, 3),
)


def expected(said, text, take):
    """Return the (take, status) that represents a row, by the rule as it is written."""
    own = said.get((text, take))
    if own not in FINISHED:
        earlier = [t for t in range(take - 1, -1, -1) if said.get((text, t)) in FINISHED]
        return (earlier[0], said[text, earlier[0]]) if earlier else (take, own)
    later = take + 1
    while own == "suspect" and (text, later) in said:
        if said[text, later] == "done":
            return later, "done"
        later += 1
    return take, own


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.one_of(answers, st.just("cut")), max_size=25),
    st.lists(st.tuples(st.sampled_from(TEXTS), st.integers(0, 3)), min_size=1, max_size=9),
)
def test_every_row_has_the_record_that_represents_it(events, rows):
    with tempfile.TemporaryDirectory() as path:
        folder = new_folder(Path(path))
        make_run(folder, frame_of([text for text, _ in rows]), takes=[take for _, take in rows])
        run, writer, said = StoredRun(folder), Writer(folder), {}
        segment = {}
        for event in events:
            if event == "cut":
                writer.cut()
                segment = {}
            else:
                text, status, take = event
                if (text, take) in segment and segment[text, take] in FINISHED:
                    continue  # within a segment a call is not made again
                segment[text, take] = said[text, take] = status
                writer.answer(text, status, take)
        wanted = [expected(said, text, take) for text, take in rows]
        assert run.statuses() == [status or "pending" for _, status in wanted]
        found = run.to_arrow(audio=True).to_pylist()
        for (text, _), (take, status), row in zip(rows, wanted, found, strict=True):
            assert row["status"] == (status or "pending")
            assert row["take"] == (take if status else None)
            if status in FINISHED:
                assert row["audio"]["bytes"] == f"audio of {text} {take}".encode()
        places = np.arange(len(rows))[::-1].tolist()
        assert run.rows_at(places, ["status"]).column(0).to_pylist() == [row["status"] for row in found][::-1]
        writer.log.close()


@pytest.fixture
def folder(tmp_path):
    return new_folder(tmp_path / "run")


class CutsWhileItIsListed(Folder):
    """A folder in which another process cuts a segment between two steps of a reader."""

    cut = None

    def names(self, folder):
        found = super().names(folder)
        if folder == "attempts" and self.cut is not None:
            cut, self.cut = self.cut, None
            cut()
        return found


@pytest.mark.parametrize("read", [StoredRun.statuses, lambda run: run.ledger["status"].tolist()])
def test_a_segment_that_is_cut_while_it_is_looked_for_is_found(tmp_path, read):
    folder = CutsWhileItIsListed(tmp_path / "run")
    make_run(folder, frame_of(["a"]))
    writer = Writer(folder)
    writer.answer("a")
    run = StoredRun(folder)
    folder.cut = writer.cut
    assert read(run) == ["done"]
    writer.log.close()


def test_a_record_that_was_found_in_the_journal_is_read_after_it_was_cut(folder):
    make_run(folder, frame_of(["a", "b", "c"]))
    writer = Writer(folder)
    for text, status in (("c", "failed"), ("b", "done"), ("a", "done")):
        writer.answer(text, status)
    run = StoredRun(folder)
    joined = run.joined(None, audio=True)
    writer.cut()
    (batch,) = joined.batches()
    heard = [row["audio"] and row["audio"]["bytes"] for row in batch.to_pylist()]
    assert heard == [b"audio of a 0", b"audio of b 0", None]
    writer.log.close()


WRITE = """
import sys
from pathlib import Path
from tests.rooms.run_folders import Writer, new_folder
writer = Writer(new_folder(Path(sys.argv[1])))
for number in range(2000):
    writer.answer(f"text {number}", "done" if number % 7 else "failed")
    if number % 20 == 19:
        writer.cut()
writer.log.close()
"""


def test_readers_see_every_call_that_has_ended_while_another_process_writes(folder):
    texts = [f"text {number}" for number in range(2000)]
    make_run(folder, frame_of(texts))
    run, seen = StoredRun(folder), 0
    with subprocess.Popen([sys.executable, "-c", WRITE, str(folder.path)]) as process:
        is_over = False
        while not is_over:
            is_over = process.poll() is not None
            statuses = run.statuses()
            ended = len(texts) - statuses.count("pending")
            assert statuses[:ended].count("pending") == 0
            assert ended >= seen
            first = max(0, ended - 40)
            for row in (
                run.select(map(str, range(first, ended))).to_arrow(["text", "audio"], audio=True).to_pylist()
            ):
                place = int(row["text"].split()[1])
                heard = f"audio of {row['text']} 0".encode() if place % 7 else None
                assert (row["audio"] and row["audio"]["bytes"]) == heard
            assert len(run.ledger) >= ended
            seen = ended
    assert process.returncode == 0
    assert seen == len(texts)


def test_the_caller_s_columns_and_index_come_back_and_ours_are_beside_them(folder):
    frame = pd.DataFrame(
        {
            "text": ["a", "b", "c"],
            "status": ["mine"] * 3,
            "row_id": [7, 8, 9],
            "n": pd.array([1, None, 3], "Int64"),
        },
        index=pd.Index([10, 20, 30], name="line"),
    )
    make_run(folder, frame, names={"status": "speech_status"}, invalid={1})
    writer = Writer(folder)
    writer.answer("a", warnings=["pause of 70 s was clamped", "pause of 80 s was clamped"])
    run = StoredRun(folder)
    found = run.to_pandas()
    assert found["speech_status"].tolist() == ["done", "invalid", "pending"]
    assert found["speech_row_id"].tolist() == ["10", "20", "30"]
    pd.testing.assert_frame_equal(found[list(frame.columns)], frame)
    assert run.failed.index.tolist() == [20]
    assert run.warnings["row_id"].tolist() == ["10", "10"]
    assert set(run.warnings["kind"]) == {"pause of … s was clamped"}
    assert run.select(lambda frame: frame["speech_status"] == "pending").to_pandas().index.tolist() == [30]
    assert run.select(found[found["n"] == 3]).positions == (2,)
    assert run.select(["30", 10]).positions == (0, 2)
    with pytest.raises(KeyError, match="no row has the id"):
        run.select(["40"])
    with pytest.raises(ValueError, match="mask"):
        run.select([True])
    assert run.sample(5).positions == (0,)
    assert run.clip("10").audio == b"audio of a 0"
    with pytest.raises(KeyError, match="invalid"):
        run.clip(20)
    schema, batches = run.select(["10", "30"]).as_batches(["credits"])
    ((batch, ids),) = batches
    assert ids == ["10", "30"]
    assert batch.schema == schema
    assert batch.column("credits").to_pylist() == [1.0, None]
    assert "speech_status" not in schema.names
    assert run.stats["credits"] == 1.0
    writer.log.close()


def test_a_counted_index_keeps_its_numbers_in_selections(folder):
    make_run(folder, frame_of(["a", "b", "c"]))
    run = StoredRun(folder)
    assert run.select([False, True, True]).to_pandas().index.tolist() == [1, 2]
    assert run.to_pandas().index.equals(pd.RangeIndex(3))


def test_batches_with_audio_hold_little_of_it(folder, monkeypatch):
    texts = [f"text {number}" for number in range(150)]
    make_run(folder, frame_of(texts))
    writer = Writer(folder)
    for text in texts[:140]:
        writer.answer(text, audio=b"x" * 1_000_000)
    writer.cut()
    for text in texts[140:]:
        writer.answer(text, audio=b"x" * 1_000_000)
    sizes = [batch.nbytes for batch in StoredRun(folder).batches(["audio"])]
    assert sum(sizes) > 150_000_000
    assert max(sizes) < 35 << 20
    monkeypatch.setattr("speechframe.store.rows.MOST_AUDIO_BYTES", 1 << 20)
    with pytest.raises(StoreError, match=r"batches\(\)"):
        StoredRun(folder).to_pandas(audio=True)
    writer.log.close()


def test_reviews_are_of_the_audio_that_was_heard(folder):
    make_run(folder, frame_of(["a", "b"]))
    writer = Writer(folder)
    writer.answer("a")
    run = StoredRun(folder)
    run.review(0, "reject", comment="odd")
    run.review("0", comment="")
    (said,) = run.reviews.to_dict("records")
    assert said["verdict"] == "reject"
    assert said["comment"] is None
    assert said["sha256"] == hashlib.sha256(b"audio of a 0").hexdigest()
    assert said["is_current"]
    writer.cut()
    writer.answer("a", audio=b"another")
    run.review("0", comment="still odd")
    assert not run.reviews["is_current"].any()
    writer.log.close()


def test_other_tools_read_the_parts_and_what_is_found_is_audio(folder):
    make_run(folder, frame_of(["a"]))
    writer = Writer(folder)
    writer.answer("a")
    writer.cut()
    run = StoredRun(folder)
    assert run.dataset.to_table().num_rows == 1
    assert b"huggingface" in run.to_arrow(audio=True).schema.metadata
    assert run.ledger["credits"].tolist() == [1.0]
    assert run.newest(3) == run.to_arrow(["request_key"]).column(0).to_pylist()
    assert run.clip_of_call(run.newest(1)[0]).audio == b"audio of a 0"
    for unknown in ("", "z" * 32, "0" * 32):
        with pytest.raises(KeyError, match="has no audio"):
            run.clip_of_call(unknown)
    assert run.snapshot().index.packed({"done"}).hex() == run.newest(1)[0]
    assert pa.types.is_struct(run.to_arrow(audio=True).schema.field("audio").type)
    writer.log.close()
