"""The command ``speechframe voices``, which lists the voices of a service."""

import argparse
from collections.abc import Hashable, Mapping
from typing import Any

from speechframe.cli import exits, selection, show
from speechframe.spec.locales import is_within
from speechframe.spec.speech import Model

_SHOWN_COLUMNS = ("voice_id", "gender", "locale", "styles", "engine", "kind")
"""Columns of `voices` that the table contains."""
_CLEAREST_NOTE = "clearest voice of its locale among those that were measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--model",
        choices=[model.value for model in Model],
        default=Model.GEN2.value,
        help="the model whose voices are listed (%(default)s)",
    )
    parser.add_argument("--locale", help="only voices that speak this locale (fr-FR) or language (fr)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON: a list of voices")
    selection.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the voices as a table or JSON. Return the exit code."""
    from speechframe import api

    found = api.voices(model=options.model, locale=options.locale, service=selection.choose_service(options))
    if options.json:
        show.write_json(found.to_json(orient="records", force_ascii=False))
        return exits.OK
    voices = found.to_dict(orient="records")
    rows = [
        [
            *(v[name] for name in _SHOWN_COLUMNS),
            _format_clarity(v, options.locale),
            [tag for tag in v["supported_locales"] if tag != v["locale"]],
        ]
        for v in voices
    ]
    show.write_table([*_SHOWN_COLUMNS, "error", "speaks too"], rows)
    if any("*" in row[-2] for row in rows):
        show.write_line("\nerror: share of words that a recogniser gets wrong, for Japanese of characters")
        show.write_line(f"*: {_CLEAREST_NOTE}")
    return exits.OK


def _format_clarity(voice: Mapping[Hashable, Any], locale: str | None) -> str:
    """Return the share of misheard words for each measured locale of a voice, such as ``en-US 0.03*``.

    Only the requested locale or language counts, or else the locale of the voice. A star marks the clearest
    voice of a locale.
    """
    wanted = locale or voice["locale"]
    measured = sorted(tag for tag in voice["clarity"] if is_within(tag, wanted))
    return " ".join(
        f"{tag} {voice['clarity'][tag]:.2f}{'*' * (tag in voice['clearest_in'])}" for tag in measured
    )
