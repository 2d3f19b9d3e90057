"""Several calls made as one: all of their entries are in the log, or none, wherever the log is cut off."""

import pytest

from speechframe.errors import StoreError
from speechframe.old_store import LedgerRow, Record, RunFolder, RunManifest, SentRecord
from speechframe.old_store.log import HEADER_BYTES

KEYS = [f"{i:032x}" for i in range(5)]


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run", RunManifest("r1", "translate"))


def _answers():
    rows = [LedgerRow(key, "done", credits_millis=1000, credits_basis="computed") for key in KEYS]
    return list(zip([Record(key, "done", translated_text=f"said {key}") for key in KEYS], rows, strict=True))


def test_what_is_noted_together_is_read_one_by_one(folder):
    with folder.lock():
        writer = folder.writer()
        writer.sent_together([SentRecord(key, idempotency_key="r1-x") for key in KEYS])
        writer.answer_together(_answers())
        assert set(folder.keys().values()) == {"done"}
        writer.close()
    assert folder.keys() == dict.fromkeys(KEYS, "done")
    assert folder.row(KEYS[3])["translated_text"] == f"said {KEYS[3]}"
    assert folder.ledger().num_rows == len(KEYS)
    assert folder.verify() == []


def test_a_process_that_died_after_sending_knows_every_call_of_it(folder):
    with folder.lock():
        writer = folder.writer()
        writer.sent_together([SentRecord(key, idempotency_key="r1-x", millicredits=9) for key in KEYS])
        log = next((folder.path / "log").rglob("*.log"))
        kept = log.read_bytes()
        writer.close()
    again = RunFolder.create(folder.path.with_name("again"), RunManifest("r1", "translate"))
    for path in folder.path.rglob("*.log"):
        path.unlink()
    there = again.path / "log" / log.parent.name
    there.mkdir(parents=True)
    (there / log.name).write_bytes(kept)
    assert len(kept) > len(KEYS) * HEADER_BYTES
    with again.lock():
        unknown = again.recover().unknown
    assert {key: sent.idempotency_key for key, sent in unknown.items()} == dict.fromkeys(KEYS, "r1-x")


def test_a_closed_writer_takes_nothing(folder):
    with folder.lock():
        writer = folder.writer()
        writer.close()
        with pytest.raises(StoreError, match="closed"):
            writer.sent_together([SentRecord(KEYS[0])])
        with pytest.raises(StoreError, match="closed"):
            writer.answer_together(_answers())
    assert folder.keys() == {}
