"""The rules of WebSocket contexts as a client keeps them (sections 3, 6, 7.3 to 7.5): no I/O, no clocks.

`ClientContexts` is one socket, or what is left of it until the next. A turn is what its user sees: text in,
audio out, one end. On the wire a turn is an attempt with an id of its own, so that whatever still comes for
an attempt that was given up is told apart. What is decided here, always by code and never by wording:

* No more contexts are active than there are slots; the turns beyond wait, and begin in their order.
* A turn that the service refuses for its number waits until another ends, or a moment, and is sent again.
* A turn that fails with INTERNAL_ERROR, or whose connection is lost, is sent again from its beginning, unless
  some of it was heard: then it has failed, since nobody wants to hear half of it twice.
* A turn of whose audio a piece cannot be read, or that ends without any for a text with something to
  pronounce, has failed.
* Every attempt that was begun gets its `end`, whatever happens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from speechframe.spec.chosen import MAX_FRAME_BYTES
from speechframe.spec.codes import CloseCode, ErrorCode, WarningCode
from speechframe.spec.socket import ClientFrame, ErrorFrame, FinalFrame, VoiceConfig, WarningFrame
from speechframe.spec.texts import speaks
from speechframe.wire.answers import MAX_TRACE_CHARACTERS, Clean, one_line
from speechframe.wire.frames import AudioReceived, ServerFrame, UnknownFrame, parse_server_frame
from speechframe.wire.turns import SlotPool

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
_FRAME_CHARACTERS = MAX_FRAME_BYTES // 8
"""Of text: a character has at most six bytes as JSON, and the frame holds little else."""
_CLEAR = ClientFrame.model_validate({"clear": True})
_END = ClientFrame.model_validate({"end": True})


@dataclass(frozen=True, slots=True)
class Audio:
    """Audio of a turn. With WAV a header stands wherever the bytes begin with RIFF, and nowhere else."""

    turn: int
    audio: bytes
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """All audio of a turn has come."""

    turn: int
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A turn will have no more audio.

    `code` is the service's, empty where it gave none; None where the connection was lost, and where what
    came cannot be used: then `is_bad`.
    """

    turn: int
    code: str | None
    words: str
    trace_id: str | None = None
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class Retried:
    """A turn of which nothing was heard is sent again from its beginning."""

    turn: int
    code: str | None


@dataclass(frozen=True, slots=True)
class Warned:
    """The service ignored or replaced something; `turn` is None where it belongs to none."""

    turn: int | None
    code: WarningCode | str
    words: str


@dataclass(frozen=True, slots=True)
class Odd:
    """The service said what nobody knows, or something about no turn: to be logged, and nothing else."""

    turn: int | None
    words: str


Event = Audio | Ended | Failed | Retried | Warned | Odd


@dataclass(eq=False, slots=True)
class _Turn:
    """A turn: what is to be sent of it, what was sent, and what became of that."""

    number: int
    opening: ClientFrame
    frames: list[ClientFrame] = field(default_factory=list)
    """What is to be sent, and what was sent while it may have to be sent again; without the attempt's id."""
    sent: int = 0
    wire_id: str | None = None
    attempts: int = 0
    failures: int = 0
    has_slot: bool = False
    ended: bool = False
    heard: bool = False
    """Whether anything of it was heard: then nothing of it is ever sent again."""
    warned: str = ""
    """The last warning of this attempt."""
    not_before_s: float = -inf
    refused_since_s: float | None = None
    wait_s: float = _FIRST_WAIT_S

    @property
    def has_text(self) -> bool:
        """Whether there is text to be sent."""
        # Asked at every piece: what was sent is not gone through again.
        return any(self.frames[index].text is not None for index in range(self.sent, len(self.frames)))

    def next_frame(self) -> ClientFrame:
        """Return the next frame to be sent; it counts as sent."""
        frame = self.frames[self.sent]
        self.sent += 1
        if self.heard and self.sent == len(self.frames):
            self.frames, self.sent = [], 0
        return frame


