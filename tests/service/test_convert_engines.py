"""POST /v1/voice-changer/convert with the engines that ship: a clip really changes its voice."""

import io

import aiohttp
import av
import numpy as np
import pytest
import soundfile

from speechframe.audio import codec, measure
from speechframe.engines.base import Utterance
from speechframe.local.engines.espeak.speaker import EspeakSpeaker
from speechframe.local.start import local_service

TEXT = "The train to the harbour leaves at seven in the morning, and it is never late."
PATH = "/v1/voice-changer/convert"


def spoken(name, text=TEXT):
    speech = EspeakSpeaker().speak(Utterance(text, voice_id=f"en-US-{name}", locale="en-US", variation=0))
    return speech.samples, speech.sample_rate_hz


def wav(samples, rate_hz):
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format="WAV")
    return file.getvalue()


@pytest.fixture(scope="module")
def service():
    """Give a service with the shipped changer, whatever else is installed."""
    with local_service(keys=["main"], workers=1, options=["--changer", "world"]) as running:
        yield running


async def changed(http, data, name="clip.wav", **fields):
    form = aiohttp.FormData()
    for field, value in {"voice_id": "en-US-hank", "variation": "0", **fields}.items():
        form.add_field(field, value)
    form.add_field("file", data, filename=name)
    answer = await http.ask("POST", PATH, data=form)
    assert answer.status == 200, answer.body
    fetched = await http.get(answer.json["audio_file"], key=None)
    return codec.decode(fetched.body), fetched.body, answer


async def test_a_clip_gets_the_register_of_the_other_voice_and_keeps_its_length(http):
    samples, rate_hz = spoken("nora")
    source_hz, target_hz = measure.median_f0_hz(samples, rate_hz), measure.median_f0_hz(*spoken("hank"))
    assert source_hz > 1.3 * target_hz
    audio, body, answer = await changed(http, wav(samples, rate_hz))
    assert measure.median_f0_hz(audio.samples, audio.sample_rate_hz) == pytest.approx(target_hz, rel=0.15)
    assert audio.audio_seconds == pytest.approx(len(samples) / rate_hz, rel=0.02)
    asked, _, _ = await changed(http, wav(samples, rate_hz), audio_duration="3.21", sample_rate="24000")
    assert len(asked.samples) == codec.convert_seconds_to_frames(3.21, 24000)
    assert answer.json["audio_length_in_seconds"] == audio.audio_seconds
    assert (await changed(http, wav(samples, rate_hz)))[1] == body, "byte for byte"
    assert "world-" in (await http.get("/v1/limits")).json["identities"]["change_voice"]


async def test_the_sound_of_a_video_is_changed_too(http, tmp_path):
    samples, rate_hz = spoken("nora")
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        picture = container.add_stream("mpeg4", rate=10, width=64, height=64, pix_fmt="yuv420p")
        sound = container.add_stream("aac", rate=48000, layout="mono")
        for _ in range(10):
            container.mux(picture.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8))))
        container.mux(picture.encode(None))
        frame = av.AudioFrame.from_ndarray(codec.resample(samples, rate_hz, 48000)[None], "fltp", "mono")
        frame.sample_rate = 48000
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    audio, _, _ = await changed(http, path.read_bytes(), "a.mp4")
    assert audio.audio_seconds == pytest.approx(len(samples) / rate_hz, abs=0.1)
    assert measure.median_f0_hz(audio.samples, audio.sample_rate_hz) == pytest.approx(
        measure.median_f0_hz(*spoken("hank")), rel=0.15
    )


async def test_noise_without_a_voice_is_changed_or_refused_and_never_fails(http):
    noise = np.random.default_rng(1).uniform(-0.3, 0.3, 24000).astype(np.float32)
    _, _, answer = await changed(http, wav(noise, 24000))
    assert answer.warnings
    form = aiohttp.FormData()
    form.add_field("voice_id", "en-US-hank")
    form.add_field("file", wav(np.zeros(24000, np.float32), 24000), filename="a.wav")
    silent = await http.ask("POST", PATH, data=form)
    assert silent.status == 400
    assert silent.message.startswith("the voice cannot be changed: ")
