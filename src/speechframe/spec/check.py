"""Validate a request before it is sent or served, and return all of its problems as text (section 2)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, isnan
from reprlib import Repr
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from speechframe.spec.facts import FieldFact, field_facts
from speechframe.spec.fields._model import DocumentModel

M = TypeVar("M", bound=DocumentModel)

SHOWN_CHARACTERS = 80
"""Largest number of characters of a value in a message."""

_USER_OF_ADDRESS = re.compile(r"//[^\s/?#]*@")

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = SHOWN_CHARACTERS
_SHORT.maxlevel = 2


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A problem of one field of a request, or of one argument of a row.

    Attributes
    ----------
    field : str
        Name of the field. A dotted path inside objects. Empty for a problem of the whole row.
    problem : str
        The fault, as the end of a sentence that starts with the field.
    value : str
        The given value, shortened. Empty by default.
    allowed : str
        The allowed values. Empty by default.

    Examples
    --------
    >>> print(FieldProblem("speed", "is out of range", "9", "0.5 to 2"))
    speed is out of range (got 9); allowed: 0.5 to 2
    """

    field: str
    problem: str
    value: str = ""
    allowed: str = ""

    def __str__(self) -> str:
        given = f" (got {self.value})" if self.value else ""
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        return f"{self.field} {self.problem}{given}{allowed}".lstrip()


@dataclass(frozen=True, slots=True)
class Checked(Generic[M]):
    """The validated request, or the problems that make it invalid.

    Attributes
    ----------
    value : DocumentModel or None
        The request as a model. None if there are problems.
    problems : tuple of FieldProblem
        All problems. Empty for a valid request.
    unknown : tuple of str
        Names in the request that are not fields of the model. They are ignored and are not a problem.
    deprecated : tuple of str
        Wire names of the deprecated fields in the request. They are not a problem.
    """

    value: M | None
    problems: tuple[FieldProblem, ...] = ()
    unknown: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()


def check(model: type[M], data: Mapping[str, Any], *, wire_names_only: bool = False) -> Checked[M]:
    """Validate a request, and return it as a model or with all of its problems.

    Parameters
    ----------
    model : type
        Model of the request, such as `GenerateRequest`.
    data : mapping
        Values by wire name or Python name. A field with the value None counts as absent.
    wire_names_only : bool
        Accept only wire names, as the service does. `voice_id` in a JSON body is then an unknown field.

    Examples
    --------
    >>> from speechframe.spec.speech import GenerateRequest
    >>> for problem in check(GenerateRequest, {"text": "Hi", "pitch": 70}).problems:
    ...     print(problem)
    voiceId is missing; allowed: text of 1 to 200 characters
    pitch is out of range (got 70); allowed: integer from -50 to 50
    """
    if not isinstance(data, Mapping):
        return Checked(None, (FieldProblem("(body)", "is not an object", shown(data), "fields and values"),))
    names = _names(model)
    given = {name: value for name, value in data.items() if value is not None}
    unknown: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    if not given.keys() <= names.plain:
        unknown = tuple(str(name) for name in given if name not in names.wire_of)
        deprecated = tuple(names.wire_of[name] for name in given if name in names.deprecated)
    if wire_names_only and names.python_only:
        strangers = given.keys() & names.python_only
        unknown += tuple(sorted(strangers))
        given = {name: value for name, value in given.items() if name not in strangers}
    try:
        value = model.model_validate(given)
    except ValidationError as error:
        return Checked(None, tuple(_problems(model, given, error)), unknown, deprecated)
    return Checked(value, (), unknown, deprecated)


