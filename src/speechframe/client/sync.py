"""The client, streams and sessions without ``await``.

Each class here wraps an async object, and is its sync twin. Each method runs the async method of the same
name on one shared event loop, and waits for the result.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from pydantic import SecretStr

from speechframe.client.answers import Spoken
from speechframe.client.calls import prepare_generate, prepare_stream
from speechframe.client.client import Client
from speechframe.client.dubbing import Dubbing, hide_secrets
from speechframe.client.session import StreamContext, StreamSession
from speechframe.client.stream import Stream, StreamView, start_stream
from speechframe.processes.loop import run_sync, start_in_background
from speechframe.settings import Settings
from speechframe.settings.hidden import hide_keys
from speechframe.wire.client_contexts import Event

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")


def copy_signature(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[[Callable[..., U]], Callable[Concatenate[Any, P], U]]:
    """Return a decorator that gives a function the name, signature and docstring of `method`."""
    return lambda twin: functools.update_wrapper(twin, method)


def make_blocking_and_wrap(
    wrap: Callable[[Any], U], method: Callable[Concatenate[Any, P], Any]
) -> Callable[Concatenate[Any, P], U]:
    """Return a sync method that runs `method` on the loop, and returns ``wrap(result)``."""

    async def call(*args: Any, **kwargs: Any) -> U:
        found = method(*args, **kwargs)
        return wrap(await found if inspect.isawaitable(found) else found)

    # Hide secrets before anything else, because a detailed traceback shows the arguments of each function.
    return copy_signature(method)(
        lambda self, /, *args, **kwargs: run_sync(call(self._inner, *args, **hide_secrets(kwargs)))
    )


def make_blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a sync method that runs the async `method` on the loop, and returns its result."""
    return make_blocking_and_wrap(lambda result: result, method)


class _SyncTwin:
    """Base class of the sync twins, with the methods of a ``with`` block. Its end closes the async object."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        # A traceback may show a twin without an inner object, because its `__init__` failed.
        return f"Sync{getattr(self, '_inner', 'Client()')}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        run_sync(self._inner.__aexit__(*exc_info))


class SyncStream(StreamView, _SyncTwin):
    """Audio as it arrives, read with ``for chunk in stream``. All else is as in :class:`Stream`.

    Examples
    --------
    >>> with client.stream("Good morning.", voice="ivy") as stream:  # doctest: +SKIP
    ...     for chunk in stream:
    ...         player.write(chunk)
    ...     print(stream.first_byte_ms, stream.summary.audio_seconds)
    41.3 1.2
    """

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.state)
        self._inner = stream

    def __iter__(self) -> Iterator[bytes]:
        try:
            while (chunk := self.next()) is not None:
                yield chunk
        finally:
            # Do not wait for the end of the close. Any thread may close a generator, even the thread of the
            # loop, which must not wait for itself.
            if not sys.is_finalizing():
                start_in_background(self._inner.close())

    def __next__(self) -> bytes:
        if (chunk := self.next()) is None:
            raise StopIteration
        return chunk

    next = make_blocking(Stream.next)
    read = make_blocking(Stream.read)
    save = make_blocking(Stream.save)
    close = make_blocking(Stream.close)

    def start_reading(self) -> Future[bytes]:
        """Start to read in the background. See :meth:`Stream.start_reading`."""
        audio: Future[bytes] = self._inner.start_reading()
        return audio


class SyncStreamContext(_SyncTwin):
    """One turn of a session, as :class:`StreamContext`. Iterate over it to get its events."""

    def __iter__(self) -> Iterator[Event]:
        while (event := self.event()) is not None:
            yield event

    event = make_blocking(StreamContext.event)
    send = make_blocking(StreamContext.send)
    end = make_blocking(StreamContext.end)
    clear = make_blocking(StreamContext.clear)
    close = make_blocking(StreamContext.close)
    audio = make_blocking_and_wrap(SyncStream, StreamContext.audio)


class SyncStreamSession(_SyncTwin):
    """Turns of speech over the WebSocket, as :class:`StreamSession`.

    Examples
    --------
    >>> with client.stream_session(voice="ivy") as session:  # doctest: +SKIP
    ...     session.speak(tokens_of_a_model()).save("answer.wav")
    """

    @property
    def sockets(self) -> int:
        """Number of open sockets."""
        return int(self._inner.sockets)

    close = make_blocking(StreamSession.close)
    open = make_blocking_and_wrap(SyncStreamContext, StreamSession.open)
    speak = make_blocking_and_wrap(SyncStream, StreamSession.speak)


class SyncDubbing(_SyncTwin):
    """The dubbing calls of a :class:`SyncClient`, as :class:`Dubbing`."""

    list_destination_languages = make_blocking(Dubbing.list_destination_languages)
    list_source_languages = make_blocking(Dubbing.list_source_languages)
    create_job = make_blocking(Dubbing.create_job)
    create_job_with_project = make_blocking(Dubbing.create_job_with_project)
    create_project = make_blocking(Dubbing.create_project)
    list_projects = make_blocking(Dubbing.list_projects)
    update_project = make_blocking(Dubbing.update_project)
    job_status = make_blocking(Dubbing.job_status)
    utterances = make_blocking(Dubbing.utterances)
    update_utterances = make_blocking(Dubbing.update_utterances)
    wait = make_blocking(Dubbing.wait)
    fetch = make_blocking(Dubbing.fetch)


class SyncClient(_SyncTwin):
    """:class:`Client` for scripts and notebook cells. Parameters and errors are the same.

    Several threads may share one client.

    Examples
    --------
    >>> with SyncClient(base_url="http://127.0.0.1:8099", api_key="my-key") as client:
    ...     client.regions
    ('global',)
    """

    def __init__(
        self, settings: Settings | None = None, *, api_key: str | SecretStr | None = None, **options: Any
    ) -> None:
        options = hide_keys({"api_key": api_key, **options})
        del api_key
        self._inner: Client = Client(settings, **options)
        self.regions, self.settings = self._inner.regions, self._inner.settings

    @property
    def dubbing(self) -> SyncDubbing:
        """The dubbing calls (section 4.5 of the service document)."""
        return SyncDubbing(self._inner.dubbing)

    close = make_blocking(Client.close)
    send_once = make_blocking(Client.send_once)
    call = make_blocking(Client.call)
    change_voice = make_blocking(Client.change_voice)
    translate = make_blocking(Client.translate)
    stream_session = make_blocking_and_wrap(SyncStreamSession, Client.stream_session)
    voices = make_blocking(Client.voices)
    token = make_blocking(Client.token)
    limits = make_blocking(Client.limits)

    # These two methods check the fields in the thread of the user, so that a DeprecationWarning names the
    # user's line.

    @copy_signature(Client.generate)
    def generate(self, /, text: str, **fields: Any) -> Spoken:
        """Generate speech. The decorator replaces this docstring by that of :meth:`Client.generate`."""
        spoken: Spoken = self.call(prepare_generate(text, stacklevel=3, **fields))
        return spoken

    @copy_signature(Client.stream)
    def stream(self, /, text: str, **fields: Any) -> SyncStream:
        """Start a stream. The decorator replaces this docstring by that of :meth:`Client.stream`."""
        return SyncStream(run_sync(start_stream(self._inner, prepare_stream(text, stacklevel=3, **fields))))
