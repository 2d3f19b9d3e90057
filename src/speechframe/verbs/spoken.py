"""What verbs have in common whose answers are audio: voices, checks, audio behind an address, records."""

import asyncio
import difflib
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from speechframe.batch.backend import Answer, Attempt, Finding, Record, Request
from speechframe.client import Bounds, Call, Raw, Spoken, Timeouts
from speechframe.client.upload import Body
from speechframe.errors import BadAnswer, SpeechframeError
from speechframe.spec._model import DocumentModel
from speechframe.spec.check import FieldProblem, check
from speechframe.spec.locales import is_within, language_of, nearest, normalise
from speechframe.spec.speech import Model, Voice
from speechframe.store.schema import AUDIO_TYPE, WORDS_TYPE, columns
from speechframe.verbs.judging import SpokenRecord, judge
from speechframe.verbs.service import ServiceBackend

_LIMITS = (Timeouts(), Bounds())
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


class SpokenBackend(ServiceBackend):
    """A backend of calls whose answers are audio, in a voice of `book`, the catalogue of `model`."""

    columns = columns(
        audio=AUDIO_TYPE,
        text=pa.string(),
        word_durations=WORDS_TYPE,
        format=pa.string(),
        sample_rate=pa.int32(),
        channels=pa.int32(),
        audio_seconds=pa.float64(),
    )
    model: Model = Model.GEN2
    book: VoiceBook
    wire_names: Mapping[str, str]  # argument to the field that it fills
    tells_words: bool = True  # whether answers say when each word is heard
    said_field: str = "text"  # of a request: what is heard in its answer

    async def look_up(self) -> Mapping[str, Any]:
        """Ask for the voices of the model."""
        models = sorted(Model, key=lambda model: model is not self.model)
        voices, *others = await asyncio.gather(
            self.client.voices(self.model.value), *map(self._voices_of, models[1:])
        )
        self.book = VoiceBook(voices, self.model, dict(zip(models[1:], others, strict=True)))
        return {"voices": self.book.hash}

    async def _voices_of(self, model: Model) -> list[Voice]:
        with suppress(SpeechframeError):  # a service need not have the model
            return await self.client.voices(model.value)
        return []

    def checked(
        self, kind: type[DocumentModel], fields: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any], list[FieldProblem]]:
        """Return a row's request, its facts, and all that is wrong with its fields and its voice."""
        found = check(kind, fields)
        problems = [self._of_argument(problem) for problem in found.problems]
        place = "locale"
        if values.get(place) is None or place not in kind.model_fields:
            place = "multi_native_locale"
        asked = values.get("voice"), values.get("locale", values.get(place)), values.get("style")
        voice, locale, style = (value if isinstance(value, str) else None for value in asked)
        if voice is None:
            return None, {}, problems
        resolved = self.book.resolve(voice, locale, style)
        problems += resolved.problems
        if found.value is None:
            return None, {}, problems
        meant = {"voice_id": resolved.voice_id, place: resolved.locale}
        if getattr(found.value, "audio_duration", None) == 0:
            meant["audio_duration"] = None  # a length of 0 is ignored
        request: Any = found.value.model_copy(update=meant)
        facts = {
            "model": self.model.value,
            "locale": resolved.spoken,
            "voice_id": resolved.voice_id,
            "format": request.format.value,
        }
        return request, facts, problems

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt, the download of audio behind an address included.

        The address is noted before the download, and an attempt that finds one noted downloads only: the call
        is paid and not made again.
        """
        began = time.monotonic()
        if attempt.noted is not None:
            body, *facts = json.loads(attempt.noted)
            try:
                call, raw = self.call(request), Raw(body.encode(), *facts)
                return await self._with_audio(call, raw, attempt, began)
            except BadAnswer:
                # The address is gone. Where the service bills a repeat once, it is asked for another.
                if attempt.idempotency_key is None:
                    raise
        answer = await super().send(request, attempt)
        call, raw = answer.data
        if call.audio_url(raw) is None:
            return answer
        headers = {name: value for name, value in raw.headers.items() if name.lower().startswith("x-")}
        noted = [raw.body.decode("utf-8", "replace"), headers, raw.trace_id, raw.latency_ms, raw.region]
        await attempt.note(json.dumps(noted).encode())
        return await self._with_audio(call, raw, attempt, began)

    async def _with_audio(self, call: Call[Any], raw: Raw, attempt: Attempt, began: float) -> Answer:
        """Fetch the audio behind an answer, in what is left of the attempt's time."""
        left_s = None if attempt.deadline_s is None else attempt.deadline_s - (time.monotonic() - began)
        audio = await self.client.fetch(
            call.audio_url(raw) or "",
            deadline_s=None if left_s is None else max(0.0, left_s),
            max_bytes=self.max_answer_bytes or call.limits(*_LIMITS)[2],
            admit=attempt.admit,
        )
        return Answer((call, raw, audio), raw.trace_id)

    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return the record of an answer; what is odd beside good audio is among its warnings."""
        call, raw, *fetched = answer.data
        spoken: Spoken = call.decode(raw, audio=fetched[0] if fetched else None)
        answer.balance = spoken.remaining_characters
        name = spoken.format.value
        values = {
            "text": getattr(call.request, self.said_field) or None,
            "word_durations": spoken.words if self.tells_words else None,
            "format": name,
            "sample_rate": spoken.sample_rate_hz,
            "channels": spoken.channels,
            "audio_seconds": spoken.audio_seconds,
        }
        if spoken.transcription is not None:
            values["transcription"] = spoken.transcription
        record = SpokenRecord(
            values,
            spoken.audio,
            f"{request.key}.{name.lower()}",
            list(spoken.warnings),
            answer=spoken,
            asked=call.request,
            clip_seconds=call.body.upload.audio_seconds if isinstance(call.body, Body) else 0.0,
        )
        return [record]

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return what speaks against an answer, by its request and by what is usual for its voice."""
        return judge(record, request.facts, learned) if isinstance(record, SpokenRecord) else []

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the names of the arguments in which two bodies differ."""
        arguments = {wire: name for name, wire in self.wire_names.items()}
        return tuple(arguments.get(name, name) for name in super().differences(before, after))

    def _of_argument(self, problem: FieldProblem) -> FieldProblem:
        """Return a problem of a field as one of the argument that fills it."""
        field, dot, rest = problem.field.partition(".")
        argument = {wire: name for name, wire in self.wire_names.items()}.get(field, field)
        return replace(problem, field=f"{argument}{dot}{rest}")
