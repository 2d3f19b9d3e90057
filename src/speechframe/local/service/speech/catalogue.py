"""The catalogues of voices. They resolve the voice, locale and style that a request names."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

from pydantic import TypeAdapter

from speechframe.engines import registry
from speechframe.engines.base import EngineVoice
from speechframe.local.service.http.answers import Refusal
from speechframe.recognition import clarity
from speechframe.spec import locales
from speechframe.spec.changer import ConvertRequest
from speechframe.spec.check import shorten_value
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.socket import VoiceConfig
from speechframe.spec.speech import GenerateRequest, Model, StreamRequest, StyleDetails, Voice, VoiceKind

_SHOWN_CHOICES = 12
"""Largest number of allowed values in one message."""
_MAX_COMPARED_CHARACTERS = 200
"""Characters of an unknown name that are compared with each voice. A longer name would take too much time."""
_DEFAULT_LOCALE = "en-US"
"""Locale of the default voice, if a voice has this locale."""
_MODELS_HINT = "`speechframe models` shows the voices of each language"

_LISTING_ADAPTER = TypeAdapter(list[Voice])


@dataclass(frozen=True)
class ResolvedVoice:
    """The voice, locale and style of a request.

    Parameters
    ----------
    voice
        The voice.
    engine
        Name of the engine that has the voice.
    locale
        One of the locales that the voice supports.
    style
        One of the voice's styles in this locale. None is the plain style.
    """

    voice: EngineVoice
    engine: str
    locale: str
    style: str | None


class Catalogue:
    """The voices of one model.

    Parameters
    ----------
    model
        The model, such as gen2. Each model has its own voices.
    engines
        Names of the engines that work here. Voices of other engines are left out.
    """

    def __init__(self, model: Model, engines: Collection[str]) -> None:
        self._model = model
        self._engines = frozenset(engines)
        self.entries = list(registry.build_catalogue(model, self._engines).values())
        self._voices = [entry.voice for entry in self.entries]
        listed = [_describe_voice(entry.voice, entry.engine) for entry in self.entries]
        self.listing = _LISTING_ADAPTER.dump_json(listed, by_alias=True, exclude_none=True)
        """The voices as JSON, the body of the voice listing."""

    def resolve_voice(
        self, request: GenerateRequest | StreamRequest | VoiceConfig | ConvertRequest
    ) -> ResolvedVoice:
        """Return the voice, locale and style that a request names, or the defaults.

        Raises
        ------
        Refusal
            400 for an unknown voice, locale or style. The message contains the request's name of the field,
            and known values near the given one. 503 if the request names no voice and the model has none.
        """
        names = type(request).get_wire_names()
        asked = request.voice_id or self.default_voice
        try:
            voice, engine = registry.find_voice(asked, self._model, self._engines)
        except KeyError:
            self._refuse_voice(names["voice_id"], asked)
        # A request to the voice changer has only the older field, multi_native_locale.
        asked_locale = None if isinstance(request, ConvertRequest) else request.locale
        field = names["locale" if asked_locale is not None else "multi_native_locale"]
        locale = _resolve_locale(
            voice, field, asked_locale if asked_locale is not None else request.multi_native_locale
        )
        return ResolvedVoice(voice, engine, locale, _resolve_style(voice, locale, request.style))

    @property
    def default_voice(self) -> str:
        """Id of the voice for requests that name no voice (chosen: default-voice).

        Raises
        ------
        Refusal
            503 if no engine here has a voice of this model.
        """
        if not self._voices:
            raise Refusal(
                HttpErrorCode.UNAVAILABLE,
                f"this service has no voice of the model {self._model}; use another model",
            )
        english = (voice for voice in self._voices if voice.locale == _DEFAULT_LOCALE)
        return next(english, self._voices[0]).voice_id

    def _refuse_voice(self, field: str, asked: str) -> NoReturn:
        asked = asked[:_MAX_COMPARED_CHARACTERS]
        ids = [voice.voice_id for voice in self._voices]
        namesakes = [voice.voice_id for voice in self._voices if voice.name.casefold() == asked.casefold()]
        if namesakes:
            _refuse(field, asked, "names more than one voice", namesakes, "use a full id")
        near = registry.find_similar_voices(asked, self._model, self._engines)
        language = asked.replace("_", "-").partition("-")[0].casefold()
        same = [voice_id for voice_id in ids if voice_id.casefold().startswith(f"{language}-")]
        hint = "the voice listing has all; `speechframe models` shows how to add more"
        _refuse(field, asked, "is not a voice of this model", near or same or ids, hint)


@dataclass(frozen=True)
class Catalogues:
    """The catalogue of each model. A voice belongs to one catalogue (rule 5 of section 4.1)."""

    by_model: Mapping[Model, Catalogue]

    @classmethod
    def load(cls, engines: Collection[str]) -> "Catalogues":
        """Return the catalogues with the voices of these engines."""
        return cls({model: Catalogue(model, engines) for model in Model})

    @property
    def fast_engines(self) -> frozenset[str]:
        """Names of the engines that have only formant voices. These speak a line within milliseconds."""
        kinds: dict[str, set[VoiceKind | None]] = {}
        for catalogue in self.by_model.values():
            for entry in catalogue.entries:
                kinds.setdefault(entry.engine, set()).add(entry.voice.kind)
        return frozenset(engine for engine, found in kinds.items() if found == {VoiceKind.FORMANT})


def _describe_voice(voice: EngineVoice, engine: str) -> Voice:
    own = voice.supported_locales[voice.locale]
    return Voice(
        voice_id=voice.voice_id,
        display_name=voice.display_name,
        description=voice.description,
        gender=voice.gender,
        locale=voice.locale,
        supported_locales={
            locale: StyleDetails(available_styles=list(details.available_styles), detail=details.detail)
            for locale, details in voice.supported_locales.items()
        },
        accent=own.detail,
        display_language=locales.get_display_name(locales.get_language(voice.locale)),
        available_styles=list(own.available_styles),
        engine=engine,
        kind=voice.kind,
        licence=voice.licence,
        bandwidth_hz=voice.bandwidth_hz,
        output_terms=voice.output_terms,
        clarity=clarity.find_error_rates(voice.voice_id) or None,
    )


def _resolve_locale(voice: EngineVoice, field: str, asked: str | None) -> str:
    if asked is None:
        return voice.locale
    supported = list(voice.supported_locales)
    try:
        wanted = locales.normalise(asked)
    except ValueError as error:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{field}: {error}; {voice.voice_id} speaks {_join_choices(supported)}",
        ) from None
    if wanted in voice.supported_locales:
        return wanted
    # A language without a region selects the voice's main locale of this language, or else the first one.
    same = [locale for locale in (voice.locale, *supported) if locale.partition("-")[0] == wanted]
    if not same:
        nearest = locales.find_nearest(asked, supported) or supported
        _refuse(field, asked, f"is not spoken by {voice.voice_id}", nearest, _MODELS_HINT)
    return same[0]


def _resolve_style(voice: EngineVoice, locale: str, asked: str | None) -> str | None:
    if asked is None:
        return None
    styles = list(voice.supported_locales[locale].available_styles)
    known = {style.casefold(): style for style in styles}
    found = known.get(asked.casefold())
    if found is None:
        near = get_close_matches(asked.casefold(), known, n=1)
        hint = f"did you mean {known[near[0]]}?" if near else ""
        _refuse("style", asked, f"is not a style of {voice.voice_id} in {locale}", styles, hint)
    return found


def _refuse(field: str, value: str, problem: str, allowed: Iterable[str], hint: str = "") -> NoReturn:
    message = f"{field} {problem} (got {shorten_value(value)}); allowed: {_join_choices(list(allowed))}"
    raise Refusal(HttpErrorCode.INVALID_REQUEST, f"{message}; {hint}" if hint else message)


def _join_choices(choices: list[str]) -> str:
    more = len(choices) - _SHOWN_CHOICES
    return ", ".join(choices[:_SHOWN_CHOICES]) + (f" and {more} more" if more > 0 else "")
