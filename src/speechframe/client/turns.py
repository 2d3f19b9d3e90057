"""Turns of a WebSocket session and the socket they are spoken over; ``wire.client_contexts`` has the rules.

One task connects when there is something to send, and sends; another reads, as long as those who listen keep
up. A socket that takes nothing or brings nothing is aborted, as if its connection were lost: turns of which
nothing was heard are sent once more over another socket, the others have failed.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import WSMsgType

from speechframe.client.caller import Caller
from speechframe.client.calls import accepted
from speechframe.client.exchange import CLOSE_S, Reply
from speechframe.client.limits import MIB
from speechframe.client.masking import refusal, without_secrets
from speechframe.client.received import Received
from speechframe.client.retries import persist
from speechframe.client.stream import Stream, StreamFacts
from speechframe.errors import (
    ConnectionFailed,
    PermissionDenied,
    ServiceError,
    SpeechframeError,
    StreamBroken,
    service_error,
)
from speechframe.spec.billing import billed_characters
from speechframe.spec.check import check
from speechframe.spec.codes import CloseCode, ErrorCode, HttpErrorCode, Status
from speechframe.spec.socket import ClientFrame, VoiceConfig
from speechframe.wire.client_contexts import ClientContexts
from speechframe.wire.errors import MAX_MESSAGE_CHARACTERS, MAX_WARNINGS, NO_REASON, one_line
from speechframe.wire.events import Audio, Ended, Event, Failed, Odd, Retried, Warned
from speechframe.wire.frames import encode_frame

__all__ = ["SocketLine", "StreamContext", "TurnAudio"]

ENDPOINT = "stream_input"
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

_STATUSES: Mapping[str, Status] = MappingProxyType(
    {
        ErrorCode.INVALID_VOICE: Status.BAD_REQUEST,
        ErrorCode.INVALID_JSON: Status.BAD_REQUEST,
        ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED: Status.TOO_MANY_REQUESTS,
        ErrorCode.INTERNAL_ERROR: Status.INTERNAL_SERVER_ERROR,
        **{code.value: code.status for code in HttpErrorCode},
    }
)
"""What HTTP answers to the same: so an error of a turn has the class that a call's has."""

