"""The rules of WebSocket contexts on the client's side, without I/O and clocks.

Sections 3, 6 and 7.3 to 7.5 of the service document contain the rules.

`ClientContexts` has the state of one socket, also between a lost connection and the next. A user works with
turns. A turn is a text in one voice with its audio. The service receives each turn as an attempt, which is a
context with its own id. A turn may need several attempts, and the ids separate their messages. The rules
depend on codes and never on the text of messages:

* The number of active contexts is at most the number of slots. Other turns wait, and begin in their order.
* If the service refuses a turn because too many contexts are active, the turn waits until another turn ends,
  or for some seconds. Then it is sent again.
* If a turn fails with INTERNAL_ERROR or loses its connection, it is sent again from its beginning. If some
  audio has arrived before, the turn fails instead, because users must not get the same audio twice.
* A turn fails if a piece of its audio cannot be read, or if it has text to speak and ends without audio.
* The client ends every attempt with an `end`, also if the attempt failed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from speechframe.spec.chosen import MAX_FRAME_BYTES
from speechframe.spec.codes import CloseCode, ErrorCode, WarningCode
from speechframe.spec.socket import ClientFrame, ErrorFrame, FinalFrame, VoiceConfig, WarningFrame
from speechframe.spec.texts import has_speech
from speechframe.wire.answers import MAX_TRACE_CHARACTERS, SecretMasker, shorten_to_line
from speechframe.wire.frames import ReceivedAudio, ServerFrame, UnknownFrame, parse_server_frame
from speechframe.wire.turns import SlotPool

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 5.0
"""First and longest wait of a turn after a refusal. The wait doubles with each refusal."""
_MAX_FRAME_CHARACTERS = MAX_FRAME_BYTES // 8
"""Largest number of characters of text in a frame. A character takes at most six bytes in JSON."""
_CLEAR_FRAME = ClientFrame.model_validate({"clear": True})
_END_FRAME = ClientFrame.model_validate({"end": True})


@dataclass(frozen=True, slots=True)
class TurnAudio:
    """A piece of audio of a turn. Audio in WAV has a header only if it begins with RIFF."""

    turn: int
    audio: bytes
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """All audio of a turn has arrived."""

    turn: int
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class TurnFailed:
    """A turn has failed and gets no more audio.

    `code` is the error code of the service, or empty if the error had no code. It is None if the connection
    was lost, or if the answer is unusable. `is_bad` is True only for an unusable answer.
    """

    turn: int
    code: str | None
    message: str
    trace_id: str | None = None
    is_bad: bool = False


@dataclass(frozen=True, slots=True)
class TurnRetried:
    """A turn will be sent again from its beginning. None of its audio has arrived yet."""

    turn: int
    code: str | None


@dataclass(frozen=True, slots=True)
class WarningReceived:
    """The service sent a warning. `turn` is None if the warning belongs to no turn."""

    turn: int | None
    code: WarningCode | str
    message: str


@dataclass(frozen=True, slots=True)
class UnexpectedMessage:
    """The service sent an unknown message, or a message for no open turn. The caller should only log it."""

    turn: int | None
    message: str


Event = TurnAudio | TurnEnded | TurnFailed | TurnRetried | WarningReceived | UnexpectedMessage


@dataclass(eq=False, slots=True)
class _Turn:
    """The state of a turn. `sent` is the number of `frames` that were sent in this attempt."""

    number: int
    opening: ClientFrame
    frames: list[ClientFrame] = field(default_factory=list)
    """Unsent frames, and sent frames that another attempt would send again. They have no context id."""
    sent: int = 0
    wire_id: str | None = None
    attempts: int = 0
    failures: int = 0
    has_slot: bool = False
    ended: bool = False
    has_audio: bool = False
    """Whether some audio has arrived. Such a turn is never sent again."""
    warned: str = ""
    """Last warning of this attempt."""
    not_before_s: float = -inf
    refused_since_s: float | None = None
    wait_s: float = _FIRST_WAIT_S

    @property
    def has_text(self) -> bool:
        """Whether there is unsent text."""
        # Look only at unsent frames, because this property is read for every piece of audio.
        return any(self.frames[index].text is not None for index in range(self.sent, len(self.frames)))

    def take_next_frame(self) -> ClientFrame:
        """Return the next frame and count it as sent."""
        frame = self.frames[self.sent]
        self.sent += 1
        if self.has_audio and self.sent == len(self.frames):
            self.frames, self.sent = [], 0
        return frame


class ClientContexts:
    """The state and rules of the turns of one socket, on the client's side.

    Parameters
    ----------
    slots
        Counter of active contexts. All sockets of a key share one counter.
    max_attempts
        Number of failed attempts after which a turn fails. Refusals of a full service do not count.
    patience_s
        Seconds after the first refusal of a turn. A refusal after this time fails the turn.
    clean
        Function that masks secrets in messages of the service.

    Examples
    --------
    >>> from speechframe.wire.turns import TurnSlots
    >>> contexts = ClientContexts(TurnSlots(1))
    >>> turn = contexts.open(VoiceConfig(voice_id="nora"))
    >>> contexts.send(turn, "Hello.")
    >>> contexts.end(turn)
    []
    >>> contexts.needs_connection
    True
    >>> contexts.record_connection()
    >>> [frame.context_id for frame in contexts.take_frames(now_s=0.0)]
    ['1.1', '1.1', '1.1']
    """

    def __init__(
        self, slots: SlotPool, *, max_attempts: int = 3, patience_s: float = 60.0, clean: SecretMasker = str
    ) -> None:
        self._slots = slots
        self._clean = clean
        self._max_attempts = max_attempts
        self._patience_s = patience_s
        self._numbers = 0
        self._turns: dict[int, _Turn] = {}
        self._by_wire_id: dict[str, _Turn] = {}
        # Ids of abandoned attempts whose end was not sent yet, and whether each of them still holds a slot.
        self._closing: list[tuple[str, bool]] = []
        # Ids of abandoned attempts for which messages may still arrive on this connection.
        self._abandoned: set[str] = set()
        self._connected = False

    @property
    def needs_connection(self) -> bool:
        """Whether there is text to send but no connection."""
        return not self._connected and any(turn.has_text for turn in self._turns.values())

    @property
    def open_turns(self) -> tuple[int, ...]:
        """Numbers of the turns that have not ended."""
        return tuple(self._turns)

    def open(self, voice_config: VoiceConfig, settings: Mapping[str, Any] | None = None) -> int:
        """Begin a turn and return its number. Nothing is sent before the turn has text.

        Parameters
        ----------
        voice_config
            Voice of the turn.
        settings
            Optional values of min_buffer_size, max_buffer_delay_in_ms and predictive_chunking.
        """
        self._numbers += 1
        opening = ClientFrame.model_validate({"voice_config": voice_config, **(settings or {})})
        self._turns[self._numbers] = _Turn(self._numbers, opening)
        return self._numbers

    def send(self, turn: int, text: str) -> None:
        """Add text to a turn. If the turn has ended, the text is dropped, as the service would drop it.

        Raises
        ------
        ValidationError
            The text cannot be sent as JSON. Such a frame could harm the other turns of the socket.
        """
        found = self._turns.get(turn)
        if found is not None and not found.ended and text:
            # Send a long text in several frames, because the service cuts text independently of frames.
            pieces = (
                text[at : at + _MAX_FRAME_CHARACTERS] for at in range(0, len(text), _MAX_FRAME_CHARACTERS)
            )
            found.frames += [ClientFrame.model_validate({"text": piece}) for piece in pieces]

    def clear(self, turn: int) -> list[Event]:
        """Drop the text of a turn whose synthesis has not begun, and return the events."""
        found = self._turns.get(turn)
        if found is None:
            return []
        ending = [_END_FRAME] if found.ended else []
        # The service drops the text that it still holds. Keep the end of a turn that was ended.
        found.frames = ([_CLEAR_FRAME] if found.wire_id else []) + ending
        found.sent = 0
        return [] if found.wire_id else self._finish_if_ended(found)

    def end(self, turn: int) -> list[Event]:
        """Mark the end of the text of a turn, and return the events."""
        found = self._turns.get(turn)
        if found is None or found.ended:
            return []
        found.ended = True
        if found.wire_id is None and not found.has_text:
            # The service does not have this turn, so there is nothing to wait for.
            return self._finish(found, TurnEnded(turn))
        found.frames.append(_END_FRAME)
        return []

    def abandon_turn(self, turn: int) -> None:
        """Abandon a turn. If an attempt of it was begun, the client clears and ends its context."""
        found = self._turns.get(turn)
        if found is not None:
            self._give_up(found)
            del self._turns[turn]

    def is_begun(self, turn: int) -> bool:
        """Return whether an attempt was begun. Before, the turn waits for text, a slot or a connection."""
        found = self._turns.get(turn)
        return found is not None and found.wire_id is not None

    def record_connection(self) -> None:
        """Record that the socket is connected."""
        self._connected = True

    def record_disconnection(self, code: int | None) -> list[Event]:
        """Record that the connection is closed, and return the events. `code` is the close code, if any."""
        self._connected = False
        for _, has_slot in self._closing:
            if has_slot:
                self._slots.free()
        self._closing.clear()
        self._abandoned.clear()
        events: list[Event] = []
        for turn in list(self._turns.values()):
            events += self._handle_lost_connection(turn, code)
        return events

    def take_frames(self, *, now_s: float) -> Iterator[ClientFrame]:
        """Yield the frames to send now, in order. A yielded frame counts as sent.

        Other methods may be called between two frames. If a turn is abandoned then, its frames are not sent.
        """
        while self._connected and self._closing:
            wire_id, has_slot = self._closing.pop(0)
            if has_slot:
                self._slots.free()
            yield _set_context_id(_CLEAR_FRAME, wire_id)
            yield _set_context_id(_END_FRAME, wire_id)
        for number in list(self._turns):
            turn = self._turns.get(number)
            if turn is None or not self._connected:
                continue
            if turn.wire_id is None and self._begin_attempt(turn, now_s):
                yield _set_context_id(turn.opening, turn.wire_id)
            while turn.wire_id is not None and turn.sent < len(turn.frames):
                frame = turn.take_next_frame()
                if frame.end:
                    self._free_slot(turn)
                yield _set_context_id(frame, turn.wire_id)

    def receive(self, message: str | bytes, *, now_s: float) -> list[Event]:
        """Process a message of the service, and return the events."""
        frame = parse_server_frame(message, self._clean)
        notice = frame.notice if isinstance(frame, ReceivedAudio) else None
        # First process an error or warning in the frame. If it ends the turn, the audio is ignored.
        events = self._process_frame(notice, now_s) if notice is not None else []
        return events + self._process_frame(frame, now_s)

    def _process_frame(self, frame: ServerFrame, now_s: float) -> list[Event]:
        if frame.context_id in self._abandoned:
            is_fatal = isinstance(frame, ErrorFrame) and frame.fatal
            if is_fatal or (isinstance(frame, FinalFrame | ReceivedAudio) and frame.final):
                self._abandoned.discard(frame.context_id)
            return []
        turn = self._by_wire_id.get(frame.context_id or "")
        number = turn.number if turn is not None else None
        if isinstance(frame, WarningFrame):
            if turn is not None:
                turn.warned = ": ".join(filter(None, (frame.warning_code, frame.warning)))
            return [WarningReceived(number, frame.warning_code, frame.warning)]
        if isinstance(frame, ErrorFrame):
            return self._process_error(turn, frame, now_s)
        if isinstance(frame, UnknownFrame):
            if turn is None or not frame.is_audio:
                return [UnexpectedMessage(number, frame.reason)]
            self._give_up(turn)
            return self._finish(
                turn, TurnFailed(turn.number, None, f"a piece is lost: {frame.reason}", is_bad=True)
            )
        if turn is None:
            context_id = shorten_to_line(frame.context_id or "", MAX_TRACE_CHARACTERS, self._clean)
            return [UnexpectedMessage(None, f"a frame for the context {context_id!r}, which is not open")]
        events: list[Event] = []
        if isinstance(frame, ReceivedAudio) and frame.audio:
            turn.has_audio = True
            events.append(TurnAudio(turn.number, frame.audio, frame.trace_id))
        return events + (self._process_final_frame(turn, frame.trace_id) if frame.final else [])

    def _begin_attempt(self, turn: _Turn, now_s: float) -> bool:
        """Begin an attempt if there is text, no wait, and a free slot. Return whether it began."""
        if not turn.has_text or now_s < turn.not_before_s or not self._slots.take():
            return False
        turn.attempts += 1
        turn.warned, turn.not_before_s, turn.has_slot = "", -inf, True
        turn.wire_id = f"{turn.number}.{turn.attempts}"
        self._by_wire_id[turn.wire_id] = turn
        return True

    def _process_final_frame(self, turn: _Turn, trace_id: str | None) -> list[Event]:
        if not turn.ended or turn.has_slot:
            return [UnexpectedMessage(turn.number, "a final frame before the turn was ended")]
        if not turn.has_audio and has_speech("".join(one.text or "" for one in turn.frames)):
            why = f"; the service warned: {turn.warned}" if turn.warned else ""
            message = f"the answer holds no audio{why}"
            return self._finish(turn, TurnFailed(turn.number, None, message, trace_id, is_bad=True))
        return self._finish(turn, TurnEnded(turn.number, trace_id))

    def _process_error(self, turn: _Turn | None, frame: ErrorFrame, now_s: float) -> list[Event]:
        code, message = frame.error_code, frame.error
        if turn is None:
            return [UnexpectedMessage(None, f"an error of no open context: {code} {message}")]
        if code == ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED and not turn.has_audio:
            return self._wait_after_refusal(turn, frame, now_s)
        failed = TurnFailed(turn.number, str(code), message, frame.trace_id)
        if code == ErrorCode.INTERNAL_ERROR and not turn.has_audio:
            self._give_up(turn)
            return self._handle_failure(turn, failed)
        if frame.fatal or code in {ErrorCode.INTERNAL_ERROR, ErrorCode.INVALID_VOICE}:
            self._give_up(turn)
            return self._finish(turn, failed)
        return [UnexpectedMessage(turn.number, f"an error that is not fatal: {code} {message}")]

    def _wait_after_refusal(self, turn: _Turn, frame: ErrorFrame, now_s: float) -> list[Event]:
        turn.refused_since_s = now_s if turn.refused_since_s is None else turn.refused_since_s
        self._give_up(turn)
        if now_s - turn.refused_since_s >= self._patience_s:
            code = ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED
            return self._finish(turn, TurnFailed(turn.number, str(code), frame.error, frame.trace_id))
        # A refusal does not count as a failure of the turn.
        turn.not_before_s = now_s + turn.wait_s
        turn.wait_s = min(2 * turn.wait_s, _LONGEST_WAIT_S)
        return self._send_again(turn, str(ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED))

    def _handle_lost_connection(self, turn: _Turn, code: int | None) -> list[Event]:
        if code == CloseCode.POLICY_VIOLATION:
            return self._finish(turn, TurnFailed(turn.number, None, CloseCode.POLICY_VIOLATION.cause))
        if turn.wire_id is None:
            return []
        if turn.has_audio:
            message = "the connection was lost before all of the audio had come"
            return self._finish(turn, TurnFailed(turn.number, None, message))
        self._detach_attempt(turn)
        _mark_unsent(turn)
        return self._handle_failure(turn, TurnFailed(turn.number, None, "the connection was lost"))

    def _handle_failure(self, turn: _Turn, failed: TurnFailed) -> list[Event]:
        """Count a failed attempt. Send the turn again, unless this was the last allowed attempt."""
        turn.failures += 1
        if turn.has_text and turn.failures >= self._max_attempts:
            return self._finish(turn, failed)
        return self._send_again(turn, failed.code)

    def _send_again(self, turn: _Turn, code: str | None) -> list[Event]:
        """Announce that a turn is sent again. If all text was cleared, only finish a turn that was ended."""
        return [TurnRetried(turn.number, code)] if turn.has_text else self._finish_if_ended(turn)

    def _finish_if_ended(self, turn: _Turn) -> list[Event]:
        return self._finish(turn, TurnEnded(turn.number)) if turn.ended else []

    def _give_up(self, turn: _Turn) -> None:
        """Abandon an attempt. Its context will be ended, and the next attempt starts from the beginning."""
        if turn.wire_id is not None:
            self._closing.append((turn.wire_id, turn.has_slot))
            self._abandoned.add(turn.wire_id)
            turn.has_slot = False
        self._detach_attempt(turn)
        _mark_unsent(turn)

    def _detach_attempt(self, turn: _Turn) -> None:
        self._free_slot(turn)
        if turn.wire_id is not None:
            del self._by_wire_id[turn.wire_id]
            turn.wire_id = None

    def _free_slot(self, turn: _Turn) -> None:
        if turn.has_slot:
            turn.has_slot = False
            self._slots.free()

    def _finish(self, turn: _Turn, event: TurnEnded | TurnFailed) -> list[Event]:
        self._detach_attempt(turn)
        del self._turns[turn.number]
        # A slot may be free now, so end the wait of refused turns.
        for other in self._turns.values():
            other.not_before_s = -inf
        return [event]


def _set_context_id(frame: ClientFrame, wire_id: str | None) -> ClientFrame:
    return frame.model_copy(update={"context_id": wire_id})


def _mark_unsent(turn: _Turn) -> None:
    """Mark all frames of a turn as unsent, and remove its clears."""
    turn.sent = 0
    turn.frames = [one for one in turn.frames if not one.clear]
