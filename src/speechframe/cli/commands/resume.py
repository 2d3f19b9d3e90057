"""``speechframe resume``: go on with a run folder."""

import argparse
from typing import Any

from speechframe.cli import declared, runs, selection

_DESCRIPTION = (
    "Go on with a run: what is missing is made, what is there is kept. All parameters come from the folder; "
    "failed rows are tried again."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = _DESCRIPTION
    parser.add_argument("folder", metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--table",
        type=runs.existing_file,
        metavar="TABLE",
        help="a new table for the run: new and changed rows are made, unchanged ones cost nothing",
    )
    parser.add_argument(
        "--redo",
        nargs="+",
        metavar="ID",
        help="make another take of these rows: their ids, or one status such as failed or suspect",
    )
    # The folder and the takes are the run's own.
    declared.add(parser.add_argument_group("the run"), declared.run_options(without=("run_dir", "take")))
    selection.add_arguments(parser)
    runs.add_report_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Go on and report."""
    from speechframe import api
    from speechframe.batch.live import open_run

    given = declared.values(options)
    runs.settle_run_options(options.parser, given)
    if options.redo and options.table:
        options.parser.error("--redo is for the run's own table: --redo or --table, one at a time")
    # A folder that is none is said before a service is started for it.
    open_run(options.folder)
    service = selection.service(options)
    with runs.gentle_interrupts():
        made = api.resume(options.folder, options.table, redo=_redo(options.redo), **given, service=service)
    return runs.report(made, options)


def _redo(words: list[str] | None) -> Any:
    from speechframe.batch.prepare import REDO_STATUSES

    if words is not None and len(words) == 1 and words[0] in REDO_STATUSES:
        return words[0]
    return words
