"""Which Kokoro voices there are: mixtures of packaged styles, and the style files of folders of one's own.

A voice of Kokoro is a style: 510 vectors beside weights that all voices share.
So a voice costs half a megabyte, mixtures of styles are voices too, and each
speaks every language that Kokoro was trained on.
"""

import math
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from speechframe.engines import japanese
from speechframe.engines.base import EngineVoice
from speechframe.engines.kokoro_model import STYLE_SHAPE
from speechframe.engines.models import KOKORO_STYLES, KOKORO_WEIGHTS
from speechframe.engines.neural_prosody import STYLES
from speechframe.engines.voice_folders import files_in, voice_folders
from speechframe.errors import EngineError
from speechframe.spec.locales import display_name
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind

__all__ = [
    "INSTALL",
    "KokoroStyle",
    "check_weights",
    "engine_voices",
    "files_of",
    "is_installed",
    "is_weights",
    "kokoro_voices",
    "weights",
]

INSTALL = "pip install 'speechframe[kokoro]'"

Array = NDArray[np.float32]

_MODULES = ("onnx", "onnxruntime", "espeakng_loader")
_LOCALES = ("en-US", "en-GB", "es-ES", "es-MX", "pt-BR", "it-IT", "hi-IN", "ja-JP")
"""What every voice speaks."""
_LANGUAGES = ("en-US", "en-GB", "es-ES", "fr-FR", "hi-IN", "it-IT", "ja-JP", "pt-BR")
_OWN_LOCALES = MappingProxyType(dict(zip("abefhijp", _LANGUAGES, strict=True)))
"""The locale of a public style by the first letter of its name; ``z``, Chinese, needs other phonemes."""
_GENDERS = MappingProxyType({"f": Gender.FEMALE, "m": Gender.MALE})
_PUBLIC_NAME = re.compile(r"(?P<language>[a-z])(?P<gender>[fm])_(?P<name>\w+)")
_STYLE_SUFFIXES = frozenset({".npz", ".bin"})
_LICENCE = "Apache-2.0"
_WEIGHTS = "kokoro*.onnx"


@dataclass(frozen=True, slots=True)
class KokoroStyle:
    """One voice: its name in the catalogue, and what of which styles it is made of.

    ``parts`` are shares of styles by name; ``file`` holds the styles, None for the packaged ones. ``lufs`` is
    how loud the model makes the voice (the median of lines of five languages), None when nobody measured it.
    """

    locale: str
    name: str
    gender: Gender
    sounds: str
    parts: tuple[tuple[str, float], ...]
    file: Path | None = None
    model: Model = Model.GEN2
    lufs: float | None = None

    @property
    def voice_id(self) -> str:
        """The full id."""
        return f"{self.locale}-{self.name}"

    @property
    def supported_locales(self) -> tuple[str, ...]:
        """What it speaks, its own locale first; Japanese only from readings: the model knows kana alone."""
        spoken = dict.fromkeys((self.locale, *_LOCALES))
        return tuple(locale for locale in spoken if locale != "ja-JP" or japanese.is_installed())

    def vectors(self) -> Array:
        """Return its style vectors, :data:`STYLE_SHAPE`."""
        file = self.file or KOKORO_STYLES.file(next(iter(KOKORO_STYLES.sha256)))
        facts = file.stat()
        styles = _styles(file, facts.st_size, facts.st_mtime_ns)
        mixed: Array = np.sum([share * styles[name] for name, share in self.parts], axis=0, dtype=np.float32)
        return mixed


_F, _M = Gender.FEMALE, Gender.MALE
_FALCON = Model.FALCON_2
_KUMO, _GON, _TEBUKURO = "jm_kumo", "jf_gongitsune", "jf_tebukuro"
_PACKAGED = (
    KokoroStyle("pt-BR", "joaquim", _M, "calm", ((_KUMO, 1.0),), lufs=-20.3),
    KokoroStyle("pt-BR", "helena", _F, "clear", ((_KUMO, 0.5), (_GON, 0.5)), lufs=-20.2),
    KokoroStyle("ja-JP", "chihiro", _F, "young", ((_GON, 1.0),), lufs=-20.5),
    KokoroStyle("en-US", "abel", _M, "firm", ((_KUMO, 1.25), (_TEBUKURO, -0.25)), model=_FALCON, lufs=-21.1),
    KokoroStyle("en-US", "june", _F, "soft", ((_GON, 0.6), (_TEBUKURO, 0.4)), model=_FALCON, lufs=-20.9),
)
"""Made of the packaged Japanese styles; the shares are those that a recogniser understands best."""


def is_installed() -> bool:
    """Return whether what Kokoro needs beside its weights is there; nothing is imported."""
    return all(find_spec(name) is not None for name in _MODULES)


