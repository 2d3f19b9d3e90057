"""Backends of runs whose calls go to a speech service, and the book in which they look up voices."""

import asyncio
import difflib
import hashlib
import json
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import pyarrow as pa
from multidict import CIMultiDict
from pydantic import SecretStr

from speechframe.backends.judging import SpokenRecord, judge
from speechframe.batch.backend import (
    Answer,
    Attempt,
    Backend,
    Finding,
    LaneSpec,
    Opened,
    Record,
    Request,
    Throughput,
)
from speechframe.batch.lanes import CONNECTIONS_PER_CALL, MOST_CALLS
from speechframe.client import Bounds, Client, PreparedCall, Raw, Spoken, Timeouts
from speechframe.client.upload import Body
from speechframe.errors import BadAnswer, SettingsError, SpeechframeError
from speechframe.settings import GLOBAL_REGION, Settings, fingerprint
from speechframe.settings.hidden import without_keys
from speechframe.spec.check import FieldProblem, check
from speechframe.spec.fields._model import DocumentModel
from speechframe.spec.limits import REGIONS, Pool
from speechframe.spec.locales import is_within, language_of, nearest, normalise
from speechframe.spec.speech import Model, Voice
from speechframe.store.schema import AUDIO_TYPE, WORDS_TYPE, columns
from speechframe.wire.answers import decode_object, published_cap, published_paces, whole_number
from speechframe.writing.words import counted

_LOCAL_PREFIX = "local/"  # how the identity of an embedded local service begins
_LONGEST_IDENTITY = 200
_LONGEST_REPEATS_FREE_S = 366 * 86_400.0
_DEFAULT_LIMITS = (Timeouts(), Bounds())
_MODELS = "`speechframe models` shows how to add voices"
_MOST_SHOWN = 5
_HEALTH_S = 20.0  # a health page may take so long on a busy machine


