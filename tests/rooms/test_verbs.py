"""Rows become requests, and attempts become records: by the backends of `generate` and `change_voice`."""

import http.server
import io
import json
import os
import threading
from functools import partial

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from tests.rooms.sending import checked, problems, sent

from speechframe.errors import AudioError, BadAnswer
from speechframe.spec.check import is_speakable
from speechframe.spec.speech import GenerateRequest, Model, Voice
from speechframe.testing import FaultyService
from speechframe.verbs.change_voice import ChangeVoiceBackend
from speechframe.verbs.generate import GenerateBackend, has_words
from speechframe.verbs.service import VoiceBook
from speechframe.wire.bodies import encode_content

RATE_HZ = 8000
TONE = (np.sin(np.arange(2 * RATE_HZ) / 5) * 9000).astype(np.int16)


@pytest.fixture(scope="module")
def faulty():
    with FaultyService() as running:
        yield running


@pytest.fixture
def generate(faulty):
    return lambda: GenerateBackend(faulty.settings)


OPTIONS = st.fixed_dictionaries(
    {"voice": st.sampled_from(["nora", "en-US-nora", "en-GB-finley"])},
    optional={
        "pitch": st.integers(-50, 50) | st.booleans(),
        "variation": st.integers(0, 5),
        "style": st.sampled_from(['"text":', "no"]),
        "sample_rate": st.sampled_from([8000, 8000.0, 24000]),
        "pronunciation_dictionary": st.dictionaries(
            st.sampled_from(["text", '"text":']), st.just({"type": "IPA", "pronunciation": '"text":"x"'})
        ),
        "audio_duration": st.sampled_from([0.0, -0.0, 2.5, 2]),
    },
)
VOICES = [Voice(voice_id=voice_id, locale=voice_id[:5]) for voice_id in ("en-US-nora", "en-GB-finley")]


@given(rows=st.lists(st.tuples(st.text(min_size=1, max_size=40), OPTIONS), min_size=1, max_size=12))
def test_a_row_is_the_request_it_would_be_alone(faulty, rows):
    backend = GenerateBackend(faulty.settings)
    backend.book = VoiceBook(VOICES)
    for text, options in rows:
        found = backend.check({"text": text, **options})
        is_right = is_speakable(text) and has_words(text) and not isinstance(options.get("pitch"), bool)
        assert isinstance(found, list) is not is_right
        if not is_right:
            continue
        voice = "en-GB-finley" if "finley" in options["voice"] else "en-US-nora"
        length = options.get("audio_duration") or None
        fields = {**options, "voice": None, "voice_id": voice, "audio_duration": length, "text": text}
        alone = encode_content(
            GenerateRequest(**{name: value for name, value in fields.items() if value is not None}),
            as_base64=True,
        )
        assert (found.content, found.body) == alone
        assert found.varies is (options.get("variation") != 0)
        assert found.price == 1000 * found.characters


def test_everything_that_is_wrong_with_a_row_is_said_by_argument(generate):
    dots, invisible, several, mixed = checked(
        generate,
        [
            {"text": "...", "voice": "nora"},
            {"text": "\u200b\u200b", "voice": "norra"},
            {
                "text": "Hi",
                "voice": "nora",
                "pitch": 70,
                "style": "shouting",
                "word_durations_as_original_text": 3,
            },
            {"text": "Hi", "voice": "nora", "model": "falcon-2"},
        ],
    )
    assert "nothing to say" in problems(dots)["text"]
    assert "nothing to say" in problems(invisible)["text"]
    assert "nearest: nora" in problems(invisible)["voice"]
    assert set(problems(several)) >= {"pitch", "word_durations_as_original_text"}
    assert "falcon-2 for the whole table" in problems(mixed)["model"]


def test_each_model_has_voices_of_its_own_and_a_language_finds_the_only_locale(service):
    row = {"text": "Hi", "voice": "ivy"}
    (other,) = checked(lambda: GenerateBackend(service.settings), [row])
    assert "each model has voices of its own" in problems(other)["voice"]
    (mine,) = checked(lambda: GenerateBackend(service.settings, Model.FALCON_2), [row])
    assert mine.facts["voice_id"].endswith("-ivy")
    locales = {"de-DE": {}, "fr-FR": {}, "fr-CA": {}}
    book = VoiceBook([Voice(voice_id="en-US-nora", locale="en-US", supported_locales=locales)])
    assert book.resolve("nora", "de").locale == "de-DE"
    assert "fr-FR, fr-CA" in str(book.resolve("nora", "fr").problems[0])


