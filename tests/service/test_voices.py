"""GET /v1/speech/voices and our additions: /v1/limits, /v1/openapi.json, /healthz."""

import pytest
from pydantic import TypeAdapter

from speechframe import _version
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.slots import RequestSlots
from speechframe.spec import chosen
from speechframe.spec.limits import REGIONS, Pool
from speechframe.spec.speech import Voice

VOICES = TypeAdapter(list[Voice])


async def ids(http, query=""):
    answer = await http.get(f"/v1/speech/voices{query}")
    assert answer.status == 200
    return [voice.voice_id for voice in VOICES.validate_json(answer.body)]


@pytest.mark.rule("voices.falcon-spelling", "voices.catalogues-separate", "version.two-models")
async def test_two_catalogues_in_every_spelling(http):
    gen2, falcon = await ids(http), await ids(http, "?model=falcon-2")
    assert gen2 == await ids(http, "?model=gen2") == await ids(http, "?model=GEN2")
    assert falcon == await ids(http, "?model=FALCON&origin=somewhere")
    assert set(gen2) != set(falcon)
    assert "en-US-moody" in gen2
    assert "en-US-moody" not in falcon


@pytest.mark.rule("status.voices-subset")
@pytest.mark.parametrize("model", ["", "falcon"])
async def test_an_unknown_model_is_400_with_what_is_allowed(http, model):
    answer = await http.get(f"/v1/speech/voices?model={model}")
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert answer.message.startswith("model")
    assert "falcon-2" in answer.message


@pytest.mark.rule("version.deprecated-response-fields")
async def test_a_voice_has_every_field_the_deprecated_ones_too(http):
    answer = await http.get("/v1/speech/voices")
    voice = next(voice for voice in answer.json if voice["voiceId"] == "en-US-moody")
    assert voice == {
        "voiceId": "en-US-moody",
        "displayName": "Moody",
        "description": "Does what its text says",
        "gender": "NonBinary",
        "locale": "en-US",
        "supportedLocales": {"en-US": {"availableStyles": ["Plain"], "detail": "English (United States)"}},
        "accent": "English (United States)",
        "displayLanguage": "English",
        "availableStyles": ["Plain"],
        "engine": "moody",
        "kind": "formant",
    }


async def test_every_listed_voice_names_itself_by_locale_and_name(http):
    for voice in VOICES.validate_json((await http.get("/v1/speech/voices")).body):
        assert voice.voice_id.startswith(f"{voice.locale}-")
        assert voice.locale in voice.supported_locales


async def test_limits_say_what_a_key_may_and_what_was_chosen(http):
    limits = (await http.get("/v1/limits", key="second")).json
    assert limits["service"] == "speechframe"
    assert limits["version"] == _version.__version__
    assert limits["identity"].startswith("local/")
    assert "moody-1.0" in limits["identity"]
    assert limits["concurrency"] == 3
    assert limits["pools"] == {"streaming": 3, "other": 3}
    assert limits["max_text_characters"] == chosen.MAX_TEXT_CHARACTERS
    assert limits["idempotency"] is True
    assert limits["take_header"] == chosen.TAKE_HEADER
    assert limits["quota_characters"] == 1_000_000
    assert limits["remaining_characters"] <= 1_000_000
    assert limits["prices"]["generate"]["credits"] == 1.0
    assert [point["id"] for point in limits["chosen"]] == [point.id for point in chosen.OPEN_POINTS]


@pytest.mark.rule("limit.region-concurrency")
async def test_the_region_a_service_plays_gives_keys_their_streaming_pool(start, http_to):
    with start(workers=1, regions=["jp"]) as service:
        limits = (await http_to(service).get("/v1/limits")).json
        assert list(service.settings.addresses()) == ["jp"]
    assert limits["region"] == "jp"
    assert limits["pools"] == {"streaming": 2, "other": chosen.DEFAULT_CONCURRENCY}
    plain, own = (Key(b"", "", 0, concurrency) for concurrency in (None, 7))
    for name, region in REGIONS.items():
        slots = RequestSlots(name)
        expected = region.streaming_concurrency or chosen.DEFAULT_CONCURRENCY
        assert slots.get_cap(plain, Pool.STREAMING) == expected
        assert slots.get_cap(plain, Pool.OTHER) == chosen.DEFAULT_CONCURRENCY
        assert slots.get_cap(own, Pool.STREAMING) == slots.get_cap(own, Pool.OTHER) == 7


@pytest.mark.rule("version.v1-paths", "version.interface")
async def test_the_description_is_open_to_all(http):
    document = (await http.get("/v1/openapi.json", key=None)).json
    assert document["openapi"].startswith("3.1")
    assert document["info"]["version"] == "1.0.0"
    assert "/v1/speech/generate" in document["paths"]
    of_the_document = [path for path in document["paths"] if path != "/healthz"]
    assert all(path.startswith("/v1/") for path in of_the_document)


async def test_health_is_open_to_all_and_counts_workers(http):
    answer = await http.get("/healthz", key=None)
    assert answer.json["status"] == "ok"
    assert answer.json["workers"]["count"] == answer.json["workers"]["alive"] >= 1
