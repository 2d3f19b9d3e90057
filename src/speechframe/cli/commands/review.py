"""The command ``speechframe review``, which writes review pages and stores the reviews that come back."""

import argparse
from pathlib import Path
from typing import Any

from speechframe.cli import exits, show
from speechframe.cli.actions import add_action, add_actions
from speechframe.errors import StoreError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions ``pack`` and ``apply``."""
    below = add_actions(parser)
    pack = add_action(below, "pack", "Write a page that works offline, with the audio of the rows.")
    pack.add_argument("folder", metavar="RUN", help="the run's folder")
    pack.add_argument("--out", required=True, type=Path, metavar="PATH", help="the HTML file to write")
    pack.add_argument(
        "--rows", nargs="+", metavar="ID", help="rows with these ids or with one status (default: all rows)"
    )
    pack.add_argument("--locale", default="en", help="locale of the page's words: en or de (%(default)s)")
    apply = add_action(below, "apply", "Store the reviews in files, and list the conflicts.")
    apply.add_argument("folder", metavar="RUN", help="the run's folder")
    apply.add_argument("files", nargs="+", metavar="PATH", help="a JSON file, a sheet, or a folder of these")


def run(options: argparse.Namespace) -> int:
    """Write a page or store reviews. Return the exit code."""
    return {"pack": _pack, "apply": _apply}[options.action](options)


def _pack(options: argparse.Namespace) -> int:
    from speechframe.batch.live import open_run
    from speechframe.page.clips import make_shelf
    from speechframe.page.html import save_page
    from speechframe.page.review import make_review_page

    found = open_run(options.folder)
    shelf = make_shelf(_select(found, options.rows), limit=None, needs_audio=False)
    try:
        page = make_review_page(shelf, title="Review", verdicts=True, locale=options.locale)
    except ValueError as error:
        options.parser.error(f"argument --locale: {error}")
    save_page(page, options.out)
    size_bytes = options.out.stat().st_size
    if options.json:
        show.print_json({"out": str(options.out), "rows": len(shelf), "bytes": size_bytes})
    else:
        rows = show.format_count(len(shelf), "row")
        show.write_line(f"{options.out}: {rows} ({show.format_size(size_bytes)})")
    return exits.OK


def _select(found: Any, rows: list[str] | None) -> Any:
    """Return the chosen rows of a run: all rows, those with a status, or those with the given ids."""
    from speechframe.store.schema import STATUSES

    if rows is None:
        return found
    if len(rows) == 1 and rows[0] in STATUSES:
        return found.select([status == rows[0] for status in found.statuses()])
    try:
        return found.select(rows)
    except KeyError as error:
        raise StoreError(error.args[0]) from None


def _apply(options: argparse.Namespace) -> int:
    from speechframe.batch.live import open_run

    # `read_reviews` prints the numbers of reviews and conflicts to standard error.
    conflicts = open_run(options.folder).read_reviews(options.files)
    rows = conflicts.to_dict("records")
    if options.json:
        show.print_json({**conflicts.attrs, "conflicts": rows})
    elif rows:
        lines = [[row[name] for name in conflicts.columns] for row in rows]
        show.write_table(list(conflicts.columns), lines)
    return exits.ROWS_UNDECIDED if rows else exits.OK
