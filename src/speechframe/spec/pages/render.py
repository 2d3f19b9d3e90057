"""Write the document as Markdown, JSON Schema and OpenAPI 3.1, from the models and tables."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from speechframe.spec import codes, limits
from speechframe.spec.billing import PRICES
from speechframe.spec.chosen import API_KEY_HEADER, INTERFACE_VERSION, OPEN_POINTS, TOKEN_HEADER
from speechframe.spec.endpoints import ENDPOINTS
from speechframe.spec.facts import FieldFact, iter_models, read_field_facts
from speechframe.spec.fields._range import Range
from speechframe.spec.pages.openapi import (
    describe_error_responses,
    describe_header_parameters,
    describe_operation,
    describe_own_schemas,
)
from speechframe.spec.socket import CONTEXT_TRANSITIONS


def render_markdown() -> str:
    """Return all tables of the document, and our own choices, as Markdown.

    Examples
    --------
    >>> print(render_markdown().splitlines()[0])
    # The service, as stated in `speechframe.spec`
    """
    lines = ["# The service, as stated in `speechframe.spec`", "", "## Tables", ""]
    for model in iter_models():
        lines += [f"### {model.__name__} (section {model.section})", "", *_render_fields(model)]
    for title, head, rows in _iter_sections():
        lines += [f"## {title}", "", *_render_table(head, rows)]
    return "\n".join(lines)


def _iter_sections() -> Iterator[tuple[str, Sequence[str], Iterable[Sequence[object]]]]:
    """Yield the title, the names of the columns and the rows of each section with one table."""
    yield (
        "Endpoints",
        ("Method", "Path", "Takes", "Answers", "Statuses", "Key"),
        (
            (
                endpoint.method,
                f"`{endpoint.path}`",
                _name_model(endpoint.input_model),
                ("array of " if endpoint.answers_list else "") + _name_model(endpoint.response_model),
                ", ".join(map(str, endpoint.chapter.statuses)),
                endpoint.chapter.auth.value,
            )
            for endpoint in ENDPOINTS
        ),
    )
    yield (
        "Regions",
        ("Region", "Name", "Address", "Streaming concurrency", "Default model of a stream"),
        (
            (
                r.key,
                r.name,
                f"`{r.placeholder}`",
                r.streaming_concurrency or "region specific",
                r.default_stream_model,
            )
            for r in limits.REGIONS.values()
        ),
    )
    ranges = ((name, value) for name, value in vars(limits).items() if isinstance(value, Range))
    yield "Limits", ("Limit", "Range", "Default"), ((name, str(r), r.default) for name, r in ranges)
    yield (
        "Statuses",
        ("Status", "Meaning", "What to do", "Again?"),
        ((int(s), s.meaning, s.resolution, "yes" if s.retryable else "no") for s in codes.Status),
    )
    for kind, members in (("Error", codes.ErrorCode), ("Warning", codes.WarningCode)):
        rows = ((code.value, code.cause, code.effect) for code in members)
        yield f"{kind} codes of a WebSocket", ("Code", "Cause", "Effect"), rows
    yield "Close codes of a WebSocket", ("Code", "Cause"), ((c.value, c.cause) for c in codes.CloseCode)
    yield (
        "Contexts of a WebSocket",
        ("State", "Trigger", "Condition", "Next", "Also"),
        ((t.state, t.trigger, t.condition, t.next_state, t.also) for t in CONTEXT_TRANSITIONS),
    )
    yield (
        "Prices (ours)",
        ("Operation", "Unit", "Credits", "Balance"),
        ((p.operation, p.unit, f"{p.credits:g}", p.balance) for p in PRICES.values()),
    )
    yield (
        "What the document leaves open, and what we do",
        ("Id", "Point", "Choice", "Reason", "Certainty"),
        ((p.id, p.point, p.choice, p.reason, p.certainty) for p in OPEN_POINTS),
    )


def build_json_schema() -> dict[str, Any]:
    """Return a JSON Schema (2020-12) with the models of the document in `$defs`.

    Examples
    --------
    >>> build_json_schema()["$defs"]["GenerateRequest"]["properties"]["pitch"]["maximum"]
    50
    """
    _, schema = models_json_schema([(model, "validation") for model in iter_models()], by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tables of the speech service",
        "$defs": {name: _convert_schema(definition) for name, definition in schema["$defs"].items()},
    }


def build_openapi() -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of all HTTP addresses, with errors and headers.

    Addresses, headers and schemas that the document does not have are marked with `x-speechframe-addition`.
    The WebSocket address is described as the GET request that opens it.

    Examples
    --------
    >>> build_openapi()["info"]["version"]
    '1.0.0'
    """
    _, schema = models_json_schema(
        [(model, "validation") for model in iter_models()],
        by_alias=True,
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS:
        method = "get" if endpoint.method == "WebSocket" else endpoint.method.lower()
        paths.setdefault(endpoint.path, {})[method] = describe_operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Speech synthesis, voice changing, translation and dubbing",
            "version": INTERFACE_VERSION,
            "description": "`GET /v1/limits` lists our choices for the points that the document leaves open.",
        },
        "servers": [{"url": "/", "description": "Address of the service that returned this description."}],
        "tags": [{"name": name} for name in dict.fromkeys(each.chapter.name for each in ENDPOINTS)],
        "paths": paths,
        "components": {
            "schemas": {name: _convert_schema(definition) for name, definition in schema["$defs"].items()}
            | describe_own_schemas(),
            "parameters": describe_header_parameters(),
            "responses": describe_error_responses(),
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": API_KEY_HEADER},
                "key_in_query": {"type": "apiKey", "in": "query", "name": API_KEY_HEADER},
                "token": {"type": "apiKey", "in": "header", "name": TOKEN_HEADER},
            },
        },
    }


