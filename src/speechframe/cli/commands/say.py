"""The command ``speechframe say``, which speaks one text into a file or to standard output."""

import argparse
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from speechframe.cli import declared, docstrings, exits, selection, show
from speechframe.cli.docstrings import make_option_name
from speechframe.errors import SpeechframeError
from speechframe.writing.files import make_safe_stem, open_new

if TYPE_CHECKING:
    from speechframe.client import SyncStream
    from speechframe.spec.speech import Format

STDOUT_NAME = "-"
"""Name of the output file that stands for standard output."""
_MAX_NAME_WORDS = 5
_MAX_NAME_CHARACTERS = 40
"""Largest number of words, and of characters, of the text in the name of a new file."""

_TABLE_ARGUMENTS = frozenset({"words", "spoken", "fill", "pronunciations", "cast", "slot", "lock"})
"""Arguments of `generate` that apply to tables only."""


class _Output(NamedTuple):
    file: Path | None
    facts: dict[str, Any]
    line: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for the parameters of `generate` that apply to a single text, and for the output."""
    generate = declared.load_verb_stub("generate")
    own = [
        replace(p, takes_column=False, help=docstrings.remove_columns_part(p.help))
        for p in declared.read_parameters(generate)
        if not p.names_column and p.name not in _TABLE_ARGUMENTS
    ]
    take = [p for p in declared.read_run_options() if p.name == "take"]
    parser.add_argument("text", metavar="TEXT", help="text, with pause markers such as [pause 1s] if wanted")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="file to write or replace. Its ending sets the format unless --format is given. A name without "
        "an ending gets an ending, and a number if the name is taken. - is standard output. Default: a new "
        "file here, named after the text",
    )
    declared.add_options(parser.add_argument_group("the call"), [*own, *take])
    selection.add_arguments(parser)
    parser.add_argument(
        "--stream",
        action="store_true",
        help="write the audio as it arrives. The default format is WAV, and the default model falcon-2. With "
        "-o - a player can play it at once",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one line of JSON instead of the file's name"
    )


def run(options: argparse.Namespace) -> int:
    """Speak the text, write the audio and print the name of the file. Return the exit code."""
    from speechframe.spec.speech import StreamRequest

    given = declared.collect_values(options)
    target = _check_output_path(options, given)
    taken = {*StreamRequest.model_fields, "voice", "take"} - {"text", "voice_id"}
    if options.stream and (foreign := sorted(given.keys() - taken)):
        options.parser.error(f"--stream cannot be combined with {', '.join(map(make_option_name, foreign))}")
    make = _stream if options.stream else _speak
    try:
        output = make(options, given, target, selection.choose_service(options))
    except BrokenPipeError:
        raise
    except OSError as error:
        show.write_note(f"speechframe say: {error.filename or target} cannot be written: {error.strerror}")
        return exits.ROWS_FAILED
    for warning in output.facts["warnings"]:
        show.write_note(f"warning: {warning}")
    if options.json and output.file is not None:
        show.print_json({"file": str(output.file), **output.facts})
        return exits.OK
    if output.file is not None:
        show.write_line(output.file)
    show.write_note(output.line)
    return exits.OK


def _check_output_path(options: argparse.Namespace, given: dict[str, Any]) -> Path | None:
    """Return the path of the output file. Return None for standard output and for a new file here.

    An unusable path is a usage error. If `given` has no format, the ending of the path sets the format there.
    """
    from speechframe.spec.speech import Format

    if options.output is None or options.output == STDOUT_NAME:
        return None
    target = Path(options.output).expanduser()
    parent = target.parent
    if target.is_dir() or not parent.is_dir() or not os.access(parent, os.W_OK):
        options.parser.error(f"{options.output} cannot be written: name a file in a folder that exists")
    ending = target.suffix[1:].upper()
    endings = [f.value for f in Format]
    if ending and ending not in endings:
        allowed = ", ".join(f".{name.lower()}" for name in endings)
        options.parser.error(f"{options.output} must end with one of {allowed}")
    if ending:
        given.setdefault("format", ending)
    return target


def _speak(options: argparse.Namespace, given: dict[str, Any], target: Path | None, service: Any) -> _Output:
    from speechframe import api

    clip, file = api.say(options.text, **given, service=service), None
    if options.output == STDOUT_NAME:
        sys.stdout.buffer.write(clip.audio)
        sys.stdout.flush()
    else:
        file = clip.save(target or _create_free_file(clip.text, clip.voice_id, clip.format))
    facts = {
        "voice_id": clip.voice_id, "format": clip.format.value, "sample_rate": clip.sample_rate,
        "audio_seconds": round(clip.audio_seconds, 3), "credits": clip.credits,
        "warnings": list(clip.warnings),
        "word_durations": [{"word": w, "start_ms": s, "end_ms": e} for w, s, e in clip.words],
    }  # fmt: skip
    line = (
        f"{clip.voice_id}: {clip.audio_seconds:.1f} s of audio, {show.format_count(clip.credits, 'credit')}"
    )
    return _Output(file, facts, line)


def _stream(options: argparse.Namespace, given: dict[str, Any], target: Path | None, service: Any) -> _Output:
    """Stream the speech, and write each chunk of audio when it arrives."""
    from speechframe import api

    voice = given["voice"]
    with api.stream(options.text, **given, service=service) as stream:
        show.write_note(f"first audio after {stream.first_byte_ms or 0:.0f} ms")
        file = _write_stream(stream, target, options, voice)
    summary = stream.summary
    facts = {
        "voice": voice, "format": summary.format.value, "sample_rate": summary.sample_rate_hz,
        "audio_seconds": round(summary.audio_seconds, 3), "billed_characters": summary.billed_characters,
        "bytes": summary.bytes, "first_byte_ms": round(stream.first_byte_ms or 0, 1),
        "latency_ms": round(summary.latency_ms, 1), "warnings": list(summary.warnings),
        "trace_id": summary.trace_id,
    }  # fmt: skip
    line = (
        f"{voice}: {summary.audio_seconds:.1f} s of audio in {summary.latency_ms / 1000:.1f} s, "
        f"{show.format_count(summary.billed_characters, 'billed character')}, "
        f"{show.format_count(summary.bytes, 'byte')}, trace id {summary.trace_id}"
    )
    return _Output(file, facts, line)


def _write_stream(
    stream: "SyncStream", target: Path | None, options: argparse.Namespace, voice: str
) -> Path | None:
    if options.output == STDOUT_NAME:
        _copy_chunks(stream, sys.stdout.buffer)
        return None
    path = target or _create_free_file(options.text, voice, stream.format)
    if not path.suffix:
        with open_new(path.parent, path.name, f".{stream.format.value.lower()}") as new:
            path = Path(new.name)
    if path.suffix[1:].upper() == stream.format.value:
        with path.open("wb") as file:
            try:
                _copy_chunks(stream, file)
            except SpeechframeError:
                show.write_note(f"{path} contains the audio received so far, {len(stream.audio):,} bytes")
                raise
    # Save the whole audio again. A streamed WAV header lacks the length, or the format must be converted.
    return stream.save(path)


def _copy_chunks(stream: "SyncStream", out: BinaryIO) -> None:
    for chunk in stream:
        out.write(chunk)
        out.flush()


def _create_free_file(text: str, voice: str | None, format: "Format") -> Path:
    """Create an empty file whose name has the first words of the text and the voice. Return its path."""
    name = "-".join(re.findall(r"\w+", text.lower())[:_MAX_NAME_WORDS])[:_MAX_NAME_CHARACTERS].strip("-")
    stem, ending = f"{name or 'clip'}-{voice}", format.value.lower()
    # Create the file at once, so that two commands cannot take the same name.
    with open_new(Path(), make_safe_stem(stem), f".{ending}") as file:
        return Path(file.name)
