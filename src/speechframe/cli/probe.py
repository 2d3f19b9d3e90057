"""One engine, tried in a process of its own: ``python -m speechframe.cli.probe NAME`` prints a line of JSON.

An engine that crashes or hangs must not take `doctor` with it, and a GPL
library is loaded in no other kind of process. Without a name it counts the
voices of each catalogue.
"""

import json
import sys
import time
from dataclasses import asdict
from typing import Any

import numpy as np

from speechframe.engines import kinds, registry
from speechframe.engines.base import EngineVoice, Speaker, Utterance
from speechframe.spec.locales import language_of
from speechframe.spec.speech import Model

WORD = "Hello"


def main() -> None:
    """Print what is asked for."""
    said = _tried(sys.argv[1]) if len(sys.argv) > 1 else _catalogues()
    sys.stdout.write(json.dumps(said) + "\n")


def _catalogues() -> dict[str, Any]:
    found = {}
    for model in Model:
        voices = [entry.voice for entry in registry.catalogue(model).values()]
        found[model.value] = {"voices": len(voices), "locales": len({voice.locale for voice in voices})}
    return found


def _tried(name: str) -> dict[str, Any]:
    report = next(
        report for report in registry.describe() if (report.kind, report.name) == (kinds.SPEAKERS.name, name)
    )
    said = asdict(report)
    if report.works:
        try:
            said |= _spoken(registry.speakers()[name])
        except Exception as error:  # noqa: BLE001 - an engine may fail in any way
            said["problem"] = f"cannot speak: {type(error).__name__}: {error}"
    return said


def _spoken(speaker: Speaker) -> dict[str, Any]:
    voice = _simple_voice(speaker)
    # The voice's own name is a word in any script an engine may have.
    text = WORD if language_of(voice.locale) == "en" else voice.display_name
    started = time.perf_counter()
    speech = speaker.speak(Utterance(text, voice_id=voice.voice_id, locale=voice.locale))
    took_ms = 1000 * (time.perf_counter() - started)
    if not len(speech.samples) or not np.abs(speech.samples).max() > 0:
        return {"problem": f"said {text!r} and nothing was to be heard"}
    return {
        "voice_id": voice.voice_id,
        "text": text,
        "milliseconds": round(took_ms, 1),
        "audio_seconds": round(speech.audio_seconds, 3),
    }


def _simple_voice(speaker: Speaker) -> EngineVoice:
    voices = speaker.voices()
    return next((voice for voice in voices if language_of(voice.locale) == "en"), voices[0])


if __name__ == "__main__":
    main()
