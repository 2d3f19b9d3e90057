"""Validate a request before it is sent or served, and return all of its problems as text.

Section 2 of the service document has the rules.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, isnan
from reprlib import Repr
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from speechframe.spec.facts import FieldFact, read_field_facts
from speechframe.spec.fields._model import DocumentModel

M = TypeVar("M", bound=DocumentModel)

SHOWN_CHARACTERS = 80
"""Largest number of characters of a value in a message."""

_URL_CREDENTIALS = re.compile(r"//[^\s/?#]*@")

_SHORT_REPR = Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = _SHORT_REPR.maxlong = SHOWN_CHARACTERS
_SHORT_REPR.maxlevel = 2


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
class CheckResult(Generic[M]):
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


def check(model: type[M], data: Mapping[str, Any], *, wire_names_only: bool = False) -> CheckResult[M]:
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
        return CheckResult(
            None, (FieldProblem("(body)", "is not an object", shorten_value(data), "fields and values"),)
        )
    names = _read_field_names(model)
    given = {name: value for name, value in data.items() if value is not None}
    unknown: tuple[str, ...] = ()
    deprecated: tuple[str, ...] = ()
    if not given.keys() <= names.plain:
        unknown = tuple(str(name) for name in given if name not in names.wire_of)
        deprecated = tuple(names.wire_of[name] for name in given if name in names.deprecated)
    if wire_names_only and names.python_only:
        python_names = given.keys() & names.python_only
        unknown += tuple(sorted(python_names))
        given = {name: value for name, value in given.items() if name not in python_names}
    try:
        value = model.model_validate(given)
    except ValidationError as error:
        return CheckResult(None, tuple(_find_problems(model, given, error)), unknown, deprecated)
    return CheckResult(value, (), unknown, deprecated)


def shorten_value(value: Any) -> str:
    """Return a value as text for a message, on one line of at most 80 characters. Strings are quoted.

    Examples
    --------
    >>> shorten_value("x" * 1000)[:5], len(shorten_value("x" * 1000))
    ("'xxxx", 80)
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value):,} bytes>"
    if isinstance(value, str):
        value = _URL_CREDENTIALS.sub("//…@", value)  # a message must not contain a password
    text = " ".join(_SHORT_REPR.repr(value).split("\n"))
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


@dataclass(frozen=True, slots=True)
class _FieldNames:
    """The names of the fields of a model. `plain` has all names but those of deprecated fields."""

    wire_of: dict[str, str]
    python_only: frozenset[str]
    deprecated: frozenset[str]
    plain: frozenset[str]


@lru_cache(maxsize=256)
def _read_field_names(model: type[DocumentModel]) -> _FieldNames:
    facts = read_field_facts(model)
    wire_of: dict[str, str] = {}
    for name, wire in model.get_wire_names().items():
        wire_of[wire] = wire_of[name] = wire
    deprecated = frozenset(name for name, wire in wire_of.items() if facts[wire].deprecated)
    return _FieldNames(
        wire_of=wire_of,
        python_only=frozenset(name for name, wire in wire_of.items() if name != wire),
        deprecated=deprecated,
        plain=frozenset(wire_of) - deprecated,
    )


def _find_problems(
    model: type[DocumentModel], given: Mapping[str, Any], error: ValidationError
) -> Iterator[FieldProblem]:
    names = _read_field_names(model)
    facts = read_field_facts(model)
    for details in error.errors(include_url=False):
        path = tuple(str(part) for part in details["loc"])
        if not path:
            continue  # a conflict between fields, which `model.find_conflicts` returns below
        field = names.wire_of.get(path[0], path[0])
        allowed = facts[field].allowed if len(path) == 1 else details["msg"].removeprefix("Input should be ")
        yield _make_problem(".".join((field, *path[1:])), details, facts[field], allowed)
    # pydantic checks for conflicts between fields only if each field is valid. Check them here in any case.
    for fields, problem, allowed in model.find_conflicts(given):
        yield FieldProblem(fields, problem, "", allowed)


def _make_problem(field: str, details: ErrorDetails, fact: FieldFact, allowed: str) -> FieldProblem:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "missing":
        return FieldProblem(field, "is missing", "", allowed)
    problem = _describe_fault(kind)
    if isinstance(value, float) and not isfinite(value):
        # pandas stores a missing string as NaN.
        problem = "is missing" if fact.type == "string" and isnan(value) else "is not a finite number"
    elif kind == "house":
        problem, allowed = context["problem"], context["allowed"] or allowed
    elif kind == "value_error":
        problem, allowed = "is refused", str(context["error"])
    elif kind == "too_long":
        allowed = f"{allowed}, at most {context['max_length']:,}"
    return FieldProblem(field, problem + _suggest_spelling(value, fact), shorten_value(value), allowed)


def _suggest_spelling(value: Any, fact: FieldFact) -> str:
    """Return a hint with the allowed word that differs from the value only in case, or an empty string."""
    if not isinstance(value, str) or len(value) > SHOWN_CHARACTERS:
        return ""
    meant = next((str(one) for one in fact.one_of if str(one).casefold() == value.strip().casefold()), None)
    return f", did you mean {meant}?" if meant else ""


_FAULTS_BY_KIND = {
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
_FAULTS_BY_FAMILY = {
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


def _describe_fault(kind: str) -> str:
    return _FAULTS_BY_KIND.get(kind) or _FAULTS_BY_FAMILY.get(kind.partition("_")[0], "is not allowed")
