"""What people type as a setting (a plain string as a key, a list of regions), as the exact type of its field.

Environment variables are texts, and none of them sets a switch; the settings file has types of its own.
"""

import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import SecretStr

from speechframe._numbers import plain_number
from speechframe.errors import SettingsError, nearest
from speechframe.settings.hidden import KEY_VARIABLE, header_text, hidden_key
from speechframe.spec.billing import MOST_CREDITS
from speechframe.spec.check import shown
from speechframe.spec.limits import REGIONS

__all__ = ["SPENDING_LIMITS", "credit_limit", "expanded", "is_address", "read_toml", "typed"]

_T = TypeVar("_T")

SPENDING_LIMITS = ("max_credits_per_run", "max_credits_per_month")

_AN_ADDRESS = "an address as text, such as 'https://api.example.com'"
_ADDRESSES = "region to address, such as {'us-east': 'https://us.example.com'}"
_LISTED = "names, as a list or with commas between them"
_REGIONS = "names of regions, as a list or with commas between them"
# Two letters at least: one is a drive.
_SHORTENED_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def typed(name: str, value: Any) -> Any:
    """Return `value` as the field `name` of :class:`speechframe.Settings` holds it.

    Raises
    ------
    SettingsError
        When it is none that is allowed there.
    """
    return _TYPES[name](name, value)


def read_toml(path: Path, kind: type[_T]) -> _T:
    """Return what a TOML file says as a dataclass whose fields say what is allowed.

    SettingsError where it cannot be read, or says what is not allowed.
    """
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        # A mistyped name first, for what it stands for is missing too.
        first = min(error.errors(), key=lambda one: one["type"] != "unexpected_keyword_argument")
        problem, (*tables, name) = first["msg"], first["loc"] or ("",)
        where = f"{path}, {tables[0]} {int(tables[1]) + 1}" if tables else str(path)
        if first["type"] == "unexpected_keyword_argument":
            schema = adapter.json_schema()
            known = [name for one in (schema, *schema["$defs"].values()) for name in one["properties"]]
            problem = f"no such name; {nearest(str(name), known)}there are {', '.join(known)}"
        elif first["type"] != "missing":
            problem = f"{shown(first['input'])} is not allowed: {problem}"
        raise SettingsError(f"{where}: {name}: {problem}") from None
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None


def credit_limit(name: str, value: Any) -> float:
    """Return a number of credits, or raise SettingsError."""
    credits = _number(name, value, "a number of credits, 0 or more")
    if MOST_CREDITS < credits < math.inf:
        raise SettingsError(
            f"{name} is too large; allowed: at most {MOST_CREDITS:,} credits, inf for no limit"
        )
    return credits


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


def _key(name: str, value: Any) -> SecretStr:
    value = hidden_key(value)
    if not isinstance(value.get_secret_value(), str):
        kind = type(value.get_secret_value()).__name__
        raise SettingsError(f"{name} is of type {kind}; allowed: a key as text")
    return SecretStr(header_text(value, f"the {name.replace('_', ' ')}"))


def _address(name: str, value: Any) -> str:
    # Named by its type, not repeated: an address may hold a password.
    if not isinstance(value, str):
        raise SettingsError(f"{name} is of type {type(value).__name__}; allowed: {_AN_ADDRESS}")
    if any(mark in value for mark in "@?#"):
        raise SettingsError(
            f"{name} holds a user name or password, or a query; allowed: {_AN_ADDRESS}. The key goes into "
            f"{KEY_VARIABLE}"
        )
    return value


def _addresses(name: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name} is of type {type(value).__name__}; allowed: {_ADDRESSES}")
    for what, held in (("a region", value.keys()), ("an address", value.values())):
        odd = next((one for one in held if not isinstance(one, str)), "")
        if odd != "":
            raise SettingsError(f"{name} has {what} of type {type(odd).__name__}; allowed: {_ADDRESSES}")
    return MappingProxyType({region: _address(name, url) for region, url in value.items()})


def _names(name: str, value: Any, allowed: str = _LISTED) -> tuple[str, ...]:
    if isinstance(value, str):
        value = value.split(",")
    names = tuple(value) if isinstance(value, Iterable) else None
    if names is None or not all(isinstance(one, str) for one in names):
        raise SettingsError(f"{name}={value!r}; allowed: {allowed}")
    return tuple(one.strip() for one in names if one.strip())


def _regions(name: str, value: Any) -> tuple[str, ...]:
    found = _names(name, value, _REGIONS)
    twice = next((one for one in found if found.count(one) > 1), None)
    if twice is not None:
        raise SettingsError(f"{name} has {twice} twice; allowed, each once: {', '.join(REGIONS)}")
    return found


def _name(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise SettingsError(f"{name}={value!r}; allowed: a name as text")
    return value


def _switch(name: str, value: Any) -> bool:
    # Not what counts as true: "false" does.
    if not isinstance(value, bool):
        raise SettingsError(f"{name}={value!r}; allowed: True or False, and true or false in a settings file")
    return value


def _path(name: str, value: Any) -> Path:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise SettingsError(f"{name}={value!r}; allowed: a path of this machine")
    if is_address(value):
        raise SettingsError(f"{name}={value!r} is an address; allowed: a path of this machine")
    if "\0" in os.fspath(value):
        raise SettingsError(f"{name}={value!r} holds a NUL character; allowed: a path of this machine")
    try:
        return expanded(value)
    except ValueError as error:
        raise SettingsError(f"{name}={value!r}: {error}") from None


def _is_text_address(value: Any) -> bool:
    return isinstance(value, str) and "://" in value


def _limit(name: str, value: Any) -> float:
    allowed = "a number of at least 0, inf for no limit"
    limit = _number(name, value, allowed)
    if sys.float_info.max < limit < math.inf:
        raise SettingsError(f"{name} is too large; allowed: {allowed}")
    return float(limit)


def _number(name: str, value: Any, allowed: str) -> float:
    number = plain_number(value)
    # Not a NaN either: no comparison with it is true, so it would be a limit that nothing passes.
    if isinstance(number, (int, float)) and not isinstance(number, bool) and number >= 0:
        return number
    raise SettingsError(f"{name}={shown(value)}; allowed: {allowed}")


_TYPES: Mapping[str, Callable[[str, Any], Any]] = MappingProxyType(
    {
        **dict.fromkeys(("api_key", "dub_api_key", "webhook_secret"), _key),
        "base_url": _address,
        "regions": _regions,
        "region_urls": _addresses,
        "profile": _name,
        "require_tags": _names,
        **dict.fromkeys(("service", "ca_file", "cache", "prices", "budgets"), _path),
        "ledger": lambda name, value: str(value) if _is_text_address(value) else _path(name, value),
        **dict.fromkeys(("allow_http", "trust_env"), _switch),
        **dict.fromkeys(SPENDING_LIMITS, credit_limit),
        **dict.fromkeys(("cache_max_gb", "cache_max_age_days"), _limit),
    }
)
"""Field to what makes its value; every field of the settings has one."""
