"""The engines, the report of `doctor` on each, and the voices of the speech engines.

Nothing that a plug-in returns is believed: a voice or a pair that cannot be used is left out, and named.
"""

import difflib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import Any, NamedTuple

from speechframe.engines import kinds
from speechframe.engines.base import (
    Changer,
    EngineVoice,
    Quality,
    Recogniser,
    Speaker,
    TranslationPair,
    Translator,
)
from speechframe.engines.faults import warn_once
from speechframe.errors import EngineError, EngineFault
from speechframe.spec import locales
from speechframe.spec.speech import Gender, Model, StyleDetails, VoiceKind

__all__ = [
    "CatalogueEntry",
    "EngineReport",
    "catalogue",
    "changers",
    "describe",
    "duplicates",
    "find_voice",
    "nearest_voices",
    "pairs_of",
    "recognisers",
    "speaker",
    "speakers",
    "translators",
    "voices_of",
    "working",
]

_HAS_THE_NAME = " has the name"


class CatalogueEntry(NamedTuple):
    """A voice and the name of the engine that has it."""

    voice: EngineVoice
    engine: str


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The report of `doctor` on one engine.

    ``kind`` is a name of :data:`kinds.KINDS`. ``problem`` is None when the engine works. Otherwise it names
    the missing or broken part, and ``command`` is the remedy. ``left_out`` has a sentence for each voice,
    model and file that the engine offers without.
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
    left_out: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Whether the engine can be used."""
        return self.problem is None

    @property
    def is_missing(self) -> bool:
        """Whether the engine is not installed, so that nothing is broken."""
        command = self.command or ""
        return command.startswith(("pip install ", "apt install ")) and "--upgrade" not in command


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


def speaker(name: str) -> Speaker:
    """Return the speech engine of this name; raises EngineFault if it cannot be used any more."""
    try:
        return speakers()[name]
    except KeyError:
        raise EngineFault(f"the speech engine {name!r} cannot be used any more") from None


def voices_of(name: str, engine: Speaker) -> tuple[tuple[EngineVoice, ...], tuple[str, ...]]:
    """Return the voices of an engine that can be used, and a sentence for each voice and file left out."""
    listed, left_out = _listed(name, engine, engine.voices)
    voices: dict[str, EngineVoice] = {}
    for voice in listed:
        if problem := _problem_of(voice, _problem_of_voice):
            left_out.append(f"a voice of {name} is left out: {problem}")
        elif voice.voice_id in voices:
            left_out.append(f"voice {voice.voice_id} of {name} is left out: it is listed twice")
        else:
            voices[voice.voice_id] = voice
    return tuple(voices.values()), tuple(left_out)


def pairs_of(name: str, engine: Translator) -> tuple[tuple[TranslationPair, ...], tuple[str, ...]]:
    """Return the pairs of an engine that can be used, and a sentence for each pair and file left out."""
    listed, left_out = _listed(name, engine, engine.pairs)
    pairs = []
    for pair in listed:
        if problem := _problem_of(pair, _problem_of_pair):
            left_out.append(f"a pair of {name} is left out: {problem}")
        else:
            pairs.append(pair)
    return tuple(pairs), tuple(left_out)


def _listed(name: str, engine: Any, listing: Callable[[], Sequence[Any]]) -> tuple[list[Any], list[str]]:
    """Return a list of an engine, and the sentences of its method ``left_out``, if it has one."""
    try:
        left_out = [str(words) for words in getattr(engine, "left_out", tuple)()]
        return list(listing()), left_out
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as in kinds.made
        return [], [f"all of {name} is left out: {type(error).__name__}: {error}"]


def _problem_of(entry: Any, find: Callable[[Any], str | None]) -> str | None:
    try:
        return find(entry)
    except Exception as error:  # noqa: BLE001 - an entry of a plug-in may be anything
        return f"{type(error).__name__}: {error}"


def _problem_of_voice(entry: Any) -> str | None:
    """Return the reason why a voice cannot stand in a catalogue."""
    if not isinstance(entry, EngineVoice):
        return f"it is of type {type(entry).__name__}, not EngineVoice"
    voice: Any = entry  # a plug-in may have put anything into its fields
    called = f"{voice.voice_id!r:.80}"
    if not all(map(_is_text, (voice.voice_id, voice.display_name, voice.description, voice.locale))):
        return f"{called} has a name, a description or a locale that is not text"
    if not voice.voice_id.startswith(f"{voice.locale}-") or not voice.name.strip():
        return f"{called} must be its locale, a hyphen and a name ({voice.locale!r:.80})"
    if problem := _problem_of_locales(voice):
        return f"{called} {problem}"
    if not isinstance(voice.gender, Gender):
        return f"{called} has the gender {voice.gender!r:.80}; allowed: {', '.join(Gender)}"
    if not voice.models or not set(voice.models) <= set(Model):
        return f"{called} must be in one of the catalogues {', '.join(Model)}"
    texts = voice.licence or "", voice.output_terms or ""
    if not isinstance(voice.kind, VoiceKind | None) or not all(map(_is_text, texts)):
        return f"{called} has a kind, a licence or output terms of another type"
    if voice.bandwidth_hz is not None and not (type(voice.bandwidth_hz) is int and voice.bandwidth_hz > 0):
        return f"{called} has a bandwidth of {voice.bandwidth_hz!r:.80}; allowed: a positive integer in Hz"
    return None


def _problem_of_locales(voice: Any) -> str | None:
    if not isinstance(voice.supported_locales, Mapping) or voice.locale not in voice.supported_locales:
        return "must have its own locale among supported_locales"
    for locale, details in voice.supported_locales.items():
        if not _is_locale(locale):
            return f"has the locale {locale!r:.80}, which is not a locale such as en-US"
        if not isinstance(details, StyleDetails) or not details.available_styles:
            return f"must have styles in {locale}"
        if not all(map(_is_text, (*details.available_styles, details.detail or ""))):
            return f"has a style in {locale} that is not text"
    return None


def _problem_of_pair(entry: Any) -> str | None:
    """Return the reason why a pair cannot be used."""
    if not isinstance(entry, TranslationPair):
        return f"it is of type {type(entry).__name__}, not TranslationPair"
    pair: Any = entry  # same
    if not _is_locale(pair.source) or not _is_locale(pair.target):
        return f"{pair.source!r:.80} and {pair.target!r:.80} must be locales or languages"
    return None if isinstance(pair.quality, Quality) else f"{pair.quality!r:.80} is not a Quality"


def _is_text(value: Any) -> bool:
    """Return whether a value is text that can be sent: half a surrogate pair cannot."""
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


@lru_cache(maxsize=1024)
def _is_locale(tag: Any) -> bool:
    try:
        return isinstance(tag, str) and bool(locales.normalise(tag))
    except ValueError:
        return False


@lru_cache(maxsize=16)
def catalogue(model: Model, engines: frozenset[str] | None = None) -> Mapping[str, CatalogueEntry]:
    """Return the voices of one model generation by full id. Each generation has its own (section 4.1).

    If two engines have a voice of the same name, the first engine by name keeps it.

    Parameters
    ----------
    model
        The generation.
    engines
        Names of the engines that count; None is every engine that can be made. Of those, an engine whose
        library is missing would still keep its names.

    Examples
    --------
    >>> voice, engine = catalogue(Model.GEN2)["en-US-nora"]
    >>> voice.display_name, engine
    ('Nora', 'espeak')
    """
    found, left_out = _sorted_out(model, engines)
    for words in left_out:
        warn_once(words)
    return found


def duplicates(model: Model) -> tuple[str, ...]:
    """Return a sentence for each voice that a catalogue leaves out because of its name."""
    working_here = frozenset(working(kinds.SPEAKERS))
    return tuple(words for words in _sorted_out(model, working_here)[1] if words.endswith(_HAS_THE_NAME))


@lru_cache(maxsize=16)
def _sorted_out(
    model: Model, engines: frozenset[str] | None
) -> tuple[Mapping[str, CatalogueEntry], tuple[str, ...]]:
    found: dict[str, CatalogueEntry] = {}
    taken: dict[str, str] = {}
    left_out: list[str] = []
    for engine, speaker in speakers().items():
        if engines is not None and engine not in engines:
            continue
        voices, sentences = voices_of(engine, speaker)
        left_out += sentences
        for voice in voices:
            key = _folded(voice.name)
            if model not in voice.models:
                continue
            # Voices of one engine may share a name in different locales. Then only their full ids are unique.
            if taken.get(key, engine) != engine or _folded(voice.voice_id) in taken:
                left_out.append(
                    f"voice {voice.voice_id} of {engine} is left out: {taken[key]}{_HAS_THE_NAME}"
                )
                continue
            taken[key] = taken[_folded(voice.voice_id)] = engine
            found[voice.voice_id] = CatalogueEntry(voice, engine)
    return MappingProxyType(found), tuple(left_out)


@lru_cache(maxsize=len(kinds.KINDS))
def working(kind: kinds.Kind) -> Mapping[str, Any]:
    """Return the engines of a kind that work, by name. This loads their libraries."""
    works = {report.name for report in describe(kind.name) if report.works}
    return MappingProxyType({name: engine for name, engine in kinds.found(kind).items() if name in works})


def find_voice(name_or_id: str, model: Model, engines: frozenset[str] | None = None) -> CatalogueEntry:
    """Return a voice by its full id, or by its name alone if no other voice has it, in any case.

    Parameters
    ----------
    name_or_id
        The name.
    model, engines
        As in :func:`catalogue`.

    Raises
    ------
    KeyError
        There is no such voice; :func:`nearest_voices` returns similar names.

    Examples
    --------
    >>> find_voice("nora", Model.GEN2).voice.voice_id
    'en-US-nora'
    """
    return _by_name(model, engines)[_folded(name_or_id)]


def nearest_voices(
    name_or_id: str, model: Model, engines: frozenset[str] | None = None, *, count: int = 3
) -> list[str]:
    """Return the full ids of the voices whose id or name is most similar to a name.

    Examples
    --------
    >>> nearest_voices("en-US-norah", Model.GEN2)[0]
    'en-US-nora'
    """
    known = _by_name(model, engines)
    asked = _folded(name_or_id)
    close = difflib.get_close_matches(asked, known, n=3 * count, cutoff=0.6)
    beginning = [key for key in known if asked and key.startswith(asked)]
    ids = [known[key].voice.voice_id for key in (*close, *beginning)]
    return list(dict.fromkeys(ids))[:count]


def describe(kind: str | None = None, name: str | None = None) -> tuple[EngineReport, ...]:
    """Return a report on every engine that is installed or announced, working or not.

    Parameters
    ----------
    kind, name
        Report on this kind or name alone. The others are not even imported.

    Examples
    --------
    >>> [report.name for report in describe("speaker", "espeak")]
    ['espeak']
    """
    return tuple(
        _report(each, named)
        for each in kinds.KINDS
        if kind in {None, each.name}
        for point_name, named in kinds.candidates(each).items()
        if name in {None, point_name}
    )


def _report(kind: kinds.Kind, named: Sequence[EntryPoint]) -> EngineReport:
    point = named[0]
    package = point.dist.name if point.dist else "?"
    shadowed = tuple(kinds.shadowed(kind, named))
    report = EngineReport(kind.name, point.name, package, None, left_out=shadowed)
    try:
        engine = kinds.made(kind, point)
    except EngineFault as error:
        return replace(report, problem=str(error), command=f"pip install --upgrade {package}")
    report = _offers(kind, engine, report)
    try:
        version = _version_of(engine)
    except EngineError as error:
        _, _, command = str(error).rpartition(": ")
        return replace(report, problem=str(error), command=command)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as in kinds.made
        words = (
            f"the {kind.words} {point.name!r} ({point.value}) cannot be used: {type(error).__name__}: {error}"
        )
        return replace(report, problem=words, command=f"pip install --upgrade {package}")
    return replace(report, version=version)


def _version_of(engine: Any) -> str:
    version = engine.version
    if not isinstance(version, str) or not version:
        raise TypeError(f"the version is {version!r:.80}, not text")
    return version


def _offers(kind: kinds.Kind, engine: Any, report: EngineReport) -> EngineReport:
    if kind is kinds.SPEAKERS:
        voices, left_out = voices_of(report.name, engine)
        homes = len({voice.locale for voice in voices})
        return replace(report, voices=len(voices), locales=homes, left_out=report.left_out + left_out)
    if kind is kinds.TRANSLATORS:
        pairs, left_out = pairs_of(report.name, engine)
        return replace(report, pairs=len(pairs), left_out=report.left_out + left_out)
    return report


@lru_cache(maxsize=16)
def _by_name(model: Model, engines: frozenset[str] | None) -> Mapping[str, CatalogueEntry]:
    entries = catalogue(model, engines).values()
    counts = Counter(_folded(entry.voice.name) for entry in entries)
    return {name: entry for entry in entries if counts[name := _folded(entry.voice.name)] == 1} | {
        _folded(entry.voice.voice_id): entry for entry in entries
    }


def _folded(name_or_id: str) -> str:
    return name_or_id.strip().replace("_", "-").casefold()
