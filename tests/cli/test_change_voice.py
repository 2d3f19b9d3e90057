"""``speechframe change-voice``: a table with a column of clips, audio files as they are, or a folder of them."""

import json

import pytest
from changer_lab import KEY, Changer, clip


@pytest.fixture
def changer():
    made = Changer().up()
    yield made
    made.down()


@pytest.fixture
def change(cli, changer, tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.wav").write_bytes(clip(i, 0.5 + i / 10))

    def call(*words):
        return cli("change-voice", *words, "--voice", "nora", "--run-dir", "run", "--json",
                   env={"SPEECHFRAME_API_KEY": KEY, "SPEECHFRAME_BASE_URL": changer.url})  # fmt: skip

    return call


def test_one_clip_is_one_call_and_short_ones_are_seconds(cli, change, changer):
    env = {"SPEECHFRAME_API_KEY": KEY, "SPEECHFRAME_BASE_URL": changer.url}
    ended = cli("change-voice", "1.wav", "--voice", "nora", "--run-dir", "run", env=env)
    lines = ended.out.splitlines()
    assert lines[0] == "change_voice: finished; 1 row: 1 done"
    assert lines[1].startswith("0.6 s of audio; 9 credits in all on ")
    assert lines[2].startswith("1 call in ")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("words", [["0.wav", "1.wav", "2.wav"], ["."]])
def test_audio_files_and_folders_are_tables(change, changer, words):
    ended = change(*words)
    assert ended.code == 0, ended.err
    said = json.loads(ended.out)
    assert (said["operation"], said["done"], said["credits"]) == ("change_voice", 3, 27.0)
    assert "3 calls, 1.8 s of audio, 27 credits" in ended.err
    assert changer.spent == 27.0


def test_a_table_names_its_column_of_clips(change, changer, tmp_path):
    (tmp_path / "clips.csv").write_text("id,path,accent\na,0.wav,yes\nb,1.wav,no\n")
    ended = change(
        "clips.csv", "--audio", "path", "--id", "id", "--retain-accent-col", "accent", "--format", "MP3"
    )
    assert ended.code == 0, ended.err
    assert [request.fields.get("retain_accent") for request in sorted(changer.seen, key=lambda r: r.seconds)] == [
        None, "false",
    ]  # fmt: skip
    assert {request.fields["format"] for request in changer.seen} == {"MP3"}


def test_a_bad_clip_is_a_problem_and_nothing_is_sent(change, changer, tmp_path):
    (tmp_path / "bad.wav").write_text("no audio")
    ended = change("0.wav", "bad.wav")
    assert ended.code not in {0, 2}
    assert "audio" in ended.err
    assert "nothing was sent" in ended.err
    assert changer.seen == []


def test_a_missing_file_is_a_usage_error(change):
    ended = change("0.wav", "none.wav")
    assert (ended.code, "none.wav does not exist" in ended.err) == (2, True)


def test_help_says_what_a_table_may_be(cli):
    words = " ".join(cli("change-voice", "--help").out.split())
    assert "change-voice TABLE|AUDIO... (--voice VOICE | --voice-col COLUMN) [options]" in words
    assert "or audio files, or a folder of them" in words
    assert "--audio COLUMN" in words
    assert "Every clip of table in another voice." in " ".join(cli("--help").out.split())