def shown(value: Any) -> str:
    """Return a value as text for a message, on one line of at most 80 characters. Strings are quoted.

    Examples
    --------
    >>> shown("x" * 1000)[:5], len(shown("x" * 1000))
    ("'xxxx", 80)
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value):,} bytes>"
    if isinstance(value, str):
        value = _USER_OF_ADDRESS.sub("//…@", value)  # a message must not contain a password
    text = " ".join(_SHORT.repr(value).split("\n"))
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


@dataclass(frozen=True, slots=True)
class _FieldNames:
    """The names of the fields of a model. `plain` has all names but those of deprecated fields."""

    wire_of: dict[str, str]
    python_only: frozenset[str]
    deprecated: frozenset[str]
    plain: frozenset[str]


@lru_cache(maxsize=256)
def _names(model: type[DocumentModel]) -> _FieldNames:
    facts = field_facts(model)
    wire_of: dict[str, str] = {}
    for name, wire in model.wire_names().items():
        wire_of[wire] = wire_of[name] = wire
    deprecated = frozenset(name for name, wire in wire_of.items() if facts[wire].deprecated)
    return _FieldNames(
        wire_of=wire_of,
        python_only=frozenset(name for name, wire in wire_of.items() if name != wire),
        deprecated=deprecated,
        plain=frozenset(wire_of) - deprecated,
    )


def _problems(
    model: type[DocumentModel], given: Mapping[str, Any], error: ValidationError
) -> Iterator[FieldProblem]:
    names = _names(model)
    facts = field_facts(model)
    for details in error.errors(include_url=False):
        path = tuple(str(part) for part in details["loc"])
        if not path:
            continue  # a conflict between fields, which `model.across` returns below
        field = names.wire_of.get(path[0], path[0])
        allowed = facts[field].allowed if len(path) == 1 else details["msg"].removeprefix("Input should be ")
        yield _problem(".".join((field, *path[1:])), details, facts[field], allowed)
    # pydantic checks for conflicts between fields only if each field is valid. Check them here in any case.
    for fields, problem, allowed in model.across(_by_python_name(model, given)):
        yield FieldProblem(fields, problem, "", allowed)


def _problem(field: str, details: ErrorDetails, fact: FieldFact, allowed: str) -> FieldProblem:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return FieldProblem(field, "is missing", "", allowed)
    if isinstance(value, float) and not isfinite(value):
        # pandas stores a missing string as NaN.
        missing = fact.type == "string" and isnan(value)
        return FieldProblem(
            field, "is missing" if missing else "is not a finite number", shown(value), allowed
        )
    if kind == "house":
        return FieldProblem(
            field, context["problem"] + _meant(value, fact), shown(value), context["allowed"] or allowed
        )
    if kind == "value_error":
        return FieldProblem(field, "is refused", shown(value), str(context["error"]))
    if kind == "too_long":
        allowed = f"{allowed}, at most {context['max_length']:,}"
    return FieldProblem(field, _words(kind) + _meant(value, fact), shown(value), allowed)


def _meant(value: Any, fact: FieldFact) -> str:
    """Return a hint with the allowed word that differs from the value only in case, or an empty string."""
    if not isinstance(value, str) or len(value) > SHOWN_CHARACTERS:
        return ""
    meant = next((str(one) for one in fact.one_of if str(one).casefold() == value.strip().casefold()), None)
    return f", did you mean {meant}?" if meant else ""


_WORDS = {
    "enum": "is not one of the allowed values",
    "string_unicode": "is not valid Unicode text",
    "string_too_short": "is empty",
    "string_too_long": "is too long",
    "too_short": "has too few items",
    "too_long": "has too many items",
    "greater_than_equal": "is out of range",
    "less_than_equal": "is out of range",
    "int_parsing_size": "is out of range",
}
_WORDS_BY_FAMILY = {
    "string": "is not text",
    "int": "is not a whole number",
    "float": "is not a number",
    "finite": "is not a finite number",
    "bool": "is neither true nor false",
    "list": "is not a list",
    "dict": "is not an object",
    "model": "is not an object",
    "bytes": "is not a file",
}


def _words(kind: str) -> str:
    return _WORDS.get(kind) or _WORDS_BY_FAMILY.get(kind.partition("_")[0], "is not allowed")


def _by_python_name(model: type[DocumentModel], given: Mapping[str, Any]) -> dict[str, Any]:
    python_of = {wire: name for name, wire in model.wire_names().items()}
    return {python_of.get(name, name): value for name, value in given.items()}
