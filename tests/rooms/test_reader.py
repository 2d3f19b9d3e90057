"""What a run's folder tells: rows in the table's order, whoever writes, whatever was cut."""

import hashlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rooms.scripted import Scripted, begun, heard, make

import speechframe as spf
from speechframe.store.records import CODE_BY_STATUS, Index, pack_keys
from speechframe.store.schema import compute_call_key

FINISHED = {"done", "suspect", "cached"}
BASE_KEYS = [hashlib.blake2b(text, digest_size=16).hexdigest() for text in (b"a", b"b", b"c")]
calls = st.tuples(st.sampled_from(BASE_KEYS), st.integers(0, 3))
records = st.tuples(calls, st.sampled_from(["done", "suspect", "cached", "failed", "charged_unknown"]))


def expected(said, rejected, key, take):
    """Return the take and status that represent a row, by the rule as it is written."""
    own = said.get((key, take))
    if own not in FINISHED:
        earlier = [
            t for t in range(take - 1, -1, -1) if said.get((key, t)) in FINISHED and (key, t) not in rejected
        ]
        return (earlier[0], said[key, earlier[0]]) if earlier else (take, own)
    good, later = [], take + 1
    while own == "suspect" and (key, later) in said:
        good += [later] if said[key, later] in {"done", "cached"} else []
        later += 1
    chosen = [*(one for one in good if (key, one) not in rejected), *good, take][0]
    return chosen, said[key, chosen]


@settings(max_examples=50)
@given(
    st.lists(st.lists(records, max_size=8), max_size=4),
    st.lists(calls, min_size=1, max_size=9),
    st.sets(calls),
)
def test_every_row_has_the_record_that_represents_it(segments, rows, rejected):
    notes = {
        number: (pack_keys([compute_call_key(*call) for call, _ in of_one]),
                 np.array([CODE_BY_STATUS[status] for _, status in of_one], np.uint8))
        for number, of_one in enumerate(segments)
    }  # fmt: skip
    index, said = Index(notes), dict(record for of_one in segments for record in of_one)
    keys, takes = zip(*rows, strict=True)
    of_rejected = pack_keys([compute_call_key(*call) for call in rejected])
    are_rejected = lambda positions: np.isin(index.keys[positions], of_rejected)  # noqa: E731
    positions = index.find_shown_records(pa.array(keys), np.array(takes), are_rejected)
    found = index.get_statuses(positions).to_pylist()
    for call, position, status in zip(rows, positions, found, strict=True):
        take, own = expected(said, rejected, *call)
        assert status == (own or "pending")
        wanted = pack_keys([compute_call_key(call[0], take)])[0] if own else None
        assert wanted is None or index.keys[position] == wanted


def test_rows_that_were_found_in_the_journal_are_read_after_it_became_a_part(tmp_path):
    texts = ["failed", *(f"line {number}" for number in range(30)), "slow"]
    live = begun(tmp_path / "run", texts, 31)
    reader = spf.open_run(live.path).batches(["audio"])
    batches = [next(reader)]
    assert not list(live.path.glob("parts/*"))
    live.stop(drain=False)
    live.wait()
    assert list(live.path.glob("parts/*"))
    audio = [
        row["audio"] and row["audio"]["bytes"] for batch in [*batches, *reader] for row in batch.to_pylist()
    ]
    assert audio == [None, *map(heard, texts[1:-1]), None]


@pytest.mark.slow
def test_readers_see_every_call_that_has_ended_while_parts_are_written(tmp_path):
    texts = [f"{'failed' if number % 7 == 0 else 'line'} {number}" for number in range(2600)]
    live, seen = begun(tmp_path / "run", texts, 1), 0
    while seen < len(texts):
        ended = live.progress.ended
        run = spf.open_run(live.path)
        rows = run.to_arrow(["status", "text"]).to_pylist()
        now = sum(row["status"] != "pending" for row in rows)
        assert now >= max(ended, seen)
        assert all(row["status"] in {"done", "failed"} for row in rows[:now])
        for number in range(max(0, now - 20), now):
            assert rows[number]["text"] == texts[number]
            if number % 7:
                assert run.clip(number).audio == heard(texts[number])
        seen = now
    live.wait()
    assert len(run.part_files) >= 2


def test_the_caller_s_columns_and_index_come_back_and_rows_are_chosen_by_them(tmp_path):
    frame = pd.DataFrame(
        {"text": ["warned 70", "invalid", "line", "last"], "status": ["mine"] * 4, "row_id": [7, 8, 9, 9],
         "n": pd.array([1, None, 3, 4], "Int64")},
        index=pd.Index([10, 20, 30, 40], name="line"),
    )  # fmt: skip
    run = spf.open_run(make(tmp_path / "run", frame, max_credits=1).path)
    found = run.to_pandas()
    assert found["speech_status"].tolist() == ["done", "invalid", "pending", "pending"]
    assert found["speech_row_id"].tolist() == ["10", "20", "30", "40"]
    pd.testing.assert_frame_equal(found[list(frame.columns)], frame)
    assert run.failed.index.tolist() == [20]
    assert run.warnings.to_numpy().tolist() == [
        ["10", "pause of … s was clamped", "pause of 70 s was clamped"], ["10", "slow", "slow"]
    ]  # fmt: skip
    for rows in (
        lambda frame: frame["speech_status"] == "pending",
        found[found["n"] > 2],
        ["40", 30],
        [False, False, True, True],
    ):
        assert sorted(run.select(rows).to_pandas().index) == [30, 40]
    with pytest.raises(KeyError, match="no row has the id"):
        run.select(["50"])
    with pytest.raises(ValueError, match="mask"):
        run.select([True])
    assert run.sample(5).to_pandas().index.tolist() == [10]
    assert run.clip("10").audio == heard("warned 70")
    with pytest.raises(KeyError, match="invalid"):
        run.clip(20)
    assert make(tmp_path / "counted", ["a", "b"]).to_pandas().index.equals(pd.RangeIndex(2))


def test_batches_with_audio_hold_little_of_it(tmp_path):
    run = make(tmp_path / "run", map(str, range(50)), backend=Scripted(audio=lambda *_: bytes(1_000_000)))
    sizes = [batch.nbytes for batch in run.batches(["audio"])]
    assert sum(sizes) > 50_000_000
    assert max(sizes) < 35 << 20
