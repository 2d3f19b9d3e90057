"""Find Firefox-Translations models, in folders of the user and in the installed package."""

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speechframe.engines.faults import read_file_facts
from speechframe.errors import EngineFault
from speechframe.local.engines.models import FIREFOX_PAIRS, check_file
from speechframe.spec import locales

FOLDERS_VARIABLE = "SPEECHFRAME_TRANSLATION_MODELS"
"""Environment variable with folders, separated as in PATH. Each folder is a model or contains models."""

_PACKAGED_LOCALES = MappingProxyType({"pt": "pt-BR"})
"""Language to locale in the packaged models. Their Portuguese is Brazilian."""

# Two languages, each perhaps with a script or a region: enpt, en-pt, enzh_Hant.
_PAIR_PATTERN = re.compile(
    r"([a-z]{2,3})(?:[-_]([A-Za-z]{4}|[A-Z]{2}))?[-_]?([a-z]{2,3})(?:[-_]([A-Za-z]{4}|[A-Z]{2}))?"
)
_HASHED_EDGE_BYTES = 1 << 16
"""Bytes at the beginning and at the end of each file that go into the hash of a model."""
_MAX_METADATA_BYTES = 1 << 20
"""A larger metadata file is ignored."""
_METADATA_FILES = ("metadata.json", "modelMeta.json")
"""Names of files that may contain the languages of a model."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """The languages and the files of one model.

    Parameters
    ----------
    source, target
        Locales, normalised as by :func:`speechframe.spec.locales.normalise`.
    model, source_vocabulary, target_vocabulary
        Paths of the files. Most models have one file for both vocabularies.
    shortlist
        Path of the lexical shortlist, or None.
    sha256
        Path to expected hash in hexadecimal digits. A file without an expected hash is not checked.
    """

    source: str
    target: str
    model: Path
    source_vocabulary: Path
    target_vocabulary: Path
    shortlist: Path | None
    sha256: Mapping[Path, str]

    @property
    def files(self) -> tuple[Path, ...]:
        """Paths of the files, without the shortlist if there is none."""
        files = (self.model, self.source_vocabulary, self.target_vocabulary, self.shortlist)
        return tuple(path for path in files if path is not None)

    def read(self, path: Path) -> bytes:
        """Return the bytes of one of the model's files.

        Raises
        ------
        EngineFault
            The file cannot be read, or its hash is not the expected hash.
        """
        if (wanted := self.sha256.get(path)) is not None:
            check_file(path, wanted)
        try:
            read_file_facts(path)
            return path.read_bytes()
        except EngineFault as error:
            raise EngineFault(f"the model file {error}") from None
        except OSError as error:
            raise EngineFault(f"the model file {path} cannot be read: {error.strerror}") from None

    def mark(self) -> bytes:
        """Return a digest of the languages, and of the name, size, first and last bytes of each file.

        Different models have different digests.
        """
        digest = hashlib.sha256(f"{self.source}>{self.target}".encode())
        for path in self.files:
            size = read_file_facts(path).st_size
            digest.update(f"|{path.name}|{size}|".encode(errors="surrogateescape"))
            with path.open("rb") as file:
                digest.update(file.read(_HASHED_EDGE_BYTES))
                file.seek(max(0, size - _HASHED_EDGE_BYTES))
                digest.update(file.read())
        return digest.digest()

    def check(self) -> None:
        """Raise EngineFault if one of the model's files is empty or cannot be read."""
        for path in self.files:
            if not read_file_facts(path).st_size:
                raise EngineFault(f"{path} is empty")


def find_models(variable: str | None = None) -> list[ModelFolder]:
    """Return the usable models, one for each pair. A model of the user is preferred to a packaged model.

    Parameters
    ----------
    variable
        Folders, separated as in PATH. None uses the environment variable :data:`FOLDERS_VARIABLE`.
    """
    return _sort_models(variable)[0]


def list_left_out() -> list[str]:
    """Return a sentence for each folder and model that :func:`find_models` leaves out."""
    return _sort_models(None)[1]


def _sort_models(variable: str | None) -> tuple[list[ModelFolder], list[str]]:
    named = os.environ.get(FOLDERS_VARIABLE, "") if variable is None else variable
    left_out: list[str] = []
    models: list[ModelFolder] = []
    for folder_text in filter(str.strip, named.split(os.pathsep)):
        models += _find_models_below(Path(folder_text).expanduser(), left_out)
    usable: dict[tuple[str, str], ModelFolder] = {}
    for model in (*models, *find_packaged_models()):
        try:
            model.check()
        except EngineFault as error:
            left_out.append(f"the translation model {model.model.parent} is left out: {error}")
        else:
            pair = model.source, model.target
            if pair in usable and model in models:
                first = usable[pair].model.parent
                left_out.append(
                    f"the translation model {model.model.parent} is left out: {first} has the pair"
                )
            usable.setdefault(pair, model)
    return list(usable.values()), left_out


