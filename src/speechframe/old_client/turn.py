"""One turn of a session: text goes in, audio and events come out."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Self

from speechframe.errors import StreamBroken
from speechframe.old_client._line import Line
from speechframe.old_client.calls import accepted
from speechframe.old_client.limits import MIB
from speechframe.old_client.reach import Reach
from speechframe.old_client.received import Received
from speechframe.old_client.stream import Stream, StreamFacts
from speechframe.spec.billing import billed_characters
from speechframe.spec.check import check
from speechframe.spec.socket import ClientFrame, VoiceConfig
from speechframe.wire.client_contexts import Audio, Ended, Event, Odd, Retried, Warned
from speechframe.wire.errors import MAX_WARNINGS

__all__ = ["StreamContext"]

_EVENT_BYTES = 64
"""What a piece of audio weighs beside its bytes: some services send a sample at a time."""

_MOST_MORE_BYTES = 8 * MIB
"""What may still come of too much audio while others are spoken over its socket: it may be on its way."""

_HELD_S = 60.0
"""How long a turn waits while another one's audio, which nobody takes, holds up the socket."""


class StreamContext:
    """One turn of a session: ``send`` text, ``end`` it, iterate over what comes.

    Iterating over the context gives events: :class:`Audio`, :class:`Warned`, :class:`Retried` (it is sent
    again, as far as nothing of it was heard), :class:`Odd` (what nobody knows) and at last
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
        reach: Reach,
        line: Line,
        config: VoiceConfig,
        settings: Mapping[str, Any],
        received: Received,
        facts: StreamFacts,
    ) -> None:
        self.facts = facts
        self.waiting_bytes = self.received_bytes = 0
        self._line, self._timeouts, self._bounds = line, reach.timeouts, reach.bounds
        self._rate_hz = received.sample_rate_hz
        self._events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._characters = self._most_bytes = 0
        self._left_s = self.asked_s = 0.0
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
        if error is None:
            await self.end()
        else:
            await self.close()

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
        self.asked_s = time.monotonic()
        self._line.send(self._turn, text)

    async def end(self) -> None:
        """Say that there is no more text; doing it again is nothing."""
        if not self._ended:
            self._ended = True
            self._left_s = self._timeouts.speech_s(self.facts.text)
            self.asked_s = time.monotonic()
            self._arrived.set()
            self._line.end(self._turn)

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
        if self._over or self._failure is not None:
            return
        self._give_up(reason or self._broken("the turn was closed before its end"))

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
        """Return what happened next, for whoever keeps the audio."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if self._over:
                return None
            self._arrived.clear()
            await self._wait()
        event = self._events.popleft()
        if isinstance(event, Audio):
            self.waiting_bytes -= len(event.audio) + _EVENT_BYTES
            self._line.taken()
        self._over = self._over or isinstance(event, Ended)
        return event

    @property
    def silence_s(self) -> float:
        """How long it may be told nothing, with the text that it has."""
        if self._failure is not None:
            return 0.0
        return self._timeouts.attempt_s(self._characters)

    async def _wait(self) -> None:
        # Before the end it is the text that is waited for, without a slot another turn, and while somebody
        # else's audio holds up the line its listener: none of them is the service.
        if self._ended and self._line.is_held:
            await self._wait_for_listener()
        elif self._ended and self._line.is_begun(self._turn):
            await self._wait_for_service()
        else:
            await self._arrived.wait()

    async def _wait_for_listener(self) -> None:
        try:
            async with asyncio.timeout(_HELD_S):
                await self._arrived.wait()
        except TimeoutError:
            if not self._arrived.is_set():
                # Perhaps it is the same program, which will not take it before this turn is over.
                words = (
                    f"for {_HELD_S:g} s nobody took the audio of another turn of this session, behind which "
                    "this one's comes; read turns side by side, close those that nobody hears, or use two "
                    "sessions"
                )
                self._give_up(self._broken(words))

    async def _wait_for_service(self) -> None:
        silence_s = self.silence_s
        limit_s = min(silence_s, self._left_s)
        self._line.silence.awaited()
        began_s = time.perf_counter()
        try:
            async with asyncio.timeout(limit_s):
                await self._arrived.wait()
        except TimeoutError:
            if not self._arrived.is_set():
                words = f"nothing came for {limit_s:g} s after the turn was ended"
                if limit_s < silence_s:
                    words = "the turn was longer than any speech of its text"
                # A connection that brings nobody anything is dead, and would be so for the next turn.
                self._give_up(self._broken(words), with_socket=self._line.is_dead(self._turn))
        # Only waits count: a player takes its time.
        self._left_s -= time.perf_counter() - began_s

    def take(self, event: Event) -> None:
        """Take what happened to the turn."""
        if self._failure is not None:
            self._pass_over(event)
            return
        self.facts.region = self._line.region
        match event:
            case Audio(audio=audio, trace_id=trace_id):
                self._trace(trace_id)
                self.received_bytes += len(audio)
                if self._is_too_much():
                    self._take_no_more()
                    return
                self.waiting_bytes += len(audio) + _EVENT_BYTES
            case Ended(trace_id=trace_id):
                self._trace(trace_id)
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
        self._arrived.set()

    def fail(self, error: BaseException) -> None:
        """Take that there will be nothing more."""
        if self._failure is None:
            self._failure = error
            self._arrived.set()

    def look(self) -> None:
        """Look again what is waited for: it has changed."""
        self.asked_s = time.monotonic()
        self._arrived.set()

    def _trace(self, trace_id: str | None) -> None:
        if trace_id:
            self.facts.trace_id = trace_id

    def _is_too_much(self) -> bool:
        if self.received_bytes > self._most_bytes:
            # The text may have grown.
            self._most_bytes = self._bounds.speech_bytes_for(self.facts.text, self._rate_hz)
        return self.received_bytes > self._most_bytes

    def _take_no_more(self) -> None:
        most = f"more than {self._most_bytes:,} bytes"
        reason = self._broken(f"the audio is too large for its text: {most}")
        if not self._line.is_shared(self._turn):
            # There may be no end to it.
            self._give_up(reason, with_socket=True)
            return
        # Cleared and ended on the wire, but not given up: what still comes is to be counted.
        self.fail(reason)
        self._line.clear(self._turn)
        self._line.end(self._turn)

    def _pass_over(self, event: Event) -> None:
        if isinstance(event, Audio):
            self.received_bytes += len(event.audio)
            if self.received_bytes > self._most_bytes + _MOST_MORE_BYTES:
                self._line.abandon(self._turn, with_socket=True)

    def _give_up(self, reason: BaseException, *, with_socket: bool = False) -> None:
        self.fail(reason)
        self._line.abandon(self._turn, with_socket=with_socket)

    def _broken(self, words: str) -> StreamBroken:
        return StreamBroken(words, received_bytes=self.received_bytes, trace_id=self.facts.trace_id)


class TurnAudio:
    """The audio of a context, as a stream takes it."""

    def __init__(self, context: StreamContext) -> None:
        self._context = context

    @property
    def facts(self) -> StreamFacts:
        """What is known of it."""
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
