"""Types of settings and run options, which pydantic checks, and the messages for values that are refused.

A message contains the name, the value and the allowed values. Keys and addresses may contain secrets, so for
them a message contains only the type of the value.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    SecretStr,
    Strict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from speechframe.errors import SettingsError, suggest_name
from speechframe.settings.hidden import KEY_VARIABLE, make_header_text
from speechframe.spec.billing import MAX_BUDGET_CREDITS
from speechframe.spec.check import shorten_value
from speechframe.spec.limits import REGIONS

_T = TypeVar("_T")

CHECKED_CONFIG = ConfigDict(extra="forbid", hide_input_in_errors=True)
"""Configuration of checked dataclasses: unknown names are refused, and pydantic's errors show no values."""

_ADDRESS_WORDS = "an address as text, such as 'https://api.example.com'"
_ADDRESSES_WORDS = "region to address, such as {'us-east': 'https://us.example.com'}"
_PATH_WORDS = "a path of this machine"
# A protocol has at least two letters here, because a single letter is a drive of Windows.
_SHORTENED_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


# -- messages for refused values -------------------------------------------------------

# Types of pydantic errors. The message of `ALLOWED_ERROR` lists the allowed values. The value behind
# `_MASKED_ERROR` stays secret. `_UNKNOWN_NAME_ERROR` is pydantic's own type for a name that does not exist.
ALLOWED_ERROR, _MASKED_ERROR = "allowed", "masked"
_UNKNOWN_NAME_ERROR = "unexpected_keyword_argument"


@dataclass(frozen=True)
class Allowed:
    """Annotation of a type. `message` describes the allowed values, and each refusal contains it."""

    message: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the check of the type, changed so that each of its errors has this message."""
        return core_schema.custom_error_schema(
            handler(source), ALLOWED_ERROR, custom_error_message=self.message
        )


def make_unknown_name_error(what: str, name: str, known: Iterable[str]) -> SettingsError:
    """Return the error for an unknown name. It contains the nearest known name and all known names."""
    known = [*known]
    return SettingsError(
        f"there is no {what} {name!r}; {suggest_name(name, known)}there are {', '.join(known)}"
    )


def make_refusal(
    error: ValidationError,
    what: str,
    known: Iterable[str],
    set_in: Mapping[str, str] = MappingProxyType({}),
    *,
    hint: str = "",
) -> SettingsError:
    """Return a SettingsError for an error of pydantic.

    `what` is a word for the kind of value, such as ``setting``. `known` are the allowed names. `set_in`
    contains the place where a name was set. `hint` is added if the name is unknown.
    """
    first = _find_first_error(error)
    (name, *inner), kind, fault = first["loc"], first["type"], first["msg"].removeprefix("Value error, ")
    if kind == _UNKNOWN_NAME_ERROR:
        message = f"{make_unknown_name_error(what, str(name), known)}{hint and '. '}{hint}"
    else:
        path = f"{name}{''.join(f'[{part!r}]' for part in inner if part != '[key]')}"
        given = "" if kind == _MASKED_ERROR else f"={shorten_value(first['input'])}"
        choices = fault if kind == ALLOWED_ERROR else first.get("ctx", {}).get("expected")
        message = f"{path}{given}; allowed: {choices}" if choices else f"{path}{given} {fault}"
    return SettingsError(f"{where}: {message}" if (where := set_in.get(str(name))) else message)


def _find_first_error(error: ValidationError) -> Any:
    # An unknown name comes first. It may be a mistyped name, and the error for the missing name would
    # confuse.
    return min(error.errors(), key=lambda one: one["type"] != _UNKNOWN_NAME_ERROR)


def read_toml(path: Path, kind: type[_T]) -> _T:
    """Read a TOML file and return its content as a dataclass of type `kind`, which checks the content.

    Raise SettingsError if the file cannot be read, or has a value that is not allowed.
    """
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = _find_first_error(error)
        problem, (*tables, name) = first["msg"], first["loc"] or ("",)
        where = f"{path}, {tables[0]} {int(tables[1]) + 1}" if tables else str(path)
        if first["type"] == _UNKNOWN_NAME_ERROR:
            schema = adapter.json_schema()
            known = [name for one in (schema, *schema["$defs"].values()) for name in one["properties"]]
            problem = f"no such name; {suggest_name(str(name), known)}there are {', '.join(known)}"
        elif first["type"] != "missing":
            problem = f"{shorten_value(first['input'])} is not allowed: {problem}"
        raise SettingsError(f"{where}: {name}: {problem}") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


# -- keys, addresses, names ------------------------------------------------------------


def _check_key(value: SecretStr, info: ValidationInfo) -> SecretStr:
    text = value.get_secret_value()
    if not isinstance(text, str):
        raise PydanticCustomError(_MASKED_ERROR, f"is of type {type(text).__name__}; allowed: a key as text")
    return SecretStr(make_header_text(value, f"the {str(info.field_name).replace('_', ' ')}"))


def _check_address(value: Any) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError(
            _MASKED_ERROR, f"is of type {type(value).__name__}; allowed: {_ADDRESS_WORDS}"
        )
    if {*"@?#"} & {*value}:
        raise PydanticCustomError(
            _MASKED_ERROR,
            f"has a user name or password, or a query; allowed: {_ADDRESS_WORDS}. Put the key into "
            f"{KEY_VARIABLE}",
        )
    return value


def _check_mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise PydanticCustomError(
            _MASKED_ERROR, f"is of type {type(value).__name__}; allowed: {_ADDRESSES_WORDS}"
        )
    return value


def _split_names(names: Any) -> Any:
    return names.split(",") if isinstance(names, str) else names


def _strip_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for name in names if name.strip())


def _refuse_repeated_regions(regions: tuple[str, ...]) -> tuple[str, ...]:
    if len({*regions}) < len(regions):
        twice = max(regions, key=regions.count)
        raise ValueError(f"has {twice} twice; allowed, each once: {', '.join(REGIONS)}")
    return regions


# With a bound on the length, pydantic refuses texts with lone surrogates, which no file in UTF-8 can contain.
Text = Annotated[str, Strict(), Field(min_length=0)]
Name = Annotated[Text, Allowed("a name as text")]
Key = Annotated[SecretStr, AfterValidator(_check_key)]
Address = Annotated[str, PlainValidator(_check_address)]
Addresses = Annotated[
    Mapping[Name, Address], BeforeValidator(_check_mapping), AfterValidator(MappingProxyType)
]
_Listed = Annotated[tuple[Text, ...], BeforeValidator(_split_names), AfterValidator(_strip_names)]
Names = Annotated[_Listed, Allowed("names, as a list or with commas between them")]
Regions = Annotated[
    _Listed,
    Allowed("names of regions, as a list or with commas between them"),
    AfterValidator(_refuse_repeated_regions),
]


# -- paths -----------------------------------------------------------------------------


def is_address(path: "str | os.PathLike[str]") -> bool:
    """Return whether a path is an address such as ``s3://bucket/run``, even if a Path has removed one slash.

    A relative folder ``s3:/bucket`` counts as an address, too, because Arrow would read it as an address.

    Examples
    --------
    >>> is_address("s3://bucket/run"), is_address("runs/demo")
    (True, False)
    >>> is_address(Path("s3://bucket/run"))
    True
    """
    text = os.fspath(path)
    return "://" in text or _SHORTENED_ADDRESS.match(text) is not None


def expand_home(path: "str | os.PathLike[str]") -> Path:
    """Replace ``~`` or ``~user`` at the start of a path. Raise ValueError if this user has no home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError("~ names a user who has no home folder here; give the path without ~") from None


