"""The service against its own description: schemathesis reads ``/v1/openapi.json`` and calls what it finds."""

import functools
import itertools
import json

import pytest
import requests
import schemathesis
from convert_lab import clip
from hypothesis import HealthCheck, settings
from schemathesis.checks import (
    ignored_auth,
    load_all_checks,
    negative_data_rejection,
    positive_data_acceptance,
)
from schemathesis.generation.feedback import NO_FEEDBACK
from schemathesis.pytest._test_builder import build_operation_test

from speechframe.local.service.app import HANDLERS
from speechframe.spec import chosen
from speechframe.spec.check import check
from speechframe.spec.endpoints import FORM_TYPE, get_endpoint
from speechframe.spec.pages.render import build_json_schema, build_openapi

KEY = "main"
CLIP = clip(0.2)

# Every check of schemathesis is asked of every address, but for these.
EXCLUDED = {
    # Section 5, rule 3: a missing key is 400 here, where the check knows 401 and 403 alone.
    "token": [ignored_auth],
    # What is called is the address of a WebSocket: without an upgrade the answer is 400, whatever the query.
    "stream_input": [positive_data_acceptance, negative_data_rejection],
    # A form has only texts: what is of a wrong type in JSON, a number for a truth value, is a right text there.
    "convert": [negative_data_rejection],
    # And which locales, projects, jobs and pages there are, a schema cannot say: what it allows may be refused.
    "create_job": [positive_data_acceptance, negative_data_rejection],
    "create_job_with_project": [positive_data_acceptance, negative_data_rejection],
    "job_status": [positive_data_acceptance],
    # And a query may hold more than is known (chosen: tolerated-http).
    "list_projects": [positive_data_acceptance, negative_data_rejection],
    "create_project": [positive_data_acceptance],
    "update_project": [positive_data_acceptance],
    "utterances": [positive_data_acceptance],
    "update_utterances": [positive_data_acceptance],
}

KNOWN = {
    "voice_id": "ruby",
    "locale": "en-US",
    "multiNativeLocale": "en-US",
    "multi_native_locale": "en-US",
    "style": "Conversational",
    "targetLanguage": "pt-BR",
    "sourceLanguage": "en",
}
"""Names that exist, of what a schema cannot list."""
REQUIRED = frozenset({"voice_id", "voiceId", "targetLanguage", "sourceLanguage"})
"""Of these, what may not be empty."""

SERVED = tuple(HANDLERS)
numbers = itertools.count()
load_all_checks()


@pytest.fixture(scope="module")
def connection():
    with requests.Session() as session:
        yield session


@pytest.fixture(scope="module")
def link(changing, connection):
    """Where a clip lies that can be fetched: the service's own audio."""
    body = {"text": "Hi.", "voiceId": "ruby"}
    url = changing.url + get_endpoint("generate").path
    answer = connection.post(url, json=body, headers={chosen.API_KEY_HEADER: KEY})
    return answer.json()["audioFile"]


