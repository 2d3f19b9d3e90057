"""The voices of a service: rows are checked against them before a credit is spent."""

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from speechframe.spec.check import FieldProblem
from speechframe.spec.locales import is_within, language_of, nearest, normalise
from speechframe.spec.speech import Model, Voice

_SHOWN = 5


class Resolved(NamedTuple):
    """What a row's voice, locale and style mean, and what is wrong with them.

    The locale is the one asked for, as the catalogue spells it; without one the voice's own is spoken.
    """

    voice_id: str
    locale: str | None
    spoken: str | None
    problems: tuple[FieldProblem, ...] = ()


class VoiceBook:
    """The voices of a model, as its listing returned them (section 2.4), to look names up in.

    :meth:`resolve` takes a full id (``<locale>-<name>``) or bare name in any case, and the locale and style
    asked for: a language is enough where the voice speaks one locale of it. Of a name
    among the `others`, the voices of other models, it says which model it needs.
    """

    def __init__(
        self,
        voices: Iterable[Voice],
        model: Model = Model.GEN2,
        others: Mapping[Model, Iterable[Voice]] = MappingProxyType({}),
    ) -> None:
        self.voices = {voice.voice_id: voice for voice in voices}
        listing = "voices()" if model is Model.GEN2 else f'voices("{model.value}")'
        self._see = f"see {listing}; each model has voices of its own"
        self._ids: dict[str, list[str]] = {}
        for voice_id in self.voices:
            for name in {voice_id.casefold(), _bare(voice_id).casefold()}:
                self._ids.setdefault(name, []).append(voice_id)
        self._models = {
            name.casefold(): other.value
            for other, listed in others.items()
            for voice in listed
            for name in (voice.voice_id, _bare(voice.voice_id))
        }
        self.resolve = cache(self._resolve)
        described = "\n".join(voice.model_dump_json() for _, voice in sorted(self.voices.items()))
        self.hash = hashlib.blake2b(described.encode(), digest_size=8).hexdigest()

    def _resolve(self, name: str, locale: str | None = None, style: str | None = None) -> Resolved:
        found = self._ids.get(name.casefold(), [])
        if len(found) != 1:
            return Resolved(name, locale, locale, (self._voice_problem(name, found),))
        voice, problems = self.voices[found[0]], []
        tags = list(voice.supported_locales)
        if locale is not None and tags:
            exact = [tag for tag in tags if _normal(tag) == _normal(locale)]
            within = exact or [tag for tag in tags if is_within(tag, locale)]
            if len(within) == 1:
                locale = within[0]
            else:
                words, allowed = (
                    ("is more than one locale of", "one of") if within else ("is not spoken by", "nearest")
                )
                close = ", ".join((within or nearest(locale, tags) or sorted(tags))[:_SHOWN])
                problems.append(
                    FieldProblem("locale", f"{words} {voice.voice_id}", locale, f"{allowed}: {close}")
                )
        spoken = locale or voice.locale
        details = [d for tag, d in voice.supported_locales.items() if _normal(tag) == _normal(spoken or "")]
        if style is not None and details and style not in (styles := details[0].available_styles):
            close = ", ".join(difflib.get_close_matches(style, styles, n=_SHOWN, cutoff=0.4) or styles)
            words = f"is no style of {voice.voice_id}"
            problems.append(FieldProblem("style", words, style, close or "no style at all"))
        return Resolved(voice.voice_id, locale, spoken, tuple(problems))

    def _voice_problem(self, name: str, found: list[str]) -> FieldProblem:
        if found:
            return FieldProblem("voice", "names more than one voice", name, ", ".join(found))
        if other := self._models.get(name.casefold()):
            allowed = f'model="{other}", or another voice; {self._see}'
            return FieldProblem("voice", f"is a voice of {other}", name, allowed)
        names = sorted({*self.voices, *map(_bare, self.voices)})
        close = difflib.get_close_matches(name, names, n=_SHOWN, cutoff=0.5)
        locale, dash, _ = name.rpartition("-")
        siblings = [voice_id for voice_id in self.voices if dash and voice_id.startswith(f"{locale}-")]
        offered = ", ".join(list(dict.fromkeys([*close, *siblings]))[:_SHOWN])
        allowed = f"nearest: {offered}" if offered else f"one of {len(self.voices)} voices"
        return FieldProblem("voice", "is no known voice", name, f"{allowed}; {self._see}")


def _bare(voice_id: str) -> str:
    return voice_id.rpartition("-")[2]


def _normal(tag: str) -> str:
    try:
        normal = normalise(tag)
    except ValueError:
        return tag
    return normal if "-" in normal else language_of(normal)
