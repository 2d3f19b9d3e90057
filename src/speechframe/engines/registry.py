"""The engines, their voices and pairs of languages, and the report of the command `doctor` on each engine.

Everything that an engine returns is checked, because a plug-in may be wrong. A voice or pair that cannot be
used is left out, and a sentence about it goes to the log or to `doctor`.
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

# End of the sentence about a voice that is left out because another voice has the same name.
_SAME_NAME_ENDING = " has the name"


class CatalogueEntry(NamedTuple):
    """A voice and the name of the engine that has it."""

    voice: EngineVoice
    engine: str


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The report of `doctor` on one engine.

    ``kind`` is the name of one of :data:`kinds.KINDS`. ``package`` is the package with the entry point.
    ``voices``, ``locales`` and ``pairs`` are numbers. ``problem`` is None if the engine works. Otherwise
    ``problem`` names the missing or broken part, and ``command`` is the shell command that helps.
    ``left_out`` has a sentence for each voice, model or file that cannot be used, and for each engine of the
    same name.
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
        """True if the engine can be used."""
        return self.problem is None

    @property
    def is_missing(self) -> bool:
        """True if the engine is only not installed. False if it works or is broken."""
        command = self.command or ""
        return command.startswith(("pip install ", "apt install ")) and "--upgrade" not in command


def load_speakers() -> Mapping[str, Speaker]:
    """Return every speech engine that can be constructed, by name. Its library may still be missing.

    Examples
    --------
    >>> "espeak" in load_speakers()
    True
    """
    return kinds.load_engines(kinds.SPEAKERS)


def load_changers() -> Mapping[str, Changer]:
    """Return every voice changer that can be constructed, by name."""
    return kinds.load_engines(kinds.CHANGERS)


def load_translators() -> Mapping[str, Translator]:
    """Return every translation engine that can be constructed, by name."""
    return kinds.load_engines(kinds.TRANSLATORS)


def load_recognisers() -> Mapping[str, Recogniser]:
    """Return every speech recogniser that can be constructed, by name."""
    return kinds.load_engines(kinds.RECOGNISERS)


def find_speaker(name: str) -> Speaker:
    """Return the speech engine of this name, or raise EngineFault if there is none any more."""
    try:
        return load_speakers()[name]
    except KeyError:
        raise EngineFault(f"the speech engine {name!r} cannot be used any more") from None


def list_voices(name: str, engine: Speaker) -> tuple[tuple[EngineVoice, ...], tuple[str, ...]]:
    """Return the voices of an engine that can be used, and a sentence for each voice and file left out."""
    listed, left_out = _list_entries(name, engine, engine.voices)
    voices: dict[str, EngineVoice] = {}
    for voice in listed:
        if problem := _find_problem(voice, _find_voice_problem):
            left_out.append(f"a voice of {name} is left out: {problem}")
        elif voice.voice_id in voices:
            left_out.append(f"voice {voice.voice_id} of {name} is left out: it is listed twice")
        else:
            voices[voice.voice_id] = voice
    return tuple(voices.values()), tuple(left_out)


def list_pairs(name: str, engine: Translator) -> tuple[tuple[TranslationPair, ...], tuple[str, ...]]:
    """Return the pairs of an engine that can be used, and a sentence for each pair and file left out."""
    listed, left_out = _list_entries(name, engine, engine.pairs)
    pairs = []
    for pair in listed:
        if problem := _find_problem(pair, _find_pair_problem):
            left_out.append(f"a pair of {name} is left out: {problem}")
        else:
            pairs.append(pair)
    return tuple(pairs), tuple(left_out)


def _list_entries(
    name: str, engine: Any, listing: Callable[[], Sequence[Any]]
) -> tuple[list[Any], list[str]]:
    """Return the result of `listing` as a list, and the sentences of the engine's method ``left_out``.

    If the engine raises an error, the list is empty, and the sentences contain the error.
    """
    try:
        left_out = [str(message) for message in getattr(engine, "left_out", tuple)()]
        return list(listing()), left_out
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as in kinds.made
        return [], [f"all of {name} is left out: {type(error).__name__}: {error}"]


def _find_problem(entry: Any, find: Callable[[Any], str | None]) -> str | None:
    """Return the problem that `find` returns for an entry, or the error that it raises, or None."""
    try:
        return find(entry)
    except Exception as error:  # noqa: BLE001 - an entry of a plug-in may be anything
        return f"{type(error).__name__}: {error}"


def _find_voice_problem(entry: Any) -> str | None:
    """Return the reason why a voice cannot be in a catalogue, or None."""
    if not isinstance(entry, EngineVoice):
        return f"it is of type {type(entry).__name__}, not EngineVoice"
    voice: Any = entry  # a plug-in may have put anything into its fields
    quoted_id = f"{voice.voice_id!r:.80}"
    if not all(map(_is_text, (voice.voice_id, voice.display_name, voice.description, voice.locale))):
        return f"{quoted_id} has a name, a description or a locale that is not text"
    if not voice.voice_id.startswith(f"{voice.locale}-") or not voice.name.strip():
        return f"{quoted_id} must be its locale, a hyphen and a name ({voice.locale!r:.80})"
    if problem := _find_locales_problem(voice):
        return f"{quoted_id} {problem}"
    if not isinstance(voice.gender, Gender):
        return f"{quoted_id} has the gender {voice.gender!r:.80}; allowed: {', '.join(Gender)}"
    if not voice.models or not set(voice.models) <= set(Model):
        return f"{quoted_id} must be in one of the catalogues {', '.join(Model)}"
    texts = voice.licence or "", voice.output_terms or ""
    if not isinstance(voice.kind, VoiceKind | None) or not all(map(_is_text, texts)):
        return f"{quoted_id} has a kind, a licence or output terms of another type"
    if voice.bandwidth_hz is not None and not (type(voice.bandwidth_hz) is int and voice.bandwidth_hz > 0):
        return f"{quoted_id} has a bandwidth of {voice.bandwidth_hz!r:.80}; allowed: a positive integer in Hz"
    return None


def _find_locales_problem(voice: Any) -> str | None:
    """Return the problem of a voice's locales and styles, or None."""
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


