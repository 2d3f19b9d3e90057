"""What is published: Markdown tables, JSON Schema, OpenAPI 3.1."""

import json

import pytest

from speechframe.spec import chosen
from speechframe.spec.codes import CloseCode, ErrorCode, Status, WarningCode
from speechframe.spec.endpoints import ENDPOINTS
from speechframe.spec.facts import iter_models, read_field_facts
from speechframe.spec.limits import REGIONS
from speechframe.spec.pages.render import build_json_schema, build_openapi, render_markdown
from speechframe.spec.speech import GenerateRequest

# What reads schemas is imported where it is used: it compiles a grammar first, for seconds, and that is not to be
# done in every process that only collects these tests.


def operations(document):
    return {
        operation["operationId"]: (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


@pytest.mark.slow
def test_openapi_is_valid_openapi_3_1():
    from openapi_spec_validator import OpenAPIV31SpecValidator

    document = build_openapi()
    assert document["openapi"].startswith("3.1")
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    json.dumps(document, allow_nan=False)
    del document["info"]["title"]
    assert list(OpenAPIV31SpecValidator(document).iter_errors())


@pytest.mark.rule("version.interface")
def test_openapi_carries_the_interface_version():
    assert build_openapi()["info"]["version"] == "1.0.0"


def test_openapi_has_every_endpoint_with_its_statuses():
    found = operations(build_openapi())
    assert set(found) == {endpoint.name for endpoint in ENDPOINTS}
    for endpoint in ENDPOINTS:
        path, method, operation = found[endpoint.name]
        assert path == endpoint.path
        if endpoint.method == "WebSocket":
            assert method == "get"
            assert list(operation["responses"]) == ["101", "400", "429", "500", "503"]
            continue
        assert method == endpoint.method.lower()
        assert [int(status) for status in operation["responses"]] == list(endpoint.chapter.statuses)
        assert bool(operation.get("requestBody")) is bool(endpoint.request_model)
        assert {p["name"] for p in operation.get("parameters", ()) if p.get("in") == "path"} == set(
            endpoint.path_fields
        )


def test_every_json_answer_has_a_stated_model():
    http = [endpoint for endpoint in ENDPOINTS if endpoint.method != "WebSocket"]
    # Audio, and the description itself.
    assert [e.name for e in http if e.response_model is None] == ["stream", "openapi"]
    # An answer always has all fields.
    schemas = build_openapi()["components"]["schemas"]
    assert all(
        set(schemas[name]["required"]) == set(schemas[name]["properties"]) for name in ("Limits", "Health")
    )


def test_openapi_marks_what_is_ours():
    document = build_openapi()
    found = operations(document)
    for endpoint in ENDPOINTS:
        assert found[endpoint.name][2].get("x-speechframe-addition", False) is endpoint.addition
    generate = document["components"]["schemas"]["GenerateRequest"]["properties"]
    assert generate["pronunciationDictionary"]["x-speechframe-addition"] is True
    assert generate["multiNativeLocale"]["deprecated"] is True
    assert generate["multiNativeLocale"]["x-superseded-by"] == "locale"
    assert "x-speechframe-addition" not in generate["locale"]
    assert document["components"]["responses"]["TooManyRequests"]["headers"].keys() == {
        chosen.TRACE_HEADER,
        chosen.WARNING_HEADER,
        chosen.RETRY_AFTER_HEADER,
    }


def test_openapi_says_who_calls():
    found = operations(build_openapi())
    assert found["generate"][2]["security"] == [{"key": []}]
    assert found["voices"][2]["security"] == [{"key": []}, {"token": []}]
    assert found["stream_input"][2]["security"] == [{"key": []}, {"key_in_query": []}]
    assert found["health"][2]["security"] == []


def test_json_schema_holds_every_table_and_no_python():
    from jsonschema import Draft202012Validator

    schema = build_json_schema()
    Draft202012Validator.check_schema(schema)
    assert {model.__name__ for model in iter_models()} <= set(schema["$defs"])
    text = json.dumps(schema)
    assert ">>>" not in text
    assert '"null"' not in text


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ({"text": "Hi", "voiceId": "nora"}, True),
        ({"text": "Hi", "voiceId": "nora", "pitch": 51}, False),
        ({"text": "Hi", "voiceId": "nora", "sampleRate": 16000}, False),
        ({"text": "Hi", "voiceId": "nora", "sampleRate": 48000.0, "variation": 5}, True),
        ({"text": "Hi", "voiceId": "nora", "pronunciationDictionary": {"a": {"type": "X"}}}, False),
    ],
)
def test_the_schema_judges_as_the_check_does(body, right):
    from jsonschema import Draft202012Validator

    from speechframe.spec.check import check

    schema = build_json_schema()
    validator = Draft202012Validator({**schema, "$ref": "#/$defs/GenerateRequest"})
    assert validator.is_valid(body) is right
    assert (check(GenerateRequest, body).value is not None) is right


def test_markdown_has_every_field_endpoint_code_and_choice():
    text = render_markdown()
    for model in iter_models():
        section = text.partition(f"### {model.__name__} (")[2].partition("\n### ")[0]
        for name in read_field_facts(model):
            assert f"| `{name}` |" in section, (model, name)
    for endpoint in ENDPOINTS:
        assert f"`{endpoint.path}`" in text
    for code in (*ErrorCode, *WarningCode, *CloseCode, *(int(status) for status in Status)):
        assert f"| {code} |" in text
    for region in REGIONS.values():
        assert region.name in text
    for point in chosen.OPEN_POINTS:
        assert f"| {point.id} |" in text


def test_markdown_tables_are_rectangular():
    width = None
    for line in render_markdown().splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = line.replace("\\|", "").count("|")
        assert width in {None, cells}, line
        width = cells


def test_content_types():
    from speechframe.spec.speech import Format

    assert chosen.CONTENT_TYPES == {
        "WAV": "audio/wav",
        "MP3": "audio/mpeg",
        "FLAC": "audio/flac",
        "OGG": "audio/ogg",
        "ULAW": "audio/basic",
        "ALAW": "audio/x-alaw-basic",
        "PCM": "audio/L16",
    }
    assert set(chosen.CONTENT_TYPES) == set(Format)
    assert chosen.make_content_type(Format.PCM, 8000, 2) == "audio/L16;rate=8000;channels=2"
    assert chosen.make_content_type(Format.MP3, 8000, 2) == "audio/mpeg"
