"""What the installed engines can dub from and into."""

from collections.abc import Iterable, Mapping

from speechframe.engines.base import EngineVoice, Recogniser
from speechframe.engines.translation import Routes, is_same_language
from speechframe.spec import locales
from speechframe.spec.dubbing import DestinationLocale, DubbingType, SourceLocale

__all__ = ["sources", "targets"]


def sources(routes: Routes, recognisers: Mapping[str, Recogniser]) -> list[SourceLocale]:
    """Return the locales that are recognised and can be translated from."""
    if not recognisers:
        return []
    found = sorted({route.locales[0] for route in routes.supported()})
    return [
        SourceLocale(locale=locales.dubbing_spelling(locale), language=locales.display_name(locale))
        for locale in found
    ]


def targets(routes: Routes, voices: Iterable[EngineVoice]) -> list[DestinationLocale]:
    """Return the locales that can be translated into and that some voice speaks."""
    reached = {route.target for route in routes.supported()}
    spoken = sorted({locale for voice in voices for locale in voice.supported_locales})
    return [
        DestinationLocale(
            locale=locales.dubbing_spelling(locale),
            language=locales.display_name(locale),
            supports=list(DubbingType),
        )
        for locale in spoken
        if any(is_same_language(locale, target) for target in reached)
    ]
