"""The voices of a service: rows are checked against them before a credit is spent."""

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speechframe.spec.check import FieldProblem
from speechframe.spec.locales import is_within, language_of, nearest, normalise
from speechframe.spec.speech import Model, Voice

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a row's voice, locale and style mean.

    Parameters
    ----------
    voice_id
        The full id.
    locale
        The locale as the catalogue spells it; None where none was asked for.
    spoken
        The locale that is spoken: the one asked for, or the voice's own.
    problems
        What is wrong, by argument: ``voice``, ``locale``, ``style``.
    """

    voice_id: str
    locale: str | None
    spoken: str | None
    problems: tuple[FieldProblem, ...] = ()


class VoiceBook:
    """A catalogue to look names up in.

    Parameters
    ----------
    voices
        What the voice listing of `model` returned (section 2.4).
    model
        Whose voices they are.
    others
        The voices of other models: a name of theirs is answered with the model it needs.
    """

    def __init__(
        self,
        voices: Iterable[Voice],
        model: Model = Model.GEN2,
        others: Mapping[Model, Iterable[Voice]] | None = None,
    ) -> None:
        self.voices = {voice.voice_id: voice for voice in voices}
        self._listing = "voices()" if model is Model.GEN2 else f'voices("{model.value}")'
        self._ids = _by_name(self.voices)
        self._others = {
            other: _by_name(voice.voice_id for voice in listed) for other, listed in (others or {}).items()
        }
        self._resolved: dict[tuple[str, str | None, str | None], Resolved] = {}

    @property
    def hash(self) -> str:
        """What names this catalogue in run.json."""
        described = {
            voice_id: voice.model_dump(mode="json") for voice_id, voice in sorted(self.voices.items())
        }
        return hashlib.blake2b(json.dumps(described, sort_keys=True).encode(), digest_size=8).hexdigest()

    def resolve(self, voice: str, locale: str | None = None, style: str | None = None) -> Resolved:
        """Return what a voice, and a locale and style for it, mean.

        Parameters
        ----------
        voice
            Full id (``<locale>-<name>``) or bare name, in any case.
        locale
            The locale asked for, if it is not the voice's own. A language is enough where the voice speaks
            one locale of it.
        style
            The style asked for.
        """
        asked = (voice, locale, style)
        if asked not in self._resolved:
            self._resolved[asked] = self._resolve(*asked)
        return self._resolved[asked]

    def _resolve(self, name: str, locale: str | None, style: str | None) -> Resolved:
        found = self._ids.get(name.casefold(), [])
        if len(found) != 1:
            return Resolved(name, locale, locale, (self._voice_problem(name, found),))
        voice = self.voices[found[0]]
        locale, problem = _spoken_locale(voice, locale)
        problems = [problem, _style_problem(voice, locale, style)]
        return Resolved(voice.voice_id, locale, locale or voice.locale, tuple(p for p in problems if p))

    def _voice_problem(self, name: str, found: list[str]) -> FieldProblem:
        if found:
            return FieldProblem("voice", "names more than one voice", name, ", ".join(found))
        for model, ids in self._others.items():
            if name.casefold() in ids:
                return FieldProblem(
                    "voice",
                    f"is a voice of {model.value}",
                    name,
                    f'model="{model.value}", or a voice of {self._listing}',
                )
        names = sorted({*self.voices, *map(_bare, self.voices)})
        close = difflib.get_close_matches(name, names, n=_SHOWN, cutoff=0.5)
        locale, dash, _ = name.rpartition("-")
        siblings = [voice_id for voice_id in self.voices if dash and voice_id.startswith(f"{locale}-")]
        offered = ", ".join(list(dict.fromkeys([*close, *siblings]))[:_SHOWN])
        allowed = (
            f"nearest: {offered}" if offered else f"one of {len(self.voices)} voices; see {self._listing}"
        )
        return FieldProblem("voice", "is no known voice", name, allowed)


def _by_name(voice_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the ids that each id or bare name can mean, by the name in lower case."""
    found: dict[str, list[str]] = {}
    for voice_id in voice_ids:
        for name in dict.fromkeys((voice_id.casefold(), _bare(voice_id).casefold())):
            found.setdefault(name, []).append(voice_id)
    return found


def _bare(voice_id: str) -> str:
    return voice_id.rpartition("-")[2]


def _spoken_locale(voice: Voice, asked: str | None) -> tuple[str | None, FieldProblem | None]:
    """Return the voice's locale that is asked for, as the catalogue spells it, or what is wrong."""
    tags = list(voice.supported_locales)
    if asked is None or not tags:
        return asked, None
    exact = [tag for tag in tags if _normal(tag) == _normal(asked)]
    within = exact or [tag for tag in tags if is_within(tag, asked)]
    if len(within) == 1:
        return within[0], None
    close = within or nearest(asked, tags) or sorted(tags)
    words = f"is more than one locale of {voice.voice_id}" if within else f"is not spoken by {voice.voice_id}"
    return asked, FieldProblem(
        "locale", words, asked, f"{'one of' if within else 'nearest'}: {', '.join(close[:_SHOWN])}"
    )


def _style_problem(voice: Voice, locale: str | None, style: str | None) -> FieldProblem | None:
    wanted = _normal(locale or voice.locale or "")
    details = [d for tag, d in voice.supported_locales.items() if _normal(tag) == wanted]
    if style is None or not details or style in details[0].available_styles:
        return None
    styles = details[0].available_styles
    close = difflib.get_close_matches(style, styles, n=_SHOWN, cutoff=0.4) or styles
    return FieldProblem(
        "style", f"is no style of {voice.voice_id}", style, ", ".join(close) or "no style at all"
    )


def _normal(tag: str) -> str:
    try:
        normal = normalise(tag)
    except ValueError:
        return tag
    return normal if "-" in normal else language_of(normal)
