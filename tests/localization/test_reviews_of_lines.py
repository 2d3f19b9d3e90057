"""The next run keeps the audio that a reviewer kept, and speaks the texts that a reviewer corrected."""

import pandas as pd
import pytest

import speechframe as spf


@pytest.fixture
def table():
    return pd.DataFrame({"id": list("ab"), "text": ["Good morning.", "See you soon."]})


def test_kept_audio_stays_when_only_the_voice_changes(speak, sent, table):
    run = speak(table)
    kept = run.clip("a").audio
    run.review("a", "keep")
    run = speak(table, voice="en-US-hank", lock="kept")
    frame = run.to_pandas().set_index("id")
    assert (sent(run), run.clip("a").audio) == (3, kept)
    assert list(frame["held_back"].fillna("")) == ["voice", ""]
    assert "1 row: kept audio is not made again (changed: voice)" in run.summary()
    assert list(frame["voice_id"]) == ["en-US-nora", "en-US-hank"]
    # A row that is asked for is made with its new voice.
    run = spf.resume(run, redo=["a"], progress=False)
    frame = run.to_pandas().set_index("id")
    assert (sent(run), frame.loc["a", "voice_id"]) == (4, "en-US-hank")
    assert frame["held_back"].isna().all()
    assert sent(speak(table, voice="en-US-hank")) == 4


def test_a_new_text_is_spoken_and_the_kept_audio_stays_at_hand(speak, table):
    run = speak(table)
    kept = run.clip("a").audio
    run.review("a", "keep")
    table.loc[0, "text"] = "Good evening."
    for _ in range(2):  # also in the sprint after that
        run = speak(table, lock="kept")
        row = run.to_pandas().set_index("id").loc["a"]
        assert row["status"] == "done"
        assert run.clip("a").audio != kept
        assert run.clip_of_call(row["last_kept"]).audio == kept


def test_the_last_kept_audio_is_delivered_while_there_is_no_new_one(speak, table, tmp_path):
    run = speak(table)
    kept = run.clip("a").audio
    run.review("a", "keep")
    stale = table.assign(translation_state=["stale", "current"])
    run = speak(stale, lock="kept", spoken=True)
    assert run.to_pandas().set_index("id").loc["a", "status"] == "skipped"
    report = spf.export(
        run.with_last_kept(), tmp_path / "out", name="{id}", formats=["files"], progress=False
    )
    assert (report.clips, run.with_last_kept().clip("a").audio) == (2, kept)
    assert spf.export(run, tmp_path / "less", formats=["files"], progress=False).clips == 1


def test_a_lock_needs_the_folder_of_the_reviewed_run(speak, table):
    with pytest.raises(spf.SettingsError, match="run_dir"):
        speak(table, lock="kept", run_dir=None)
    with pytest.raises(spf.SettingsError, match="kept"):
        speak(table, lock="all")


def test_a_corrected_text_is_spoken_until_the_written_text_changes(speak, sent, table):
    run = speak(table)
    run.review("b", "reject", corrected_text="See you later.")
    planned = spf.resume(run, redo="corrected", dry_run=True, progress=False)
    assert planned.estimate.credits == len("See you later.")
    run = spf.resume(run, redo="corrected", progress=False)
    frame = run.to_pandas().set_index("id")
    assert frame.loc["b", ["spoken_text", "corrected_from"]].tolist() == ["See you later.", "See you soon."]
    assert (run.clip("b").text, sent(run)) == ("See you later.", 3)
    assert frame.loc["a", "corrected_from"] is None or pd.isna(frame.loc["a", "corrected_from"])
    # The correction stays in the next sprint, and is not paid again.
    run = speak(table)
    assert (run.clip("b").text, sent(run)) == ("See you later.", 3)
    table.loc[1, "text"] = "See you tomorrow."
    assert speak(table).clip("b").text == "See you tomorrow."


def test_a_correction_that_cannot_be_spoken_is_refused(speak, sent, table):
    run = speak(table)
    run.review("b", "reject", corrected_text="…")
    with pytest.raises(spf.InvalidRows, match="corrected"):
        spf.resume(run, redo="corrected", progress=False)
    assert sent(run) == 2
