"""The kinds of engines, and the entry points that name the engines.

A broken plug-in is left out, and a warning in the log names it once. The other engines still work.
"""

import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, distributions, entry_points
from types import MappingProxyType
from typing import Any

from speechframe.engines.base import Capabilities
from speechframe.engines.faults import warn_once
from speechframe.errors import EngineFault

# Among entry points of the same name, one whose value begins with this text is preferred.
_PREFERRED_PREFIX = "speechframe.local.engines."


@dataclass(frozen=True, slots=True)
class EngineKind:
    """A kind of engine.

    Parameters
    ----------
    name
        Name of the kind, such as ``speaker``.
    group
        The group of the entry points of its engines.
    label
        Name of such an engine in messages, such as "speech engine".
    parts
        The attributes that every engine of this kind must have. Their values are not read for the check,
        because reading the version loads the library.
    probe
        Name of a method that must return a list, or the engine is not usable. The method loads no model. None
        if this kind has no such method.
    """

    name: str
    group: str
    label: str
    parts: tuple[str, ...]
    probe: str | None = None


SPEAKERS = EngineKind(
    "speaker",
    "speechframe.speakers",
    "speech engine",
    ("name", "version", "capabilities", "voices", "speak"),
    "voices",
)
CHANGERS = EngineKind("changer", "speechframe.changers", "voice changer", ("name", "version", "change"))
TRANSLATORS = EngineKind(
    "translator",
    "speechframe.translators",
    "translation engine",
    ("name", "version", "pairs", "translate"),
    "pairs",
)
RECOGNISERS = EngineKind(
    "recogniser", "speechframe.recognisers", "speech recogniser", ("name", "version", "recognise")
)

KINDS = (SPEAKERS, CHANGERS, TRANSLATORS, RECOGNISERS)


@lru_cache(maxsize=len(KINDS))
def load_engines(kind: EngineKind) -> Mapping[str, Any]:
    """Return every engine of a kind that can be constructed, by name. Log a warning for each other engine.

    Examples
    --------
    >>> "espeak" in load_engines(SPEAKERS)
    True
    """
    engines: dict[str, Any] = {}
    for name, named in group_entry_points(kind).items():
        for message in describe_shadowed(kind, named):
            warn_once(message)
        try:
            engines[name] = make_engine(kind, named[0])
        except EngineFault as error:
            warn_once(str(error))
    return MappingProxyType(engines)


def list_entry_points(kind: EngineKind) -> list[EntryPoint]:
    """Return the entry points of a kind, sorted by name. Only one entry point of each name is returned.

    An entry point in `_PREFERRED_PREFIX` is preferred, or else the first.
    """
    return [first for first, *_ in group_entry_points(kind).values()]


def group_entry_points(kind: EngineKind) -> dict[str, list[EntryPoint]]:
    """Return all entry points of a kind by name. The first of each name is the one to use."""
    by_name: dict[str, list[EntryPoint]] = {}
    for point in sorted(_read_entry_points(kind.group), key=_make_sort_key):
        by_name.setdefault(point.name, []).append(point)
    return by_name


def _make_sort_key(point: EntryPoint) -> tuple[str, bool]:
    """Return a key that sorts entry points by name, and those in `_PREFERRED_PREFIX` before others."""
    return point.name, not point.value.startswith(_PREFERRED_PREFIX)


def describe_shadowed(kind: EngineKind, points_of_name: Sequence[EntryPoint]) -> list[str]:
    """Return a sentence for each entry point that is left out, because another one has the same name.

    `points_of_name` are the entry points of one name.
    """
    first, *others = points_of_name
    return [
        f"the {kind.label} {point.name!r} ({point.value}) is left out: {first.value} has the name"
        for point in others
    ]


def _read_entry_points(group: str) -> Iterator[EntryPoint]:
    """Yield the entry points of a group. Leave out packages with broken metadata, and log a warning."""
    with contextlib.suppress(Exception):  # some package has broken metadata, which the loop below finds
        yield from entry_points(group=group)
        return
    # Read one package at a time, so that a broken package does not hide the others. This takes ten times as
    # long.
    seen = set()
    for package in distributions():
        try:
            name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
            group_points = (
                [] if name in seen else [point for point in package.entry_points if point.group == group]
            )
        except Exception as error:  # noqa: BLE001 - metadata can be broken in any way
            warn_once(f"the metadata of an installed package is broken ({type(error).__name__}: {error})")
            continue
        seen.add(name)
        yield from group_points


def make_engine(kind: EngineKind, point: EntryPoint) -> Any:
    """Import and make the engine of an entry point, and return the engine.

    Raises
    ------
    EngineFault
        If the engine cannot be imported or made, or is not an engine of this kind.
    """
    described = f"the {kind.label} {point.name!r} ({point.value})"
    try:
        engine: Any = point.load()()
        if all(inspect.getattr_static(engine, part, None) is not None for part in kind.parts):
            _check_engine(kind, engine)
            return engine
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plug-in may fail in any way, even with sys.exit, and the others go on
        raise EngineFault(f"{described} cannot be used: {type(error).__name__}: {error}") from error
    raise EngineFault(f"{described} is not a {kind.name.title()}: see speechframe.engines.base")


def _check_engine(kind: EngineKind, engine: Any) -> None:
    """Raise an error (of any class) if an attribute or a method of the engine has a wrong type or result."""
    if kind.probe is not None:
        answer = getattr(engine, kind.probe)()
        if not isinstance(answer, Sequence):
            raise TypeError(f"{kind.probe}() returned {type(answer).__name__}, not a list")
    if kind is SPEAKERS:
        capabilities = engine.capabilities
        if not isinstance(capabilities, Capabilities):
            raise TypeError(f"capabilities is of type {type(capabilities).__name__}, not Capabilities")
        if capabilities.streaming and not (callable(engine.check) and callable(engine.stream)):
            raise TypeError("an engine that streams has the methods check and stream")