def find_packaged_models() -> list[ModelFolder]:
    """Return the packaged models. The list is empty if the package is not installed."""
    if (package := FIREFOX_PAIRS.folder) is None:
        return []
    sha256 = {package / name: wanted for name, wanted in FIREFOX_PAIRS.sha256.items()}
    # Use only the files with known hashes, and ignore other files in the same folders.
    folders = {path.parent: [other for other in sha256 if other.parent == path.parent] for path in sha256}
    models = [_build_model(folder, files, _PACKAGED_LOCALES, sha256) for folder, files in folders.items()]
    return [model for model in models if model is not None]


def _find_models_below(folder: Path, left_out: list[str]) -> list[ModelFolder]:
    """Return the models in a folder and in its direct subfolders. Problems are appended to the list."""
    models = []
    for each in (folder, *sorted(path for path in _list_entries(folder, left_out) if path.is_dir())):
        files = _list_entries(each, left_out if each != folder else [])
        model = _build_model(each, files)
        if model is not None:
            models.append(model)
        elif any(path.match("model.*.bin") for path in files):
            left_out.append(
                f"the translation model {each} is left out: a vocabulary is missing, or neither its metadata "
                "nor its names tell the languages"
            )
    return models


def _list_entries(folder: Path, left_out: list[str]) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        left_out.append(f"the folder of translation models {folder} cannot be read: {error.strerror}")
        return []


def _build_model(
    folder: Path,
    files: Collection[Path],
    regions: Mapping[str, str] = MappingProxyType({}),
    sha256: Mapping[Path, str] = MappingProxyType({}),
) -> ModelFolder | None:
    model = _find_first(files, "model.*.bin")
    vocabulary = _find_first(files, "vocab.*.spm")
    source_vocabulary = _find_first(files, "srcvocab.*.spm") or vocabulary
    target_vocabulary = _find_first(files, "trgvocab.*.spm") or vocabulary
    if model is None or source_vocabulary is None or target_vocabulary is None:
        return None
    pair = _read_pair(folder) or _parse_pair(model.name.split(".")[1]) or _parse_pair(folder.name)
    if pair is None:
        return None
    source, target = (regions.get(tag, tag) for tag in pair)
    shortlist = _find_first(files, "lex.*.bin")
    return ModelFolder(source, target, model, source_vocabulary, target_vocabulary, shortlist, sha256)


def _find_first(files: Collection[Path], pattern: str) -> Path | None:
    # A folder may contain a model in two precisions. Return the first by name.
    return min((path for path in files if path.match(pattern)), default=None)


def _read_pair(folder: Path) -> tuple[str, str] | None:
    """Return the pair in a metadata file of a folder, or None if no readable metadata file has a pair."""
    for name in _METADATA_FILES:
        path = folder / name
        try:
            if read_file_facts(path).st_size > _MAX_METADATA_BYTES:
                continue
            metadata: Any = json.loads(path.read_text("utf-8"))
        except (EngineFault, OSError, ValueError, RecursionError):
            continue
        if not isinstance(metadata, dict):
            continue
        for keys in (("sourceLanguage", "targetLanguage"), ("fromLang", "toLang")):
            tags = [metadata.get(key) for key in keys]
            if all(isinstance(tag, str) and tag for tag in tags):
                try:
                    return locales.normalise(str(tags[0])), locales.normalise(str(tags[1]))
                except ValueError:
                    continue
    return None


def _parse_pair(name: str) -> tuple[str, str] | None:
    """Return the pair in a name such as ``enpt``, ``en-pt`` or ``enzh_Hant``, or None.

    Examples
    --------
    >>> _parse_pair("enpt"), _parse_pair("pt-BR-en"), _parse_pair("config")
    (('en', 'pt'), ('pt-BR', 'en'), None)
    """
    match = _PAIR_PATTERN.fullmatch(name)
    if match is None:
        return None
    try:
        source, target = (
            locales.normalise("-".join(filter(None, part))) for part in (match.group(1, 2), match.group(3, 4))
        )
    except ValueError:
        return None
    return (source, target) if source != target else None