def _find_pair_problem(entry: Any) -> str | None:
    """Return the reason why a pair cannot be used, or None."""
    if not isinstance(entry, TranslationPair):
        return f"it is of type {type(entry).__name__}, not TranslationPair"
    pair: Any = entry  # a plug-in may have put anything into its fields
    if not _is_locale(pair.source) or not _is_locale(pair.target):
        return f"{pair.source!r:.80} and {pair.target!r:.80} must be locales or languages"
    return None if isinstance(pair.quality, Quality) else f"{pair.quality!r:.80} is not a Quality"


def _is_text(value: Any) -> bool:
    """Return whether a value is a str that can be sent. Half a surrogate pair cannot be sent."""
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


@lru_cache(maxsize=1024)
def _is_locale(tag: Any) -> bool:
    """Return whether a value is a locale or a language."""
    try:
        return isinstance(tag, str) and bool(locales.normalise(tag))
    except ValueError:
        return False


@lru_cache(maxsize=16)
def build_catalogue(model: Model, engines: frozenset[str] | None = None) -> Mapping[str, CatalogueEntry]:
    """Return the voices of a model (``gen2`` or ``falcon-2``) by full id. Log each voice that is left out.

    Each model has its own catalogue (section 4.1 of the service document). If two engines have a voice of the
    same name, the voice of the first engine by name is kept.

    Parameters
    ----------
    model
        The model.
    engines
        Names of the engines to use. None (default) uses every engine that can be constructed, even if its
        library is missing. A voice of an engine that works may then be left out because of its name.

    Examples
    --------
    >>> voice, engine = build_catalogue(Model.GEN2)["en-US-nora"]
    >>> voice.display_name, engine
    ('Nora', 'espeak')
    """
    found, left_out = _sort_voices(model, engines)
    for message in left_out:
        warn_once(message)
    return found


def describe_duplicates(model: Model) -> tuple[str, ...]:
    """Return a sentence for each voice of working engines that is left out because of its name."""
    working_here = frozenset(load_working(kinds.SPEAKERS))
    left_out = _sort_voices(model, working_here)[1]
    return tuple(message for message in left_out if message.endswith(_SAME_NAME_ENDING))


@lru_cache(maxsize=16)
def _sort_voices(
    model: Model, engines: frozenset[str] | None
) -> tuple[Mapping[str, CatalogueEntry], tuple[str, ...]]:
    """Return the catalogue of a model, and a sentence for each voice and file that is left out."""
    found: dict[str, CatalogueEntry] = {}
    taken: dict[str, str] = {}
    left_out: list[str] = []
    for engine, speaker in load_speakers().items():
        if engines is not None and engine not in engines:
            continue
        voices, sentences = list_voices(engine, speaker)
        left_out += sentences
        for voice in voices:
            key = _fold_name(voice.name)
            if model not in voice.models:
                continue
            # Voices of one engine may share a name in different locales. Then only their full ids are unique.
            if taken.get(key, engine) != engine or _fold_name(voice.voice_id) in taken:
                left_out.append(
                    f"voice {voice.voice_id} of {engine} is left out: {taken[key]}{_SAME_NAME_ENDING}"
                )
                continue
            taken[key] = taken[_fold_name(voice.voice_id)] = engine
            found[voice.voice_id] = CatalogueEntry(voice, engine)
    return MappingProxyType(found), tuple(left_out)


@lru_cache(maxsize=len(kinds.KINDS))
def load_working(kind: kinds.EngineKind) -> Mapping[str, Any]:
    """Return the engines of a kind that work, by name. Loads their libraries, to be sure."""
    works = {report.name for report in report_engines(kind.name) if report.works}
    return MappingProxyType(
        {name: engine for name, engine in kinds.load_engines(kind).items() if name in works}
    )


