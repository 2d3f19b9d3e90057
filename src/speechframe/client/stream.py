"""Streams of audio that can be played while they arrive.

A stream comes from a call over HTTP, or from a turn of a WebSocket. A turn is one text with its speech.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from speechframe.audio import codec
from speechframe.audio.codec import AudioInfo, get_forced_shape
from speechframe.audio.saving import PLAYABLE_FORMATS, save_audio
from speechframe.client.caller import Caller
from speechframe.client.calls import Bounds, PreparedCall
from speechframe.client.exchange import CutOffError
from speechframe.errors import AudioError, BadAnswer, StreamBroken
from speechframe.spec.limits import REGIONS, get_default_sample_rate_hz
from speechframe.spec.socket import SocketQuery
from speechframe.spec.speech import Format, Model, StreamRequest
from speechframe.spec.texts import count_billed_characters
from speechframe.wire.answers import NO_END_NOTE, collect_warnings, describe_wrong_content, has_marked_end

# Bytes of a sample in each format without a header.
_BYTES_OF_SAMPLE = {Format.PCM: 2, Format.ALAW: 1, Format.ULAW: 1}


@dataclass(eq=False, slots=True)
class StreamState:
    """The state of a stream so far. The receiver of audio changes it, and :class:`Stream` reads it."""

    # The values of the request, because raw formats lack a header.
    format: Format
    sample_rate_hz: int
    channels: int
    region: str
    text: str = ""
    trace_id: str | None = None
    warnings: list[str] = field(default_factory=list)
    attempts: int = 1
    # Times by `time.perf_counter`: when the first text was handed over, and when the first and the last piece
    # of audio arrived. None before the first piece.
    started_s: float = field(default_factory=time.perf_counter)
    first_s: float | None = None
    last_s: float | None = None
    is_complete: bool = False
    is_closed: bool = False
    received: bytearray = field(default_factory=bytearray, repr=False)

    def add(self, piece: bytes, bounds: Bounds) -> None:
        """Add a piece of audio. Raise StreamBroken if the audio is now too long for speech of the text."""
        self.last_s = time.perf_counter()
        self.first_s = self.first_s or self.last_s
        self.received += piece
        max_bytes = bounds.compute_max_audio_bytes(self.text, self.sample_rate_hz)
        if len(self.received) > max_bytes:
            raise self.make_error(f"the audio is too large for its text: more than {max_bytes:,} bytes")

    async def mark_complete(self) -> None:
        """Mark the audio as complete, or raise BadAnswer if the received bytes are not audio."""
        if self.received and await asyncio.to_thread(self.read_info) is None:
            message = f"the audio cannot be read: it is not {self.format.value}"
            raise BadAnswer(message, trace_id=self.trace_id)
        self.is_complete = True

    def read_info(self) -> AudioInfo | None:
        """Return the properties of the received audio, or None if it is too short or not audio."""
        try:
            return codec.inspect_audio(**self.make_codec_arguments()) if self.received else None
        except AudioError:
            return None

    def make_codec_arguments(self) -> dict[str, Any]:
        """Return the received audio as keyword arguments of `codec.decode`. Any thread may call this."""
        data = bytes(self.received)
        if self.format in PLAYABLE_FORMATS:
            return {"data": data, "format": self.format}
        # Leave out an incomplete frame at the end.
        whole = len(data) - len(data) % (_BYTES_OF_SAMPLE[self.format] * self.channels)
        shape = {"sample_rate_hz": self.sample_rate_hz, "channels": self.channels}
        return {"data": data[:whole], "format": self.format, **shape}

    def make_error(self, message: str) -> StreamBroken:
        """Return the error of a stream that broke, with the number of bytes received so far."""
        return StreamBroken(message, received_bytes=len(self.received), trace_id=self.trace_id)


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """Facts about a stream, which may still be running.

    `audio_seconds` is 0 while too little has arrived to measure. `billed_characters` is the price of the
    whole text in characters, by the rule of `spec.billing`. A stream that breaks off costs only the sentences
    that were spoken.

    `first_byte_ms` and `latency_ms` are the times from handing over the first text to the arrival of the
    first and the last audio, in the attempt that worked. `first_byte_ms` is None before the first audio.
    `format`, `sample_rate_hz` and `channels` come from the headers of the audio. Raw audio has no header, so
    these are the values of the request. `warnings` also report a sample rate or channels that differ from
    the request.
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


