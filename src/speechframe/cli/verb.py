"""One command for every verb: its options are its signature."""

import argparse
import importlib
from typing import Any

from speechframe.cli import declared, docstrings, runs, selection


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb that `parser` is named after."""
    verb = _verb(parser.prog.rpartition(" ")[2])
    said = docstrings.read(verb.function.__doc__)
    parser.description = f"{said.summary} {said.body}"
    parser.add_argument(
        "table",
        type=runs.existing_file,
        metavar="TABLE",
        help="a CSV, TSV, JSONL, Parquet, XLSX or text file (one line a row)",
    )
    own = declared.parameters(verb.function, _data_arguments(verb))
    # argparse's own usage would be thirty lines before every error.
    parser.usage = f"%(prog)s TABLE {declared.required_usage(own)}[options]"
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
        made = getattr(api, options.verb)(options.table, **given, service=service)
    return runs.report(made, options)


def _verb(name: str) -> Any:
    shipped = declared.shipped_verbs()
    if name in shipped:
        importlib.import_module(shipped[name][0])
    from speechframe.batch.verbs import VERBS

    return VERBS[name]


def _data_arguments(verb: Any) -> frozenset[str]:
    from speechframe.batch.operation import Service

    # Which arguments name columns is the operation's to say; no service is needed for that.
    found: frozenset[str] = verb.operation.on(Service()).data_arguments
    return found
