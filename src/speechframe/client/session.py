"""Turns of speech over WebSockets (sections 3 and 6): text goes in as it is written, audio comes out.

``wire.client_contexts`` has the rules of the protocol; here are its sockets, tasks and clocks. A socket has a
task that connects and sends, and one that reads as long as listeners keep up. A socket that takes nothing or
brings nothing is aborted, as if its connection were lost.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Self

import aiohttp
from aiohttp import WSMsgType

from speechframe.client.caller import Caller
from speechframe.client.calls import accepted
from speechframe.client.exchange import CLOSE_S, Reply
from speechframe.client.limits import MIB
from speechframe.client.masking import refusal, without_secrets
from speechframe.client.pieces import Pieces, pieces_of
from speechframe.client.received import Received
from speechframe.client.retries import persist
from speechframe.client.stream import Heard, Stream, default_model
from speechframe.errors import (
    ConnectionFailed,
    InvalidRows,
    PermissionDenied,
    SpeechframeError,
    StreamBroken,
    service_error,
)
from speechframe.spec.billing import billed_characters
from speechframe.spec.check import check
from speechframe.spec.codes import CloseCode, ErrorCode, HttpErrorCode, Status
from speechframe.spec.socket import ClientFrame, SocketQuery, VoiceConfig
from speechframe.wire.client_contexts import ClientContexts
from speechframe.wire.errors import MAX_MESSAGE_CHARACTERS, MAX_WARNINGS, NO_REASON, one_line
from speechframe.wire.events import Audio, Ended, Event, Failed, Odd, Retried, Warned
from speechframe.wire.frames import encode_frame

__all__ = ["StreamContext", "StreamSession"]

MAX_MESSAGE_BYTES = 32 * MIB
"""More than a sentence of audio in one frame."""
MOST_WAITING_BYTES = 16 * MIB
"""Audio of a turn that nobody has taken yet, beyond which its socket is read no further."""
HELD_S = 60.0
"""How long a turn whose audio nobody takes may keep other turns of its socket waiting."""
_EVENT_BYTES = 64
"""What a piece of audio takes in memory beside its bytes: some services send a sample at a time."""
_MOST_ATTEMPTS = 2
_TICK_S = 0.05

_FIELDS: Mapping[Any, list[str]] = MappingProxyType(
    {
        SocketQuery: [name for name in SocketQuery.model_fields if name != "api_key"],
        ClientFrame: ["min_buffer_size", "max_buffer_delay_in_ms", "predictive_chunking"],
        VoiceConfig: list(VoiceConfig.model_fields),
    }
)
"""The fields of a turn, by the message that they go in."""

_STATUSES: Mapping[str, Status] = MappingProxyType(
    {
        ErrorCode.INVALID_VOICE: Status.BAD_REQUEST,
        ErrorCode.INVALID_JSON: Status.BAD_REQUEST,
        ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED: Status.TOO_MANY_REQUESTS,
        **{code.value: code.status for code in HttpErrorCode},
    }
)
"""The status of the same error over HTTP: so an error of a turn has the class that a call's has."""

_log = logging.getLogger("speechframe")


