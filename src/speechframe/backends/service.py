"""Base classes of backends whose calls go to a speech service, and the class that looks up voices.

A backend turns rows into calls and answers into records.
"""

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
from speechframe.batch.lanes import CONNECTIONS_PER_CALL, MAX_CALLS_PER_LANE
from speechframe.client import Bounds, Client, PreparedCall, RawAnswer, Spoken, Timeouts
from speechframe.client.upload import Body
from speechframe.errors import BadAnswer, SettingsError, SpeechframeError
from speechframe.settings import GLOBAL_REGION, Settings, fingerprint_key
from speechframe.settings.hidden import mask_address
from speechframe.spec.check import FieldProblem, check
from speechframe.spec.fields._model import DocumentModel
from speechframe.spec.limits import REGIONS, Pool
from speechframe.spec.locales import find_nearest, get_language, is_within, normalise
from speechframe.spec.speech import Model, Voice
from speechframe.store.schema import AUDIO_TYPE, WORDS_TYPE, columns
from speechframe.wire.answers import (
    decode_object,
    read_published_cap,
    read_published_paces,
    read_whole_number,
)
from speechframe.writing.words import format_count

_LOCAL_IDENTITY_PREFIX = "local/"  # beginning of the identity of an embedded local service
_MAX_IDENTITY_CHARACTERS = 200  # characters; a longer published identity is ignored
_MAX_REPEATS_FREE_S = 366 * 86_400.0  # a published number of seconds counts only up to this
_DEFAULT_LIMITS = (Timeouts(), Bounds())
_MODELS_HINT = "`speechframe models` shows how to add voices"
_MAX_SHOWN_NAMES = 5  # names that an error lists
_HEALTH_LIMIT_S = 20.0  # time limit of the health page, in seconds; a busy machine is slow


