"""The command ``speechframe serve``, which is the same as ``python -m speechframe.local.service``."""

import argparse

from speechframe.cli import exits
from speechframe.local.service import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the service's own options."""
    serve.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal ends the service."""
    return exits.SERVICE if serve.run(options) == serve.FAILED else exits.OK