class ServiceBackend(Backend):
    """A backend whose calls go through a :class:`Client` to the service of `settings`.

    A subclass implements :meth:`send` and the other required parts of :class:`Backend`. It implements
    :meth:`look_up` if it needs more from the service than the limits.
    """

    pool: Pool = Pool.OTHER  # which cap of the service on concurrent calls counts these calls
    client: Client  # set while the backend is open
    limits: Mapping[str, Any]  # the service's published limits, or empty

    def __init__(self, settings: Settings) -> None:
        if not isinstance(settings, Settings):
            raise SettingsError(
                f"service={without_keys(settings)!r} is not a service; use local_service() or Settings(...)"
            )
        self.settings = settings
        self.limits = {}

    @classmethod
    def of(cls, settings: Settings, constants: Mapping[str, Any]) -> Self:
        """Return a backend for `settings`. A subclass may use the constant arguments."""
        del constants
        return cls(settings)

    @property
    def key(self) -> SecretStr | None:
        """The key that the calls are made with."""
        return self.settings.api_key

    async def open(self) -> Opened:
        """Fetch the service's limits, and call :meth:`look_up`."""
        addresses = self.settings.addresses()
        most = CONNECTIONS_PER_CALL * MOST_CALLS * max(1, len(addresses))
        self.client = Client(self.settings, max_connections=most)
        try:
            self.limits = await self.client.limits() or {}
            self.service = self._identity()
            facts = await self.look_up()
        except BaseException:
            await self.client.close()
            raise
        key = self.key
        key_fingerprint = fingerprint(key) if key is not None else ""
        return Opened(
            lanes=self._lanes(addresses, key_fingerprint),
            repeats_free_s=self._repeats_free_s(),
            takes=bool(self.limits.get("take_header")),
            balance=whole_number(self.limits, "remaining_characters"),
            key_fingerprint=key_fingerprint,
            is_local=self.service.startswith(_LOCAL_PREFIX),
            throughputs={work: Throughput(*pace) for work, pace in published_paces(self.limits).items()},
            facts=facts,
        )

    async def is_answering(self) -> bool:
        """Return whether the health page answers. It is not asked if the service publishes no limits."""
        if not self.limits:
            return False
        try:
            await self.client.read("health", decode_object, {}, once=True, timeout_s=_HEALTH_S)
        except SpeechframeError:
            return False
        return True

    async def look_up(self) -> Mapping[str, Any]:
        """Fetch the data that checks need through :attr:`client`, and return entries for run.json."""
        return {}

    async def close(self) -> None:
        """Close the client, if it was opened."""
        if hasattr(self, "client"):
            await self.client.close()

    def _identity(self) -> str:
        """Return the service's name for call keys and run.json: published, or the profile, or the host."""
        by_operation, name = self.limits.get("identities"), self.limits.get("identity")
        if isinstance(by_operation, dict):
            name = by_operation.get(self.operation, name)
        is_usable = isinstance(name, str) and 0 < len(name) <= _LONGEST_IDENTITY and name.isprintable()
        return str(name) if is_usable else self.settings.identity()

    def _repeats_free_s(self) -> float:
        seconds: Any = self.limits.get("idempotency_seconds")
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if self.limits.get("idempotency") is not True or not is_number:
            return 0.0
        # The page may contain NaN, for which each comparison is false, or integers too large for a float.
        return float(min(seconds, _LONGEST_REPEATS_FREE_S)) if seconds > 0 else 0.0

    def _lanes(self, addresses: Mapping[str, str], key_fingerprint: str) -> tuple[LaneSpec, ...]:
        """Return a lane for each region. The global address is the fallback if the settings name regions."""
        published, named = published_cap(self.limits, self.pool), self.settings.regions
        # The caps in the service document are a first guess, because a key may have another cap.
        known = REGIONS if self.pool is Pool.STREAMING else {}
        return tuple(
            LaneSpec(
                name=region,
                # Include the address, because the embedded services of two processes have separate caps.
                identity=f"{self.service} {address} {key_fingerprint} {region} {self.pool}",
                published=published,
                guess=known[region].streaming_concurrency if region in known else None,
                is_fallback=bool(named) and region == GLOBAL_REGION and region not in named,
            )
            for region, address in addresses.items()
        )


class CallBackend(ServiceBackend):
    """A backend whose attempts are single calls of the client. A subclass implements :meth:`call`."""

    @abstractmethod
    def call(self, request: Request, **call_options: Any) -> PreparedCall[Any]:
        """Return the call of a request, made only from its body, because a resumed run has nothing else.

        `call_options` are `idempotency_key` and `take` of the :class:`PreparedCall`.
        """

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt. ``data`` of the result has the call, the raw answer, and any downloaded audio.

        An answer with a URL is written to disk before the download. If an earlier attempt wrote an answer,
        this attempt only downloads, because the call is paid. It repeats the call only if the download fails
        and repeats are free.
        """
        began = time.monotonic()
        call = self.call(request, idempotency_key=attempt.idempotency_key, take=attempt.take)
        if attempt.noted is not None:
            body, headers, *facts = json.loads(attempt.noted)
            try:
                raw = Raw(body.encode(), CIMultiDict(headers), *facts)
                return await self._with_audio(call, raw, attempt, began)
            except BadAnswer:
                # The download failed. Repeat the call for a new URL if the service does not bill repeats.
                if attempt.idempotency_key is None:
                    raise
        raw = await self.client.send_raw(
            call,
            region=attempt.lane,
            deadline_s=attempt.deadline_s,
            max_bytes=self.max_answer_bytes,
            admit=attempt.admit,
            progress=attempt.extend,
            hold=True,
        )
        if call.audio_url(raw) is None:
            return Answer((call, raw), raw.trace_id, raw.latency_ms, release=partial(_release, raw))
        headers = [header for header in raw.headers.items() if header[0].lower().startswith("x-")]
        noted = [raw.body.decode("utf-8", "replace"), headers, raw.trace_id, raw.latency_ms, raw.region]
        try:
            await attempt.note(json.dumps(noted).encode())
            answer = await self._with_audio(call, raw, attempt, began)
        except BaseException:
            _release(raw, False)
            raise
        answer.release = partial(_release, raw)
        return answer

    async def _with_audio(self, call: PreparedCall[Any], raw: Raw, attempt: Attempt, began: float) -> Answer:
        """Fetch the audio behind an answer within the rest of the attempt's time."""
        left_s = None if attempt.deadline_s is None else attempt.deadline_s - (time.monotonic() - began)
        audio = await self.client.fetch(
            call.audio_url(raw) or "",
            deadline_s=None if left_s is None else max(0.0, left_s),
            max_bytes=self.max_answer_bytes or call.limits(*_DEFAULT_LIMITS)[2],
            admit=attempt.admit,
            # A relative URL belongs to the region that answered. A resumed run may lack that region.
            region=raw.region if raw.region in self.client.regions else None,
        )
        return Answer((call, raw, audio), raw.trace_id)


