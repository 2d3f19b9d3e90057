"""Types of settings and run options: what each takes, as pydantic checks it, and how a refusal reads.

A refusal says the name, the value and what is allowed. Keys and addresses, which may hold a password, are
named by their type and never repeated.
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

from speechframe.errors import SettingsError, nearest
from speechframe.settings.hidden import KEY_VARIABLE, header_text
from speechframe.spec.billing import MOST_CREDITS
from speechframe.spec.check import shown
from speechframe.spec.limits import REGIONS

_T = TypeVar("_T")

CONFIG = ConfigDict(extra="forbid", hide_input_in_errors=True)

_AN_ADDRESS = "an address as text, such as 'https://api.example.com'"
_ADDRESSES = "region to address, such as {'us-east': 'https://us.example.com'}"
_A_PATH = "a path of this machine"
# Two letters at least: one is a drive.
_SHORTENED_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


# -- how a refusal reads ---------------------------------------------------------------

# Kinds of errors: the words say what is allowed; the value may hold a password and is not repeated.
ALLOWED, _MASKED = "allowed", "masked"
_UNKNOWN = "unexpected_keyword_argument"


@dataclass(frozen=True)
class Allowed:
    """Annotates a type with words for what it takes: whatever it refuses is refused with them."""

    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the check of the type, with these words for any of its errors."""
        return core_schema.custom_error_schema(handler(source), ALLOWED, custom_error_message=self.words)


def no_such(what: str, name: str, known: Iterable[str]) -> SettingsError:
    """Return the error for a name that there is not, with the nearest one that there is."""
    known = [*known]
    return SettingsError(f"there is no {what} {name!r}; {nearest(name, known)}there are {', '.join(known)}")


def refused(
    error: ValidationError,
    what: str,
    known: Iterable[str],
    told_by: Mapping[str, str] = MappingProxyType({}),
    *,
    hint: str = "",
) -> SettingsError:
    """Return what pydantic refuses as an error in words.

    `told_by` says where a name was set, `hint` where a name belongs that is none of the `known`.
    """
    first = _first(error)
    (name, *inner), kind, words = first["loc"], first["type"], first["msg"].removeprefix("Value error, ")
    if kind == _UNKNOWN:
        said = f"{no_such(what, str(name), known)}{hint and '. '}{hint}"
    else:
        path = f"{name}{''.join(f'[{part!r}]' for part in inner if part != '[key]')}"
        given = "" if kind == _MASKED else f"={shown(first['input'])}"
        choices = words if kind == ALLOWED else first.get("ctx", {}).get("expected")
        said = f"{path}{given}; allowed: {choices}" if choices else f"{path}{given} {words}"
    return SettingsError(f"{where}: {said}" if (where := told_by.get(str(name))) else said)


def _first(error: ValidationError) -> Any:
    # A mistyped name first, for what it stands for is missing too.
    return min(error.errors(), key=lambda one: one["type"] != _UNKNOWN)


def read_toml(path: Path, kind: type[_T]) -> _T:
    """Return what a TOML file says as a dataclass whose fields say what is allowed.

    SettingsError where it cannot be read, or says what is not allowed.
    """
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = _first(error)
        problem, (*tables, name) = first["msg"], first["loc"] or ("",)
        where = f"{path}, {tables[0]} {int(tables[1]) + 1}" if tables else str(path)
        if first["type"] == _UNKNOWN:
            schema = adapter.json_schema()
            known = [name for one in (schema, *schema["$defs"].values()) for name in one["properties"]]
            problem = f"no such name; {nearest(str(name), known)}there are {', '.join(known)}"
        elif first["type"] != "missing":
            problem = f"{shown(first['input'])} is not allowed: {problem}"
        raise SettingsError(f"{where}: {name}: {problem}") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


# -- keys, addresses, names ------------------------------------------------------------


def _key(value: SecretStr, info: ValidationInfo) -> SecretStr:
    text = value.get_secret_value()
    if not isinstance(text, str):
        raise PydanticCustomError(_MASKED, f"is of type {type(text).__name__}; allowed: a key as text")
    return SecretStr(header_text(value, f"the {str(info.field_name).replace('_', ' ')}"))


