"""One turn of a WebSocket session: text goes in, audio and events come out."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from speechframe.client.caller import Caller
from speechframe.client.calls import accepted
from speechframe.client.received import Received
from speechframe.client.stream import Stream, StreamFacts
from speechframe.errors import StreamBroken
from speechframe.spec.billing import billed_characters
from speechframe.spec.check import check
from speechframe.spec.socket import ClientFrame, VoiceConfig
from speechframe.wire.errors import MAX_WARNINGS
from speechframe.wire.events import Audio, Ended, Event, Odd, Retried, Warned

__all__ = ["StreamContext", "TurnAudio"]

_EVENT_BYTES = 64
"""What a piece of audio takes in memory beside its bytes: some services send a sample at a time."""


class Line(Protocol):
    """The socket that a turn is spoken over."""

    region: str

    def open(self, context: "StreamContext", config: VoiceConfig, settings: Mapping[str, Any]) -> int:
        """Begin a turn and return its number."""

    def send(self, turn: int, text: str) -> None:
        """Add text to a turn."""

    def end(self, turn: int) -> None:
        """Say that a turn has no more text."""

    def clear(self, turn: int) -> None:
        """Drop a turn's text that is not spoken yet."""

    def abandon(self, turn: int, *, silent_since_s: float | None = None) -> None:
        """Clear and end a turn that nobody waits for any more, and leave a socket that brings nothing."""

    def is_speaking(self, turn: int) -> bool:
        """Whether the service knows of a turn, and its audio is read as it comes."""

    def taken(self) -> None:
        """Take that somebody has taken audio."""


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
        line: Line,
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

    async def _wait(self) -> None:
        # Before the end the text is waited for, without a slot another turn, and while the socket is not read
        # its listener: none of them is the service, and only the service has a time limit.
        if not (self._ended and self._line.is_speaking(self._turn)):
            await self._changed.wait()
            return
        silence_s = self._timeouts.attempt_s(self._characters)
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
                self._line.abandon(self._turn, silent_since_s=began_s)
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
                    self._line.abandon(self._turn, silent_since_s=time.monotonic())
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
