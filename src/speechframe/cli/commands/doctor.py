"""The command ``speechframe doctor``, which checks the installation."""

import argparse
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from speechframe.cli import exits, show

if TYPE_CHECKING:
    from speechframe.cli.checks import Check


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.description = (
        "Check the installation, and show how to install missing parts. Every engine really speaks a word. "
        "The exit code is 0 if everything that is set up works, else 1."
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Run all checks and print their results. Return the exit code."""
    from speechframe.cli import checks

    about = checks.describe_versions()
    if not options.json:
        show.write_line(f"speechframe {about['version']}, Python {about['python']}, {about['platform']}")
    made = []
    for group, found in groupby(checks.run_checks(), key=lambda check: check.group):
        if not options.json:
            show.write_line(f"\n{group}")
        for check in found:
            made.append(check)
            if not options.json:
                _show(check)
    failed = sum(check.state == checks.FAILED for check in made)
    code = exits.ROWS_FAILED if failed else exits.OK
    if options.json:
        facts = [asdict(check) for check in made]
        show.print_json({**about, "ok": not failed, "checks": facts, "exit_code": code})
    else:
        show.write_line(f"\n{_describe_verdict(failed)}")
        show.write_line(
            "`speechframe models` shows what is installed for each language, and how to add more."
        )
    return code


def _show(check: "Check") -> None:
    show.write_line(f"  {check.state:<8} {check.name:<15} {check.words}")
    if check.command:
        show.write_line(f"  {'':<8} {'':<15} get it: {check.command}")


def _describe_verdict(failed: int) -> str:
    if not failed:
        return "Everything that is set up works."
    return f"{failed} thing{'s do' if failed != 1 else ' does'} not work. See `failed` above."
