"""The command of each verb (a function such as `generate`). Its options come from the verb's signature."""

import argparse
from typing import Any

from speechframe.cli import declared, docstrings, runs, selection

_CLIPS = {"audio": "AUDIO", "media": "MEDIA"}
"""Parameter of a verb that also accepts files instead of a table, to the word for files in the usage line."""
_SECRETS = frozenset({"webhook_secret"})
"""Parameters that do not become options, because every user of a machine can read command lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb that `parser` is named after."""
    name = parser.prog.rpartition(" ")[2].replace("-", "_")
    function = declared.verb_of(name)
    words = docstrings.read(function.__doc__)
    parser.description = f"{words.summary} {words.body}"
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
    # Replace the usage that argparse makes, because it would print thirty lines before every error.
    parser.usage = f"%(prog)s {tables} {declared.required_usage(own)}[options]"
    declared.add(parser.add_argument_group("the calls"), own)
    declared.add(parser.add_argument_group("the run"), declared.run_options())
    selection.add_arguments(parser)
    runs.add_report_arguments(parser)
    parser.set_defaults(verb=name)


def run(options: argparse.Namespace) -> int:
    """Call the verb and print the report of its run. Return the exit code."""
    return runs.report(call(options), options)


def call(options: argparse.Namespace, **more: Any) -> Any:
    """Call the verb with the options of the command line and the arguments `more`. Return the run."""
    from speechframe import api

    given = declared.values(options)
    runs.settle_run_options(options.parser, given)
    service = selection.service(options)
    with runs.gentle_interrupts():
        table = options.table[0] if len(options.table) == 1 else [str(path) for path in options.table]
        return getattr(api, options.verb)(table, **given, **more, service=service)
