"""Neural voices through the service: the packaged one, whole and streamed, folders of one's own, and without them."""

import asyncio
import base64
import os
import shutil
import time

import pytest
from socket_lab import talking

from speechframe.audio import codec
from speechframe.engines.voice_folders import FOLDERS_VARIABLE
from speechframe.errors import SettingsError
from speechframe.local.engines import models
from speechframe.local.engines.kokoro import voices as kokoro_voices
from speechframe.local.engines.piper import voices as piper_voices
from speechframe.local.service import folders, serve
from speechframe.local.start import local_service
from speechframe.spec import chosen

STREAM = "/v1/speech/stream"
SENTENCES = [f"This is sentence number {number} of a story that somebody reads." for number in range(6)]
TEXT = " ".join(SENTENCES)


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
    with local_service(keys=["main", "left"], workers=1, voices=[folder]) as running:
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
    assert done.returncode == serve.EXIT_FAILED
    assert "a.onnx" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SettingsError, match=f"{empty} contains no voice: one of Piper is a file"):
        folders.set_voice_folders([empty])
    # The variable is looked at as the option is.
    monkeypatch.setenv(FOLDERS_VARIABLE, os.pathsep.join((str(folder), str(missing))))
    with pytest.raises(SettingsError, match=str(missing)):
        folders.set_voice_folders([])


def test_the_option_stands_instead_of_the_variable(folder, monkeypatch):
    monkeypatch.setenv(FOLDERS_VARIABLE, "/nowhere")
    folders.set_voice_folders([folder])
    assert os.environ[FOLDERS_VARIABLE] == str(folder)
    monkeypatch.chdir(folder.parent)
    folders.set_voice_folders([type(folder)(folder.name)])
    assert os.environ[FOLDERS_VARIABLE] == str(folder), "workers may run elsewhere"


def test_without_the_extra_it_serves_espeak_and_says_so(folder, monkeypatch, caplog):
    for engine in (kokoro_voices, piper_voices):
        monkeypatch.setattr(engine, "find_spec", lambda name: None)
    # Set back behind the test.
    monkeypatch.setenv(FOLDERS_VARIABLE, "")
    caplog.set_level("INFO")
    folders.set_voice_folders([])
    installs = f"{kokoro_voices.INSTALL_COMMAND} or {piper_voices.INSTALL_COMMAND}"
    assert f"the catalogue contains only espeak voices; for neural voices: {installs}" in caplog.text
    with pytest.raises(SettingsError) as refused:
        folders.set_voice_folders([folder])
    assert str(folder) in str(refused.value)
    assert str(refused.value).endswith(f"their engine: {piper_voices.INSTALL_COMMAND}")


# Streamed: sentence by sentence, heard before it is all made.


@pytest.fixture
def client(neural, http_to):
    return http_to(neural, "main")


@pytest.fixture
async def joe(client):
    """Give a way to open streams of a voice that is loaded already."""

    def opened(text=TEXT, key="main", **fields):
        body = {"text": text, "voiceId": "en-US-joe", "model": "gen2", "sampleRate": 24000, **fields}
        return client.session.post(client.url + STREAM, json=body, headers={chosen.API_KEY_HEADER: key})

    async with opened("Hello.") as answer:
        assert len(await answer.read()) > 10_000
    return opened


@pytest.mark.quiet
@pytest.mark.slow
async def test_the_first_bytes_leave_before_the_end_and_all_of_it_plays(joe):
    started = time.monotonic()
    async with joe(format="WAV") as answer:
        assert answer.status == 200
        data = bytearray(await answer.content.readany())
        first_s = time.monotonic() - started
        async for more in answer.content.iter_any():
            data += more
    assert first_s < (time.monotonic() - started) / 2
    audio = codec.decode(codec.write_length(bytes(data)))
    assert audio.sample_rate_hz == 24000
    assert 2.0 * len(SENTENCES) < audio.audio_seconds < 6.0 * len(SENTENCES)
    # A stream has no words beside it: not in the body, which is one file, and not in a header.
    assert bytes(data).count(b"RIFF") == 1
    assert not [name for name in answer.headers if "word" in name.lower()]


async def test_who_leaves_at_the_first_bytes_pays_for_the_sentences_that_were_spoken(client, joe):
    before = await client.remaining("left")
    # More than the connection holds: it is not all spoken, however late it is left.
    sentences = SENTENCES * 10
    answer = await joe(" ".join(sentences), key="left", sampleRate=48000, channelType="STEREO", format="WAV")
    await answer.content.readany()
    answer.close()
    async with asyncio.timeout(60):
        while not (spent := before - await client.remaining("left")):  # noqa: ASYNC110 - the service runs elsewhere
            await asyncio.sleep(0.02)
    # Behind each but the last there is a space.
    assert spent in {sum(len(one) + 1 for one in sentences[:count]) for count in range(1, len(sentences))}


@pytest.mark.quiet
@pytest.mark.slow
async def test_a_context_hears_it_sentence_by_sentence_and_has_no_words(client, joe):
    del joe
    async with talking(client, "format=WAV&sample_rate=24000&model=gen2") as talk:
        await talk.send(context_id="a", voice_config={"voiceId": "joe"}, min_buffer_size=0)
        started = time.monotonic()
        await talk.send(context_id="a", text=TEXT, end=True)
        await talk.frame()
        first_s = time.monotonic() - started
        await talk.finals(1)
        assert first_s < (time.monotonic() - started) / 2
    *audio, final = talk.frames
    assert final["final"] is True
    assert {frozenset(one) for one in audio} == {frozenset({"audio", "context_id", "trace_id"})}
    assert [base64.b64decode(one["audio"])[:4] == b"RIFF" for one in audio] == [True] + [False] * (
        len(audio) - 1
    )
    assert len(audio) >= len(SENTENCES)
    assert codec.decode(codec.write_length(talk.audio("a"))).audio_seconds > 2.0 * len(SENTENCES)
