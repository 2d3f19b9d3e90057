"""POST /v1/voice-changer/convert, with engines that do what they are told: fields, transcriptions, bills, URLs."""

import base64
import io
import itertools
import json
import math

import numpy as np
import pytest
import soundfile
from aiohttp import web
from aiohttp.test_utils import TestServer as Server
from convert_lab import (
    CLIP,
    CRASH,
    OURS,
    PATH,
    clip,
    convert,
    form,
    heard,
    install,
    no_uploads,
    with_path,
)
from tests.dubbing.films import film, joined

from speechframe.audio import codec
from speechframe.audio.lengths import inspect_clip
from speechframe.spec import billing, chosen
from speechframe.spec.changer import ConvertResponse
from speechframe.spec.limits import CHANGER_FORMATS, CHANGER_SAMPLE_RATES_HZ
from speechframe.spec.speech import ChannelType, Format


@pytest.fixture
def service(changing):
    return changing


@pytest.fixture
async def files():
    """Serve clips as a site of somebody's would."""
    asked = []

    async def answer(request):
        asked.append(request)
        return web.Response(body=CLIP, content_type="audio/wav")

    app = web.Application()
    app.router.add_get("/{name:.*}", answer)
    async with Server(app) as server:
        server.asked = asked
        yield server


@pytest.mark.rule("auth.key-header-changer")
async def test_an_answer_has_the_fields_of_the_document_and_nothing_else(http, service):
    before = await http.remaining()
    answer = await convert(http, variation=0)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    fields = answer.json
    assert set(fields) == {"audio_file", "audio_length_in_seconds", "remaining_character_count", "warning"}
    response = ConvertResponse.model_validate(fields)
    assert response.audio_length_in_seconds == 1.0
    assert response.remaining_character_count == before - 15
    assert (await convert(http, key=None)).status == 403
    assert (await convert(http, key="unknown")).status == 403
    assert no_uploads(service)


async def test_the_clip_goes_through_the_changer_as_it_was_sent(http):
    audio = await heard(http, await convert(http, sample_rate=48000))
    assert (audio.sample_rate_hz, audio.channels) == (48000, 1)
    # Turned round and halved: it falls from .4 to .05.
    middle = audio.samples[4800:-4800]
    assert middle[0] == pytest.approx(0.4 - 0.035, abs=0.005)
    assert middle[-1] == pytest.approx(0.05 + 0.035, abs=0.005)
    assert (np.diff(middle[::100]) < 0).all()


async def test_every_field_reaches_the_changer_and_what_is_empty_is_its_default(http):
    answer = await convert(
        http, voice_id="Moody", pitch=-5, rate=7, variation=3, audio_duration="1.5", retain_prosody="false",
        style="plain", multi_native_locale="en_us", headers={chosen.TAKE_HEADER: "4"},
    )  # fmt: skip
    assert answer.json["warning"] == (
        "Conversion(voice_id='en-US-moody', locale='en-US', style='Plain', pitch=-5, rate=7, variation=3, "
        "audio_duration_s=1.5, retain_prosody=False, take=4)"
    )
    assert answer.warnings == [answer.json["warning"]]
    assert answer.json["audio_length_in_seconds"] == 1.5
    plain = await convert(http, style="", pitch="", transcription="", file_url="", multi_native_locale="")
    assert plain.json["audio_file"].endswith(".wav")
    assert "encoded_audio" not in plain.json
    audio = await heard(http, plain)
    assert (audio.sample_rate_hz, audio.channels) == (44100, 1)
    assert plain.json["warning"] == (
        "Conversion(voice_id='en-US-moody', locale='en-US', style=None, pitch=0, rate=0, variation=1, "
        "audio_duration_s=0.0, retain_prosody=True, take=0)"
    )


async def test_the_changer_can_let_the_other_voice_speak(http):
    assert (await convert(http, rate=50)).warnings == [f"spoke {220 * len('hi')} frames"]


