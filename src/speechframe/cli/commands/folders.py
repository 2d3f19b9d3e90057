"""The command ``speechframe runs``, which lists, verifies and removes run folders."""

import argparse
from collections.abc import Callable
from pathlib import Path

from speechframe.cli.actions import add_action, add_actions

_DEFAULT_ROOTS = (Path("speechframe-runs"), Path("runs"))
"""Folders that ``ls`` searches by default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions ``ls``, ``verify`` and ``rm``."""
    below = add_actions(parser)
    ls = add_action(below, "ls", "List run folders.")
    roots = " and ".join(f"./{root}" for root in _DEFAULT_ROOTS)
    ls.add_argument(
        "folders",
        nargs="*",
        type=_make_folder_parser("ls", "list"),
        metavar="FOLDER",
        help=f"folders to search, at any depth (default: {roots})",
    )
    ls.set_defaults(roots=_DEFAULT_ROOTS)
    verify = add_action(
        below, "verify", "Read all files of runs, check the audio by sha256, and list problems."
    )
    verify.add_argument(
        "folders", nargs="+", metavar="RUN", help="a run's folder, or its URL (s3://bucket/run)"
    )
    rm = add_action(below, "rm", "Remove runs with all of their files.")
    rm.add_argument(
        "folders", nargs="+", type=_make_folder_parser("rm", "remove"), metavar="RUN", help="a run's folder"
    )
    rm.add_argument(
        "--yes", action="store_true", help="remove without a question. Required without a terminal"
    )


def _make_folder_parser(action: str, doing: str) -> Callable[[str], Path]:
    def parse_folder(text: str) -> Path:
        if not text:
            # Refuse an empty text, often from an empty shell variable. Path("") would be the current folder.
            raise argparse.ArgumentTypeError(f"'' is not a folder; name the folder to {doing}")
        if "://" in text:
            raise argparse.ArgumentTypeError(
                f"runs {action} works on local folders; {doing} {text} with the tools of its store"
            )
        return Path(text)

    return parse_folder


def run(options: argparse.Namespace) -> int:
    """List, verify or remove runs. Return the exit code."""
    from speechframe.cli import run_folders

    actions = {"ls": run_folders.list_runs, "verify": run_folders.verify_runs, "rm": run_folders.remove_runs}
    return actions[options.action](options)
