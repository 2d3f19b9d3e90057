"""The command ``speechframe serve``, which runs the local service."""

import argparse

from speechframe.cli import exits
from speechframe.local.service import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the local service."""
    serve.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the service until a signal ends it. Return the exit code."""
    codes = {serve.EXIT_FAILED: exits.SERVICE_UNUSABLE, serve.EXIT_WRONG_USAGE: exits.WRONG_USAGE}
    return codes.get(serve.run(options), exits.OK)
