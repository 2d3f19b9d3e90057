"""Speech while it is made: audio that is heard before it is finished, turns over sockets, words found afterwards."""

import io
import os
import signal

import numpy as np
import pandas as pd
import pytest
import soundfile as sf
from accounts import statuses

import speechframe as spf
from speechframe.spec.texts import count_billed_characters

TEXT = "The boat is small. It went through the harbour! Nobody saw it."
LONG = " ".join(f"This is sentence number {number} of a text that takes its time." for number in range(70))
LARGE = {"sample_rate": 48000, "channel_type": "STEREO"}
"""Of a long text it is more than connections hold: it goes on until it is read."""


def is_speech(audio):
    samples, rate_hz = sf.read(io.BytesIO(audio))
    assert len(samples) > rate_hz
    return np.sqrt(np.mean(samples**2)) > 0.01


def words_of(text):
    return (word + " " for word in text.split())


def test_a_text_is_heard_while_it_is_made(service, tmp_path):
    with spf.stream(TEXT, voice="ivy", service=service.settings) as heard:
        chunks = list(heard)
    assert b"".join(chunks) == heard.audio
    summary = heard.summary
    assert 0 < heard.first_byte_ms <= summary.latency_ms
    assert summary.billed_characters == count_billed_characters(TEXT)
    samples, rate_hz = sf.read(heard.save(tmp_path / "heard.wav"))
    assert len(samples) / rate_hz == pytest.approx(summary.audio_seconds, abs=0.05)
    assert np.sqrt(np.mean(samples**2)) > 0.01


def test_a_text_that_is_still_being_written_is_spoken(service, tmp_path):
    path = spf.stream(words_of(TEXT), voice="ivy", service=service.settings).save(tmp_path / "answer.wav")
    assert is_speech(path.read_bytes())


def test_a_session_holds_many_turns_over_few_sockets(service):
    with spf.SyncClient(service.settings) as client, client.stream_session(voice="ivy") as session:
        turns = [session.speak(words_of(f"{TEXT} {number}")) for number in range(6)]
        audios = [turn.read() for turn in turns]
        assert session.sockets <= 2
    assert all(audio.startswith(b"RIFF") for audio in audios)
    assert len(set(audios)) == 6


def test_a_turn_is_written_by_hand_and_a_mistake_costs_that_turn_only(service):
    with spf.SyncClient(service.settings) as client, client.stream_session(voice="ivy") as session:
        with session.open() as turn:
            turn.send("Hello, ")
            turn.send("my friend. ")
        with pytest.raises(spf.SpeechframeError):
            session.speak(["Hello."], voice="nobody").read()
        assert turn.audio().read().startswith(b"RIFF")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["text", "turn"])
def test_a_stream_that_breaks_keeps_what_came(way):
    with (
        spf.local_service(keys=["main"], workers=1) as doomed,
        spf.SyncClient(spf.Settings(base_url=doomed.url, api_key="main")) as client,
        client.stream_session(voice="ivy", **LARGE) as session,
    ):
        heard = client.stream(LONG, voice="ivy", **LARGE) if way == "text" else session.speak([LONG])
        assert next(heard)
        os.kill(doomed.pid, signal.SIGKILL)
        with pytest.raises(spf.StreamBroken) as broken:
            heard.read()
        assert broken.value.received_bytes == len(heard.audio) > 0
        assert len(heard.samples()) > 0


def test_streamed_rows_make_the_same_kind_of_run(service, tmp_path):
    table = pd.DataFrame({"text": ["The train leaves at seven.", "Good morning to you."]})
    options = {"voice": "ivy", "model": "falcon-2", "run_dir": tmp_path / "run", "progress": False,
               "service": service.settings}  # fmt: skip
    run = spf.generate(table, **options)
    assert statuses(run) == ["done", "done"]
    assert run.ledger["credits"].sum() == sum(map(count_billed_characters, table["text"]))
    assert run.to_pandas()["word_durations"].isna().all()
    assert spf.generate(table, **options).estimate.calls == 0
    assert is_speech(run.clip(0).audio)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", ["The train leaves at seven.", "Good morning to all of you."])
def test_words_of_streamed_rows_are_found_in_their_audio(service, tmp_path, text):
    run = spf.generate([text], voice="ivy", model="falcon-2", words="align", run_dir=tmp_path / "run",
                       progress=False, service=service.settings)  # fmt: skip
    for row in run.to_pandas().itertuples():
        assert [word["word"].strip(".,").lower() for word in row.word_durations] == row.text.strip(
            "."
        ).lower().split()
        ends = [word["end_ms"] for word in row.word_durations]
        assert ends == sorted(ends)
        assert ends[-1] <= 1000 * row.audio_seconds + 100
        assert row.words_basis


@pytest.mark.slow
def test_words_that_are_not_found_are_told_by_a_warning(services, speak, lines):
    run = speak(services(), lines(2), model="falcon-2", words="align", format="WAV")
    assert statuses(run) == ["done"] * 2
    assert all("words" in " ".join(warnings) for warnings in run.to_pandas()["warnings"])