def test_audio_behind_an_address_is_noted_and_fetched_again_without_another_call(generate, faulty):
    text = "One line behind an address."
    row = {"text": text, "voice": "nora", "format": "WAV", "encode_as_base64": False}
    notes = []
    record, findings = sent(generate, row, notes=notes)
    assert (record.values["text"], findings) == (text, [])
    before = faulty.books().requests
    again, _ = sent(generate, row, noted=notes[0])
    assert again.audio == record.audio
    assert again.values == record.values
    assert faulty.books().requests == before
    gone = json.loads(notes[0])
    gone[0] = gone[0].replace("/audio/", "/gone/")
    with pytest.raises(BadAnswer, match="fetched"):
        sent(generate, row, noted=json.dumps(gone).encode())
    assert faulty.books().requests == before


@pytest.mark.parametrize("odd", [{"audioLengthInSeconds": value} for value in ("NaN", '"1.5"', "-1")])
def test_what_is_odd_beside_good_audio_is_a_warning(generate, faulty, odd):
    text = f"Good audio beside {odd}"
    faulty.set(odd={text: odd})
    record, findings = sent(generate, {"text": text, "voice": "nora", "format": "FLAC"})
    assert record.audio
    assert record.values["audio_seconds"] > 0
    assert record.warnings
    assert findings == []


def test_a_stream_is_read_whole_and_tells_no_words(faulty):
    row = {"text": "Good morning to you.", "voice": "nora", "format": "WAV"}
    record, findings = sent(lambda: GenerateBackend(faulty.settings, Model.FALCON_2), row)
    assert record.values["word_durations"] is None
    assert record.values["sample_rate"] == 24000
    assert len(soundfile.read(io.BytesIO(record.audio))[0]) > 0
    assert findings == []


@pytest.fixture
def clip(tmp_path):
    path = tmp_path / "clip.wav"
    soundfile.write(path, TONE, RATE_HZ, subtype="PCM_16")
    return path


@pytest.fixture
def web(tmp_path):
    """Return the address of a server of the files in `tmp_path`."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_same_clip_is_one_call_wherever_it_lies(service, clip, web, tmp_path):
    def make():
        backend = ChangeVoiceBackend(service.settings)
        backend.folder = tmp_path / "run"
        assert backend.source(str(tmp_path)) == [str(clip)]
        return backend

    data = clip.read_bytes()
    samples, _ = soundfile.read(clip, dtype="int16")
    clips = [str(clip), {"bytes": None, "path": str(clip)}, data, {"bytes": data}, f"{web}/clip.wav",
             {"array": samples, "sampling_rate": RATE_HZ}, (samples, RATE_HZ)]  # fmt: skip
    requests = checked(make, [{"audio": each, "voice": "nora"} for each in clips])
    assert len({request.content for request in requests}) == 1
    assert {request.price for request in requests} == {30_000}
    assert [path.read_bytes() for path in (tmp_path / "run" / "clips").iterdir()] == [data]


def test_what_is_no_clip_is_found_before_anything_is_spent(service, clip, web, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    bad = [
        str(tmp_path / "pipe"),
        "/dev/zero",
        str(tmp_path),
        "gone.wav",
        b"text",
        3,
        f"{web}/gone.wav",
        "ftp://x/y",
    ]
    found = checked(
        lambda: ChangeVoiceBackend(service.settings), [{"audio": each, "voice": "nora"} for each in bad]
    )
    words = [problems(each)["audio"] for each in found]
    for said, expected in zip(words, ["regular file", "regular file", "folder", "does not exist", "no audio", "int",
                                      "answered 404", "not fetched"], strict=True):  # fmt: skip
        assert expected in said


def test_a_file_that_changed_since_it_was_looked_at_is_not_sent(service, clip):
    def make():
        return ChangeVoiceBackend(service.settings)

    row = {"audio": str(clip), "voice": "nora", "format": "WAV"}
    record, _ = sent(make, row, between=lambda: os.utime(clip))
    assert record.values["audio_seconds"] == pytest.approx(2.0, abs=0.1)
    with pytest.raises(AudioError, match="has changed"):
        sent(make, row, between=lambda: soundfile.write(clip, TONE[::-1], RATE_HZ, subtype="PCM_16"))