_log = logging.getLogger("speechframe")


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

    def __init__(
        self,
        caller: Caller,
        line: "SocketLine",
        config: VoiceConfig,
        settings: Mapping[str, Any],
        received: Received,
        facts: StreamFacts,
    ) -> None:
        self.facts = facts
        self.received_bytes = self.waiting_bytes = 0
        """All audio that came, and what of it nobody has taken yet."""
        self._line, self._timeouts, self._bounds = line, caller.timeouts, caller.bounds
        self._rate_hz = received.sample_rate_hz
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()
        self._characters = self._most_bytes = 0
        self._left_s = 0.0
        self._told: Counter[type[Event]] = Counter()
        self._failure: BaseException | None = None
        self._ended = self._over = False
        self._turn = line.open(self, config, settings)
        self._stream = Stream(TurnAudio(self), received)

    def __repr__(self) -> str:
        """Return how far it is."""
        return f"<{type(self).__name__} {self._turn}, {self.received_bytes:,} bytes>"

    async def __aenter__(self) -> Self:
        """Return the context."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the turn, or give it up where the block failed."""
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
        if not isinstance(text, str):
            raise TypeError(f"a piece of text is a str, not {type(text).__name__}")
        if self._failure is not None:
            raise self._failure
        if self._ended:
            raise RuntimeError("the turn was ended; open another one")
        accepted(check(ClientFrame, {"text": text}), ClientFrame)
        if not self._characters:
            self.facts.started_s = time.perf_counter()
        self._characters += len(text)
        self.facts.billed_characters += billed_characters(text)
        self.facts.text += text
        self._line.send(self._turn, text)

    async def end(self) -> None:
        """Say that there is no more text; doing it again is nothing."""
        if not self._ended:
            self._ended = True
            self._left_s = self._timeouts.speech_s(self.facts.text)
            self._line.end(self._turn)
            self.look()

    async def clear(self) -> None:
        """Drop the text that is not being spoken yet, as when a listener interrupts."""
        self._line.clear(self._turn)

    async def close(self, reason: BaseException | None = None) -> None:
        """Give the turn up, unless it is over: its text is dropped, and it is ended.

        Parameters
        ----------
        reason
            What its listener is told; by default that it was closed.
        """
        if not self._over and self._failure is None:
            self.fail(reason or self.broken("the turn was closed before its end"))
            self._line.abandon(self._turn)

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        """Yield what happens, to the end of the turn."""
        while (event := await self.event()) is not None:
            yield event

    async def event(self) -> Event | None:
        """Return what happens next; None when the turn is over.

        Raises
        ------
        ServiceError, StreamBroken, ConnectionFailed
            The turn has failed.
        """
        event = await self.next_event()
        if isinstance(event, Audio):
            self._stream.keep(event.audio)
        return event

    def audio(self) -> Stream:
        """Return the audio, to be iterated, read or saved; leaving its loop gives the turn up."""
        return self._stream

    async def next_event(self) -> Event | None:
        """Return what happens next, for whoever keeps the audio."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if self._over:
                return None
            self._changed.clear()
            await self._wait()
        event = self._events.popleft()
        if isinstance(event, Audio):
            self.waiting_bytes -= len(event.audio) + _EVENT_BYTES
            self._line.taken()
        self._over = self._over or isinstance(event, Ended)
        return event

    @property
    def silence_s(self) -> float:
        """How long the service may send nothing, with the text that the turn has."""
        return self._timeouts.attempt_s(self._characters)

    async def _wait(self) -> None:
        # Before the end the text is waited for, without a slot another turn, and while the socket is not read
        # its listener: none of them is the service, and only the service has a time limit.
        if not (self._ended and self._line.is_speaking(self._turn)):
            await self._changed.wait()
            return
        silence_s = self.silence_s
        limit_s, began_s = min(silence_s, self._left_s), time.monotonic()
        try:
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        except TimeoutError:
            if not self._changed.is_set():
                words = f"nothing came for {limit_s:g} s after the turn was ended"
                if limit_s < silence_s:
                    words = "the turn was longer than any speech of its text"
                self.fail(self.broken(words))
                self._line.abandon(self._turn, waited_since_s=began_s)
        # Only waits count: a player takes its time.
        self._left_s -= time.monotonic() - began_s

    def take(self, event: Event) -> None:
        """Take what happened to the turn."""
        if self._failure is not None:
            return
        self.facts.region = self._line.region
        self.facts.trace_id = getattr(event, "trace_id", None) or self.facts.trace_id
        match event:
            case Audio(audio=audio):
                self.received_bytes += len(audio)
                if self._is_too_much():
                    self.fail(
                        self.broken(
                            f"the audio is too large for its text: more than {self._most_bytes:,} bytes"
                        )
                    )
                    self._line.abandon(self._turn, waited_since_s=0.0)
                    return
                self.waiting_bytes += len(audio) + _EVENT_BYTES
            case Warned() | Odd():
                self._told[type(event)] += 1
                if self._told[type(event)] > MAX_WARNINGS:
                    return
                if isinstance(event, Warned):
                    self.facts.warnings.append(f"{event.code}: {event.words}" if event.code else event.words)
            case Retried():
                self.facts.attempts += 1
                self._left_s = self._timeouts.speech_s(self.facts.text)
        self._events.append(event)
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """Take that there will be nothing more."""
        if self._failure is None:
            self._failure = error
            self._changed.set()

    def look(self) -> None:
        """Look again what is waited for, which has changed."""
        self._changed.set()

    def _is_too_much(self) -> bool:
        if self.received_bytes > self._most_bytes:
            # The text may have grown.
            self._most_bytes = self._bounds.speech_bytes_for(self.facts.text, self._rate_hz)
        return self.received_bytes > self._most_bytes

    def broken(self, words: str) -> StreamBroken:
        """Return the error of a turn that ends before its end."""
        return StreamBroken(words, received_bytes=self.received_bytes, trace_id=self.facts.trace_id)


class TurnAudio:
    """The audio of a context, as a stream takes it."""

    def __init__(self, context: StreamContext) -> None:
        self._context = context

    @property
    def facts(self) -> StreamFacts:
        """What is known of the turn."""
        return self._context.facts

    async def next(self) -> bytes | None:
        """Return the next piece; None at the end."""
        while (event := await self._context.next_event()) is not None:
            if isinstance(event, Audio):
                return event.audio
        return None

    async def close(self) -> None:
        """Give the turn up, unless it is over."""
        await self._context.close()


class SocketLine:
    """A socket, made when there is text to send, and made again when it was closed and there is more.

    Parameters
    ----------
    caller
        The client.
    query
        What the socket's address says: model, format, rate, channels.
    """

    def __init__(self, caller: Caller, query: Mapping[str, str]) -> None:
        self.region = caller.regions[0]
        self._caller, self._query = caller, query
        self._contexts = ClientContexts(
            caller.slots,
            max_attempts=_MOST_ATTEMPTS,
            patience_s=caller.patience.patience_s,
            clean=caller.redactor.clean,
        )
        self._turns: dict[int, StreamContext] = {}
        self._loop = asyncio.get_running_loop()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._heard_s = 0.0
        """When something came last, or the first of the turns in progress was begun."""
        self._fruitless = 0
        """Sockets in a row that were lost before they had brought anything."""
        self._is_held = self._closed = False
        self._logged: set[str] = set()
        caller.slots.waiting.add(self)

    @property
    def is_connected(self) -> bool:
        """Whether there is a socket."""
        return self._socket is not None

    def open(self, context: StreamContext, config: VoiceConfig, settings: Mapping[str, Any]) -> int:
        """Begin a turn and return its number."""
        turn = self._contexts.open(config, settings)
        self._turns[turn] = context
        return turn

    def send(self, turn: int, text: str) -> None:
        """Add text to a turn."""
        self._contexts.send(turn, text)
        self.poke()

    def end(self, turn: int) -> None:
        """Say that a turn has no more text."""
        self._deliver(self._contexts.end(turn))
        self.poke()

    def clear(self, turn: int) -> None:
        """Drop a turn's text that is not spoken yet."""
        self._deliver(self._contexts.clear(turn))
        self.poke()

    def abandon(self, turn: int, *, waited_since_s: float | None = None) -> None:
        """Clear and end a turn that nobody waits for any more.

        Parameters
        ----------
        turn
            Its number.
        waited_since_s
            Since when the service was waited for, where it failed the turn. Then the socket is left too,
            unless another turn uses it, and something came since then or that turn may be waited for longer.
        """
        self._contexts.abandon(turn)
        self._turns.pop(turn, None)
        others_s = [one.silence_s for other, one in self._turns.items() if self._contexts.is_begun(other)]
        if waited_since_s is not None:
            is_silent = self._heard_s <= min(waited_since_s, time.monotonic() - max(others_s, default=0.0))
            if is_silent or not others_s:
                self._abort()
        self.taken()
        self.poke()

    def is_speaking(self, turn: int) -> bool:
        """Whether the service knows of a turn, and its audio is read as it comes."""
        return self._contexts.is_begun(turn) and not self._is_held

    def taken(self) -> None:
        """Take that somebody has taken audio."""
        self._room.set()

    def poke(self) -> None:
        """Look what there is to do."""
        if self._closed:
            return
        self._wake.set()
        if self._working is None or self._working.done():
            self._working = self._loop.create_task(self._work())

    async def close(self) -> None:
        """End every turn and close the socket."""
        if self._closed:
            return
        self._closed = True
        for turn in self._contexts.open_turns:
            self._contexts.abandon(turn)
        self._fail_all(None)
        await _stopped(self._working)
        socket = self._socket
        if socket is not None:
            with contextlib.suppress(TimeoutError, ConnectionError, aiohttp.ClientError):
                async with asyncio.timeout(2 * CLOSE_S):
                    await self._flush()
                    await socket.close()
            _abort(socket)
        await _stopped(self._reading)
        self._socket = None
        # What could not be sent holds no slot of the client's other sessions.
        self._contexts.disconnected(None)

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            try:
                if self._socket is None and self._contexts.wants_connection:
                    await self._connect()
                await self._flush()
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are to know
                self._fail_all(error)
            due_s = self._contexts.due_s
            # What is due and cannot be sent waits for a slot, which wakes us.
            limit_s = None if due_s is None else max(_TICK_S, due_s - self._loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._wake.wait()

    async def _connect(self) -> None:
        caller = self._caller
        if self._fruitless:
            await asyncio.sleep(caller.patience.wait_s(None, self._fruitless))

        async def attempt(region: str) -> tuple[str, aiohttp.ClientWebSocketResponse]:
            try:
                answer = await caller.exchange.connect(
                    caller.url(region, ENDPOINT).with_query(self._query),
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

        (self.region, socket), _ = await persist(attempt, caller.health, caller.patience)
        self._socket, self._fruitless = socket, self._fruitless + 1
        self._contexts.connected()
        self._reading = self._loop.create_task(self._read(socket))

    async def _flush(self) -> None:
        socket = self._socket
        if socket is None:
            return
        for frame in self._contexts.frames(now_s=self._loop.time()):
            if frame.voice_config is not None and (turn := self._contexts.turn_of(frame.context_id)):
                # The service is waited for from now on.
                self._turns[turn].look()
                if not any(self._contexts.is_begun(other) for other in self._turns if other != turn):
                    self._heard_s = time.monotonic()
            text, began_s = encode_frame(frame), time.monotonic()
            try:
                async with asyncio.timeout(self._caller.timeouts.message_s(len(text))):
                    await socket.send_str(text)
            except TimeoutError:
                # A service that speaks, or whose audio is not read here, may take its time: the frame is in
                # the socket's buffer by now.
                if not self._is_held and self._heard_s < began_s:
                    self._abort()
                    return
            except (ConnectionError, aiohttp.ClientError):
                # The reader finds that the connection is gone, and what that means for the turns.
                return

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        code, reason = None, ""
        with contextlib.suppress(ConnectionError, aiohttp.ClientError):
            while (message := await socket.receive()).type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                self._heard_s, self._fruitless = time.monotonic(), 0
                self._deliver(self._contexts.receive(message.data, now_s=self._loop.time()))
                self._wake.set()
                if self._full():
                    await self._hold()
                if self._socket is not socket:
                    return
            if message.type is WSMsgType.CLOSE:
                # aiohttp would say 1000 also of a connection that just ended.
                code, reason = message.data or None, message.extra or ""
        if self._socket is socket:
            self._lost(code, reason)

    def _full(self) -> list[int]:
        return [turn for turn, one in self._turns.items() if one.waiting_bytes > MOST_WAITING_BYTES]

    async def _hold(self) -> None:
        """Read no further while somebody does not take what has come, which would fill the memory."""
        self._set_held(is_held=True)
        while full := self._full():
            self._room.clear()
            try:
                async with asyncio.timeout(HELD_S):
                    await self._room.wait()
            except TimeoutError:
                # Perhaps the program waits for a turn whose audio lies behind theirs.
                words = (
                    f"for {HELD_S:g} s nobody took this turn's audio, behind which that of other turns is; "
                    "read turns side by side, close those that nobody hears, or use two sessions"
                )
                for turn in full if len(self._turns) > 1 else ():
                    await self._turns[turn].close(self._turns[turn].broken(words))
        self._set_held(is_held=False)

    def _set_held(self, *, is_held: bool) -> None:
        self._is_held = is_held
        self._heard_s = time.monotonic()
        for context in self._turns.values():
            context.look()

    def _abort(self) -> None:
        """Leave the socket, as if the connection were lost."""
        if self._socket is not None:
            _abort(self._socket)
            self._lost(None, "")

    def _lost(self, code: int | None, reason: str) -> None:
        self._socket = None
        denied: ServiceError | None = None
        if code == CloseCode.POLICY_VIOLATION:
            words = one_line(reason, MAX_MESSAGE_CHARACTERS, self._caller.redactor.clean)
            denied = PermissionDenied(words or CloseCode.POLICY_VIOLATION.cause, status=Status.FORBIDDEN)
        # Nobody wants to hear half of a turn twice.
        for turn in [turn for turn, one in self._turns.items() if one.received_bytes]:
            self._contexts.abandon(turn)
            words = "the connection was lost before all of the audio had come"
            context = self._turns.pop(turn)
            context.fail(denied or context.broken(words))
        self._deliver(self._contexts.disconnected(code, now_s=self._loop.time()), denied)
        self.poke()

    def _deliver(self, events: Iterable[Event], denied: ServiceError | None = None) -> None:
        for event in events:
            if event.turn is None:
                self._log(str(event))
                continue
            is_over = isinstance(event, Ended | Failed)
            context = self._turns.pop(event.turn, None) if is_over else self._turns.get(event.turn)
            if context is None:
                continue
            if isinstance(event, Failed):
                context.fail(denied or _error_of(event, context.received_bytes))
            else:
                context.take(event)

    def _log(self, words: str) -> None:
        # A service may say the same thousands of times a second.
        if words not in self._logged and len(self._logged) < MAX_WARNINGS:
            self._logged.add(words)
            last = "; further ones are not logged" if len(self._logged) == MAX_WARNINGS else ""
            _log.warning("%s: %s%s", self._query, words, last)

    def _fail_all(self, error: BaseException | None) -> None:
        """Fail every turn, with an error or because the session was closed."""
        turns, self._turns = self._turns, {}
        for turn, context in turns.items():
            self._contexts.abandon(turn)
            context.fail(
                error or StreamBroken("the session was closed", received_bytes=context.received_bytes)
            )


def _error_of(event: Failed, received_bytes: int) -> SpeechframeError:
    words, trace_id = event.words or NO_REASON, event.trace_id
    if event.code is not None:
        status = _STATUSES.get(event.code, Status.INTERNAL_SERVER_ERROR)
        return service_error(words, status=status, code=event.code or None, trace_id=trace_id)
    if received_bytes or event.is_bad:
        return StreamBroken(words, received_bytes=received_bytes, trace_id=trace_id)
    return ConnectionFailed(words, sent=True)


def _abort(socket: aiohttp.ClientWebSocketResponse) -> None:
    """End a connection at once, without a word: aiohttp only closes in order, which may take for ever."""
    response = socket._response  # noqa: SLF001 - there is no public way
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


async def _stopped(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
