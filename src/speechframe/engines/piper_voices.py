"""Which Piper voices there are: the packaged one, and those in folders of one's own.

A voice is a model (``en_US-joe-medium.onnx``) and its settings beside it
(``en_US-joe-medium.onnx.json``), as Piper publishes them. Only the settings are
read here: a model is loaded when it first speaks.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speechframe.engines.base import EngineVoice
from speechframe.engines.espeak_locales import LOCALES, READ_EVERYWHERE, EspeakLocale
from speechframe.engines.espeak_voices import espeak_voices
from speechframe.engines.kokoro_voices import is_weights
from speechframe.engines.models import JOE_VOICE, Package
from speechframe.engines.neural_prosody import STYLES
from speechframe.engines.voice_folders import files_in, voice_folders
from speechframe.errors import EngineError
from speechframe.spec.locales import display_name, language_of, normalise
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind

__all__ = [
    "INSTALL",
    "PiperFile",
    "engine_voices",
    "folder_voices",
    "is_installed",
    "piper_voices",
    "reading_locale",
]

INSTALL = "pip install 'speechframe[neural]'"

_MODULES = ("piper", "onnx")
_MODEL_SUFFIX = ".onnx"
_NAMED = re.compile(r"(?P<locale>[a-z]{2,3}_[A-Z]{2})-(?P<name>.+?)(?:-(?P<quality>x_low|low|medium|high))?")
_PHONEME_TYPES = ("espeak", "text")
"""The other types of Piper load models of their own from the web."""

_FOREIGN_SCRIPTS = frozenset({"ARABIC", "CJK", "CYRILLIC", "ETHIOPIC", "HEBREW", "LAO", "TELUGU", "THAI"})


@dataclass(frozen=True, slots=True)
class PiperFile:
    """One voice: its name in the catalogue and its files.

    ``package`` is the one whose hashes the files must have, None for files of one's own.
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
        """The full id."""
        return f"{self.locale}-{self.name}"


def is_installed() -> bool:
    """Return whether what Piper voices need is there; nothing is imported."""
    return all(find_spec(name) is not None for name in _MODULES)


def piper_voices() -> dict[str, PiperFile]:
    """Return every voice by full id, the packaged one first.

    Raises
    ------
    EngineError
        When a folder of ``SPEECHFRAME_VOICES`` is missing or holds a broken voice.
    """
    named: dict[str, PiperFile] = {}
    taken = {voice.name.casefold() for voice in espeak_voices().values()}
    for file in (*_packaged(), *_in_folders()):
        name = next(name for name in _names(file) if name.casefold() not in taken)
        taken.add(name.casefold())
        voice = replace(file, name=name)
        named[voice.voice_id] = voice
    return named


def engine_voices() -> tuple[EngineVoice, ...]:
    """Return every voice as the catalogue shows it; none when Piper is not installed."""
    if not is_installed():
        return ()
    return tuple(_shown(voice) for voice in piper_voices().values())


def folder_voices(folder: Path) -> tuple[PiperFile, ...]:
    """Return the voices in a folder, by file name; folders below it are not looked at.

    Raises
    ------
    EngineError
        No folder, or a voice without usable settings; each is named.
    """
    models = [path for path in files_in(folder) if path.suffix == _MODEL_SUFFIX]
    return tuple(_described(model) for model in models if not is_weights(model))


def reading_locale(locale: str) -> EspeakLocale:
    """Return which scripts are read in a locale: as espeak has it, or as its language has it elsewhere.

    Examples
    --------
    >>> reading_locale("ar-JO").language
    'sem/ar'
    """
    same = (other for other in LOCALES if language_of(other) == language_of(locale))
    known = LOCALES.get(locale) or LOCALES.get(next(same, ""))
    return known or EspeakLocale(language_of(locale), _FOREIGN_SCRIPTS | READ_EVERYWHERE)


def _packaged() -> Iterator[PiperFile]:
    if (folder := JOE_VOICE.folder) is not None:
        model, settings = (folder / name for name in JOE_VOICE.sha256)
        yield PiperFile("en-US", "joe", model, settings, Gender.MALE, "medium", JOE_VOICE)


def _in_folders() -> Iterator[PiperFile]:
    for folder in voice_folders():
        yield from folder_voices(folder)


def _names(file: PiperFile) -> Iterator[str]:
    """Yield what the voice may be called, best first: two voices of one name could not both be asked for."""
    yield file.name
    if file.quality:
        yield f"{file.name}-{file.quality.replace('_', '-')}"
    yield f"{file.name}-piper"
    number = 2
    while True:
        yield f"{file.name}-piper-{number}"
        number += 1


def _described(model: Path) -> PiperFile:
    settings = model.with_name(f"{model.name}.json")
    try:
        facts = settings.stat()
        told = _settings(settings, facts.st_size, facts.st_mtime_ns)
    except OSError as error:
        raise EngineError(
            f"the voice {model} has no settings beside it that can be read ({settings.name}: "
            f"{error.strerror})"
        ) from error
    match = _NAMED.fullmatch(model.stem)
    name = match["name"] if match else model.stem
    locale = _locale(match["locale"] if match else told["code"], settings)
    quality = (match["quality"] or "") if match else ""
    return PiperFile(locale, _as_name(name), model, settings, quality=quality)


def _as_name(name: str) -> str:
    return re.sub(r"[^\w]+|_+", "-", name).strip("-").lower() or "voice"


def _locale(code: str, settings: Path) -> str:
    try:
        locale = normalise(code)
    except ValueError as error:
        raise EngineError(f"the voice settings {settings} are of no language: {error}") from error
    if "-" in locale:
        return locale
    return next((known for known in LOCALES if language_of(known) == locale), locale)


@lru_cache(maxsize=512)
def _settings(path: Path, size_bytes: int, modified_ns: int) -> MappingProxyType[str, Any]:
    """Return what a settings file tells of its voice; size and time let a changed one be read again."""
    del size_bytes, modified_ns
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        speaks = told["espeak"]["voice"]
        facts = {
            "code": told.get("language", {}).get("code") or speaks,
            "sample_rate_hz": int(told["audio"]["sample_rate"]),
            "phoneme_type": told.get("phoneme_type", _PHONEME_TYPES[0]),
            "symbols": len(told["phoneme_id_map"]),
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(
            f"{path} is no settings file of a Piper voice ({type(error).__name__}: {error}); "
            "take the one that came with the model"
        ) from error
    if facts["phoneme_type"] not in _PHONEME_TYPES:
        raise EngineError(
            f"the voice of {path} reads phonemes of the type {facts['phoneme_type']!r}, which is not "
            f"supported; supported are {', '.join(_PHONEME_TYPES)}: take it out of the folder"
        )
    return MappingProxyType(facts)


def _shown(voice: PiperFile) -> EngineVoice:
    who = {Gender.FEMALE: "female voice", Gender.MALE: "male voice"}.get(voice.gender, "voice")
    details = StyleDetails(available_styles=list(STYLES), detail=display_name(voice.locale))
    return EngineVoice(
        voice_id=voice.voice_id,
        display_name=voice.name.replace("-", " ").title(),
        description=f"A neural {who} for {display_name(voice.locale)} (Piper).",
        gender=voice.gender,
        locale=voice.locale,
        supported_locales=MappingProxyType({voice.locale: details}),
        models=frozenset({Model.GEN2}),
        kind=VoiceKind.NEURAL,
    )
