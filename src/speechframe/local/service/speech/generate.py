"""Answer ``POST /v1/speech/generate`` (sections 2.1 and 2.3 of the service document), which speaks a text."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from aiohttp import web

from speechframe.engines.base import Utterance
from speechframe.local.service.books import quota
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import Refusal
from speechframe.local.service.http.auth import require_key
from speechframe.local.service.http.body import check_fields, describe_unknown_fields, read_body
from speechframe.local.service.http.middleware import LOG_NOTE_KEY
from speechframe.local.service.speech.audio import build_url, send_json
from speechframe.local.service.speech.catalogue import ResolvedVoice
from speechframe.local.service.speech.paid import hold_slot, paid_call, read_mark, read_take, run_job
from speechframe.local.service.speech.speaking import collect_warnings, make_utterance
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.job import WorkerReply
from speechframe.local.service.workers.pool import WorkerPool
from speechframe.local.service.workers.speech import AudioFormat, SpeakJob
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
    """A checked request, with its voice, the speech for a worker, its price and its warnings."""

    request: GenerateRequest
    resolved: ResolvedVoice
    utterance: Utterance
    reservation: quota.Reservation
    warnings: tuple[str, ...]


async def generate(request: web.Request) -> web.StreamResponse:
    """Answer a generation request. The docstring of the package ``service`` lists the order of checks."""
    state = request.app[STATE]
    key = require_key(request)
    fields = await read_body(request, late_code=HttpErrorCode.REQUEST_TIMEOUT)
    call = _read_call(request, state, key, fields)
    async with hold_slot(state, key, Pool.OTHER):
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
    is_english = locales.get_language(resolved.locale) == "en"
    if wanted.word_durations_as_original_text and not is_english:
        warnings.append("wordDurationsAsOriginalText is for English only and was ignored")
    # Leave encodeAsBase64 out: a repeat may ask for another delivery of the same audio.
    content = encode_request(wanted.model_copy(update={"encode_as_base64": None}))
    mark = read_mark(request, "generate", content, take=take)
    price_millis = billing.compute_speech_millicredits(wanted.text)
    reservation = quota.Reservation(state.owner.name, key, mark, "generate", price_millis)
    utterance = replace(
        make_utterance(wanted, resolved, Model.GEN2, take=take),
        text=wanted.text,
        audio_duration_s=wanted.audio_duration or 0.0,
        words_as_original_text=wanted.word_durations_as_original_text and is_english,
    )
    return SpeechCall(wanted, resolved, utterance, reservation, tuple(filter(None, warnings)))


async def _answer(request: web.Request, state: State, call: SpeechCall) -> web.StreamResponse:
    clip = None if call.request.encode_as_base64 else state.shelf.make_path(call.request.format.lower())
    # Check before the price is reserved, so that a full queue refuses without a transaction.
    pool = state.pools.get_pool(call.resolved.engine)
    key, price_millis = call.reservation.key, call.reservation.price_millis
    pool.check_room(key.key_hash)
    with contextlib.ExitStack() as stack:
        path = clip or stack.enter_context(state.uploads.lend_path())
        price_text = f"the text has {count_billed_characters(call.request.text):,} billed characters"
        async with paid_call(state, call.reservation, price_text, clip) as paid:
            reply = await _speak(state, pool, call, path)
            audio = None
            if clip is None:
                audio = stack.enter_context(path.open("rb"))
                # Remove the name now. The open file can still be sent, and disappears when it is closed.
                path.unlink()
            balance = await paid.settle(reply.facts)
        request[LOG_NOTE_KEY] = (
            f"key {key.fingerprint} voice {call.resolved.voice.voice_id} "
            f"characters {price_millis // billing.MILLICREDITS_PER_CREDIT} "
            f"engine {reply.facts.engine_ms:.1f} ms encode {reply.facts.encode_ms:.1f} ms"
        )
        warnings = collect_warnings(call.warnings, reply.facts)
        body = _build_body(build_url(request, clip) if clip is not None else "", reply, balance, warnings)
        threads = state.threads.get_threads(key.key_hash)
        return await send_json(request, body, warnings, audio=audio, field=_BASE64_FIELD, threads=threads)


async def _speak(state: State, pool: WorkerPool, call: SpeechCall, path: Path) -> WorkerReply:
    wanted = call.request
    asked = wanted.channel_type, wanted.sample_rate
    shape = AudioFormat.from_request(wanted.format, asked, Model.GEN2, names=("channelType", "sampleRate"))
    return await run_job(
        pool,
        SpeakJob(call.resolved.engine, call.utterance, shape, path),
        call.reservation.key,
        limit_s=state.config.limits.compute_job_limit_s(len(wanted.text), wanted.audio_duration or 0.0),
        refused="text",
        failed="the speech engine failed",
    )


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
