"""One WebSocket and the turns that are spoken over it; the rules are in ``wire.client_contexts``.

Two tasks: one connects when there is something to send, and sends; the other reads, as long as those who
listen keep up. Both only move what the rules say between the socket and the turns. A socket that takes
nothing, brings nothing or brings without end is left for another one, as if its connection were lost; while a
listener holds it up, that says nothing about the service.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from speechframe.errors import (
    ConnectionFailed,
    PermissionDenied,
    ServiceError,
    SpeechframeError,
    StreamBroken,
    service_error,
)
from speechframe.old_client._refused import refused, without_secrets
from speechframe.old_client._silence import Silence, Waiting
from speechframe.old_client._slots import SharedSlots
from speechframe.old_client.limits import MIB
from speechframe.old_client.reach import Reach
from speechframe.old_client.retry import persist
from speechframe.old_client.transport import Reply, Socket
from speechframe.spec.codes import CloseCode, ErrorCode, HttpErrorCode, Status
from speechframe.spec.socket import VoiceConfig
from speechframe.wire.client_contexts import Audio, ClientContexts, Ended, Event, Failed
from speechframe.wire.errors import MAX_MESSAGE_CHARACTERS, MAX_WARNINGS, NO_REASON, one_line
from speechframe.wire.frames import encode_frame

__all__ = ["Line", "Port"]

ENDPOINT = "stream_input"

MAX_MESSAGE_BYTES = 32 * MIB
"""A sentence of audio in one frame has room in it."""

MOST_WAITING_BYTES = 16 * MIB
"""Audio of a turn that nobody has taken yet, beyond which its socket is read no further."""

_TICK_S = 0.05
_FRUITFUL_S = 10.0
_CLOSE_S = 2.0

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


class Port(Waiting, Protocol):
    """Where what comes for a turn goes."""

    @property
    def waiting_bytes(self) -> int:
        """Audio that nobody has taken yet."""

    @property
    def received_bytes(self) -> int:
        """All audio that came."""

    def take(self, event: Event) -> None:
        """Take what happened to the turn."""

    def fail(self, error: BaseException) -> None:
        """Take that there will be nothing more."""

    def look(self) -> None:
        """Look again what is waited for: it has changed."""


class Line:
    """A socket, made when there is text to send, and made again when it was closed and there is more.

    Parameters
    ----------
    reach
        The client.
    query
        What the socket's address says: model, format, rate, channels.
    slots
        Of the client's key.
    """

    def __init__(self, reach: Reach, query: Mapping[str, str], slots: SharedSlots) -> None:
        self.region = reach.regions.names[0]
        self._reach, self._query = reach, query
        self._contexts = ClientContexts(
            slots, patience_s=reach.patience.patience_s, clean=reach.redactor.clean
        )
        self._ports: dict[int, Port] = {}
        self._loop = asyncio.get_running_loop()
        self._socket: Socket | None = None
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self._working: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._fruitless = 0
        self._opened_s, self._bore = 0.0, False
        self._closed = False
        self.silence = Silence()
        """How long nothing has come."""
        self._sending_s: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.is_held = False
        """Whether nothing is read, because of somebody who does not take what has come."""
        self._logged: set[str] = set()
        slots.joined(self)

    @property
    def is_connected(self) -> bool:
        """Whether the socket is open."""
        return self._socket is not None

    def open(self, port: Port, config: VoiceConfig, settings: Mapping[str, Any]) -> int:
        """Begin a turn."""
        turn = self._contexts.open(config, settings)
        self._ports[turn] = port
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

    def abandon(self, turn: int, *, with_socket: bool = False) -> None:
        """Give a turn up; what the service knows of it is cleared and ended, or lost with its socket."""
        self._contexts.abandon(turn)
        self._ports.pop(turn, None)
        if with_socket:
            self._abort()
        self.taken()
        self.poke()

    def is_begun(self, turn: int) -> bool:
        """Whether the service knows of a turn."""
        return self._contexts.is_begun(turn)

    def is_shared(self, turn: int) -> bool:
        """Whether the service knows of another turn of the same socket."""
        return bool(self._others(turn))

    def is_dead(self, turn: int) -> bool:
        """Whether nothing came for a turn because nothing comes over the socket any more."""
        return not self._contexts.is_answered(turn) and self.silence.is_death(self._others(turn))

    def taken(self) -> None:
        """Read on: somebody has taken audio."""
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
        for port in self._ports.values():
            port.fail(StreamBroken("the session was closed", received_bytes=port.received_bytes))
        self._ports.clear()
        await _stopped(self._working)
        socket = self._socket
        if socket is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self._flush()
            await socket.close()
        await _stopped(self._reading)
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
            await self._rest()

    async def _rest(self) -> None:
        due_s = self._contexts.due_s
        # What is due and cannot be sent waits for a slot, which wakes us.
        limit_s = None if due_s is None else max(_TICK_S, due_s - self._loop.time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()

    async def _flush(self) -> None:
        socket = self._socket
        if socket is None:
            return
        for frame in self._contexts.frames(now_s=self._loop.time()):
            if frame.voice_config is not None:
                # From now on it is waited for.
                self._look_again(self._contexts.turn_of(frame.context_id))
            if not await self._send(socket, encode_frame(frame)):
                # The reader takes that the connection is gone, and what it means for the turns.
                return

    async def _send(self, socket: Socket, text: str) -> bool:
        self._sending_s = self._reach.timeouts.message_s(len(text.encode()))
        self._watch_anew()
        try:
            return await socket.send(text)
        finally:
            self._sending_s = None
            self._watch_anew()

    def _watch_anew(self) -> None:
        """Allow the socket the whole of its time, from now on, to take what is being sent."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        # A service whose own audio is not taken may take no text.
        if self._sending_s is not None and not self.is_held:
            self._watch = self._loop.call_later(self._sending_s, self._abort)

    def _look_again(self, *turns: int | None) -> None:
        for turn in turns:
            if turn is not None and (port := self._ports.get(turn)) is not None:
                port.look()

    async def _connect(self) -> None:
        reach = self._reach
        if self._fruitless >= reach.patience.attempts:
            tries, self._fruitless = self._fruitless, 0
            words = f"{tries} sockets in a row were lost before they had brought anything"
            raise ConnectionFailed(words, sent=True)
        if self._fruitless:
            await asyncio.sleep(reach.patience.wait_s(None, self._fruitless))

        async def send(region: str) -> tuple[str, Socket]:
            try:
                answer = await reach.transport.connect(
                    reach.url(region, ENDPOINT).with_query(self._query),
                    headers=reach.key_header,
                    timeout_s=reach.timeouts.base_s,
                    max_message_bytes=MAX_MESSAGE_BYTES,
                )
            except SpeechframeError as error:
                failure = without_secrets(error, reach.redactor)
            else:
                if not isinstance(answer, Reply):
                    return region, answer
                failure = refused(answer.status, answer.headers, reach.redactor)
            raise failure

        (self.region, socket), _ = await persist(send, reach.regions, reach.patience)
        self._socket = socket
        self._opened_s, self._bore = time.monotonic(), False
        self.silence.broken()
        self._contexts.connected()
        self._reading = self._loop.create_task(self._read(socket))

    async def _read(self, socket: Socket) -> None:
        while (message := await socket.receive()) is not None and self._socket is socket:
            self.silence.broken()
            self._deliver(self._contexts.receive(message, now_s=self._loop.time()))
            self._wake.set()
            if self._is_full():
                await self._hold()
        if self._socket is socket:
            self._lost(socket)

    def _others(self, turn: int) -> list[Port]:
        return [port for one, port in self._ports.items() if one != turn and self._contexts.is_begun(one)]

    def _is_full(self) -> bool:
        return any(port.waiting_bytes > MOST_WAITING_BYTES for port in self._ports.values())

    async def _hold(self) -> None:
        """Read no further while somebody does not take what has come: the others' audio lies behind it."""
        self._held(is_held=True)
        while self._is_full():
            self._room.clear()
            await self._room.wait()
        self.silence.broken()
        self._held(is_held=False)

    def _held(self, *, is_held: bool) -> None:
        self.is_held = is_held
        self._watch_anew()
        self._look_again(*self._ports)

    def _abort(self) -> None:
        """Leave the socket, as if the connection were lost."""
        socket = self._socket
        if socket is not None:
            socket.abort()
            self._lost(socket)

    def _lost(self, socket: Socket) -> None:
        self._socket = None
        # One that lived was closed for being idle; one that died at once is not to be made again at once.
        bore = self._bore or time.monotonic() - self._opened_s > _FRUITFUL_S
        self._fruitless = 0 if bore else self._fruitless + 1
        denied: ServiceError | None = None
        if socket.close_code == CloseCode.POLICY_VIOLATION:
            words = one_line(socket.reason, MAX_MESSAGE_CHARACTERS, self._reach.redactor.clean)
            cause = CloseCode.POLICY_VIOLATION.cause
            denied = PermissionDenied(words or cause, status=Status.FORBIDDEN)
        self._deliver(self._contexts.disconnected(socket.close_code, now_s=self._loop.time()), denied)
        self.poke()

    def _deliver(self, events: Iterable[Event], denied: ServiceError | None = None) -> None:
        for event in events:
            if event.turn is None:
                self._log(str(event))
                continue
            is_over = isinstance(event, Ended | Failed)
            port = self._ports.pop(event.turn, None) if is_over else self._ports.get(event.turn)
            self._bore = self._bore or isinstance(event, Audio | Ended)
            if isinstance(event, Audio):
                # A service that speaks takes more text when it has spoken what it has.
                self._watch_anew()
            if port is None:
                continue
            if isinstance(event, Failed):
                port.fail(denied or self._error_of(event, port.received_bytes))
            else:
                port.take(event)

    def _error_of(self, event: Failed, received_bytes: int) -> SpeechframeError:
        words, trace_id = event.words or NO_REASON, event.trace_id
        if event.code is not None:
            status = _STATUSES.get(event.code, Status.INTERNAL_SERVER_ERROR)
            return service_error(words, status=status, code=event.code or None, trace_id=trace_id)
        if received_bytes or event.is_bad:
            return StreamBroken(words, received_bytes=received_bytes, trace_id=trace_id)
        return ConnectionFailed(words, sent=True)

    def _log(self, words: str) -> None:
        # A service may say the same thousands of times a second.
        if words not in self._logged and len(self._logged) < MAX_WARNINGS:
            self._logged.add(words)
            last = "; further ones are not logged" if len(self._logged) == MAX_WARNINGS else ""
            _log.warning("%s: %s%s", self._query, words, last)

    def _fail_all(self, error: BaseException) -> None:
        for turn in self._contexts.open_turns:
            self._contexts.abandon(turn)
        ports, self._ports = self._ports, {}
        for port in ports.values():
            port.fail(error)


async def _stopped(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
