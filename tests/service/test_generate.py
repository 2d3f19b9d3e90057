"""POST /v1/speech/generate: what a good request gets."""

import asyncio
import base64
import io
import itertools
from urllib.parse import unquote

import pytest
import soundfile

from speechframe.audio import codec
from speechframe.spec import chosen
from speechframe.spec.limits import GENERATE_SAMPLE_RATES_HZ
from speechframe.spec.speech import ChannelType, Format, GenerateResponse
from speechframe.spec.texts import count_billed_characters
from speechframe.wire.speech import decode_generate


@pytest.mark.rule(
    "auth.key-header", "limit.quota-remaining", "speech.http-no-events", "version.deprecated-response-fields"
)
async def test_an_answer_has_the_fields_of_the_document_and_nothing_else(http):
    before = await http.remaining()
    answer = await http.generate("hello there", encodeAsBase64=True)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    fields = answer.json
    assert set(fields) == {
        "audioFile", "audioLengthInSeconds", "remainingCharacterCount", "consumedCharacterCount", "wordDurations",
        "encodedAudio",
    }  # fmt: skip
    response = GenerateResponse.model_validate(fields)
    assert response.audio_file == ""
    assert response.remaining_character_count == before - len("hello there")
    assert response.consumed_character_count == chosen.DEFAULT_QUOTA_CHARACTERS - before + len("hello there")
    assert [(w.word, w.start_ms, w.end_ms) for w in response.word_durations] == [("hello", 0, 10)]
    assert decode_generate(answer.body, characters=11).audio == base64.b64decode(fields["encodedAudio"])


@pytest.mark.parametrize("audio_format", list(Format))
async def test_every_format_and_channel_type_in_every_rate(http, audio_format):
    for channel_type, rate in itertools.product(ChannelType, GENERATE_SAMPLE_RATES_HZ):
        asked = {"format": audio_format, "channelType": channel_type, "sampleRate": rate}
        answer, linked = await asyncio.gather(
            http.generate("length of this", encodeAsBase64=True, **asked),
            http.generate("length of this", **asked),
        )
        assert answer.status == linked.status == 200
        shape, real_rate = codec.get_forced_shape(audio_format, channel_type, rate)
        raw = {"format": audio_format, "sample_rate_hz": real_rate, "channels": shape.channels}
        audio = codec.decode(answer.audio, **raw)
        assert (audio.sample_rate_hz, audio.channels) == (real_rate, shape.channels)
        # MP3 and Ogg pad their last frame; the others hold exactly what the answer says.
        pad_s = 0.1 if audio_format in {Format.MP3, Format.OGG} else 0
        assert audio.audio_seconds == pytest.approx(answer.json["audioLengthInSeconds"], abs=pad_s)
        forced = (shape, real_rate) != (channel_type, rate)
        assert bool(answer.warnings) == forced
        assert ("warning" in answer.json) == forced
        fetched = await http.get(linked.json["audioFile"], key=None)
        assert fetched.body == answer.audio, "link and Base64 hold the same bytes"
        assert fetched.headers["Content-Type"] == chosen.make_content_type(
            audio_format, real_rate, shape.channels
        )
        assert linked.json["audioFile"].endswith("." + audio_format.lower())


@pytest.mark.rule("speech.voice-id-forms", "version.gen2-generate")
@pytest.mark.parametrize("name", ["en-US-moody", "moody", "EN-us-MOODY"])
async def test_a_voice_goes_by_its_full_id_and_by_its_name(http, name):
    assert (await http.generate(voiceId=name)).status == 200


async def test_extra_query_unknown_headers_and_unknown_fields_are_tolerated(http):
    body = {"text": "hello", "voiceId": "moody", "voice_id": "x", "colour": "blue"}
    answer = await http.ask(
        "POST", "/v1/speech/generate?origin=plugin&x=1", json=body, headers={"X-Unheard-Of": "1"}
    )
    assert answer.status == 200
    assert answer.json["warning"] == "unknown fields were ignored: colour, voice_id"
    assert answer.warnings == [answer.json["warning"]]


async def test_a_warning_that_is_not_ascii_arrives_whole(http):
    answer = await http.generate(**{"größe 100%": 1})
    assert all(words.isascii() for words in answer.warnings)
    assert [unquote(words) for words in answer.warnings] == [answer.json["warning"]]
    assert "größe 100%" in answer.json["warning"]


@pytest.mark.rule("version.deprecated-request-field")
async def test_the_former_name_of_locale_works_and_points_to_locale(http):
    answer = await http.generate(multiNativeLocale="en_us")
    assert answer.status == 200
    assert answer.json["warning"] == "multiNativeLocale is deprecated; use locale"
    assert (await http.generate(multiNativeLocale="fr-FR")).message.startswith(
        "multiNativeLocale is not spoken"
    )


@pytest.mark.parametrize("locale", ["en_us", "EN"])
async def test_a_locale_in_any_spelling(http, locale):
    answer = await http.generate(locale=locale)
    assert answer.status == 200
    assert answer.warnings == []


async def test_billed_are_the_characters_without_pause_markers(http):
    text = "hello [pause 1s]there [pause 9s]😀"
    before = await http.remaining()
    answer = await http.generate(text)
    assert (
        before - answer.json["remainingCharacterCount"]
        == count_billed_characters(text)
        == len("hello there 😀")
    )
    assert "pause of 9 s was set to 5 s" in answer.json["warning"]


@pytest.mark.parametrize("take", ["0", " 2 "])
async def test_takes_differ_and_each_is_reproducible(http, take):
    headers = {chosen.TAKE_HEADER: take}
    first, second = [await http.generate("take", encodeAsBase64=True, headers=headers) for _ in range(2)]
    plain = await http.generate("take", encodeAsBase64=True)
    assert first.audio == second.audio
    assert (first.audio == plain.audio) == (take == "0")


async def test_a_library_that_prints_does_not_disturb_the_answer(http):
    assert (await http.generate("print noise")).status == 200


async def test_null_counts_as_not_given_and_defaults_are_wav_mono_44100_behind_a_link(http):
    answer = await http.generate(style=None, locale=None, pitch=None, sampleRate=None, encodeAsBase64=None)
    fetched = await http.get(answer.json["audioFile"], key=None)
    info = soundfile.info(io.BytesIO(fetched.body))
    assert (info.format, info.channels, info.samplerate) == ("WAV", 1, 44100)


@pytest.mark.parametrize(
    ("headers", "prefix"),
    [({}, b""), ({"Content-Type": "application/json; charset=latin-1"}, b"\xef\xbb\xbf")],
    ids=["bare", "a mark"],
)
async def test_json_is_taken_whatever_the_content_type_says_with_or_without_a_mark(http, headers, prefix):
    data = prefix + '{"text": "größer", "voiceId": "moody"}'.encode()
    before = await http.remaining()
    answer = await http.ask("POST", "/v1/speech/generate", data=data, headers=headers)
    assert answer.status == 200
    assert before - answer.json["remainingCharacterCount"] == 6
