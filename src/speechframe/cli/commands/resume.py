"""The command ``speechframe resume``, which continues a run."""

import argparse
from typing import Any

from speechframe.cli import runs

_DESCRIPTION = (
    "Continue a run. Missing and failed rows are made, and finished rows are kept. All parameters come from "
    "the folder."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = _DESCRIPTION
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--table",
        type=runs.parse_table,
        metavar="TABLE",
        help="a new table for the run. New and changed rows are made. Unchanged rows cost nothing",
    )
    parser.add_argument(
        "--redo",
        nargs="+",
        metavar="ID",
        help="make another take of the rows with these ids, or with one status such as failed or suspect; "
        "corrected speaks the corrected texts of reviews",
    )
    # The run itself determines its folder and its takes, so these options are not offered.
    runs.add_arguments(parser, without=("run_dir", "take"))


def run(options: argparse.Namespace) -> int:
    """Continue the run and print its report. Return the exit code."""
    from speechframe import api
    from speechframe.batch.live import open_run

    if options.redo and options.table:
        options.parser.error("--redo and --table cannot be combined; run resume once with each")
    # Open the run now, so that a folder without a run is refused before a service starts.
    open_run(options.folder)
    made = runs.call(options, api.resume, options.folder, options.table, redo=_parse_redo(options.redo))
    return runs.report(made, options)


def _parse_redo(given: list[str] | None) -> Any:
    from speechframe.batch.prepare import CORRECTED, REDO_STATUSES

    if given is not None and len(given) == 1 and given[0] in {*REDO_STATUSES, CORRECTED}:
        return given[0]
    return given
