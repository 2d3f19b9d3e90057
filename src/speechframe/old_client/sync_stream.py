"""Streams and sessions without ``await``: every method runs its twin on the package's one background loop."""

import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from speechframe._loop import run_sync, submit
from speechframe.old_client._blocking import blocking
from speechframe.old_client._closing import Closing
from speechframe.old_client.pieces import Pieces
from speechframe.old_client.socket import StreamSession
from speechframe.old_client.stream import Stream, StreamSummary
from speechframe.old_client.turn import StreamContext
from speechframe.spec.speech import Format
from speechframe.wire.client_contexts import Event

__all__ = ["SyncStream", "SyncStreamContext", "SyncStreamSession"]


class SyncStream(Closing):
    """Audio as it arrives: ``for chunk in stream``; otherwise as :class:`Stream`.

    Leaving the loop and :meth:`close` close the connection, so that the service stops and frees the slot.

    Examples
    --------
    >>> with client.stream("Good morning.", voice="ivy") as stream:  # doctest: +SKIP
    ...     for chunk in stream:
    ...         player.write(chunk)
    ...     print(stream.first_byte_ms, stream.summary.audio_seconds)
    41.3 1.2
    """

    def __init__(self, stream: Stream) -> None:
        self._inner = stream

    def __repr__(self) -> str:
        """Return how far it is."""
        return repr(self._inner).replace("<Stream", f"<{type(self).__name__}", 1)

    @property
    def format(self) -> Format:
        """The format that was asked for."""
        return self._inner.format

    @property
    def sample_rate_hz(self) -> int:
        """The rate that was asked for, in Hz; the summary has that of the audio."""
        return self._inner.sample_rate_hz

    @property
    def channels(self) -> int:
        """The channels that were asked for."""
        return self._inner.channels

    @property
    def text(self) -> str:
        """What was handed over to be said, so far."""
        return self._inner.text

    @property
    def audio(self) -> bytes:
        """All that has come so far, also of a stream that broke."""
        return self._inner.audio

    @property
    def first_byte_ms(self) -> float | None:
        """Milliseconds from handing over the first text to the first audio; None before it."""
        return self._inner.first_byte_ms

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come."""
        return self._inner.is_complete

    @property
    def summary(self) -> StreamSummary:
        """What it was, or is so far."""
        return self._inner.summary

    def __iter__(self) -> Iterator[bytes]:
        """Yield the audio that has not been handed out yet; leaving the loop closes the stream."""
        try:
            while (chunk := self.next()) is not None:
                yield chunk
        finally:
            _later(self._inner.close)

    def __next__(self) -> bytes:
        """Return the next piece; the stream stays open."""
        chunk = self.next()
        if chunk is None:
            raise StopIteration
        return chunk

    next = blocking(Stream.next)
    read = blocking(Stream.read)

    def reading(self) -> Future[bytes]:
        """Begin to read in the background; see :meth:`Stream.reading`."""
        return self._inner.reading()

    def samples(self) -> npt.NDArray[np.float32]:
        """Return what came so far as float32; see :meth:`Stream.samples`."""
        return self._inner.samples()

    save = blocking(Stream.save)
    close = blocking(Stream.close)


class SyncStreamContext:
    """One turn of a session, as :class:`StreamContext`.

    Examples
    --------
    >>> with session.open() as context:  # doctest: +SKIP
    ...     context.send("Good morning.")
    >>> context.audio().save("morning.wav")  # doctest: +SKIP
    """

    def __init__(self, context: StreamContext) -> None:
        self._inner = context

    def __repr__(self) -> str:
        """Return how far it is."""
        return f"Sync{self._inner!r}"

    def __enter__(self) -> Self:
        """Return the context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the turn, or give it up where the block failed."""
        run_sync(self._inner.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Event]:
        """Yield what happens, to the end of the turn."""
        while (event := run_sync(self._inner.event())) is not None:
            yield event

    send = blocking(StreamContext.send)
    end = blocking(StreamContext.end)
    clear = blocking(StreamContext.clear)
    close = blocking(StreamContext.close)

    def audio(self) -> SyncStream:
        """Return the audio; leaving its loop gives the turn up."""
        return SyncStream(self._inner.audio())


class SyncStreamSession(Closing):
    """Turns of speech over the WebSocket, as :class:`StreamSession`.

    Examples
    --------
    >>> with client.stream_session(voice="ivy") as session:  # doctest: +SKIP
    ...     for chunk in session.speak(tokens_of_a_model()):
    ...         player.write(chunk)
    """

    def __init__(self, session: StreamSession) -> None:
        self._inner = session

    def __repr__(self) -> str:
        """Return what it speaks and over how many sockets."""
        return f"Sync{self._inner!r}"

    @property
    def sockets(self) -> int:
        """How many sockets are open."""
        return self._inner.sockets

    close = blocking(StreamSession.close)

    def open(self, *, voice: str | None = None, **fields: Any) -> SyncStreamContext:
        """Return a new turn; see :meth:`StreamSession.open`."""
        return SyncStreamContext(run_sync(self._inner.open(voice=voice, **fields)))

    def speak(self, pieces: Pieces, *, voice: str | None = None, **fields: Any) -> SyncStream:
        """Return the audio of a text that is still being written; see :meth:`StreamSession.speak`."""

        async def spoken() -> Stream:
            return self._inner.speak(pieces, voice=voice, **fields)

        return SyncStream(run_sync(spoken()))


def _later(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    # Not waited for: a generator may be finished by any thread, also by the loop's own.
    if not sys.is_finalizing():
        submit(close())
