"""The list of Kokoro voices: native styles, mixtures of packaged styles, and style files of the user.

A voice of Kokoro is a style: 510 vectors beside weights that all voices share.
So a voice costs half a megabyte, and a mixture of styles is a voice, too. Any
style can speak every language of Kokoro. A native voice is offered in its own
language only, where it was measured. The others speak all languages.
"""

import math
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from speechframe.engines.base import EngineVoice
from speechframe.engines.faults import readable
from speechframe.engines.voice_folders import files_in, voice_folders
from speechframe.errors import EngineFault
from speechframe.local.engines.kokoro.model import STYLE_SHAPE
from speechframe.local.engines.models import KOKORO_NATIVES, KOKORO_STYLES, KOKORO_WEIGHTS, Package
from speechframe.local.engines.neural.onnx_graph import check_whole
from speechframe.local.engines.neural.prosody import STYLES
from speechframe.local.engines.reading import japanese
from speechframe.spec.locales import display_name, language_of
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind

__all__ = [
    "INSTALL",
    "PACKAGED_NAMES",
    "KokoroStyle",
    "check_weights",
    "engine_voices",
    "is_installed",
    "is_weights",
    "kokoro_voices",
    "left_out",
    "style_voices",
    "weights",
    "weights_in",
]

INSTALL = "pip install 'speechframe[kokoro]'"

Array = NDArray[np.float32]

_MODULES = ("onnx", "onnxruntime", "espeakng_loader")
_LOCALES = ("en-US", "en-GB", "es-ES", "es-MX", "pt-BR", "it-IT", "hi-IN", "ja-JP")
"""The locales of mixtures and of the user's styles. A native voice speaks those of its own language."""
_LANGUAGES = ("en-US", "en-GB", "es-ES", "fr-FR", "hi-IN", "it-IT", "ja-JP", "pt-BR")
_OWN_LOCALES = MappingProxyType(dict(zip("abefhijp", _LANGUAGES, strict=True)))
"""The locale of a public style by the first letter of its name. Chinese, ``z``, needs other phonemes."""
_GENDERS = MappingProxyType({"f": Gender.FEMALE, "m": Gender.MALE})
_PUBLIC_NAME = re.compile(r"(?P<language>[a-z])(?P<gender>[fm])_(?P<name>\w+)")
_STYLE_SUFFIXES = frozenset({".npz", ".bin"})
_LICENCE = "Apache-2.0"
_OUTPUT_TERMS = "The weights and styles are Apache-2.0, which sets no terms for audio made with them."
_WEIGHTS = "kokoro*.onnx"
_STYLE_BYTES = math.prod(STYLE_SHAPE) * np.dtype(np.float32).itemsize
_MOST_BYTES = 2 * _STYLE_BYTES + (1 << 16)
"""Largest unpacked size of a style in a ``.npz`` file: float64 and a header."""


@dataclass(frozen=True, slots=True)
class KokoroStyle:
    """One voice: its name in the catalogue, and the styles that it mixes.

    ``parts`` are shares of styles by name. ``file`` contains the styles; None means the file of ``package``.
    ``lufs`` is the loudness of the voice before levelling, the median of lines in five languages, or in its
    own language if it is native. None means that nobody measured it. ``bandwidth_hz`` follows
    :class:`EngineVoice`. The mixtures have 11,200 to 11,600 Hz. The value does not count for a ``file``.
    """

    locale: str
    name: str
    gender: Gender
    sounds: str
    parts: tuple[tuple[str, float], ...]
    file: Path | None = None
    model: Model = Model.GEN2
    lufs: float | None = None
    package: Package = KOKORO_STYLES
    bandwidth_hz: int = 11_500

    @property
    def voice_id(self) -> str:
        """The full id."""
        return f"{self.locale}-{self.name}"

    @property
    def supported_locales(self) -> tuple[str, ...]:
        """The locales that it speaks, its own first. Japanese needs readings: the model knows kana alone."""
        is_native = self.file is None and self.package is KOKORO_NATIVES
        others = [tag for tag in _LOCALES if not is_native or language_of(tag) == language_of(self.locale)]
        spoken = dict.fromkeys((self.locale, *others))
        return tuple(locale for locale in spoken if locale != "ja-JP" or japanese.is_installed())

    def vectors(self) -> Array:
        """Return its style vectors, :data:`STYLE_SHAPE`.

        Raises
        ------
        EngineFault
            The file of the styles is missing or broken.
        """
        styles = _read(self.file or self.package.file(next(iter(self.package.sha256)))).styles
        try:
            shares = [share * styles[name] for name, share in self.parts]
        except KeyError as error:
            raise EngineFault(f"{self.file} does not contain the style {error} any more") from None
        mixed: Array = np.sum(shares, axis=0, dtype=np.float32)
        return mixed


