"""The client, streams and sessions without ``await``: every method runs its twin on the one loop."""

import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pydantic import SecretStr

from speechframe._loop import run_sync, submit
from speechframe.client.answers import Spoken
from speechframe.client.calls import generate_call, stream_call
from speechframe.client.client import Client
from speechframe.client.session import StreamSession
from speechframe.client.stream import Stream, StreamView, start
from speechframe.client.turns import StreamContext
from speechframe.settings import Settings
from speechframe.settings.hidden import hidden_key, hide
from speechframe.spec.speech import Voice
from speechframe.wire.events import Event

__all__ = ["SyncClient", "SyncStream", "SyncStreamContext", "SyncStreamSession"]

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a coroutine method as a method that waits, of a class that holds the other object as ``_inner``.

    Parameters and result are typed from `method`. One that takes any field (``**fields``) has a `self` that
    is positional only: a field might have that name.
    """

    @functools.wraps(method)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_sync(method(self._inner, *args, **kwargs))

    first_line = (method.__doc__ or "").partition("\n")[0]
    twin.__doc__ = f"{first_line}\n\nSee :meth:`{method.__qualname__}`."
    return twin


def blocking_as(
    twin_of: Callable[[T], U], method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
) -> Callable[Concatenate[Any, P], U]:
    """Return a coroutine method as one that waits, and gives its result in its twin without ``await``."""
    waiting = blocking(method)

    @functools.wraps(waiting)
    def twin(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return twin_of(waiting(self, *args, **kwargs))

    return twin


def in_loop(
    method: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return a plain method as a coroutine method: what belongs to a loop is made in that loop."""

    @functools.wraps(method)
    async def made(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self, *args, **kwargs)

    return made


class _Closing(ABC):
    """Something for a ``with`` block."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    def __enter__(self) -> Self:
        """Return it; what it needs is opened when it is needed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


class SyncStream(StreamView, _Closing):
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
        self._inner, self._state = stream, stream._state  # noqa: SLF001 - its twin

    def __iter__(self) -> Iterator[bytes]:
        """Yield the audio that has not been handed out yet; leaving the loop closes the stream."""
        try:
            while (chunk := self.next()) is not None:
                yield chunk
        finally:
            # Not waited for: a generator may be finished by any thread, also by the loop's own.
            if not sys.is_finalizing():
                submit(self._inner.close())

    def __next__(self) -> bytes:
        """Return the next piece; the stream stays open."""
        chunk = self.next()
        if chunk is None:
            raise StopIteration
        return chunk

    next = blocking(Stream.next)
    read = blocking(Stream.read)
    save = blocking(Stream.save)
    close = blocking(Stream.close)

    def reading(self) -> Future[bytes]:
        """Begin to read in the background; see :meth:`Stream.reading`."""
        return self._inner.reading()


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


class SyncStreamSession(_Closing):
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
    open = blocking_as(SyncStreamContext, StreamSession.open)
    speak = blocking_as(SyncStream, in_loop(StreamSession.speak))


class SyncClient(_Closing):
    """:class:`Client` for scripts and notebook cells; parameters and errors are the same.

    It may be shared by threads: all of them use the one loop.

    Examples
    --------
    >>> with SyncClient(base_url="http://127.0.0.1:8099", api_key="my-key") as client:
    ...     client.regions
    ('global',)
    """

    def __init__(
        self, settings: Settings | None = None, *, api_key: str | SecretStr | None = None, **options: Any
    ) -> None:
        options = hide({"api_key": api_key, **options})
        del api_key
        self._inner = Client(settings, **options)

    def __repr__(self) -> str:
        """Return the service and its regions, never the key."""
        return f"Sync{getattr(self, '_inner', 'Client()')!s}"

    @property
    def regions(self) -> tuple[str, ...]:
        """Names of the regions in order of preference."""
        return self._inner.regions

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._inner.settings

    close = blocking(Client.close)
    send_once = blocking(Client.send_once)
    call = blocking(Client.call)
    fetch = blocking(Client.fetch)
    change_voice = blocking(Client.change_voice)
    translate = blocking(Client.translate)
    stream_session = blocking_as(SyncStreamSession, in_loop(Client.stream_session))
    token = blocking(Client.token)
    limits = blocking(Client.limits)

    def generate(
        self,
        text: str,
        *,
        voice: str,
        model: str = "gen2",
        take: int = 0,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Spoken:
        """Return `text` spoken; see :meth:`Client.generate`."""
        # Made here, in the caller's thread, so that a DeprecationWarning names the caller's line.
        made = generate_call(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        spoken: Spoken = self.call(made)
        return spoken

    def stream(
        self,
        text: str,
        *,
        voice: str,
        model: str | None = None,
        take: int = 0,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> SyncStream:
        """Return `text` as audio that is heard while it arrives; see :meth:`Client.stream`."""
        call = stream_call(
            text, voice=voice, model=model, take=take, idempotency_key=idempotency_key, stacklevel=3, **fields
        )
        return SyncStream(run_sync(start(self._inner, call)))

    def voices(self, model: str = "gen2", *, token: str | SecretStr | None = None) -> list[Voice]:
        """Return the voices of a model's catalogue; see :meth:`Client.voices`."""
        # Written out, since a twin's arguments would show the token in a detailed traceback.
        token = hidden_key(token)
        return run_sync(self._inner.voices(model, token=token))
