"""``speechframe serve``: the local service, exactly as ``python -m speechframe.local.service`` runs it."""

import argparse

from speechframe.cli import exits
from speechframe.local.service import serve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the service's own options."""
    serve.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    return exits.SERVICE if serve.run(options) == serve.FAILED else exits.OK
