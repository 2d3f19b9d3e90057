"""``speechframe voices``: who can speak."""

import argparse

from speechframe.cli import exits, selection, show
from speechframe.spec.speech import Model

_SHOWN = ("voice_id", "gender", "locale", "styles")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--model",
        choices=[model.value for model in Model],
        default=Model.GEN2.value,
        help="the catalogue (%(default)s)",
    )
    parser.add_argument("--locale", help="only voices that speak this locale (fr-FR) or language (fr)")
    parser.add_argument("--json", action="store_true", help="print one line of JSON: a list of voices")
    selection.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Print the voices."""
    from speechframe import api

    found = api.voices(model=options.model, locale=options.locale, service=selection.service(options))
    if options.json:
        print(found.to_json(orient="records", force_ascii=False))
        return exits.OK
    voices = found.to_dict(orient="records")
    rows = [
        [*(v[name] for name in _SHOWN), [tag for tag in v["supported_locales"] if tag != v["locale"]]]
        for v in voices
    ]
    print(show.table([*_SHOWN, "speaks too"], rows, width=show.terminal_width()))
    return exits.OK
