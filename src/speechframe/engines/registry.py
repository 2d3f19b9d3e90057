"""How engines and their voices are found: entry points of the group ``speechframe.speakers``.

A plug-in that is broken is left out, said once in the log, and told by
:func:`describe`; the others work on.
"""

import difflib
import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import NamedTuple, cast

from speechframe.engines.base import EngineVoice, Speaker
from speechframe.errors import EngineError
from speechframe.spec.speech import Model

__all__ = [
    "GROUP",
    "CatalogueEntry",
    "EngineReport",
    "catalogue",
    "describe",
    "find_voice",
    "nearest_voices",
    "speakers",
]

GROUP = "speechframe.speakers"
"""The entry point group of speech engines."""

_PARTS = ("name", "version", "capabilities", "voices", "speak")
"""What makes a Speaker; looked for without asking, because asking for the version loads the library."""

_log = logging.getLogger("speechframe")


class CatalogueEntry(NamedTuple):
    """A voice and the name of the engine that has it."""

    voice: EngineVoice
    engine: str


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What `doctor` says of one engine.

    ``problem`` is None when it works; otherwise it says what is missing or
    broken, and ``command`` what would help.
    """

    name: str
    package: str
    version: str | None
    voices: int
    locales: int
    problem: str | None = None
    command: str | None = None

    @property
    def works(self) -> bool:
        """Whether the engine can speak."""
        return self.problem is None


@lru_cache(maxsize=1)
def speakers() -> Mapping[str, Speaker]:
    """Return every engine that could be made, by name.

    Examples
    --------
    >>> "espeak" in speakers()
    True
    """
    made = {}
    for point in _entry_points():
        try:
            made[point.name] = _made(point)
        except EngineError as error:
            _log.warning("%s", error)
    return MappingProxyType(made)


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


def describe() -> tuple[EngineReport, ...]:
    """Return what is known of every engine that is installed or announced, working or not."""
    return tuple(_report(point) for point in _entry_points())


def _entry_points() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda point: point.name)


def _made(point: EntryPoint) -> Speaker:
    called = f"the speech engine {point.name!r} ({point.value})"
    try:
        speaker: object = point.load()()
        if all(inspect.getattr_static(speaker, part, None) is not None for part in _PARTS):
            made = cast("Speaker", speaker)
            made.voices()
            return made
    except Exception as error:  # a plug-in may fail in any way, and must not take the others with it
        raise EngineError(f"{called} cannot be used: {type(error).__name__}: {error}") from error
    raise EngineError(f"{called} is no Speaker: see speechframe.engines.base")


def _report(point: EntryPoint) -> EngineReport:
    package = point.dist.name if point.dist else "?"
    try:
        speaker = _made(point)
    except EngineError as error:
        command = f"pip install --upgrade {package}"
        return EngineReport(point.name, package, None, 0, 0, str(error), command)
    voices = speaker.voices()
    locales = len({voice.locale for voice in voices})
    try:
        version = speaker.version
    except EngineError as error:
        _, _, command = str(error).rpartition(": ")
        return EngineReport(point.name, package, None, len(voices), locales, str(error), command)
    return EngineReport(point.name, package, version, len(voices), locales)


@lru_cache(maxsize=len(Model))
def _by_name(model: Model) -> Mapping[str, CatalogueEntry]:
    entries = catalogue(model).values()
    return {_folded(entry.voice.name): entry for entry in entries} | {
        _folded(entry.voice.voice_id): entry for entry in entries
    }


def _folded(name_or_id: str) -> str:
    return name_or_id.strip().replace("_", "-").casefold()