def weights() -> tuple[Path, ...]:
    """Return the files that are the weights when joined; none when there are none. Nothing is read.

    Those of a folder of ``SPEECHFRAME_VOICES`` go before those of a package.
    """
    for folder in voice_folders():
        if found := [path for path in files_in(folder) if is_weights(path)]:
            return (found[0],)
    if any(package.folder is None for package in KOKORO_WEIGHTS):
        return ()
    return tuple(Path(package.folder or "") / name for package in KOKORO_WEIGHTS for name in package.sha256)


def check_weights(files: tuple[Path, ...]) -> None:
    """Raise EngineError when the files of a package are not the ones that they should be."""
    if files and is_weights(files[0]):
        return
    for package in KOKORO_WEIGHTS:
        for name in package.sha256:
            package.file(name)


def _is_style(path: Path) -> bool:
    return path.suffix in _STYLE_SUFFIXES


def is_weights(path: Path) -> bool:
    """Return whether a file is Kokoro's weights, by its name."""
    return path.match(_WEIGHTS)


def files_of(folder: Path) -> list[Path]:
    """Return the weights and style files of a folder; raises EngineError for a style file that is broken."""
    found = files_in(folder)
    for path in filter(_is_style, found):
        _styles_of(path)
    return [path for path in found if _is_style(path) or is_weights(path)]


def kokoro_voices() -> dict[str, KokoroStyle]:
    """Return every voice by full id, the packaged ones first.

    Raises
    ------
    EngineError
        When a folder of ``SPEECHFRAME_VOICES`` is missing or holds a broken style file.
    """
    packaged = _PACKAGED if KOKORO_STYLES.folder is not None else ()
    files = (path for folder in voice_folders() for path in files_in(folder))
    own = (style for path in filter(_is_style, files) for style in _styles_of(path))
    styles = (style for style in (*packaged, *own) if style.locale in style.supported_locales)
    return {style.voice_id: style for style in styles}


def engine_voices() -> tuple[EngineVoice, ...]:
    """Return every voice as the catalogue shows it; none when Kokoro or its weights are not there."""
    if not is_installed() or not weights():
        return ()
    return tuple(_shown(style) for style in kokoro_voices().values())


def _styles_of(path: Path) -> tuple[KokoroStyle, ...]:
    """Return the voices of a style file: one for each name in it, called as it is called there.

    Raises
    ------
    EngineError
        A file that is none, a style of another shape, or a name that says no language.
    """
    try:
        facts = path.stat()
    except OSError as error:
        raise EngineError(f"the style file {path} cannot be read: {error.strerror}") from error
    return tuple(_named(name, path) for name in _styles(path, facts.st_size, facts.st_mtime_ns))


def _named(name: str, path: Path) -> KokoroStyle:
    public = _PUBLIC_NAME.fullmatch(name)
    locale = _OWN_LOCALES.get(public["language"]) if public else None
    if public is None or locale is None:
        letters = ", ".join(f"{letter} {locale}" for letter, locale in _OWN_LOCALES.items())
        raise EngineError(
            f"the style {name!r} of {path} does not say whose voice it is: name it as the public styles, "
            f"such as af_heart, with the letter of its language ({letters}) and f or m"
        )
    gender = _GENDERS[public["gender"]]
    return KokoroStyle(locale, name.replace("_", "-"), gender, "", ((name, 1.0),), path)


@lru_cache(maxsize=16)
def _styles(path: Path, size_bytes: int, modified_ns: int) -> Mapping[str, Array]:
    """Return the styles of a file by name; size and time let a changed one be read again."""
    del modified_ns
    try:
        if size_bytes == math.prod(STYLE_SHAPE) * np.dtype(np.float32).itemsize:
            found = {path.stem: np.fromfile(path, "<f4")}
        else:
            with np.load(path) as stored:
                found = {name: np.asarray(stored[name], np.float32) for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise EngineError(f"{path} holds no styles of Kokoro that can be read: {error}") from error
    for name, vectors in found.items():
        if vectors.size != math.prod(STYLE_SHAPE) or not np.isfinite(vectors).all():
            raise EngineError(
                f"the style {name!r} of {path} has the shape {vectors.shape}; a style of Kokoro has "
                f"{STYLE_SHAPE[0]} vectors of {STYLE_SHAPE[1]} finite numbers"
            )
    return MappingProxyType({name: vectors.reshape(STYLE_SHAPE) for name, vectors in found.items()})


def _shown(style: KokoroStyle) -> EngineVoice:
    who = f"{style.gender.value.lower()} voice"
    details = {
        locale: StyleDetails(available_styles=list(STYLES), detail=display_name(locale))
        for locale in style.supported_locales
    }
    sounds = f", {style.sounds}," if style.sounds else ""
    return EngineVoice(
        voice_id=style.voice_id,
        display_name=style.name.replace("-", " ").title(),
        description=f"A neural {who}{sounds} for {display_name(style.locale)} and others (Kokoro).",
        gender=style.gender,
        locale=style.locale,
        supported_locales=MappingProxyType(details),
        models=frozenset({style.model}),
        kind=VoiceKind.NEURAL,
        licence=_LICENCE if style.file is None else None,
    )
