"""Try one engine and print the result as JSON, as ``python -m speechframe.cli.probe KIND NAME``.

The trial needs its own process, because an engine that crashes or hangs must not end `doctor`, and `doctor`
must not load GPL libraries. Without a name this program counts the voices of each catalogue. With
``--models`` it lists what each engine has.
"""

import json
import logging
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import numpy as np

from speechframe.engines import kinds, registry, streaming
from speechframe.engines.base import Recording, Utterance
from speechframe.spec.locales import language_of
from speechframe.spec.speech import Model

WORD = "Hello"
MODELS = "--models"
_SILENCE_HZ = 16_000


def main() -> None:
    """Print the result as JSON."""
    logging.getLogger("speechframe").setLevel(logging.ERROR)  # all warnings are in the result
    if sys.argv[1:] == [MODELS]:
        found = {"engines": [_describe(report) for report in registry.describe()]}
    else:
        found = _try_engine(*sys.argv[1:]) if len(sys.argv) > 1 else _count_voices()
    sys.stdout.write(json.dumps(found) + "\n")


def _count_voices() -> dict[str, Any]:
    found: dict[str, Any] = {"left_out": _duplicates()}
    for model in Model:
        voices = [entry.voice for entry in registry.catalogue(model).values()]
        found[model.value] = {"voices": len(voices), "locales": len({voice.locale for voice in voices})}
    return found


def _describe(report: registry.EngineReport) -> dict[str, Any]:
    """Return the report on an engine with its voices, pairs, licence and size."""
    kind = next(kind for kind in kinds.KINDS if kind.name == report.kind)
    engine = kinds.found(kind).get(report.name)
    voices = registry.voices_of(report.name, engine)[0] if engine and kind is kinds.SPEAKERS else ()
    pairs = registry.pairs_of(report.name, engine)[0] if engine and kind is kinds.TRANSLATORS else ()
    shown = ("voice_id", "locale", "kind", "licence")
    listed = [{name: getattr(voice, name) for name in shown} for voice in voices]
    facts = {"voices": listed, "pairs": [[pair.source, pair.target] for pair in pairs]}
    return asdict(report) | facts | {"licence": getattr(engine, "licence", None), "size_bytes": _size(engine)}


def _size(engine: Any) -> int | None:
    """Return the size of an engine's files; None if the engine lists none."""
    try:
        paths = list(engine.files())
        below = (path.rglob("*") if path.is_dir() else (path,) for path in paths)
        files = {path for found in below for path in found if path.is_file()}
        return sum(path.stat().st_size for path in files) if paths else None
    except Exception:  # noqa: BLE001 - an engine may lack the method, or its files
        return None


def _duplicates() -> list[str]:
    """Return a sentence for each voice whose name another engine has. Engines report all other faults."""
    return list(dict.fromkeys(words for model in Model for words in registry.duplicates(model)))


def _try_engine(kind: str, name: str) -> dict[str, Any]:
    report = registry.describe(kind, name)[0]
    found = asdict(report)
    if report.works and kind in _TRIALS:
        try:
            found |= _TRIALS[kind](name)
        except BaseException as error:  # noqa: BLE001 - an engine may fail in any way
            found["problem"] = f"cannot work: {type(error).__name__}: {error}"
    return found


def _speak(name: str) -> dict[str, Any]:
    speaker = registry.speakers()[name]
    voices, _ = registry.voices_of(name, speaker)
    if not voices:
        return {}
    voice = next((voice for voice in voices if language_of(voice.locale) == "en"), voices[0])
    # The voice's own name is a word in the script of its language.
    text = WORD if language_of(voice.locale) == "en" else voice.display_name
    started = time.perf_counter()
    speech = streaming.speak(speaker, Utterance(text, voice_id=voice.voice_id, locale=voice.locale))
    took_ms = 1000 * (time.perf_counter() - started)
    if not len(speech.samples) or not np.abs(speech.samples).max() > 0:
        return {"problem": f"spoke {text!r}, but the audio is silent"}
    # Each worker of the service that speaks with this engine holds so much memory.
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    spoken = f"{voice.voice_id} spoke {text!r} ({speech.audio_seconds:.1f} s) in {took_ms:.0f} ms"
    return {"tried": f"{spoken}; {memory_mb} MB a worker"}


def _translate(name: str) -> dict[str, Any]:
    translator = registry.translators()[name]
    pairs, _ = registry.pairs_of(name, translator)
    pair = next((pair for pair in pairs if language_of(pair.source) == "en"), None)
    if pair is None:
        return {}
    (text,) = translator.translate([WORD], pair)
    return {"tried": f"{WORD!r} is {text!r} in {pair.target}"}


def _recognise(name: str) -> dict[str, Any]:
    # Loading the model takes most of the time, and may fail.
    silence = Recording(np.zeros(_SILENCE_HZ, np.float32), _SILENCE_HZ)
    text = registry.recognisers()[name].recognise(silence).text
    return {"problem": f"recognised {text!r} in silence"} if text else {"tried": "found no words in silence"}


_TRIALS: Mapping[str, Callable[[str], dict[str, Any]]] = MappingProxyType(
    {
        kinds.SPEAKERS.name: _speak,
        kinds.TRANSLATORS.name: _translate,
        kinds.RECOGNISERS.name: _recognise,
    }
)
"""The trials. Only the version of a changer is read, because a change needs a voice and a clip."""


if __name__ == "__main__":
    main()
