"""Options of a command, read from the signature and docstring of the function behind it.

- A parameter that takes a constant or a column becomes ``--voice X`` and ``--voice-col c``.
- A parameter that names a column of the table becomes ``--text COLUMN``.
- Run options come from :class:`speechframe.RunOptions`.

The function gets only the options that were given, so its signature alone states the defaults.
"""

import argparse
import ast
import collections.abc
import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from os import PathLike
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any

from speechframe.batch.run_options import RunOptions
from speechframe.cli import docstrings
from speechframe.cli.docstrings import option_name
from speechframe.tables.column import Column, col

NOT_OFFERED = frozenset({"wait", "service", "on_alert"})
"""Run options that commands do not offer. A command waits, prints alerts and has its own service options."""

_OWN_HELP: Mapping[str, str] = MappingProxyType(
    {
        "cache": "Folder of answers that runs share. A call whose answer is in it is free. Default: "
        "SPEECHFRAME_CACHE, or cache in speechframe.toml. Each of them applies to every run.",
        "progress": "Show a progress bar (default). Without a terminal, print a line now and then.",
        "tags": "Label of every attempt in the ledger, such as team=ads.",
    }
)
"""Help of run options whose docstring mentions Python values, which a shell cannot pass."""

_PAIRS = "tags"
"""The run option that is written as ``name=value``, once for each pair."""