class StreamView:
    """The part of a stream that any thread may read at any time."""

    def __init__(self, state: StreamState) -> None:
        self.state = state
        # The values of the request. The summary has the properties of the received audio.
        self.format, self.channels, self.sample_rate_hz = state.format, state.channels, state.sample_rate_hz

    def __repr__(self) -> str:
        state = self.state
        status = "complete" if state.is_complete else "closed" if state.is_closed else "open"
        return f"<{type(self).__name__} {status}, {len(state.received):,} bytes of {self.format.value}>"

    @property
    def text(self) -> str:
        """The text handed over for speech so far."""
        return self.state.text

    @property
    def audio(self) -> bytes:
        """A copy of all audio received so far, even if the stream broke."""
        return bytes(self.state.received)

    @property
    def first_byte_ms(self) -> float | None:
        """Milliseconds from handing over the first text to the first audio, or None before that audio."""
        first_s = self.state.first_s
        return None if first_s is None else (first_s - self.state.started_s) * 1000

    @property
    def is_complete(self) -> bool:
        """True once all audio has arrived."""
        return self.state.is_complete

    @property
    def summary(self) -> StreamSummary:
        """Facts about the stream so far."""
        state, warnings = self.state, list(self.state.warnings)
        info = state.read_info() or AudioInfo(self.format, self.sample_rate_hz, self.channels, 0.0)
        if info.sample_rate_hz != self.sample_rate_hz:
            warnings.append(f"expected {self.sample_rate_hz} Hz, got {info.sample_rate_hz} Hz")
        if info.channels != self.channels:
            warnings.append(f"expected {self.channels} channels, got {info.channels}")
        return StreamSummary(
            complete=state.is_complete,
            bytes=len(state.received),
            audio_seconds=info.audio_seconds,
            billed_characters=count_billed_characters(state.text),
            first_byte_ms=self.first_byte_ms,
            latency_ms=((state.last_s or state.started_s) - state.started_s) * 1000,
            format=info.format,
            sample_rate_hz=info.sample_rate_hz,
            channels=info.channels,
            warnings=tuple(warnings),
            trace_id=state.trace_id,
            region=state.region,
            attempts=state.attempts,
        )

    def samples(self) -> npt.NDArray[np.float32]:
        """Return the audio so far as float32 in [-1, 1], as ``(frames,)`` for mono or ``(frames, channels)``.

        Raises :class:`AudioError` if the received bytes are not audio, or too few to decode.
        """
        if not self.state.received:
            return np.zeros((0,) if self.channels == 1 else (0, self.channels), np.float32)
        return codec.decode(**self.state.make_codec_arguments()).samples


class Stream(StreamView):
    """Audio as it arrives. ``async for chunk in stream`` yields pieces of a few kilobytes.

    All pieces together are one audio file. Leaving the loop, a cancellation within it, and :meth:`close`
    close the connection. The service then stops speaking, and the call no longer counts towards the limit of
    calls in flight. All received audio stays in memory (a minute of WAV at 24000 Hz takes 3 MB). Audio that
    is too long for speech of its text breaks the stream. A broken stream raises :class:`StreamBroken`, or the
    service's own error. The audio received until then stays in :attr:`audio`.

    Created by :meth:`Client.stream`, :meth:`StreamSession.speak` and ``speechframe.aio.stream``.

    Examples
    --------
    >>> async with await client.stream("Good morning.", voice="ivy") as stream:  # doctest: +SKIP
    ...     async for chunk in stream:
    ...         player.write(chunk)
    ...     print(stream.first_byte_ms, stream.summary.audio_seconds)
    41.3 1.2
    """

    def __init__(
        self,
        state: StreamState,
        pull: Callable[[], Awaitable[bytes | None]],
        stop: Callable[[], Awaitable[None] | None],
    ) -> None:
        super().__init__(state)
        self._pull, self._stops = pull, [stop]
        self.first: bytes | None = None  # the first piece, fetched before the stream is handed out
        self._failure: BaseException | None = None
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        try:
            while (chunk := await self.next()) is not None:
                yield chunk
        finally:
            await self.close()

    async def next(self) -> bytes | None:
        """Return the next piece of audio, or None at the end. The stream stays open between pieces.

        Raises
        ------
        StreamBroken, BadAnswer, ServiceError
            The stream ended too early or was closed, its bytes are not audio, or the service failed midway.
        """
        if (failure := self._failure) is not None:
            raise failure
        if (first := self.first) is not None:
            self.first = None
            return first
        if self.is_complete:
            return None
        try:
            if (chunk := await self._pull()) is not None:
                return chunk
            await self.state.mark_complete()
        except Exception as error:
            if isinstance(error, StreamBroken):
                # Remove the traceback, because detailed tracebacks show variables. Here a variable contains
                # audio, and an answer may echo the key.
                error.with_traceback(None)
            # If the stream was closed meanwhile, `_failure` is already set. Raise that error then.
            closed, self._failure = self._failure, self._failure or error
            await self.close()
            if closed is None:
                raise
            raise closed from None
        await self.close()
        return None

    async def read(self) -> bytes:
        """Wait for the rest of the audio, and return all of it. Errors are those of :meth:`next`."""
        try:
            # Keep no piece in a variable. A piece may echo the key, and detailed tracebacks show variables.
            while await self.next() is not None:
                pass
        finally:
            await self.close()
        return self.audio

    def start_reading(self) -> Future[bytes]:
        """Start :meth:`read` in the stream's own loop, and return the future of all the audio.

        Any thread may call this. Cancelling the future closes the stream.
        """
        return asyncio.run_coroutine_threadsafe(self.read(), self._loop)

    async def save(self, path: str | PathLike[str]) -> Path:
        """Wait for the rest of the audio, write all of it to a file, and return the path.

        Parameters
        ----------
        path
            The file to write. If its ending is that of this stream's format, the audio is written unchanged
            except for the length in its header. Another ending (``.wav``, ``.flac``, ``.mp3``, ``.ogg``)
            converts the audio. An existing file is replaced. A path without an ending gets the format's
            ending, and a number if a file with this name exists.

        Raises
        ------
        AudioError
            If the ending is not an audio format. Errors of :meth:`next` come before anything is written.
        """
        audio = await self.read()

        def write() -> Path:
            if (info := self.state.read_info()) is None:
                raise AudioError("no audio has arrived, so no file was written")
            rate_hz, channels = info.sample_rate_hz, info.channels
            return save_audio(path, audio, format=self.format, sample_rate_hz=rate_hz, channels=channels)

        return await asyncio.to_thread(write)

    async def close(self) -> None:
        """Close the connection, unless the stream is over. A second call does nothing."""
        state = self.state
        if not state.is_closed:
            state.is_closed = True
            if not state.is_complete and self._failure is None:
                self._failure = state.make_error("the stream was closed before its end")
            for stop in self._stops:
                if (stopping := stop()) is not None:
                    await stopping

    def call_at_end(self, release: Callable[[], Awaitable[None]]) -> Self:
        """Call `release` when the stream is closed or over. Return the stream itself."""
        self._stops.append(release)
        return self

    def __del__(self) -> None:
        """Close a stream without references, so that the service stops speaking."""
        loop = getattr(self, "_loop", None)
        if loop is not None and not self.state.is_closed and not loop.is_closed():
            asyncio.run_coroutine_threadsafe(self.close(), loop)


