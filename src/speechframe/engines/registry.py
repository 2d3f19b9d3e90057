"""Which engines there are, what doctor says of each, and the voices of the speakers among them."""

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any, NamedTuple

from speechframe.engines import kinds
from speechframe.engines.base import Changer, EngineVoice, Recogniser, Speaker, Translator
from speechframe.errors import EngineError
from speechframe.spec.speech import Model

__all__ = [
    "CatalogueEntry",
    "EngineReport",
    "catalogue",
    "changers",
    "describe",
    "find_voice",
    "nearest_voices",
    "recognisers",
    "speakers",
    "translators",
]

_log = logging.getLogger("speechframe")


class CatalogueEntry(NamedTuple):
    """A voice and the name of the engine that has it."""

    voice: EngineVoice
    engine: str


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What `doctor` says of one engine.

    ``kind`` is a name of :data:`kinds.KINDS`. ``problem`` is None when it works; otherwise it says what is
    missing or broken, and ``command`` what would help.
    """

    kind: str
    name: str
    package: str
    version: str | None
    voices: int = 0
    locales: int = 0
    pairs: int = 0
    problem: str | None = None
    command: str | None = None

    @property
    def works(self) -> bool:
        """Whether the engine can be used."""
        return self.problem is None


def speakers() -> Mapping[str, Speaker]:
    """Return every speech engine that could be made, by name.

    Examples
    --------
    >>> "espeak" in speakers()
    True
    """
    return kinds.found(kinds.SPEAKERS)


def changers() -> Mapping[str, Changer]:
    """Return every voice changer that could be made, by name."""
    return kinds.found(kinds.CHANGERS)


def translators() -> Mapping[str, Translator]:
    """Return every translation engine that could be made, by name."""
    return kinds.found(kinds.TRANSLATORS)


def recognisers() -> Mapping[str, Recogniser]:
    """Return every speech recogniser that could be made, by name."""
    return kinds.found(kinds.RECOGNISERS)


@lru_cache(maxsize=len(Model))
def catalogue(model: Model) -> Mapping[str, CatalogueEntry]:
    """Return the voices of one model generation by full id; each generation has its own (section 4.1).

    Where two engines have a voice of one name, the first engine by name keeps it.

    Examples
    --------
    >>> voice, engine = catalogue(Model.GEN2)["en-US-nora"]
    >>> voice.display_name, engine
    ('Nora', 'espeak')
    """
    found: dict[str, CatalogueEntry] = {}
    taken: dict[str, str] = {}
    for engine, speaker in speakers().items():
        for voice in speaker.voices():
            if model not in voice.models:
                continue
            key = voice.name.casefold()
            if key in taken:
                _log.warning(
                    "voice %s of %s is left out: %s has the name", voice.voice_id, engine, taken[key]
                )
                continue
            taken[key] = engine
            found[voice.voice_id] = CatalogueEntry(voice, engine)
    return MappingProxyType(found)


def find_voice(name_or_id: str, model: Model) -> CatalogueEntry:
    """Return a voice by its full id or its name alone, in any case.

    Raises
    ------
    KeyError
        No such voice; :func:`nearest_voices` says what may have been meant.

    Examples
    --------
    >>> find_voice("nora", Model.GEN2).voice.voice_id
    'en-US-nora'
    """
    return _by_name(model)[_folded(name_or_id)]


def nearest_voices(name_or_id: str, model: Model, *, count: int = 3) -> list[str]:
    """Return the full ids of the voices whose id or name looks most like what was asked for.

    Examples
    --------
    >>> nearest_voices("en-US-norah", Model.GEN2)[0]
    'en-US-nora'
    """
    known = _by_name(model)
    asked = _folded(name_or_id)
    close = difflib.get_close_matches(asked, known, n=3 * count, cutoff=0.6)
    beginning = [key for key in known if asked and key.startswith(asked)]
    ids = [known[key].voice.voice_id for key in (*close, *beginning)]
    return list(dict.fromkeys(ids))[:count]


def describe(kind: str | None = None, name: str | None = None) -> tuple[EngineReport, ...]:
    """Return what is known of every engine that is installed or announced, working or not.

    Parameters
    ----------
    kind, name
        Of this kind or name alone; the others are not even imported.

    Examples
    --------
    >>> [report.name for report in describe("speaker", "espeak")]
    ['espeak']
    """
    return tuple(
        _report(each, point)
        for each in kinds.KINDS
        for point in kinds.points(each)
        if kind in {None, each.name} and name in {None, point.name}
    )


def _report(kind: kinds.Kind, point: EntryPoint) -> EngineReport:
    package = point.dist.name if point.dist else "?"
    try:
        engine = kinds.made(kind, point)
    except EngineError as error:
        command = f"pip install --upgrade {package}"
        return EngineReport(kind.name, point.name, package, None, problem=str(error), command=command)
    report = replace(_offers(kind, engine), name=point.name, package=package)
    try:
        return replace(report, version=engine.version)
    except EngineError as error:
        _, _, command = str(error).rpartition(": ")
        return replace(report, problem=str(error), command=command)


def _offers(kind: kinds.Kind, engine: Any) -> EngineReport:
    report = EngineReport(kind.name, engine.name, "", None)
    if kind is kinds.SPEAKERS:
        voices = engine.voices()
        return replace(report, voices=len(voices), locales=len({voice.locale for voice in voices}))
    return replace(report, pairs=len(engine.pairs())) if kind is kinds.TRANSLATORS else report


@lru_cache(maxsize=len(Model))
def _by_name(model: Model) -> Mapping[str, CatalogueEntry]:
    entries = catalogue(model).values()
    return {_folded(entry.voice.name): entry for entry in entries} | {
        _folded(entry.voice.voice_id): entry for entry in entries
    }


def _folded(name_or_id: str) -> str:
    return name_or_id.strip().replace("_", "-").casefold()
