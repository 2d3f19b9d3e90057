"""Audio that is heard while it arrives: one kind of stream, whether it comes over HTTP or a WebSocket."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from speechframe.audio.codec import AudioInfo
from speechframe.client.caller import Caller
from speechframe.client.calls import Call
from speechframe.client.exchange import CutOffError, Reply
from speechframe.client.masking import without_secrets
from speechframe.client.received import Received
from speechframe.client.retries import persist
from speechframe.errors import AudioError, BadAnswer, SpeechframeError, StreamBroken
from speechframe.spec.billing import billed_characters
from speechframe.spec.limits import REGIONS
from speechframe.spec.speech import Format, Model, StreamRequest
from speechframe.wire.errors import warnings_of
from speechframe.wire.stream import NO_END, tells_its_end, words_instead

__all__ = ["Source", "Stream", "StreamFacts", "StreamSummary", "StreamView", "default_model", "start"]


@dataclass(slots=True)
class StreamFacts:
    """What is known of a stream beside its audio, as it becomes known."""

    region: str = ""
    trace_id: str | None = None
    warnings: list[str] = field(default_factory=list)
    attempts: int = 1
    billed_characters: int = 0
    text: str = ""
    started_s: float = field(default_factory=time.perf_counter)
    """`time.perf_counter` when the first text was handed over."""


class Source(Protocol):
    """Where a stream's audio comes from."""

    @property
    def facts(self) -> StreamFacts:
        """What is known of the stream."""

    async def next(self) -> bytes | None:
        """Return the next piece; None at the end."""

    async def close(self) -> None:
        """Stop; without effect at the end."""


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """What a stream was, or is so far.

    Parameters
    ----------
    complete
        Whether all of it has come.
    bytes
        Encoded audio, as it came.
    audio_seconds
        Its length; 0 while too little has come to tell.
    billed_characters
        What it should cost, by the rule of `spec.billing`; one that is broken off costs the sentences that
        were spoken.
    first_byte_ms
        From handing over the first text to the first audio, in the attempt that worked; None before it.
    latency_ms
        From there to the last audio.
    format, sample_rate_hz, channels
        By the audio's own headers, where it has any.
    warnings
        What the service ignored or replaced, and where the audio is not what was asked for.
    trace_id
        The service's id of the answer.
    region
        The region that answered.
    attempts
        How many attempts it took.
    """

    complete: bool
    bytes: int
    audio_seconds: float
    billed_characters: int
    first_byte_ms: float | None
    latency_ms: float
    format: Format
    sample_rate_hz: int
    channels: int
    warnings: tuple[str, ...]
    trace_id: str | None
    region: str
    attempts: int


class StreamState:
    """What a stream has received, and how far it is."""

    def __init__(self, source: Source, received: Received) -> None:
        self.source, self.received = source, received
        self.first_s: float | None = None
        self.last_s = source.facts.started_s
        self.info: AudioInfo | None = None
        self.failure: BaseException | None = None
        self.is_complete = self.is_closed = False

    def looked(self) -> AudioInfo | None:
        """Return what the audio is so far; None while that cannot be told."""
        try:
            return self.received.info()
        except AudioError:
            return None


