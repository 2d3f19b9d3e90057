"""The kinds of engines and the entry points they come in by.

A plug-in that is broken is left out, said once in the log, and told by
:func:`reports`; the others work on.
"""

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from speechframe.errors import EngineError

__all__ = ["CHANGERS", "KINDS", "RECOGNISERS", "SPEAKERS", "TRANSLATORS", "Kind", "found", "made", "points"]

_log = logging.getLogger("speechframe")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of engine.

    Parameters
    ----------
    name
        What it is called, such as ``speaker``.
    group
        The entry point group its engines come in by.
    words
        How a problem names one.
    parts
        What makes one; looked for without asking, because asking for the version loads the library.
    probe
        A part that must answer before the engine counts as usable; it loads nothing.
    """

    name: str
    group: str
    words: str
    parts: tuple[str, ...]
    probe: str | None = None


SPEAKERS = Kind(
    "speaker",
    "speechframe.speakers",
    "speech engine",
    ("name", "version", "capabilities", "voices", "speak"),
    "voices",
)
CHANGERS = Kind("changer", "speechframe.changers", "voice changer", ("name", "version", "change"))
TRANSLATORS = Kind(
    "translator",
    "speechframe.translators",
    "translation engine",
    ("name", "version", "pairs", "translate"),
    "pairs",
)
RECOGNISERS = Kind(
    "recogniser", "speechframe.recognisers", "speech recogniser", ("name", "version", "recognise")
)

KINDS = (SPEAKERS, CHANGERS, TRANSLATORS, RECOGNISERS)


@lru_cache(maxsize=len(KINDS))
def found(kind: Kind) -> Mapping[str, Any]:
    """Return every engine of a kind that could be made, by name.

    Examples
    --------
    >>> "espeak" in found(SPEAKERS)
    True
    """
    engines = {}
    for point in points(kind):
        try:
            engines[point.name] = made(kind, point)
        except EngineError as error:
            _log.warning("%s", error)
    return MappingProxyType(engines)


def points(kind: Kind) -> list[EntryPoint]:
    """Return the entry points of a kind, by name."""
    return sorted(entry_points(group=kind.group), key=lambda point: point.name)


def made(kind: Kind, point: EntryPoint) -> Any:
    """Return the engine of an entry point.

    Raises
    ------
    EngineError
        When it cannot be imported or made, or is no engine of this kind.
    """
    called = f"the {kind.words} {point.name!r} ({point.value})"
    try:
        engine: Any = point.load()()
        if all(inspect.getattr_static(engine, part, None) is not None for part in kind.parts):
            if kind.probe is not None:
                getattr(engine, kind.probe)()
            return engine
    except Exception as error:  # a plug-in may fail in any way, and must not take the others with it
        raise EngineError(f"{called} cannot be used: {type(error).__name__}: {error}") from error
    raise EngineError(f"{called} is no {kind.name.title()}: see speechframe.engines.base")
