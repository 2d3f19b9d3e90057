"""The commands ``speechframe usage``, ``reconcile`` and ``report``, which read the ledger.

The ledger has one row for each attempt (one try of a call), with its cost.
"""

import argparse
import sys

from speechframe.cli import exits, show
from speechframe.writing.words import replace_unprintable

_GROUP_HELP = (
    "group the attempts by this fact: run, operation, model, locale, voice, user, host, status, lane (the "
    "region that got the call), service, key (its fingerprint) or tag:NAME. Repeatable"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command that `parser` is named after."""
    command, add = parser.prog.rpartition(" ")[2], parser.add_argument
    if command == "usage":
        add(
            "source",
            nargs="*",
            metavar="PATH",
            help="run folders or ledgers (default: the ledger of all runs)",
        )
        add("--group-by", action="append", default=[], metavar="NAME", help=_GROUP_HELP)
        add(
            "--every",
            default="1d",
            metavar="STEP",
            help="length of time that each row covers: 1h, 1d, 1w, 1mo, 1y or all (default: %(default)s)",
        )
        add("--csv", action="store_true", help="print every column as CSV")
        add(
            "--check",
            metavar="FILE",
            help="compare the spending with the budgets in this file. Exit code 8: a budget is at an alert "
            "threshold. Exit code 4: a budget is exceeded",
        )
    elif command == "reconcile":
        add(
            "reported",
            metavar="REPORTED",
            help="billed credits, or a CSV of date, credits, perhaps operation",
        )
        add("--fingerprint", help="fingerprint of the key, if the bill is for one key")
    else:
        add(
            "path",
            metavar="FILE.html",
            help="the page to write. A CSV file beside it contains the spending of each team by day",
        )
    if command != "usage":
        add("--source", action="append", metavar="PATH", help="a run folder or a ledger. Repeatable")
        add(
            "--by",
            default="team",
            metavar="TAG",
            help="the tag that contains the team (default: %(default)s)",
        )
    needed = command == "reconcile"
    add("--start", required=needed, metavar="DATE", help="first day or time of the window")
    add(
        "--end",
        required=needed,
        metavar="DATE",
        help="day or time at which the window ends. It is not in the window",
    )
    add("--tz", default="UTC", metavar="ZONE", help="time zone, such as Europe/Berlin (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Print usage, a reconciliation or the path of a report. Return the exit code."""
    from speechframe.errors import AnalysisError

    parser: argparse.ArgumentParser = options.parser
    try:
        return _run_command(options)
    except AnalysisError as error:
        parser.error(str(error))


def _run_command(options: argparse.Namespace) -> int:
    source, window = options.source or None, {"start": options.start, "end": options.end, "tz": options.tz}
    if options.command == "report":
        from speechframe.spending.report import report

        show.write_line(report(options.path, source, by=options.by, **window))
    elif options.command == "reconcile":
        from speechframe.spending.reconcile import reconcile

        found = {"source": source, "key": options.fingerprint, "by": options.by, **window}
        show.write_line(reconcile(options.reported, **found))
    elif options.check is not None:
        from speechframe.spending.budgets import check_budgets

        lines, state = check_budgets(options.check, source)
        show.write_line("\n".join(lines))
        return {"fine": exits.OK, "alert": exits.BUDGET_ALERT, "over": exits.LIMIT_REACHED}[state]
    else:
        from speechframe.spending.usage import drop_empty_columns, usage

        every = None if options.every == "all" else options.every
        table = usage(source, options.group_by, every=every, **window)
        if options.csv:
            sys.stdout.write(replace_unprintable(table.to_csv(index=False)))
            show.write_note(table.covers)
        else:
            show.write_line(f"{drop_empty_columns(table).to_string(index=False, na_rep='')}\n{table.covers}")
    return exits.OK
