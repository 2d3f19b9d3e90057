"""Streams and sessions without ``await``: every method runs its twin on the package's one background loop."""

import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from speechframe._loop import run_sync, submit
from speechframe.client.pieces import Pieces
from speechframe.client.socket import StreamSession
from speechframe.client.stream import Stream, StreamSummary
from speechframe.client.turn import StreamContext
from speechframe.spec.speech import Format
from speechframe.wire.client_contexts import Event

__all__ = ["SyncStream", "SyncStreamContext", "SyncStreamSession"]


class SyncStream:
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
        self._stream = stream

    def __repr__(self) -> str:
        """Return how far it is."""
        return repr(self._stream).replace("<Stream", f"<{type(self).__name__}", 1)

    @property
    def format(self) -> Format:
        """The format that was asked for."""
        return self._stream.format

    @property
    def sample_rate_hz(self) -> int:
        """The rate that was asked for, in Hz; the summary has that of the audio."""
        return self._stream.sample_rate_hz

    @property
    def channels(self) -> int:
        """The channels that were asked for."""
        return self._stream.channels

    @property
    def text(self) -> str:
        """What was handed over to be said, so far."""
        return self._stream.text

    @property
    def audio(self) -> bytes:
        """All that has come so far, also of a stream that broke."""
        return self._stream.audio

    @property
    def first_byte_ms(self) -> float | None:
        """Milliseconds from handing over the first text to the first audio; None before it."""
        return self._stream.first_byte_ms

    @property
    def is_complete(self) -> bool:
        """Whether all of it has come."""
        return self._stream.is_complete

    @property
    def summary(self) -> StreamSummary:
        """What it was, or is so far."""
        return self._stream.summary

    def __enter__(self) -> Self:
        """Return the stream."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the audio that has not been handed out yet; leaving the loop closes the stream."""
        try:
            while (chunk := self.next()) is not None:
                yield chunk
        finally:
            _later(self._stream.close)

    def __next__(self) -> bytes:
        """Return the next piece; the stream stays open."""
        chunk = self.next()
        if chunk is None:
            raise StopIteration
        return chunk

    def next(self) -> bytes | None:
        """Return the next piece of audio, None at the end; see :meth:`Stream.next`."""
        return run_sync(self._stream.next())

    def read(self) -> bytes:
        """Return all of the audio, when the rest of it has come; see :meth:`Stream.read`."""
        return run_sync(self._stream.read())

    def reading(self) -> Future[bytes]:
        """Begin to read in the background; see :meth:`Stream.reading`."""
        return self._stream.reading()

    def samples(self) -> npt.NDArray[np.float32]:
        """Return what came so far as float32; see :meth:`Stream.samples`."""
        return self._stream.samples()

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the audio to a file, when the rest of it has come; see :meth:`Stream.save`."""
        return run_sync(self._stream.save(path))

    def close(self) -> None:
        """Close the connection, where the stream is not over; doing it again is nothing."""
        run_sync(self._stream.close())


class SyncStreamContext:
    """One turn of a session, as :class:`StreamContext`.

    Examples
    --------
    >>> with session.open() as context:  # doctest: +SKIP
    ...     context.send("Good morning.")
    >>> context.audio().save("morning.wav")  # doctest: +SKIP
    """

    def __init__(self, context: StreamContext) -> None:
        self._context = context

    def __repr__(self) -> str:
        """Return how far it is."""
        return f"Sync{self._context!r}"

    def __enter__(self) -> Self:
        """Return the context."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the turn, or give it up where the block failed."""
        run_sync(self._context.__aexit__(kind, error, trace))

    def __iter__(self) -> Iterator[Event]:
        """Yield what happens, to the end of the turn."""
        while (event := run_sync(self._context.event())) is not None:
            yield event

    def send(self, text: str) -> None:
        """Add text; see :meth:`StreamContext.send`."""
        run_sync(self._context.send(text))

    def end(self) -> None:
        """Say that there is no more text."""
        run_sync(self._context.end())

    def clear(self) -> None:
        """Drop the text that is not being spoken yet."""
        run_sync(self._context.clear())

    def close(self, reason: BaseException | None = None) -> None:
        """Give the turn up, unless it is over; see :meth:`StreamContext.close`."""
        run_sync(self._context.close(reason))

    def audio(self) -> SyncStream:
        """Return the audio; leaving its loop gives the turn up."""
        return SyncStream(self._context.audio())


class SyncStreamSession:
    """Turns of speech over the WebSocket, as :class:`StreamSession`.

    Examples
    --------
    >>> with client.stream_session(voice="ivy") as session:  # doctest: +SKIP
    ...     for chunk in session.speak(tokens_of_a_model()):
    ...         player.write(chunk)
    """

    def __init__(self, session: StreamSession) -> None:
        self._session = session

    def __repr__(self) -> str:
        """Return what it speaks and over how many sockets."""
        return f"Sync{self._session!r}"

    @property
    def sockets(self) -> int:
        """How many sockets are open."""
        return self._session.sockets

    def __enter__(self) -> Self:
        """Return the session."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every turn and close the sockets."""
        self.close()

    def close(self) -> None:
        """End every turn and close the sockets; doing it again is nothing."""
        run_sync(self._session.close())

    def open(self, *, voice: str | None = None, **fields: Any) -> SyncStreamContext:
        """Return a new turn; see :meth:`StreamSession.open`."""
        return SyncStreamContext(run_sync(self._session.open(voice=voice, **fields)))

    def speak(self, pieces: Pieces, *, voice: str | None = None, **fields: Any) -> SyncStream:
        """Return the audio of a text that is still being written; see :meth:`StreamSession.speak`."""

        async def spoken() -> Stream:
            return self._session.speak(pieces, voice=voice, **fields)

        return SyncStream(run_sync(spoken()))


def _later(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    # Not waited for: a generator may be finished by any thread, also by the loop's own.
    if not sys.is_finalizing():
        submit(close())
