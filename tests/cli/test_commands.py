"""The small commands: voices, say, spec, serve."""

import json
import re
import signal
import socket
import urllib.request

import pytest
import soundfile

from speechframe.cli import exits
from speechframe.spec.pages import render
from speechframe.spec.speech import Model


def test_voices_are_an_aligned_table(here):
    said = here("voices", "--locale", "fr-FR")
    assert said.code == 0
    lines = said.out.partition("\n\n")[0].splitlines()
    start = lines[0].index("LOCALE")
    assert lines[0].split()[:2] == ["VOICE", "ID"]
    assert len({line[start : start + 5] for line in lines[1:]}) > 1
    assert all(line[start - 1] == " " and line[start] != " " for line in lines)
    # Who speaks it as a first language comes first.
    assert lines[1].startswith("fr-FR-")
    assert not any(line.startswith("sv-SE") for line in lines)


def test_the_clearest_voice_of_a_locale_is_marked(here):
    said = here("voices", "--locale", "pt-BR")
    lines = said.out.partition("\n\n")[0].splitlines()
    errors = {line.split()[0]: re.search(r"pt-BR (0\.\d\d)(\*?)", line) for line in lines}
    found = {voice: (float(error[1]), error[2]) for voice, error in errors.items() if error}
    (clearest,) = (voice for voice, (_, mark) in found.items() if mark)
    assert found[clearest][0] == min(error for error, _ in found.values()) < 0.15
    assert found["pt-BR-larissa"][0] > 0.5
    assert "that a recogniser gets wrong" in said.out
    assert "\n*: clearest voice" in said.out


@pytest.mark.parametrize("model", [model.value for model in Model])
def test_voices_as_json_are_one_line(here, model):
    said = here("voices", "--model", model, "--json")
    found = json.loads(said.out)
    assert said.out.count("\n") == 1
    assert {"voice_id", "locale", "styles", "supported_locales"} <= set(found[0])
    assert isinstance(found[0]["styles"], list)
    assert ("en-US-nora" in {voice["voice_id"] for voice in found}) == (model == "gen2")


def test_no_voice_is_said(here):
    said = here("voices", "--locale", "tlh")
    assert said.code == 3
    assert "is spoken by no voice" in said.err


@pytest.mark.parametrize("ending", ["wav", "mp3"])
def test_say_writes_the_file_in_the_format_of_its_ending(here, tmp_path, ending):
    said = here("say", "Good morning.", "--voice", "nora", "-o", f"out.{ending}")
    assert (said.code, said.out) == (0, f"out.{ending}\n")
    info = soundfile.info(tmp_path / f"out.{ending}")
    assert info.format in {ending.upper(), "MPEG", "MP3"}
    assert 0.3 < info.duration < 3
    assert "13 credits" in said.err


def test_say_without_a_name_makes_one_and_never_overwrites(here, tmp_path):
    names = [
        here("say", "Good morning / to [pause 0.2s] you!", "--voice", "nora").out.strip() for _ in range(2)
    ]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"good-morning[\w-]*-en-US-nora(-2)?\.flac", name) for name in names)
    assert all(soundfile.info(tmp_path / name).frames > 0 for name in names)


def test_say_takes_the_options_of_the_verb(here, tmp_path):
    words = ["say", "Good morning.", "--voice", "nora", "--sample-rate", "8000", "--channel-type", "STEREO"]
    assert "-col" not in here("say", "--help").out
    said = json.loads(here(*words, "--audio-duration", "2", "-o", "a.wav", "--json").out)
    info = soundfile.info(tmp_path / "a.wav")
    assert (info.samplerate, info.channels) == (8000, 2)
    assert info.duration == pytest.approx(2, abs=0.01)
    assert (said["file"], said["voice_id"], said["credits"]) == ("a.wav", "en-US-nora", 13)
    assert [word["word"] for word in said["word_durations"]] == ["Good", "morning"]


def test_say_writes_to_standard_output(cli):
    said = cli("say", "Good morning.", "--voice", "nora", "--format", "WAV", "-o", "-")
    assert said.code == 0
    assert said.raw[:4] == b"RIFF"


def test_say_refuses_before_anything_is_spent(here, tmp_path):
    said = here("say", "Good morning.", "--voice", "nora", "--pitch", "99")
    assert said.code == exits.ROWS_INVALID
    assert "pitch" in said.err
    assert list(tmp_path.iterdir()) == []


def test_spec_prints_the_document(here):
    assert here("spec").out == render.render_markdown() + "\n"
    assert json.loads(here("spec", "--format", "json-schema").out) == render.build_json_schema()
    assert json.loads(here("spec", "--format", "openapi").out) == render.build_openapi()


def test_serve_is_the_service(start, tmp_path):
    process = start("serve", "--port", "0", "--data", tmp_path / "data", "--json", "--workers", "1")
    said = json.loads(process.stdout.readline())
    with urllib.request.urlopen(said["url"] + "/healthz") as answer:
        assert json.load(answer)["status"] == "ok"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == exits.OK
    assert b"Traceback" not in process.stderr.read()


def test_serve_says_why_it_cannot_start(cli, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = cli("serve", "--port", port, "--data", tmp_path / "data")
    assert said.code == exits.SERVICE_UNUSABLE
    assert f":{port}" in said.err
    assert "Traceback" not in said.err


@pytest.mark.slow
def test_any_character_can_be_printed_at_an_ascii_terminal(cli):
    said = cli("say", "你好", "--voice", "mei", env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert said.code == 0, said.err
    assert r"\u4f60\u597d-zh-CN-mei.flac" in said.out


def test_say_streams_into_a_file_that_has_its_length(here, tmp_path):
    said = here("say", "Good morning. How are you?", "--voice", "ivy", "--stream")
    path = tmp_path / said.out.strip()
    assert said.code == 0, said.err
    assert path.name == "good-morning-how-are-you-ivy.wav"
    assert soundfile.info(path).samplerate == 24000
    assert int.from_bytes(path.read_bytes()[4:8], "little") == path.stat().st_size - 8
    first, rest = said.err.splitlines()
    assert re.fullmatch(r"first audio after \d+ ms", first)
    assert re.fullmatch(
        r"ivy: \d\.\d s of audio in \d+\.\d s, 26 billed characters, [\d,]+ bytes, trace id \w+", rest
    )


@pytest.mark.parametrize("ending", ["ogg", "pcm"])
def test_say_streams_in_the_format_of_the_ending(here, tmp_path, ending):
    said = here("say", "Good morning.", "--voice", "ivy", "--stream", "-o", f"a.{ending}", "--json")
    facts = json.loads(said.out)
    assert facts["format"] == ending.upper()
    assert facts["first_byte_ms"] <= facts["latency_ms"]
    assert (tmp_path / f"a.{ending}").stat().st_size > 1000


def test_say_streams_to_a_player_and_stops_when_it_goes(start):
    process = start("say", "Good morning. " * 300, "--voice", "ivy", "--stream", "-o", "-")
    assert process.stderr.readline().startswith(b"first audio after ")
    assert process.stdout.read(44)[:4] == b"RIFF"
    process.stdout.close()
    assert process.wait(60) == 141
    assert b"Traceback" not in process.stderr.read()


def test_say_says_what_a_stream_does_not_have(here):
    said = here("say", "Good morning.", "--voice", "ivy", "--stream", "--audio-duration", "3")
    assert said.code == 2
    assert "--stream cannot be combined with --audio-duration" in said.err
    refused = here("say", "Good morning.", "--voice", "ivy", "--stream", "--pitch", "99")
    assert refused.code == 3
