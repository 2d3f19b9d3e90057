"""Answer ``POST /v1/speech/generate`` (sections 2.1 and 2.3 of the service document), which speaks a text."""

import contextlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from speechframe.local.service.books import quota
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.http.auth import require_key
from speechframe.local.service.http.body import check_fields, describe_unknown_fields, read_body
from speechframe.local.service.http.middleware import LOG_NOTE_KEY
from speechframe.local.service.speech.audio import build_url, send_json
from speechframe.local.service.speech.catalogue import ResolvedVoice
from speechframe.local.service.speech.paid import (
    CallBill,
    hold_slot,
    read_mark,
    read_take,
    refuse_failed,
    reserve_price,
)
from speechframe.local.service.speech.speaking import collect_warnings, describe_utterance
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.job import WorkerJob, WorkerReply
from speechframe.local.service.workers.pool import WorkerPool
from speechframe.spec import billing, locales
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.deprecation import make_deprecation_notice
from speechframe.spec.limits import Pool
from speechframe.spec.speech import GenerateRequest, GenerateResponse, Model
from speechframe.spec.texts import count_billed_characters, find_text_warnings
from speechframe.wire.requests import encode_request

# JSON name of each field of the answer. `_build_body` joins fields that are JSON already, without parsing
# them.
_ANSWER_NAMES = {
    name: json.dumps(field.alias).encode() for name, field in GenerateResponse.model_fields.items()
}
# JSON name of the field for Base64 audio.
_BASE64_FIELD = GenerateResponse.get_wire_names()["encoded_audio"]


@dataclass(frozen=True)
class SpeechCall:
    """A checked request, with its voice, its take (the number of the reading), its price and its warnings."""

    request: GenerateRequest
    resolved: ResolvedVoice
    take: int
    bill: CallBill
    warnings: tuple[str, ...]


async def generate(request: web.Request) -> web.StreamResponse:
    """Answer a generation request. The docstring of the package ``service`` lists the order of checks."""
    state = request.app[STATE]
    key = require_key(request)
    call = _read_call(request, state, key, await read_body(request, state.config))
    with hold_slot(state, key, Pool.OTHER):
        return await _answer(request, state, call)


def _read_call(request: web.Request, state: State, key: Key, fields: dict[str, object]) -> SpeechCall:
    wanted, result = check_fields(GenerateRequest, fields)
    if (wanted.audio_duration or 0.0) > state.config.max_audio_seconds:
        raise Refusal(
            HttpErrorCode.INVALID_REQUEST,
            f"audioDuration is longer than this service allows (got {wanted.audio_duration:g}); "
            f"allowed: 0 to {state.config.max_audio_seconds:g} seconds",
        )
    resolved = state.catalogues.by_model[Model(wanted.model_version)].resolve_voice(wanted)
    take = read_take(request)
    warnings = [
        describe_unknown_fields(result.unknown),
        *(make_deprecation_notice(GenerateRequest, field) for field in result.deprecated),
        *find_text_warnings(wanted.text),
    ]
    if wanted.word_durations_as_original_text and locales.get_language(resolved.locale) != "en":
        warnings.append("wordDurationsAsOriginalText is for English only and was ignored")
    # Leave encodeAsBase64 out: a repeat may ask for another delivery of the same audio.
    content = encode_request(wanted.model_copy(update={"encode_as_base64": None}))
    characters = count_billed_characters(wanted.text)
    bill = CallBill(
        key,
        read_mark(request, "generate", content, take=take),
        billing.compute_speech_millicredits(wanted.text),
        f"the text has {characters:,} billed characters",
        "generate",
    )
    return SpeechCall(wanted, resolved, take, bill, tuple(warning for warning in warnings if warning))


async def _answer(request: web.Request, state: State, call: SpeechCall) -> web.StreamResponse:
    clip = None if call.request.encode_as_base64 else state.shelf.make_clip(call.request.format.lower())
    # Check before the price is reserved, so that a full queue refuses without a transaction.
    pool = state.pools.get_pool(call.resolved.engine)
    pool.check_room(call.bill.key.key_hash)
    with contextlib.ExitStack() as stack:
        path = (
            stack.enter_context(state.uploads.lend_path()) if clip is None else state.shelf.build_path(clip)
        )
        async with reserve_price(state, call.bill, clip) as reservation:
            reply = await _speak(state, pool, call, path)
            audio = None
            if clip is None:
                audio = stack.enter_context(path.open("rb"))
                # Remove the name now. The open file can still be sent, and disappears when it is closed.
                path.unlink()

            def settle(connection: sqlite3.Connection) -> quota.Balance:
                if clip is not None:
                    state.shelf.put(connection, clip, reply.facts.content_type, reply.facts.size_bytes)
                return quota.settle(connection, reservation, call.bill.millis)

            balance = await state.database.run(settle)
        request[LOG_NOTE_KEY] = (
            f"key {call.bill.key.fingerprint} voice {call.resolved.voice.voice_id} "
            f"characters {call.bill.millis // billing.MILLICREDITS_PER_CREDIT} "
            f"engine {reply.facts.engine_ms:.1f} ms encode {reply.facts.encode_ms:.1f} ms"
        )
        warnings = collect_warnings(call.warnings, reply.facts)
        body = _build_body(build_url(request, clip) if clip is not None else "", reply, balance, warnings)
        threads = state.threads.get_threads(call.bill.key.key_hash)
        return await send_json(request, body, warnings, audio=audio, field=_BASE64_FIELD, threads=threads)


async def _speak(state: State, pool: WorkerPool, call: SpeechCall, path: Path) -> WorkerReply:
    wanted, resolved = call.request, call.resolved
    job = WorkerJob(
        "speak",
        {
            "engine": resolved.engine,
            "utterance": _describe_utterance(call),
            "format": wanted.format,
            "channel_type": wanted.channel_type,
            "sample_rate_hz": int(wanted.sample_rate),
        },
        str(path),
    )
    limit_s = state.config.limits.compute_job_limit_s(len(wanted.text), wanted.audio_duration or 0.0)
    reply = await pool.run(job, limit_s=limit_s, key_hash=call.bill.key.key_hash)
    if reply.facts.refused is not None:
        raise Refusal(HttpErrorCode.INVALID_REQUEST, f"text: {reply.facts.refused}")
    refuse_failed(reply, "the speech engine failed")
    return reply


def _describe_utterance(call: SpeechCall) -> dict[str, object]:
    wanted, resolved = call.request, call.resolved
    return {
        **describe_utterance(wanted, resolved, Model.GEN2, take=call.take),
        "text": wanted.text,
        "audio_duration_s": wanted.audio_duration or 0.0,
        "words_as_original_text": wanted.word_durations_as_original_text
        and locales.get_language(resolved.locale) == "en",
    }


def _build_body(
    audio_file: str, reply: WorkerReply, balance: quota.Balance, warnings: Sequence[str]
) -> bytes:
    """Return the answer as JSON, without the Base64 audio."""
    parts = {
        "audio_file": json.dumps(audio_file).encode(),
        "audio_length_in_seconds": json.dumps(reply.facts.audio_seconds).encode(),
        "remaining_character_count": b"%d" % balance.remaining_characters,
        "consumed_character_count": b"%d" % balance.used_characters,
        "word_durations": reply.result_json,
    }
    if warnings:
        parts["warning"] = json.dumps("; ".join(warnings)).encode()
    return b"{" + b",".join(_ANSWER_NAMES[name] + b":" + value for name, value in parts.items()) + b"}"
