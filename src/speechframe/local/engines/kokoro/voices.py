"""List the Kokoro voices: native styles, mixtures of packaged styles, and styles in the user's folders.

A style is 510 vectors that make a voice of the weights, which all voices share. So
a voice needs only half a megabyte, and a mixture of styles is also a voice. Any style
can speak every locale of the engine. A native voice is offered only in its own
language, in which it was measured. The others speak all locales.
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
from speechframe.engines.faults import read_file_facts
from speechframe.engines.voice_folders import find_files, list_voice_folders
from speechframe.errors import EngineFault
from speechframe.local.engines.kokoro.model import STYLE_SHAPE
from speechframe.local.engines.models import KOKORO_NATIVES, KOKORO_STYLES, KOKORO_WEIGHTS, Package
from speechframe.local.engines.neural.onnx_graph import check_whole
from speechframe.local.engines.neural.prosody import STYLES
from speechframe.local.engines.reading import japanese
from speechframe.spec.locales import get_display_name, get_language
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind

INSTALL_COMMAND = "pip install 'speechframe[kokoro]'"
"""The command for error messages that installs Kokoro."""

Array = NDArray[np.float32]

_REQUIRED_MODULES = ("onnx", "onnxruntime", "espeakng_loader")
"""Modules that Kokoro needs."""
_COMMON_LOCALES = ("en-US", "en-GB", "es-ES", "es-MX", "pt-BR", "it-IT", "hi-IN", "ja-JP")
"""The locales of mixtures and of the user's styles. A native voice speaks those of its own language."""
_LETTER_LOCALES = ("en-US", "en-GB", "es-ES", "fr-FR", "hi-IN", "it-IT", "ja-JP", "pt-BR")
_LOCALES_BY_LETTER = MappingProxyType(dict(zip("abefhijp", _LETTER_LOCALES, strict=True)))
"""First letter of the name of a published style to its locale. Chinese, ``z``, would need other phonemes."""
_GENDERS_BY_LETTER = MappingProxyType({"f": Gender.FEMALE, "m": Gender.MALE})
"""Second letter of the name of a published style to the gender."""
# The name of a published style, such as af_heart.
_PUBLIC_NAME = re.compile(r"(?P<language>[a-z])(?P<gender>[fm])_(?P<name>\w+)")
_STYLE_SUFFIXES = frozenset({".npz", ".bin"})
_LICENCE = "Apache-2.0"
_OUTPUT_TERMS = "The weights and styles are Apache-2.0, which sets no terms for audio made with them."
_WEIGHTS_PATTERN = "kokoro*.onnx"
_STYLE_BYTES = math.prod(STYLE_SHAPE) * np.dtype(np.float32).itemsize
"""Size of a style in a ``.bin`` file."""
_MAX_STYLE_BYTES = 2 * _STYLE_BYTES + (1 << 16)
"""Largest unpacked size of a style in a ``.npz`` file, which may be float64 and has a header."""


