"""Build operations, parameters and error responses of the OpenAPI description (sections 4, 5 and 7)."""

from typing import Any

from pydantic.json_schema import models_json_schema

from speechframe.spec import chosen, endpoints
from speechframe.spec.additions import Health, Limits
from speechframe.spec.codes import CloseCode, HttpErrorCode, Status
from speechframe.spec.endpoints import FORM_TYPE, Auth, Endpoint
from speechframe.spec.facts import read_field_facts

_ADDITION_MARK = {"x-speechframe-addition": True}
_SECURITY_BY_AUTH: dict[Auth, list[dict[str, list[str]]]] = {
    Auth.KEY: [{"key": []}],
    Auth.KEY_OR_TOKEN: [{"key": []}, {"token": []}],
    Auth.KEY_FOR_TOKEN: [{"key": []}],
    Auth.DUBBING_KEY: [{"key": []}],
    Auth.KEY_IN_UPGRADE: [{"key": []}, {"key_in_query": []}],
    Auth.NONE: [],
}
_UPGRADE_REFUSALS = (
    Status.BAD_REQUEST,
    Status.TOO_MANY_REQUESTS,
    Status.INTERNAL_SERVER_ERROR,
    Status.SERVICE_UNAVAILABLE,
)
"""Statuses of a refused WebSocket upgrade with a valid key (chosen: socket-upgrade)."""


def describe_operation(endpoint: Endpoint) -> dict[str, Any]:
    """Return the Operation object of an endpoint."""
    described: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [endpoint.chapter.name],
        "summary": endpoint.summary,
        "security": _SECURITY_BY_AUTH[endpoint.chapter.auth],
        "responses": _describe_responses(endpoint),
    }
    parameters = _describe_parameters(endpoint)
    if parameters:
        described["parameters"] = parameters
    if endpoint.request_model and endpoint.content_type:
        described["requestBody"] = {"required": True, "content": _describe_request_content(endpoint)}
    if endpoint.addition:
        described |= _ADDITION_MARK
    if endpoint.method == "WebSocket":
        described["x-websocket"] = {
            "client": _refer_to_schema("ClientFrame"),
            "server": [_refer_to_schema(f"{kind}Frame") for kind in ("Audio", "Final", "Error", "Warning")],
            "closes": {str(code.value): code.cause for code in CloseCode},
        }
    return described


def describe_header_parameters() -> dict[str, Any]:
    """Return the Parameter objects of the headers that several endpoints accept."""
    hours = chosen.IDEMPOTENCY_SECONDS // 3600
    states = f"{chosen.CALL_STATE_HEADER} and {chosen.CALL_CPU_HEADER}"
    progress = f"Send an interim answer 102 every {chosen.PROGRESS_SECONDS:g} s while the call is queued"
    headers: dict[str, tuple[str, str, dict[str, Any]]] = {
        "IdempotencyKey": (
            chosen.IDEMPOTENCY_HEADER,
            f"A repeat within {hours} hours with the same key and body is not billed again.",
            {"type": "string", "minLength": 1, "maxLength": chosen.MAX_IDEMPOTENCY_CHARACTERS},
        ),
        "Progress": (
            chosen.PROGRESS_HEADER,
            f"{progress} or in progress, with {states}.",
            {"type": "string"},
        ),
        "Take": (
            chosen.TAKE_HEADER,
            "Number of the take (one of several spoken versions of a text); 0 is the first.",
            {"type": "integer", "minimum": 0, "maximum": chosen.MAX_TAKE_NUMBER, "default": 0},
        ),
    }
    return {
        key: {"name": name, "in": "header", "required": False, **_describe_header(description, schema)}
        for key, (name, description, schema) in headers.items()
    }


def _describe_header(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "schema": schema, **_ADDITION_MARK}


def describe_error_responses() -> dict[str, Any]:
    """Return one Response object for every status except 200."""
    return {
        status.name.title().replace("_", ""): {
            "description": f"{status.meaning}. {status.resolution}",
            "headers": _describe_answer_headers(retry_after=status in {429, 503}),
            "content": {"application/json": {"schema": _refer_to_schema("HttpError")}},
            **(_ADDITION_MARK if status.addition else {}),
        }
        for status in Status
        if status is not Status.OK
    }


