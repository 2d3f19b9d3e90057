"""The document, transcribed by hand in facts.toml, against speechframe.spec: every row, both ways."""

import copy
import tomllib
from pathlib import Path

import pytest

from speechframe.spec import chosen, codes, dubbing, limits, socket
from speechframe.spec.endpoints import ENDPOINTS, Auth
from speechframe.spec.facts import iter_models, read_field_facts

MODELS = {model.__name__: model for model in iter_models()}
FACTS = tomllib.loads(Path(__file__).with_name("facts.toml").read_text(encoding="utf-8"))
TABLES = {table["model"]: table for table in FACTS["table"]}
EMPTY = {"minimum": None, "maximum": None, "deprecated": False, "gen2_only": False, "superseded_by": ""}
AUTHS = {
    "optional": Auth.KEY,
    "token": Auth.KEY_OR_TOKEN,
    "required 400 401": Auth.KEY_FOR_TOKEN,
    "required": Auth.DUBBING_KEY,
    "upgrade": Auth.KEY_IN_UPGRADE,
}


def same(ours, theirs) -> bool:
    """Words may differ in case (GEN2 and gen2 are both the document's), numbers not at all; true is not 1."""
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours.casefold() == theirs.casefold()
    return ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)


def table_differences(table) -> list[str]:
    """Everything in which a transcribed table and the model of that name disagree."""
    model = MODELS[table["model"]]
    ours = read_field_facts(model)
    theirs = {field["name"]: field for field in table["fields"]}
    said = [] if model.section == table["section"] else [f"section {model.section} != {table['section']}"]
    said += [f"{name}: missing in spec" for name in theirs.keys() - ours.keys()]
    said += [f"{name}: extra in spec" for name in ours.keys() - theirs.keys() if not ours[name].addition]
    for name in ours.keys() & theirs.keys():
        our, their = ours[name], theirs[name]
        if our.addition:
            said.append(f"{name}: marked an addition, but it is the document's")
        kind = their["type"].removesuffix(" enum")
        pairs = {"type": (our.type, kind)}
        if not table.get("required_unsaid"):
            pairs["required"] = (our.required, their.get("required", False))
        for key, empty in EMPTY.items():
            if key in our.chosen:
                assert key not in their, f"{name}: {key} is chosen, but the document gives it"
            elif not (
                kind == "int64" and key in {"minimum", "maximum"}
            ):  # a range of its own, which no row states
                pairs[key] = (getattr(our, key), their.get(key, empty))
        if "default" not in our.chosen and ("default" in their or not table.get("required_unsaid")):
            pairs["default"] = (our.default, their.get("default"))
        pairs["default varies"] = (bool(our.default_note), their.get("default_varies", False))
        pairs["one of"] = (set(our.one_of), set(their.get("one_of", ())))
        if their["type"].endswith(" enum") and not our.one_of:
            said.append(f"{name}: an enum without choices")
        said += [
            f"{name}: {key} {pair[0]!r} != {pair[1]!r}" for key, pair in pairs.items() if not same(*pair)
        ]
    return said


def test_tables_are_the_documents_and_none_is_missing_or_extra():
    assert {table["model"]: said for table in FACTS["table"] if (said := table_differences(table))} == {}
    assert {model.__name__ for model in iter_models() if model.section != "addition"} == set(TABLES)


@pytest.mark.parametrize(
    ("model", "field", "change"),
    [
        ("GenerateRequest", "pitch", {"maximum": 51}),
        ("GenerateRequest", "variation", {"default": 2}),
        ("GenerateRequest", "format", {"one_of": ["MP3"]}),
        ("GenerateRequest", "multiNativeLocale", {"deprecated": False}),
        ("GenerateResponse", "remainingCharacterCount", {"type": "integer"}),
        ("StreamRequest", "sampleRate", {"default_varies": False}),
        ("ConvertRequest", "voice_id", {"name": "voiceId"}),
    ],
)
def test_the_comparison_sees_a_slip_of_the_pen(model, field, change):
    table = copy.deepcopy(TABLES[model])
    next(row for row in table["fields"] if row["name"] == field).update(change)
    assert any(field in difference for difference in table_differences(table))


def endpoint_row(endpoint) -> tuple:
    def name(model) -> str | None:
        return model and model.__name__

    answer = name(endpoint.response_model)
    return (
        endpoint.chapter.section,
        endpoint.method,
        endpoint.path,
        endpoint.content_type,
        name(endpoint.request_model),
        name(endpoint.query_model),
        f"[{answer}]" if endpoint.answers_list else answer,
        endpoint.chapter.statuses,
        endpoint.chapter.auth,
    )


def fact_row(fact) -> tuple:
    also = (
        [status["code"] for status in FACTS["status"] if status["section"] == "7.1"]
        if fact.get("also_71")
        else []
    )
    return (
        fact["section"],
        fact["method"],
        fact["path"],
        fact.get("content_type"),
        fact.get("request"),
        fact.get("query"),
        fact.get("response"),
        tuple(sorted({*fact["statuses"], *also})),
        AUTHS[fact["auth"]],
    )