def _release(raw: Raw, fits: bool) -> None:  # noqa: FBT001 - Answer.release passes this one argument
    """Return the connection of an answer to the pool, or close it if the answer may be another call's."""
    if not fits:
        raw.reply.drop()
    raw.reply.close()


class Resolved(NamedTuple):
    """The voice and locale of a row, as the catalogue spells them, and problems of voice, locale and style.

    `locale` is the requested locale, or None. `spoken_locale` is the same, or the voice's own locale if none
    was requested.
    """

    voice_id: str
    locale: str | None
    spoken_locale: str | None
    problems: tuple[FieldProblem, ...] = ()


class VoiceBook:
    """The voices of one model, from the voice listing of the service (section 2.4).

    :meth:`resolve` accepts a full id (``<locale>-<name>``) or a bare name, in upper or lower case, with the
    requested locale and style. A language is enough if the voice speaks only one locale of that language. If
    the voice belongs to another model (`others`), the problem names that model.
    """

    def __init__(
        self,
        voices: Iterable[Voice],
        model: Model = Model.GEN2,
        others: Mapping[Model, Iterable[Voice]] = MappingProxyType({}),
    ) -> None:
        self.voices = {voice.voice_id: voice for voice in voices}
        listing = "voices()" if model is Model.GEN2 else f'voices("{model.value}")'
        self._see = f"see {listing}, each model has its own voices; {_MODELS}"
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
                    ("matches more than one locale of", "one of")
                    if within
                    else ("is not spoken by", "nearest")
                )
                close = ", ".join((within or nearest(locale, tags) or sorted(tags))[:_MOST_SHOWN])
                problems.append(
                    FieldProblem(
                        "locale", f"{words} {voice.voice_id}", locale, f"{allowed}: {close}; {_MODELS}"
                    )
                )
        spoken = locale or voice.locale
        details = [d for tag, d in voice.supported_locales.items() if _normal(tag) == _normal(spoken or "")]
        if style is not None and details and style not in (styles := details[0].available_styles):
            close = ", ".join(difflib.get_close_matches(style, styles, n=_MOST_SHOWN, cutoff=0.4) or styles)
            words = f"is not a style of {voice.voice_id}"
            problems.append(
                FieldProblem("style", words, style, close or "none: this voice has no styles in this locale")
            )
        return Resolved(voice.voice_id, locale, spoken, tuple(problems))

    def _voice_problem(self, name: str, found: list[str]) -> FieldProblem:
        if found:
            return FieldProblem("voice", "names more than one voice", name, ", ".join(found))
        if other := self._models.get(name.casefold()):
            allowed = f'model="{other}", or another voice; {self._see}'
            return FieldProblem("voice", f"is a voice of {other}", name, allowed)
        names = sorted({*self.voices, *map(_bare, self.voices)})
        close = difflib.get_close_matches(name, names, n=_MOST_SHOWN, cutoff=0.5)
        allowed = f"nearest: {', '.join(close)}" if close else f"one of {counted(len(self.voices), 'voice')}"
        return FieldProblem("voice", "is not a known voice", name, f"{allowed}; {self._see}")


