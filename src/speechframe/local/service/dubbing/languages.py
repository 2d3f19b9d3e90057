"""The locales from and into which this service can dub, and the voices that speak them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import Self

from speechframe.engines.base import EngineVoice
from speechframe.local.dubbing import cast
from speechframe.local.engines.translation.routes import Routes, is_same_language
from speechframe.local.service.http.answers import Refusal, refuse
from speechframe.spec.check import shorten_value
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.dubbing import DestinationLocale, DubbingType, SourceLocale
from speechframe.spec.locales import convert_to_dubbing_spelling, get_display_name, get_language, normalise


@dataclass(frozen=True)
class Languages:
    """The source and target locales of dubs. All are empty if dubbing is not installed completely.

    Parameters
    ----------
    sources, targets
        Locales with hyphens, such as ``en-US``.
    voices
        The voices that can speak in dubs, by full id.
    """

    sources: Sequence[str] = ()
    targets: Sequence[str] = ()
    voices: Mapping[str, EngineVoice] = field(default_factory=dict)

    @classmethod
    def load(cls, routes: Routes, recognisers: Collection[str], speakers: Collection[str]) -> Self:
        """Return the languages that the installed engines can dub.

        A locale is also a target if its language can only be translated in the spelling of another region.
        Dubs into it get a warning.
        """
        if find_spec("av") is None or not recognisers:
            return cls()
        voices = {name: entry.voice for name, entry in cast.list_voices(speakers).items()}
        spoken = sorted({locale for voice in voices.values() for locale in voice.supported_locales})
        understood = {get_language(route.locales[0]) for route in routes.list_supported()}
        reached = {route.target for route in routes.list_supported()}
        sources = [locale for locale in spoken if get_language(locale) in understood]
        targets = [locale for locale in spoken if any(is_same_language(locale, one) for one in reached)]
        return cls(sources, targets, voices) if sources and targets else cls()

    @property
    def listed_sources(self) -> list[SourceLocale]:
        """The sources, as the listing call answers them."""
        return [
            SourceLocale(locale=convert_to_dubbing_spelling(locale), language=get_display_name(locale))
            for locale in self.sources
        ]

    @property
    def listed_targets(self) -> list[DestinationLocale]:
        """The targets, as the listing call answers them. Each supports all types of dubbing."""
        return [
            DestinationLocale(
                locale=convert_to_dubbing_spelling(locale),
                language=get_display_name(locale),
                supports=[*DubbingType],
            )
            for locale in self.targets
        ]

    def check_installed(self) -> None:
        """Refuse with 503 if dubbing is not installed completely."""
        if not self.targets:
            raise Refusal(
                HttpErrorCode.UNAVAILABLE,
                "dubbing needs a speech recogniser, a translation engine and a media decoder, and not all of "
                "them are installed here: pip install 'speechframe[dub]'; see `speechframe models`",
            )

    def check_targets(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return target locales with hyphens and without duplicates. Refuse locales that are not targets."""
        found = tuple(dict.fromkeys(map(normalise, wanted)))
        for locale in found:
            if locale not in self.targets:
                _refuse("target_locales", locale, "is not a target of dubs here", self.targets)
        return found

    def check_source(self, name: str, wanted: str | None, *, is_script: bool = False) -> str | None:
        """Return a source locale with hyphens. Refuse a locale whose language is not a source.

        Any region of a known language is accepted. A script (subtitles that the caller sends) may be
        translated already, so for a script the languages of targets are accepted, too.

        Parameters
        ----------
        name
            Name of the request's field, for the message.
        wanted
            The locale. If the request contains none, this is None and None is returned.
        is_script
            Whether the locale is that of a script.
        """
        known = sorted({*self.sources, *self.targets}) if is_script else self.sources
        if wanted is None:
            return None
        if get_language(wanted) not in map(get_language, known):
            kinds = "neither a source nor a target" if is_script else "not a source"
            _refuse(name, wanted, f"is {kinds} of dubs here", known)
        return normalise(wanted)

    def find_voice_id(self, asked: str) -> str | None:
        """Return the full id of the voice with this id or name, or None if there is no such voice."""
        return self._ids.get(asked.replace("_", "-").casefold())

    @cached_property
    def _ids(self) -> Mapping[str, str]:
        """Full id of each voice, by the id, and by the name if no other voice has it, both in lower case."""
        counts = Counter(voice.name.casefold() for voice in self.voices.values())
        ids = {voice_id.casefold(): voice_id for voice_id in self.voices}
        named = ((voice.name.casefold(), voice_id) for voice_id, voice in self.voices.items())
        return {name: voice_id for name, voice_id in named if counts[name] == 1} | ids


def _refuse(name: str, wanted: str, problem: str, known: Iterable[str]) -> None:
    allowed = ", ".join(map(convert_to_dubbing_spelling, known))
    refuse(f"{name} {problem} (got {shorten_value(convert_to_dubbing_spelling(wanted))}); allowed: {allowed}")
