"""Write the document as Markdown, JSON Schema and OpenAPI 3.1, from the models and tables."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from speechframe.spec import codes, limits
from speechframe.spec.billing import PRICES, to_credits
from speechframe.spec.chosen import API_KEY_HEADER, INTERFACE_VERSION, OPEN_POINTS, TOKEN_HEADER
from speechframe.spec.endpoints import ADDITIONS, ENDPOINTS
from speechframe.spec.facts import FieldFact, field_facts, models
from speechframe.spec.pages.openapi import operation, own_schemas, parameters_of, responses_of
from speechframe.spec.socket import TRANSITIONS

__all__ = ["json_schema", "openapi", "tables_markdown"]


def tables_markdown() -> str:
    """Return all tables of the document, and our own choices, as Markdown.

    Examples
    --------
    >>> print(tables_markdown().splitlines()[0])
    # The service, as stated in `speechframe.spec`
    """
    return "\n".join(
        (
            "# The service, as stated in `speechframe.spec`",
            "",
            "## Tables",
            "",
            *(
                line
                for model in models()
                for line in (f"### {model.__name__} (section {model.section})", "", *_fields(model))
            ),
            "## Endpoints",
            "",
            *_table(
                ("Method", "Path", "Takes", "Answers", "Statuses", "Key"),
                (
                    (
                        endpoint.method,
                        f"`{endpoint.path}`",
                        _named(endpoint.request_model or endpoint.query_model),
                        ("array of " if endpoint.answers_list else "") + _named(endpoint.response_model),
                        ", ".join(map(str, endpoint.statuses)),
                        endpoint.auth.value,
                    )
                    for endpoint in (*ENDPOINTS, *ADDITIONS)
                ),
            ),
            "## Regions",
            "",
            *_table(
                ("Region", "Name", "Address", "Streaming concurrency", "Default model of a stream"),
                (
                    (
                        region.key,
                        region.name,
                        f"`{region.placeholder}`",
                        region.streaming_concurrency or "region specific",
                        region.default_stream_model,
                    )
                    for region in limits.REGIONS.values()
                ),
            ),
            "## Limits",
            "",
            *_table(("Limit", "Range", "Default"), ((n, str(r), r.default) for n, r in _ranges())),
            "## Statuses",
            "",
            *_table(
                ("Status", "Meaning", "What to do", "Again?"),
                ((int(s), s.meaning, s.resolution, "yes" if s.retryable else "no") for s in codes.Status),
            ),
            "## Error codes of a WebSocket",
            "",
            *_table(("Code", "Cause", "Effect"), ((c.value, c.cause, c.effect) for c in codes.ErrorCode)),
            "## Warning codes of a WebSocket",
            "",
            *_table(("Code", "Cause", "Effect"), ((c.value, c.cause, c.effect) for c in codes.WarningCode)),
            "## Close codes of a WebSocket",
            "",
            *_table(("Code", "Cause"), ((c.value, c.cause) for c in codes.CloseCode)),
            "## Contexts of a WebSocket",
            "",
            *_table(
                ("State", "Trigger", "Condition", "Next", "Also"),
                ((t.state, t.trigger, t.condition, t.next_state, t.also) for t in TRANSITIONS),
            ),
            "## Prices (ours)",
            "",
            *_table(
                ("Operation", "Unit", "Credits", "Balance"),
                (
                    (p.operation, p.unit, f"{to_credits(p.millicredits):g}", p.balance)
                    for p in PRICES.values()
                ),
            ),
            "## What the document leaves open, and what we do",
            "",
            *_table(
                ("Id", "Point", "Choice", "Reason", "Certainty"),
                ((p.id, p.point, p.choice, p.reason, p.certainty) for p in OPEN_POINTS),
            ),
        )
    )


def json_schema() -> dict[str, Any]:
    """Return a JSON Schema (2020-12) with the models of the document in `$defs`.

    Examples
    --------
    >>> json_schema()["$defs"]["GenerateRequest"]["properties"]["pitch"]["maximum"]
    50
    """
    _, schema = models_json_schema([(model, "validation") for model in models()], by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Tables of the speech service",
        "$defs": {name: _published(definition) for name, definition in schema["$defs"].items()},
    }


def openapi() -> dict[str, Any]:
    """Return the OpenAPI 3.1 description of all HTTP addresses, with errors and headers.

    Addresses, headers and schemas that the document does not have are marked with `x-speechframe-addition`.
    The WebSocket address is described as the GET request that opens it.

    Examples
    --------
    >>> openapi()["info"]["version"]
    '1.0.0'
    """
    _, schema = models_json_schema(
        [(model, "validation") for model in models()],
        by_alias=True,
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in (*ENDPOINTS, *ADDITIONS):
        method = "get" if endpoint.method == "WebSocket" else endpoint.method.lower()
        paths.setdefault(endpoint.path, {})[method] = operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Speech synthesis, voice changing, translation and dubbing",
            "version": INTERFACE_VERSION,
            "description": "`GET /v1/limits` lists our choices for the points that the document leaves open.",
        },
        "servers": [{"url": "/", "description": "Address of the service that returned this description."}],
        "tags": [{"name": name} for name in dict.fromkeys(e.chapter for e in (*ENDPOINTS, *ADDITIONS))],
        "paths": paths,
        "components": {
            "schemas": {name: _published(definition) for name, definition in schema["$defs"].items()}
            | own_schemas(),
            "parameters": parameters_of(),
            "responses": responses_of(),
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": API_KEY_HEADER},
                "key_in_query": {"type": "apiKey", "in": "query", "name": API_KEY_HEADER},
                "token": {"type": "apiKey", "in": "header", "name": TOKEN_HEADER},
            },
        },
    }


_OURS = {
    "gen2_only": "x-gen2-only",
    "superseded_by": "x-superseded-by",
    "addition": "x-speechframe-addition",
    "chosen": "x-speechframe-chosen",
    "chosen_point": "x-speechframe-chosen-point",
    "default_note": "x-default-note",
}


def _published(schema: Any) -> Any:
    """Convert a schema of pydantic to a schema for publication.

    Our own keywords get the prefix `x-` of OpenAPI. A description keeps only its first paragraph. The option
    "or null" is removed, because a field of the document is present or absent, but never null.
    """
    if isinstance(schema, list):
        return [_published(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    published = {_OURS.get(key, key): _published(value) for key, value in schema.items()}
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


def _fields(model: Any) -> Iterable[str]:
    rows = (
        (
            f"`{fact.name}`",
            fact.type,
            "yes" if fact.required else "no",
            _default(fact),
            fact.allowed,
            _notes(fact),
        )
        for fact in field_facts(model).values()
    )
    return _table(("Field", "Type", "Required", "Default", "Allowed", "Notes"), rows)


def _ranges() -> Iterable[tuple[str, limits.Range[Any]]]:
    return ((name, value) for name, value in vars(limits).items() if isinstance(value, limits.Range))


def _default(fact: FieldFact) -> str:
    if fact.default is None or fact.default == []:
        return ""
    if isinstance(fact.default, bool):
        return str(fact.default).lower()
    return f"{fact.default:g}" if isinstance(fact.default, float) else str(fact.default)


def _notes(fact: FieldFact) -> str:
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


def _named(model: Any) -> str:
    return model.__name__ if model else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    def line(cells: Iterable[object]) -> str:
        return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

    return [line(head), "|" + "---|" * len(head), *map(line, rows), ""]
