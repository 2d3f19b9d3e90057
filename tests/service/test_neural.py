"""Neural voices through the service: the packaged one, folders of one's own, and what is said without them."""

import os
import shutil
import subprocess
import sys

import pytest

from speechframe.audio import codec
from speechframe.engines import kokoro_voices, models, piper_voices
from speechframe.engines.voice_folders import FOLDERS_VARIABLE
from speechframe.errors import SettingsError
from speechframe.local import local_service
from speechframe.service import folders, serve


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a copy of the packaged voice under another name."""
    folder = tmp_path_factory.mktemp("voices")
    for name in models.JOE_VOICE.sha256:
        ending = ".onnx.json" if name.endswith("json") else ".onnx"
        shutil.copy(models.JOE_VOICE.folder / name, folder / f"en_US-anna-medium{ending}")
    return folder


@pytest.fixture(scope="module")
def neural(folder):
    with local_service(keys=["main"], workers=1, voices=[folder]) as running:
        yield running


async def test_neural_voices_are_in_the_newer_catalogue_and_no_other(neural, http_to):
    http = http_to(neural, "main")
    for model, there in (("gen2", True), ("falcon-2", False)):
        voices = {voice["voiceId"] for voice in (await http.get(f"/v1/speech/voices?model={model}")).json}
        assert ({"en-US-joe", "en-US-anna"} <= voices) is there


async def test_a_neural_voice_speaks_with_exact_lengths_and_word_times(neural, http_to):
    answer = await http_to(neural, "main").generate(
        "Good morning. [pause 0.5s] It is late.",
        voiceId="joe", encodeAsBase64=True, format="WAV", sampleRate=24000, audioDuration=4.25,
    )  # fmt: skip
    assert answer.status == 200, answer.body
    assert codec.decode(answer.audio).audio_seconds == answer.json["audioLengthInSeconds"] == 4.25
    words = answer.json["wordDurations"]
    assert [word["word"] for word in words] == ["Good", "morning", "It", "is", "late"]
    at_ms = 0
    for word in words:
        assert at_ms <= word["startMs"] < word["endMs"] <= 4250
        at_ms = word["endMs"]
    assert words[2]["startMs"] - words[1]["endMs"] >= 500


@pytest.mark.slow
async def test_a_copy_speaks_as_its_original_does(neural, http_to):
    http = http_to(neural, "main")
    said = [
        await http.generate("Hello there.", voiceId=name, encodeAsBase64=True, variation=0)
        for name in ("joe", "anna")
    ]
    assert said[0].audio == said[1].audio


def test_a_folder_that_cannot_be_used_is_said_before_anything_starts(folder, tmp_path, tools, monkeypatch):
    missing = tmp_path / "nowhere"
    with pytest.raises(SettingsError, match=f"{missing} cannot be read"), local_service(voices=[missing]):
        pass
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "a.onnx").touch()
    done = tools.run_service("--port", "0", "--data", str(tmp_path / "data"), "--voices", str(broken))
    assert done.returncode == serve.FAILED
    assert "a.onnx" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SettingsError, match=f"{empty} holds no voice: one of Piper is a file"):
        folders.set_voices([empty])
    # The variable is looked at as the option is.
    monkeypatch.setenv(FOLDERS_VARIABLE, os.pathsep.join((str(folder), str(missing))))
    with pytest.raises(SettingsError, match=str(missing)):
        folders.set_voices([])


def test_the_option_stands_instead_of_the_variable(folder, monkeypatch):
    monkeypatch.setenv(FOLDERS_VARIABLE, "/nowhere")
    folders.set_voices([folder])
    assert os.environ[FOLDERS_VARIABLE] == str(folder)
    monkeypatch.chdir(folder.parent)
    folders.set_voices([type(folder)(folder.name)])
    assert os.environ[FOLDERS_VARIABLE] == str(folder), "workers may run elsewhere"


def test_without_the_extra_it_serves_espeak_and_says_so(folder):
    """A process in which onnx is not installed: voices of a folder are refused, and the rest works."""
    code = """
import importlib.util, sys, logging
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "onnx" else find(name, *rest)
from speechframe.errors import SettingsError
from speechframe.service import folders
from pathlib import Path
logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
folders.set_voices([])
try:
    folders.set_voices([Path(sys.argv[1])])
except SettingsError as error:
    print(error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.splitlines()
    installs = f"{kokoro_voices.INSTALL} or {piper_voices.INSTALL}"
    assert said[0] == f"the catalogue stands on espeak voices alone; for neural ones: {installs}"
    assert str(folder) in said[1]
    assert said[1].endswith(f"their engine: {piper_voices.INSTALL}")


def test_voices_can_be_one_folder_alone():
    assert local_service(voices="/a b")._options == ["--voices=/a b"]
    assert local_service(voices=["/a", "/b"], options=["--queue", "3"])._options == [
        "--voices=/a", "--voices=/b", "--queue", "3",
    ]  # fmt: skip
