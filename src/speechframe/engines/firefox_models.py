"""Folders with Firefox-Translations models: those the user names, and the packaged ones, by their hashes."""

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speechframe.engines.models import FIREFOX_PAIRS, checked
from speechframe.errors import EngineError
from speechframe.spec import locales

__all__ = ["FOLDERS_VARIABLE", "ModelFolder", "found", "packaged"]

FOLDERS_VARIABLE = "SPEECHFRAME_TRANSLATION_MODELS"
"""Folders with models, separated as in PATH; each is a model or holds some."""

_PACKAGED_LOCALES = MappingProxyType({"pt": "pt-BR"})
"""What the packaged models mean by a language: their Portuguese is that of Brazil."""

_PAIR = re.compile(
    r"([a-z]{2,3})(?:[-_]([A-Za-z]{4}|[A-Z]{2}))?[-_]?([a-z]{2,3})(?:[-_]([A-Za-z]{4}|[A-Z]{2}))?"
)
_HASHED_EDGE = 1 << 16


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One model: what it translates and its files.

    Parameters
    ----------
    source, target
        Locales in the house spelling.
    model, source_vocabulary, target_vocabulary
        Its files; both vocabularies are one file for most pairs.
    shortlist
        The lexical shortlist, where there is one.
    sha256
        The hashes that files must have, where these are known.
    """

    source: str
    target: str
    model: Path
    source_vocabulary: Path
    target_vocabulary: Path
    shortlist: Path | None
    sha256: Mapping[Path, str]

    def read(self, path: Path) -> bytes:
        """Return the bytes of one of its files.

        Raises
        ------
        EngineError
            When it cannot be read, or is not the file that was looked at.
        """
        if (wanted := self.sha256.get(path)) is not None:
            checked(path, wanted)
        try:
            return path.read_bytes()
        except OSError as error:
            raise EngineError(f"the model file {path} cannot be read: {error.strerror}") from None

    def mark(self) -> bytes:
        """Return what tells this model from another: names, sizes, and the edges of its files."""
        digest = hashlib.sha256(f"{self.source}>{self.target}".encode())
        for path in filter(
            None, (self.model, self.source_vocabulary, self.target_vocabulary, self.shortlist)
        ):
            digest.update(f"|{path.name}|{path.stat().st_size}|".encode())
            with path.open("rb") as file:
                digest.update(file.read(_HASHED_EDGE))
                file.seek(max(0, path.stat().st_size - _HASHED_EDGE))
                digest.update(file.read())
        return digest.digest()


def found(variable: str | None = None) -> list[ModelFolder]:
    """Return every model there is, the user's before the packaged, one a pair.

    Parameters
    ----------
    variable
        What :data:`FOLDERS_VARIABLE` would hold; the environment's value when not given.
    """
    named = os.environ.get(FOLDERS_VARIABLE, "") if variable is None else variable
    folders = [Path(words).expanduser() for words in named.split(os.pathsep) if words.strip()]
    models = [model for folder in folders for model in _below(folder)] + packaged()
    return list({(model.source, model.target): model for model in reversed(models)}.values())[::-1]


def packaged() -> list[ModelFolder]:
    """Return the packaged models; none when the package is not installed."""
    if (package := FIREFOX_PAIRS.folder) is None:
        return []
    sha256 = {package / name: wanted for name, wanted in FIREFOX_PAIRS.sha256.items()}
    # Its files that were looked at, and whatever else is beside them is not.
    folders = {path.parent: [other for other in sha256 if other.parent == path.parent] for path in sha256}
    models = [_model_of(folder, files, _PACKAGED_LOCALES, sha256) for folder, files in folders.items()]
    return [model for model in models if model is not None]


def _below(folder: Path) -> list[ModelFolder]:
    inner = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    models = [
        _model_of(each, [path for path in each.glob("*") if path.is_file()]) for each in (folder, *inner)
    ]
    return [model for model in models if model is not None]


def _model_of(
    folder: Path,
    files: Collection[Path],
    regions: Mapping[str, str] = MappingProxyType({}),
    sha256: Mapping[Path, str] = MappingProxyType({}),
) -> ModelFolder | None:
    model = _one(files, "model.*.bin")
    vocabulary = _one(files, "vocab.*.spm")
    source_vocabulary = _one(files, "srcvocab.*.spm") or vocabulary
    target_vocabulary = _one(files, "trgvocab.*.spm") or vocabulary
    if model is None or source_vocabulary is None or target_vocabulary is None:
        return None
    pair = _told_pair(folder) or _pair_in(model.name.split(".")[1]) or _pair_in(folder.name)
    if pair is None:
        return None
    source, target = (regions.get(tag, tag) for tag in pair)
    shortlist = _one(files, "lex.*.bin")
    return ModelFolder(source, target, model, source_vocabulary, target_vocabulary, shortlist, sha256)


def _one(files: Collection[Path], pattern: str) -> Path | None:
    # Where a folder holds a model twice, in two precisions, the first by name is taken.
    return min((path for path in files if path.match(pattern)), default=None)


def _told_pair(folder: Path) -> tuple[str, str] | None:
    """Return the pair that a metadata file names."""
    for name in ("metadata.json", "modelMeta.json"):
        try:
            told: Any = json.loads((folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if not isinstance(told, dict):
            continue
        for keys in (("sourceLanguage", "targetLanguage"), ("fromLang", "toLang")):
            tags = [told.get(key) for key in keys]
            if all(isinstance(tag, str) and tag for tag in tags):
                try:
                    return locales.normalise(str(tags[0])), locales.normalise(str(tags[1]))
                except ValueError:
                    continue
    return None


def _pair_in(name: str) -> tuple[str, str] | None:
    """Return the pair that a name spells: ``enpt``, ``en-pt``, ``enzh_Hant``.

    Examples
    --------
    >>> _pair_in("enpt"), _pair_in("pt-BR-en"), _pair_in("config")
    (('en', 'pt'), ('pt-BR', 'en'), None)
    """
    match = _PAIR.fullmatch(name)
    if match is None:
        return None
    try:
        source, target = (
            locales.normalise("-".join(filter(None, part))) for part in (match.group(1, 2), match.group(3, 4))
        )
    except ValueError:
        return None
    return (source, target) if source != target else None
