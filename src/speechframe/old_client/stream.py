"""Audio that is heard while it arrives: one stream, whatever it comes from."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from speechframe.audio.codec import AudioInfo
from speechframe.errors import AudioError, BadAnswer, StreamBroken
from speechframe.old_client._closing import AsyncClosing
from speechframe.old_client.received import Received
from speechframe.spec.speech import Format

__all__ = ["Source", "Stream", "StreamFacts", "StreamSummary"]


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
        """What is known of it."""

    async def next(self) -> bytes | None:
        """Return the next piece; None at the end."""

    async def close(self) -> None:
        """Stop it; without effect at its end."""


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


class Stream(AsyncClosing):
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

    def __init__(self, source: Source, received: Received) -> None:
        self._source = source
        self._received = received
        self._ahead: bytes | None = None
        self._release: list[Callable[[], Awaitable[None]]] = []
        self._loop = asyncio.get_running_loop()
        self._first_s: float | None = None
        self._last_s = source.facts.started_s
        self._info: AudioInfo | None = None
        self._failure: BaseException | None = None
        self._complete = self._closed = False

    def __repr__(self) -> str:
        """Return how far it is."""
        state = "complete" if self._complete else "closed" if self._closed else "open"
        return f"<{type(self).__name__} {state}, {self._received.size:,} bytes of {self.format.value}>"

    @property
    def format(self) -> Format:
        """The format that was asked for."""
        return self._received.format

    @property
    def sample_rate_hz(self) -> int:
        """The rate that was asked for, in Hz; the summary has that of the audio."""
        return self._received.sample_rate_hz

    @property
    def channels(self) -> int:
        """The channels that were asked for."""
        return self._received.channels

    @property
    def text(self) -> str:
        """What was handed over to be said, so far."""
        return self._source.facts.text

    @property
    def audio(self) -> bytes:
        """A copy of all that has come so far, also of a stream that broke; any thread may ask for it."""
        return self._received.data

    @property
    def first_byte_ms(self) -> float | None:
        """Milliseconds from handing over the first text to the first audio; None before it."""
        return None if self._first_s is None else (self._first_s - self._source.facts.started_s) * 1000

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come."""
        return self._complete

    @property
    def summary(self) -> StreamSummary:
        """What it was, or is so far."""
        facts, received = self._source.facts, self._received
        info = self._info or self._looked() or self._asked()
        return StreamSummary(
            complete=self._complete,
            bytes=received.size,
            audio_seconds=info.audio_seconds,
            billed_characters=facts.billed_characters,
            first_byte_ms=self.first_byte_ms,
            latency_ms=(self._last_s - facts.started_s) * 1000,
            format=info.format,
            sample_rate_hz=info.sample_rate_hz,
            channels=info.channels,
            warnings=(*facts.warnings, *self._differences(info)),
            trace_id=facts.trace_id,
            region=facts.region,
            attempts=facts.attempts,
        )

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
        if self._failure is not None:
            raise self._failure
        if self._ahead is not None:
            ahead, self._ahead = self._ahead, None
            return ahead
        if self._complete:
            return None
        try:
            chunk = await self._source.next()
            if chunk is None:
                await self._complete_it()
                return None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            failure = self._failed(error)
            await self.close()
            if failure is error:
                raise
            raise failure from None
        self.keep(chunk)
        return chunk

    def keep(self, chunk: bytes) -> None:
        """Take audio that was handed out in another way, as an event."""
        self._last_s = time.perf_counter()
        self._first_s = self._first_s or self._last_s
        self._received.add(chunk)

    def begun(self, first: bytes) -> Self:
        """Return the stream with its first audio, which is there already."""
        self.keep(first)
        self._ahead = first
        return self

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

    def samples(self) -> npt.NDArray[np.float32]:
        """Return what came so far as float32 in [-1, 1]: ``(frames,)`` for mono or ``(frames, channels)``.

        Raises
        ------
        AudioError
            What came is no audio, or not enough of it to be decoded.
        """
        return self._received.samples()

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
        return await asyncio.to_thread(self._received.save, path)

    async def close(self) -> None:
        """Close the connection, where the stream is not over; calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        if not self._complete and self._failure is None:
            self._failure = self._broken("the stream was closed before its end")
        await _stop(self._source, self._release)

    def owning(self, release: Callable[[], Awaitable[None]]) -> Self:
        """Return the stream, which calls `release` when it is over, after what it was told before."""
        self._release.append(release)
        return self

    def __del__(self) -> None:
        # Whoever forgets a stream must not keep the service speaking.
        if not getattr(self, "_closed", True) and not self._loop.is_closed():
            stopping = _stop(self._source, self._release)
            self._loop.call_soon_threadsafe(_begin, self._loop, stopping)

    async def _complete_it(self) -> None:
        info = await asyncio.to_thread(self._looked)
        if info is None and self._received.size:
            words = f"the audio cannot be read: it is no {self.format.value}"
            raise BadAnswer(words, trace_id=self._source.facts.trace_id)
        self._info, self._complete = info, True
        await self.close()

    def _failed(self, error: BaseException) -> BaseException:
        # Who closes a stream under its reader has said why it ends.
        self._failure = self._failure or error
        return self._failure

    def _looked(self) -> AudioInfo | None:
        try:
            return self._received.info()
        except AudioError:
            return None

    def _asked(self) -> AudioInfo:
        return AudioInfo(self.format, self.sample_rate_hz, self.channels, 0.0)

    def _differences(self, info: AudioInfo) -> list[str]:
        found = []
        if info.sample_rate_hz != self.sample_rate_hz:
            found.append(f"expected {self.sample_rate_hz} Hz, got {info.sample_rate_hz} Hz")
        if info.channels != self.channels:
            found.append(f"expected {self.channels} channels, got {info.channels}")
        return found

    def _broken(self, words: str) -> StreamBroken:
        return StreamBroken(words, received_bytes=self._received.size, trace_id=self._source.facts.trace_id)


_STOPPING: set[asyncio.Task[None]] = set()
"""Streams that nobody holds any more, on their way to their end: a loop holds its tasks weakly."""


def _begin(loop: asyncio.AbstractEventLoop, stopping: Coroutine[Any, Any, None]) -> None:
    task = loop.create_task(stopping)
    _STOPPING.add(task)
    task.add_done_callback(_STOPPING.discard)


async def _stop(source: Source, release: list[Callable[[], Awaitable[None]]]) -> None:
    try:
        await source.close()
    finally:
        while release:
            await release.pop(0)()
