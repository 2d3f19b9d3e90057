"""Which languages can be dubbed from and into here, and what a request means by one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Self

from speechframe.dubbing import languages
from speechframe.engines.base import EngineVoice, Recogniser
from speechframe.engines.translation import Routes, is_same_language
from speechframe.service.answers import Refusal
from speechframe.spec import locales
from speechframe.spec.check import shown
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.dubbing import DestinationLocale, SourceLocale


@dataclass(frozen=True)
class Languages:
    """The two listings; both are empty where something that every dub needs is not installed.

    Parameters
    ----------
    sources, targets
        Their locales are spelled with underscores.
    """

    sources: tuple[SourceLocale, ...] = ()
    targets: tuple[DestinationLocale, ...] = ()

    @classmethod
    def load(
        cls, routes: Routes, recognisers: Mapping[str, Recogniser], voices: Iterable[EngineVoice]
    ) -> Self:
        """Return what the installed engines can do."""
        if find_spec("av") is None:
            return cls()
        sources = languages.sources(routes, recognisers)
        targets = languages.targets(routes, voices)
        return cls(tuple(sources), tuple(targets)) if sources and targets else cls()

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
        known = [entry.locale for entry in self.targets]
        for locale in wanted:
            if locale not in known:
                _refuse("target_locales", locale, "is not dubbed into here", known)
        return tuple(map(locales.normalise, dict.fromkeys(wanted)))

    def checked_source(self, field: str, wanted: str | None) -> str | None:
        """Return a source locale with hyphens; any region of a language that is understood will do.

        Raises
        ------
        Refusal
            400 for a language that nothing is dubbed from, with those that are.
        """
        known = [entry.locale for entry in self.sources]
        if wanted is not None and not any(is_same_language(wanted, locale) for locale in known):
            _refuse(field, wanted, "is not dubbed from here", known)
        return wanted and locales.normalise(wanted)


def _refuse(field: str, wanted: str, problem: str, known: Sequence[str]) -> None:
    raise Refusal(
        HttpErrorCode.INVALID_REQUEST,
        f"{field} {problem} (got {shown(wanted)}); allowed: {', '.join(known)}",
    )
