"""The command ``speechframe export``, which publishes runs as a dataset."""

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from speechframe.cli import exits, selection, show

if TYPE_CHECKING:
    import pandas as pd

_FORMATS = "huggingface, files, ljspeech, nemo, lhotse, webdataset, srt, vtt, textgrid"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of runs with audio")
    add("--out", required=True, metavar="FOLDER", help="the dataset: a new folder or an earlier export")
    add(
        "--format",
        action="append",
        dest="formats",
        metavar="NAME",
        help=f"repeatable: {_FORMATS} (default: huggingface)",
    )
    add("--name", default="{row_id}", metavar="TEMPLATE", help="path of a clip (default: %(default)s)")
    add(
        "--split",
        type=_parse_shares,
        metavar="SHARES",
        help="shares of splits, such as train=0.9,valid=0.05,test=0.05",
    )
    add(
        "--group",
        action="append",
        default=[],
        metavar="COLUMN",
        help="with --split: equal values stay together",
    )
    add("--stratum", action="append", default=[], metavar="COLUMN", help="with --split: spread its values")
    add("--seed", type=int, default=0, help="with --split: the seed (default: %(default)s)")
    add(
        "--only",
        choices=["kept", "good"],
        default="kept",
        help="good measures all clips, and leaves out those that are not good (default: %(default)s)",
    )
    add("--sample-rate", type=int, metavar="HZ", help="sample rate of the clips (default: as stored)")
    add(
        "--audio-format",
        default="WAV",
        choices=["WAV", "FLAC"],
        help="format of the clips (default: %(default)s)",
    )
    add(
        "--card",
        action="append",
        default=[],
        type=_parse_entry,
        metavar="NAME=TEXT",
        help="repeatable: title, description, text_source, text_licence, licence",
    )
    selection.add_executor(parser)
    add("--json", action="store_true", help="print the report as one line of JSON")
    selection.add_arguments(parser)


def _parse_shares(words: str) -> dict[str, float]:
    try:
        return {name: float(share) for name, share in map(_parse_entry, words.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{words!r} must be like train=0.9,test=0.1") from None


def _parse_entry(words: str) -> tuple[str, str]:
    name, sign, value = words.partition("=")
    if not sign:
        raise argparse.ArgumentTypeError(f"{words!r} must be like NAME=TEXT")
    return name.strip(), value.strip()


def run(options: argparse.Namespace) -> int:
    """Write the dataset and print its report."""
    from speechframe import api
    from speechframe.exports.quality import quality
    from speechframe.exports.split import split
    from speechframe.processes.executors import connect_executor

    if (options.group or options.stratum) and not options.split:
        options.parser.error("--group and --stratum need --split")
    given: Any = options.runs[0] if len(options.runs) == 1 else options.runs
    has_bar = not options.json and sys.stderr.isatty()
    with connect_executor(options.executor) as executor:
        measured: pd.DataFrame | None = None
        if options.only == "good":
            measured = quality(given, progress=has_bar, executor=executor)
        chosen: dict[str, Any] = {"only": options.only, "quality": measured}
        parts: pd.Series | None = None
        if options.split:
            drawn = {"groups": options.group, "strata": options.stratum, "seed": options.seed}
            parts = split(given, options.split, **drawn, **chosen)
        report = api.export(
            given,
            options.out,
            name=options.name,
            formats=options.formats or ["huggingface"],
            split=parts,
            sample_rate=options.sample_rate,
            audio_format=options.audio_format,
            card=dict(options.card),
            progress=has_bar,
            service=selection.choose_service(options),
            executor=executor,
            **chosen,
        )
    if options.json:
        left_out = report.left_out.to_dict(orient="records")
        facts = {name: value for name, value in asdict(report).items() if name != "left_out"}
        show.print_json({**facts, "path": str(report.path), "left_out": left_out, "exit_code": exits.OK})
    else:
        show.write_line(report.summary())
    return exits.OK
