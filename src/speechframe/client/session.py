"""Speak text while it is being written, over WebSockets (sections 3 and 6 of the service document).

A turn is one text with its speech. ``wire.client_contexts`` implements the rules of the protocol. This module
adds sockets, tasks and clocks. Each socket has a task that connects and sends, and a task that reads. If a
socket stalls in either direction, its connection is aborted and counts as lost.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any, Self

import aiohttp
from aiohttp import WSMsgType

from speechframe.client.caller import Caller
from speechframe.client.calls import MIB, require_valid
from speechframe.client.exchange import CLOSE_S, HttpReply
from speechframe.client.stream import Stream, StreamState, make_state
from speechframe.errors import (
    ConnectionFailed,
    InvalidRows,
    PermissionDenied,
    SpeechframeError,
    StreamBroken,
    make_service_error,
)
from speechframe.spec.check import FieldProblem, check
from speechframe.spec.codes import CloseCode, ErrorCode, HttpErrorCode, Status
from speechframe.spec.limits import MIN_STREAMING_CONCURRENCY, REGIONS, Pool
from speechframe.spec.socket import ClientFrame, SocketQuery, VoiceConfig
from speechframe.wire.answers import MAX_MESSAGE_CHARACTERS, MAX_WARNINGS, read_published_cap, shorten_to_line
from speechframe.wire.client_contexts import (
    ClientContexts,
    Event,
    TurnAudio,
    TurnEnded,
    TurnFailed,
    TurnRetried,
    UnexpectedMessage,
    WarningReceived,
)
from speechframe.wire.errors import NO_REASON_MESSAGE, decode_error
from speechframe.wire.frames import encode_frame
from speechframe.wire.turns import TurnSlots

Pieces = str | Iterable[str] | AsyncIterable[str]
"""A text, or an iterable of its pieces, such as a list, a generator or an async generator."""

# Larger than the audio of any sentence, because a service may send a sentence in one frame.
MAX_MESSAGE_BYTES = 32 * MIB
# Waiting tasks check their time limits and free slots at this interval, in seconds.
_CHECK_INTERVAL_S = 0.05
# Stands for the end of an iterator, because a future cannot raise StopIteration.
_END_OF_PIECES: Any = object()
# Fields of a turn that each message contains. The keys are the models of the messages.
_FIELDS_OF_MESSAGES: dict[Any, list[str]] = {
    SocketQuery: [name for name in SocketQuery.model_fields if name != "api_key"],
    ClientFrame: ["min_buffer_size", "max_buffer_delay_in_ms", "predictive_chunking"],
    VoiceConfig: list(VoiceConfig.model_fields),
}
# HTTP status of each error code. So the same error has the same class in a turn and in a call.
_STATUS_OF_CODE: dict[str, Status] = {
    ErrorCode.INVALID_VOICE: Status.BAD_REQUEST,
    ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED: Status.TOO_MANY_REQUESTS,
    **{code.value: code.status for code in HttpErrorCode},
}

_log = logging.getLogger("speechframe")


class StreamSession:
    """Many turns of speech over few sockets. :meth:`Client.stream_session` makes a session.

    Turns with the same model, format, rate and channels share a socket. A socket opens when there is text to
    send. The service closes an idle socket, and the next text opens the socket again. The number of active
    turns in all sessions of the client never exceeds the key's limit, and further turns wait. A turn that
    fails before its first audio is sent once more. If a socket is lost after the first audio, the turn
    raises :class:`StreamBroken`.

    Examples
    --------
    >>> async with client.stream_session(voice="ivy") as session:  # doctest: +SKIP
    ...     async for chunk in session.speak(tokens_of_a_model()):
    ...         player.write(chunk)
    """

    def __init__(self, caller: Caller, slots: TurnSlots, fields: Mapping[str, Any]) -> None:
        self._caller, self._slots, self._fields = caller, slots, dict(fields)
        self._sockets: dict[tuple[tuple[str, str], ...], _Socket] = {}
        self._closed = False
        _make_messages(fields)
        caller.opened.add(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def sockets(self) -> int:
        """Number of open sockets."""
        return sum(socket.connection is not None for socket in self._sockets.values())

    async def close(self) -> None:
        """Fail every turn that is not over, and close the sockets. A second call does nothing."""
        self._closed = True
        sockets, self._sockets = self._sockets, {}
        await asyncio.gather(*(socket.close() for socket in sockets.values()))

    async def open(self, /, *, voice: str | None = None, **fields: Any) -> "StreamContext":
        """Return a new turn, which takes text and yields audio and events. Nothing is sent before the text.

        Parameters
        ----------
        voice, **fields
            Fields of :meth:`Client.stream_session` for this turn alone. The defaults are the session's own
            values.

        Raises
        ------
        InvalidRows
            If a field is unknown or out of range.
        ServiceError, ConnectionFailed
            If the service's limit of active turns cannot be read.
        """
        context = self._open_context({"voice_id": voice, **fields})
        await self._learn_cap()
        return context

    def speak(self, /, pieces: Pieces, *, voice: str | None = None, **fields: Any) -> Stream:
        """Return the audio of a text that is still being written, such as a language model's tokens.

        Parameters
        ----------
        pieces
            An async or a sync iterable of text, or one text. A sync iterable runs in a thread, because it may
            block. Reading the stream raises errors of the iterable.
        voice, **fields
            As in :meth:`open`.

        Returns
        -------
        Stream
            The audio. The turn begins at the first read, and is closed if the iteration is left.

        Raises
        ------
        InvalidRows
            If a field is unknown or out of range.
        """
        context = self._open_context({"voice_id": voice, **fields})
        writing: list[asyncio.Task[None]] = []

        async def write() -> None:
            try:
                await self._learn_cap()
                async for piece in iterate_pieces(pieces):
                    await context.send(piece)
                await context.end()
            except BaseException as error:
                # Pass the error to the reader of the audio. A cancellation inside the iterable also closes
                # the turn.
                await context.close(error if isinstance(error, Exception) else None)
                raise

        async def pull() -> bytes | None:
            if not writing:
                writing.append(asyncio.create_task(write()))
            return await context.next_audio()

        async def stop() -> None:
            await _stop_tasks(writing)
            await context.close()

        return Stream(context.state, pull, stop)

    async def _learn_cap(self) -> None:
        """Set the limit of active turns, unless it is set, from the service or else from the document."""
        if not self._slots.cap:
            region, limits = self._caller.regions[0], await self._caller.limits() or {}
            documented = REGIONS[region].streaming_concurrency if region in REGIONS else None
            self._slots.cap = (
                read_published_cap(limits, Pool.STREAMING) or documented or MIN_STREAMING_CONCURRENCY
            )

    def _open_context(self, turn_fields: Mapping[str, Any]) -> "StreamContext":
        """Return a new turn on the socket for its fields. `turn_fields` are the fields of this turn alone."""
        if self._closed:
            raise RuntimeError("the session is closed; open another session")
        fields = self._fields | {name: value for name, value in turn_fields.items() if value is not None}
        query, frame, config = _make_messages(fields)
        given = ((name, fields.get(name)) for name in _FIELDS_OF_MESSAGES[SocketQuery])
        query_key = tuple((name, str(value)) for name, value in given if value is not None)
        if (socket := self._sockets.get(query_key)) is None:
            socket = self._sockets[query_key] = _Socket(self._caller, self._slots, dict(query_key))
        number = socket.contexts.open(config, frame.model_dump(include=frame.model_fields_set))
        context = socket.turns[number] = StreamContext(socket, number, make_state(query, socket.region))
        return context


class StreamContext:
    """One turn of a session. Call ``send`` for each text, ``end`` after the last, and iterate over events.

    The events are :class:`TurnAudio`, :class:`WarningReceived`, :class:`TurnRetried` (the turn is sent again,
    because it failed before its first audio), :class:`UnexpectedMessage` and at last :class:`TurnEnded`. A
    turn reports at most 20 warnings and 20 unexpected messages. :meth:`audio` returns the audio alone. Errors
    of the service have the same class and code as in a call. A turn fails if its audio is too long for its
    text, or if the service takes longer than any speech of the text.

    The end of an ``async with`` block ends the text. If the block raises an error, the turn is closed.

    Examples
    --------
    >>> async with await session.open() as context:  # doctest: +SKIP
    ...     await context.send("Good morning. ")
    ...     await context.send("How are you?")
    >>> await context.audio().save("morning.wav")  # doctest: +SKIP
    """

    def __init__(self, socket: "_Socket", number: int, state: StreamState) -> None:
        self._socket, self._number, self.state = socket, number, state
        self.failure: BaseException | None = None
        self.changed = asyncio.Event()
        self._events: deque[Event] = deque()
        self._event_counts: Counter[type[Event]] = Counter()
        self._left_s = 0.0  # seconds left for the service to end the turn, after the end of the text
        self._ended = False
        self._stream: Stream | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await (self.end() if error is None else self.close())

    async def send(self, text: str) -> None:
        """Add text. The service speaks the text when a sentence is complete, or after a short pause.

        Raises
        ------
        TypeError, InvalidRows
            If `text` is not a str, or cannot be sent (half a surrogate pair, NUL). The turn is unchanged.
        RuntimeError, SpeechframeError
            If the text was ended before, or the turn has failed.
        """
        state = self.state
        if not isinstance(text, str):
            raise TypeError(f"a piece of text must be a str, not {type(text).__name__}")
        if self.failure is not None:
            raise self.failure
        if self._ended:
            raise RuntimeError("the turn was ended, so it accepts no more text; open another turn")
        require_valid(check(ClientFrame, {"text": text}), ClientFrame)
        if not state.text:
            state.started_s = time.perf_counter()
        state.text += text
        self._socket.contexts.send(self._number, text)
        self._socket.wake.set()

    async def end(self) -> None:
        """Mark the end of the text. A second call does nothing."""
        if not self._ended:
            self._ended = True
            self._left_s = self._socket.caller.timeouts.compute_stream_wait_limit_s(self.state.text)
            self._socket.deliver(self._socket.contexts.end(self._number))

    async def clear(self) -> None:
        """Discard the text that is not yet being spoken, for example if a listener interrupts."""
        self._socket.deliver(self._socket.contexts.clear(self._number))

    async def close(self, reason: BaseException | None = None) -> None:
        """Close the turn and discard its text, unless the turn is over. Reading it then raises `reason`."""
        self._socket.drop(self._number, reason or "the turn was closed before its end")

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        while (event := await self.event()) is not None:
            yield event

    async def event(self) -> Event | None:
        """Return the next event, or None when the turn is over. Raises the error of a failed turn."""
        socket, silent_s, began_s = self._socket, 0.0, time.monotonic()
        while not self._events:
            if self.failure is not None:
                raise self.failure
            if self._number not in socket.turns:
                return None
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL_S):
                    await self.changed.wait()
            now_s = time.monotonic()
            # Count only the wait for the service. Do not count waits for the writer, for a slot or for a
            # player.
            if self._ended and socket.contexts.is_begun(self._number):
                silent_s, self._left_s = silent_s + now_s - began_s, self._left_s - (now_s - began_s)
                if self._left_s <= 0:
                    message = "the turn took longer than any speech of its text"
                    socket.drop(self._number, message, by_service=True)
                elif silent_s >= (limit_s := self.silence_s) and not self._events:
                    message = f"nothing came for {limit_s:g} s after the turn was ended"
                    socket.drop(self._number, message, by_service=True)
            began_s = now_s
        return self._events.popleft()

    @property
    def silence_s(self) -> float:
        """Longest wait for the next message of the service, in seconds."""
        return self._socket.caller.timeouts.compute_attempt_limit_s(len(self.state.text))

    async def next_audio(self) -> bytes | None:
        """Return the next audio, or None when the turn is over. Raises the error of a failed turn."""
        while (event := await self.event()) is not None:
            if isinstance(event, TurnAudio):
                return event.audio
        return None

    def audio(self) -> Stream:
        """Return the audio as a stream. Leaving an iteration over the stream closes the turn."""
        if self._stream is None:
            self._stream = Stream(self.state, self.next_audio, self.close)
        return self._stream

    def add_event(self, event: Event) -> None:
        """Add an event for the reader of the turn. Fail the turn if its audio is too long."""
        state, caller = self.state, self._socket.caller
        state.region = self._socket.region
        state.trace_id = getattr(event, "trace_id", None) or state.trace_id
        if isinstance(event, TurnAudio):
            try:
                state.add(event.audio, caller.bounds)
            except StreamBroken as error:
                # Remove the traceback, because detailed tracebacks show variables. Here a variable contains
                # audio, and the service may echo the key.
                self._socket.drop(self._number, error.with_traceback(None), by_service=True)
                return
        elif isinstance(event, TurnRetried):
            state.attempts += 1
        elif isinstance(event, WarningReceived | UnexpectedMessage):
            self._event_counts[type(event)] += 1
            if self._event_counts[type(event)] > MAX_WARNINGS:
                return
            if isinstance(event, WarningReceived):
                state.warnings.append(f"{event.code}: {event.message}" if event.code else event.message)
        self._events.append(event)
        self.changed.set()


class _Socket:
    """A WebSocket for all turns with the same `query`. After a loss, the next text connects again."""

    def __init__(self, caller: Caller, slots: TurnSlots, query: Mapping[str, str]) -> None:
        self.caller, self.region, self._query = caller, caller.regions[0], query
        self.contexts = ClientContexts(
            slots,
            max_attempts=2,
            patience_s=caller.patience.patience_s,
            clean=caller.redactor.clean,
        )
        self.turns: dict[int, StreamContext] = {}  # turns that are not over
        self.connection: aiohttp.ClientWebSocketResponse | None = None
        self._received_s = 0.0  # time of the last message, or of the last moment without an active turn
        self._is_doubted = False  # True if the service was at fault in a turn on this connection
        self._logged: set[str] = set()
        self.wake = asyncio.Event()  # set when there may be something to send
        self._tasks = [asyncio.create_task(self._connect_and_send())]

    def drop(self, number: int, error: BaseException | str, *, by_service: bool = False) -> None:
        """Fail a turn and request its end from the service, unless the turn is over.

        `by_service` is True if the service is at fault.
        """
        self._is_doubted |= by_service
        if (turn := self.turns.pop(number, None)) is not None:
            self.contexts.abandon_turn(number)
            turn.failure = turn.state.make_error(error) if isinstance(error, str) else error
            turn.changed.set()
            self.wake.set()

    def deliver(self, events: Iterable[Event], denied: SpeechframeError | None = None) -> None:
        """Pass events to their turns. `denied`, if given, replaces the error of each failed turn."""
        for event in events:
            if event.turn is None:
                # Log each event once, because a service may send it thousands of times a second.
                if str(event) not in self._logged and len(self._logged) < MAX_WARNINGS:
                    self._logged.add(str(event))
                    _log.warning("%s: %s", self._query, event)
            elif (turn := self.turns.get(event.turn)) is not None:
                if isinstance(event, TurnEnded | TurnFailed):
                    del self.turns[event.turn]
                if isinstance(event, TurnFailed):
                    turn.failure = denied or _make_error(event, turn.state)
                    turn.changed.set()
                else:
                    turn.add_event(event)
        self.wake.set()

    async def close(self) -> None:
        """Fail every turn that is not over, and close the connection."""
        for number in list(self.turns):
            self.drop(number, "the session was closed")
        await _stop_tasks(self._tasks)
        if (connection := self.connection) is not None:
            with contextlib.suppress(TimeoutError, ConnectionError, aiohttp.ClientError):
                async with asyncio.timeout(2 * CLOSE_S):
                    await self._flush(connection)
                    await connection.close()
        self._abort_connection()

    async def _connect_and_send(self) -> None:
        """Connect and send text whenever that is necessary, until the task is cancelled."""
        while True:
            self.wake.clear()
            try:
                if self.connection is None and self.contexts.needs_connection:
                    await self._connect()
                if self.connection is not None:
                    await self._flush(self.connection)
            except Exception as error:  # noqa: BLE001 - every error must reach the readers
                for number in list(self.turns):
                    self.drop(number, error)
            # While there are turns, wake up at each tick, because a slot that another socket frees sets no
            # event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL_S if self.turns else None):
                    await self.wake.wait()

    async def _connect(self) -> None:
        """Open the connection, with retries, and start the task that reads."""
        caller = self.caller

        async def connect_to(region: str) -> aiohttp.ClientWebSocketResponse:
            answer = await caller.exchange.open_websocket(
                caller.url(region, "stream_input").with_query(self._query),
                headers=caller.key_header,
                timeout_s=caller.timeouts.base_s,
                max_message_bytes=MAX_MESSAGE_BYTES,
            )
            if isinstance(answer, HttpReply):
                raise decode_error(answer.status, answer.body, answer.headers, caller.redactor.clean)
            self.region = region
            return answer

        connection, _ = await caller.send_with_retries(connect_to)
        self.connection, self._is_doubted = connection, False
        self.contexts.record_connection()
        self._tasks[1:] = [asyncio.create_task(self._read(connection))]

    async def _flush(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        """Send the waiting frames of all turns. Abort a connection that stalls."""
        begun = [turn for number, turn in self.turns.items() if self.contexts.is_begun(number)]
        if not begun:
            self._received_s = time.monotonic()
        # Abort a doubted connection if no message came for too long, or if no turn uses it.
        silence_s = max((turn.silence_s for turn in begun), default=0.0)
        if self._is_doubted and time.monotonic() - self._received_s >= silence_s:
            self._abort_connection()
        for frame in self.contexts.take_frames(now_s=time.monotonic()):
            text = encode_frame(frame)
            limit_s = self.caller.timeouts.compute_upload_limit_s(len(text))
            try:
                async with asyncio.timeout(limit_s):
                    await connection.send_str(text)
            except TimeoutError:
                # Abort only if no message arrives either. Otherwise the service is slow, and the frame in the
                # buffer will still be sent.
                if time.monotonic() - self._received_s >= limit_s:
                    self._abort_connection()
            except (ConnectionError, aiohttp.ClientError):
                # `_read` also notices that the connection is lost, and handles the loss with its close code.
                return

    async def _read(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        """Pass each message to its turn, until the connection ends. Then handle its loss."""
        code, reason = None, ""
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            while (message := await connection.receive()).type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                if self.connection is not connection:
                    return
                self._received_s = time.monotonic()
                self.deliver(self.contexts.receive(message.data, now_s=self._received_s))
            if message.type is WSMsgType.CLOSE:
                # aiohttp's `close_code` is also 1000 if a connection ended without a close frame.
                code, reason = message.data or None, message.extra or ""
        if self.connection is connection:
            self._handle_loss(code, reason)

    def _abort_connection(self) -> None:
        """Abort the connection at once, because an orderly close by aiohttp could wait for ever."""
        if self.connection is not None:
            response = self.connection._response  # noqa: SLF001 - aiohttp offers no public access
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()
            self._handle_loss(None, "")

    def _handle_loss(self, code: int | None, reason: str) -> None:
        """Forget a lost connection, and retry or fail its turns. `code` is the close code, or None."""
        self.connection = None
        denied: SpeechframeError | None = None
        if code == CloseCode.POLICY_VIOLATION:
            message = shorten_to_line(reason, MAX_MESSAGE_CHARACTERS, self.caller.redactor.clean)
            denied = PermissionDenied(message or CloseCode.POLICY_VIOLATION.cause, status=Status.FORBIDDEN)
        self.deliver(self.contexts.record_disconnection(code), denied)


def _make_error(event: TurnFailed, state: StreamState) -> SpeechframeError:
    """Return the error of a failed turn."""
    message, trace_id = event.message or NO_REASON_MESSAGE, event.trace_id or state.trace_id
    if event.code is not None:
        status = _STATUS_OF_CODE.get(event.code, Status.INTERNAL_SERVER_ERROR)
        return make_service_error(message, status=status, code=event.code or None, trace_id=trace_id)
    if state.received or event.is_bad:
        return StreamBroken(message, received_bytes=len(state.received), trace_id=trace_id)
    return ConnectionFailed(message, sent=True)


async def _stop_tasks(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _make_messages(fields: Mapping[str, Any]) -> list[Any]:
    """Return the checked messages with the fields of a turn. InvalidRows if a field is unknown or wrong."""
    known = [name for names in _FIELDS_OF_MESSAGES.values() for name in names]
    problems = [
        FieldProblem(name, "is not a field of a turn", "", ", ".join(known))
        for name, value in fields.items()
        if name not in known and value is not None
    ]
    messages = []
    for model, names in _FIELDS_OF_MESSAGES.items():
        checked = check(model, {name: fields.get(name) for name in names})
        problems += checked.problems
        messages.append(checked.value)
    if problems:
        raise InvalidRows([asdict(problem) for problem in problems])
    return messages


def iterate_pieces(pieces: Pieces) -> AsyncIterable[str]:
    """Return the pieces of a text as an async iterable. A sync iterable runs in a thread, so it may block."""
    if isinstance(pieces, AsyncIterable):
        return pieces
    if not isinstance(pieces, Iterable):
        raise TypeError(f"the text must be a str or an iterable of str, not {type(pieces).__name__}")
    return _iterate_in_thread(iter([pieces] if isinstance(pieces, str) else pieces))


async def _iterate_in_thread(iterator: Iterator[str]) -> AsyncGenerator[str, None]:
    """Yield the pieces of a sync iterator, which runs in a thread of its own."""
    requests: SimpleQueue[Future[str] | None] = SimpleQueue()

    def serve_requests() -> None:
        while (future := requests.get()) is not None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(next(iterator, _END_OF_PIECES))
                except BaseException as error:  # noqa: BLE001 - every error must reach the reader
                    future.set_exception(error)

    # Start a daemon thread. asyncio has few threads, and the interpreter waits for them at its end. Use the
    # same thread for all pieces, because a generator may use objects that belong to one thread.
    run = copy_context().run
    threading.Thread(target=run, args=(serve_requests,), name="speechframe-pieces", daemon=True).start()
    try:
        while True:
            future: Future[str] = Future()
            requests.put(future)
            if (piece := await asyncio.wrap_future(future)) is _END_OF_PIECES:
                return
            yield piece
    finally:
        requests.put(None)
