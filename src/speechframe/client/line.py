"""One WebSocket and the turns that are spoken over it; the rules of turns are in ``wire.client_contexts``.

One task connects when there is something to send, and sends; another reads, as long as those who listen keep
up. A socket that takes nothing or brings nothing is aborted, as if its connection were lost: turns of which
nothing was heard are sent once more over another socket, the others have failed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import aiohttp
from aiohttp import WSMsgType

from speechframe.client.caller import Caller
from speechframe.client.exchange import CLOSE_S, Reply
from speechframe.client.limits import MIB
from speechframe.client.masking import refusal, without_secrets
from speechframe.client.retries import persist
from speechframe.client.turn import StreamContext
from speechframe.errors import (
    ConnectionFailed,
    PermissionDenied,
    ServiceError,
    SpeechframeError,
    StreamBroken,
    service_error,
)
from speechframe.spec.codes import CloseCode, ErrorCode, HttpErrorCode, Status
from speechframe.spec.socket import VoiceConfig
from speechframe.wire.client_contexts import ClientContexts
from speechframe.wire.errors import MAX_MESSAGE_CHARACTERS, MAX_WARNINGS, NO_REASON, one_line
from speechframe.wire.events import Ended, Event, Failed
from speechframe.wire.frames import encode_frame

__all__ = ["SocketLine"]

ENDPOINT = "stream_input"
MAX_MESSAGE_BYTES = 32 * MIB
"""More than a sentence of audio in one frame."""
MOST_WAITING_BYTES = 16 * MIB
"""Audio of a turn that nobody has taken yet, beyond which its socket is read no further."""
HELD_S = 60.0
"""How long a turn whose audio nobody takes may keep other turns of its socket waiting."""
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

    def abandon(self, turn: int, *, silent_since_s: float | None = None) -> None:
        """Clear and end a turn that nobody waits for any more.

        Where nothing came over the socket since `silent_since_s`, or no other turn uses it, the socket is
        left: it may be dead, or never end.
        """
        self._contexts.abandon(turn)
        self._turns.pop(turn, None)
        is_shared = any(self._contexts.is_begun(other) for other in self._turns)
        if silent_since_s is not None and (self._heard_s < silent_since_s or not is_shared):
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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HELD_S if len(self._turns) > 1 else None):
                while self._full():
                    self._room.clear()
                    await self._room.wait()
        for turn in self._full():
            # Perhaps the program waits for a turn whose audio lies behind this one's.
            words = (
                f"for {HELD_S:g} s nobody took this turn's audio, behind which that of other turns waits; "
                "read turns side by side, close those that nobody hears, or use two sessions"
            )
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