class StreamSession:
    """Turns of speech over as few sockets as they need, made by :meth:`Client.stream_session`.

    A socket is opened when there is text to send, closed by the service when it was idle for long, and
    opened again for the next text. A turn that wants another model, format, rate or number of channels than
    the others has a socket of its own; all other turns share one. No more turns are active at once than the
    key may have, counted over the client's sessions: the others wait. A turn that fails before anything of it
    was heard is sent once more; one that was heard raises :class:`StreamBroken` when its socket is lost, also
    by a close of the service for being idle.

    Examples
    --------
    >>> async with client.stream_session(voice="ivy") as session:  # doctest: +SKIP
    ...     async for chunk in session.speak(tokens_of_a_model()):
    ...         player.write(chunk)
    """

    def __init__(
        self, caller: Caller, *, voice: str | None = None, max_contexts: int | None = None, **fields: Any
    ) -> None:
        self._caller = caller
        self._fields = {"voice_id": voice, **fields}
        self._sockets: dict[tuple[tuple[str, str], ...], _Socket] = {}
        self._closed = False
        _checked(self._fields)
        if max_contexts is not None:
            if max_contexts < 1:
                raise ValueError(f"max_contexts is 1 or more, not {max_contexts}")
            caller.slots.set(max_contexts)
        caller.opened.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._fields}, {self.sockets} sockets>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def sockets(self) -> int:
        """How many sockets are open."""
        return sum(socket.connection is not None for socket in self._sockets.values())

    async def close(self) -> None:
        """End every turn and close the sockets; calling it again does nothing."""
        self._closed = True
        sockets, self._sockets = self._sockets, {}
        await asyncio.gather(*(socket.close() for socket in sockets.values()))

    async def open(self, /, *, voice: str | None = None, **fields: Any) -> "StreamContext":
        """Return a new turn: text goes in, audio and events come out. Nothing is sent before it has text.

        Parameters
        ----------
        voice
            Full voice id or bare name; the session's by default.
        **fields
            Whatever :meth:`Client.stream_session` takes, for this turn alone.

        Raises
        ------
        InvalidRows
            A field is unknown or out of range.
        ServiceError, ConnectionFailed
            The service cannot be asked how many turns may be active.
        """
        context = StreamContext(self._turn({"voice_id": voice, **fields}))
        await self._learn_slots()
        return context

    def speak(self, /, pieces: Pieces, *, voice: str | None = None, **fields: Any) -> Stream:
        """Return the audio of a text that is still being written, such as a language model's tokens.

        Parameters
        ----------
        pieces
            An async or a sync iterable of text, or one text. What blocks in a sync one (a model's answer that
            is read from the network) is waited for in a thread. Its errors come out of the stream.
        voice, **fields
            As of :meth:`open`.

        Returns
        -------
        Stream
            To be iterated; the turn begins then. Leaving it ends the turn.

        Raises
        ------
        InvalidRows
            A field is unknown or out of range.
        """
        turn = self._turn({"voice_id": voice, **fields})
        context = StreamContext(turn)
        writing: asyncio.Task[None] | None = None

        async def write() -> None:
            try:
                await self._learn_slots()
                async for piece in pieces_of(pieces):
                    await context.send(piece)
                await context.end()
            except Exception as error:  # noqa: BLE001 - the writer's error belongs to whoever listens
                await context.close(error)
            except asyncio.CancelledError:
                # Also that of something the writer waited for: there will be no more text, and no end.
                await context.close()
                raise

        async def pull() -> bytes | None:
            nonlocal writing
            writing = writing or asyncio.create_task(write())
            return await turn.next_audio()

        async def stop() -> None:
            await _stopped(writing)
            await context.close()

        return Stream(turn.heard, pull, stop)

    async def _learn_slots(self) -> None:
        caller = self._caller
        if not caller.slots.is_known:
            caller.slots.learn(await caller.limits() or {}, caller.regions[0])

    def _turn(self, given: Mapping[str, Any]) -> "_Turn":
        fields = self._fields | {name: value for name, value in given.items() if value is not None}
        query, frame, config = _checked(fields)
        if self._closed:
            raise RuntimeError("the session is closed")
        shape = tuple(
            (name, str(fields[name])) for name in _FIELDS[SocketQuery] if fields.get(name) is not None
        )
        socket = self._sockets.get(shape)
        if socket is None:
            socket = self._sockets[shape] = _Socket(self._caller, dict(shape))
        model = query.model or default_model(self._caller.regions[0])
        received = Received(query.format, query.channel_type, query.sample_rate, model)
        number = socket.contexts.open(config, frame.model_dump(include=frame.model_fields_set))
        turn = socket.turns[number] = _Turn(socket, number, Heard(received))
        return turn