_F, _M = Gender.FEMALE, Gender.MALE
_FALCON = Model.FALCON_2
_KUMO, _GON, _TEBUKURO = "jm_kumo", "jf_gongitsune", "jf_tebukuro"
_NATIVE_SOUNDS = MappingProxyType(
    {
        "af_heart": (-22.4, 12_000),
        "af_bella": (-22.7, 12_000),
        "am_michael": (-24.0, 12_000),
        "am_fenrir": (-19.0, 12_000),
        "bf_emma": (-19.8, 12_000),
        "bm_george": (-21.6, 9_900),
        "ef_dora": (-23.4, 10_300),
        "em_alex": (-22.8, 10_300),
        "ff_siwis": (-18.8, 11_700),
        "hf_alpha": (-15.9, 11_600),
        "hm_omega": (-16.5, 11_500),
        "if_sara": (-14.1, 10_800),
        "im_nicola": (-19.4, 10_400),
        "jf_alpha": (-20.0, 11_600),
        "jm_kumo": (-20.3, 11_500),
        "pf_dora": (-23.5, 10_400),
        "pm_alex": (-23.1, 10_300),
    }
)
"""The public styles of our own package, with ``lufs`` and ``bandwidth_hz`` of each."""


def _native(style: str, lufs: float, bandwidth_hz: int) -> KokoroStyle:
    locale, gender = _OWN_LOCALES[style[0]], _GENDERS[style[1]]
    return KokoroStyle(
        locale,
        style.partition("_")[2],
        gender,
        "",
        ((style, 1.0),),
        lufs=lufs,
        package=KOKORO_NATIVES,
        bandwidth_hz=bandwidth_hz,
    )


_NATIVES = tuple(_native(style, *sounds) for style, sounds in _NATIVE_SOUNDS.items())
_MIXTURES = (
    KokoroStyle("pt-BR", "joaquim", _M, "calm", ((_KUMO, 1.0),), lufs=-20.3),
    KokoroStyle("pt-BR", "helena", _F, "clear", ((_KUMO, 0.5), (_GON, 0.5)), lufs=-20.2),
    KokoroStyle("ja-JP", "chihiro", _F, "young", ((_GON, 1.0),), lufs=-20.5),
    KokoroStyle("en-US", "abel", _M, "firm", ((_KUMO, 1.25), (_TEBUKURO, -0.25)), model=_FALCON, lufs=-21.1),
    KokoroStyle("en-US", "june", _F, "soft", ((_GON, 0.6), (_TEBUKURO, 0.4)), model=_FALCON, lufs=-20.9),
)
"""Mixtures of the packaged Japanese styles. A recogniser understands these shares best."""

PACKAGED_NAMES = frozenset(style.name for style in (*_NATIVES, *_MIXTURES))
"""Names that Piper's voices never have, so that their names are the same with and without Kokoro."""


def is_installed() -> bool:
    """Return whether the modules that Kokoro needs are installed. Nothing is imported."""
    return all(find_spec(name) is not None for name in _MODULES)


def weights() -> tuple[Path, ...]:
    """Return the files that are the weights when joined; none if there are none. Nothing is loaded.

    The first whole file in a folder of ``SPEECHFRAME_VOICES`` goes before the packaged weights.
    """
    if own := weights_in(voice_folders())[0]:
        return own[:1]
    if any(package.problem is not None for package in KOKORO_WEIGHTS):
        return ()
    return tuple(Path(package.folder or "") / name for package in KOKORO_WEIGHTS for name in package.sha256)


