"""Answer ``POST /v1/speech/stream``, which sends audio while the rest is still being made.

Section 2.2 of the service document describes this call.

The text is spoken sentence by sentence, and each sentence is a separate job of a worker. So a client that
reads slowly blocks no worker, a client that leaves wastes at most one sentence, and streams take turns. The
service speaks one sentence ahead.
"""

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from aiohttp import web

from speechframe.engines.base import Utterance
from speechframe.engines.streaming import choose_pause_s, split_sentences
from speechframe.local.service.books import quota
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import Refusal, add_warnings
from speechframe.local.service.http.auth import require_key
from speechframe.local.service.http.body import check_fields, describe_unknown_fields, read_body
from speechframe.local.service.http.middleware import LOG_NOTE_KEY, TRACE_ID_KEY
from speechframe.local.service.http.readers import Reader
from speechframe.local.service.speech.catalogue import ResolvedVoice
from speechframe.local.service.speech.paid import hold_slot, paid_call, read_mark, read_take
from speechframe.local.service.speech.speaking import (
    VARIATION_IGNORED,
    PartFailed,
    PartRefused,
    SpokenPart,
    encode_part,
    make_utterance,
    speak,
    warn_unused_words,
)
from speechframe.local.service.state import STATE, State
from speechframe.local.service.workers.speech import AudioFormat
from speechframe.spec import billing, chosen
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.deprecation import GEN2_STREAMING_NOTICE, make_deprecation_notice
from speechframe.spec.limits import REGIONS, Pool
from speechframe.spec.speech import Model, StreamRequest
from speechframe.spec.texts import count_billed_characters, find_text_warnings

log = logging.getLogger("speechframe.service")

_NO_SAMPLES = np.zeros(0, np.float32)


def get_default_model(state: State) -> Model:
    """Return the default model for streams in the region of this service (section 2.2)."""
    return REGIONS[state.config.region].default_stream_model


@dataclass
class _StreamCall:
    """A checked request. `made_millis` is the price of the sentences spoken so far.

    `manner` is the description of the speech for a worker, without the text.
    """

    request: StreamRequest
    resolved: ResolvedVoice
    model: Model
    shape: AudioFormat
    manner: Utterance
    reservation: quota.Reservation
    reader: Reader
    warnings: tuple[str, ...]
    made_millis: int = field(default=0)


async def stream(request: web.Request) -> web.StreamResponse:
    """Answer a streaming request."""
    state = request.app[STATE]
    key = require_key(request)
    fields = await read_body(request, late_code=HttpErrorCode.REQUEST_TIMEOUT)
    call = _read_call(request, state, key, fields)
    async with hold_slot(state, key, Pool.STREAMING):
        return await _answer(request, state, call)


def _read_call(request: web.Request, state: State, key: Key, fields: dict[str, object]) -> _StreamCall:
    wanted, result = check_fields(StreamRequest, fields)
    model = wanted.model or get_default_model(state)
    resolved = state.catalogues.by_model[model].resolve_voice(wanted)
    asked = wanted.channel_type, wanted.sample_rate
    shape = AudioFormat.from_request(wanted.format, asked, model, names=("channelType", "sampleRate"))
    take = read_take(request)
    ignored = model is not Model.GEN2 and "variation" in wanted.model_fields_set
    warnings = [
        describe_unknown_fields(result.unknown),
        *(make_deprecation_notice(StreamRequest, name) for name in result.deprecated),
        GEN2_STREAMING_NOTICE if model is Model.GEN2 else None,
        VARIATION_IGNORED if ignored else None,
        *shape.warnings,
        *find_text_warnings(wanted.text),
    ]
    with_model = wanted.model_copy(update={"model": model})
    content = with_model.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    mark = read_mark(request, "stream", json.dumps(content, sort_keys=True).encode(), take=take)
    price_millis = billing.compute_speech_millicredits(wanted.text)
    reservation = quota.Reservation(state.owner.name, key, mark, "stream", price_millis)
    manner = make_utterance(wanted, resolved, model, take=take)
    reader = state.readers.get_reader(request.protocol)
    shown_warnings = tuple(warning for warning in warnings if warning)
    return _StreamCall(wanted, resolved, model, shape, manner, reservation, reader, shown_warnings)


