"""The command ``speechframe spec``, which prints the description of the service's API."""

import argparse
import json

from speechframe.cli import exits, show

_FORMATS = ("markdown", "json-schema", "openapi")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="markdown",
        help="Markdown tables, JSON Schema or OpenAPI 3.1 (%(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the description in the chosen format. Return the exit code."""
    from speechframe.spec.pages import render

    if options.format == "markdown":
        show.write_line(render.render_markdown())
    else:
        made = render.build_openapi() if options.format == "openapi" else render.build_json_schema()
        show.write_json(json.dumps(made, indent=2, ensure_ascii=False))
    return exits.OK
