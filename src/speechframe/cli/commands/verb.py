"""The command of each verb (a function such as `generate`). Its options come from the verb's signature."""

import argparse
from typing import Any

from speechframe.cli import declared, docstrings, runs

_FILE_METAVARS = {"audio": "AUDIO", "media": "MEDIA"}
"""Parameter of a verb that also accepts files instead of a table, to the word for files in the usage line."""
_SECRET_PARAMETERS = frozenset({"webhook_secret"})
"""Parameters that do not become options, because every user of a machine can read command lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb that `parser` is named after."""
    name = parser.prog.rpartition(" ")[2].replace("-", "_")
    function = declared.load_verb_stub(name)
    docstring = docstrings.read_docstring(function.__doc__)
    parser.description = f"{docstring.summary} {docstring.body}"
    files = "a CSV, TSV, JSONL, Parquet, XLSX, PO, XLIFF, SRT, WebVTT or text file (one line a row)"
    files = f"{files}, a folder of Parquet files"
    own = [p for p in declared.read_parameters(function) if p.name not in _SECRET_PARAMETERS]
    kind = next((_FILE_METAVARS[p.name] for p in own if p.name in _FILE_METAVARS), None)
    tables = f"TABLE|{kind}..." if kind else "TABLE"
    parser.add_argument(
        "table",
        type=runs.parse_table,
        metavar=tables,
        nargs="+" if kind else 1,
        help=f"{files}, or {kind.lower()} files, or a folder of them" if kind else files,
    )
    # Replace the usage that argparse makes, because it would print thirty lines before every error.
    parser.usage = f"%(prog)s {tables} {declared.make_required_usage(own)}[options]"
    declared.add_options(parser.add_argument_group("the calls"), own)
    runs.add_arguments(parser)
    parser.set_defaults(verb=name)


def run(options: argparse.Namespace) -> int:
    """Call the verb and print the report of its run. Return the exit code."""
    return runs.report(call_verb(options), options)


def call_verb(options: argparse.Namespace, **extra_arguments: Any) -> Any:
    """Call the verb with the options of the command line and `extra_arguments`. Return the run."""
    from speechframe import api

    table = options.table[0] if len(options.table) == 1 else [str(path) for path in options.table]
    return runs.call(options, getattr(api, options.verb), table, **extra_arguments)