@pytest.mark.parametrize("audio_format", CHANGER_FORMATS)
async def test_every_format_and_channel_type_in_every_rate(http, audio_format):
    for channel_type, rate in itertools.product(ChannelType, CHANGER_SAMPLE_RATES_HZ):
        answer = await convert(
            http, format=audio_format, channel_type=channel_type, sample_rate=rate, encode_output_as_base64="true",
            audio_duration=0.7313,
        )  # fmt: skip
        shape, real_rate = codec.get_forced_shape(audio_format, channel_type, rate)
        raw = {"format": audio_format, "sample_rate_hz": real_rate, "channels": shape.channels}
        audio = await heard(http, answer, **raw)
        assert (audio.sample_rate_hz, audio.channels) == (real_rate, shape.channels)
        frames = codec.convert_seconds_to_frames(0.7313, real_rate)
        assert answer.json["audio_length_in_seconds"] == frames / real_rate
        if audio_format is not Format.MP3:
            assert len(audio.samples) == frames, "exact, to the sample"
        fetched = await http.get(answer.json["audio_file"], key=None)
        assert fetched.headers["Content-Type"] == chosen.make_content_type(
            audio_format, real_rate, shape.channels
        )
        assert base64.b64decode(answer.json["encoded_audio"], validate=True) == fetched.body
        said = [words for words in answer.warnings if "were set so" in words]
        if (shape, real_rate) != (channel_type, rate):
            assert said == [
                f"{audio_format} is always MONO at 8000 Hz; channel_type and sample_rate were set so"
            ]
        else:
            assert said == []


@pytest.mark.parametrize(("sent", "rate"), [("24000.0", 24000), (" 48000 ", 48000), ("4.41e4", 44100)])
async def test_numbers_may_be_written_as_public_clients_write_them(http, sent, rate):
    assert (await heard(http, await convert(http, sample_rate=sent, pitch="5.0"))).sample_rate_hz == rate


@pytest.mark.parametrize("word", ["True", "1"])
async def test_truth_may_be_written_as_public_clients_write_it(http, word):
    answer = await convert(http, encode_output_as_base64=word, retain_accent=word, return_transcription=word)
    assert answer.json["encoded_audio"]
    assert answer.json["transcription"] == "1.0 seconds"
    no = {"1": "0", "True": "False"}[word]
    assert "encoded_audio" not in (await convert(http, encode_output_as_base64=no)).json


async def test_extra_query_unknown_fields_and_files_are_tolerated(http):
    data = form({"voice_id": "moody", "colour": "blue", "voiceId": "x"})
    data.add_field("picture", b"\x89PNG" * 1000, filename="a.png", content_type="image/png")
    answer = await http.ask("POST", PATH + "?origin=plugin&x=1", data=data, headers={"X-Unheard-Of": "1"})
    assert answer.status == 200
    assert answer.warnings[0] == "unknown fields were ignored: colour, voiceId, picture"
    assert answer.json["warning"] == "; ".join(answer.warnings)


@pytest.mark.parametrize("kind", ["FLAC", "AIFF"])
async def test_whatever_kind_of_file_it_is(http, kind):
    assert (await convert(http, clip(format=kind))).json["audio_length_in_seconds"] == pytest.approx(
        1.0, abs=0.1
    )


async def test_the_default_one_of_several_tracks_is_changed_and_named_in_the_answer(http, tmp_path):
    long, short = film(tmp_path / "long.mp4"), film(tmp_path / "short.mp4", video=None, seconds=2.5)
    tracks = [(long, ("fre", "Commentaire", 0)), (short, ("eng", "Film", 1))]
    path = joined(tmp_path / "clip.mkv", None, tracks)
    answer = await convert(http, path.read_bytes())
    assert answer.json["audio_length_in_seconds"] == pytest.approx(
        inspect_clip(path.read_bytes()).audio_seconds, abs=0.01
    )
    assert answer.json["audio_length_in_seconds"] == pytest.approx(2.5, abs=0.05)
    assert "track 2, the default or first one, was read" in answer.json["warning"]


# Transcriptions


async def test_a_transcription_is_recognised_echoed_or_left_out(http):
    assert (await convert(http, return_transcription="true")).json["transcription"] == "1.0 seconds"
    answer = await convert(http, return_transcription="true", transcription=" What I said. ")
    assert answer.json["transcription"] == "What I said."
    assert "transcription" not in (await convert(http, transcription="What I said.")).json


