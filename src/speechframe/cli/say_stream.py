"""``speechframe say --stream``: a file, or a player's input, that grows while the rest is being made."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from speechframe.cli import exits, say, selection, show
from speechframe.cli.docstrings import option_name
from speechframe.errors import SpeechframeError
from speechframe.spec.speech import StreamRequest

if TYPE_CHECKING:
    from speechframe.client import SyncStream

_TAKEN = frozenset({*StreamRequest.model_fields, "voice", "take"}) - {"text", "voice_id"}


def run(options: argparse.Namespace, given: dict[str, Any], target: Path | None) -> int:
    """Say it, write what comes as it comes, and say at the end what it was."""
    from speechframe import api

    if foreign := sorted(given.keys() - _TAKEN):
        options.parser.error(f"a stream has no {', '.join(map(option_name, foreign))}")
    with api.stream(options.text, **given, service=selection.service(options)) as stream:
        show.note(f"first audio after {stream.first_byte_ms or 0:.0f} ms")
        try:
            written = _write(stream, target, options, given["voice"])
        except BrokenPipeError:
            raise
        except OSError as error:
            show.note(f"speechframe say: {error.filename or target} cannot be written: {error.strerror}")
            return exits.ROWS_FAILED
    for warning in stream.summary.warnings:
        show.note(f"warning: {warning}")
    _tell(stream, written, given["voice"], as_json=options.json)
    return exits.OK


def _write(stream: "SyncStream", target: Path | None, options: argparse.Namespace, voice: str) -> Path | None:
    if options.output == say.STDOUT:
        _pour(stream, sys.stdout.buffer)
        return None
    path = target or say.free_name(options.text, voice, stream.format)
    if not path.suffix:
        path = path.with_suffix(f".{stream.format.value.lower()}")
    if path.suffix[1:].upper() == stream.format.value:
        with path.open("wb") as file:
            try:
                _pour(stream, file)
            except SpeechframeError:
                show.note(f"{path} holds what came until then, {len(stream.audio):,} bytes")
                raise
    # The header of what has come leaves the length open; of another format, all of it is to be converted.
    return stream.save(path)


def _pour(stream: "SyncStream", out: BinaryIO) -> None:
    for chunk in stream:
        out.write(chunk)
        out.flush()


def _tell(stream: "SyncStream", written: Path | None, voice: str, *, as_json: bool) -> None:
    summary = stream.summary
    if as_json and written is not None:
        facts = {
            "file": str(written), "voice": voice, "format": summary.format.value,
            "sample_rate": summary.sample_rate_hz, "audio_seconds": round(summary.audio_seconds, 3),
            "billed_characters": summary.billed_characters, "bytes": summary.bytes,
            "first_byte_ms": round(stream.first_byte_ms or 0, 1), "latency_ms": round(summary.latency_ms, 1),
            "warnings": list(summary.warnings), "trace_id": summary.trace_id,
        }  # fmt: skip
        print(json.dumps(facts, ensure_ascii=False))
        return
    if written is not None:
        print(written)
    show.note(
        f"{voice}: {summary.audio_seconds:.1f} s of audio in {summary.latency_ms / 1000:.1f} s, "
        f"{summary.billed_characters:,} billed characters, {summary.bytes:,} bytes, "
        f"trace id {summary.trace_id}"
    )
