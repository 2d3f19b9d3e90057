"""One command for every verb: its options are its signature."""

import argparse
from typing import Any

from speechframe.cli import declared, docstrings, runs, selection

_CLIPS = {"audio": "AUDIO", "media": "MEDIA"}
"""Arguments of verbs whose table may be the files themselves, and what these are called."""
_SECRETS = frozenset({"webhook_secret"})
"""Arguments that are no options: every user of a machine can read command lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb that `parser` is named after."""
    name = parser.prog.rpartition(" ")[2].replace("-", "_")
    function = declared.verb_of(name)
    said = docstrings.read(function.__doc__)
    parser.description = f"{said.summary} {said.body}"
    files = "a CSV, TSV, JSONL, Parquet, XLSX or text file (one line a row)"
    own = [p for p in declared.parameters(function) if p.name not in _SECRETS]
    kind = next((_CLIPS[p.name] for p in own if p.name in _CLIPS), None)
    tables = f"TABLE|{kind}..." if kind else "TABLE"
    parser.add_argument(
        "table",
        type=runs.existing_file,
        metavar=tables,
        nargs="+" if kind else 1,
        help=f"{files}, or {kind.lower()} files, or a folder of them" if kind else files,
    )
    # argparse's own usage would be thirty lines before every error.
    parser.usage = f"%(prog)s {tables} {declared.required_usage(own)}[options]"
    declared.add(parser.add_argument_group("what is made"), own)
    declared.add(parser.add_argument_group("the run"), declared.run_options())
    selection.add_arguments(parser)
    runs.add_report_arguments(parser)
    parser.set_defaults(verb=name)


def run(options: argparse.Namespace) -> int:
    """Carry the verb out and report."""
    return runs.report(made(options), options)


def made(options: argparse.Namespace, **more: Any) -> Any:
    """Carry the verb out, with `more` arguments, and return the run."""
    from speechframe import api

    given = declared.values(options)
    runs.settle_run_options(options.parser, given)
    service = selection.service(options)
    with runs.gentle_interrupts():
        table = options.table[0] if len(options.table) == 1 else [str(path) for path in options.table]
        return getattr(api, options.verb)(table, **given, **more, service=service)
