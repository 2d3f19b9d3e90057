"""The locales of dubs here, the voices that speak them, and both as a request names them."""

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
from speechframe.spec.check import shown
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.dubbing import DestinationLocale, DubbingType, SourceLocale
from speechframe.spec.locales import display_name, dubbing_spelling, language_of, normalise


@dataclass(frozen=True)
class Languages:
    """The two listings. Both are empty if a part that every dub needs is not installed.

    Parameters
    ----------
    sources, targets
        Locales, with hyphens.
    voices
        The voices that speak here, by full id.
    """

    sources: Sequence[str] = ()
    targets: Sequence[str] = ()
    voices: Mapping[str, EngineVoice] = field(default_factory=dict)

    @classmethod
    def load(cls, routes: Routes, recognisers: Collection[str], speakers: Collection[str]) -> Self:
        """Return the languages of the installed engines.

        A translation into the spelling of another region counts, and its reader gets a warning.
        """
        if find_spec("av") is None or not recognisers:
            return cls()
        voices = {name: entry.voice for name, entry in cast.voices(speakers).items()}
        spoken = sorted({locale for voice in voices.values() for locale in voice.supported_locales})
        understood = {language_of(route.locales[0]) for route in routes.supported()}
        reached = {route.target for route in routes.supported()}
        sources = [locale for locale in spoken if language_of(locale) in understood]
        targets = [locale for locale in spoken if any(is_same_language(locale, one) for one in reached)]
        return cls(sources, targets, voices) if sources and targets else cls()

    @property
    def listed_sources(self) -> list[SourceLocale]:
        """The sources as they are answered."""
        return [
            SourceLocale(locale=dubbing_spelling(locale), language=display_name(locale))
            for locale in self.sources
        ]

    @property
    def listed_targets(self) -> list[DestinationLocale]:
        """The targets as they are answered. Each of them supports a review."""
        return [
            DestinationLocale(
                locale=dubbing_spelling(locale), language=display_name(locale), supports=[*DubbingType]
            )
            for locale in self.targets
        ]

    def check_installed(self) -> None:
        """Refuse with 503 if dubbing is not installed. The message names the extra."""
        if not self.targets:
            raise Refusal(
                HttpErrorCode.UNAVAILABLE,
                "dubbing needs a speech recogniser, a translation engine and a decoder of media, and this "
                "service has not all of them: pip install 'speechframe[dub]'; see `speechframe models`",
            )

    def checked_targets(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return target locales with hyphens, each once. Refuse locales that are not targets here."""
        found = tuple(dict.fromkeys(map(normalise, wanted)))
        for locale in found:
            if locale not in self.targets:
                _refuse("target_locales", locale, "is not dubbed into here", self.targets)
        return found

    def checked_source(self, name: str, wanted: str | None, *, is_script: bool = False) -> str | None:
        """Return a source locale with hyphens. Any region of a known language is accepted.

        A script may be translated already. So the language of a target is accepted for a script.
        """
        known = sorted({*self.sources, *self.targets}) if is_script else self.sources
        if wanted is None:
            return None
        if language_of(wanted) not in map(language_of, known):
            _refuse(name, wanted, "is of no dub here" if is_script else "is not dubbed from here", known)
        return normalise(wanted)

    def voice_id(self, asked: str) -> str | None:
        """Return the full id of a voice, found by its id or its name, or None."""
        return self._ids.get(asked.replace("_", "-").casefold())

    @cached_property
    def _ids(self) -> Mapping[str, str]:
        """Full id of each voice, in small letters by its id, and by its name if no other voice has it."""
        counts = Counter(voice.name.casefold() for voice in self.voices.values())
        ids = {voice_id.casefold(): voice_id for voice_id in self.voices}
        named = ((voice.name.casefold(), voice_id) for voice_id, voice in self.voices.items())
        return {name: voice_id for name, voice_id in named if counts[name] == 1} | ids


def _refuse(name: str, wanted: str, problem: str, known: Iterable[str]) -> None:
    allowed = ", ".join(map(dubbing_spelling, known))
    refuse(f"{name} {problem} (got {shown(dubbing_spelling(wanted))}); allowed: {allowed}")
