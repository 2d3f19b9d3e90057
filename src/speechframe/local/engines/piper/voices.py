"""List the Piper voices: the packaged voice, and the voices in the user's folders.

A voice is a model (``en_US-joe-medium.onnx``) and its settings in the same folder
(``en_US-joe-medium.onnx.json``), as Piper publishes them. Only the settings and
the outline of the model are read here. A model is loaded when it first speaks.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speechframe.engines.base import EngineVoice
from speechframe.engines.faults import read_file_facts
from speechframe.engines.voice_folders import find_files, list_voice_folders
from speechframe.errors import EngineFault
from speechframe.local.engines.espeak.voices import list_espeak_voices
from speechframe.local.engines.kokoro.voices import PACKAGED_NAMES, is_weights
from speechframe.local.engines.models import JOE_VOICE, Package
from speechframe.local.engines.neural.onnx_graph import check_whole
from speechframe.local.engines.neural.prosody import STYLES
from speechframe.local.engines.reading.locales import COMMON_SCRIPTS, LOCALES, EspeakLocale
from speechframe.spec.locales import get_display_name, get_language, normalise
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind

INSTALL_COMMAND = "pip install 'speechframe[neural]'"
"""The command for error messages that installs Piper."""

_JOE_LICENCE = "CC0-1.0"
_JOE_OUTPUT_TERMS = (
    "By its model card, the recordings of the voice are CC0, and the model was fine-tuned from Piper's voice "
    "lessac. The card states no terms for lessac, or for the audio."
)
_JOE_BANDWIDTH_HZ = 11_000
""":attr:`EngineVoice.bandwidth_hz` of the voice joe."""

_REQUIRED_MODULES = ("piper", "onnx")
"""Modules that Piper voices need."""
_MODEL_SUFFIX = ".onnx"
# The name of a published model.
_NAME_PATTERN = re.compile(
    r"(?P<locale>[a-z]{2,3}_[A-Z]{2})-(?P<name>.+?)(?:-(?P<quality>x_low|low|medium|high))?"
)
_PHONEME_TYPES = ("espeak", "text")
"""Supported types of phonemes. For other types Piper would download further models."""
_REQUIRED_SYMBOLS = ("_", "^", "$")
"""Symbols for padding, beginning and end, which every model must have."""
_ALLOWED_RATES_HZ = range(4000, 192_001)
"""Allowed sample rates."""
_MAX_SETTINGS_BYTES = 1 << 24
"""Size of the largest settings file. Published settings files have some 7 KB."""

# Scripts of a language that espeak does not speak, in addition to those in READ_EVERYWHERE.
_FOREIGN_SCRIPTS = frozenset({"ARABIC", "CJK", "CYRILLIC", "ETHIOPIC", "HEBREW", "LAO", "TELUGU", "THAI"})


@dataclass(frozen=True, slots=True)
class PiperFile:
    """A voice with its name in the catalogue and its files.

    ``package`` contains the expected hashes of the files. It is None for files of the user.
    """

    locale: str
    name: str
    model: Path
    settings: Path
    gender: Gender = Gender.NON_BINARY
    quality: str = ""
    package: Package | None = None

    @property
    def voice_id(self) -> str:
        """The full id, such as ``en-US-joe``."""
        return f"{self.locale}-{self.name}"


def is_installed() -> bool:
    """Return True if the modules that Piper voices need are installed. Nothing is imported."""
    return all(find_spec(name) is not None for name in _REQUIRED_MODULES)


def list_piper_voices() -> dict[str, PiperFile]:
    """Return the usable voices by full id, the packaged voice first."""
    named: dict[str, PiperFile] = {}
    taken = {voice.name.casefold() for voice in list_espeak_voices().values()} | PACKAGED_NAMES
    for file in (*_find_packaged(), *find_folder_voices(list_voice_folders())[0]):
        name = next(name for name in _propose_names(file) if name.casefold() not in taken)
        taken.add(name.casefold())
        voice = replace(file, name=name)
        named[voice.voice_id] = voice
    return named


def list_engine_voices() -> tuple[EngineVoice, ...]:
    """Return the catalogue entry of each voice. The tuple is empty if Piper is not installed."""
    if not is_installed():
        return ()
    return tuple(_build_entry(voice) for voice in list_piper_voices().values())


def list_left_out() -> tuple[str, ...]:
    """Return a sentence for each file that :func:`list_engine_voices` leaves out."""
    voices, sentences = find_folder_voices(list_voice_folders())
    broken = [JOE_VOICE.problem] if JOE_VOICE.folder is not None and JOE_VOICE.problem else []
    unused = []
    if voices and not is_installed():
        folders = ", ".join(sorted({str(voice.model.parent) for voice in voices}))
        unused.append(f"the {len(voices)} Piper voices in {folders} need Piper: {INSTALL_COMMAND}")
    return (*sentences, *broken, *unused)


def find_folder_voices(folders: Iterable[Path]) -> tuple[tuple[PiperFile, ...], tuple[str, ...]]:
    """Return the voices in folders, in order, and a sentence for each file that cannot be used."""
    models, sentences = find_files(
        folders, lambda path: path.suffix == _MODEL_SUFFIX and not is_weights(path)
    )
    voices, left_out = [], list(sentences)
    for model in models:
        try:
            voices.append(_describe_voice(model))
        except EngineFault as error:
            left_out.append(str(error))
    return tuple(voices), tuple(left_out)


def choose_reading_locale(locale: str) -> EspeakLocale:
    """Return how espeak reads a locale, or else another locale of the same language.

    If espeak does not speak the language, all scripts count as readable.

    Examples
    --------
    >>> choose_reading_locale("ar-JO").language
    'sem/ar'
    """
    same = (other for other in LOCALES if get_language(other) == get_language(locale))
    known = LOCALES.get(locale) or LOCALES.get(next(same, ""))
    return known or EspeakLocale(get_language(locale), _FOREIGN_SCRIPTS | COMMON_SCRIPTS)


def _find_packaged() -> Iterator[PiperFile]:
    if JOE_VOICE.problem is None and (folder := JOE_VOICE.folder) is not None:
        model, settings = (folder / name for name in JOE_VOICE.sha256)
        yield PiperFile("en-US", "joe", model, settings, Gender.MALE, "medium", JOE_VOICE)


def _propose_names(file: PiperFile) -> Iterator[str]:
    """Yield possible names of a voice without end, the best first. The first unused name is taken."""
    yield file.name
    if file.quality:
        yield f"{file.name}-{file.quality.replace('_', '-')}"
    yield f"{file.name}-piper"
    number = 2
    while True:
        yield f"{file.name}-piper-{number}"
        number += 1


def _describe_voice(model: Path) -> PiperFile:
    """Return the voice of a model file. Raise EngineFault if the file or its settings cannot be used."""
    settings = model.with_name(f"{model.name}.json")
    try:
        facts = read_file_facts(settings)
    except EngineFault as error:
        raise EngineFault(f"the voice {model} has no settings beside it that can be read: {error}") from None
    settings_facts = _read_settings(settings, facts.st_size, facts.st_mtime_ns)
    if isinstance(settings_facts, str):
        raise EngineFault(settings_facts)
    check_whole(model)
    match = _NAME_PATTERN.fullmatch(model.stem)
    name = match["name"] if match else model.stem
    locale = _find_locale(match["locale"] if match else settings_facts["code"], settings)
    quality = (match["quality"] or "") if match else ""
    return PiperFile(locale, _normalise_name(name), model, settings, quality=quality)


def _normalise_name(name: str) -> str:
    return re.sub(r"[^\w]+|_+", "-", name).strip("-").lower() or "voice"


def _find_locale(code: str, settings: Path) -> str:
    try:
        locale = normalise(code)
    except ValueError as error:
        raise EngineFault(f"the voice settings {settings} are of no language: {error}") from error
    if "-" in locale:
        return locale
    return next((known for known in LOCALES if get_language(known) == locale), locale)


@lru_cache(maxsize=512)
def _read_settings(path: Path, size_bytes: int, modified_ns: int) -> MappingProxyType[str, Any] | str:
    """Return the facts in a settings file, or the reason why the file cannot be used.

    Size and time are part of the cache key, so a changed file is read again.
    """
    del modified_ns
    if size_bytes > _MAX_SETTINGS_BYTES:
        return f"{path} has {size_bytes:,} bytes, too many for a settings file of a Piper voice"
    try:
        facts = _check_settings(json.loads(path.read_text(encoding="utf-8")))
    except Exception as error:  # noqa: BLE001 - JSON of another shape raises errors of many types
        return (
            f"{path} is not a settings file of a Piper voice ({type(error).__name__}: {error}); "
            "take the one that came with the model"
        )
    if facts["phoneme_type"] not in _PHONEME_TYPES:
        return (
            f"the voice of {path} reads phonemes of the type {facts['phoneme_type']!r}, which is not "
            f"supported; supported are {', '.join(_PHONEME_TYPES)}: take it out of the folder"
        )
    return MappingProxyType(facts)


def _check_settings(settings: Any) -> dict[str, Any]:
    """Return checked facts from parsed settings. Raise an error of any type if the settings are invalid."""
    speaks = settings["espeak"]["voice"]
    numbers = settings["phoneme_id_map"]
    rate_hz = int(settings["audio"]["sample_rate"])
    if rate_hz not in _ALLOWED_RATES_HZ:
        raise ValueError(
            f"sample_rate is {rate_hz}, allowed: {_ALLOWED_RATES_HZ[0]} to {_ALLOWED_RATES_HZ[-1]}"
        )
    if missing := [sign for sign in _REQUIRED_SYMBOLS if sign not in numbers]:
        raise ValueError(f"phoneme_id_map has no {', '.join(missing)}")
    if not all(
        isinstance(ids, list) and all(isinstance(each, int) for each in ids) for ids in numbers.values()
    ):
        raise ValueError("phoneme_id_map contains other values than lists of integers")
    int(settings["num_symbols"]), int(settings["num_speakers"]), int(settings.get("default_speaker_id", 0))
    if int(settings.get("hop_length", 1)) < 1:
        raise ValueError("hop_length must be at least 1")
    for value in settings.get("inference", {}).values():
        float(value)
    code = settings.get("language", {}).get("code") or speaks
    if not isinstance(code, str) or not isinstance(speaks, str):
        raise TypeError("the language is not text")
    return {
        "code": code,
        "sample_rate_hz": rate_hz,
        "phoneme_type": settings.get("phoneme_type", _PHONEME_TYPES[0]),
        "symbols": len(numbers),
    }


def _build_entry(voice: PiperFile) -> EngineVoice:
    who = {Gender.FEMALE: "female voice", Gender.MALE: "male voice"}.get(voice.gender, "voice")
    details = StyleDetails(available_styles=list(STYLES), detail=get_display_name(voice.locale))
    return EngineVoice(
        voice_id=voice.voice_id,
        display_name=voice.name.replace("-", " ").title(),
        description=f"A neural {who} for {get_display_name(voice.locale)} (Piper).",
        gender=voice.gender,
        locale=voice.locale,
        supported_locales=MappingProxyType({voice.locale: details}),
        models=frozenset({Model.GEN2}),
        kind=VoiceKind.NEURAL,
        licence=_JOE_LICENCE if voice.package is JOE_VOICE else None,
        output_terms=_JOE_OUTPUT_TERMS if voice.package is JOE_VOICE else None,
        bandwidth_hz=_JOE_BANDWIDTH_HZ if voice.package is JOE_VOICE else None,
    )