async def _answer(request: web.Request, state: State, call: _StreamCall) -> web.StreamResponse:
    # Check before the price is reserved, so that a full queue refuses without a transaction.
    state.pools.get_pool(call.resolved.engine).check_room(call.reservation.key.key_hash)
    price_text = f"the text has {count_billed_characters(call.request.text):,} billed characters"
    response = web.StreamResponse()
    try:
        async with paid_call(state, call.reservation, price_text) as paid:
            try:
                await _send_speech(request, state, call, response)
            finally:
                paid.part_millis = call.made_millis if response.prepared else 0
            # Settle before the end of the answer is sent, so that a client then sees the new balance.
            await paid.settle()
    except Exception as error:
        if response.prepared:
            log.warning("a stream was cut off: %s, trace %s", type(error).__name__, request[TRACE_ID_KEY])
            _cut_off(request)
            raise ConnectionResetError("the answer had begun; it was cut off") from None
        if isinstance(error, PartFailed):
            message = f"the speech engine failed: {error}; nothing was billed"
            raise Refusal(HttpErrorCode.INTERNAL_ERROR, message) from None
        raise
    finally:
        _add_log_note(request, call)
    await response.write_eof()
    return response


def _add_log_note(request: web.Request, call: _StreamCall) -> None:
    request[LOG_NOTE_KEY] = (
        f"key {call.reservation.key.fingerprint} voice {call.resolved.voice.voice_id} "
        f"characters {call.made_millis // billing.MILLICREDITS_PER_CREDIT} of "
        f"{call.reservation.price_millis // billing.MILLICREDITS_PER_CREDIT}"
    )


def _cut_off(request: web.Request) -> None:
    # The body then lacks its last chunk, so the client can see that the answer is not complete.
    if request.transport is not None:
        request.transport.close()


async def _send_speech(
    request: web.Request, state: State, call: _StreamCall, response: web.StreamResponse
) -> None:
    """Speak the text and send its audio. The caller ends the answer.

    Raises
    ------
    Refusal
        400 if the voice can speak nothing of the text.
    """
    encoder = None
    threads = state.threads.get_threads(call.reservation.key.key_hash)
    texts = split_sentences(call.request.text)
    before: str | None = None
    warnings = [*call.warnings]
    ahead = asyncio.create_task(_speak_first(state, call, texts[0]))
    try:
        for text, following in zip_longest(texts, texts[1:]):
            part = await ahead
            warnings += part.warnings
            before = text if len(part.samples) else before
            if following is not None:
                ahead = asyncio.create_task(_speak_next(state, call, following, before))
            if not len(part.samples):
                continue
            encoder = encoder or call.shape.make_encoder(part.sample_rate_hz)
            async for data in encode_part(encoder, part, threads):
                if not response.prepared:
                    _set_headers(request, response, call, warnings)
                    await response.prepare(request)
                await response.write(data)
    finally:
        ahead.cancel()
        await asyncio.gather(ahead, return_exceptions=True)
    if encoder is None:
        raise Refusal(HttpErrorCode.INVALID_REQUEST, "text: it contains nothing that the voice can speak")
    rest = encoder.finish()
    if not response.prepared:
        _set_headers(request, response, call, warnings)
        await response.prepare(request)
    if rest:
        await response.write(rest)


async def _speak(state: State, call: _StreamCall, text: str, **speak_options: Any) -> SpokenPart:
    return await speak(
        state,
        call.reservation.key,
        call.resolved.engine,
        replace(call.manner, text=text),
        reader=call.reader,
        **speak_options,
    )


async def _speak_first(state: State, call: _StreamCall, text: str) -> SpokenPart:
    """Return the first sentence as audio. Refuse a text that cannot be spoken as a whole."""
    try:
        part = await _speak(state, call, text, whole=call.request.text)
    except PartRefused as error:
        raise Refusal(HttpErrorCode.INVALID_REQUEST, f"text: {error}") from None
    call.made_millis += billing.compute_speech_millicredits(text)
    return replace(part, warnings=(*part.warnings, *warn_unused_words(part.unused_words)))


async def _speak_next(state: State, call: _StreamCall, text: str, before: str | None) -> SpokenPart:
    """Return the next sentence as audio after a pause. Return no samples if the engine refuses it."""
    pause_s = choose_pause_s(before, text, call.manner.rate) if before is not None else 0.0
    try:
        part = await _speak(state, call, text, pause_s=pause_s, under_way=True)
    except PartRefused as error:
        part = SpokenPart(_NO_SAMPLES, 0, (str(error),))
    call.made_millis += billing.compute_speech_millicredits(text)
    return part


def _set_headers(
    request: web.Request, response: web.StreamResponse, call: _StreamCall, warnings: Iterable[str]
) -> None:
    """Set the headers of an answer, before its first bytes."""
    if chosen.PROGRESS_HEADER in request.headers:
        response.headers[chosen.CALL_STATE_HEADER] = "working"
    response.headers["Content-Type"] = call.shape.content_type
    response.headers["Cache-Control"] = "no-store"
    if call.model is Model.GEN2:
        response.headers[chosen.DEPRECATION_HEADER] = "true"
    add_warnings(response, dict.fromkeys(warnings))
