"""Find the best route between two languages, and translate texts along a route.

A route is one translation or a chain of translations, called steps. The quality
of a route is the quality of its worst step. Two rule-based steps make a route
rough (the lowest quality). Among routes of the same quality, the route with the
fewest rough steps is preferred, then the shortest. For example, English is
translated to Spanish through Portuguese if the direct pair is bad.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from speechframe.engines.base import Quality, TranslationPair, Translator
from speechframe.engines.registry import list_pairs
from speechframe.errors import EngineError, EngineFault
from speechframe.spec import locales
from speechframe.writing.words import format_count

_QUALITY_RANKS = {quality: rank for rank, quality in enumerate(Quality)}
"""Quality to rank. 0 is the best."""
_MAX_STEPS = 3
"""Largest number of steps in a route."""
_SHOWN_PAIRS = 40
"""Largest number of pairs in an error message."""

_LanguageAndScript = tuple[str, str]
"""A language and its script."""


class UnknownPair(EngineError):
    """Raised if no route exists between two languages, or none to a target.

    Parameters
    ----------
    source, target
        The requested languages. The source is None if there is no route to the target from any language.
    supported
        The supported pairs, such as ``en>pt-BR``.
    """

    def __init__(self, source: str | None, target: str, supported: Sequence[str]) -> None:
        self.source, self.target, self.supported = source, target, tuple(supported)
        shown = ", ".join(supported[:_SHOWN_PAIRS]) or (
            "none: name folders of Firefox models with speechframe serve --translation-models DIR"
        )
        more = f" and {len(supported) - _SHOWN_PAIRS} more" if len(supported) > _SHOWN_PAIRS else ""
        super().__init__(
            f"there is no translation {f'from {source} ' if source else ''}to {target}; "
            f"supported: {shown}{more}; see `speechframe models {locales.get_language(target)}`"
        )


@dataclass(frozen=True, slots=True)
class RouteStep:
    """One translation of a route: the name of a translator, and its pair."""

    engine: str
    pair: TranslationPair


@dataclass(frozen=True, slots=True)
class Route:
    """A path from one language to another.

    Parameters
    ----------
    steps
        The steps, in order.
    """

    steps: tuple[RouteStep, ...]

    @property
    def locales(self) -> tuple[str, ...]:
        """The languages of the route in order, including source and target."""
        return (self.steps[0].pair.source, *(step.pair.target for step in self.steps))

    @property
    def target(self) -> str:
        """The locale of the translations."""
        return self.steps[-1].pair.target

    @property
    def is_pivoted(self) -> bool:
        """True if the route leads through at least one other language."""
        return len(self.steps) > 1

    @property
    def quality(self) -> Quality:
        """The quality of the translations."""
        labels = [step.pair.quality for step in self.steps]
        if labels.count(Quality.RULES) > 1:
            return Quality.ROUGH
        return max(labels, key=_QUALITY_RANKS.__getitem__)

    def __str__(self) -> str:
        """Return the languages of the route, such as ``en>pt-BR>es``."""
        return ">".join(self.locales)


def is_same_language(one: str, other: str) -> bool:
    """Return True if two locales have the same language and script.

    Examples
    --------
    >>> is_same_language("en-GB", "en"), is_same_language("zh-TW", "zh-CN")
    (True, False)
    """
    return _identify_language(one) == _identify_language(other)


class Routes:
    """The best routes between all languages of some translators.

    Parameters
    ----------
    translators
        Name to translator, as from :func:`speechframe.engines.registry.load_translators`. Their pairs are
        read once. Invalid pairs are left out.

    Examples
    --------
    >>> from speechframe.local.engines.translation.firefox import FirefoxTranslator
    >>> routes = Routes({"firefox": FirefoxTranslator()})
    >>> str(routes.route("en-GB", "pt"))
    'en>pt-BR'
    """

    def __init__(self, translators: Mapping[str, Translator]) -> None:
        steps = [
            RouteStep(name, pair)
            for name, engine in translators.items()
            for pair in list_pairs(name, engine)[0]
        ]
        self._from: dict[_LanguageAndScript, list[RouteStep]] = {}
        for step in steps:
            self._from.setdefault(_identify_language(step.pair.source), []).append(step)

    @cached_property
    def _best(self) -> dict[_LanguageAndScript, dict[str, Route]]:
        return {source: self._find_best_from(source) for source in self._from}

    def _find_best_from(self, source: _LanguageAndScript) -> dict[str, Route]:
        best: dict[str, Route] = {}

        def walk(steps: tuple[RouteStep, ...], visited: frozenset[_LanguageAndScript]) -> None:
            for step in self._from.get(_identify_language(steps[-1].pair.target) if steps else source, ()):
                there = _identify_language(step.pair.target)
                if there in visited:
                    continue
                route = Route((*steps, step))
                known = best.get(route.target)
                if known is None or _rank_route(route) < _rank_route(known):
                    best[route.target] = route
                if len(route.steps) < _MAX_STEPS:
                    walk(route.steps, visited | {there})

        walk((), frozenset({source}))
        return best

    def list_supported(self) -> tuple[Route, ...]:
        """Return the best route of each pair of locales, sorted by source and target."""
        routes = (route for found in self._best.values() for route in found.values())
        return tuple(sorted(routes, key=lambda route: (route.locales[0], route.target)))

    def list_sources(self, target: str) -> tuple[str, ...]:
        """Return the locales from which texts can be translated into the language of `target`."""
        found = (
            route.locales[0] for route in self.list_supported() if is_same_language(route.target, target)
        )
        return tuple(dict.fromkeys(found))

    def route(self, source: str, target: str) -> Route:
        """Return the best route between two locales.

        A route to the region of the target is preferred. A locale without a region accepts any region. If all
        routes lead to other regions, the best of them is returned, and :func:`build_region_warnings` returns
        a warning.

        Parameters
        ----------
        source, target
            Locales in any spelling, with or without a region.

        Raises
        ------
        UnknownPair
            No route exists. The message lists supported pairs.
        ValueError
            `source` or `target` is not a locale.
        """
        asked = locales.normalise(target)
        found = self._best.get(_identify_language(source), {}).values()
        fitting = [route for route in found if is_same_language(route.target, asked)]
        if not fitting:
            known = sorted({f"{route.locales[0]}>{route.target}" for route in self.list_supported()})
            raise UnknownPair(locales.normalise(source), asked, known)
        return min(fitting, key=lambda route: (is_other_region(asked, route.target), _rank_route(route)))

    def check_target(self, target: str) -> None:
        """Raise :class:`UnknownPair` unless some language can be translated into `target`."""
        if not self.list_sources(target):
            known = sorted({f"{route.locales[0]}>{route.target}" for route in self.list_supported()})
            raise UnknownPair(None, locales.normalise(target), known)


def is_other_region(asked: str, given: str) -> bool:
    """Return True if two locales have different regions. A locale without a region fits any region.

    Examples
    --------
    >>> is_other_region("pt-PT", "pt-BR"), is_other_region("pt", "pt-BR"), is_other_region("en-GB", "en")
    (True, False, False)
    """
    return asked != given and "-" in asked and "-" in given


def build_region_warnings(source: str | None, target: str, route: Route) -> tuple[str, ...]:
    """Return a warning for each end of a route whose region differs from the requested region.

    Parameters
    ----------
    source, target
        The requested locales. The source is None if it was detected from the text.
    route
        The route.
    """
    warnings = []
    if source is not None and is_other_region(source, route.locales[0]):
        warnings.append(f"{source} is not known here; the text was read as {route.locales[0]}")
    if is_other_region(target, route.target):
        warnings.append(f"{target} is not known here; the translation is in {route.target}")
    return tuple(warnings)


def translate_along(
    texts: Sequence[str], steps: Sequence[RouteStep], translators: Mapping[str, Translator]
) -> list[str]:
    """Return texts translated along a route, in order.

    Parameters
    ----------
    texts
        The texts.
    steps
        The steps of a route.
    translators
        Name to translator.

    Raises
    ------
    EngineError
        A translator is missing, fails, or does not return one translation for each text.
    """
    done = list(texts)
    for step in steps:
        engine = translators.get(step.engine)
        if engine is None:
            raise EngineFault(f"the translation engine {step.engine} cannot be used here")
        translations = engine.translate(done, step.pair)
        if len(translations) != len(done) or not all(
            isinstance(translation, str) for translation in translations
        ):
            given = format_count(len(translations), "translation")
            raise EngineFault(f"{step.engine} gave {given} of {format_count(len(done), 'text')}")
        done = list(translations)
    return done


def _identify_language(tag: str) -> _LanguageAndScript:
    return locales.get_language(tag), locales.get_script(tag)


def _rank_route(route: Route) -> tuple[int, int, int, tuple[str, ...], tuple[str, ...]]:
    names = tuple(step.engine for step in route.steps)
    rough = sum(step.pair.quality is Quality.ROUGH for step in route.steps)
    return _QUALITY_RANKS[route.quality], rough, len(route.steps), route.locales, names
