"""Parse a command line, run the command and return its exit code."""

import argparse
import importlib
import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, cast

from speechframe._version import __version__
from speechframe.cli import declared, exits, show
from speechframe.cli.actions import Parser
from speechframe.cli.docstrings import replace_arguments
from speechframe.errors import InvalidRows, SpeechframeError
from speechframe.network.descriptors import raise_descriptor_limit
from speechframe.processes.allocator import tune_allocator
from speechframe.verbs import RUN_VERBS


class Command(Protocol):
    """Functions that the module of a command must contain."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


_MODULE_BY_COMMAND = MappingProxyType(
    {"dub": "dub", "listening-test": "listening", "reconcile": "usage", "report": "usage", "runs": "folders"}
)
"""Command to its module. Other verbs (such as `generate`) share `verb`. Other commands name their module."""

_COMMANDS_BEFORE_VERBS: Mapping[str, str] = MappingProxyType(
    {
        "demo": "Speak a table on the embedded local service and suggest next steps.",
        "serve": "Run the local service.",
        "voices": "List the voices of a service.",
        "say": "Speak one line into a file.",
    }
)
"""The commands that ``--help`` lists before the verbs, with their summaries."""

_COMMANDS_AFTER_VERBS: Mapping[str, str] = MappingProxyType(
    {
        "resume": "Continue a run. Make the rows that have no result, and keep all finished rows.",
        "export": "Publish runs as a dataset: clips with manifests for training tools.",
        "strings": "Read PO, XLIFF and subtitle files into a table, or write translations into them.",
        "jobs": "Show the status of dubbing jobs: those of a run, or those with given ids.",
        "runs": "List, check or remove run folders.",
        "quality": "Measure and grade the clips of runs, and list bad rows with their reasons.",
        "usage": "Show spending by run, user, voice and more, or check budgets.",
        "reconcile": "Compare a bill with the ledger.",
        "report": "Write a page about spending.",
        "cache": "List or prune the cache of answers that runs share.",
        "listening-test": (
            "Run a listening test without a notebook: serve it or write its pages, and collect votes."
        ),
        "review": "Write a page on which people review rows, and store the reviews that they send back.",
        "spec": "Print the description of the service as tables, JSON Schema or OpenAPI.",
        "models": "Show the installed voices, translations and recognisers, and how to add missing ones.",
        "doctor": "Check the installation, and show how to install missing parts.",
    }
)
"""The commands that ``--help`` lists after the verbs, with their summaries."""

_DESCRIPTION = (
    "DataFrames in, speech datasets out. If no key and no address are set, an embedded local service speaks."
)


def list_commands() -> dict[str, str]:
    """Return the summary of each command by name, including one for each verb."""
    verbs = {declared.make_command_name(name): verb.summary for name, verb in RUN_VERBS.items()}
    return {**_COMMANDS_BEFORE_VERBS, **verbs, **_COMMANDS_AFTER_VERBS}


def make_parser(argv: Sequence[str]) -> Parser:
    """Return the parser for `argv`. Only the command that `argv` names gets its options."""
    parser = Parser(
        prog="speechframe",
        description=_DESCRIPTION,
        epilog=f"{exits.make_epilog()}\n\nspeechframe COMMAND --help shows more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"speechframe {__version__}")
    debug: Any = {"action": "store_true", "help": "show the traceback of an error, and the log"}
    parser.add_argument("--debug", **debug)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    named_command = next((word for word in argv if not word.startswith("-")), None)
    for name, summary in list_commands().items():
        words = summary.replace("%", "%%")
        command = subparsers.add_parser(name, help=words, description=words, allow_abbrev=False)
        if name != named_command:
            continue
        # Use SUPPRESS. A default of this option would override a --debug before the name of the command.
        command.add_argument("--debug", default=argparse.SUPPRESS, **debug)
        command.epilog = "speechframe --help lists the exit codes."
        command.set_defaults(parser=command)
        _import_command(name).add_arguments(command)
    return parser


def _import_command(name: str) -> Command:
    module = _MODULE_BY_COMMAND.get(name, "verb" if name.replace("-", "_") in RUN_VERBS else name)
    return cast("Command", importlib.import_module(f"speechframe.cli.commands.{module}"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (see :data:`speechframe.cli.exits.EXIT_CODES`).

    Wrong usage, ``--help`` and ``--version`` raise SystemExit.

    Parameters
    ----------
    argv
        The arguments after ``speechframe``. The default is the arguments of this process.
    """
    show.prepare_output()
    if argv is None:
        # This process runs only this command, so settings of the whole process may change.
        tune_allocator()
        raise_descriptor_limit()
    try:
        argv = _hide_keys(sys.argv[1:] if argv is None else argv)
        code = _run_command(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        show.redirect_output()
        return exits.PIPE_CLOSED
    except KeyboardInterrupt:
        show.write_note("interrupted")
        return exits.INTERRUPTED
    finally:
        show.flush_error_output()
    return code


def _hide_keys(argv: Sequence[str]) -> list[str]:
    """Return the arguments. API keys are wrapped, so that tracebacks with values do not show the keys."""
    if not any(map(_is_key_option, argv)):
        return list(argv)
    from speechframe.settings.hidden import Hidden

    return [
        Hidden(word) if _is_key_option(before) or (_is_key_option(word) and "=" in word) else word
        for before, word in zip(("", *argv), argv, strict=False)
    ]


def _is_key_option(word: str) -> bool:
    # Also match a misspelt option such as "--apikey KEY", because the error message would show the key.
    return word.startswith("-") and "key" in word.partition("=")[0]


def _run_command(argv: list[str]) -> int:
    parser = make_parser(argv)
    code: str | int | None = None
    try:
        options, unknown = parser.parse_known_args(argv)
    except SystemExit as ended:
        code, options = ended.code, None
    if options is None:
        # Raise a new error without the frames of argparse. Their local variables contain the command line,
        # which may contain a key.
        raise SystemExit(code)
    if unknown:
        # Report the error here, because argparse would show the usage of speechframe, not of the command.
        command_parser: argparse.ArgumentParser = getattr(options, "parser", parser)
        # Mask wrapped arguments, such as the key of "--apikey KEY".
        shown = " ".join(word if type(word) is str else "***" for word in unknown)
        command_parser.error(f"unrecognized arguments: {shown}; allowed: see {command_parser.prog} --help")
    if options.command is None:
        parser.print_help(sys.stderr)
        return exits.WRONG_USAGE
    if options.debug:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        return _import_command(options.command).run(options)
    except SpeechframeError as error:
        _print_error(error, options)
        return exits.find_error_code(error)


def _print_error(error: SpeechframeError, options: argparse.Namespace) -> None:
    if options.debug:
        traceback.print_exc()
    names = options.parser.list_options()
    if isinstance(error, InvalidRows):
        count = show.format_count(error.total, "problem")
        show.write_note(f"speechframe {options.command}: {count}; nothing was sent")
        show.write_note(show.format_problems(error.problems, error.total, names))
    else:
        show.write_note(f"speechframe {options.command}: {replace_arguments(str(error), names)}")
    for note in getattr(error, "__notes__", ()):
        show.write_note(note)
    if getattr(options, "json", False):
        print(json.dumps(exits.convert_error_to_json(error), default=str))
