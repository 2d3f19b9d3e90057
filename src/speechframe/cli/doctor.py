"""``speechframe doctor``: what is installed, what works, what is missing and how to get it."""

import argparse
from dataclasses import asdict
from itertools import groupby

from speechframe.cli import checks, exits, show
from speechframe.cli.checks import FAILED, Check


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = (
        "Say what is installed, what works and how to get what is missing. Every engine really speaks a "
        "word. Ends with 0 when what is set up works, with 1 when something does not."
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Look at everything and print it."""
    about = checks.about()
    if not options.json:
        show.write(f"speechframe {about['version']}, Python {about['python']}, {about['platform']}")
    made = []
    for group, found in groupby(checks.all_checks(), key=lambda check: check.group):
        if not options.json:
            show.write(f"\n{group}")
        for check in found:
            made.append(check)
            if not options.json:
                _show(check)
    failed = sum(check.state == FAILED for check in made)
    code = exits.ROWS_FAILED if failed else exits.OK
    if options.json:
        said = [asdict(check) for check in made]
        show.print_json({**about, "ok": not failed, "checks": said, "exit_code": code})
    else:
        show.write(f"\n{_verdict(failed)}")
    return code


def _show(check: Check) -> None:
    show.write(f"  {check.state:<8} {check.name:<15} {check.words}")
    if check.command:
        show.write(f"  {'':<8} {'':<15} get it: {check.command}")


def _verdict(failed: int) -> str:
    if not failed:
        return "Everything that is set up works."
    return f"{failed} thing{'s do' if failed != 1 else ' does'} not work: see `{FAILED}` above."
