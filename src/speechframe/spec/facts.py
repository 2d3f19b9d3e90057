"""Read the rules of each field back from the models. Tables, messages and tests use these rules."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from speechframe.spec import auth, changer, dubbing, socket, speech, translate
from speechframe.spec.fields._model import DocumentModel


@dataclass(frozen=True, slots=True)
class FieldFact:
    """The rules of one field, as in a row of a table of the document.

    `default_note` is the condition of the default. `chosen` has the names of the rules that we chose.
    """

    name: str
    type: str
    required: bool
    default: Any = None
    default_note: str = ""
    minimum: float | None = None
    maximum: float | None = None
    one_of: tuple[Any, ...] = ()
    deprecated: bool = False
    superseded_by: str = ""
    gen2_only: bool = False
    addition: bool = False
    chosen: tuple[str, ...] = ()
    description: str = ""
    max_length: int | None = None
    min_length: int | None = None

    @property
    def allowed(self) -> str:
        """Description of the allowed values."""
        if self.one_of:
            return "one of " + ", ".join(map(str, self.one_of))
        if self.minimum is not None and self.type != "int64":
            kind = "number" if self.type == "double" else self.type
            if self.maximum is None:
                return f"{kind} of at least {self.minimum:g}"
            return f"{kind} from {self.minimum:g} to {self.maximum:g}"
        if self.type == "string" and self.max_length is not None:
            return f"text of 1 to {self.max_length:,} characters"
        names = {"string": "text", "boolean": "true or false", "object": "JSON object", "double": "number"}
        return names.get(self.type, self.type)


@lru_cache(maxsize=256)
def read_field_facts(model: type[DocumentModel]) -> dict[str, FieldFact]:
    """Return the rules of the fields of a model by wire name, in the order of its table.

    Examples
    --------
    >>> from speechframe.spec.speech import GenerateRequest
    >>> read_field_facts(GenerateRequest)["pitch"].allowed
    'integer from -50 to 50'
    """
    schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    return {
        name: _read_fact(name, _resolve_schema(field, definitions), required=name in required)
        for name, field in schema.get("properties", {}).items()
    }


def iter_models() -> Iterator[type[DocumentModel]]:
    """Yield the model of each table of the document, chapter by chapter."""
    for chapter in (speech, changer, translate, auth, dubbing, socket):
        for _, value in sorted(vars(chapter).items()):
            is_own = isinstance(value, type) and value.__module__ == chapter.__name__
            # A base class of tables has no section.
            if is_own and issubclass(value, DocumentModel) and "section" in vars(value):
                yield value


def _read_fact(name: str, schema: dict[str, Any], *, required: bool) -> FieldFact:
    # Most rules have the same name in the schema.
    given = {field.name: schema[field.name] for field in fields(FieldFact) if field.name in schema}
    return FieldFact(
        **given
        | {
            "name": name,
            "type": _name_type(schema),
            "required": required,
            "default": None if required else schema.get("default"),
            "one_of": tuple(schema.get("enum") or schema.get("items", {}).get("enum", ())),
            "chosen": tuple(schema.get("chosen", ())),
            "min_length": schema.get("minLength"),
            "max_length": schema.get("maxLength"),
        }
    )


def _resolve_schema(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a field's schema with resolved references and without the option "or null"."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        target = definitions[name]
        if "properties" in target:
            target = {"type": "object", "title": name}
        # The field has its own description, so drop the description of its enum.
        inner = {k: v for k, v in _resolve_schema(target, definitions).items() if k != "description"}
        return {**inner, **{k: v for k, v in schema.items() if k != "$ref"}}
    if "anyOf" in schema:
        options = [
            _resolve_schema(option, definitions) for option in schema["anyOf"] if option.get("type") != "null"
        ]
        # A word of an answer may be in its enum or new. The members of the enum are the rule.
        chosen = next((option for option in options if "enum" in option), options[0])
        return {**chosen, **{k: v for k, v in schema.items() if k != "anyOf"}}
    resolved = dict(schema)
    for inside in ("items", "additionalProperties"):
        if isinstance(schema.get(inside), dict):
            resolved[inside] = _resolve_schema(schema[inside], definitions)
    return resolved


def _name_type(schema: dict[str, Any]) -> str:
    kind = schema.get("type", "any")
    if schema.get("format") in {"int64", "binary"}:
        return str(schema["format"])
    if kind == "array":
        return f"array of {_name_item_type(schema['items'])}"
    if kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"map to {_name_item_type(values)}"
    return "double" if kind == "number" else str(kind)


def _name_item_type(schema: dict[str, Any]) -> str:
    is_named = schema.get("type") == "object" and "title" in schema
    return str(schema["title"]) if is_named else _name_type(schema)