@dataclass(frozen=True, slots=True)
class KokoroStyle:
    """A voice: its name in the catalogue, and the styles that it mixes.

    Attributes
    ----------
    locale, name, gender
        The locale of the voice, its name without the locale, and its gender.
    sounds
        An adjective for the description, such as "calm", or "".
    parts
        Name of each mixed style, and its share.
    file
        The file with the styles. None means the file of `package`.
    model
        The catalogue of the voice.
    lufs
        Loudness of the voice before levelling in LUFS, the median of lines in five languages, or in its own
        language if the voice is native. None if it was not measured.
    package
        The package with the styles, if `file` is None.
    bandwidth_hz
        :attr:`EngineVoice.bandwidth_hz`, for packaged styles only. The mixtures have 11,200 to 11,600 Hz.
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
        """The full id, such as ``pt-BR-helena``."""
        return f"{self.locale}-{self.name}"

    @property
    def supported_locales(self) -> tuple[str, ...]:
        """The locales of the voice, its own first. Japanese is left out if no readings are installed."""
        is_native = self.file is None and self.package is KOKORO_NATIVES
        own = get_language(self.locale)
        others = [locale for locale in _COMMON_LOCALES if not is_native or get_language(locale) == own]
        spoken = dict.fromkeys((self.locale, *others))
        return tuple(locale for locale in spoken if locale != "ja-JP" or japanese.is_installed())

    def mix_vectors(self) -> Array:
        """Return the mixed style vectors of the voice, with the shape :data:`STYLE_SHAPE`.

        Raises
        ------
        EngineFault
            The file of the styles is missing or broken, or lacks a style.
        """
        styles = _read_styles(self.file or self.package.get_file(next(iter(self.package.sha256)))).styles
        try:
            shares = [share * styles[name] for name, share in self.parts]
        except KeyError as error:
            raise EngineFault(f"{self.file} does not contain the style {error} any more") from None
        mixed: Array = np.sum(shares, axis=0, dtype=np.float32)
        return mixed


_FEMALE, _MALE = Gender.FEMALE, Gender.MALE
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
"""Published style in our own package to its loudness in LUFS and its bandwidth in Hz."""


def _make_native_voice(style: str, lufs: float, bandwidth_hz: int) -> KokoroStyle:
    return KokoroStyle(
        _LOCALES_BY_LETTER[style[0]],
        style.partition("_")[2],
        _GENDERS_BY_LETTER[style[1]],
        "",
        ((style, 1.0),),
        lufs=lufs,
        package=KOKORO_NATIVES,
        bandwidth_hz=bandwidth_hz,
    )


_NATIVE_VOICES = tuple(_make_native_voice(style, *sound) for style, sound in _NATIVE_SOUNDS.items())
_MIXED_VOICES = (
    KokoroStyle("pt-BR", "joaquim", _MALE, "calm", ((_KUMO, 1.0),), lufs=-20.3),
    KokoroStyle("pt-BR", "helena", _FEMALE, "clear", ((_KUMO, 0.5), (_GON, 0.5)), lufs=-20.2),
    KokoroStyle("ja-JP", "chihiro", _FEMALE, "young", ((_GON, 1.0),), lufs=-20.5),
    KokoroStyle(
        "en-US", "abel", _MALE, "firm", ((_KUMO, 1.25), (_TEBUKURO, -0.25)), model=_FALCON, lufs=-21.1
    ),
    KokoroStyle("en-US", "june", _FEMALE, "soft", ((_GON, 0.6), (_TEBUKURO, 0.4)), model=_FALCON, lufs=-20.9),
)
"""Voices from the packaged Japanese styles. Speech with these shares had the fewest recognition errors."""

PACKAGED_NAMES = frozenset(style.name for style in (*_NATIVE_VOICES, *_MIXED_VOICES))
"""Names that Piper's voices never have, so that their names are the same with and without Kokoro."""


def is_installed() -> bool:
    """Return True if the modules that Kokoro needs are installed. Nothing is imported."""
    return all(find_spec(name) is not None for name in _REQUIRED_MODULES)


def find_weights() -> tuple[Path, ...]:
    """Return the file of the weights, or its parts in order. The tuple is empty if there are no weights.

    The first complete file in the folders of ``SPEECHFRAME_VOICES`` is preferred to the packaged weights.
    Nothing is loaded.
    """
    if own := find_weights_in(list_voice_folders())[0]:
        return own[:1]
    if any(package.problem is not None for package in KOKORO_WEIGHTS):
        return ()
    return tuple(Path(package.folder or "") / name for package in KOKORO_WEIGHTS for name in package.sha256)


