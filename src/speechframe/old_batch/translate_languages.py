"""The languages of a translation: their spelling, and which a service translates into which."""

from collections.abc import Mapping, Sequence
from typing import Any

from speechframe.errors import InvalidRows
from speechframe.old_batch.columns import as_list, is_per_row
from speechframe.old_batch.table import problem
from speechframe.spec import locales
from speechframe.spec.check import FieldProblem
from speechframe.spec.translate import TranslateRequest

__all__ = ["SOURCE_FIELD", "TARGET_FIELD", "Languages", "targets_of"]

TARGET_FIELD = TranslateRequest.wire_names()["target_language"]
SOURCE_FIELD = TranslateRequest.wire_names()["source_language"]

_SHOWN = 40


def targets_of(given: Any) -> list[str]:
    """Return the locales to translate into in the house spelling, each once.

    Raises
    ------
    InvalidRows
        When there is none, or one is no language.

    Examples
    --------
    >>> targets_of(["fr_fr", "pt-BR", "FR-fr"]), targets_of("de")
    (['fr-FR', 'pt-BR'], ['de'])
    """
    tags = as_list(given) if is_per_row(given) or isinstance(given, (set, frozenset)) else [given]
    found: list[str] = []
    problems = []
    for tag in tags:
        try:
            found.append(locales.normalise(tag))
        except (ValueError, AttributeError):
            allowed = "a code or locale, such as fr-FR"
            problems.append(problem("targets", "is no language", value=tag, allowed=allowed))
    if not tags:
        problems.append(problem("targets", "is empty", allowed="at least one language, such as fr-FR"))
    if problems:
        raise InvalidRows(problems)
    return list(dict.fromkeys(found))


class Languages:
    """What a service says it translates, on its page of limits; one that says nothing may know any language.

    Parameters
    ----------
    limits
        The page.

    Examples
    --------
    >>> languages = Languages({"translation": {"pairs": [{"source": "en", "target": "pt-BR"}]}})
    >>> languages.of_target("pt-PT"), languages.of_target("fr")[0].allowed
    ((), 'pt-BR')
    >>> languages.of_pair("de", "pt-BR")[0].problem
    'is not translated into pt-BR by this service'
    """

    def __init__(self, limits: Mapping[str, Any]) -> None:
        said = limits.get("translation")
        listed = said.get("pairs") if isinstance(said, Mapping) else None
        self._pairs = [
            (pair["source"], pair["target"])
            for pair in (listed if isinstance(listed, list) else ())
            if isinstance(pair, Mapping) and all(_is_tag(pair.get(name)) for name in ("source", "target"))
        ]
        self._languages = {(_language(source), _language(target)) for source, target in self._pairs}
        self._is_told = isinstance(listed, list)

    def of_target(self, target: str) -> Sequence[FieldProblem]:
        """Return what is wrong with a target; another region of a language is the service's to say."""
        if not self._is_told or any(known == _language(target) for _, known in self._languages):
            return ()
        known = list(dict.fromkeys(locale for _, locale in self._pairs))
        allowed = _listed([*locales.nearest(target, known), *known])
        return (FieldProblem(TARGET_FIELD, "is no language this service translates into", target, allowed),)

    def of_pair(self, source: str, target: str) -> Sequence[FieldProblem]:
        """Return what is wrong with translating from one language into another."""
        if source == target:
            words = f"is {target}, the language that is asked for"
            return (FieldProblem(SOURCE_FIELD, words, source, "another language than the target"),)
        pair = _language(source), _language(target)
        if not self._is_told or pair in self._languages or pair[0] == pair[1]:
            return ()
        known = _listed(one for one, other in self._pairs if _language(other) == pair[1])
        return (
            FieldProblem(SOURCE_FIELD, f"is not translated into {target} by this service", source, known),
        )


def _is_tag(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(locales.normalise(value))
    except ValueError:
        return False


def _language(tag: str) -> str:
    return locales.language_of(tag)


def _listed(tags: Any) -> str:
    unique = list(dict.fromkeys(tags))
    more = f" and {len(unique) - _SHOWN} more" if len(unique) > _SHOWN else ""
    return ", ".join(unique[:_SHOWN]) + more or "no language at all: the service has no translations"
