"""The ledger folder: complete as far as it says, and in the way of no run."""

import shutil

import pytest
from tests.rooms.scripted import begun, make

import speechframe as spf


@pytest.fixture(autouse=True)
def ledger(monkeypatch, tmp_path):
    folder = tmp_path / "ledger"
    monkeypatch.setenv("SPEECHFRAME_LEDGER", str(folder))
    return folder


def test_what_a_run_under_way_has_spent_counts_and_the_table_says_what_it_waits_for(tmp_path):
    make(tmp_path / "before", ["x", "y"])
    live = begun(tmp_path / "live", ["a", "b", "slow"], 2)
    found = spf.usage(every=None)
    assert found["answered"].item() == 4
    assert f"(more is to come from {tmp_path / 'live'} on " in found.covers
    # As a kill would leave it, on a machine that cannot read it.
    shutil.copytree(tmp_path / "ledger", tmp_path / "copy")
    for note in (tmp_path / "copy" / "open").iterdir():
        note.write_text(note.read_text().replace('"host": "', '"host": "not '))
    elsewhere = spf.usage(tmp_path / "copy", every=None)
    assert elsewhere["answered"].item() == 2
    assert "more is to come" in elsewhere.covers
    shutil.copytree(tmp_path / "live", tmp_path / "before the end")
    live.stop(drain=False)
    live.wait()
    assert list((tmp_path / "ledger" / "open").iterdir()) == []
    found = spf.usage(every=None)
    assert (found["answered"].item(), found["failed"].item()) == (4, 1)
    assert "more is to come" not in found.covers
    assert (
        spf.usage([tmp_path / "before", tmp_path / "live"], every=None)["credits"].item()
        == found["credits"].item()
    )

    # Killed after its attempts were put into the ledger, and before that was written down in its own folder.
    shutil.rmtree(tmp_path / "live")
    shutil.copytree(tmp_path / "before the end", tmp_path / "live")
    shutil.copytree(tmp_path / "copy" / "open", tmp_path / "ledger" / "open", dirs_exist_ok=True)
    for note in (tmp_path / "ledger" / "open").iterdir():
        note.write_text(note.read_text().replace('"host": "not ', '"host": "'))
    assert spf.usage(every=None)["credits"].item() == found["credits"].item()


def test_spending_outlives_run_folders_and_equal_calls_that_were_not_paid_are_saved(tmp_path):
    make(tmp_path / "run", ["a", "a", "a", "b"], cache=tmp_path / "cache")
    make(tmp_path / "again", ["a", "b", "b"], cache=tmp_path / "cache")
    shutil.rmtree(tmp_path / "run")
    found = spf.usage(group_by="status", every=None).set_index("status")
    assert found["saved"].to_dict() == {"done": 2, "cached": 3}
    assert found["credits"].to_dict() == {"done": 2, "cached": 0}


def test_a_ledger_that_cannot_be_written_stops_a_run_before_anything_is_sent_if_it_was_chosen(
    tmp_path, ledger, monkeypatch, capsys
):
    ledger.write_text("a file, no folder")
    with pytest.raises(spf.StoreError, match="writing the ledger"):
        make(tmp_path / "run", ["a"])
    monkeypatch.delenv("SPEECHFRAME_LEDGER")
    (tmp_path / "speechframe").mkdir()
    (tmp_path / "speechframe" / "ledger").write_text("a file, no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run = make(tmp_path / "run", ["a"], progress=True)
    assert run.stats["done"] == 1
    assert "what this run spends is in its own folder only" in capsys.readouterr().err


def test_what_another_run_spends_in_the_folder_of_a_lost_one_counts_once(tmp_path):
    lost = begun(tmp_path / "run", ["a", "slow"], 1)
    shutil.copytree(tmp_path / "ledger", tmp_path / "as a kill leaves it")
    lost.stop(drain=False)
    lost.wait()
    shutil.rmtree(tmp_path / "run")
    shutil.rmtree(tmp_path / "ledger")
    shutil.copytree(tmp_path / "as a kill leaves it", tmp_path / "ledger")
    live = begun(tmp_path / "run", ["x", "y", "slow"], 2)
    assert spf.usage(every=None)["answered"].item() == 2
    live.stop(drain=False)
    live.wait()
