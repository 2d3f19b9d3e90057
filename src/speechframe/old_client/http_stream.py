"""``POST /v1/speech/stream`` (section 2.2) as a stream: tried until its first audio is there, then read."""

import asyncio
import time
from typing import Any

from speechframe.errors import BadAnswer, SpeechframeError, StreamBroken
from speechframe.old_client._exchange import CutOffError
from speechframe.old_client._refused import refusal, without_secrets
from speechframe.old_client.calls import Call, accepted
from speechframe.old_client.reach import Reach
from speechframe.old_client.received import Received
from speechframe.old_client.retry import persist
from speechframe.old_client.stream import Stream, StreamFacts
from speechframe.old_client.transport import Incoming, Reply
from speechframe.spec.billing import billed_characters
from speechframe.spec.check import check
from speechframe.spec.deprecation import warn_deprecated
from speechframe.spec.limits import REGIONS
from speechframe.spec.speech import Model, StreamRequest
from speechframe.wire.errors import trace_id_of, warnings_of
from speechframe.wire.stream import NO_END, encode_stream, tells_its_end, words_instead

__all__ = ["make_stream_call", "start"]

_ENCODINGS = frozenset({"", "identity"})


def make_stream_call(
    text: str,
    *,
    voice: str,
    model: str | None = None,
    take: int = 0,
    idempotency_key: str | None = None,
    stacklevel: int = 2,
    **fields: Any,
) -> Call[StreamRequest]:
    """Return a checked call from keyword arguments (section 2.2, snake_case names).

    Raises
    ------
    InvalidRows
        For a value out of range, an unknown field or model; ``problems`` lists all.
    """
    checked = check(StreamRequest, {"text": text, "voice_id": voice, "model": model, **fields})
    request = accepted(checked, StreamRequest)
    warn_deprecated(StreamRequest, checked.deprecated, stacklevel=stacklevel)
    return Call("stream", request, encode_stream(request), idempotency_key, take)


async def start(reach: Reach, call: Call[StreamRequest]) -> Stream:
    """Return a stream whose first audio is there, after as many attempts as the client's patience allows.

    Raises
    ------
    SpeechframeError
        What the last attempt met; nothing is repeated once audio has come.
    """

    async def send(region: str) -> tuple[_HttpSource, bytes]:
        source = _HttpSource(reach, call, region)
        try:
            first = await source.begin()
        except SpeechframeError as error:
            failure = without_secrets(error, reach.redactor)
        except BaseException:
            source.drop()
            raise
        else:
            return source, first
        source.drop()
        raise failure

    (source, first), attempts = await persist(send, reach.regions, reach.patience)
    source.facts.attempts = attempts
    request, region = call.request, REGIONS.get(source.facts.region)
    model = request.model or (region.default_stream_model if region is not None else Model.FALCON_2)
    received = Received(request.format, request.channel_type, request.sample_rate, model)
    stream = Stream(source, received).begun(first)
    reach.open.add(stream)
    return stream


class _HttpSource:
    """The body of an answer to ``POST /v1/speech/stream``."""

    def __init__(self, reach: Reach, call: Call[StreamRequest], region: str) -> None:
        text = call.request.text
        self.facts = StreamFacts(region, billed_characters=billed_characters(text), text=text)
        self._reach, self._call = reach, call
        self._incoming: Incoming | None = None
        self._size = 0
        self._most_bytes = reach.bounds.stream_bytes_for(call.request)
        self._silence_s = reach.timeouts.attempt_s(len(call.request.text))
        self._left_s = reach.timeouts.stream_s(call.request)

    async def begin(self) -> bytes:
        """Send the request and return the first audio."""
        reach, body = self._reach, self._call.body
        assert isinstance(body, bytes)  # noqa: S101 - for the type: the body of this call is JSON
        answer = await reach.transport.begin(
            "POST",
            reach.url(self.facts.region, self._call.operation),
            headers={**reach.headers(self._call, None), "Accept": "*/*"},
            body=body,
            timeout_s=self._silence_s,
            max_error_bytes=reach.bounds.error_bytes,
        )
        if isinstance(answer, Reply):
            raise refusal(answer, reach.redactor)
        self._incoming = answer
        clean = reach.redactor.clean
        self.facts.trace_id = trace_id_of(answer.headers, clean)
        self.facts.warnings += warnings_of(answer.headers, clean=clean)
        if answer.headers.get("Content-Encoding", "").strip().lower() not in _ENCODINGS:
            raise self._bad("the audio came with a Content-Encoding that was not asked for")
        if (words := words_instead(answer.headers, clean)) is not None:
            raise self._bad(words)
        first = await self.next()
        if first is None:
            raise self._bad("the answer holds no audio")
        # Between two pieces there is at most a sentence.
        self._silence_s = reach.timeouts.base_s
        return first

    async def next(self) -> bytes | None:
        """Return the next piece; None at the end."""
        incoming = self._incoming
        assert incoming is not None  # noqa: S101 - for the type: `begin` comes first
        limit_s, began_s = min(self._silence_s, self._left_s), time.perf_counter()
        try:
            async with asyncio.timeout(limit_s):
                piece = await incoming.read()
        except TimeoutError:
            too_long = limit_s < self._silence_s
            words = "longer than any speech of its text" if too_long else f"silent for {limit_s:g} s"
            raise self._bad(f"the stream was {words}") from None
        except CutOffError:
            raise self._bad("the connection ended within the stream") from None
        # Only waits count: a player takes its time.
        self._left_s -= time.perf_counter() - began_s
        self._size += len(piece)
        if self._size > self._most_bytes:
            raise self._bad(f"the stream is too large: more than {self._most_bytes:,} bytes")
        if not piece and not tells_its_end(incoming.headers):
            raise self._bad(NO_END)
        return piece or None

    async def close(self) -> None:
        """Close the connection, unless the answer was read to its end."""
        self.drop()

    def drop(self) -> None:
        """Close the connection, unless the answer was read to its end."""
        if self._incoming is not None:
            self._incoming.close()

    def _bad(self, words: str) -> BadAnswer:
        self.drop()
        return StreamBroken(words, received_bytes=self._size, trace_id=self.facts.trace_id)
