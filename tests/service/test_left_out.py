"""What cannot be used is left out and named in the log. It stops neither the service nor the other voices."""

import json
import os
import shutil
import signal
import subprocess
import sys

import aiohttp
import pytest
from convert_lab import clip, with_path
from odd_lab import (
    BROKEN,
    CHINESE,
    PLUG_IN,
    PUBLIC_STYLES,
    install_odd,
    odd_files,
    packaged_style,
    public_styles,
)

from speechframe.engines.faults import FAULT_WORDS_FOR_CALLERS
from speechframe.engines.voice_folders import FOLDERS_VARIABLE
from speechframe.errors import SettingsError
from speechframe.local.engines import models
from speechframe.local.service import folders, serve


class Serving:
    """A service as a command, whose log is a file."""

    def __init__(self, folder, *options, env=None):
        self._log = folder / "log"
        command = [
            sys.executable,
            "-m",
            "speechframe.local.service",
            "--port",
            "0",
            "--json",
            "--die-with-parent",
        ]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--data", str(folder / "data"), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(env or {})},
            )
        self.said = json.loads(self.process.stdout.readline())
        self.url, self.pid = self.said.get("url"), self.process.pid

    @property
    def log(self):
        """The lines of the log, without their times."""
        return [line.split(" ", 2)[-1] for line in self._log.read_text().splitlines()]

    def close(self):
        self.process.terminate()
        self.process.communicate()


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Give a folder with the 54 public styles, a Piper voice, and files that are no voices, with their names."""
    folder = tmp_path_factory.mktemp("voices")
    public_styles(folder)
    names = odd_files(folder)
    for name in models.JOE_VOICE.sha256:
        ending = ".onnx.json" if name.endswith("json") else ".onnx"
        shutil.copy(models.JOE_VOICE.folder / name, folder / f"en_US-anna-medium{ending}")
    return folder, names


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return install_odd(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def serving(odd, package, tmp_path_factory):
    made = Serving(
        tmp_path_factory.mktemp("service"),
        *("--workers", "2", "--voices", str(odd[0])),
        env={"PYTHONPATH": with_path(package)},
    )
    assert "error" not in made.said
    yield made
    made.close()


@pytest.fixture
def client(serving, http_to):
    return http_to(serving, serving.said["keys"][0])


async def test_it_starts_with_all_that_works_and_names_the_rest_once(serving, odd, client, tools):
    folder, names = odd
    listed = [voice["voiceId"] for voice in (await client.get("/v1/speech/voices")).json]
    assert len(set(listed)) == len(listed)
    named = {voice.split("-", 2)[2] for voice in listed}
    own = {name.replace("_", "-") for name in PUBLIC_STYLES if name not in CHINESE}
    assert named >= own | {"nora", "joe", "anna", "hum"}
    assert named.isdisjoint({name.replace("_", "-") for name in CHINESE})
    assert named.isdisjoint("xyzvwu")
    # One that is replaced says nothing again.
    workers = tools.worker_pids(serving.pid)
    os.kill(workers[0], signal.SIGTERM)
    await tools.until(lambda: set(tools.worker_pids(serving.pid)) - set(workers))
    assert (await client.generate("well", voiceId="hum")).status == 200
    log = serving.log
    for name in [*(f"{style}.bin" for style in CHINESE), *names]:
        assert any(str(folder / name) in line for line in log), name
    for engine in BROKEN:
        assert sum(f"{engine.split()[1]!r} (" in line for line in log) == 1, engine
    assert "WARNING voice en-US-nora of good is left out: espeak has the name" in log
    assert len(set(log)) == len(log), "each is named once"
    at_start = [line for line in log if line.startswith("WARNING") and "idle worker" not in line]
    of_names = [line for line in at_start if line.startswith("WARNING voice ")]
    assert serving.said["left_out"] == len(at_start) - len(of_names)


async def all_workers(serving, client, tools):
    """Return the workers of fast and of slow engines. The latter start with the first call for them."""
    assert (await client.generate("well", voiceId="hum")).status == 200
    return set(tools.worker_pids(serving.pid))


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("path", 400, "text: the file odd_speech.py cannot be read"),
        ("fault", 500, f"the speech engine failed: {FAULT_WORDS_FOR_CALLERS}; nothing was billed"),
        ("exit", 500, "the speech engine failed: SystemExit; nothing was billed"),
        ("numbers", 500, f"the speech engine failed: {FAULT_WORDS_FOR_CALLERS}; nothing was billed"),
    ],
)
async def test_no_answer_has_a_path_and_no_worker_is_lost(
    serving, package, client, tools, text, status, words
):
    workers = await all_workers(serving, client, tools)
    for path in ("generate", "stream"):
        body = {"text": text, "voiceId": "hum", "model": "gen2", "format": "WAV"}
        answer = await client.ask("POST", f"/v1/speech/{path}", json=body)
        assert (answer.status, answer.message) == (status, words), path
        assert package not in answer.body.decode()
    assert set(tools.worker_pids(serving.pid)) == workers
    if text == "fault":
        assert any(f"an engine is at fault: the file {package}" in line for line in serving.log)


async def test_a_translator_at_fault_is_a_500_without_a_path(package, client):
    body = {"texts": ["Hello there"], "sourceLanguage": "en", "targetLanguage": "gl"}
    answer = await client.ask("POST", "/v1/text/translate", json=body)
    assert answer.status == 500, answer.body
    assert package not in answer.body.decode()
    assert answer.message == f"the translation engine failed: {FAULT_WORDS_FOR_CALLERS}; nothing was billed"


async def test_an_ability_that_an_engine_lacks_is_ignored_with_a_warning(client):
    plain = await client.generate("Hello. Well", voiceId="hum", encodeAsBase64=True)
    assert plain.warnings == []
    asked = await client.generate(
        "Hello. [pause 1s]Well",
        voiceId="hum",
        encodeAsBase64=True,
        pitch=7,
        rate=-3,
        variation=4,
        audioDuration=3,
    )
    assert asked.audio == plain.audio
    shown = ("pitch", "rate", "variation", "a fixed length")
    wanted = [f"{words} is not supported by this voice and was ignored" for words in shown]
    assert asked.warnings == [*wanted, "pauses are not supported by this voice and were left out"]


async def test_a_file_that_breaks_while_the_service_runs_is_a_500_and_costs_nothing_else(
    serving, odd, client, tools
):
    folder, _ = odd
    workers = await all_workers(serving, client, tools)
    (folder / "en_US-anna-medium.onnx").unlink()
    os.mkfifo(folder / "en_US-anna-medium.onnx")
    (folder / "af_heart.bin").unlink()
    # Not one byte of the others, which are links to the same file.
    broken = packaged_style().astype("<f4").tobytes()[:-4]
    (folder / "pf_dora.bin").unlink()
    (folder / "pf_dora.bin").write_bytes(broken)
    for voice in ("anna", "af-heart", "pf-dora"):
        answer = await client.generate("Hello", voiceId=voice)
        assert answer.status == 500, voice
        assert answer.message == f"the speech engine failed: {FAULT_WORDS_FOR_CALLERS}; nothing was billed"
    form = aiohttp.FormData()
    form.add_field("voice_id", "anna")
    form.add_field("file", clip(1.0), filename="a.wav")
    answer = await client.ask("POST", "/v1/voice-changer/convert", data=form)
    assert (answer.status, answer.message) == (
        500,
        f"the voice changer failed: {FAULT_WORDS_FOR_CALLERS}; nothing was billed",
    )
    assert set(tools.worker_pids(serving.pid)) == workers
    assert (await client.generate("Hello", voiceId="nora")).status == 200
    assert (await client.generate("Hello", voiceId="hum")).status == 200


# Folders that the operator names


def test_a_folder_of_the_option_must_hold_a_voice_and_one_of_the_variable_need_not(
    tmp_path, monkeypatch, caplog
):
    (tmp_path / "zf_xiaobei.bin").write_bytes(b"cut off")
    with pytest.raises(
        SettingsError,
        match=r"contains no voice that can be used: .*zf_xiaobei\.bin does not contain readable styles",
    ):
        folders.set_voice_folders([tmp_path])
    monkeypatch.setenv(FOLDERS_VARIABLE, str(tmp_path))
    folders.set_voice_folders([])
    assert "zf_xiaobei.bin" in caplog.text
    assert os.environ[FOLDERS_VARIABLE] == str(tmp_path)


def test_without_any_speech_engine_it_does_not_start_and_says_why(tmp_path):
    # A distribution that is found first hides the installed one, with all its engines. Plug-ins of other tests
    # are not on the path.
    for name, points in {
        "speechframe": "",
        "odd-speech": "[speechframe.speakers]\nmine = odd_speech:Leaving\n",
    }.items():
        info = tmp_path / "package" / f"{name.replace('-', '_')}-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
        (info / "entry_points.txt").write_text(points)
    (tmp_path / "package" / "odd_speech.py").write_text(PLUG_IN)
    made = Serving(tmp_path, env={"PYTHONPATH": str(tmp_path / "package")})
    made.process.communicate()
    assert made.process.returncode == serve.EXIT_FAILED
    assert made.said["error"] == (
        "no speech engine works: the speech engine 'mine' (odd_speech:Leaving) cannot be used: SystemExit: 0"
    )
