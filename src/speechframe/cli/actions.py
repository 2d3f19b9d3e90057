"""Parts of commands that have actions, such as ``speechframe runs ls`` and ``speechframe cache prune``."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from speechframe.errors import suggest_name


class Parser(argparse.ArgumentParser):
    """A parser whose errors also name the nearest option if an option is misspelt."""

    _given: Sequence[str] = ()
    """The arguments that are being parsed."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments as argparse does, and keep them for errors."""
        self._given = args or ()
        return super().parse_known_args(args, namespace)

    def list_options(self) -> list[str]:
        """Return the names of all options."""
        return [name for action in self._actions for name in action.option_strings]

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message to standard error, and exit with code 2."""
        known = self.list_options()
        # Arguments of another type are hidden keys.
        names = [
            word.partition("=")[0] for word in self._given if type(word) is str and word.startswith("--")
        ]
        guesses = (f"; {name}: {suggest_name(name, known)}".rstrip() for name in names if name not in known)
        super().error(message + "".join(guess for guess in guesses if not guess.endswith(":")))


def add_actions(parser: argparse.ArgumentParser) -> Any:
    """Add a group of actions to a command, and return the group. The user must name one of its actions.

    :func:`add_action` adds the actions.
    """
    return parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)


def add_action(below: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """Add an action to the group `below`. Return its parser, which already has the option ``--json``."""
    parser: argparse.ArgumentParser = below.add_parser(
        name, help=summary, description=summary, allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.set_defaults(parser=parser)
    return parser


def make_integer_parser(low: int, high: int) -> Callable[[str], int]:
    """Return a function for argparse that converts an argument into a whole number from `low` to `high`."""

    def parse_integer(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low:,} to {high:,}")
        return int(text)

    return parse_integer
