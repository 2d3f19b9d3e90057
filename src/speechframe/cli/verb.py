"""One command for every verb: its options are its signature."""

import argparse
import importlib
from typing import Any

from speechframe.cli import declared, docstrings, runs, selection

_CLIPS = "audio"
"""The argument of verbs whose table may be the audio files themselves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb that `parser` is named after."""
    verb = _verb(parser.prog.rpartition(" ")[2].replace("-", "_"))
    said = docstrings.read(verb.function.__doc__)
    parser.description = f"{said.summary} {said.body}"
    data = _data_arguments(verb)
    files = "a CSV, TSV, JSONL, Parquet, XLSX or text file (one line a row)"
    tables = "TABLE|AUDIO..." if _CLIPS in data else "TABLE"
    parser.add_argument(
        "table",
        type=runs.existing_file,
        metavar=tables,
        nargs="+" if _CLIPS in data else 1,
        help=f"{files}, or audio files, or a folder of them" if _CLIPS in data else files,
    )
    own = declared.parameters(verb.function, data)
    # argparse's own usage would be thirty lines before every error.
    parser.usage = f"%(prog)s {tables} {declared.required_usage(own)}[options]"
    declared.add(parser.add_argument_group("what is made"), own)
    if declared.takes_run_options(verb.function):
        declared.add(parser.add_argument_group("the run"), declared.run_options())
    selection.add_arguments(parser)
    runs.add_report_arguments(parser)
    parser.set_defaults(verb=verb.name)


def run(options: argparse.Namespace) -> int:
    """Carry the verb out and report."""
    from speechframe import api

    given = declared.values(options)
    runs.settle_run_options(options.parser, given)
    service = selection.service(options)
    with runs.gentle_interrupts():
        table = options.table[0] if len(options.table) == 1 else [str(path) for path in options.table]
        made = getattr(api, options.verb)(table, **given, service=service)
    return runs.report(made, options)


def _verb(name: str) -> Any:
    shipped = declared.shipped_verbs()
    if name in shipped:
        importlib.import_module(shipped[name][0])
    from speechframe.old_batch.verbs import VERBS

    return VERBS[name]


def _data_arguments(verb: Any) -> frozenset[str]:
    from speechframe.old_batch.operation import Service

    # Which arguments name columns is the operation's to say; no service is needed for that.
    found: frozenset[str] = verb.operation.on(Service()).data_arguments
    return found