class ServiceBackend(Backend):
    """A backend whose calls go through a :class:`Client` to the service of `settings`.

    A subclass implements :meth:`send` and the other required parts of :class:`Backend`. A subclass that needs
    more data from the service than its limits implements :meth:`look_up`, too. `constants` are the constant
    arguments of a run. A subclass may use them.
    """

    pool: Pool = Pool.OTHER  # the service has a separate cap on concurrent calls for each pool
    client: Client  # set while the backend is open
    limits: Mapping[str, Any]  # the service's published limits, or empty

    def __init__(self, settings: Settings, constants: Mapping[str, Any] = MappingProxyType({})) -> None:
        del constants
        if not isinstance(settings, Settings):
            raise SettingsError(
                f"service={mask_address(settings)!r} is not a service; use local_service() or Settings(...)"
            )
        self.settings = settings
        self.limits = {}

    @classmethod
    def from_constants(cls, settings: Settings, constants: Mapping[str, Any]) -> Self:
        """Return a backend for `settings` and the constant arguments of a run."""
        return cls(settings, constants)

    @property
    def key(self) -> SecretStr | None:
        """The API key of the calls."""
        return self.settings.api_key

    async def open(self) -> Opened:
        """Open the client, fetch the limits, call :meth:`look_up`, and return the facts of the service."""
        addresses = self.settings.addresses()
        max_connections = CONNECTIONS_PER_CALL * MAX_CALLS_PER_LANE * max(1, len(addresses))
        self.client = Client(self.settings, max_connections=max_connections)
        try:
            self.limits = await self.client.limits() or {}
            self.service = self._read_identity()
            facts = await self.look_up()
        except BaseException:
            await self.client.close()
            raise
        key = self.key
        key_fingerprint = fingerprint_key(key) if key is not None else ""
        return Opened(
            lanes=self._make_lanes(addresses, key_fingerprint),
            repeats_free_s=self._read_repeats_free_s(),
            takes=bool(self.limits.get("take_header")),
            balance=read_whole_number(self.limits, "remaining_characters"),
            key_fingerprint=key_fingerprint,
            is_local=self.service.startswith(_LOCAL_IDENTITY_PREFIX),
            throughputs={work: Throughput(*pace) for work, pace in read_published_paces(self.limits).items()},
            facts=facts,
        )

    async def is_answering(self) -> bool:
        """Return whether the health page answers. False if the service publishes no limits."""
        if not self.limits:
            return False
        try:
            await self.client.read("health", decode_object, {}, once=True, timeout_s=_HEALTH_LIMIT_S)
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

    def _read_identity(self) -> str:
        """Return the service's name for request keys and run.json, published or else from the settings."""
        by_operation, name = self.limits.get("identities"), self.limits.get("identity")
        if isinstance(by_operation, dict):
            name = by_operation.get(self.operation, name)
        is_usable = isinstance(name, str) and 0 < len(name) <= _MAX_IDENTITY_CHARACTERS and name.isprintable()
        return str(name) if is_usable else self.settings.identity()

    def _read_repeats_free_s(self) -> float:
        """Return for how many seconds a repeat with the same idempotency key is free. 0 if never."""
        seconds: Any = self.limits.get("idempotency_seconds")
        is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
        if self.limits.get("idempotency") is not True or not is_number:
            return 0.0
        # The published number may be NaN, for which each comparison is false, or too large for a float.
        return float(min(seconds, _MAX_REPEATS_FREE_S)) if seconds > 0 else 0.0

    def _make_lanes(self, addresses: Mapping[str, str], key_fingerprint: str) -> tuple[LaneSpec, ...]:
        """Return a lane (an address with its cap on concurrent calls) for each region.

        If the settings name regions, the global address is only the fallback.
        """
        published, named = read_published_cap(self.limits, self.pool), self.settings.regions
        # Use the caps of the service document only as a first guess, because a key may have another cap.
        known = REGIONS if self.pool is Pool.STREAMING else {}
        return tuple(
            LaneSpec(
                name=region,
                # Include the address, because two embedded services have separate caps.
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
        """Return the call of a request. Use only its body, because a resumed run has no other data.

        `call_options` are `idempotency_key` and `take` of the :class:`PreparedCall`.
        """

    async def send(self, request: Request, attempt: Attempt) -> Answer:
        """Make one attempt. ``data`` of the result has the call, the raw answer, and any downloaded audio.

        An answer with the URL of its audio is noted (stored in the run's folder) before the download. If an
        earlier attempt noted an answer, this attempt only downloads, because the call is paid. If this
        download fails, the call is repeated only if repeats are free.
        """
        began = time.monotonic()
        call = self.call(request, idempotency_key=attempt.idempotency_key, take=attempt.take)
        if attempt.noted is not None:
            body, headers, *facts = json.loads(attempt.noted)
            try:
                raw = RawAnswer(body.encode(), CIMultiDict(headers), *facts)
                return await self._fetch_audio(call, raw, attempt, began)
            except BadAnswer:
                # The download failed. Repeat the call to get a new URL, but only if repeats are free.
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
        if call.find_audio_url(raw) is None:
            return Answer(
                (call, raw), raw.trace_id, raw.latency_ms, release=partial(_release_connection, raw)
            )
        headers = [header for header in raw.headers.items() if header[0].lower().startswith("x-")]
        noted = [raw.body.decode("utf-8", "replace"), headers, raw.trace_id, raw.latency_ms, raw.region]
        try:
            await attempt.note(json.dumps(noted).encode())
            answer = await self._fetch_audio(call, raw, attempt, began)
        except BaseException:
            _release_connection(raw, False)
            raise
        answer.release = partial(_release_connection, raw)
        return answer

    async def _fetch_audio(
        self, call: PreparedCall[Any], raw: RawAnswer, attempt: Attempt, began: float
    ) -> Answer:
        """Fetch the audio at the URL in an answer, in the time left of an attempt that `began` then."""
        left_s = None if attempt.deadline_s is None else attempt.deadline_s - (time.monotonic() - began)
        audio = await self.client.fetch(
            call.find_audio_url(raw) or "",
            deadline_s=None if left_s is None else max(0.0, left_s),
            max_bytes=self.max_answer_bytes or call.compute_limits(*_DEFAULT_LIMITS)[2],
            admit=attempt.admit,
            # A relative URL belongs to the region that answered, which the settings of a resumed run may
            # lack.
            region=raw.region if raw.region in self.client.regions else None,
        )
        return Answer((call, raw, audio), raw.trace_id)


def _release_connection(raw: RawAnswer, fits: bool) -> None:  # noqa: FBT001 - Answer.release passes this one argument
    """Return the connection of an answer to the pool. Close it if the answer does not fit its call."""
    if not fits:
        raw.reply.drop()
    raw.reply.close()


class SpokenVoice(NamedTuple):
    """The voice and locale of a row, as the catalogue spells them, and problems of voice, locale and style.

    `locale` is the requested locale, or None. `spoken_locale` is the requested locale, or else the voice's
    own locale. With a problem, the values may be those of the row.
    """

    voice_id: str
    locale: str | None
    spoken_locale: str | None
    problems: tuple[FieldProblem, ...] = ()


class VoiceBook:
    """The voices of one model, from the voice listing of the service (section 2.4).

    :meth:`resolve` accepts a full id (``<locale>-<name>``) or a bare name, in upper or lower case, with the
    requested locale and style. A language is enough if the voice speaks only one locale of this language.
    `others` has the voices of the other models. If a voice belongs to another model, the problem names this
    model.
    """

    def __init__(
        self,
        voices: Iterable[Voice],
        model: Model = Model.GEN2,
        others: Mapping[Model, Iterable[Voice]] = MappingProxyType({}),
    ) -> None:
        self.voices = {voice.voice_id: voice for voice in voices}
        listing = "voices()" if model is Model.GEN2 else f'voices("{model.value}")'
        self._voices_hint = f"see {listing}, each model has its own voices; {_MODELS_HINT}"
        self._ids: dict[str, list[str]] = {}
        for voice_id in self.voices:
            for name in {voice_id.casefold(), _get_bare_name(voice_id).casefold()}:
                self._ids.setdefault(name, []).append(voice_id)
        self._models = {
            name.casefold(): other.value
            for other, listed in others.items()
            for voice in listed
            for name in (voice.voice_id, _get_bare_name(voice.voice_id))
        }
        self.resolve = cache(self._resolve)
        described = "\n".join(voice.model_dump_json() for _, voice in sorted(self.voices.items()))
        self.hash = hashlib.blake2b(described.encode(), digest_size=8).hexdigest()

    def _resolve(self, name: str, locale: str | None = None, style: str | None = None) -> SpokenVoice:
        """Return the voice and locale of a request, with any problems. :attr:`resolve` caches this."""
        found = self._ids.get(name.casefold(), [])
        if len(found) != 1:
            return SpokenVoice(name, locale, locale, (self._make_voice_problem(name, found),))
        voice, problems = self.voices[found[0]], []
        tags = list(voice.supported_locales)
        if locale is not None and tags:
            exact = [tag for tag in tags if _normalise_tag(tag) == _normalise_tag(locale)]
            matching = exact or [tag for tag in tags if is_within(tag, locale)]
            if len(matching) == 1:
                locale = matching[0]
            else:
                fault, allowed = (
                    ("matches more than one locale of", "one of")
                    if matching
                    else ("is not spoken by", "nearest")
                )
                close = ", ".join((matching or find_nearest(locale, tags) or sorted(tags))[:_MAX_SHOWN_NAMES])
                problems.append(
                    FieldProblem(
                        "locale", f"{fault} {voice.voice_id}", locale, f"{allowed}: {close}; {_MODELS_HINT}"
                    )
                )
        spoken = locale or voice.locale
        details = [
            d
            for tag, d in voice.supported_locales.items()
            if _normalise_tag(tag) == _normalise_tag(spoken or "")
        ]
        if style is not None and details and style not in (styles := details[0].available_styles):
            close = ", ".join(
                difflib.get_close_matches(style, styles, n=_MAX_SHOWN_NAMES, cutoff=0.4) or styles
            )
            fault = f"is not a style of {voice.voice_id}"
            problems.append(
                FieldProblem("style", fault, style, close or "none: this voice has no styles in this locale")
            )
        return SpokenVoice(voice.voice_id, locale, spoken, tuple(problems))

    def _make_voice_problem(self, name: str, found: list[str]) -> FieldProblem:
        """Return the problem of a name that fits no voice, or several voices (`found`)."""
        if found:
            return FieldProblem("voice", "names more than one voice", name, ", ".join(found))
        if other := self._models.get(name.casefold()):
            allowed = f'model="{other}", or another voice; {self._voices_hint}'
            return FieldProblem("voice", f"is a voice of {other}", name, allowed)
        names = sorted({*self.voices, *map(_get_bare_name, self.voices)})
        close = difflib.get_close_matches(name, names, n=_MAX_SHOWN_NAMES, cutoff=0.5)
        allowed = (
            f"nearest: {', '.join(close)}" if close else f"one of {format_count(len(self.voices), 'voice')}"
        )
        return FieldProblem("voice", "is not a known voice", name, f"{allowed}; {self._voices_hint}")


class SpokenBackend(CallBackend):
    """A backend of calls that return audio in a voice. `book` has the voices of `model`."""

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
    wire_names: Mapping[str, str]  # maps an argument to the wire name of the request field that it fills
    has_word_times: bool = True  # True if answers contain the times of words
    spoken_field: str = "text"  # the request field with the spoken text

    async def look_up(self) -> Mapping[str, Any]:
        """Fetch the voices of all models into `book`, and return the hash of this model's voices."""
        others = [model for model in Model if model is not self.model]
        requests = self.client.voices(self.model.value), *map(self._fetch_voices, others)
        voices, *listed = await asyncio.gather(*requests)
        self.book = VoiceBook(voices, self.model, dict(zip(others, listed, strict=True)))
        return {"voices": self.book.hash}

    async def _fetch_voices(self, model: Model) -> list[Voice]:
        """Return the voices of a model, or none if the service refuses."""
        with suppress(SpeechframeError):  # a service may lack this model
            return await self.client.voices(model.value)
        return []

    def prepare_request(
        self, request_type: type[DocumentModel], fields: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any], list[FieldProblem]]:
        """Return the request of a row, the facts of this request, and all problems of the row.

        The request is None if a field or the voice is missing or wrong. `fields` has the request fields, and
        `values` the arguments of the row.
        """
        found = check(request_type, fields)
        problems = [replace(each, field=self._find_argument(each.field)) for each in found.problems]
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
        resolved_fields = {"voice_id": resolved.voice_id, locale_field: resolved.locale}
        if getattr(found.value, "audio_duration", None) == 0:
            resolved_fields["audio_duration"] = None  # 0 means the same as no duration
        request: Any = found.value.model_copy(update=resolved_fields)
        facts = {
            "model": self.model.value,
            "locale": resolved.spoken_locale,
            "voice_id": resolved.voice_id,
            "format": request.format.value,
        }
        return request, facts, problems

    def work_of(self, facts: Mapping[str, Any]) -> str:
        """Return the engine of the request's voice, or the operation if the engine is unknown."""
        voice = self.book.voices.get(facts.get("voice_id") or "")
        return self.operation if voice is None or voice.engine is None else voice.engine

    def records(self, request: Request, answer: Answer) -> list[Record | SpeechframeError]:
        """Return the record of an answer, or raise BadAnswer if its audio is unusable."""
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
        """Return findings against an answer. `learned` has the usual pace of each voice, and is updated."""
        return judge(record, request.facts, learned) if isinstance(record, SpokenRecord) else []

    def differences(self, before: bytes, after: bytes) -> tuple[str, ...]:
        """Return the names of the arguments in which two stored bodies differ."""
        return tuple(map(self._find_argument, super().differences(before, after)))

    def _find_argument(self, field: str) -> str:
        """Return the argument that fills a request field. In a dotted path, replace only the first name."""
        name, dot, rest = field.partition(".")
        argument = next((argument for argument, wire in self.wire_names.items() if wire == name), name)
        return f"{argument}{dot}{rest}"


def _get_bare_name(voice_id: str) -> str:
    """Return the name in a voice id ``<locale>-<name>``."""
    return voice_id.rpartition("-")[2]


def _normalise_tag(tag: str) -> str:
    """Return a locale in one spelling for comparison. Return anything else unchanged."""
    try:
        normal = normalise(tag)
    except ValueError:
        return tag
    return normal if "-" in normal else get_language(normal)
