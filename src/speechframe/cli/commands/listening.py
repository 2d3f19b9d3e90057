"""The command ``speechframe listening-test``, which serves listening tests and collects their votes."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.cli import exits, show
from speechframe.cli.actions import add_action, add_actions, make_integer_parser
from speechframe.errors import StoreError
from speechframe.processes.ending import raise_on_sigterm
from speechframe.writing.files import write_new

if TYPE_CHECKING:
    import pandas as pd

    from speechframe.listening.server import ServedTest

_DEFAULT_LISTENERS = 20
"""Default number of listeners."""
_MAX_LISTENERS = 10_000
_MAX_PORT = 65_535
_POLL_S = 0.5
"""Seconds between two looks at the progress of the listeners."""
_TABLE_ENDINGS = (".csv", ".parquet")
"""Endings of the files into which votes can be written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions ``serve``, ``pages`` and ``votes``."""
    parser.description = (
        "Make a listening test in Python (spf.listening_test) and give its folder to these commands."
    )
    below = add_actions(parser)
    serve = _add_test_action(
        below, "serve", "Give each listener a link to the test, and serve it until all have finished."
    )
    serve.add_argument(
        "--port",
        type=make_integer_parser(0, _MAX_PORT),
        default=0,
        metavar="N",
        help="port (default: a free port)",
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        help="address of the server. %(default)s serves this machine, 0.0.0.0 the whole network",
    )
    _add_listeners(serve, "number of links (%(default)s)")
    pages = _add_test_action(
        below, "pages", "Write one page for each listener. A page is a file that works offline."
    )
    pages.add_argument("--out", required=True, type=Path, metavar="PATH", help="the folder for the pages")
    _add_listeners(pages, "number of pages (%(default)s)")
    votes = _add_test_action(below, "votes", "Count the votes. With --out, also write them into a table.")
    votes.add_argument(
        "--files", type=Path, metavar="PATH", help="folder of the files that listeners sent back"
    )
    votes.add_argument(
        "--out",
        type=_parse_table_path,
        metavar="PATH",
        help=f"write all votes there ({' or '.join(_TABLE_ENDINGS)})",
    )


def _add_test_action(below: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser = add_action(below, name, summary)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the test's folder")
    return parser


def _add_listeners(parser: argparse.ArgumentParser, help_text: str) -> None:
    parser.add_argument(
        "--listeners",
        type=make_integer_parser(1, _MAX_LISTENERS),
        default=_DEFAULT_LISTENERS,
        metavar="N",
        help=help_text,
    )


def _parse_table_path(text: str) -> Path:
    if Path(text).suffix not in _TABLE_ENDINGS:
        raise argparse.ArgumentTypeError(f"{text} ends neither in {' nor in '.join(_TABLE_ENDINGS)}")
    return Path(text)


def run(options: argparse.Namespace) -> int:
    """Serve a listening test, write its pages, or count its votes. Return the exit code."""
    return {"serve": _serve, "pages": _write_pages, "votes": _collect_votes}[options.action](options)


# -- serve ---------------------------------------------------------------------------


def _serve(options: argparse.Namespace) -> int:
    from speechframe.listening.server import serve_test
    from speechframe.listening.test import open_test

    test = open_test(options.folder)
    with (
        raise_on_sigterm(),
        serve_test(test, options.port, options.host, listeners=options.listeners) as served,
    ):
        if options.json:
            show.print_json({"url": served.url, "links": served.links, "folder": str(options.folder)})
        else:
            show.write_table(("listener", "link"), served.links.items(), is_cut=False)
        if not served.is_local:
            show.write_note(
                "Everyone on the network who has a link can use it to vote. Nothing is encrypted."
            )
        show.write_note(
            f"Votes are written to {options.folder}. The server runs until all listeners have finished, or "
            "until Ctrl-C. Serve the test again on the same port to use the same links."
        )
        try:
            _wait_for_listeners(served)
        except KeyboardInterrupt:
            show.write_note("stopped. Every vote is kept")
    return exits.OK


def _wait_for_listeners(served: "ServedTest") -> None:
    """Print a note for each listener who finishes. Return when all listeners have finished."""
    reported: set[str] = set()
    while True:
        finished = [name for name, (done, total) in served.progress.items() if done == total]
        for name in finished:
            if name not in reported:
                reported.add(name)
                show.write_note(f"{name} has finished ({len(reported)} of {len(served.links)})")
        if len(finished) == len(served.links):
            return
        time.sleep(_POLL_S)


# -- pages ---------------------------------------------------------------------------


def _write_pages(options: argparse.Namespace) -> int:
    from speechframe.listening.test import open_test

    test = open_test(options.folder)
    paths = []
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for name in test.invite(options.listeners):
            page = str(test.to_html(listener=name))
            paths += write_new(options.out, name, {".html": page.encode()})
    except OSError as error:
        raise _make_write_error(options.out, error) from error
    if options.json:
        show.print_json({"pages": [str(path) for path in paths]})
    else:
        size = show.format_size(sum(path.stat().st_size for path in paths))
        show.write_line(
            f"{options.out}: {show.format_count(len(paths), 'page')} ({size}), one for each listener"
        )
    return exits.OK


# -- votes ---------------------------------------------------------------------------


def _collect_votes(options: argparse.Namespace) -> int:
    import pandas as pd

    from speechframe.listening.offline import read_votes
    from speechframe.listening.test import open_test

    test = open_test(options.folder)
    votes = test.votes
    if options.files is not None:
        came_back = read_votes(options.files, test)
        came_back.attrs = {}
        votes = pd.concat([votes, came_back], ignore_index=True) if len(votes) else came_back
    counted = votes[~votes["training"]]
    if options.out is not None:
        _write_votes(votes, options.out)
    listeners, practice = int(votes["listener"].nunique()), len(votes) - len(counted)
    if options.json:
        facts = {"test": test.test_id, "votes": len(counted), "practice": practice, "listeners": listeners}
        show.print_json({**facts, "out": None if options.out is None else str(options.out)})
        return exits.OK
    count_text = show.format_count(len(counted), "vote")
    by = show.format_count(listeners, "listener")
    where = "" if options.out is None else f"; written to {options.out}"
    show.write_line(f"{test.test_id}: {count_text} of {by}, and {practice:,} for practice{where}")
    return exits.OK


def _write_votes(votes: "pd.DataFrame", path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".csv":
            votes.to_csv(path, index=False)
        else:
            votes.to_parquet(path, index=False)
    except OSError as error:
        raise _make_write_error(path, error) from error


def _make_write_error(path: Path, error: OSError) -> StoreError:
    # Errors of pyarrow have no strerror. If `mkdir` failed, error.filename is a parent folder of the path.
    where = f" ({error.filename})" if error.filename not in {None, str(path)} else ""
    return StoreError(
        f"{path} cannot be written: {error.strerror or error}{where}; name another place with --out"
    )
