"""``speechframe spec``: the service document as others read it."""

import argparse
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from speechframe.cli import exits


def _markdown() -> str:
    from speechframe.spec import render

    return render.tables_markdown()


def _json_schema() -> str:
    from speechframe.spec import render

    return json.dumps(render.json_schema(), indent=2, ensure_ascii=False)


def _openapi() -> str:
    from speechframe.spec import render

    return json.dumps(render.openapi(), indent=2, ensure_ascii=False)


_FORMATS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "markdown": _markdown,
        "json-schema": _json_schema,
        "openapi": _openapi,
    }
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--format",
        choices=tuple(_FORMATS),
        default="markdown",
        help="tables, JSON Schema or OpenAPI 3.1 (%(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the document."""
    print(_FORMATS[options.format]())
    return exits.OK
