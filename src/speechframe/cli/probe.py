"""One engine, tried in a process of its own: ``python -m speechframe.cli.probe KIND NAME`` prints JSON.

An engine that crashes or hangs must not take `doctor` with it, and a GPL
library is loaded in no other kind of process. Without a name it counts the
voices of each catalogue.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import numpy as np

from speechframe.engines import kinds, registry
from speechframe.engines.base import EngineVoice, Recording, Speaker, Utterance
from speechframe.spec.locales import language_of
from speechframe.spec.speech import Model

WORD = "Hello"
_SILENCE_HZ = 16_000


def main() -> None:
    """Print what is asked for."""
    said = _tried(*sys.argv[1:]) if len(sys.argv) > 1 else _catalogues()
    sys.stdout.write(json.dumps(said) + "\n")


def _catalogues() -> dict[str, Any]:
    found = {}
    for model in Model:
        voices = [entry.voice for entry in registry.catalogue(model).values()]
        found[model.value] = {"voices": len(voices), "locales": len({voice.locale for voice in voices})}
    return found


def _tried(kind: str, name: str) -> dict[str, Any]:
    report = registry.describe(kind, name)[0]
    said = asdict(report)
    if report.works and kind in _TRIALS:
        try:
            said |= _TRIALS[kind](name)
        except Exception as error:  # noqa: BLE001 - an engine may fail in any way
            said["problem"] = f"cannot work: {type(error).__name__}: {error}"
    return said


def _spoken(name: str) -> dict[str, Any]:
    speaker = registry.speakers()[name]
    if not speaker.voices():
        return {}
    voice = _simple_voice(speaker)
    # The voice's own name is a word in any script an engine may have.
    text = WORD if language_of(voice.locale) == "en" else voice.display_name
    started = time.perf_counter()
    speech = speaker.speak(Utterance(text, voice_id=voice.voice_id, locale=voice.locale))
    took_ms = 1000 * (time.perf_counter() - started)
    if not len(speech.samples) or not np.abs(speech.samples).max() > 0:
        return {"problem": f"said {text!r} and nothing was to be heard"}
    # So much is held by each worker of the service that speaks with this engine.
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    said = f"{voice.voice_id} said {text!r} ({speech.audio_seconds:.1f} s) in {took_ms:.0f} ms"
    return {"tried": f"{said}; {memory_mb} MB a worker"}


def _translated(name: str) -> dict[str, Any]:
    translator = registry.translators()[name]
    pairs = translator.pairs()
    pair = next((pair for pair in pairs if language_of(pair.source) == "en"), None)
    if pair is None:
        return {}
    (text,) = translator.translate([WORD], pair)
    return {"tried": f"{WORD!r} is {text!r} in {pair.target}"}


def _recognised(name: str) -> dict[str, Any]:
    # What costs is loading the model, and that is what may fail.
    silence = Recording(np.zeros(_SILENCE_HZ, np.float32), _SILENCE_HZ)
    text = registry.recognisers()[name].recognise(silence).text
    return {"problem": f"heard {text!r} in silence"} if text else {"tried": "heard nothing in silence"}


_TRIALS: Mapping[str, Callable[[str], dict[str, Any]]] = MappingProxyType(
    {
        kinds.SPEAKERS.name: _spoken,
        kinds.TRANSLATORS.name: _translated,
        kinds.RECOGNISERS.name: _recognised,
    }
)
"""A changer is asked for its version alone: to hear one, it takes a voice and a clip."""


def _simple_voice(speaker: Speaker) -> EngineVoice:
    voices = speaker.voices()
    return next((voice for voice in voices if language_of(voice.locale) == "en"), voices[0])


if __name__ == "__main__":
    main()