class ClientContexts:
    """The turns that are spoken over one socket, on the side of the client.

    Parameters
    ----------
    slots
        Where active contexts are counted, shared by the sockets of a key.
    max_attempts
        How often a turn is sent at most when it fails, or when nothing of it was heard before its connection
        was closed.
    patience_s
        How long a turn waits while the service says that too many contexts are active.
    clean
        Masks what must not be shown in what the service says.

    Examples
    --------
    >>> from speechframe.wire.turns import Slots
    >>> contexts = ClientContexts(Slots(1))
    >>> turn = contexts.open(VoiceConfig(voice_id="nora"))
    >>> contexts.send(turn, "Hello.")
    >>> contexts.end(turn)
    []
    >>> contexts.wants_connection
    True
    >>> contexts.connected()
    >>> [frame.context_id for frame in contexts.frames(now_s=0.0)]
    ['1.1', '1.1', '1.1']
    """

    def __init__(
        self, slots: SlotPool, *, max_attempts: int = 3, patience_s: float = 60.0, clean: Clean = str
    ) -> None:
        self._slots = slots
        self._clean = clean
        self._max_attempts = max_attempts
        self._patience_s = patience_s
        self._numbers = 0
        self._turns: dict[int, _Turn] = {}
        self._by_wire_id: dict[str, _Turn] = {}
        # Attempts that were given up and are still to be ended, with whether they hold a slot till then.
        self._closing: list[tuple[str, bool]] = []
        # Attempts that were given up on this connection and of which something may still come.
        self._left: set[str] = set()
        self._connected = False

    @property
    def wants_connection(self) -> bool:
        """Whether there is something to send and no connection to send it over."""
        return not self._connected and any(turn.has_text for turn in self._turns.values())

    @property
    def open_turns(self) -> tuple[int, ...]:
        """The turns that are not over."""
        return tuple(self._turns)

    def open(self, voice_config: VoiceConfig, settings: Mapping[str, Any] | None = None) -> int:
        """Begin a turn and return its number; nothing is sent before it has text.

        Parameters
        ----------
        voice_config
            The voice of the turn.
        settings
            min_buffer_size, max_buffer_delay_in_ms, predictive_chunking; those that are given.
        """
        self._numbers += 1
        opening = ClientFrame.model_validate({"voice_config": voice_config, **(settings or {})})
        self._turns[self._numbers] = _Turn(self._numbers, opening)
        return self._numbers

    def send(self, turn: int, text: str) -> None:
        """Add text to a turn; what comes for one that is over is dropped, as it would be on the wire.

        Raises
        ------
        ValidationError
            It cannot be sent. So what is sent needs no check any more: one turn's fault is never another's.
        """
        found = self._turns.get(turn)
        if found is not None and not found.ended and text:
            # A long text goes in several frames: where it is cut for speaking does not depend on them.
            pieces = (text[at : at + _FRAME_CHARACTERS] for at in range(0, len(text), _FRAME_CHARACTERS))
            found.frames += [ClientFrame.model_validate({"text": piece}) for piece in pieces]

    def clear(self, turn: int) -> list[Event]:
        """Drop the text of a turn that is not spoken yet."""
        found = self._turns.get(turn)
        if found is None:
            return []
        ending = [_END] if found.ended else []
        # An end that has gone cannot be taken back; clear reaches what the service still holds.
        found.frames = ([_CLEAR] if found.wire_id else []) + ending
        found.sent = 0
        return [] if found.wire_id else self._over_if_ended(found)

    def end(self, turn: int) -> list[Event]:
        """Say that a turn has no more text."""
        found = self._turns.get(turn)
        if found is None or found.ended:
            return []
        found.ended = True
        if found.wire_id is None and not found.has_text:
            # Nothing of it is known to the service, or no longer: there is nothing to wait for.
            return self._over(found, Ended(turn))
        found.frames.append(_END)
        return []

    def abandon(self, turn: int) -> None:
        """Give a turn up: nobody waits for it any more. What the service knows of it is cleared and ended."""
        found = self._turns.get(turn)
        if found is not None:
            self._give_up(found)
            del self._turns[turn]

    def is_begun(self, turn: int) -> bool:
        """Whether the service knows of a turn; until then it waits for text, a slot or a connection."""
        found = self._turns.get(turn)
        return found is not None and found.wire_id is not None

    def connected(self) -> None:
        """Take that there is a connection."""
        self._connected = True

    def disconnected(self, code: int | None) -> list[Event]:
        """Take that the connection is closed, with a code or without one, and say what that means."""
        self._connected = False
        for _, has_slot in self._closing:
            if has_slot:
                self._slots.free()
        self._closing.clear()
        self._left.clear()
        events: list[Event] = []
        for turn in list(self._turns.values()):
            events += self._lost(turn, code)
        return events

    def frames(self, *, now_s: float) -> Iterator[ClientFrame]:
        """Yield what is to be sent now, in order; each frame counts as sent when it is taken.

        Between two frames anything may happen: a turn that is given up meanwhile is sent no further.
        """
        while self._connected and self._closing:
            wire_id, has_slot = self._closing.pop(0)
            if has_slot:
                self._slots.free()
            yield _addressed(_CLEAR, wire_id)
            yield _addressed(_END, wire_id)
        for number in list(self._turns):
            turn = self._turns.get(number)
            if turn is None or not self._connected:
                continue
            if turn.wire_id is None and self._begins(turn, now_s):
                yield _addressed(turn.opening, turn.wire_id)
            while turn.wire_id is not None and turn.sent < len(turn.frames):
                frame = turn.next_frame()
                if frame.end:
                    self._free(turn)
                yield _addressed(frame, turn.wire_id)

    def receive(self, message: str | bytes, *, now_s: float) -> list[Event]:
        """Take a message of the service and return what it means."""
        frame = parse_server_frame(message, self._clean)
        said = frame.said if isinstance(frame, AudioReceived) else None
        # What rides on audio comes first: where it ends the turn, nobody waits for the audio any more.
        before = self._meaning(said, now_s) if said is not None else []
        return before + self._meaning(frame, now_s)

    def _meaning(self, frame: ServerFrame, now_s: float) -> list[Event]:
        if frame.context_id in self._left:
            # Nobody wants to hear it any more.
            is_fatal = isinstance(frame, ErrorFrame) and frame.fatal
            if is_fatal or (isinstance(frame, FinalFrame | AudioReceived) and frame.final):
                self._left.discard(frame.context_id)
            return []
        turn = self._by_wire_id.get(frame.context_id or "")
        number = turn.number if turn is not None else None
        if isinstance(frame, WarningFrame):
            if turn is not None:
                turn.warned = ": ".join(filter(None, (frame.warning_code, frame.warning)))
            return [Warned(number, frame.warning_code, frame.warning)]
        if isinstance(frame, ErrorFrame):
            return self._error(turn, frame, now_s)
        if isinstance(frame, UnknownFrame):
            if turn is None or not frame.is_audio:
                return [Odd(number, frame.why)]
            self._give_up(turn)
            return self._over(turn, Failed(turn.number, None, f"a piece is lost: {frame.why}", is_bad=True))
        if turn is None:
            context_id = one_line(frame.context_id or "", MAX_TRACE_CHARACTERS, self._clean)
            return [Odd(None, f"a frame for the context {context_id!r}, which is not open")]
        heard: list[Event] = []
        if isinstance(frame, AudioReceived) and frame.audio:
            turn.heard = True
            heard.append(Audio(turn.number, frame.audio, frame.trace_id))
        return heard + (self._final(turn, frame.trace_id) if frame.final else [])

    def _begins(self, turn: _Turn, now_s: float) -> bool:
        """Begin an attempt where there is text and a slot for it."""
        if not turn.has_text or now_s < turn.not_before_s or not self._slots.take():
            return False
        turn.attempts += 1
        turn.warned, turn.not_before_s, turn.has_slot = "", -inf, True
        turn.wire_id = f"{turn.number}.{turn.attempts}"
        self._by_wire_id[turn.wire_id] = turn
        return True

    def _final(self, turn: _Turn, trace_id: str | None) -> list[Event]:
        if not turn.ended or turn.has_slot:
            return [Odd(turn.number, "a final frame before the turn was ended")]
        if not turn.heard and speaks("".join(one.text or "" for one in turn.frames)):
            why = f"; the service warned: {turn.warned}" if turn.warned else ""
            words = f"the answer holds no audio{why}"
            return self._over(turn, Failed(turn.number, None, words, trace_id, is_bad=True))
        return self._over(turn, Ended(turn.number, trace_id))

    def _error(self, turn: _Turn | None, frame: ErrorFrame, now_s: float) -> list[Event]:
        code, words = frame.error_code, frame.error
        if turn is None:
            return [Odd(None, f"an error of no open context: {code} {words}")]
        if code == ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED and not turn.heard:
            return self._refused(turn, frame, now_s)
        failed = Failed(turn.number, str(code), words, frame.trace_id)
        if code == ErrorCode.INTERNAL_ERROR and not turn.heard:
            self._give_up(turn)
            return self._tried(turn, failed)
        if frame.fatal or code in {ErrorCode.INTERNAL_ERROR, ErrorCode.INVALID_VOICE}:
            self._give_up(turn)
            return self._over(turn, failed)
        return [Odd(turn.number, f"an error that is not fatal: {code} {words}")]

    def _refused(self, turn: _Turn, frame: ErrorFrame, now_s: float) -> list[Event]:
        turn.refused_since_s = now_s if turn.refused_since_s is None else turn.refused_since_s
        self._give_up(turn)
        if now_s - turn.refused_since_s >= self._patience_s:
            code = ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED
            return self._over(turn, Failed(turn.number, str(code), frame.error, frame.trace_id))
        # A refusal is no failure of the turn.
        turn.not_before_s = now_s + turn.wait_s
        turn.wait_s = min(2 * turn.wait_s, _LONGEST_WAIT_S)
        return self._again(turn, str(ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED))

    def _lost(self, turn: _Turn, code: int | None) -> list[Event]:
        if code == CloseCode.POLICY_VIOLATION:
            return self._over(turn, Failed(turn.number, None, CloseCode.POLICY_VIOLATION.cause))
        if turn.wire_id is None:
            return []
        if turn.heard:
            words = "the connection was lost before all of the audio had come"
            return self._over(turn, Failed(turn.number, None, words))
        self._detach(turn)
        _rewind(turn)
        return self._tried(turn, Failed(turn.number, None, "the connection was lost"))

    def _tried(self, turn: _Turn, failed: Failed) -> list[Event]:
        """Take that an attempt came to nothing: there is another one, unless it was the last."""
        turn.failures += 1
        if turn.has_text and turn.failures >= self._max_attempts:
            return self._over(turn, failed)
        return self._again(turn, failed.code)

    def _again(self, turn: _Turn, code: str | None) -> list[Event]:
        """Have a turn sent again, unless all of its text was cleared: then there is nothing to send."""
        return [Retried(turn.number, code)] if turn.has_text else self._over_if_ended(turn)

    def _over_if_ended(self, turn: _Turn) -> list[Event]:
        return self._over(turn, Ended(turn.number)) if turn.ended else []

    def _give_up(self, turn: _Turn) -> None:
        """Leave an attempt, to be ended on the wire; what it was to say is to be sent from the beginning."""
        if turn.wire_id is not None:
            self._closing.append((turn.wire_id, turn.has_slot))
            self._left.add(turn.wire_id)
            turn.has_slot = False
        self._detach(turn)
        _rewind(turn)

    def _detach(self, turn: _Turn) -> None:
        self._free(turn)
        if turn.wire_id is not None:
            del self._by_wire_id[turn.wire_id]
            turn.wire_id = None

    def _free(self, turn: _Turn) -> None:
        if turn.has_slot:
            turn.has_slot = False
            self._slots.free()

    def _over(self, turn: _Turn, event: Ended | Failed) -> list[Event]:
        self._detach(turn)
        del self._turns[turn.number]
        # What was refused for the number of contexts need not wait any longer.
        for other in self._turns.values():
            other.not_before_s = -inf
        return [event]


def _addressed(frame: ClientFrame, wire_id: str | None) -> ClientFrame:
    return frame.model_copy(update={"context_id": wire_id})


def _rewind(turn: _Turn) -> None:
    """Have all that was sent in an attempt be sent again, without what was cleared."""
    turn.sent = 0
    turn.frames = [one for one in turn.frames if not one.clear]
