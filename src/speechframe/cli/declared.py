"""Derive the options of a command from the signature and docstring of the function that it calls.

- A parameter that takes a constant or a column becomes two options: ``--voice X`` and ``--voice-col c``.
- A parameter that names a column of the table becomes one option: ``--text COLUMN``.
- Options of runs, such as ``--run-dir``, come from :class:`speechframe.RunOptions`.

Only options on the command line are passed to the function, so all defaults are in the function's signature.
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
from speechframe.cli.docstrings import make_option_name
from speechframe.tables.column import Column, col

NOT_OFFERED = frozenset({"wait", "service", "on_alert"})
"""Run options that are not derived, because commands always wait, print alerts, and have service options."""

_OWN_HELP: Mapping[str, str] = MappingProxyType(
    {
        "cache": "Folder of answers that runs share. A call whose answer is in it is free. Default: the "
        "folder for every run, if SPEECHFRAME_CACHE or cache in speechframe.toml names one.",
        "executor": "Address of a Dask scheduler whose workers make the calls, such as tcp://scheduler:8786. "
        "By default this machine makes them.",
        "executor_workers": "Number of workers of the executor. Default: all workers of the scheduler.",
        "progress": "Show a progress bar (default). Without a terminal, print a line now and then.",
        "tags": "Label of every attempt in the ledger, such as team=ads.",
    }
)
"""Help texts that replace docstrings, because these docstrings mention Python values."""

_PAIRS_OPTION = "tags"
"""The run option whose value is ``NAME=VALUE``. Users may repeat this option."""

_ADDRESS_OPTION = "executor"
"""The run option whose value is the address of a scheduler."""

_DEST_PREFIX = "value"
"""Prefix of the attributes in which argparse stores derived options, such as ``value.voice.column``."""
_METAVARS = {int: "N", float: "NUMBER"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function, with the facts from which its options are made.

    Parameters
    ----------
    name
        The name of the parameter in the function's signature.
    kind
        The type of the value: ``str``, ``int``, ``float``, ``bool``, ``list`` (repeatable) or ``dict``
        (JSON).
    help
        The help text, usually the description of the parameter in the docstring.
    required
        Whether the parameter lacks a default.
    names_column
        Whether the value is the name of a column of the table.
    takes_column
        Whether the value may be a constant or a column.
    choices
        The allowed values of a ``Literal`` type. Empty if any value is allowed.
    is_path
        Whether the value is the path of a folder or file.
    can_be_off
        Whether False is allowed besides another type. Then there is an option ``--no-NAME``.
    """

    name: str
    kind: type
    help: str = ""
    required: bool = False
    names_column: bool = False
    takes_column: bool = False
    choices: tuple[str, ...] = ()
    is_path: bool = False
    can_be_off: bool = False


