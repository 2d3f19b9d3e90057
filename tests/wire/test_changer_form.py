"""Forms of the voice changer as a parser of forms reads them, and its answers whatever they look like."""

import asyncio
import base64
import hashlib
import json

import pytest
from aiohttp import MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from hypothesis import given
from hypothesis import strategies as st

from speechframe.errors import BadAnswer
from speechframe.spec.changer import ConvertRequest
from speechframe.wire import changer
from speechframe.wire.changer import encode_convert

CLIP = b"RIFF\r\n--speechframe\r\n\r\n"
SHA = hashlib.sha256(CLIP).hexdigest()


def decode_convert(body, clip_seconds=3600.0):
    return changer.decode_convert(body, clip_seconds=clip_seconds)


def form_of(clip=CLIP, *, as_base64=True, **fields):
    request = ConvertRequest(voice_id="nora", file=b"", **fields)
    return encode_convert(
        request,
        hashlib.sha256(clip).hexdigest(),
        name="clip.wav",
        media_type="audio/wav",
        as_base64=as_base64,
    )


def parsed(form, clip):
    """What a parser that is not ours finds in a form."""

    async def read():
        loop = asyncio.get_running_loop()
        stream = StreamReader(BaseProtocol(loop), 2**20, loop=loop)
        stream.feed_data(form.head + clip + form.tail)
        stream.feed_eof()
        parts = MultipartReader({"Content-Type": form.content_type}, stream)
        return [
            (part.name, part.filename, part.headers.get("Content-Type"), bytes(await part.read()))
            async for part in parts
        ]

    return asyncio.run(read())


def test_a_parser_of_forms_finds_every_field_and_the_clip():
    _, form = form_of(
        pitch=-3, sample_rate=24000, retain_accent=False, transcription="Grüße\r\n--x", audio_duration=1.5,
        pronunciation_dictionary={"a": {"type": "IPA", "pronunciation": "ə"}},
    )  # fmt: skip
    *fields, clip = parsed(form, CLIP)
    assert clip == ("file", "clip.wav", "audio/wav", CLIP)
    assert {name: value.decode() for name, _, _, value in fields} == {
        "voice_id": "nora", "pitch": "-3", "sample_rate": "24000.0", "retain_accent": "false",
        "transcription": "Grüße\r\n--x", "audio_duration": "1.5", "encode_output_as_base64": "true",
        "pronunciation_dictionary": '{"a":{"pronunciation":"ə","type":"IPA"}}',
    }  # fmt: skip
    assert [name for name, *_ in fields] == sorted(name for name, *_ in fields)


@given(
    st.binary(max_size=300),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60),
)
def test_any_clip_and_any_text_come_out_as_they_went_in(clip, text):
    _, form = form_of(clip, transcription=text)
    found = {name: value for name, _, _, value in parsed(form, clip)}
    assert found["file"] == clip
    assert found["transcription"].decode() == text


def test_what_is_asked_for_is_the_clip_and_what_differs_from_the_defaults():
    content, form = form_of(pitch=3)
    assert content == b'{"pitch":3,"voice_id":"nora"}' + bytes.fromhex(SHA)
    assert form_of(pitch=3, variation=1, format="WAV", retain_accent=True, sample_rate=44100)[0] == content
    assert form_of(pitch=3, encode_output_as_base64=False)[0] == content
    assert form_of(pitch=4)[0] != content
    assert form_of(CLIP + b"x", pitch=3)[0] != content
    assert form_of(pitch=3)[1] == form


def test_how_the_audio_is_delivered_is_asked_in_the_form():
    asked = [
        {n: v for n, _, _, v in parsed(form_of(as_base64=yes, **said)[1], CLIP)}["encode_output_as_base64"]
        for yes, said in ((True, {}), (False, {}), (True, {"encode_output_as_base64": False}))
    ]
    assert asked == [b"true", b"false", b"false"]


def answer(**changes):
    fields = {"audio_file": "http://x/1.wav", "audio_length_in_seconds": 2.5, "remaining_character_count": 9}
    return json.dumps({k: v for k, v in {**fields, **changes}.items() if v is not ...}).encode()


def test_an_answer_is_read_as_the_document_has_it():
    said = decode_convert(answer(transcription="Hello", warning="slow"))
    assert (said.audio, said.audio_url, said.audio_seconds) == (None, "http://x/1.wav", 2.5)
    assert (said.remaining_characters, said.transcription, said.warning, said.notes) == (
        9,
        "Hello",
        "slow",
        [],
    )


@given(st.binary(min_size=1, max_size=200), st.booleans())
def test_base64_beside_the_url_is_the_audio(audio, escaped):
    body = answer(encoded_audio=base64.b64encode(audio).decode())
    said = decode_convert(body.replace(b"/", b"\\/") if escaped else body)
    assert said.audio == audio


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"), (b"[]", "not a JSON object"), (answer(audio_file=""), "neither audio_file nor encoded_audio"),
        (answer(audio_file=..., encoded_audio=None), "neither"), (answer(encoded_audio="%"), "encoded_audio is not Base64"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_says_why(body, words):
    with pytest.raises(BadAnswer, match=words):
        decode_convert(body)


@pytest.mark.parametrize(("length", "words"), [(..., "is missing"), (-1, "is -1;")])
def test_an_odd_length_is_a_note_beside_the_audio(length, words):
    said = decode_convert(answer(audio_length_in_seconds=length, encoded_audio="AAAA"))
    assert (said.audio, said.audio_seconds) == (b"\0\0\0", None)
    assert words in said.notes[0]


@pytest.mark.parametrize(
    ("seconds", "letters", "is_kept"), [(1.0, 5100, True), (1.0, 5101, False), (60.0, 11000, True)]
)
def test_a_transcription_far_longer_than_its_clip_is_left_out(seconds, letters, is_kept):
    body = answer(transcription="t" * letters)
    said = decode_convert(body, clip_seconds=seconds)
    assert said.transcription == ("t" * letters if is_kept else None)
    assert said.notes == (
        []
        if is_kept
        else ["a transcription of 5,101 characters is too long for a clip of 1.0 s and was left out"]
    )


def test_an_answer_of_countless_values_is_not_parsed():
    with pytest.raises(BadAnswer, match="more than 10,100 values of JSON") as caught:
        decode_convert(answer(more=[[]] * 11_000), clip_seconds=1.0)
    assert caught.value.remaining_characters == 9


def test_the_balance_is_known_though_the_answer_is_cut_off():
    whole = answer(encoded_audio="A" * 400)
    with pytest.raises(BadAnswer) as caught:
        decode_convert(b'{"remaining_character_count": 77, ' + whole[1:200])
    assert caught.value.remaining_characters == 77


def test_odd_balances_and_texts_are_forgiven_and_said():
    said = decode_convert(answer(remaining_character_count="many", transcription=5, warning=["x"]))
    assert (said.remaining_characters, said.transcription, said.warning) == (None, None, None)
    assert said.notes == ["the answer gives no usable remaining_character_count"]
