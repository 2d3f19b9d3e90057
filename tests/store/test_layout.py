"""A run folder of every layout that was ever released opens, with everything in it."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from store_cases import MOMENT, audio_of, check_whole, key_of, sent

from speechframe.old_store import RunFolder

RELEASED = Path(__file__).parent / "layout-1"


@pytest.fixture
def old(tmp_path):
    """A copy of the folder as its killed writer left it."""
    shutil.copytree(RELEASED, tmp_path / "run")
    return RunFolder.open(tmp_path / "run")


def test_it_is_small():
    assert sum(path.stat().st_size for path in RELEASED.rglob("*") if path.is_file()) < 50_000


def test_its_manifest_is_understood(old):
    said = old.manifest
    assert (said.layout, said.run_id, said.operation, said.service) == (
        1,
        "run-1",
        "generate",
        "local/espeak-1",
    )
    assert (said.options, said.local, said.audio_format) == ({"voice": "en-US-nora"}, True, "FLAC")
    assert (said.tables[0].rows, said.tables[0].id_column) == (8, "line")


def test_it_is_readable_before_it_is_recovered(old):
    assert old.keys() == {
        key_of(0): "done",
        key_of(1): "done",
        key_of(2): "failed",
        key_of(3): "charged_unknown",
        key_of(4): "done",
        key_of(5): "suspect",
    }
    for number in (1, 4, 5):
        assert old.clip_bytes(key_of(number)) == audio_of(key_of(number))
    assert old.ledger().num_rows == 6


def test_its_log_is_recovered(old):
    with old.lock():
        found = old.recover()
    assert (found.records, found.torn_bytes, found.damaged_bytes) == (2, 9, 0)
    assert found.unknown == {key_of(number): sent(key_of(number), time=MOMENT) for number in (3, 6)}
    rows = check_whole(old)
    assert [rows[key_of(n)]["status"] for n in range(7)] == [
        "done", "done", "failed", "charged_unknown", "done", "suspect", "charged_unknown",
    ]  # fmt: skip
    assert rows[key_of(4)]["word_durations"][1] == {"word": "of", "start_ms": 120, "end_ms": 260}
    assert rows[key_of(5)]["finished_at"] == MOMENT
    ledger = old.ledger().sort_by("request_key").to_pylist()
    assert len(ledger) == 7
    assert {row["credits"] for row in ledger} == {9.5}
    assert {row["host"] for row in ledger} == {None, "studio"}
    joined = pa.Table.from_batches(old.joined()).to_pylist()
    assert [row["status"] for row in joined][-2:] == ["charged_unknown", "invalid"]