_PREFIX = "value"
_METAVARS = {int: "N", float: "NUMBER"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function, as the command line offers it.

    Parameters
    ----------
    name
        The name in the function's signature.
    kind
        The type of the value: ``str``, ``int``, ``float``, ``bool``, ``list`` (repeatable) or ``dict``
        (JSON).
    help
        The description of the parameter in the docstring, or words of the command.
    required
        True if it has no default.
    is_data
        True if it names a column of the table.
    takes_column
        True if it takes a constant or a column.
    choices
        The words of a ``Literal`` in the type. They apply only to text. Empty if any word is allowed.
    is_path
        True if it names a folder or file.
    can_be_off
        True if it takes False, too.
    """

    name: str
    kind: type
    help: str = ""
    required: bool = False
    is_data: bool = False
    takes_column: bool = False
    choices: tuple[str, ...] = ()
    is_path: bool = False
    can_be_off: bool = False


def verb_of(name: str) -> Callable[..., Any]:
    """Return an empty function with the docstring and the named parameters of a verb.

    They are read from the source, because the verb's module loads Arrow and the web client.
    """
    source = (resources.files("speechframe.verbs") / f"{name}.py").read_text(encoding="utf-8")
    statements = ast.parse(source).body
    function = next(n for n in statements if isinstance(n, ast.AsyncFunctionDef) and n.name == name)
    function.body = function.body[:1]
    function.args.kwarg = function.returns = None
    function.args.kw_defaults = [
        default if default is None or isinstance(default, ast.Constant) else ast.Constant(None)
        for default in function.args.kw_defaults
    ]
    names: dict[str, Any] = {**vars(typing), **vars(collections.abc), "PathLike": PathLike, "Column": Column}
    code = compile(ast.fix_missing_locations(ast.Module([function], [])), f"{name}.py", "exec")
    exec(code, names)  # noqa: S102 - a signature of our own package
    found: Callable[..., Any] = names[name]
    return found


def command_name(verb: str) -> str:
    """Return the name of a verb's command.

    Examples
    --------
    >>> command_name("change_voice")
    'change-voice'
    """
    return verb.replace("_", "-")


def parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the keyword parameters of `function`, with types from annotations and help from the docstring.

    A parameter whose default equals its name, such as ``text="text"``, takes the name of a column.
    """
    helps = docstrings.read(function.__doc__).parameters
    signature = inspect.signature(function, eval_str=True)
    return [
        _parameter(p.name, p.annotation, helps.get(p.name, ""), default=p.default)
        for p in signature.parameters.values()
        if p.kind is p.KEYWORD_ONLY
    ]


def run_options(*, without: Sequence[str] = ()) -> list[Parameter]:
    """Return the run options that commands offer, except those in `without`."""
    helps = docstrings.read(RunOptions.__doc__).parameters
    left_out = {*NOT_OFFERED, *without}
    return [
        _parameter(name, hint, _OWN_HELP.get(name) or helps.get(name, ""), default=None)
        for name, hint in typing.get_type_hints(RunOptions).items()
        if name not in left_out
    ]


def _parameter(name: str, annotation: Any, words: str, *, default: Any) -> Parameter:
    is_data = default == name
    members = [m for m in _members(annotation) if m is not NoneType]
    takes_column = Column in members and not is_data
    plain = [m for m in members if m is not Column and m is not Any]
    kinds = [_kind(m) for m in plain]
    if not kinds and default is not None and default is not inspect.Parameter.empty:
        kinds = [type(default)]
    return Parameter(
        name=name,
        kind=kinds[0] if kinds else str,
        help=words,
        required=default is inspect.Parameter.empty,
        is_data=is_data,
        takes_column=takes_column,
        choices=tuple(c for m in plain if typing.get_origin(m) is typing.Literal for c in typing.get_args(m)),
        is_path=any(typing.get_origin(m) is PathLike or m is Path for m in plain),
        can_be_off=bool in kinds[1:],
    )


def _members(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in {typing.Union, UnionType}
    return typing.get_args(annotation) if is_union else (annotation,)


def _kind(member: Any) -> type:
    origin = typing.get_origin(member) or member
    if origin is typing.Literal:
        return str
    if isinstance(origin, type):
        for kind in (bool, int, float):
            if issubclass(origin, kind):
                return kind
        if issubclass(origin, Mapping):
            return dict
        if issubclass(origin, (list, tuple)):
            return list
    return str


def add(group: Any, parameters: Sequence[Parameter]) -> None:
    """Add options for `parameters` to an argument group or parser."""
    for parameter in parameters:
        if parameter.takes_column:
            either = group.add_mutually_exclusive_group(required=parameter.required)
            _add(either, parameter, required=False)
            either.add_argument(
                f"{option_name(parameter.name)}-col",
                dest=f"{_PREFIX}.{parameter.name}.column",
                default=argparse.SUPPRESS,
                metavar="COLUMN",
                help="column that has the value for each row",
            )
        elif parameter.can_be_off:
            either = group.add_mutually_exclusive_group(required=parameter.required)
            _add(either, parameter, required=False)
            either.add_argument(
                f"--no-{option_name(parameter.name)[2:]}",
                dest=f"{_PREFIX}.{parameter.name}",
                action="store_false",
                default=argparse.SUPPRESS,
                help=f"use no {parameter.name.replace('_', ' ')}, even if the settings name one",
            )
        else:
            _add(group, parameter, required=parameter.required)


def _add(group: Any, parameter: Parameter, *, required: bool) -> None:
    names, words = [option_name(parameter.name)], parameter.help.replace("%", "%%")
    if parameter.kind is list or parameter.name == _PAIRS:
        # A list option also accepts the argument's own name, in the plural.
        own = names if parameter.kind is list else []
        names, words = [names[0].removesuffix("s"), *own], f"{words.rstrip('.')}; repeatable"
    # An exclusive group of argparse refuses an option that is required.
    needed = {"required": True} if required else {}
    dest = f"{_PREFIX}.{parameter.name}"
    group.add_argument(
        *names, dest=dest, default=argparse.SUPPRESS, help=words, **needed, **_settings_of(parameter)
    )


def _settings_of(parameter: Parameter) -> dict[str, Any]:
    if parameter.kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if parameter.kind is list:
        return {"action": "append", "metavar": parameter.name.removesuffix("s").upper()}
    if parameter.name == _PAIRS:
        return {"action": "append", "type": _pair, "metavar": "NAME=VALUE"}
    if parameter.kind is dict:
        return {"type": json_object, "metavar": "JSON|@FILE"}
    if parameter.choices:
        return {"choices": parameter.choices}
    if parameter.is_data or parameter.name == "id":
        return {"metavar": "COLUMN"}
    metavar = "PATH" if parameter.is_path else _METAVARS.get(parameter.kind, parameter.name.upper())
    return {"type": parameter.kind, "metavar": metavar}


def _pair(words: str) -> tuple[str, str]:
    name, separator, value = words.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{words!r} is not of the form NAME=VALUE")
    return name, value


def json_object(words: str) -> dict[str, Any]:
    """Return the JSON object in `words`, or in the file that ``@name`` names.

    Examples
    --------
    >>> json_object('{"Nguyen": {"type": "SAY_AS", "pronunciation": "win"}}')["Nguyen"]["type"]
    'SAY_AS'
    """
    try:
        source = Path(words[1:]).read_text(encoding="utf-8") if words.startswith("@") else words
        value = json.loads(source)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{words[1:]} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"the value is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('is not a JSON object; write an object such as {"word": {...}}')
    return value


def required_usage(parameters: Sequence[Parameter]) -> str:
    """Return the required options in the form of a usage line."""
    words = ""
    for parameter in parameters:
        if parameter.required:
            name = option_name(parameter.name)
            if parameter.kind is list:
                words += f"{name.removesuffix('s')} {parameter.name.removesuffix('s').upper()} "
                continue
            column = f"{name}-col COLUMN"
            constant = f"{name} {'COLUMN' if parameter.is_data else parameter.name.upper()}"
            words += f"({constant} | {column}) " if parameter.takes_column else f"{constant} "
    return words


def values(options: argparse.Namespace) -> dict[str, Any]:
    """Return the values that were given on the command line, as arguments of the function."""
    given: dict[str, Any] = {}
    for dest, value in vars(options).items():
        prefix, _, rest = dest.partition(".")
        if prefix == _PREFIX:
            name, _, is_column = rest.partition(".")
            given[name] = col(value) if is_column else dict(value) if name == _PAIRS else value
    return given
