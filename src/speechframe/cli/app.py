"""Parse a command line, run the command and return its exit code."""

import argparse
import importlib
import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

from speechframe._version import __version__
from speechframe.cli import declared, exits, show
from speechframe.errors import InvalidRows, SpeechframeError, nearest
from speechframe.network.descriptors import raise_descriptor_limit
from speechframe.processes.allocator import tune_allocator
from speechframe.verbs import VERBS


class Command(Protocol):
    """Functions that the module of a command must contain."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class _Entry(NamedTuple):
    summary: str
    module: str


_OWN = MappingProxyType({"dub": "dub"})
"""The module of a verb that has a command module of its own. The commands of all other verbs share one."""

_FIRST: Mapping[str, _Entry] = MappingProxyType(
    {
        "demo": _Entry("Speak a table on the embedded local service and suggest next steps.", "demo"),
        "serve": _Entry("Run the local service.", "serve"),
        "voices": _Entry("List the voices of a service.", "voices"),
        "say": _Entry("Speak one line into a file.", "say"),
    }
)
_LAST: Mapping[str, _Entry] = MappingProxyType(
    {
        "resume": _Entry(
            "Continue a run. Make the rows that have no result, and keep all finished rows.", "resume"
        ),
        "jobs": _Entry("Show the status of dubbing jobs: those of a run, or those with given ids.", "jobs"),
        "runs": _Entry("List, check or remove run folders.", "folders"),
        "usage": _Entry("Show spending by run, user, voice and more, or check budgets.", "usage"),
        "reconcile": _Entry("Compare a bill with the ledger.", "usage"),
        "report": _Entry("Write a page about spending.", "usage"),
        "cache": _Entry("List or prune the cache of answers that runs share.", "cache"),
        "listening-test": _Entry(
            "Run a listening test without a notebook: serve it or write its pages, and collect votes.",
            "listening",
        ),
        "spec": _Entry("Print the description of the service as tables, JSON Schema or OpenAPI.", "spec"),
        "models": _Entry(
            "Show the installed voices, translations and recognisers, and how to add missing ones.", "models"
        ),
        "doctor": _Entry("Check the installation, and show how to install missing parts.", "doctor"),
    }
)

_DESCRIPTION = (
    "DataFrames in, speech datasets out. If no key and no address are set, an embedded local service speaks."
)


def commands() -> dict[str, _Entry]:
    """Return all commands by name, including one for each verb."""
    verbs = {
        declared.command_name(name): _Entry(verb.summary, _OWN.get(name, "verb"))
        for name, verb in VERBS.items()
    }
    return {**_FIRST, **verbs, **_LAST}


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser for `argv`. Load the module and options of the named command only."""
    parser = argparse.ArgumentParser(
        prog="speechframe",
        description=_DESCRIPTION,
        epilog=f"{exits.epilog()}\n\nspeechframe COMMAND --help shows more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"speechframe {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error, and the log")
    below = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    meant = next((word for word in argv if not word.startswith("-")), None)
    for name, entry in commands().items():
        summary = entry.summary.replace("%", "%%")
        command = below.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        if name != meant:
            continue
        # Use SUPPRESS, because a default here would override a --debug before the command's name.
        command.add_argument(
            "--debug",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show the traceback of an error, and the log",
        )
        command.epilog = "speechframe --help lists the exit codes."
        command.set_defaults(module=entry.module, parser=command)
        _module(entry.module).add_arguments(command)
    return parser


def _module(name: str) -> Command:
    return cast("Command", importlib.import_module(f"speechframe.cli.commands.{name}"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code (:data:`speechframe.cli.exits.EXIT_CODES`).

    SystemExit is raised for ``--help``, ``--version`` and wrong usage.

    Parameters
    ----------
    argv
        The words after ``speechframe``. Default: those of this process.
    """
    show.settle_output()
    if argv is None:
        # The process runs this command only, so settings of the whole process may be changed.
        tune_allocator()
        raise_descriptor_limit()
    try:
        argv = _hidden_keys(sys.argv[1:] if argv is None else argv)
        code = _main(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        show.redirect_output()
        return exits.PIPE_CLOSED
    except KeyboardInterrupt:
        show.note("interrupted")
        return exits.INTERRUPTED
    finally:
        show.end_error_output()
    return code


def _hidden_keys(argv: Sequence[str]) -> list[str]:
    """Return the words of a command line, with keys hidden from detailed tracebacks."""
    if not any(map(_is_of_key, argv)):
        return list(argv)
    from speechframe.settings.hidden import Hidden

    return [
        Hidden(word) if _is_of_key(before) or (_is_of_key(word) and "=" in word) else word
        for before, word in zip(("", *argv), argv, strict=False)
    ]


def _is_of_key(word: str) -> bool:
    # Also match a misspelt option such as "--apikey KEY", because its error would show the key.
    return word.startswith("-") and "key" in word.partition("=")[0]


def _main(argv: list[str]) -> int:
    parser = make_parser(argv)
    code: str | int | None = None
    try:
        options, unknown = parser.parse_known_args(argv)
    except SystemExit as ended:
        code, options = ended.code, None
    if options is None:
        # Raise a new error without the frames of argparse, because their locals
        # contain the command line, which may contain a key.
        raise SystemExit(code)
    if unknown:
        # argparse would show the usage of speechframe, which does not list the options of the command.
        meant: argparse.ArgumentParser = getattr(options, "parser", parser)
        # Mask hidden words, such as the key of "--apikey KEY".
        words = " ".join(word if type(word) is str else "***" for word in unknown)
        known = [name for action in meant._actions for name in action.option_strings]  # noqa: SLF001 - argparse has no public list of options
        misspelt = [word.partition("=")[0] for word in unknown if type(word) is str and word.startswith("--")]
        guesses = "".join(nearest(name, known) for name in misspelt)
        message = f"unrecognized arguments: {words}; allowed: see {meant.prog} --help; {guesses}"
        meant.error(message.rstrip("; "))
    if options.command is None:
        parser.print_help(sys.stderr)
        return exits.USAGE
    if options.debug:
        logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    try:
        return _module(options.module).run(options)
    except SpeechframeError as error:
        _print_error(error, options)
        return exits.code_of_error(error)


def _print_error(error: SpeechframeError, options: argparse.Namespace) -> None:
    if options.debug:
        traceback.print_exc()
    if isinstance(error, InvalidRows):
        count = show.counted(error.total, "problem")
        show.note(f"speechframe {options.command}: {count}; nothing was sent")
        show.note(show.problems_table(error.problems, error.total))
    else:
        show.note(f"speechframe {options.command}: {error}")
    for words in getattr(error, "__notes__", ()):
        show.note(words)
    if getattr(options, "json", False):
        print(json.dumps(exits.as_json(error), default=str))