def with_known_names(case, name, link):
    """Put names that exist, speakable texts and a real clip in the place of what is valid as a schema goes.

    What is not stays as it is: a case that is wrong is wrong for the reason it was made for.
    """
    if case.headers and len(key := case.headers.get(chosen.IDEMPOTENCY_HEADER, "")) in range(1, 256):
        # The same key with another body is refused, and rightly so.
        case.headers = {**case.headers, chosen.IDEMPOTENCY_HEADER: f"{next(numbers)} {key}"[:255].strip()}
    if not isinstance(case.body, dict):
        return
    body = case.body = dict(case.body)
    gen2 = body.get("model") == "gen2" or name == "generate"
    for field, known in {**KNOWN, "voiceId": "ruby" if gen2 else "ivy"}.items():
        if (
            isinstance(given := body.get(field), str)
            and len(given) <= 200
            and (given or field not in REQUIRED)
        ):
            body[field] = known
    if isinstance(text := body.get("text"), str) and 0 < len(text) <= chosen.MAX_TEXT_CHARACTERS:
        # Mostly letters that the voice can speak, or the text is refused for good reason.
        body["text"] = f"Good morning to you all: {text[:15]}"
    if isinstance(given := body.get("pronunciationDictionary"), dict):
        # What is IPA, and of which language, a schema cannot say; and the text may hold the word.
        body["pronunciationDictionary"] = {
            word: {**how, "pronunciation": "ruː"} if is_ipa(how) else how for word, how in given.items()
        }
    if isinstance(texts := body.get("texts"), list):
        body["texts"] = [f"Hi {text[:30]}" if isinstance(text, str) else text for text in texts]
    for field in ("audioDuration", "audio_duration"):
        if type(seconds := body.get(field)) in {int, float} and seconds > 0:
            body[field] = min(max(seconds, 0.5), 2.0)
    if get_endpoint(name).content_type == FORM_TYPE:
        # No field of a form is without a name, and none comes twice that is not a list.
        body.pop("", None)
        body.update(
            {field: json.dumps(value) for field, value in body.items() if isinstance(value, list | dict)}
        )
        if "file" in body:
            body["file"] = CLIP
    if isinstance(body.get("file_url"), str) and body["file_url"]:
        body["file_url"] = link
    # What the changer of these tests does goes by pitch.
    if "voice_id" in body and body.get("pitch") in range(-50, 51):
        body["pitch"] %= 40


def is_ipa(how):
    return schema_of("Pronunciation").is_valid(how) and how["type"] == "IPA"


def tolerated(case, name):
    """Say whether a body is right once it is read as the service reads it (chosen: tolerated-http).

    Numbers and truth values may be text, null is a field that is not given; what is understood must be valid.
    """
    endpoint = get_endpoint(name)
    model = endpoint.request_model
    if model is None or endpoint.content_type == FORM_TYPE or not isinstance(case.body, dict):
        return False
    understood = check(model, case.body, wire_names_only=True).value
    return understood is not None and schema_of(model.__name__).is_valid(
        understood.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    )


@functools.cache
def schema_of(table):
    # Compiles a grammar when it is imported: not while tests are collected, in every process.
    from jsonschema import Draft202012Validator

    return Draft202012Validator({**build_json_schema(), "$ref": f"#/$defs/{table}"})


@functools.cache
def addresses():
    """Return what the description says of each address, by our short names."""
    description = schemathesis.openapi.from_dict(build_openapi())
    # Texts have no NUL, which a schema could say only once more for each of them.
    description.config.generation.update(allow_x00=False)
    found = (result.ok() for result in description.get_all_operations())
    return {operation.definition.raw["operationId"]: operation for operation in found}


def try_everything(name, service, connection, link, **how):
    def call(case):
        with_known_names(case, name, link)
        # The client of these tests takes an interim answer for the last one.
        case.headers.pop(chosen.PROGRESS_HEADER, None)
        excluded = list(EXCLUDED.get(name, ()))
        if tolerated(case, name):
            excluded.append(negative_data_rejection)
        case.call_and_validate(
            base_url=service.url,
            session=connection,
            headers={chosen.API_KEY_HEADER: KEY},
            excluded_checks=excluded,
            timeout=60,
        )
        seen.append(case)

    seen = []
    operation = addresses()[name]
    # The plugin's own collector makes every case while tests are collected, in every worker.
    build_operation_test(
        config=operation.schema.config,
        operation=operation,
        test_func=call,
        given_kwargs={},
        feedback=NO_FEEDBACK,
        explicit_settings=settings(
            deadline=None, database=None, suppress_health_check=list(HealthCheck), **how
        ),
    )()
    return seen


def test_what_is_read_here_is_what_the_service_publishes(changing, connection):
    assert connection.get(changing.url + get_endpoint("openapi").path).json() == build_openapi()


# What makes sound has its like among the others, and takes longest.
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in {"convert", "generate", "stream"} else n
        for n in SERVED
    ],
)
def test_every_address_does_what_its_description_says(name, changing, connection, link):
    seen = try_everything(name, changing, connection, link, max_examples=4, derandomize=True)
    assert seen


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SERVED)
def test_every_address_does_what_its_description_says_whatever_comes(name, changing, connection, link):
    seen = try_everything(name, changing, connection, link, max_examples=100)
    assert seen