class StreamContext:
    """One turn of a session: ``send`` text, ``end`` it, iterate over what comes.

    Iterating over the context gives events: :class:`Audio`, :class:`Warned`, :class:`Retried` (it is sent
    again, since nothing of it was heard), :class:`Odd` (what nobody knows) and at last
    :class:`Ended`. :meth:`audio` gives the audio alone. Errors are raised: the service's with the class that
    the same failure of a call has, and its code. Of warnings and odd things there are 20 each at most; a turn
    with more audio than its text can fill, or that is waited for longer than it can last, is broken off.

    As an async context manager it is ended at the end of the block, and given up where the block fails.

    Examples
    --------
    >>> async with await session.open() as context:  # doctest: +SKIP
    ...     await context.send("Good morning. ")
    ...     await context.send("How are you?")
    >>> await context.audio().save("morning.wav")  # doctest: +SKIP
    """

    def __init__(self, turn: "_Turn") -> None:
        self._turn = turn
        self._stream: Stream | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._turn.number}, {self._turn.heard.received.size:,} bytes>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await (self.end() if error is None else self.close())

    async def send(self, text: str) -> None:
        """Add text; it is spoken when there is enough of it, or no more for a moment.

        Raises
        ------
        TypeError
            For what is no text.
        InvalidRows
            The text cannot be sent (half a surrogate pair, NUL); the turn is as before.
        RuntimeError
            The turn was ended.
        SpeechframeError
            The turn has failed.
        """
        turn, heard = self._turn, self._turn.heard
        if not isinstance(text, str):
            raise TypeError(f"a piece of text is a str, not {type(text).__name__}")
        if turn.failure is not None:
            raise turn.failure
        if turn.is_ended:
            raise RuntimeError("the turn was ended; open another one")
        accepted(check(ClientFrame, {"text": text}), ClientFrame)
        if not heard.text:
            heard.started_s = time.perf_counter()
        heard.text += text
        heard.billed_characters += billed_characters(text)
        turn.socket.contexts.send(turn.number, text)
        turn.socket.poke()

    async def end(self) -> None:
        """Say that there is no more text; doing it again is nothing."""
        turn = self._turn
        if not turn.is_ended:
            turn.end()
            turn.socket.deliver(turn.socket.contexts.end(turn.number))

    async def clear(self) -> None:
        """Drop the text that is not being spoken yet, as when a listener interrupts."""
        self._turn.socket.deliver(self._turn.socket.contexts.clear(self._turn.number))

    async def close(self, reason: BaseException | None = None) -> None:
        """Give the turn up, unless it is over: its text is dropped, and it is ended.

        Parameters
        ----------
        reason
            What its listener is told; by default that it was closed.
        """
        self._turn.socket.drop(self._turn, reason or "the turn was closed before its end")

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        while (event := await self.event()) is not None:
            yield event

    async def event(self) -> Event | None:
        """Return what happens next; None when the turn is over.

        Raises
        ------
        ServiceError, StreamBroken, ConnectionFailed
            The turn has failed.
        """
        return await self._turn.next()

    def audio(self) -> Stream:
        """Return the audio, to be iterated, read or saved; leaving its loop gives the turn up."""
        if self._stream is None:
            self._stream = Stream(self._turn.heard, self._turn.next_audio, self.close)
        return self._stream