@pytest.mark.parametrize(
    ("seconds", "most"), [(1.0, chosen.MAX_TEXT_CHARACTERS), (100.0, 6000)], ids=["short", "long"]
)
async def test_a_transcription_is_no_longer_than_what_can_be_said_in_the_clip(http, seconds, most):
    before = await http.remaining()
    answer = await convert(http, clip(seconds, 8000), transcription="a " * (most // 2) + "b")
    assert answer.status == 400
    assert answer.message.startswith(
        f"transcription is too long for a clip of {seconds:.1f} seconds (got {most + 1:,} characters); "
        f"allowed: at most {most:,}"
    )
    assert await http.remaining() == before
    assert (await convert(http, clip(seconds, 8000), transcription="ab" * (most // 2))).status == 200


async def test_without_the_accent_the_words_are_spoken_again_by_the_voice_itself(http):
    async def said(**fields):
        answer = await convert(http, clip(2.0), voice_id="en-US-nora", retain_accent="false", **fields)
        audio = await heard(http, answer)
        assert audio.audio_seconds == 2.0, "at the clip's pace"
        return audio.samples.tolist(), answer

    recognised, answer = await said(return_transcription="true")
    assert answer.json["transcription"] == "2.0 seconds"
    assert not any("Conversion" in words for words in answer.warnings), "the changer has no part in it"
    given, _ = await said(transcription="2.0 seconds")
    assert given == recognised
    spoken = json.dumps({"seconds": {"type": "SAY_AS", "pronunciation": "elephants"}})
    other, answer = await said(transcription="2.0 seconds", pronunciation_dictionary=spoken)
    assert other != given
    assert not any("pronunciation_dictionary" in words for words in answer.warnings)
    assert (await said(transcription="2.0 seconds"))[0] == given, "no call leaves a trace in the next"


async def test_of_the_text_that_is_spoken_again_it_is_said_what_of_other_texts_is(http):
    said = {"voice_id": "en-US-nora", "retain_accent": "false"}
    spoken = json.dumps({"Quux": {"type": "SAY_AS", "pronunciation": "tea"}})
    answer = await convert(
        http, **said, transcription="Wait. [pause 500ms] Now.", pronunciation_dictionary=spoken
    )
    assert [words.partition(";")[0] for words in answer.warnings] == [
        "'[pause 500ms]' is not a pause marker and was left out",
        "words of the pronunciation dictionary are not in the text: 'Quux'",
    ]
    before = await http.remaining()
    answer = await convert(http, **said, transcription="Привет, my friend")
    assert answer.status == 400
    assert "П р и в е т" in answer.message
    assert await http.remaining() == before


async def test_a_clip_in_which_nothing_is_said_cannot_be_spoken_again(http):
    silence = io.BytesIO()
    soundfile.write(silence, np.zeros(16000, np.float32), 16000, format="WAV")
    before = await http.remaining()
    answer = await convert(http, silence.getvalue(), retain_accent="false")
    assert answer.status == 400
    assert answer.message.startswith("the voice cannot be changed: ")
    assert await http.remaining() == before


@pytest.mark.slow
async def test_without_a_changer_the_refusal_says_what_to_install(start_with, plugins, tmp_path, http_to):
    path = with_path(install(tmp_path / "still", "recogniser", alone=True))
    with start_with(path, workers=1) as service:
        answer = await convert(http_to(service))
        assert answer.status == 400
        assert answer.message == "no voice changer is installed here: pip install 'speechframe[local]'"


async def test_a_pronunciation_is_json_text_and_is_for_speaking_again_only(http):
    spoken = json.dumps({"hi": {"type": "SAY_AS", "pronunciation": "high"}})
    answer = await convert(http, pronunciation_dictionary=spoken)
    assert answer.warnings[0] == "pronunciation_dictionary is for retain_accent=false only and was ignored"
    assert "pronunciation_dictionary" in (await convert(http, pronunciation_dictionary="{no")).message


# Money


@pytest.mark.parametrize("frames", [1, 16001])
async def test_the_price_is_that_of_the_seconds_that_were_decoded(http, frames):
    before = await http.remaining("count")
    answer = await convert(http, clip(frames / 16000), key="count")
    assert answer.status == 200
    millis = billing.compute_voice_change_millicredits(frames / 16000)
    assert millis == math.ceil(frames / 16000 * 15_000)
    # Counts are whole characters; what is kept are thousandths.
    assert before - answer.json["remaining_character_count"] in {millis // 1000, -(-millis // 1000)}


async def test_the_length_is_not_taken_from_what_a_header_claims(http):
    # A stream's header says two gigabytes, which would be hours.
    data = bytearray(CLIP)
    data[data.index(b"data") + 4 : data.index(b"data") + 8] = b"\xff\xff\xff\xff"
    before = await http.remaining("count")
    answer = await convert(http, bytes(data), key="count")
    assert answer.status == 200
    assert before - answer.json["remaining_character_count"] in {15, 16}


async def test_402_says_what_it_would_cost_and_comes_before_the_work(http):
    # The changer would crash: it is never asked.
    answer = await convert(http, key="poor", pitch=CRASH)
    assert (answer.status, answer.code) == (402, "QUOTA_EXHAUSTED")
    assert "the clip has 1.000 seconds at 15 characters each" in answer.message
    assert "14 are left" in answer.message
    assert (await convert(http, clip(0.9), key="poor")).json["remaining_character_count"] == 0


async def test_one_balance_with_speech(http):
    before = await http.remaining("tiny")
    await http.generate("x" * 50, key="tiny")
    answer = await convert(http, clip(2.0), key="tiny")
    assert answer.json["remaining_character_count"] == before - 50 - 30
    assert (await convert(http, clip(2.0), key="tiny")).status == 402


async def test_a_repeat_is_the_same_audio_and_bills_nothing(http, files):
    headers = {chosen.IDEMPOTENCY_HEADER: "repeat-1"}
    before = await http.remaining("second")
    first = await convert(http, key="second", headers=headers, transcription="Hi")
    url = str(files.make_url("/a.wav"))
    again = [
        await convert(http, key="second", headers=headers, transcription="Hi"),
        # The same in other words: defaults written out, another delivery, the same bytes from elsewhere.
        await convert(http, key="second", headers=headers, transcription="Hi", pitch="0.0", rate="", variation=1,
                      encode_output_as_base64="true", retain_accent="yes"),
        await convert(http, None, key="second", headers=headers, transcription="Hi", file_url=url),
    ]  # fmt: skip
    audio = (await heard(http, first)).samples
    for answer in again:
        assert (await heard(http, answer)).samples.tolist() == audio.tolist()
        assert answer.json["remaining_character_count"] == before - 15


@pytest.mark.parametrize("other", [{"pitch": 1}, {"file": clip(1.1)}, {"transcription": "Ho"}])
async def test_the_same_key_with_another_request_is_400(http, other):
    headers = {chosen.IDEMPOTENCY_HEADER: f"other-{sorted(other)}"}
    assert (await convert(http, headers=headers, transcription="Hi")).status == 200
    before = await http.remaining()
    fields = {"transcription": "Hi", **other, "headers": {**headers, **other.get("headers", {})}}
    answer = await convert(http, **fields)
    assert answer.status == 400
    assert answer.message.startswith(chosen.IDEMPOTENCY_HEADER)
    assert await http.remaining() == before


async def test_takes_differ_and_each_is_reproducible(http):
    async def samples(take):
        return (await heard(http, await convert(http, headers={chosen.TAKE_HEADER: take}))).samples.tolist()

    none, zero, one, two = [await samples(take) for take in ("0", "0", "1", "2")]
    assert none == zero
    assert one != zero != two
    assert await samples("1") == one


# Urls


async def test_a_clip_by_its_address_in_a_form_of_either_kind(http, files, service):
    fields = {"voice_id": "moody", "file_url": f"{files.make_url('/clips/a.wav')}?X-Signature=a%2Fb%3D"}
    multipart = await convert(http, None, **fields)
    urlencoded = await http.ask("POST", PATH, data=fields)
    for answer in (multipart, urlencoded):
        assert (await heard(http, answer)).audio_seconds == 1.0
    for request in files.asked:
        assert request.raw_path == "/clips/a.wav?X-Signature=a%2Fb%3D", "a signature stays as it is"
        assert chosen.API_KEY_HEADER not in request.headers, "the key is not sent along"
        assert "main" not in str(request.headers)
    assert no_uploads(service)


async def test_private_addresses_are_refused_unless_the_operator_allows(start_with, engines, http_to, files):
    with start_with(engines, workers=1, options=OURS) as service:
        http = http_to(service)
        answer = await convert(http, None, file_url=str(files.make_url("/a.wav")))
        assert answer.status == 400
        assert answer.message.startswith("file_url cannot be fetched: its host is not on the public Internet")
        assert files.asked == []


# The start


def test_an_engine_that_is_asked_for_and_not_there_ends_the_start(tools, tmp_path):
    done = tools.run_service("--port", "0", "--data", str(tmp_path), "--workers", "1", "--changer", "nobody")
    assert done.returncode == 1
    assert "--changer nobody: there is no changer of this name" in done.stderr


async def test_the_limits_name_what_is_taken(http):
    limits = (await http.get("/v1/limits")).json
    assert limits["max_upload_bytes"] == 2 << 20
    assert limits["max_audio_seconds"] == 1800
    assert "mirror-1.0" in limits["identities"]["change_voice"]
    assert "parrot-1.0" in limits["identities"]["change_voice"]
