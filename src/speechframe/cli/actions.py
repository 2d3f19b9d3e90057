"""Parts of commands that have actions, such as ``speechframe runs ls`` and ``speechframe cache prune``."""

import argparse
from collections.abc import Callable
from typing import Any


def add_actions(parser: argparse.ArgumentParser) -> Any:
    """Return the group to which :func:`add_action` adds actions. The user must name one action."""
    return parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)


def add_action(below: Any, name: str, summary: str) -> argparse.ArgumentParser:
    """Return the parser of an action, with ``--json``."""
    parser: argparse.ArgumentParser = below.add_parser(
        name, help=summary, description=summary, allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.set_defaults(parser=parser)
    return parser


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """Return a converter of an option's word into a whole number within limits, for argparse."""

    def number(words: str) -> int:
        if not (words.isascii() and words.isdecimal() and low <= int(words) <= high):
            raise argparse.ArgumentTypeError(f"{words!r} is not a whole number from {low:,} to {high:,}")
        return int(words)

    return number