_PUBLISHED_KEYWORDS = {
    "gen2_only": "x-gen2-only",
    "superseded_by": "x-superseded-by",
    "addition": "x-speechframe-addition",
    "chosen": "x-speechframe-chosen",
    "chosen_point": "x-speechframe-chosen-point",
    "default_note": "x-default-note",
}


def _convert_schema(schema: Any) -> Any:
    """Convert a schema of pydantic to a schema for publication.

    Our own keywords get the prefix `x-` of OpenAPI. A description keeps only its first paragraph. The option
    "or null" is removed, because a field of the document is present or absent, but never null.
    """
    if isinstance(schema, list):
        return [_convert_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    published = {_PUBLISHED_KEYWORDS.get(key, key): _convert_schema(value) for key, value in schema.items()}
    if isinstance(published.get("description"), str):
        published["description"] = published["description"].partition("\n\n")[0]
    if isinstance(published.get("title"), str) and "properties" not in published and "enum" not in published:
        del published["title"]
    if published.get("default", ...) is None:
        del published["default"]
    options = published.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        options = [option for option in options if option != {"type": "null"}]
        del published["anyOf"]
        published = {**options[0], **published} if len(options) == 1 else {"anyOf": options, **published}
    return published


def _render_fields(model: Any) -> Iterable[str]:
    rows = (
        (
            f"`{fact.name}`",
            fact.type,
            "yes" if fact.required else "no",
            _format_default(fact),
            fact.allowed,
            _format_notes(fact),
        )
        for fact in read_field_facts(model).values()
    )
    return _render_table(("Field", "Type", "Required", "Default", "Allowed", "Notes"), rows)


def _format_default(fact: FieldFact) -> str:
    if fact.default is None or fact.default == []:
        return ""
    if isinstance(fact.default, bool):
        return str(fact.default).lower()
    return f"{fact.default:g}" if isinstance(fact.default, float) else str(fact.default)


def _format_notes(fact: FieldFact) -> str:
    notes = (
        fact.description,
        "Gen2 only." if fact.gen2_only else "",
        f"Deprecated{f', use `{fact.superseded_by}`' if fact.superseded_by else ''}."
        if fact.deprecated
        else "",
        f"Default: {fact.default_note}." if fact.default_note else "",
        "Our addition." if fact.addition else "",
        f"Our choice: {', '.join(fact.chosen)}." if fact.chosen else "",
    )
    return " ".join(note for note in notes if note)


def _name_model(model: Any) -> str:
    return model.__name__ if model else ""


def _render_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    def render_row(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    return [render_row(head), "|" + "---|" * len(head), *map(render_row, rows), ""]