def weights_in(folders: Iterable[Path]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the weights in folders that look whole, and a sentence for each file that does not."""
    found, sentences = files_in(folders, is_weights)
    return _sorted_out(found, sentences)


def _sorted_out(found: Iterable[Path], sentences: Iterable[str]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    whole, left_out = [], list(sentences)
    for path in found:
        try:
            check_whole(path)
        except EngineFault as error:
            left_out.append(str(error))
        else:
            whole.append(path)
    return tuple(whole), tuple(left_out)


def check_weights(files: tuple[Path, ...]) -> None:
    """Raise EngineFault if a file of a package is not the one that we examined."""
    if files and is_weights(files[0]):
        return
    for package in KOKORO_WEIGHTS:
        for name in package.sha256:
            package.file(name)


def _is_style(path: Path) -> bool:
    return path.suffix in _STYLE_SUFFIXES


def is_weights(path: Path) -> bool:
    """Return whether a file contains Kokoro's weights, by its name."""
    return path.match(_WEIGHTS)


def style_voices(folders: Iterable[Path]) -> tuple[tuple[KokoroStyle, ...], tuple[str, ...]]:
    """Return the voices of the style files in folders, and a sentence for each file or style left out."""
    found, sentences = files_in(folders, _is_style)
    voices: dict[str, KokoroStyle] = {}
    left_out = list(sentences)
    for path in found:
        try:
            facts = readable(path)
            names, problems = _examined(path, facts.st_size, facts.st_mtime_ns)
        except EngineFault as error:
            names, problems = (), (str(error),)
        left_out += problems
        for name in names:
            voice = _named(name, path)
            if isinstance(voice, str):
                left_out.append(f"the style {name!r} of {path} {voice}")
            elif (first := voices.get(voice.voice_id)) is not None:
                left_out.append(
                    f"the style {name!r} of {path} has the name of the one in {first.file}; rename it"
                )
            else:
                voices[voice.voice_id] = voice
    return tuple(voices.values()), tuple(left_out)


def kokoro_voices() -> dict[str, KokoroStyle]:
    """Return every voice that can be used by full id: native voices, then mixtures, then the user's."""
    packaged = [style for style in (*_NATIVES, *_MIXTURES) if style.package.problem is None]
    spoken = (style for style in packaged if style.locale in style.supported_locales)
    return {style.voice_id: style for style in (*spoken, *style_voices(voice_folders())[0])}


def engine_voices() -> tuple[EngineVoice, ...]:
    """Return every voice as the catalogue lists it; none if Kokoro or its weights are not installed."""
    if not is_installed() or not weights():
        return ()
    return tuple(_shown(style) for style in kokoro_voices().values())


def left_out() -> tuple[str, ...]:
    """Return a sentence for each file that :func:`engine_voices` leaves out."""
    folders = voice_folders()
    styles, of_styles = style_voices(folders)
    _, of_weights = weights_in(folders)
    packages = [KOKORO_NATIVES, KOKORO_STYLES, *KOKORO_WEIGHTS]
    broken = [package.problem for package in packages if package.folder is not None and package.problem]
    unused = []
    if styles and not is_installed():
        unused.append(f"the {len(styles)} Kokoro styles in {_folders_of(styles)} need Kokoro: {INSTALL}")
    elif styles and not weights():
        unused.append(
            f"the {len(styles)} Kokoro styles in {_folders_of(styles)} need weights: kokoro-v1.0.onnx"
        )
    return tuple(dict.fromkeys((*of_styles, *of_weights, *broken, *unused)))


def _folders_of(styles: Iterable[KokoroStyle]) -> str:
    return ", ".join(sorted({str(style.file.parent) for style in styles if style.file is not None}))


def _named(name: str, path: Path) -> KokoroStyle | str:
    """Return the voice of a style, or the reason why it cannot be used."""
    public = _PUBLIC_NAME.fullmatch(name)
    letters = ", ".join(f"{letter} {locale}" for letter, locale in _OWN_LOCALES.items())
    if public is None:
        return (
            "does not say whose voice it is: name it as the public styles, such as af_heart, with the letter "
            f"of its language ({letters}) and f or m"
        )
    locale = _OWN_LOCALES.get(public["language"])
    if locale is None:
        return f"is of a language that cannot be spoken here ({public['language']}); allowed: {letters}"
    gender = _GENDERS[public["gender"]]
    voice = KokoroStyle(locale, name.replace("_", "-"), gender, "", ((name, 1.0),), path)
    if locale not in voice.supported_locales:
        return f"speaks {locale}, which needs readings: {japanese.INSTALL}"
    return voice


class _Content(NamedTuple):
    """The styles in a file by name, and a sentence for each that cannot be used."""

    styles: Mapping[str, Array]
    problems: tuple[str, ...]


def _read(path: Path) -> _Content:
    """Return the content of a style file, read again when the file changes.

    Raises
    ------
    EngineFault
        The file is missing or broken.
    """
    facts = readable(path)
    try:
        return _content(path, facts.st_size, facts.st_mtime_ns)
    except EngineFault:
        raise
    except Exception as error:  # a broken archive raises errors of many kinds
        raise EngineFault(
            f"{path} does not contain readable styles of Kokoro: {type(error).__name__}: {error}"
        ) from error


@lru_cache(maxsize=1024)
def _examined(path: Path, size_bytes: int, modified_ns: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the styles in a file, and a sentence for each problem."""
    del size_bytes, modified_ns
    try:
        content = _read(path)
    except EngineFault as error:
        return (), (str(error),)
    return tuple(content.styles), content.problems


@lru_cache(maxsize=4)
def _content(path: Path, size_bytes: int, modified_ns: int) -> _Content:
    # Size and time are part of the cache's key: a changed file is read again.
    del modified_ns
    if size_bytes == _STYLE_BYTES:
        return _check_styles([(path.stem, np.fromfile(path, "<f4"))], path)
    if not zipfile.is_zipfile(path):
        raise EngineFault(
            f"{path} does not contain readable styles of Kokoro: it has {size_bytes:,} bytes and is not a "
            f".npz archive; a single style has {_STYLE_BYTES:,}. Download it again"
        )
    with zipfile.ZipFile(path) as archive:
        large = [member.filename for member in archive.infolist() if member.file_size > _MOST_BYTES]
    with np.load(path) as stored:
        names = [name for name in stored.files if f"{name}.npy" not in large and name not in large]
        content = _check_styles(((name, _loaded(stored, name)) for name in names), path)
    too_large = tuple(f"{path} contains {name!r}, which is too large for a style of Kokoro" for name in large)
    return content._replace(problems=content.problems + too_large)


def _loaded(stored: Mapping[str, Any], name: str) -> Array | str:
    try:
        return np.asarray(stored[name], np.float32)
    except Exception as error:  # noqa: BLE001 - same
        return f"{type(error).__name__}: {error}"


def _check_styles(found: Iterable[tuple[str, Array | str]], path: Path) -> _Content:
    styles, problems = {}, []
    for name, vectors in found:
        if isinstance(vectors, str):
            problems.append(f"the style {name!r} of {path} cannot be read: {vectors}")
        elif vectors.size != math.prod(STYLE_SHAPE):
            problems.append(
                f"the style {name!r} of {path} has the shape {vectors.shape}; a style of Kokoro has "
                f"{STYLE_SHAPE[0]} vectors of {STYLE_SHAPE[1]} numbers"
            )
        elif not np.isfinite(vectors).all():
            problems.append(
                f"the style {name!r} of {path} has numbers that are not finite; download it again"
            )
        else:
            styles[name] = vectors.reshape(STYLE_SHAPE)
    return _Content(MappingProxyType(styles), tuple(problems))


def _shown(style: KokoroStyle) -> EngineVoice:
    who = f"{style.gender.value.lower()} voice"
    details = {
        locale: StyleDetails(available_styles=list(STYLES), detail=display_name(locale))
        for locale in style.supported_locales
    }
    sounds = f", {style.sounds}," if style.sounds else ""
    others = " and others" if len(details) > 1 else ""
    return EngineVoice(
        voice_id=style.voice_id,
        display_name=style.name.replace("-", " ").title(),
        description=f"A neural {who}{sounds} for {display_name(style.locale)}{others} (Kokoro).",
        gender=style.gender,
        locale=style.locale,
        supported_locales=MappingProxyType(details),
        models=frozenset({style.model}),
        kind=VoiceKind.NEURAL,
        licence=_LICENCE if style.file is None else None,
        output_terms=_OUTPUT_TERMS if style.file is None else None,
        bandwidth_hz=style.bandwidth_hz if style.file is None else None,
    )