class _Turn:
    """A turn of a socket: what came and is not taken yet, and how long the rest may take."""

    def __init__(self, socket: "_Socket", number: int, heard: Heard) -> None:
        self.socket, self.number, self.heard = socket, number, heard
        self.failure: BaseException | None = None
        self.is_ended = False
        # Of audio that nobody has taken yet.
        self.waiting_bytes = 0
        # Set when there is something new, or something else to wait for.
        self.changed = asyncio.Event()
        self._events: deque[Event] = deque()
        self._told: Counter[type[Event]] = Counter()
        self._most_bytes = 0
        self._left_s = 0.0

    @property
    def silence_s(self) -> float:
        """How long the service may send nothing."""
        return self.socket.caller.timeouts.attempt_s(len(self.heard.text))

    def end(self) -> None:
        self.is_ended = True
        self._left_s = self.socket.caller.timeouts.speech_s(self.heard.text)
        self.changed.set()

    async def next_audio(self) -> bytes | None:
        while (event := await self.next()) is not None:
            if isinstance(event, Audio):
                return event.audio
        return None

    async def next(self) -> Event | None:
        while not self._events:
            if self.failure is not None:
                raise self.failure
            if self.number not in self.socket.turns:
                return None
            self.changed.clear()
            await self._wait()
        event = self._events.popleft()
        if isinstance(event, Audio):
            self.waiting_bytes -= len(event.audio) + _EVENT_BYTES
            self.socket.room.set()
        return event

    async def _wait(self) -> None:
        socket = self.socket
        # Only the service has a time limit: not the writer, not other turns that hold the slots, and not the
        # listener for whom the socket is held.
        is_timed = self.is_ended and socket.contexts.is_begun(self.number) and not socket.is_held
        limit_s, began_s = min(self.silence_s, self._left_s), time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s if is_timed else None):
                await self.changed.wait()
        if is_timed:
            # Only waits count: a player takes its time.
            self._left_s -= time.monotonic() - began_s
            if not self.changed.is_set():
                too_long = limit_s < self.silence_s
                silent = f"nothing came for {limit_s:g} s after the turn was ended"
                socket.leave(self, "the turn was longer than any speech of its text" if too_long else silent)

    def take(self, event: Event) -> None:
        heard, caller = self.heard, self.socket.caller
        heard.region = self.socket.region
        heard.trace_id = getattr(event, "trace_id", None) or heard.trace_id
        if isinstance(event, Audio):
            heard.add(event.audio)
            if heard.received.size > self._most_bytes:
                # The text may have grown.
                rate_hz = heard.received.sample_rate_hz
                self._most_bytes = caller.bounds.speech_bytes_for(heard.text, rate_hz)
            if heard.received.size > self._most_bytes:
                words = f"the audio is too large for its text: more than {self._most_bytes:,} bytes"
                self.socket.leave(self, words)
                return
            self.waiting_bytes += len(event.audio) + _EVENT_BYTES
        elif isinstance(event, Warned | Odd):
            self._told[type(event)] += 1
            if self._told[type(event)] > MAX_WARNINGS:
                return
            if isinstance(event, Warned):
                heard.warnings.append(f"{event.code}: {event.words}" if event.code else event.words)
        elif isinstance(event, Retried):
            heard.attempts += 1
            self._left_s = caller.timeouts.speech_s(heard.text)
        self._events.append(event)


