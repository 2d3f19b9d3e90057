"""Answer ``POST /v1/speech/stream``, which sends audio while the rest is still being made.

Section 2.2 of the service document describes this call.

The text is spoken sentence by sentence, and each sentence is a separate job of a worker. So a client that
reads slowly blocks no worker, a client that leaves wastes at most one sentence, and streams take turns. The
service speaks one sentence ahead.
"""

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from aiohttp import web

from speechframe.audio import codec
from speechframe.audio.streams import StreamEncoder
from speechframe.engines.streaming import choose_pause_s, split_sentences
from speechframe.local.service.books import quota
from speechframe.local.service.books.keys import Key
from speechframe.local.service.http.answers import Refusal, add_warnings
from speechframe.local.service.http.auth import require_key
from speechframe.local.service.http.body import check_fields, describe_unknown_fields, read_body
from speechframe.local.service.http.middleware import LOG_NOTE_KEY, TRACE_ID_KEY
from speechframe.local.service.http.readers import Reader
from speechframe.local.service.speech.catalogue import ResolvedVoice
from speechframe.local.service.speech.paid import CallBill, hold_slot, read_mark, read_take, reserve_price
from speechframe.local.service.speech.speaking import (
    VARIATION_IGNORED,
    PartFailed,
    PartRefused,
    SpokenPart,
    describe_utterance,
    encode_part,
    speak,
    warn_unused_words,
)
from speechframe.local.service.state import STATE, State
from speechframe.spec import billing, chosen
from speechframe.spec.codes import HttpErrorCode
from speechframe.spec.deprecation import GEN2_STREAMING_NOTICE, make_deprecation_notice
from speechframe.spec.limits import REGIONS, Pool, get_default_sample_rate_hz
from speechframe.spec.speech import ChannelType, Format, Model, StreamRequest
from speechframe.spec.texts import count_billed_characters, find_text_warnings

log = logging.getLogger("speechframe.service")

_NO_SAMPLES = np.zeros(0, np.float32)


@dataclass(frozen=True)
class StreamFormat:
    """Format, channels and sample rate of a stream.

    Parameters
    ----------
    format, channel_type, sample_rate_hz
        Format, channels and sample rate in Hz of the audio that is sent.
    warnings
        A warning if channels or sample rate differ from the request, because the format fixes them.
    """

    format: Format
    channel_type: ChannelType
    sample_rate_hz: int
    warnings: tuple[str, ...]

    @classmethod
    def from_request(
        cls,
        format: Format,
        asked: tuple[ChannelType, float | None],
        model: Model,
        *,
        names: tuple[str, str] = ("channelType", "sampleRate"),
    ) -> "StreamFormat":
        """Return the format of the audio for a request.

        Parameters
        ----------
        asked
            The requested channel type and sample rate in Hz. None selects the default rate of the model.
        names
            The request's names of these two fields, for a warning.
        """
        wanted = asked[0], int(asked[1] or get_default_sample_rate_hz(model))
        channel_type, rate_hz = codec.get_forced_shape(format, *wanted)
        given = asked[0], asked[1] or rate_hz
        warnings: tuple[str, ...] = ()
        if (channel_type, rate_hz) != given:
            warning = f"{format} is always {channel_type} at {rate_hz} Hz; {' and '.join(names)} were set so"
            warnings = (warning,)
        return cls(format, channel_type, rate_hz, warnings)

    @property
    def content_type(self) -> str:
        """Content-Type of the audio."""
        return chosen.make_content_type(self.format, self.sample_rate_hz, self.channel_type.channels)

    def make_encoder(self, input_rate_hz: int) -> StreamEncoder:
        """Return a new encoder for samples at this rate."""
        return StreamEncoder(self.format, self.channel_type, input_rate_hz, self.sample_rate_hz)


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
    shape: StreamFormat
    manner: dict[str, Any]
    bill: CallBill
    reader: Reader
    warnings: tuple[str, ...]
    made_millis: int = field(default=0)


async def stream(request: web.Request) -> web.StreamResponse:
    """Answer a streaming request."""
    state = request.app[STATE]
    key = require_key(request)
    call = _read_call(request, state, key, await read_body(request, state.config))
    with hold_slot(state, key, Pool.STREAMING):
        return await _answer(request, state, call)


def _read_call(request: web.Request, state: State, key: Key, fields: dict[str, object]) -> _StreamCall:
    wanted, result = check_fields(StreamRequest, fields)
    model = wanted.model or get_default_model(state)
    resolved = state.catalogues.by_model[model].resolve_voice(wanted)
    shape = StreamFormat.from_request(wanted.format, (wanted.channel_type, wanted.sample_rate), model)
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
    bill = CallBill(
        key,
        read_mark(request, "stream", json.dumps(content, sort_keys=True).encode(), take=take),
        billing.compute_speech_millicredits(wanted.text),
        f"the text has {count_billed_characters(wanted.text):,} billed characters",
        "stream",
    )
    manner = describe_utterance(wanted, resolved, model, take=take)
    reader = state.readers.get_reader(request.protocol)
    shown_warnings = tuple(warning for warning in warnings if warning)
    return _StreamCall(wanted, resolved, model, shape, manner, bill, reader, shown_warnings)


async def _answer(request: web.Request, state: State, call: _StreamCall) -> web.StreamResponse:
    # Check before the price is reserved, so that a full queue refuses without a transaction.
    state.pools.get_pool(call.resolved.engine).check_room(call.bill.key.key_hash)
    async with reserve_price(state, call.bill) as reservation:
        response = web.StreamResponse()
        try:
            await _send_speech(request, state, call, response)

            def settle(connection: sqlite3.Connection) -> None:
                quota.settle(connection, reservation, call.bill.millis)

            # Settle before the end of the answer is sent, so that a client then sees the new balance.
            await state.database.run(settle)
        except BaseException as error:
            _add_log_note(request, call)
            if not response.prepared and isinstance(error, PartFailed):
                message = f"the speech engine failed: {error}; nothing was billed"
                raise Refusal(HttpErrorCode.INTERNAL_ERROR, message) from None
            if not response.prepared:
                raise
            made_millis = call.made_millis
            posted = state.database.queue_write(lambda c: quota.settle(c, reservation, made_millis))
            if not isinstance(error, Exception):
                raise
            # Settle the part before the connection is cut, so that the client then sees the new balance.
            with contextlib.suppress(sqlite3.Error):
                await asyncio.shield(asyncio.wrap_future(posted))
            log.warning("a stream was cut off: %s, trace %s", type(error).__name__, request[TRACE_ID_KEY])
            _cut_off(request)
            raise ConnectionResetError("the answer had begun; it was cut off") from None
    _add_log_note(request, call)
    await response.write_eof()
    return response


def _add_log_note(request: web.Request, call: _StreamCall) -> None:
    request[LOG_NOTE_KEY] = (
        f"key {call.bill.key.fingerprint} voice {call.resolved.voice.voice_id} "
        f"characters {call.made_millis // billing.MILLICREDITS_PER_CREDIT} of "
        f"{call.bill.millis // billing.MILLICREDITS_PER_CREDIT}"
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
    encoder: StreamEncoder | None = None
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
            async for data in encode_part(encoder, part, state.threads.get_threads(call.bill.key.key_hash)):
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
        state, call.bill.key, call.resolved.engine, call.manner, text, reader=call.reader, **speak_options
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
    pause_s = choose_pause_s(before, text, call.manner["rate"]) if before is not None else 0.0
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
