"""``POST /v1/speech/generate`` (sections 2.1 and 2.3): from a request to an answer that is billed once."""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from aiohttp import web

from speechframe.service import quota
from speechframe.service.answers import JSON, Refusal, add_warnings
from speechframe.service.audio import address
from speechframe.service.auth import require_key
from speechframe.service.body import checked, read_json, unknown_warning
from speechframe.service.catalogue import Casting
from speechframe.service.idempotency import Mark, OtherBody
from speechframe.service.job import Job, Reply
from speechframe.service.keys import Key
from speechframe.service.middleware import NOTE
from speechframe.service.shelf import Clip
from speechframe.service.slots import NoSlot, Pool
from speechframe.service.state import STATE, State
from speechframe.service.workers import PoolClosed, Saturated, WorkerLost
from speechframe.spec import billing, chosen, locales
from speechframe.spec.check import shown
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.deprecation import deprecation_notice
from speechframe.spec.pauses import pause_warnings
from speechframe.spec.speech import GenerateRequest, GenerateResponse, Model
from speechframe.wire.bodies import encode_generate

_LONGEST_IDEMPOTENCY_KEY = 255
_HIGHEST_TAKE = 2**31 - 1
_STOPPING_RETRY_S = 2.0

# Wire name of each part of the answer: what is JSON already is not parsed and written again.
_NAMES = {name: json.dumps(field.alias).encode() for name, field in GenerateResponse.model_fields.items()}


@dataclass(frozen=True)
class Call:
    """A request that is good: what is to be done, for whom, and what it costs."""

    key: Key
    request: GenerateRequest
    casting: Casting
    take: int
    mark: Mark | None
    millis: int
    warnings: tuple[str, ...]


async def generate(request: web.Request) -> web.Response:
    """Answer a generation request; the order of checks stands at the top of the room."""
    state = request.app[STATE]
    key = require_key(request)
    call = _call(request, state, key, await read_json(request, state.config))
    try:
        with state.slots.taken(key, Pool.OTHER), _refusals(state):
            return await _answer(request, state, call)
    except NoSlot as full:
        raise Refusal(
            HttpErrorCode.CONCURRENCY_LIMIT,
            f"this key has {full.concurrency} in flight, which is its limit",
            retry_after_s=state.pool.mean_s,
        ) from None


def _call(request: web.Request, state: State, key: Key, fields: dict[str, object]) -> Call:
    wanted, result = checked(GenerateRequest, fields)
    if (wanted.audio_duration or 0.0) > state.config.max_audio_seconds:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"audioDuration is longer than this service speaks (got {wanted.audio_duration:g}); "
            f"allowed: 0 to {state.config.max_audio_seconds:g} seconds",
        )
    casting = state.catalogues.by_model[Model(wanted.model_version)].cast(wanted)
    take = _take(request.headers.get(chosen.TAKE_HEADER))
    warnings = [
        unknown_warning(result.unknown),
        *(deprecation_notice(GenerateRequest, field) for field in result.deprecated),
        *pause_warnings(wanted.text),
    ]
    if wanted.word_durations_as_original_text and locales.language_of(casting.locale) != "en":
        warnings.append("wordDurationsAsOriginalText is for English only and was ignored")
    return Call(
        key=key,
        request=wanted,
        casting=casting,
        take=take,
        mark=_mark(request.headers.get(chosen.IDEMPOTENCY_HEADER), state, wanted, take),
        millis=billing.generate_millicredits(wanted.text),
        warnings=tuple(words for words in warnings if words),
    )


def _take(header: str | None) -> int:
    if header is None:
        return 0
    words = header.strip()
    if (
        not (words.isascii() and words.isdecimal() and len(words) <= len(str(_HIGHEST_TAKE)))
        or int(words) > _HIGHEST_TAKE
    ):
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{chosen.TAKE_HEADER} is no take (got {shown(header)}); "
            f"allowed: integer from 0 to {_HIGHEST_TAKE}",
        )
    return int(words)


def _mark(header: str | None, state: State, wanted: GenerateRequest, take: int) -> Mark | None:
    if header is None:
        return None
    if not header or len(header) > _LONGEST_IDEMPOTENCY_KEY:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{chosen.IDEMPOTENCY_HEADER} has {len(header)} characters; "
            f"allowed: 1 to {_LONGEST_IDEMPOTENCY_KEY} characters",
        )
    # How the audio is delivered is no part of what was asked for.
    content = encode_generate(wanted.model_copy(update={"encode_as_base64": None}))
    body = hashlib.blake2b(b"generate\0%d\0" % take + content, digest_size=32).digest()
    return Mark(state.ring.hashed(header), body)


@contextlib.contextmanager
def _refusals(state: State) -> Iterator[None]:
    """Turn what can go wrong on the way into the answer it gets."""
    try:
        yield
    except Saturated:
        raise Refusal(
            HttpErrorCode.UNAVAILABLE, "the service is saturated", retry_after_s=state.pool.wait_s
        ) from None
    except PoolClosed:
        raise Refusal(
            HttpErrorCode.UNAVAILABLE, "the service is stopping", retry_after_s=_STOPPING_RETRY_S, close=True
        ) from None
    except WorkerLost:
        raise Refusal(
            HttpErrorCode.INTERNAL_ERROR, "the speech engine crashed or took too long; nothing was billed"
        ) from None
    except OtherBody:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"{chosen.IDEMPOTENCY_HEADER} was used for another request; "
            "allowed: the same request again, or a new key",
        ) from None


