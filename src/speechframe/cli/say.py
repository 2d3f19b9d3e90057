"""``speechframe say``: one line of text into one file of audio."""

import argparse
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speechframe.cli import declared, docstrings, exits, selection, show
from speechframe.spec.speech import Format

if TYPE_CHECKING:
    from speechframe.audio.clip import Clip

STDOUT = "-"
_NAME_WORDS = 5
_NAME_CHARACTERS = 40
_TRIES = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options: those of `generate` that concern one text, as constants."""
    from speechframe.cli.verb import verb_of

    generate, data = verb_of("generate")
    own = [
        replace(p, takes_column=False, help=docstrings.without_columns(p.help))
        for p in declared.parameters(generate, data)
        if not p.is_data
    ]
    take = [p for p in declared.run_options() if p.name == "take"]
    parser.add_argument("text", metavar="TEXT", help="what to say; may hold pause markers such as [pause 1s]")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write; its ending says the format unless --format does; - is standard output "
        "(default: a new file here, named after the text)",
    )
    declared.add(parser.add_argument_group("how it is said"), [*own, *take])
    selection.add_arguments(parser)
    parser.add_argument(
        "--stream",
        action="store_true",
        help="write the audio while it is still being made (WAV and falcon-2 unless --format and --model say "
        "otherwise); with -o - for a player to read",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one line of JSON instead of the file's name"
    )


def run(options: argparse.Namespace) -> int:
    """Say it, write the file, print its name."""
    from speechframe import api

    given = declared.values(options)
    target = _target(options, given)
    if options.stream:
        from speechframe.cli import say_stream

        return say_stream.run(options, given, target)
    service = selection.service(options)
    clip = api.say(options.text, **given, service=service)
    try:
        written = _write(clip, target, options)
    except OSError as error:
        show.note(f"speechframe say: {error.filename or target} cannot be written: {error.strerror}")
        return exits.ROWS_FAILED
    for warning in clip.warnings:
        show.note(f"warning: {warning}")
    _tell(clip, written, options)
    return exits.OK


def _target(options: argparse.Namespace, given: dict[str, Any]) -> Path | None:
    """Return where to write, checked before anything is spent; take the format from the ending."""
    if options.output is None or options.output == STDOUT:
        return None
    target = Path(options.output).expanduser()
    parent = target.parent
    if target.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK):
        options.parser.error(f"{options.output} cannot be written: name a file in a folder that exists")
    ending = target.suffix[1:].upper()
    endings = [f.value for f in Format]
    if ending and ending not in endings:
        allowed = ", ".join(f".{name.lower()}" for name in endings)
        options.parser.error(f"{options.output} has no ending of an audio file: {allowed}")
    if ending:
        given.setdefault("format", ending)
    return target


def _write(clip: "Clip", target: Path | None, options: argparse.Namespace) -> Path | None:
    if options.output == STDOUT:
        sys.stdout.buffer.write(clip.audio)
        sys.stdout.flush()
        return None
    return clip.save(target or free_name(clip.text, clip.voice_id, clip.format))


def free_name(text: str, voice: str | None, format: Format) -> Path:
    """Return a file name that tells what is said and by whom, and is not taken."""
    words = "-".join(re.findall(r"\w+", text.lower())[:_NAME_WORDS])[:_NAME_CHARACTERS].strip("-")
    stem, ending = f"{words or 'clip'}-{voice}", format.value.lower()
    for number in range(1, _TRIES):
        path = Path(f"{stem}.{ending}" if number == 1 else f"{stem}-{number}.{ending}")
        try:
            # Made at once: two commands at a time must not take the same name.
            path.touch(exist_ok=False)
        except FileExistsError:
            continue
        return path
    raise OSError(0, "too many clips of this text are here already", stem)


def _tell(clip: "Clip", written: Path | None, options: argparse.Namespace) -> None:
    if options.json and written is not None:
        facts = {
            "file": str(written), "voice_id": clip.voice_id, "format": clip.format.value,
            "sample_rate": clip.sample_rate, "audio_seconds": round(clip.audio_seconds, 3),
            "credits": clip.credits, "warnings": list(clip.warnings),
            "word_durations": [{"word": w, "start_ms": s, "end_ms": e} for w, s, e in clip.words],
        }  # fmt: skip
        print(json.dumps(facts, ensure_ascii=False))
        return
    if written is not None:
        print(written)
    show.note(f"{clip.voice_id}: {clip.audio_seconds:.1f} s of audio, {clip.credits:,.10g} credits")
