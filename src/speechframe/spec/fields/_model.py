"""Base classes of the document's models, and the value types that their fields share.

Each field contains its own rules, such as range, default and allowed values. Further rules are in
`json_schema_extra`:

- `deprecated`: true for a field that still works, with a warning (`speechframe.spec.deprecation`)
- `superseded_by`: name of the field that replaces a deprecated field
- `gen2_only`: true for a field that the document marks "Gen2 only"
- `addition`: true for a field of ours that is not in the document
- `chosen_point`: id of the open point in `speechframe.spec.chosen` that an addition belongs to
- `chosen`: names of rules, such as `minimum` and `default`, that the document leaves open and we chose
- `default_note`: condition of the default
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError, core_schema

from speechframe.spec.chosen import MAX_TEXT_CHARACTERS
from speechframe.spec.fields._json import read_json
from speechframe.spec.texts import find_sending_fault, find_text_fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler


class DocumentModel(BaseModel):
    """Base class of the models, one for each table of the document.

    Instances are frozen. Unknown fields are ignored, and `speechframe.spec.check` reports them.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        # The input may contain a key or token.
        hide_input_in_errors=True,
    )
    section: ClassVar[str]
    """Section of the document with the table, or "addition" for a model of ours."""

    @classmethod
    def get_wire_names(cls) -> dict[str, str]:
        """Return the wire name of each field by its Python name."""
        return {name: field.alias or name for name, field in cls.model_fields.items()}

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
        """Return conflicts between fields, each as (fields, problem, allowed values).

        A model without such rules returns no conflicts.
        """
        del given
        return ()


class CamelModel(DocumentModel):
    """Base class of models whose wire names, which are the names in JSON and forms, are camelCase."""

    model_config = ConfigDict(alias_generator=to_camel)


class SnakeModel(DocumentModel):
    """Base class of models whose wire names are snake_case, as in Python."""


def refuse(problem: str, allowed: str = "") -> NoReturn:
    """Raise a validation error of pydantic with our own message. Call it only in a validator."""
    raise PydanticCustomError("house", "{problem}", {"problem": problem, "allowed": allowed})


_TRUTH_TYPES = frozenset({"bool", "bool_"})


def _refuse_boolean(value: Any) -> Any:
    # Refuse True, which pydantic would accept as the number 1. In a column of numbers it is a mistake.
    # The comparison by name also finds the booleans of numpy.
    if type(value).__name__ in _TRUTH_TYPES:
        refuse("is a truth value, not a number")
    if isinstance(value, bytes):
        refuse("is bytes, not a number")
    return value


def _check_plain_text(text: str) -> str:
    if fault := find_sending_fault(text):
        refuse(*fault)
    return text


def _read_json_text(value: Any) -> Any:
    # A form cannot contain objects. Clients of such services put JSON text into the field.
    if isinstance(value, str):
        try:
            return read_json(value)
        except ValueError:
            refuse("is not a JSON object")
    return value


NotBoolean = BeforeValidator(_refuse_boolean)
"""Annotation of a number. It accepts 5, 5.0 and "5" but not True.

Put it after the range in an `Annotated`. Otherwise the JSON Schema loses the range.
"""
PlainText = AfterValidator(_check_plain_text)
"""Annotation of a text that can be sent as JSON. Put it after the lengths, like `NotBoolean`."""
Number = Annotated[float, Field(allow_inf_nan=False), NotBoolean]
"""A finite number, also as text as in HTML forms."""
Text = Annotated[str, Field(strict=True), PlainText]
"""A text that can be sent as JSON."""
Name = Annotated[str, Field(max_length=200, strict=True), PlainText]
"""A name of a voice, locale or style. Short, because an unknown name is compared with all known names."""
E = TypeVar("E", bound=StrEnum)
OpenWord = Annotated[E | str, Field(union_mode="left_to_right")]
"""A word in an answer, as a member of an enum, or as a string if the enum does not contain it."""
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1, json_schema_extra={"format": "int64"})]
"""A signed 64-bit integer."""


ReportedCredits = Annotated[int | float, WithJsonSchema({"type": "integer", "format": "int64"})]
"""A number of credits in an answer. The document requires a 64-bit integer.

The model accepts any number, so that an error message can contain an impossible amount.
`wire.answers.read_amount` checks the range.
"""


@dataclass(frozen=True, slots=True)
class OneOf:
    """Annotation of a value that must be one of `values`."""

    values: tuple[Any, ...]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Return a schema that checks the type first, and then whether the value is allowed."""
        return core_schema.no_info_after_validator_function(self._check_choice, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return a JSON Schema with the allowed values."""
        del schema, handler
        kind = "string" if isinstance(self.values[0], str) else "number"
        return {"type": kind, "enum": [str(value) if kind == "string" else value for value in self.values]}

    def _check_choice(self, value: Any) -> Any:
        if value not in self.values:
            refuse("is not one of the allowed values")
        return value


def _check_spoken_text(text: str) -> str:
    if fault := find_text_fault(text):
        refuse(*fault)
    return text


# Without strict, pydantic would accept bytes and decode them as UTF-8. Only the JSON Schema has the lengths,
# because `find_text_fault` has better messages.
SpokenText = Annotated[
    str,
    Field(strict=True, json_schema_extra={"minLength": 1, "maxLength": MAX_TEXT_CHARACTERS}),
    AfterValidator(_check_spoken_text),
]
"""A text to synthesise."""
JsonText = BeforeValidator(_read_json_text)
