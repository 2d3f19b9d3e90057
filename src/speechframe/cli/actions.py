"""Parts of commands that have actions, such as ``speechframe runs ls`` and ``speechframe cache prune``."""

import argparse
from collections.abc import Callable
from typing import Any


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