def make_state(request: StreamRequest | SocketQuery, region: str, text: str = "") -> StreamState:
    """Return the state of a stream before any audio has arrived."""
    known = REGIONS.get(region)
    # A request without a model gets the default model of its region (section 2.2 of the service document).
    model = request.model or (known.default_stream_model if known is not None else Model.FALCON_2)
    rate_hz = int(request.sample_rate or get_default_sample_rate_hz(model))
    channel_type, rate_hz = get_forced_shape(request.format, request.channel_type, rate_hz)
    return StreamState(request.format, rate_hz, channel_type.channels, region, text)


async def start_stream(caller: Caller, call: PreparedCall[StreamRequest]) -> Stream:
    """Return a stream over HTTP after its first audio. Only errors before that are retried."""
    stream, attempts = await caller.send_with_retries(lambda region: _start_attempt(caller, call, region))
    stream.state.attempts = attempts
    caller.opened.add(stream)
    return stream


async def _start_attempt(caller: Caller, call: PreparedCall[StreamRequest], region: str) -> Stream:
    """Return a stream from one attempt in one region, after its first audio has arrived."""
    text, timeouts = call.request.text, caller.timeouts
    state = make_state(call.request, region, text)
    silence_s = timeouts.compute_attempt_limit_s(len(text))
    left_s = timeouts.compute_stream_wait_limit_s(text)
    answer = await caller.ask(
        "POST",
        call.operation,
        region,
        caller.make_headers(call),
        body=call.body,
        timeout_s=silence_s,
        max_bytes=None,
    )
    state.trace_id = answer.trace_id
    state.warnings += collect_warnings(answer.headers, clean=caller.redactor.clean)

    fault = describe_wrong_content(answer.headers)
    if answer.headers.get("Content-Encoding", "").strip().lower() not in {"", "identity"}:
        fault = "the audio has a Content-Encoding, but none was requested"

    async def pull() -> bytes | None:
        nonlocal silence_s, left_s
        if fault is not None:
            raise state.make_error(fault)
        began_s = time.perf_counter()
        try:
            async with asyncio.timeout(min(silence_s, left_s)):
                piece = await answer.reply.read()
        except TimeoutError:
            limit = (
                "longer than any speech of its text" if left_s < silence_s else f"silent for {silence_s:g} s"
            )
            raise state.make_error(f"the stream was {limit}") from None
        except CutOffError as error:
            raise state.make_error(str(error)) from None
        # Count only the waits for the service, not the time between two calls of `pull`. A later piece is at
        # most a sentence away, so the limit for one wait no longer depends on the text.
        silence_s, left_s = timeouts.compute_attempt_limit_s(0), left_s - (time.perf_counter() - began_s)
        if piece:
            state.add(piece, caller.bounds)
            return piece
        if not has_marked_end(answer.headers):
            raise state.make_error(NO_END_NOTE)
        if not state.received:
            raise state.make_error("the answer holds no audio")
        return None

    stream = Stream(state, pull, answer.reply.close)
    try:
        stream.first = await stream.next()
    except BaseException:
        await stream.close()
        raise
    return stream
