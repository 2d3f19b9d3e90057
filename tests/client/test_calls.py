"""Calls are checked before they are sent."""

import warnings

import pytest

from speechframe.errors import InvalidRows
from speechframe.old_client import Call
from speechframe.old_client.calls import make_call
from speechframe.spec.speech import Format, GenerateRequest


def test_a_call_is_made_of_keywords():
    call = make_call("Hello", voice="nora", format="FLAC", rate=5, take=2, idempotency_key="k")
    assert call.request == GenerateRequest(text="Hello", voice_id="nora", format=Format.FLAC, rate=5)
    assert call.body == b'{"format":"FLAC","rate":5,"text":"Hello","voiceId":"nora"}'
    assert (call.operation, call.take, call.idempotency_key) == ("generate", 2, "k")


def test_pronunciations_go_out_by_their_wire_names():
    call = make_call(
        "live live", voice="nora", pronunciation_dictionary={"live": {"type": "IPA", "pronunciation": "laɪv"}}
    )
    assert b'"pronunciationDictionary":{"live":{"pronunciation":"la\xc9\xaav","type":"IPA"}}' in call.body


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"rate": 51}, "rate"),
        ({"pitch": 1.5}, "pitch"),
        ({"format": "AIFF"}, "format"),
        ({"sample_rate": 22050}, "sampleRate"),
        ({"text": ""}, "text"),
        ({"text": "x" * 10_000_000}, "text"),
        ({"text": "<speak>Hello</speak>"}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"voice": ""}, "voiceId"),
        ({"model": "falcon-2"}, "modelVersion"),
        ({"speed": 2}, "speed"),
        (
            {"pronunciation_dictionary": {"a": {"type": "ARPA", "pronunciation": "x"}}},
            "pronunciationDictionary",
        ),
    ],
)
def test_what_cannot_be_sent_is_named_before_it_is(fields, field):
    with pytest.raises(InvalidRows) as caught:
        make_call(**{"text": "Hello", "voice": "nora", **fields})
    assert any(problem["field"].startswith(field) for problem in caught.value.problems)
    assert len(str(caught.value)) < 2000


def test_all_problems_are_named_at_once():
    with pytest.raises(InvalidRows) as caught:
        make_call("", voice="nora", rate=99, speed=1)
    assert {problem["field"] for problem in caught.value.problems} == {"text", "rate", "speed"}


@pytest.mark.parametrize("key", ["", "x" * 256, "a\nb", "schlüssel"])
def test_an_idempotency_key_must_fit_into_a_header(key):
    with pytest.raises(ValueError, match="idempotency key"):
        Call("generate", GenerateRequest(text="Hi", voice_id="nora"), b"{}", idempotency_key=key)


def test_a_take_counts_from_zero():
    with pytest.raises(ValueError, match="take"):
        make_call("Hi", voice="nora", take=-1)


def _line_of(caught):
    (warning,) = caught
    assert warning.filename == __file__
    return str(warning.message)


async def test_a_deprecated_field_warns_the_line_that_sets_it(odd, client):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await client.generate("Bonjour", voice="camille", multi_native_locale="fr-FR")
    assert _line_of(caught) == "multiNativeLocale is deprecated; use locale"
    assert b'"multiNativeLocale":"fr-FR"' in odd.seen[0].body


def test_and_so_without_await(odd, settings):
    from speechframe.old_client import SyncClient

    with SyncClient(settings) as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.generate("Bonjour", voice="camille", multi_native_locale="fr-FR")
    assert _line_of(caught) == "multiNativeLocale is deprecated; use locale"


async def test_generate_speaks(odd, client):
    spoken = await client.generate("Hello", voice="nora", encode_as_base64=True, take=1)
    assert spoken.audio == odd.audio
    assert odd.seen[0].body == b'{"encodeAsBase64":true,"text":"Hello","voiceId":"nora"}'
    assert odd.seen[0].headers["X-Take"] == "1"