def load_verb_stub(name: str) -> Callable[..., Any]:
    """Return a function with the docstring and the named parameters of a verb, but without its body.

    The source file is parsed, not imported, because the import would load Arrow and the web client.
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


def make_command_name(verb: str) -> str:
    """Return the name of a verb's command.

    Examples
    --------
    >>> make_command_name("change_voice")
    'change-voice'
    """
    return verb.replace("_", "-")


def read_parameters(function: Callable[..., Any]) -> list[Parameter]:
    """Return the keyword-only parameters of `function`.

    Types come from the annotations, and help texts from the docstring. A parameter whose default equals its
    name, such as ``text="text"``, is the name of a column.
    """
    helps = docstrings.read_docstring(function.__doc__).parameters
    signature = inspect.signature(function, eval_str=True)
    return [
        _make_parameter(p.name, p.annotation, helps.get(p.name, ""), default=p.default)
        for p in signature.parameters.values()
        if p.kind is p.KEYWORD_ONLY
    ]


def read_run_options(*, without: Sequence[str] = ()) -> list[Parameter]:
    """Return the options of runs, except `NOT_OFFERED` and the given names."""
    helps = docstrings.read_docstring(RunOptions.__doc__).parameters
    left_out = {*NOT_OFFERED, *without}
    return [
        _make_parameter(name, hint, _OWN_HELP.get(name) or helps.get(name, ""), default=None)
        for name, hint in typing.get_type_hints(RunOptions).items()
        if name not in left_out
    ]


def _make_parameter(name: str, annotation: Any, help_text: str, *, default: Any) -> Parameter:
    names_column = default == name
    members = [m for m in _split_union(annotation) if m is not NoneType]
    takes_column = Column in members and not names_column
    plain = [m for m in members if m is not Column and m is not Any]
    kinds = [_find_kind(m) for m in plain]
    if not kinds and default is not None and default is not inspect.Parameter.empty:
        kinds = [type(default)]
    return Parameter(
        name=name,
        kind=kinds[0] if kinds else str,
        help=help_text,
        required=default is inspect.Parameter.empty,
        names_column=names_column,
        takes_column=takes_column,
        choices=tuple(c for m in plain if typing.get_origin(m) is typing.Literal for c in typing.get_args(m)),
        is_path=any(typing.get_origin(m) is PathLike or m is Path for m in plain),
        can_be_off=bool in kinds[1:],
    )


def _split_union(annotation: Any) -> tuple[Any, ...]:
    is_union = typing.get_origin(annotation) in {typing.Union, UnionType}
    return typing.get_args(annotation) if is_union else (annotation,)


def _find_kind(member: Any) -> type:
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


def add_options(group: Any, parameters: Sequence[Parameter]) -> None:
    """Add the options of some parameters to an argument group or parser."""
    for parameter in parameters:
        has_pair = parameter.takes_column or parameter.can_be_off
        either = group.add_mutually_exclusive_group(required=parameter.required) if has_pair else group
        _add_option(either, parameter, required=parameter.required and not has_pair)
        if parameter.takes_column:
            either.add_argument(
                f"{make_option_name(parameter.name)}-col",
                dest=f"{_DEST_PREFIX}.{parameter.name}.column",
                default=argparse.SUPPRESS,
                metavar="COLUMN",
                help="column that has the value for each row",
            )
        elif parameter.can_be_off:
            either.add_argument(
                f"--no-{make_option_name(parameter.name)[2:]}",
                dest=f"{_DEST_PREFIX}.{parameter.name}",
                action="store_false",
                default=argparse.SUPPRESS,
                help=f"use no {parameter.name.replace('_', ' ')}, even if the settings name one",
            )


def _add_option(group: Any, parameter: Parameter, *, required: bool) -> None:
    names, help_text = [make_option_name(parameter.name)], parameter.help.replace("%", "%%")
    if parameter.kind is list or parameter.name == _PAIRS_OPTION:
        # The option has the singular name. For a list, the plural name of the parameter works, too.
        own = names if parameter.kind is list else []
        names, help_text = [names[0].removesuffix("s"), *own], f"{help_text.rstrip('.')}; repeatable"
    # Pass `required` only if it is true, because a mutually exclusive group of argparse refuses the argument.
    needed = {"required": True} if required else {}
    dest = f"{_DEST_PREFIX}.{parameter.name}"
    group.add_argument(
        *names,
        dest=dest,
        default=argparse.SUPPRESS,
        help=help_text,
        **needed,
        **_make_argument_settings(parameter),
    )


def _make_argument_settings(parameter: Parameter) -> dict[str, Any]:
    if parameter.kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    if parameter.kind is list:
        return {"action": "append", "metavar": parameter.name.removesuffix("s").upper()}
    if parameter.name == _PAIRS_OPTION:
        return {"action": "append", "type": _parse_pair, "metavar": "NAME=VALUE"}
    if parameter.name == _ADDRESS_OPTION:
        return {"type": _parse_scheduler_address, "metavar": "ADDRESS"}
    if parameter.kind is dict:
        return {"type": parse_json_object, "metavar": "JSON|@FILE"}
    if parameter.choices:
        return {"choices": parameter.choices}
    if parameter.names_column or parameter.name == "id":
        return {"metavar": "COLUMN"}
    metavar = "PATH" if parameter.is_path else _METAVARS.get(parameter.kind, parameter.name.upper())
    return {"type": parameter.kind, "metavar": metavar}


def _parse_pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _parse_scheduler_address(text: str) -> str:
    if not text.startswith(("tcp://", "tls://")):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the address of a Dask scheduler, such as tcp://scheduler:8786"
        )
    return text


def parse_json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in `text`. If `text` is ``@NAME``, read the object from the file NAME.

    Any other text raises ``argparse.ArgumentTypeError``.

    Examples
    --------
    >>> parse_json_object('{"Nguyen": {"type": "SAY_AS", "pronunciation": "win"}}')["Nguyen"]["type"]
    'SAY_AS'
    """
    try:
        source = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
        value = json.loads(source)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text[1:]} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"the value is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError('is not a JSON object; write an object such as {"word": {...}}')
    return value


def make_required_usage(parameters: Sequence[Parameter]) -> str:
    """Return the required options for a usage line, such as ``(--voice VOICE | --voice-col COLUMN)``."""
    usage = ""
    for parameter in parameters:
        if parameter.required:
            name = make_option_name(parameter.name)
            if parameter.kind is list:
                usage += f"{name.removesuffix('s')} {parameter.name.removesuffix('s').upper()} "
                continue
            column = f"{name}-col COLUMN"
            constant = f"{name} {'COLUMN' if parameter.names_column else parameter.name.upper()}"
            usage += f"({constant} | {column}) " if parameter.takes_column else f"{constant} "
    return usage


def collect_values(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options on the command line as keyword arguments of the function."""
    given: dict[str, Any] = {}
    for dest, value in vars(options).items():
        prefix, _, rest = dest.partition(".")
        if prefix == _DEST_PREFIX:
            name, _, is_column = rest.partition(".")
            given[name] = col(value) if is_column else dict(value) if name == _PAIRS_OPTION else value
    return given