def describe_own_schemas() -> dict[str, Any]:
    """Return the schemas of bodies that are not in the document."""
    # Unlike in the other schemas, null stays a type. Our answers have null for a field without a value.
    _, schema = models_json_schema(
        [(Limits, "serialization"), (Health, "serialization")],
        ref_template="#/components/schemas/{model}",
    )
    return {
        "HttpError": {
            "type": "object",
            "title": "HttpError",
            "description": "Body of an HTTP error (open in the document; chosen: http-error-body).",
            "required": ["error_message", "error_code", "trace_id"],
            "properties": {
                "error_message": {
                    "type": "string",
                    "description": "Message for people; its text may change.",
                },
                "error_code": {"type": "string", "examples": [code.value for code in HttpErrorCode]},
                "trace_id": {"type": "string", "description": f"Also in {chosen.TRACE_HEADER}."},
            },
            **_ADDITION_MARK,
        },
        **{name: {**definition, **_ADDITION_MARK} for name, definition in schema["$defs"].items()},
    }


def _describe_responses(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.method == "WebSocket":
        opened = {"description": "The connection is a WebSocket; a bad key closes it with code 1008."}
        return {
            "101": opened,
            **{str(int(status)): _refer_to_response(status) for status in _UPGRADE_REFUSALS},
        }
    described: dict[str, Any] = {}
    for code in endpoint.chapter.statuses:
        status = Status(code)  # type: ignore[call-arg]  # mypy takes the look-up for a call of __new__
        described[str(code)] = (
            _describe_answer(endpoint) if status is Status.OK else _refer_to_response(status)
        )
    return described


def _refer_to_response(status: Status) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{status.name.title().replace('_', '')}"}


def _describe_answer(endpoint: Endpoint) -> dict[str, Any]:
    headers = _describe_answer_headers()
    if endpoint.name == "stream":
        headers[chosen.DEPRECATION_HEADER] = _describe_header(
            "Sent with gen2 (chosen: gen2-streaming).", {"type": "string", "const": "true"}
        )
    return {"description": "OK", "headers": headers, "content": _describe_answer_content(endpoint)}


def _describe_answer_content(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.name == "stream":
        audio = {"schema": {"type": "string", "format": "binary"}}
        return dict.fromkeys(sorted(set(chosen.CONTENT_TYPES.values())), audio)
    if endpoint.response_model is None:
        schema: dict[str, Any] = {"type": "object"}
    else:
        schema = _refer_to_schema(endpoint.response_model.__name__)
    if endpoint.answers_list:
        schema = {"type": "array", "items": schema}
    return {endpoints.JSON_TYPE: {"schema": schema}}


def _describe_request_content(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.request_model is None or endpoint.content_type is None:
        return {}
    schema = _refer_to_schema(endpoint.request_model.__name__)
    if endpoint.content_type != FORM_TYPE:
        return {endpoint.content_type: {"schema": schema}}
    # A form cannot contain objects. The field of an object contains JSON text.
    objects = [
        name for name, fact in read_field_facts(endpoint.request_model).items() if fact.type.startswith("map")
    ]
    body: dict[str, Any] = {"schema": schema}
    if objects:
        body["encoding"] = {name: {"contentType": endpoints.JSON_TYPE} for name in objects}
    # An empty field counts as absent (chosen: empty-form-field).
    by_url = {"required": ["file_url"], "properties": {"file_url": {"minLength": 1}}}
    one_source = {"oneOf": [{"required": ["file"]}, by_url]}
    return {
        FORM_TYPE: {**body, "schema": {"allOf": [schema, one_source]}},
        "application/x-www-form-urlencoded": {
            **body,
            "schema": {"allOf": [schema, by_url]},
            **_ADDITION_MARK,
        },
    }


def _describe_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in endpoint.path_fields
    ]
    if endpoint.query_model:
        schema = endpoint.query_model.model_json_schema(ref_template="#/components/schemas/{model}")
        for fact in read_field_facts(endpoint.query_model).values():
            # The security schemes of the page already contain the key.
            if fact.name != chosen.API_KEY_HEADER:
                described: dict[str, Any] = {"name": fact.name, "in": "query", "required": fact.required}
                described["schema"] = schema["properties"][fact.name]
                parameters.append(described | (_ADDITION_MARK if fact.addition else {}))
    if endpoint.name in {"generate", "stream"}:
        parameters += [{"$ref": f"#/components/parameters/{name}"} for name in describe_header_parameters()]
    return parameters


def _describe_answer_headers(*, retry_after: bool = False) -> dict[str, Any]:
    repeated = "A value was ignored or replaced; repeatable."
    headers: dict[str, Any] = {
        chosen.TRACE_HEADER: _describe_header("Trace id of this answer.", {"type": "string"}),
        chosen.WARNING_HEADER: _describe_header(repeated, {"type": "string"}),
    }
    if retry_after:
        schema = {"type": "integer", "minimum": 0}
        headers[chosen.RETRY_AFTER_HEADER] = _describe_header("Seconds to wait.", schema)
    return headers


def _refer_to_schema(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}
