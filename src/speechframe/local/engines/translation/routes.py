"""The graph of translation pairs, with the best path between two languages, and texts along a path.

A path is as good as its worst step, and rules applied to what rules made are
rough. Of equally good paths the path with the fewest rough steps is taken, then
the shortest. So English goes to Spanish through Portuguese if the direct pair is
bad, and the answer has a warning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from speechframe.engines.base import Quality, TranslationPair, Translator
from speechframe.engines.registry import pairs_of
from speechframe.errors import EngineError, EngineFault
from speechframe.spec import locales
from speechframe.writing.words import counted

__all__ = [
    "Route",
    "RouteStep",
    "Routes",
    "UnknownPair",
    "is_other_region",
    "is_same_language",
    "region_warnings",
    "translated",
]

_RANKS = {quality: rank for rank, quality in enumerate(Quality)}
_MOST_STEPS = 3
_SHOWN_PAIRS = 40

_Written = tuple[str, str]


class UnknownPair(EngineError):
    """No translator here leads from one of these languages to the other.

    Parameters
    ----------
    source, target
        The requested languages. The source is None if no language leads to the target.
    supported
        Every pair that is supported, as ``en>pt-BR``.
    """

    def __init__(self, source: str | None, target: str, supported: Sequence[str]) -> None:
        self.source, self.target, self.supported = source, target, tuple(supported)
        shown = ", ".join(supported[:_SHOWN_PAIRS]) or (
            "none: name folders of Firefox models with speechframe serve --translation-models DIR"
        )
        more = f" and {len(supported) - _SHOWN_PAIRS} more" if len(supported) > _SHOWN_PAIRS else ""
        super().__init__(
            f"there is no translation {f'from {source} ' if source else ''}to {target}; "
            f"supported: {shown}{more}; see `speechframe models {locales.language_of(target)}`"
        )


@dataclass(frozen=True, slots=True)
class RouteStep:
    """One translator's part of a route."""

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
        """The languages on the way, both ends among them."""
        return (self.steps[0].pair.source, *(step.pair.target for step in self.steps))

    @property
    def target(self) -> str:
        """The locale of the translations."""
        return self.steps[-1].pair.target

    @property
    def is_pivoted(self) -> bool:
        """True if it leads through another language."""
        return len(self.steps) > 1

    @property
    def quality(self) -> Quality:
        """The quality of the translations."""
        labels = [step.pair.quality for step in self.steps]
        if labels.count(Quality.RULES) > 1:
            return Quality.ROUGH
        return max(labels, key=_RANKS.__getitem__)

    def __str__(self) -> str:
        """Return the languages, such as ``en>pt-BR>es``."""
        return ">".join(self.locales)


def is_same_language(one: str, other: str) -> bool:
    """Return whether two locales are one language in one script.

    Examples
    --------
    >>> is_same_language("en-GB", "en"), is_same_language("zh-TW", "zh-CN")
    (True, False)
    """
    return _written(one) == _written(other)


class Routes:
    """The best routes between all languages of some translators.

    Parameters
    ----------
    translators
        Name to translator, as :func:`speechframe.engines.registry.translators` has them. Their pairs are
        read once. A pair that cannot be used is left out.

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
            for pair in pairs_of(name, engine)[0]
        ]
        self._from: dict[_Written, list[RouteStep]] = {}
        for step in steps:
            self._from.setdefault(_written(step.pair.source), []).append(step)

    @cached_property
    def _best(self) -> dict[_Written, dict[str, Route]]:
        return {source: self._best_from(source) for source in self._from}

    def _best_from(self, source: _Written) -> dict[str, Route]:
        best: dict[str, Route] = {}

        def walk(steps: tuple[RouteStep, ...], visited: frozenset[_Written]) -> None:
            for step in self._from.get(_written(steps[-1].pair.target) if steps else source, ()):
                there = _written(step.pair.target)
                if there in visited:
                    continue
                route = Route((*steps, step))
                known = best.get(route.target)
                if known is None or _order(route) < _order(known):
                    best[route.target] = route
                if len(route.steps) < _MOST_STEPS:
                    walk(route.steps, visited | {there})

        walk((), frozenset({source}))
        return best

    def supported(self) -> tuple[Route, ...]:
        """Return the best route of every pair, by source and target."""
        routes = (route for found in self._best.values() for route in found.values())
        return tuple(sorted(routes, key=lambda route: (route.locales[0], route.target)))

    def sources_of(self, target: str) -> tuple[str, ...]:
        """Return the languages from which texts can be translated into `target`."""
        found = (route.locales[0] for route in self.supported() if is_same_language(route.target, target))
        return tuple(dict.fromkeys(found))

    def route(self, source: str, target: str) -> Route:
        """Return the best route between two locales, which need only name their languages.

        The route has the target's region if some route has it. A locale without region stands for any region.
        If only other regions are known, the route has another region, and :func:`region_warnings` returns a
        warning.

        Parameters
        ----------
        source, target
            Locales in any spelling.

        Raises
        ------
        UnknownPair
            No route leads there. The message lists the supported pairs.
        ValueError
            One of the two is not a locale.
        """
        asked = locales.normalise(target)
        found = self._best.get(_written(source), {}).values()
        fitting = [route for route in found if is_same_language(route.target, asked)]
        if not fitting:
            known = sorted({f"{route.locales[0]}>{route.target}" for route in self.supported()})
            raise UnknownPair(locales.normalise(source), asked, known)
        return min(fitting, key=lambda route: (is_other_region(asked, route.target), _order(route)))

    def reach(self, target: str) -> None:
        """Raise :class:`UnknownPair` unless some language can be translated into `target`."""
        if not self.sources_of(target):
            known = sorted({f"{route.locales[0]}>{route.target}" for route in self.supported()})
            raise UnknownPair(None, locales.normalise(target), known)


def is_other_region(asked: str, given: str) -> bool:
    """Return whether a locale is of another region than a requested one. A language alone is of any.

    Examples
    --------
    >>> is_other_region("pt-PT", "pt-BR"), is_other_region("pt", "pt-BR"), is_other_region("en-GB", "en")
    (True, False, False)
    """
    return asked != given and "-" in asked and "-" in given


def region_warnings(source: str | None, target: str, route: Route) -> tuple[str, ...]:
    """Return the warnings for a route of other regions than those that were requested.

    Parameters
    ----------
    source, target
        The requested locales. The source is None if it was found from the text.
    route
        The route.
    """
    told = []
    if source is not None and is_other_region(source, route.locales[0]):
        told.append(f"{source} is not known here; the text was read as {route.locales[0]}")
    if is_other_region(target, route.target):
        told.append(f"{target} is not known here; the translation is in {route.target}")
    return tuple(told)


def translated(
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
        A translator is missing, fails, or does not return one text for each.
    """
    done = list(texts)
    for step in steps:
        engine = translators.get(step.engine)
        if engine is None:
            raise EngineFault(f"the translation engine {step.engine} cannot be used here")
        said = engine.translate(done, step.pair)
        if len(said) != len(done) or not all(isinstance(words, str) for words in said):
            given = counted(len(said), "translation")
            raise EngineFault(f"{step.engine} gave {given} of {counted(len(done), 'text')}")
        done = list(said)
    return done


def _written(tag: str) -> _Written:
    return locales.language_of(tag), locales.script_of(tag)


def _order(route: Route) -> tuple[int, int, int, tuple[str, ...], tuple[str, ...]]:
    names = tuple(step.engine for step in route.steps)
    rough = sum(step.pair.quality is Quality.ROUGH for step in route.steps)
    return _RANKS[route.quality], rough, len(route.steps), route.locales, names
