"""Try one engine and print the result as JSON: ``python -m speechframe.cli.probe KIND NAME``.

Without arguments, count the voices of each model instead. With ``--models``, list what each engine has.
The commands `doctor` and `models` run this module in a separate process for two reasons. An engine that
crashes or hangs must not stop them, and they must not load libraries under the GPL.
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
from speechframe.spec.locales import get_language
from speechframe.spec.speech import Model

TRIAL_WORD = "Hello"
"""Text that engines speak or translate."""
MODELS_OPTION = "--models"
"""The argument that lists what each engine has."""
_SILENCE_RATE_HZ = 16_000
"""Sample rate, and number of samples, of the second of silence that recognisers get."""


def main() -> None:
    """Try the engine of the command line, or count voices, and print the result as one line of JSON."""
    logging.getLogger("speechframe").setLevel(logging.ERROR)  # all warnings are in the result
    if sys.argv[1:] == [MODELS_OPTION]:
        found = {"engines": [_describe_engine(report) for report in registry.report_engines()]}
    else:
        found = _try_engine(*sys.argv[1:]) if len(sys.argv) > 1 else _count_voices()
    sys.stdout.write(json.dumps(found) + "\n")


def _count_voices() -> dict[str, Any]:
    found: dict[str, Any] = {"left_out": _list_duplicates()}
    for model in Model:
        voices = [entry.voice for entry in registry.build_catalogue(model).values()]
        found[model.value] = {"voices": len(voices), "locales": len({voice.locale for voice in voices})}
    return found


def _describe_engine(report: registry.EngineReport) -> dict[str, Any]:
    """Return the report on an engine with its voices, pairs, licence and size."""
    kind = next(kind for kind in kinds.KINDS if kind.name == report.kind)
    engine = kinds.load_engines(kind).get(report.name)
    voices = registry.list_voices(report.name, engine)[0] if engine and kind is kinds.SPEAKERS else ()
    pairs = registry.list_pairs(report.name, engine)[0] if engine and kind is kinds.TRANSLATORS else ()
    shown = ("voice_id", "locale", "kind", "licence")
    listed = [{name: getattr(voice, name) for name in shown} for voice in voices]
    facts = {"voices": listed, "pairs": [[pair.source, pair.target] for pair in pairs]}
    size_bytes = _sum_file_sizes(engine)
    return asdict(report) | facts | {"licence": getattr(engine, "licence", None), "size_bytes": size_bytes}


def _sum_file_sizes(engine: Any) -> int | None:
    """Return the size of an engine's files in bytes, or None if the engine lists none."""
    try:
        paths = list(engine.files())
        below = (path.rglob("*") if path.is_dir() else (path,) for path in paths)
        files = {path for found in below for path in found if path.is_file()}
        return sum(path.stat().st_size for path in files) if paths else None
    except Exception:  # noqa: BLE001 - an engine may lack the method, or its files
        return None


def _list_duplicates() -> list[str]:
    """Return a sentence for each voice that is left out because another engine has a voice of that name."""
    return list(dict.fromkeys(message for model in Model for message in registry.describe_duplicates(model)))


def _try_engine(kind: str, name: str) -> dict[str, Any]:
    report = registry.report_engines(kind, name)[0]
    found = asdict(report)
    if report.works and kind in _TRIALS:
        try:
            found |= _TRIALS[kind](name)
        except BaseException as error:  # noqa: BLE001 - an engine may fail in any way
            found["problem"] = f"cannot work: {type(error).__name__}: {error}"
    return found


def _try_speaker(name: str) -> dict[str, Any]:
    speaker = registry.load_speakers()[name]
    voices, _ = registry.list_voices(name, speaker)
    if not voices:
        return {}
    voice = next((voice for voice in voices if get_language(voice.locale) == "en"), voices[0])
    # For other languages, speak the name of the voice, which is written in the script of its language.
    text = TRIAL_WORD if get_language(voice.locale) == "en" else voice.display_name
    started = time.perf_counter()
    speech = streaming.speak(speaker, Utterance(text, voice_id=voice.voice_id, locale=voice.locale))
    took_ms = 1000 * (time.perf_counter() - started)
    if not len(speech.samples) or not np.abs(speech.samples).max() > 0:
        return {"problem": f"spoke {text!r}, but the audio is silent"}
    # The peak memory of this process is about the memory of each service process with this engine.
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    spoken = f"{voice.voice_id} spoke {text!r} ({speech.audio_seconds:.1f} s) in {took_ms:.0f} ms"
    return {"tried": f"{spoken}; {memory_mb} MB a worker"}


def _try_translator(name: str) -> dict[str, Any]:
    translator = registry.load_translators()[name]
    pairs, _ = registry.list_pairs(name, translator)
    pair = next((pair for pair in pairs if get_language(pair.source) == "en"), None)
    if pair is None:
        return {}
    (text,) = translator.translate([TRIAL_WORD], pair)
    return {"tried": f"{TRIAL_WORD!r} is {text!r} in {pair.target}"}


def _try_recogniser(name: str) -> dict[str, Any]:
    # Recognising silence loads the model, which is the step that may fail.
    silence = Recording(np.zeros(_SILENCE_RATE_HZ, np.float32), _SILENCE_RATE_HZ)
    text = registry.load_recognisers()[name].recognise(silence).text
    return {"problem": f"recognised {text!r} in silence"} if text else {"tried": "found no words in silence"}


_TRIALS: Mapping[str, Callable[[str], dict[str, Any]]] = MappingProxyType(
    {
        kinds.SPEAKERS.name: _try_speaker,
        kinds.TRANSLATORS.name: _try_translator,
        kinds.RECOGNISERS.name: _try_recogniser,
    }
)
"""Trial of each kind of engine. Voice changers lack a trial, which would need a voice and a recording."""


if __name__ == "__main__":
    main()