class SpokenBackend(CallBackend):
    """A backend of calls that return audio in a voice of `book`, the catalogue of `model`."""

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
    wire_names: Mapping[str, str]  # argument to the request field that it fills
    has_word_times: bool = True  # whether answers contain the times of words
    spoken_field: str = "text"  # the request field with the spoken text

    async def look_up(self) -> Mapping[str, Any]:
        """Fetch the voices of all models into `book`, and return the hash of this model's voices."""
        others = [model for model in Model if model is not self.model]
        requests = self.client.voices(self.model.value), *map(self._voices_of, others)
        voices, *listed = await asyncio.gather(*requests)
        self.book = VoiceBook(voices, self.model, dict(zip(others, listed, strict=True)))
        return {"voices": self.book.hash}

    async def _voices_of(self, model: Model) -> list[Voice]:
        with suppress(SpeechframeError):  # a service may lack this model
            return await self.client.voices(model.value)
        return []

    def checked(
        self, request_type: type[DocumentModel], fields: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any], list[FieldProblem]]:
        """Return a row's request, its facts, and all problems of its fields and its voice."""
        found = check(request_type, fields)
        problems = [replace(each, field=self._argument_of(each.field)) for each in found.problems]
        locale_field = "locale"
        if values.get(locale_field) is None or locale_field not in request_type.model_fields:
            locale_field = "multi_native_locale"
        given = values.get("voice"), values.get("locale", values.get(locale_field)), values.get("style")
        voice, locale, style = (value if isinstance(value, str) else None for value in given)
        if voice is None:
            return None, {}, problems
        resolved = self.book.resolve(voice, locale, style)
        problems += resolved.problems
        if found.value is None:
            return None, {}, problems
        meant = {"voice_id": resolved.voice_id, locale_field: resolved.locale}
        if getattr(found.value, "audio_duration", None) == 0:
            meant["audio_duration"] = None  # 0 means the same as no duration
        request: Any = found.value.model_copy(update=meant)
        facts = {
            "model": self.model.value,
            "locale": resolved.spoken_locale,
            "voice_id": resolved.voice_id,
            "format": request.format.value,
        }
        return request, facts, problems

    def work_of(self, facts: Mapping[str, Any]) -> str:
        """Return the engine of the request's voice, or the operation if the engine is not known."""
        voice = self.book.voices.get(facts.get("voice_id") or "")
        return self.operation if voice is None or voice.engine is None else voice.engine

    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return the record of an answer. Faults that leave its audio usable are among the warnings."""
        call, raw, *fetched = answer.data
        spoken: Spoken = call.decode(raw, audio=fetched[0] if fetched else None)
        answer.balance = spoken.remaining_characters
        name = spoken.format.value
        values = {
            "text": getattr(call.request, self.spoken_field) or None,
            "word_durations": spoken.words if self.has_word_times else None,
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
            request=call.request,
            clip_seconds=call.body.upload.audio_seconds if isinstance(call.body, Body) else 0.0,
        )
        return [record]

    def judge(self, request: Request, record: Record, learned: dict[str, Any]) -> list[Finding]:
        """Return findings against an answer. `learned` has the usual pace of its voice, and is updated."""
        return judge(record, request.facts, learned) if isinstance(record, SpokenRecord) else []

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the names of the arguments in which two bodies differ."""
        return tuple(map(self._argument_of, super().differences(before, after)))

    def _argument_of(self, field: str) -> str:
        """Return the argument that fills a field, with the rest of a dotted path behind it."""
        name, dot, rest = field.partition(".")
        argument = next((argument for argument, wire in self.wire_names.items() if wire == name), name)
        return f"{argument}{dot}{rest}"


def _bare(voice_id: str) -> str:
    return voice_id.rpartition("-")[2]


def _normal(tag: str) -> str:
    try:
        normal = normalise(tag)
    except ValueError:
        return tag
    return normal if "-" in normal else language_of(normal)