def _address(value: Any) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError(_MASKED, f"is of type {type(value).__name__}; allowed: {_AN_ADDRESS}")
    if {*"@?#"} & {*value}:
        raise PydanticCustomError(
            _MASKED,
            f"holds a user name or password, or a query; allowed: {_AN_ADDRESS}. The key goes into "
            f"{KEY_VARIABLE}",
        )
    return value


def _mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise PydanticCustomError(_MASKED, f"is of type {type(value).__name__}; allowed: {_ADDRESSES}")
    return value


def _split(names: Any) -> Any:
    return names.split(",") if isinstance(names, str) else names


def _stripped(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for name in names if name.strip())


def _each_once(regions: tuple[str, ...]) -> tuple[str, ...]:
    if len({*regions}) < len(regions):
        twice = max(regions, key=regions.count)
        raise ValueError(f"has {twice} twice; allowed, each once: {', '.join(REGIONS)}")
    return regions


# With a bound on its length a text is read: a lone surrogate is half a character, and no file can hold it.
Text = Annotated[str, Strict(), Field(min_length=0)]
Name = Annotated[Text, Allowed("a name as text")]
Key = Annotated[SecretStr, AfterValidator(_key)]
Address = Annotated[str, PlainValidator(_address)]
Addresses = Annotated[Mapping[Name, Address], BeforeValidator(_mapping), AfterValidator(MappingProxyType)]
_Listed = Annotated[tuple[Text, ...], BeforeValidator(_split), AfterValidator(_stripped)]
Names = Annotated[_Listed, Allowed("names, as a list or with commas between them")]
Regions = Annotated[
    _Listed,
    Allowed("names of regions, as a list or with commas between them"),
    AfterValidator(_each_once),
]


# -- paths -----------------------------------------------------------------------------


def is_address(path: "str | os.PathLike[str]") -> bool:
    """Return whether a path is meant as an address such as ``s3://bucket/run``; a Path takes one slash away.

    Files of a relative folder ``s3:/bucket`` could not be read either: Arrow takes their names for addresses.

    Examples
    --------
    >>> is_address("s3://bucket/run"), is_address("runs/demo")
    (True, False)
    >>> is_address(Path("s3://bucket/run"))
    True
    """
    text = os.fspath(path)
    return "://" in text or _SHORTENED_ADDRESS.match(text) is not None


def expanded(path: "str | os.PathLike[str]") -> Path:
    """Return a path with its ``~`` replaced; ValueError, with what to do, where nobody lives there."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError("nobody of that name has a home folder here; give the path without ~") from None


def _local_path(value: Any) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise PydanticCustomError(ALLOWED, _A_PATH)
    if is_address(value):
        raise ValueError(f"is an address; allowed: {_A_PATH}")
    if "\0" in os.fspath(value):
        raise ValueError(f"holds a NUL character; allowed: {_A_PATH}")
    return expanded(value)


def _path_or_address(value: Any) -> Path | str:
    return str(value) if isinstance(value, str) and "://" in value else _local_path(value)


LocalPath = Annotated[Path, PlainValidator(_local_path)]
PathOrAddress = Annotated[Path | str, PlainValidator(_path_or_address)]


# -- numbers and switches --------------------------------------------------------------


def _whole(value: Any) -> Any:
    # A count is often of numpy.
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _at_most(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    # What is finite and beyond all floats is no infinity, which would lift the limit.
    credits = check(value)
    if credits > MOST_CREDITS and value != inf:
        raise ValueError
    return credits


Whole = Annotated[int, BeforeValidator(_whole), Strict()]
# Strict takes numbers of all kinds (numpy's, Decimals, Fractions) and no text; no NaN passes a bound.
Limit = Annotated[float, Strict(), Field(ge=0), Allowed("a number of at least 0, inf for no limit")]
Credits = Annotated[
    float,
    Strict(),
    Field(ge=0),
    WrapValidator(_at_most),
    Allowed(f"a number of credits from 0 to {MOST_CREDITS:,}, inf for no limit"),
]
Switch = Annotated[bool, Strict(), Allowed("True or False, and true or false in a settings file")]