def find_weights_in(folders: Iterable[Path]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the complete weights in folders, and a sentence for each file that is not complete."""
    found, sentences = find_files(folders, is_weights)
    return _separate_broken(found, sentences)


def _separate_broken(
    found: Iterable[Path], sentences: Iterable[str]
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
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
    """Raise EngineFault if packaged weights lack the expected hashes. Weights of the user are not checked."""
    if files and is_weights(files[0]):
        return
    for package in KOKORO_WEIGHTS:
        for name in package.sha256:
            package.get_file(name)


def _is_style(path: Path) -> bool:
    return path.suffix in _STYLE_SUFFIXES


def is_weights(path: Path) -> bool:
    """Return True if a file has the name of weights of Kokoro, ``kokoro*.onnx``."""
    return path.match(_WEIGHTS_PATTERN)


def find_style_voices(folders: Iterable[Path]) -> tuple[tuple[KokoroStyle, ...], tuple[str, ...]]:
    """Return the voices of the style files in folders, and a sentence for each file or style left out."""
    found, sentences = find_files(folders, _is_style)
    voices: dict[str, KokoroStyle] = {}
    left_out = list(sentences)
    for path in found:
        try:
            facts = read_file_facts(path)
            names, problems = _list_styles(path, facts.st_size, facts.st_mtime_ns)
        except EngineFault as error:
            names, problems = (), (str(error),)
        left_out += problems
        for name in names:
            voice = _build_voice(name, path)
            if isinstance(voice, str):
                left_out.append(f"the style {name!r} of {path} {voice}")
            elif (first := voices.get(voice.voice_id)) is not None:
                left_out.append(
                    f"the style {name!r} of {path} has the name of the one in {first.file}; rename it"
                )
            else:
                voices[voice.voice_id] = voice
    return tuple(voices.values()), tuple(left_out)


def list_kokoro_voices() -> dict[str, KokoroStyle]:
    """Return the usable voices by full id: native voices, then mixtures, then those of the user's folders."""
    packaged = [style for style in (*_NATIVE_VOICES, *_MIXED_VOICES) if style.package.problem is None]
    spoken = (style for style in packaged if style.locale in style.supported_locales)
    return {style.voice_id: style for style in (*spoken, *find_style_voices(list_voice_folders())[0])}


def list_engine_voices() -> tuple[EngineVoice, ...]:
    """Return the catalogue entry of each voice. The tuple is empty without Kokoro or its weights."""
    if not is_installed() or not find_weights():
        return ()
    return tuple(_build_entry(style) for style in list_kokoro_voices().values())


def list_left_out() -> tuple[str, ...]:
    """Return a sentence for each file that :func:`list_engine_voices` leaves out."""
    folders = list_voice_folders()
    styles, of_styles = find_style_voices(folders)
    _, of_weights = find_weights_in(folders)
    packages = [KOKORO_NATIVES, KOKORO_STYLES, *KOKORO_WEIGHTS]
    broken = [package.problem for package in packages if package.folder is not None and package.problem]
    unused = []
    if styles and not is_installed():
        unused.append(
            f"the {len(styles)} Kokoro styles in {_format_folders(styles)} need Kokoro: {INSTALL_COMMAND}"
        )
    elif styles and not find_weights():
        unused.append(
            f"the {len(styles)} Kokoro styles in {_format_folders(styles)} need weights: kokoro-v1.0.onnx"
        )
    return tuple(dict.fromkeys((*of_styles, *of_weights, *broken, *unused)))


def _format_folders(styles: Iterable[KokoroStyle]) -> str:
    return ", ".join(sorted({str(style.file.parent) for style in styles if style.file is not None}))


def _build_voice(name: str, path: Path) -> KokoroStyle | str:
    """Return the voice of a style in a file, or the reason why the style cannot be used."""
    public = _PUBLIC_NAME.fullmatch(name)
    letters = ", ".join(f"{letter} {locale}" for letter, locale in _LOCALES_BY_LETTER.items())
    if public is None:
        return (
            "does not say whose voice it is: name it as the public styles, such as af_heart, with the letter "
            f"of its language ({letters}) and f or m"
        )
    locale = _LOCALES_BY_LETTER.get(public["language"])
    if locale is None:
        return f"is of a language that cannot be spoken here ({public['language']}); allowed: {letters}"
    gender = _GENDERS_BY_LETTER[public["gender"]]
    voice = KokoroStyle(locale, name.replace("_", "-"), gender, "", ((name, 1.0),), path)
    if locale not in voice.supported_locales:
        return f"speaks {locale}, which needs readings: {japanese.INSTALL_COMMAND}"
    return voice


class _StyleFileContent(NamedTuple):
    """The styles in a file by name, and a sentence for each style that cannot be used."""

    styles: Mapping[str, Array]
    problems: tuple[str, ...]


def _read_styles(path: Path) -> _StyleFileContent:
    """Return the content of a style file. The file is read again only if it has changed.

    Raises
    ------
    EngineFault
        The file is missing or broken.
    """
    facts = read_file_facts(path)
    try:
        return _read_content(path, facts.st_size, facts.st_mtime_ns)
    except EngineFault:
        raise
    except Exception as error:  # a broken archive raises errors of many kinds
        raise EngineFault(
            f"{path} does not contain readable styles of Kokoro: {type(error).__name__}: {error}"
        ) from error


@lru_cache(maxsize=1024)
def _list_styles(path: Path, size_bytes: int, modified_ns: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the styles in a file, and a sentence for each problem."""
    del size_bytes, modified_ns
    try:
        content = _read_styles(path)
    except EngineFault as error:
        return (), (str(error),)
    return tuple(content.styles), content.problems


@lru_cache(maxsize=4)
def _read_content(path: Path, size_bytes: int, modified_ns: int) -> _StyleFileContent:
    # Size and time are part of the cache key, so that a changed file is read again.
    del modified_ns
    if size_bytes == _STYLE_BYTES:
        return _check_styles([(path.stem, np.fromfile(path, "<f4"))], path)
    if not zipfile.is_zipfile(path):
        raise EngineFault(
            f"{path} does not contain readable styles of Kokoro: it has {size_bytes:,} bytes and is not a "
            f".npz archive; a single style has {_STYLE_BYTES:,}. Download it again"
        )
    with zipfile.ZipFile(path) as archive:
        large = [member.filename for member in archive.infolist() if member.file_size > _MAX_STYLE_BYTES]
    with np.load(path) as stored:
        names = [name for name in stored.files if f"{name}.npy" not in large and name not in large]
        content = _check_styles(((name, _load_style(stored, name)) for name in names), path)
    too_large = tuple(f"{path} contains {name!r}, which is too large for a style of Kokoro" for name in large)
    return content._replace(problems=content.problems + too_large)


def _load_style(stored: Mapping[str, Any], name: str) -> Array | str:
    try:
        return np.asarray(stored[name], np.float32)
    except Exception as error:  # noqa: BLE001 - a broken archive raises errors of many types
        return f"{type(error).__name__}: {error}"


def _check_styles(found: Iterable[tuple[str, Array | str]], path: Path) -> _StyleFileContent:
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
    return _StyleFileContent(MappingProxyType(styles), tuple(problems))


def _build_entry(style: KokoroStyle) -> EngineVoice:
    who = f"{style.gender.value.lower()} voice"
    details = {
        locale: StyleDetails(available_styles=list(STYLES), detail=get_display_name(locale))
        for locale in style.supported_locales
    }
    sounds = f", {style.sounds}," if style.sounds else ""
    others = " and others" if len(details) > 1 else ""
    return EngineVoice(
        voice_id=style.voice_id,
        display_name=style.name.replace("-", " ").title(),
        description=f"A neural {who}{sounds} for {get_display_name(style.locale)}{others} (Kokoro).",
        gender=style.gender,
        locale=style.locale,
        supported_locales=MappingProxyType(details),
        models=frozenset({style.model}),
        kind=VoiceKind.NEURAL,
        licence=_LICENCE if style.file is None else None,
        output_terms=_OUTPUT_TERMS if style.file is None else None,
        bandwidth_hz=style.bandwidth_hz if style.file is None else None,
    )
