"""Which languages the installed engines can dub from and into."""

from collections.abc import Iterable, Mapping
from itertools import chain

from speechframe.engines.base import EngineVoice, Recogniser
from speechframe.engines.registry import CatalogueEntry, catalogue
from speechframe.engines.translation import Routes, is_same_language
from speechframe.errors import EngineError
from speechframe.spec.locales import display_name, language_of
from speechframe.spec.speech import Model

__all__ = ["recogniser", "sources", "targets", "voices"]


def voices() -> dict[str, CatalogueEntry]:
    """Return the voices of all catalogues by full id."""
    return dict(chain.from_iterable(catalogue(model).items() for model in Model))


def recogniser(found: Mapping[str, Recogniser]) -> Recogniser | None:
    """Return the first recogniser that is installed with a model; None where there is none."""
    for each in found.values():
        try:
            _ = each.version
        except EngineError:
            continue
        return each
    return None


def sources(
    routes: Routes, recognisers: Mapping[str, Recogniser], known: Iterable[EngineVoice]
) -> dict[str, str]:
    """Return the locales a medium can be in, and what each is called; none without a recogniser.

    Parameters
    ----------
    routes
        Of the installed translators: what leads nowhere is no source.
    recognisers
        What is installed.
    known
        Whose locales are looked through.
    """
    if recogniser(recognisers) is None:
        return {}
    languages = {language_of(route.locales[0]) for route in routes.supported()}
    return _named(locale for locale in _locales(known) if language_of(locale) in languages)


def targets(routes: Routes, known: Iterable[EngineVoice]) -> dict[str, str]:
    """Return the locales that some voice speaks and some translation leads to, and what each is called.

    A translation into another region's way of writing counts: its reader is warned.
    """
    reached = {route.target for route in routes.supported()}
    return _named(
        locale for locale in _locales(known) if any(is_same_language(locale, target) for target in reached)
    )


def _locales(known: Iterable[EngineVoice]) -> list[str]:
    return sorted({locale for voice in known for locale in voice.supported_locales})


def _named(locales: Iterable[str]) -> dict[str, str]:
    return {locale: display_name(locale) for locale in locales}