def find_voice(name_or_id: str, model: Model, engines: frozenset[str] | None = None) -> CatalogueEntry:
    """Return a voice by its full id, or by its name if no other voice has it, in upper or lower case.

    Parameters
    ----------
    name_or_id
        The id, such as ``en-US-nora``, or the name, such as ``nora``.
    model, engines
        As in :func:`build_catalogue`.

    Raises
    ------
    KeyError
        If there is no such voice. :func:`find_similar_voices` returns similar voices.

    Examples
    --------
    >>> find_voice("nora", Model.GEN2).voice.voice_id
    'en-US-nora'
    """
    return _index_catalogue(model, engines)[_fold_name(name_or_id)]


def find_similar_voices(
    name_or_id: str, model: Model, engines: frozenset[str] | None = None, *, count: int = 3
) -> list[str]:
    """Return at most `count` full ids of voices whose id or name is similar to a name, most similar first.

    Examples
    --------
    >>> find_similar_voices("en-US-norah", Model.GEN2)[0]
    'en-US-nora'
    """
    known = _index_catalogue(model, engines)
    wanted = _fold_name(name_or_id)
    close = difflib.get_close_matches(wanted, known, n=3 * count, cutoff=0.6)
    prefixed = [key for key in known if wanted and key.startswith(wanted)]
    ids = [known[key].voice.voice_id for key in (*close, *prefixed)]
    return list(dict.fromkeys(ids))[:count]


def report_engines(kind: str | None = None, name: str | None = None) -> tuple[EngineReport, ...]:
    """Return a report on every engine with an entry point, whether the engine works or not.

    Parameters
    ----------
    kind, name
        Report only on engines of this kind or this name. Other engines are not imported. None (default)
        selects all.

    Examples
    --------
    >>> [report.name for report in report_engines("speaker", "espeak")]
    ['espeak']
    """
    return tuple(
        _report_engine(each, named)
        for each in kinds.KINDS
        if kind in {None, each.name}
        for point_name, named in kinds.group_entry_points(each).items()
        if name in {None, point_name}
    )


def _report_engine(kind: kinds.EngineKind, named: Sequence[EntryPoint]) -> EngineReport:
    """Return the report on the first of the entry points `named` the same. Loads the engine's library."""
    point = named[0]
    package = point.dist.name if point.dist else "?"
    shadowed = tuple(kinds.describe_shadowed(kind, named))
    report = EngineReport(kind.name, point.name, package, None, left_out=shadowed)
    try:
        engine = kinds.make_engine(kind, point)
    except EngineFault as error:
        return replace(report, problem=str(error), command=f"pip install --upgrade {package}")
    report = _add_counts(kind, engine, report)
    try:
        version = _read_version(engine)
    except EngineError as error:
        _, _, command = str(error).rpartition(": ")
        return replace(report, problem=str(error), command=command)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - as in kinds.made
        message = (
            f"the {kind.label} {point.name!r} ({point.value}) cannot be used: {type(error).__name__}: {error}"
        )
        return replace(report, problem=message, command=f"pip install --upgrade {package}")
    return replace(report, version=version)


def _read_version(engine: Any) -> str:
    """Return the version of an engine, or raise TypeError if it is not text."""
    version = engine.version
    if not isinstance(version, str) or not version:
        raise TypeError(f"the version is {version!r:.80}, not text")
    return version


def _add_counts(kind: kinds.EngineKind, engine: Any, report: EngineReport) -> EngineReport:
    """Return a report with the numbers of voices, locales and pairs of an engine."""
    if kind is kinds.SPEAKERS:
        voices, left_out = list_voices(report.name, engine)
        locales_count = len({voice.locale for voice in voices})
        return replace(report, voices=len(voices), locales=locales_count, left_out=report.left_out + left_out)
    if kind is kinds.TRANSLATORS:
        pairs, left_out = list_pairs(report.name, engine)
        return replace(report, pairs=len(pairs), left_out=report.left_out + left_out)
    return report


@lru_cache(maxsize=16)
def _index_catalogue(model: Model, engines: frozenset[str] | None) -> Mapping[str, CatalogueEntry]:
    """Return the voices of a catalogue by folded id, and by folded name if no other voice has the name."""
    entries = build_catalogue(model, engines).values()
    counts = Counter(_fold_name(entry.voice.name) for entry in entries)
    return {name: entry for entry in entries if counts[name := _fold_name(entry.voice.name)] == 1} | {
        _fold_name(entry.voice.voice_id): entry for entry in entries
    }


def _fold_name(name_or_id: str) -> str:
    """Return a name or an id in lower case, with hyphens for underscores."""
    return name_or_id.strip().replace("_", "-").casefold()
