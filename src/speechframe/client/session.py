"""Speaking over the WebSocket (sections 3 and 6): text as it is written, audio as it comes, in many turns."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Self

from speechframe.client.caller import Caller
from speechframe.client.calls import accepted
from speechframe.client.pieces import Pieces, pieces_of
from speechframe.client.received import Received
from speechframe.client.stream import Stream, StreamFacts, default_model
from speechframe.client.turns import SocketLine, StreamContext, TurnAudio
from speechframe.errors import InvalidRows
from speechframe.spec.check import check
from speechframe.spec.socket import ClientFrame, SocketQuery, VoiceConfig

__all__ = ["StreamSession"]

_QUERY = tuple(name for name in SocketQuery.model_fields if name != "api_key")
_BUFFERS = ("min_buffer_size", "max_buffer_delay_in_ms", "predictive_chunking")
_VOICE = tuple(name for name in VoiceConfig.model_fields if name != "voice_id")


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
        self._fields = _checked({"voice_id": voice, **fields})
        self._lines: dict[tuple[tuple[str, str], ...], SocketLine] = {}
        self._closed = False
        if max_contexts is not None:
            if max_contexts < 1:
                raise ValueError(f"max_contexts is 1 or more, not {max_contexts}")
            caller.slots.set(max_contexts)
        caller.opened.add(self)

    def __repr__(self) -> str:
        """Return what it speaks and over how many sockets."""
        return f"<{type(self).__name__} {self._fields}, {self.sockets} sockets>"

    async def __aenter__(self) -> Self:
        """Return the session."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the session."""
        await self.close()

    @property
    def sockets(self) -> int:
        """How many sockets are open."""
        return sum(line.is_connected for line in self._lines.values())

    async def close(self) -> None:
        """End every turn and close the sockets; calling it again does nothing."""
        self._closed = True
        lines, self._lines = self._lines, {}
        await asyncio.gather(*(line.close() for line in lines.values()))

    async def open(self, /, *, voice: str | None = None, **fields: Any) -> StreamContext:
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
        return await self._opened({"voice_id": voice, **fields}, StreamFacts())

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
        given = {"voice_id": voice, **fields}
        received = self._received({**self._fields, **_checked(given)})
        return Stream(_WrittenText(self, pieces, given), received)

    def _received(self, fields: Mapping[str, Any]) -> Received:
        query = accepted(check(SocketQuery, _only(fields, _QUERY)), SocketQuery)
        model = query.model or default_model(self._caller.regions[0])
        return Received(query.format, query.channel_type, query.sample_rate, model)

    async def _opened(self, given: Mapping[str, Any], facts: StreamFacts) -> StreamContext:
        caller, fields = self._caller, {**self._fields, **_checked(given)}
        if not caller.slots.is_known:
            caller.slots.learn(await caller.limits() or {}, caller.regions[0])
        if self._closed:
            raise RuntimeError("the session is closed")
        query = {name: str(value) for name, value in _only(fields, _QUERY).items()}
        line = self._lines.get(shape := tuple(sorted(query.items())))
        if line is None:
            line = self._lines[shape] = SocketLine(caller, query)
        config = accepted(check(VoiceConfig, _only(fields, ("voice_id", *_VOICE))), VoiceConfig)
        frame = accepted(check(ClientFrame, _only(fields, _BUFFERS)), ClientFrame)
        settings = frame.model_dump(include=frame.model_fields_set)
        return StreamContext(caller, line, config, settings, self._received(fields), facts)


class _WrittenText:
    """The audio of a text that is being written: the turn, and the task that gives it the text."""

    def __init__(self, session: StreamSession, pieces: Pieces, given: Mapping[str, Any]) -> None:
        self.facts = StreamFacts()
        self._session, self._pieces, self._given = session, pieces, given
        self._turn: TurnAudio | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._closed = False

    async def next(self) -> bytes | None:
        """Return the next piece; None at the end."""
        if self._turn is None:
            context = await self._session._opened(self._given, self.facts)  # noqa: SLF001 - its other half
            self._turn = TurnAudio(context)
            if self._closed:
                await context.close()
            else:
                self._feeding = asyncio.create_task(self._feed(context))
        return await self._turn.next()

    async def close(self) -> None:
        """Stop asking for text, and give the turn up unless it is over."""
        self._closed = True
        if self._feeding is not None:
            self._feeding.cancel()
            await asyncio.gather(self._feeding, return_exceptions=True)
        if self._turn is not None:
            await self._turn.close()

    async def _feed(self, context: StreamContext) -> None:
        try:
            async for piece in pieces_of(self._pieces):
                await context.send(piece)
            await context.end()
        except Exception as error:  # noqa: BLE001 - the writer's error belongs to whoever listens
            await context.close(error)
        except asyncio.CancelledError:
            # Also that of something the writer waited for: there will be no more text, and no end.
            await context.close()
            raise


def _only(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are given, when all of them are right.

    Raises
    ------
    InvalidRows
        A field is unknown or out of range.
    """
    fields = {name: value for name, value in given.items() if value is not None}
    problems: list[Mapping[str, Any]] = []
    tables = ((SocketQuery, _QUERY), (ClientFrame, _BUFFERS), (VoiceConfig, ("voice_id", *_VOICE)))
    for model, names in tables:
        try:
            accepted(check(model, _only(fields, names)), model)
        except InvalidRows as error:
            problems += error.problems
    known = (*_QUERY, *_BUFFERS, *_VOICE)
    problems += [
        {"field": name, "problem": "is no field of a turn", "value": "", "allowed": ", ".join(known)}
        for name in fields
        if name not in known and name != "voice_id"
    ]
    if problems:
        raise InvalidRows(problems)
    return fields