class _Socket:
    """A WebSocket of one shape of audio: made when there is text to send, and again after it was closed."""

    def __init__(self, caller: Caller, query: Mapping[str, str]) -> None:
        self.caller, self.region = caller, caller.regions[0]
        self.contexts = ClientContexts(
            caller.slots,
            max_attempts=_MOST_ATTEMPTS,
            patience_s=caller.patience.patience_s,
            clean=caller.redactor.clean,
        )
        self.connection: aiohttp.ClientWebSocketResponse | None = None
        # Those that are not over.
        self.turns: dict[int, _Turn] = {}
        # Set when somebody has taken audio.
        self.room = asyncio.Event()
        # Not read, since somebody does not take what has come.
        self.is_held = False
        self._query = query
        # When something came last, or the first of the turns in progress was begun.
        self._heard_s = 0.0
        # The service has failed a turn: the connection is left when no other turn needs it.
        self._is_doubted = False
        # Connections in a row that were lost before they had brought anything.
        self._fruitless = 0
        self._logged: set[str] = set()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._working = self._loop.create_task(self._work())
        self._reading: asyncio.Task[None] | None = None
        caller.slots.waiting.add(self)

    def poke(self) -> None:
        """Look what there is to do."""
        self._wake.set()

    def drop(self, turn: _Turn, error: BaseException | str) -> None:
        """Fail a turn, unless it is over, and clear and end it at the service."""
        if self.turns.pop(turn.number, None) is not None:
            self.contexts.abandon(turn.number)
            turn.failure = turn.heard.broken(error) if isinstance(error, str) else error
            turn.changed.set()
            self.room.set()
            self.poke()

    def leave(self, turn: _Turn, words: str) -> None:
        """Fail a turn by the service's fault, and leave the connection when no other turn needs it."""
        self._is_doubted = True
        self.drop(turn, words)

    def deliver(self, events: Iterable[Event], denied: SpeechframeError | None = None) -> None:
        """Give turns what happened to them; of one that is over, nothing is left to be told."""
        for event in events:
            if event.turn is None:
                self._log(str(event))
            elif (turn := self.turns.get(event.turn)) is not None:
                if isinstance(event, Ended | Failed):
                    del self.turns[event.turn]
                if isinstance(event, Failed):
                    turn.failure = denied or _error_of(event, turn.heard)
                else:
                    turn.take(event)
                turn.changed.set()
        self.poke()

    async def close(self) -> None:
        for turn in list(self.turns.values()):
            self.drop(turn, "the session was closed")
        await _stopped(self._working)
        if (connection := self.connection) is not None:
            with contextlib.suppress(TimeoutError, ConnectionError, aiohttp.ClientError):
                async with asyncio.timeout(2 * CLOSE_S):
                    await self._flush()
                    await connection.close()
            _abort(connection)
        await _stopped(self._reading)
        self.connection = None
        # What could not be sent holds no slot of the client's other sessions.
        self.contexts.disconnected(None)

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            try:
                begun = [turn for number, turn in self.turns.items() if self.contexts.is_begun(number)]
                silence_s = max((turn.silence_s for turn in begun), default=0.0)
                if self._is_doubted and not self.is_held and time.monotonic() - self._heard_s >= silence_s:
                    self._abort()
                if self.connection is None and self.contexts.wants_connection:
                    await self._connect()
                await self._flush()
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are to know
                for turn in list(self.turns.values()):
                    self.drop(turn, error)
            due_s = self.contexts.due_s
            # What is due and cannot be sent waits for a slot, which wakes us.
            limit_s = None if due_s is None else max(_TICK_S, due_s - self._loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._wake.wait()

    async def _connect(self) -> None:
        caller = self.caller
        if self._fruitless:
            await asyncio.sleep(caller.patience.wait_s(None, self._fruitless))

        async def attempt(region: str) -> tuple[str, aiohttp.ClientWebSocketResponse]:
            try:
                answer = await caller.exchange.connect(
                    caller.url(region, "stream_input").with_query(self._query),
                    headers=caller.key_header,
                    timeout_s=caller.timeouts.base_s,
                    max_message_bytes=MAX_MESSAGE_BYTES,
                )
            except SpeechframeError as error:
                failure = without_secrets(error, caller.redactor)
            else:
                if not isinstance(answer, Reply):
                    return region, answer
                failure = refusal(answer.status, answer.headers, answer.body, caller.redactor)
            raise failure

        (self.region, connection), _ = await persist(attempt, caller.health, caller.patience)
        self.connection, self._is_doubted, self._fruitless = connection, False, self._fruitless + 1
        self.contexts.connected()
        self._reading = self._loop.create_task(self._read(connection))

    async def _flush(self) -> None:
        if (connection := self.connection) is None:
            return
        for frame in self.contexts.frames(now_s=self._loop.time()):
            if frame.voice_config is not None and (number := self.contexts.turn_of(frame.context_id)):
                # The service is waited for from now on.
                self.turns[number].changed.set()
                if not any(self.contexts.is_begun(other) for other in self.turns if other != number):
                    self._heard_s = time.monotonic()
            text, began_s = encode_frame(frame), time.monotonic()
            try:
                async with asyncio.timeout(self.caller.timeouts.message_s(len(text))):
                    await connection.send_str(text)
            except TimeoutError:
                # A service that speaks, or whose audio is not read here, may take its time: the frame is in
                # the socket's buffer by now.
                if not self.is_held and self._heard_s < began_s:
                    self._abort()
                    return
            except (ConnectionError, aiohttp.ClientError):
                # The reader finds that the connection is gone, and what that means for the turns.
                return

    async def _read(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        code, reason = None, ""
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            while (message := await connection.receive()).type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                self._heard_s, self._fruitless = time.monotonic(), 0
                self.deliver(self.contexts.receive(message.data, now_s=self._loop.time()))
                if self._full():
                    await self._hold()
                if self.connection is not connection:
                    return
            if message.type is WSMsgType.CLOSE:
                # aiohttp would say 1000 also of a connection that just ended.
                code, reason = message.data or None, message.extra or ""
        if self.connection is connection:
            self._lost(code, reason)

    def _full(self) -> list[_Turn]:
        return [turn for turn in self.turns.values() if turn.waiting_bytes > MOST_WAITING_BYTES]

    async def _hold(self) -> None:
        """Read no further while somebody does not take what has come, which would fill the memory."""
        self._set_held(is_held=True)
        while full := self._full():
            self.room.clear()
            try:
                async with asyncio.timeout(HELD_S):
                    await self.room.wait()
            except TimeoutError:
                # Perhaps the program waits for a turn whose audio lies behind theirs.
                words = (
                    f"for {HELD_S:g} s nobody took this turn's audio, behind which that of other turns is; "
                    "read turns side by side, close those that nobody hears, or use two sessions"
                )
                for turn in full if len(self.turns) > 1 else ():
                    self.drop(turn, words)
        self._set_held(is_held=False)

    def _set_held(self, *, is_held: bool) -> None:
        self.is_held, self._heard_s = is_held, time.monotonic()
        for turn in self.turns.values():
            turn.changed.set()

    def _abort(self) -> None:
        """Leave the connection, as if it were lost."""
        if self.connection is not None:
            _abort(self.connection)
            self._lost(None, "")

    def _lost(self, code: int | None, reason: str) -> None:
        self.connection = None
        denied: SpeechframeError | None = None
        if code == CloseCode.POLICY_VIOLATION:
            words = one_line(reason, MAX_MESSAGE_CHARACTERS, self.caller.redactor.clean)
            denied = PermissionDenied(words or CloseCode.POLICY_VIOLATION.cause, status=Status.FORBIDDEN)
        # Nobody wants to hear half of a turn twice.
        for turn in [turn for turn in self.turns.values() if turn.heard.received.size]:
            self.drop(turn, denied or "the connection was lost before all of the audio had come")
        self.deliver(self.contexts.disconnected(code, now_s=self._loop.time()), denied)

    def _log(self, words: str) -> None:
        # A service may say the same thousands of times a second.
        if words not in self._logged and len(self._logged) < MAX_WARNINGS:
            self._logged.add(words)
            last = "; further ones are not logged" if len(self._logged) == MAX_WARNINGS else ""
            _log.warning("%s: %s%s", self._query, words, last)


def _error_of(event: Failed, heard: Heard) -> SpeechframeError:
    words, trace_id = event.words or NO_REASON, event.trace_id
    if event.code is not None:
        status = _STATUSES.get(event.code, Status.INTERNAL_SERVER_ERROR)
        return service_error(words, status=status, code=event.code or None, trace_id=trace_id)
    if heard.received.size or event.is_bad:
        return StreamBroken(words, received_bytes=heard.received.size, trace_id=trace_id)
    return ConnectionFailed(words, sent=True)


def _abort(connection: aiohttp.ClientWebSocketResponse) -> None:
    """End a connection at once, without a word: aiohttp only closes in order, which may take for ever."""
    response = connection._response  # noqa: SLF001 - there is no public way
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


async def _stopped(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _checked(given: Mapping[str, Any]) -> list[Any]:
    """Return the messages that the fields of a turn go in.

    Raises
    ------
    InvalidRows
        A field is unknown or out of range; ``problems`` lists all.
    """
    fields = {name: value for name, value in given.items() if value is not None}
    known = [name for names in _FIELDS.values() for name in names]
    problems: list[Mapping[str, Any]] = [
        {"field": name, "problem": "is no field of a turn", "value": "", "allowed": ", ".join(known)}
        for name in fields
        if name not in known
    ]
    messages: list[Any] = []
    for model, names in _FIELDS.items():
        try:
            found = check(model, {name: fields[name] for name in names if name in fields})
            messages.append(accepted(found, model))
        except InvalidRows as error:
            problems += error.problems
    if problems:
        raise InvalidRows(problems)
    return messages