@pytest.mark.rule("version.v1-paths")
def test_endpoints_are_the_documents_row_by_row():
    assert [endpoint_row(endpoint) for endpoint in ENDPOINTS if not endpoint.addition] == [
        fact_row(fact) for fact in FACTS["endpoint"]
    ]
    assert all(endpoint.path.startswith("/v1/") for endpoint in ENDPOINTS if not endpoint.addition)


def test_endpoint_names_and_addresses_are_unique():
    everything = ENDPOINTS
    assert len({endpoint.name for endpoint in everything}) == len(everything)
    assert len({(endpoint.method, endpoint.path) for endpoint in everything}) == len(everything)


@pytest.mark.rule("limit.region-concurrency")
def test_regions_are_the_documents():
    ours = [(r.name, r.placeholder, r.streaming_concurrency) for r in limits.REGIONS.values()]
    assert ours == [(r["name"], r["placeholder"], r.get("concurrency")) for r in FACTS["region"]]
    for key, region in limits.REGIONS.items():
        assert region.placeholder == "{" + key.replace("-", "_") + "_url}"


@pytest.mark.rule("stream.us-east-default-model", "stream.sample-rate-default")
def test_default_model_and_rate_of_a_stream():
    for key, region in limits.REGIONS.items():
        assert (region.default_stream_model == "falcon-2") is (key != "us-east")
    assert limits.get_default_sample_rate_hz(socket.Model.FALCON_2) == 24000
    assert limits.get_default_sample_rate_hz(socket.Model.GEN2) == 44100


def test_limits_are_the_documents():
    for name, fact in FACTS["limits"].items():
        ours = getattr(limits, name)
        if isinstance(fact, dict):
            assert (ours.low, ours.high) == (fact["low"], fact["high"]), name
            assert ours.default == fact.get("default", ours.default), name
        else:
            assert (list(ours) if isinstance(ours, tuple) else ours) == fact, name
    ranges = {name for name, value in vars(limits).items() if isinstance(value, limits.Range)}
    assert ranges <= set(FACTS["limits"])


@pytest.mark.rule("status.retry-with-backoff")
def test_statuses_are_the_documents():
    listed = {fact["code"]: fact for fact in FACTS["status"]}
    assert {int(status) for status in codes.Status if not status.addition} == {200, *listed}
    assert {int(status) for status in codes.SPEECH_STATUSES} == {
        code for code, fact in listed.items() if fact["section"] == "7.1"
    }
    for code, fact in listed.items():
        status = codes.Status.from_number(code)
        assert status.meaning == fact["meaning"]
        assert status.retryable is fact.get("retry", False)
        assert status.stops_run is fact.get("stops", False)
        assert status.resolution
    assert codes.Status.from_number(418) is None


def test_every_http_error_code_has_a_status_that_means_failure():
    assert all(code.status >= 400 for code in codes.HttpErrorCode)
    assert {code.status for code in codes.HttpErrorCode} == {
        status for status in codes.Status if status >= 400
    }


def test_socket_codes_are_the_documents():
    assert [code.value for code in codes.ErrorCode] == FACTS["codes"]["errors"]
    assert [code.value for code in codes.WarningCode] == list(FACTS["codes"]["warnings"])
    for name, word in FACTS["codes"]["warnings"].items():
        assert word in codes.WarningCode(name).effect
    assert {int(code) for code in codes.CloseCode} == set(FACTS["codes"]["close"])
    assert FACTS["codes"]["close_reason_1008"] == codes.INVALID_KEY_REASON
    assert all(code.cause for code in (*codes.ErrorCode, *codes.WarningCode, *codes.CloseCode))


def test_contexts_move_as_the_document_says():
    assert len(socket.CONTEXT_TRANSITIONS) == len(FACTS["transition"])
    for ours, fact in zip(socket.CONTEXT_TRANSITIONS, FACTS["transition"], strict=True):
        assert (ours.state, ours.trigger, ours.next_state) == (
            fact["state"],
            fact["trigger"],
            fact["next_state"],
        )
        assert fact["condition"] in ours.condition
        assert bool(fact["condition"]) is bool(ours.condition)
        assert fact.get("also", "") in ours.also


def test_every_open_point_stands_in_chosen_with_its_figures():
    assert sorted(point.id for point in chosen.OPEN_POINTS) == sorted(FACTS["open_points"])
    for figures in FACTS["open_points"].values():
        for name, figure in figures.items():
            ours = getattr(chosen, name)
            if isinstance(figure, list):
                assert [ours.low, ours.high, *([ours.default] if len(figure) > 2 else [])] == figure, name
            else:
                assert ours == figure, name


def test_every_open_point_says_why_and_how_sure():
    for point in chosen.OPEN_POINTS:
        assert point.point, point.id
        assert point.choice, point.id
        assert len(point.reason) > 10, point.id
        assert point.certainty.split(" ")[0] in {"sure", "likely", "ours", "guess"}, point.id


def test_choices_speak_the_words_of_the_enums():
    choice = {point.id: point.choice for point in chosen.OPEN_POINTS}
    assert all(word.value in choice["job-status"] for word in dubbing.JobStatusValue)
    assert [word.value for word in dubbing.FailureCode] == choice["failure-code"].split(", ")
    assert set(choice["socket-query"].split(", ")) == set(read_field_facts(socket.SocketQuery))
