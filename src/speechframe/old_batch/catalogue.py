"""The voices of a service, to check rows against before a credit is spent."""

import difflib
import hashlib
import json
from collections.abc import Iterable

from speechframe.spec.check import FieldProblem
from speechframe.spec.locales import language_of, nearest, normalise
from speechframe.spec.speech import GenerateRequest, Voice

VOICE_FIELD = GenerateRequest.wire_names()["voice_id"]
"""What problems of voices call the field."""

_SHOWN = 5


class VoiceBook:
    """A catalogue to look names up in.

    Parameters
    ----------
    voices
        What the voice listing returned (section 2.4).
    listing
        What people call to see them.
    """

    def __init__(self, voices: Iterable[Voice], *, listing: str = "voices()") -> None:
        self._listing = listing
        self.voices = {voice.voice_id: voice for voice in voices}
        self._by_name: dict[str, list[str]] = {}
        for voice_id in self.voices:
            for name in (voice_id, _name_of(voice_id)):
                self._by_name.setdefault(name.casefold(), []).append(voice_id)
        self._checked: dict[tuple[str, str | None, str | None], tuple[str, tuple[FieldProblem, ...]]] = {}

    @property
    def hash(self) -> str:
        """What names this catalogue in run.json."""
        described = {
            voice_id: voice.model_dump(mode="json") for voice_id, voice in sorted(self.voices.items())
        }
        return hashlib.blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=8).hexdigest()

    def resolve(
        self, voice: str, locale: str | None = None, style: str | None = None
    ) -> tuple[str, tuple[FieldProblem, ...]]:
        """Return the full voice id and what is wrong with it, its locale or its style.

        Parameters
        ----------
        voice
            Full id (``<locale>-<name>``) or bare name, in any case.
        locale
            The language asked for, if it is not the voice's own.
        style
            The style asked for.
        """
        asked = (voice, locale, style)
        if asked not in self._checked:
            self._checked[asked] = self._resolve(voice, locale, style)
        return self._checked[asked]

    def _resolve(
        self, voice: str, locale: str | None, style: str | None
    ) -> tuple[str, tuple[FieldProblem, ...]]:
        found = self._by_name.get(voice.casefold(), [])
        if len(found) != 1:
            return voice, (self._unknown_voice(voice, found),)
        known = self.voices[found[0]]
        problems = [
            p for p in (self._locale_problem(known, locale), self._style_problem(known, locale, style)) if p
        ]
        return known.voice_id, tuple(problems)

    def _unknown_voice(self, voice: str, found: list[str]) -> FieldProblem:
        if found:
            return FieldProblem(VOICE_FIELD, "names more than one voice", voice, ", ".join(found))
        names = {*self.voices, *map(_name_of, self.voices)}
        close = difflib.get_close_matches(voice, sorted(names), n=_SHOWN, cutoff=0.5)
        same_locale = (
            [v for v in self.voices if v.startswith(voice.rpartition("-")[0] + "-")] if "-" in voice else []
        )
        offered = list(dict.fromkeys([*close, *same_locale]))[:_SHOWN]
        allowed = (
            f"nearest: {', '.join(offered)}"
            if offered
            else f"one of {len(self.voices)} voices; see {self._listing}"
        )
        return FieldProblem(VOICE_FIELD, "is no known voice", voice, allowed)

    @staticmethod
    def _locale_problem(voice: Voice, locale: str | None) -> FieldProblem | None:
        if locale is None or not voice.supported_locales:
            return None
        spoken = {_normal(tag): tag for tag in voice.supported_locales}
        if _normal(locale) in spoken:
            return None
        close = nearest(locale, list(voice.supported_locales)) or sorted(voice.supported_locales)
        return FieldProblem(
            "locale", f"is not spoken by {voice.voice_id}", locale, f"nearest: {', '.join(close[:_SHOWN])}"
        )

    @staticmethod
    def _style_problem(voice: Voice, locale: str | None, style: str | None) -> FieldProblem | None:
        if style is None:
            return None
        wanted = _normal(locale or voice.locale or "")
        details = [d for tag, d in voice.supported_locales.items() if _normal(tag) == wanted]
        if not details:
            return None
        styles = details[0].available_styles
        if style in styles:
            return None
        close = difflib.get_close_matches(style, styles, n=_SHOWN, cutoff=0.4) or styles
        return FieldProblem(
            "style", f"is no style of {voice.voice_id}", style, ", ".join(close) or "no style at all"
        )

    def locale_of(self, voice_id: str) -> str | None:
        """Return a voice's own locale."""
        voice = self.voices.get(voice_id)
        return voice.locale if voice else None


def _name_of(voice_id: str) -> str:
    return voice_id.rpartition("-")[2]


def _normal(tag: str) -> str:
    try:
        normal = normalise(tag)
    except ValueError:
        return tag
    return normal if "-" in normal else language_of(normal)