def _check_local_path(value: Any) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise PydanticCustomError(ALLOWED_ERROR, _PATH_WORDS)
    if is_address(value):
        raise ValueError(f"is an address; allowed: {_PATH_WORDS}")
    if "\0" in os.fspath(value):
        raise ValueError(f"has a NUL character; allowed: {_PATH_WORDS}")
    return expand_home(value)


def _check_path_or_address(value: Any) -> Path | str:
    return str(value) if isinstance(value, str) and "://" in value else _check_local_path(value)


LocalPath = Annotated[Path, PlainValidator(_check_local_path)]
PathOrAddress = Annotated[Path | str, PlainValidator(_check_path_or_address)]


# -- numbers and switches --------------------------------------------------------------


def _convert_integer(value: Any) -> Any:
    # Accept integers of other libraries, because counts are often integers of NumPy.
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _check_max_credits(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    # A number above the largest float becomes infinity, which would mean no limit. So refuse the number.
    credits = check(value)
    if credits > MAX_BUDGET_CREDITS and value != inf:
        raise ValueError
    return credits


Whole = Annotated[int, BeforeValidator(_convert_integer), Strict()]
# Strict accepts all types of numbers (NumPy, Decimal, Fraction) but no text. The bounds also refuse NaN.
Limit = Annotated[float, Strict(), Field(ge=0), Allowed("a number of at least 0, inf for no limit")]
Credits = Annotated[
    float,
    Strict(),
    Field(ge=0),
    WrapValidator(_check_max_credits),
    Allowed(f"a number of credits from 0 to {MAX_BUDGET_CREDITS:,}, inf for no limit"),
]
Switch = Annotated[bool, Strict(), Allowed("True or False, and true or false in a settings file")]
