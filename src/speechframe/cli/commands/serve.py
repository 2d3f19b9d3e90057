"""The command ``speechframe serve``, which runs the local service."""

import argparse

from speechframe.cli import exits
from speechframe.local.service import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the local service."""
    serve.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the service until a signal ends it. Return the exit code."""
    return exits.SERVICE_UNUSABLE if serve.run(options) == serve.EXIT_FAILED else exits.OK