async def _answer(request: web.Request, state: State, call: Call) -> web.Response:
    clip = None if call.request.encode_as_base64 else state.shelf.new_clip(call.request.format.lower())
    # Before anything is reserved: a full queue costs its caller nothing, not even a transaction.
    state.pool.check_room()
    async with _reserved(state, call, clip) as reservation:
        reply = await _spoken(state, call, clip)

        def settle(connection: sqlite3.Connection) -> quota.Balance:
            if clip is not None:
                state.shelf.put(connection, clip, reply.facts.content_type, reply.facts.size_bytes)
            return quota.settle(connection, reservation, call.millis)

        balance = await state.database.run(settle)
    request[NOTE] = (
        f"key {call.key.fingerprint} voice {call.casting.voice.voice_id} "
        f"characters {call.millis // billing.CREDIT} "
        f"engine {reply.facts.engine_ms:.1f} ms encode {reply.facts.encode_ms:.1f} ms"
    )
    return _response(request, call, clip, reply, balance)


@contextlib.asynccontextmanager
async def _reserved(state: State, call: Call, clip: Clip | None) -> AsyncIterator[quota.Reservation]:
    """Hold what a call costs; given back unless the block settles it (an error, a client that went away)."""
    reservation = quota.make_reservation(state.owner.name, call.key, call.mark)

    def reserve(connection: sqlite3.Connection) -> None:
        try:
            quota.reserve(connection, reservation, call.millis)
        except quota.QuotaExhausted:
            # What is missing may be what a service that was killed had reserved.
            if not state.owner.reap(connection):
                raise
            quota.reserve(connection, reservation, call.millis)

    try:
        await state.database.run(reserve)
        yield reservation
    except quota.QuotaExhausted as short:
        raise Refusal(
            HttpErrorCode.QUOTA_EXHAUSTED,
            f"the text has {call.millis // billing.CREDIT:,} billed characters, and of this billing cycle's "
            f"quota {short.left_millis // billing.CREDIT:,} are left (what is in flight counts as used)",
        ) from None
    except BaseException:
        # After a settle that did happen this changes nothing: the reservation is gone by then.
        state.database.post(lambda connection: quota.release(connection, reservation.id))
        if clip is not None:
            state.shelf.remove([clip.file_name])
        raise


async def _spoken(state: State, call: Call, clip: Clip | None) -> Reply:
    wanted, casting = call.request, call.casting
    job = Job(
        engine=casting.engine,
        utterance={
            "text": wanted.text,
            "voice_id": casting.voice.voice_id,
            "locale": casting.locale,
            "style": casting.style,
            "pitch": wanted.pitch or 0,
            "rate": wanted.rate or 0,
            "variation": wanted.variation,
            "audio_duration_s": wanted.audio_duration or 0.0,
            "take": call.take,
            "words_as_original_text": wanted.word_durations_as_original_text
            and locales.language_of(casting.locale) == "en",
            "pronunciations": {
                word: how.model_dump(mode="json")
                for word, how in (wanted.pronunciation_dictionary or {}).items()
            },
        },
        format=wanted.format,
        channel_type=wanted.channel_type,
        sample_rate_hz=int(wanted.sample_rate),
        path=str(state.shelf.path(clip)) if clip is not None else None,
    )
    limit_s = state.config.limits.job_s(len(wanted.text), wanted.audio_duration or 0.0)
    reply = await state.pool.run(job, limit_s=limit_s)
    if reply.facts.refused is not None:
        raise Refusal(HttpErrorCode.INVALID_REQUEST, f"text: {reply.facts.refused}")
    if reply.facts.failed is not None:
        raise Refusal(
            HttpErrorCode.INTERNAL_ERROR,
            f"the speech engine failed: {reply.facts.failed}; nothing was billed",
        )
    return reply


def _response(
    request: web.Request, call: Call, clip: Clip | None, reply: Reply, balance: quota.Balance
) -> web.Response:
    warnings = tuple(dict.fromkeys((*call.warnings, *reply.facts.warnings)))
    parts = {
        "audio_file": json.dumps(address(request, clip) if clip is not None else "").encode(),
        "audio_length_in_seconds": json.dumps(reply.facts.audio_seconds).encode(),
        "remaining_character_count": b"%d" % balance.remaining_characters,
        "consumed_character_count": b"%d" % balance.used_characters,
        "word_durations": reply.words,
    }
    if warnings:
        parts["warning"] = json.dumps("; ".join(warnings)).encode()
    if clip is None:
        parts["encoded_audio"] = b'"%b"' % reply.audio
    body = b"{" + b",".join(_NAMES[name] + b":" + value for name, value in parts.items()) + b"}"
    response = web.Response(body=body, content_type=JSON, headers={"Cache-Control": "no-store"})
    add_warnings(response, warnings)
    return response
