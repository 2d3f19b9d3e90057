"""``speechframe change-voice``: a table with a column of clips, audio files as they are, or a folder of them."""

import json

import numpy as np
import pytest
import soundfile

from speechframe import open_run


@pytest.fixture
def change(here, tmp_path):
    for i in range(3):
        frames = np.arange(4000 + 800 * i)
        soundfile.write(tmp_path / f"{i}.wav", 0.4 * np.sin(frames * 2 * np.pi * (110 + i) / 8000), 8000)
    return lambda *words: here("change-voice", *words, "--run-dir", "run")


def test_audio_files_and_folders_are_tables(change):
    ended = change("1.wav", "--voice", "nora", "--no-progress")
    lines = ended.out.splitlines()
    assert lines[0] == "change_voice: finished; 1 row: 1 done"
    assert lines[1].startswith("0.6 s of audio; 9 credits in all on ")
    assert lines[2].startswith("1 call in ")
    ended = change(".", "--voice", "nora", "--json")
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert (said["operation"], said["done"], said["credits"]) == ("change_voice", 3, 27.0)
    # The one that was changed before is not paid for again.
    assert "1 done before, 2 calls, 1.2 s of audio, 18 credits" in ended.err


def test_a_table_names_its_column_of_clips(change, tmp_path):
    (tmp_path / "clips.csv").write_text("id,path,who\na,0.wav,nora\nb,1.wav,hank\n")
    ended = change("clips.csv", "--audio", "path", "--id", "id", "--voice-col", "who", "--format", "MP3")
    assert ended.code == 0, ended.err
    found = open_run(tmp_path / "run").to_pandas()
    assert [voice.rpartition("-")[2] for voice in found["voice_id"]] == ["nora", "hank"]
    assert set(found["format"]) == {"MP3"}


def test_a_bad_clip_is_a_problem_and_nothing_is_sent(change, tmp_path):
    (tmp_path / "bad.wav").write_text("no audio")
    ended = change("0.wav", "bad.wav", "--voice", "nora")
    assert ended.code not in {0, 2}
    assert "audio" in ended.err
    assert "nothing was sent" in ended.err
    ended = change("0.wav", "none.wav", "--voice", "nora")
    assert (ended.code, "none.wav does not exist" in ended.err) == (2, True)


def test_help_says_what_a_table_may_be(here):
    words = " ".join(here("change-voice", "--help").out.split())
    assert "change-voice TABLE|AUDIO... (--voice VOICE | --voice-col COLUMN) [options]" in words
    assert "or audio files, or a folder of them" in words
    assert "--audio COLUMN" in words
    assert "Convert each clip of a table to another voice." in " ".join(here("--help").out.split())
