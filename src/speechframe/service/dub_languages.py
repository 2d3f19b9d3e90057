"""Which languages can be dubbed from and into here, which voices speak, and what a request means by one."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Self

from speechframe.dubbing import languages
from speechframe.engines.base import EngineVoice, Recogniser
from speechframe.engines.translation import Routes
from speechframe.service.answers import Refusal
from speechframe.spec import locales
from speechframe.spec.check import shown
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.dubbing import DestinationLocale, DubbingType, SourceLocale


@dataclass(frozen=True)
class Languages:
    """The two listings; both are empty where something that every dub needs is not installed.

    Parameters
    ----------
    sources, targets
        Locale, with a hyphen, to its name.
    voices
        The voices that speak here, by full id.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    voices: Mapping[str, EngineVoice] = field(default_factory=dict)

    @classmethod
    def load(cls, routes: Routes, recognisers: Mapping[str, Recogniser], speakers: Container[str]) -> Self:
        """Return what the engines can do that work here."""
        if find_spec("av") is None:
            return cls()
        entries = languages.voices()
        voices = {voice_id: entry.voice for voice_id, entry in entries.items() if entry.engine in speakers}
        sources = languages.sources(routes, recognisers, voices.values())
        targets = languages.targets(routes, voices.values())
        return cls(sources, targets, voices) if sources and targets else cls()

    @property
    def listed_sources(self) -> list[SourceLocale]:
        """The sources as they are answered."""
        return [
            SourceLocale(locale=locales.dubbing_spelling(locale), language=language)
            for locale, language in self.sources.items()
        ]

    @property
    def listed_targets(self) -> list[DestinationLocale]:
        """The targets as they are answered: whatever is made can be reviewed, too."""
        return [
            DestinationLocale(
                locale=locales.dubbing_spelling(locale), language=language, supports=[*DubbingType]
            )
            for locale, language in self.targets.items()
        ]

    def check_installed(self) -> None:
        """Refuse with 503 where nothing can be dubbed.

        Raises
        ------
        Refusal
            With what to install.
        """
        if not self.targets:
            raise Refusal(
                HttpErrorCode.UNAVAILABLE,
                "dubbing needs a speech recogniser, a translation engine and a decoder of media, and this "
                "service has not all of them: pip install 'speechframe[dub]'",
            )

    def checked_targets(self, wanted: Sequence[str]) -> tuple[str, ...]:
        """Return target locales with hyphens, each once.

        Raises
        ------
        Refusal
            400 for one that nothing is dubbed into, with those that are.
        """
        found = dict.fromkeys(map(locales.normalise, wanted))
        for locale in found:
            if locale not in self.targets:
                _refuse("target_locales", locale, "is not dubbed into here", self.targets)
        return tuple(found)

    def checked_source(self, name: str, wanted: str | None, *, is_script: bool = False) -> str | None:
        """Return a source locale with hyphens; any region of a language that is understood will do.

        Parameters
        ----------
        name, wanted
            The field, and what it says.
        is_script
            Whether it is of a script, which may be translated already.

        Raises
        ------
        Refusal
            400 for a language that nothing is dubbed from, with those that are.
        """
        known = {**self.sources, **self.targets} if is_script else self.sources
        if wanted is None:
            return None
        if locales.language_of(wanted) not in map(locales.language_of, known):
            _refuse(name, wanted, "is of no dub here" if is_script else "is not dubbed from here", known)
        return locales.normalise(wanted)

    def voice_id(self, asked: str) -> str | None:
        """Return the full id of a voice, by that or by its name alone; None where there is none."""
        folded = asked.replace("_", "-").casefold()
        found = (
            voice_id
            for voice_id, voice in self.voices.items()
            if folded in {voice_id.casefold(), voice.name.casefold()}
        )
        return next(found, None)


def _refuse(name: str, wanted: str, problem: str, known: Mapping[str, str]) -> None:
    allowed = ", ".join(map(locales.dubbing_spelling, known))
    raise Refusal(
        HttpErrorCode.INVALID_REQUEST,
        f"{name} {problem} (got {shown(locales.dubbing_spelling(wanted))}); allowed: {allowed}",
    )
