"""Voices, token and limits: small answers, whatever shape they come in."""

import pytest

from speechframe.errors import BadAnswer, PermissionDenied, ServerError
from speechframe.spec.speech import Gender

VOICES, TOKEN, LIMITS = "/v1/speech/voices", "/v1/auth/token", "/v1/limits"

VOICE = {
    "voiceId": "en-US-nora",
    "displayName": "Nora",
    "gender": "Female",
    "locale": "en-US",
    "supportedLocales": {"en-US": {"availableStyles": ["Narration"], "detail": "English (US)"}},
}


async def test_voices_are_models_of_the_document_and_a_token_stands_in_for_the_key(odd, client, key):
    odd.script(odd.answer(200, [VOICE]), path=VOICES)
    (voice,) = await client.voices()
    assert (voice.voice_id, voice.gender) == ("en-US-nora", Gender.FEMALE)
    assert voice.supported_locales["en-US"].available_styles == ["Narration"]
    (seen,) = odd.seen
    assert (seen.path, seen.headers["api-key"]) == (VOICES + "?model=gen2", key)
    assert len(await client.voices("falcon-2", token="tok-1")) == 1
    seen = odd.seen[1]
    assert (seen.path, seen.headers["token"]) == (VOICES + "?model=falcon-2", "tok-1")
    assert "api-key" not in seen.headers


async def test_odd_voices_never_crash_a_listing(odd, client):
    odd.script(
        odd.answer(
            200,
            [
                VOICE | {"gender": "Robot", "mood": {"x": [1]}},
                VOICE | {"voiceId": "b", "supportedLocales": None, "displayName": 5},
                VOICE | {"voiceId": "c", "supportedLocales": {"xx": {"availableStyles": "none"}}},
                {"displayName": "no id"},
                {"voiceId": None},
                "junk",
                None,
            ],
        ),
        path=VOICES,
    )
    voices = await client.voices()
    assert [voice.voice_id for voice in voices] == ["en-US-nora", "b", "c"]
    assert voices[0].gender == "Robot"
    assert voices[1].supported_locales == voices[2].supported_locales == {}


@pytest.mark.parametrize("body", [b"{}", b'[{"voiceId": "a"}'])
async def test_no_list_of_voices_is_a_bad_answer(odd, client, body):
    odd.script(odd.answer(200, body, {"X-Trace-Id": "t"}), path=VOICES)
    with pytest.raises(BadAnswer) as caught:
        await client.voices()
    assert caught.value.trace_id == "t"


async def test_a_token_and_its_end(odd, client, key):
    odd.script(odd.answer(200, {"token": "tok-1", "expiryInEpochMillis": 1_700_000_000_000}), path=TOKEN)
    token = await client.token()
    assert (token.token, token.expiry_in_epoch_millis) == ("tok-1", 1_700_000_000_000)
    assert odd.seen[0].headers["api-key"] == key
    odd.script(odd.answer(401, {"error_message": "bad key"}), path=TOKEN)
    with pytest.raises(PermissionDenied):
        await client.token()


@pytest.mark.parametrize("body", [b"[]", b'{"token": 5}'])
async def test_no_token_is_a_bad_answer(odd, client, body):
    odd.script(odd.answer(200, body), path=TOKEN)
    with pytest.raises(BadAnswer):
        await client.token()


async def test_limits_of_a_speechframe_service(odd, client):
    page = {"service": "speechframe", "concurrency": 15}
    odd.script(odd.answer(200, page), path=LIMITS)
    assert await client.limits() == page


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b""),
        (403, b'{"message": "Missing Authentication Token"}'),
        (302, b""),
        (200, b"<html>welcome</html>"),
        (200, b'{"service": "another", "idempotency": true}'),
    ],
)
async def test_any_other_service_has_none(odd, client, status, body):
    odd.script(odd.answer(status, body), path=LIMITS)
    assert await client.limits() is None


async def test_a_wrong_key_is_not_taken_for_a_service_without_limits(odd, client):
    odd.script(odd.answer(403, {"error_message": "no such key", "error_code": "INVALID_KEY"}), path=LIMITS)
    with pytest.raises(PermissionDenied):
        await client.limits()


async def test_a_service_in_trouble_is_not_taken_for_one_without_limits(odd, client):
    odd.script(odd.answer(500), path=LIMITS)
    with pytest.raises(ServerError):
        await client.limits()
    assert len(odd.seen) == 5