class StreamView:
    """What can be read of a stream at any time, by any thread."""

    _state: StreamState

    def __repr__(self) -> str:
        """Return how far it is."""
        state = self._state
        word = "complete" if state.is_complete else "closed" if state.is_closed else "open"
        return f"<{type(self).__name__} {word}, {state.received.size:,} bytes of {self.format.value}>"

    @property
    def format(self) -> Format:
        """The format that was asked for."""
        return self._state.received.format

    @property
    def sample_rate_hz(self) -> int:
        """The rate that was asked for, in Hz; the summary has that of the audio."""
        return self._state.received.sample_rate_hz

    @property
    def channels(self) -> int:
        """The channels that were asked for."""
        return self._state.received.channels

    @property
    def text(self) -> str:
        """What was handed over to be said, so far."""
        return self._state.source.facts.text

    @property
    def audio(self) -> bytes:
        """A copy of all that has come so far, also of a stream that broke."""
        return self._state.received.data

    @property
    def first_byte_ms(self) -> float | None:
        """Milliseconds from handing over the first text to the first audio; None before it."""
        first_s = self._state.first_s
        return None if first_s is None else (first_s - self._state.source.facts.started_s) * 1000

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come."""
        return self._state.is_complete

    @property
    def summary(self) -> StreamSummary:
        """What it was, or is so far."""
        state, facts = self._state, self._state.source.facts
        asked = AudioInfo(self.format, self.sample_rate_hz, self.channels, 0.0)
        info = state.info or state.looked() or asked
        differences = []
        if info.sample_rate_hz != asked.sample_rate_hz:
            differences.append(f"expected {asked.sample_rate_hz} Hz, got {info.sample_rate_hz} Hz")
        if info.channels != asked.channels:
            differences.append(f"expected {asked.channels} channels, got {info.channels}")
        return StreamSummary(
            complete=state.is_complete,
            bytes=state.received.size,
            audio_seconds=info.audio_seconds,
            billed_characters=facts.billed_characters,
            first_byte_ms=self.first_byte_ms,
            latency_ms=(state.last_s - facts.started_s) * 1000,
            format=info.format,
            sample_rate_hz=info.sample_rate_hz,
            channels=info.channels,
            warnings=(*facts.warnings, *differences),
            trace_id=facts.trace_id,
            region=facts.region,
            attempts=facts.attempts,
        )

    def samples(self) -> npt.NDArray[np.float32]:
        """Return what came so far as float32 in [-1, 1]: ``(frames,)`` for mono or ``(frames, channels)``.

        Raises
        ------
        AudioError
            What came is no audio, or not enough of it to be decoded.
        """
        return self._state.received.samples()


class Stream(StreamView):
    """Audio as it arrives: ``async for chunk in stream``, each a few kilobytes of one continuous file.

    Leaving the loop, a cancellation within it, and :meth:`close` close the connection, so that the service
    stops and frees the slot. What was received is kept: all of it is in memory at the end (a minute of WAV
    at 24000 Hz takes 3 MB; no more is taken than the text can fill). A stream that breaks raises
    :class:`StreamBroken`, or the service's own error, and keeps what came in :attr:`audio`.

    Made by :meth:`Client.stream`, :meth:`StreamSession.speak` and ``speechframe.aio.stream``.

    Examples
    --------
    >>> async with await client.stream("Good morning.", voice="ivy") as stream:  # doctest: +SKIP
    ...     async for chunk in stream:
    ...         player.write(chunk)
    ...     print(stream.first_byte_ms, stream.summary.audio_seconds)
    41.3 1.2
    """

    def __init__(self, source: Source, received: Received, first: bytes | None = None) -> None:
        self._state = StreamState(source, received)
        self._first = first
        """Audio that has come already and is not handed out yet."""
        self._release: list[Callable[[], Awaitable[None]]] = []
        self._loop = asyncio.get_running_loop()
        if first is not None:
            self.keep(first)

    async def __aenter__(self) -> Self:
        """Return the stream."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the stream."""
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yield the audio that has not been handed out yet; leaving the loop closes the stream."""
        try:
            while (chunk := await self.next()) is not None:
                yield chunk
        finally:
            await self.close()

    async def __anext__(self) -> bytes:
        """Return the next piece; the stream stays open, whatever becomes of it."""
        chunk = await self.next()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def next(self) -> bytes | None:
        """Return the next piece of audio; None at the end.

        Raises
        ------
        StreamBroken
            It ended before its end, or was closed.
        BadAnswer
            All of it came, and is no audio, or there is none of a text.
        ServiceError
            The service failed in the middle (over a WebSocket).
        """
        state = self._state
        if state.failure is not None:
            raise state.failure
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if state.is_complete:
            return None
        try:
            chunk = await state.source.next()
            if chunk is None:
                await self._complete()
                return None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Who closed the stream meanwhile has said why it ends.
            failure = state.failure = self._state.failure or error
            await self.close()
            if failure is error:
                raise
            raise failure from None
        self.keep(chunk)
        return chunk

    def keep(self, chunk: bytes) -> None:
        """Take audio that was handed out in another way, as an event."""
        state = self._state
        state.last_s = time.perf_counter()
        state.first_s = state.first_s or state.last_s
        state.received.add(chunk)

    async def read(self) -> bytes:
        """Return all of the audio, when the rest of it has come.

        Raises
        ------
        StreamBroken, BadAnswer, ServiceError
            See :meth:`next`; what came is in :attr:`audio`.
        """
        async for _ in self:
            pass
        return self.audio

    def reading(self) -> Future[bytes]:
        """Begin to :meth:`read` in the stream's own loop, from any thread, and return what will be all of it.

        Cancelling the future closes the stream.
        """
        return asyncio.run_coroutine_threadsafe(self.read(), self._loop)

    async def save(self, path: str | PathLike[str]) -> Path:
        """Write the audio to a file, when the rest of it has come, and return the path.

        Parameters
        ----------
        path
            With the ending of this stream's format the bytes are written, with the length in the header;
            another ending (``.wav``, ``.flac``, ``.mp3``, ``.ogg``) converts, none gets the format's.

        Raises
        ------
        AudioError
            For an ending that is no audio format.
        StreamBroken, BadAnswer, ServiceError
            See :meth:`next`; nothing is written.
        """
        await self.read()
        return await asyncio.to_thread(self._state.received.save, path)

    async def close(self) -> None:
        """Close the connection, where the stream is not over; calling it again does nothing."""
        state = self._state
        if state.is_closed:
            return
        state.is_closed = True
        if not state.is_complete and state.failure is None:
            words, trace_id = "the stream was closed before its end", state.source.facts.trace_id
            state.failure = StreamBroken(words, received_bytes=state.received.size, trace_id=trace_id)
        await _stop(state.source, self._release)

    def owning(self, release: Callable[[], Awaitable[None]]) -> Self:
        """Return the stream, which calls `release` when it is over, after what it was given before."""
        self._release.append(release)
        return self

    def __del__(self) -> None:
        """Stop a stream that nobody holds any more: the service must not go on speaking."""
        state = getattr(self, "_state", None)
        if state is not None and not state.is_closed and not self._loop.is_closed():
            stopping = asyncio.run_coroutine_threadsafe(_stop(state.source, self._release), self._loop)
            _STOPPING.add(stopping)
            stopping.add_done_callback(_STOPPING.discard)

    async def _complete(self) -> None:
        state = self._state
        info = await asyncio.to_thread(state.looked)
        if info is None and state.received.size:
            words = f"the audio cannot be read: it is no {self.format.value}"
            raise BadAnswer(words, trace_id=state.source.facts.trace_id)
        state.info, state.is_complete = info, True
        await self.close()


_STOPPING: set[Future[None]] = set()
"""The closing of streams that nobody holds any more: a loop holds its tasks weakly."""


async def _stop(source: Source, release: list[Callable[[], Awaitable[None]]]) -> None:
    try:
        await source.close()
    finally:
        while release:
            await release.pop(0)()


def default_model(region: str) -> Model:
    """Return the model that a region streams with where none is asked for (section 2.2)."""
    known = REGIONS.get(region)
    return known.default_stream_model if known is not None else Model.FALCON_2


async def start(caller: Caller, call: Call[StreamRequest]) -> Stream:
    """Return a stream over HTTP whose first audio is there, after as many attempts as are allowed.

    Raises
    ------
    SpeechframeError
        What the last attempt met; nothing is repeated once audio has come.
    """

    async def attempt(region: str) -> tuple[_HttpSource, bytes]:
        source = _HttpSource(caller, call, region)
        try:
            return source, await source.begin()
        except BaseException as error:
            await source.close()
            if not isinstance(error, SpeechframeError):
                raise
            failure = without_secrets(error, caller.redactor)
        raise failure

    (source, first), source_attempts = await persist(attempt, caller.health, caller.patience)
    source.facts.attempts = source_attempts
    request = call.request
    model = request.model or default_model(source.facts.region)
    received = Received(request.format, request.channel_type, request.sample_rate, model)
    stream = Stream(source, received, first)
    caller.opened.add(stream)
    return stream


class _HttpSource:
    """The body of an answer to ``POST /v1/speech/stream`` (section 2.2)."""

    def __init__(self, caller: Caller, call: Call[StreamRequest], region: str) -> None:
        text = call.request.text
        self.facts = StreamFacts(region, billed_characters=billed_characters(text), text=text)
        self._caller, self._call = caller, call
        self._headers: Mapping[str, str] = {}
        self._unread: Reply | None = None
        self._size = 0
        self._most_bytes = caller.bounds.download_bytes_for(call.request)
        self._silence_s = caller.timeouts.attempt_s(len(text))
        self._left_s = caller.timeouts.speech_s(text)

    async def begin(self) -> bytes:
        """Send the request and return the first audio."""
        caller, call = self._caller, self._call
        raw = await caller.ask(
            "POST",
            call.operation,
            self.facts.region,
            caller.headers_of(call),
            body=call.body,
            timeout_s=self._silence_s,
            max_bytes=None,
        )
        self._headers, self._unread = raw.headers, raw.reply
        self.facts.trace_id = raw.trace_id
        self.facts.warnings += warnings_of(raw.headers, clean=caller.redactor.clean)
        if raw.headers.get("Content-Encoding", "").strip().lower() not in {"", "identity"}:
            raise self._broken("the audio came with a Content-Encoding that was not asked for")
        if (words := words_instead(raw.headers)) is not None:
            raise self._broken(words)
        first = await self.next()
        if first is None:
            raise self._broken("the answer holds no audio")
        # Between two pieces there is at most a sentence.
        self._silence_s = caller.timeouts.base_s
        return first

    async def next(self) -> bytes | None:
        """Return the next piece; None at the end."""
        unread = self._unread
        assert unread is not None  # noqa: S101 - for the type: `begin` comes first
        limit_s, began_s = min(self._silence_s, self._left_s), time.perf_counter()
        try:
            async with asyncio.timeout(limit_s):
                piece = await unread.read()
        except TimeoutError:
            too_long = limit_s < self._silence_s
            words = "longer than any speech of its text" if too_long else f"silent for {limit_s:g} s"
            raise self._broken(f"the stream was {words}") from None
        except CutOffError as error:
            raise self._broken(str(error)) from None
        # Only waits count: a player takes its time.
        self._left_s -= time.perf_counter() - began_s
        self._size += len(piece)
        if self._size > self._most_bytes:
            raise self._broken(f"the stream is too large: more than {self._most_bytes:,} bytes")
        if not piece and not tells_its_end(self._headers):
            raise self._broken(NO_END)
        return piece or None

    async def close(self) -> None:
        """Close the connection, unless the answer was read to its end."""
        if self._unread is not None:
            self._unread.close()

    def _broken(self, words: str) -> StreamBroken:
        return StreamBroken(words, received_bytes=self._size, trace_id=self.facts.trace_id)
