"""The protocol rules of WebSocket contexts on the service's side.

Sections 3, 6 and 7.3 to 7.5 of the service document contain the rules.

The module does no I/O and reads no clock. A `Contexts` object has the state of one socket. The caller passes
messages, encoded audio and the time to its methods. The methods return actions. The caller carries out the
actions in order and reports their results::

    receive(message) ─► Send(frame)               send to the client, in this order
                     ─► Generate(generation, ...) call send_audio(...) for each piece, then finish_chunk(...)
                     ─► Finish(turn)              call finish_turn(...) with the last bytes of the encoder
                     ─► Cancel(generation)        stop, because its audio is not needed any more
                     ─► Close(code)               close the socket

A turn is the time of a context from its first frame to its final frame. The document leaves some rules open.
Our rules are:

* `end` frees the slot at once. The remaining audio is still sent, then the final frame.
* The next turn of an id may begin before the final frame. Its audio follows that frame.
* Only one chunk of a turn is generated at a time. So `clear` can drop all other chunks, and contexts take
  turns.
* Buffer settings without `context_id` apply to every context of the socket without settings of its own.
* A frame with only `end` or `clear` does not open a context, nor does one with settings but no `context_id`.
* A fatal error drops all pending text of its id. The next frame with a `voice_config` opens the id again.
  After a frame with `end`, other frames may open the id too.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import chain
from typing import Any

from speechframe.spec.chosen import MAX_GENERATION_REQUESTS_PER_S
from speechframe.spec.codes import CloseCode, ErrorCode, WarningCode
from speechframe.spec.limits import SOCKET_IDLE_S
from speechframe.spec.socket import ClientFrame, ErrorFrame, FinalFrame, VoiceConfig, WarningFrame
from speechframe.wire.chunking import Chunker
from speechframe.wire.frames import make_audio_frame, parse_client_frame
from speechframe.wire.turns import Action, Cancel, Close, Finish, Generate, Send, SlotPool, Turn

_MAX_FAILED_IDS = 1000
"""Largest number of stored ids of failed contexts. The oldest id is dropped first."""
_BUFFER_SETTINGS = ("min_buffer_size", "max_buffer_delay_in_ms", "predictive_chunking")


class Contexts:
    """The state and rules of the contexts of one socket, on the service's side.

    Parameters
    ----------
    slots
        Counter of active contexts. All sockets of a key share one counter.
    now_s
        Current time in seconds, from any clock that never goes back. All other times use the same clock.
    trace_id
        Trace id of the frames of the socket. Frames of a turn append the number of the turn.
    voice_problem
        Function that returns why a voice is not available, or None if it is. It is called for every
        voice_config that names a voice.
    idle_s
        Seconds without traffic after which the socket is closed.

    Examples
    --------
    >>> from speechframe.wire.turns import TurnSlots
    >>> contexts = Contexts(TurnSlots(2), now_s=0.0, trace_id="t")
    >>> message = '{"voice_config": {"voiceId": "nora"}, "text": "Hi.", "end": true}'
    >>> for action in contexts.receive(message, now_s=0.0):
    ...     print(action.text, action.voice_config.voice_id)
    Hi. nora
    """

    def __init__(
        self,
        slots: SlotPool,
        *,
        now_s: float,
        trace_id: str,
        voice_problem: Callable[[VoiceConfig], str | None] = lambda _: None,
        idle_s: float = SOCKET_IDLE_S,
    ) -> None:
        self._slots = slots
        self._trace_id = trace_id
        self._voice_problem = voice_problem
        self._idle_s = idle_s
        self._heard_s = now_s
        self._numbers = 0
        self._settings: dict[str, Any] = {}
        # Unfinished turns of each id, in order. Only the last can receive text. Only the first sends audio.
        self._turns: dict[str | None, deque[Turn]] = {}
        self._failed: OrderedDict[str | None, None] = OrderedDict()
        self._generating: dict[int, Turn] = {}
        self._closed = False

    @property
    def active_contexts(self) -> int:
        """Number of contexts of this socket that hold a slot."""
        return sum(not turns[-1].ended for turns in self._turns.values())

    @property
    def backlog_characters(self) -> int:
        """Number of characters that wait for synthesis. Above a limit, the caller should read no frames."""
        return sum(
            len(turn.chunker.waiting) + turn.queued_characters
            for turn in chain.from_iterable(self._turns.values())
        )

    @property
    def ended_turns(self) -> int:
        """Number of ended turns without their final frame yet. The caller should limit this number too."""
        return sum(map(len, self._turns.values())) - self.active_contexts

    @property
    def due_s(self) -> float | None:
        """Time at which the caller must call `take_due_actions`.

        None if no call is needed, for example after `close`.
        """
        if self._closed:
            return None
        delays = [turns[-1].due_s for turns in self._turns.values() if turns[-1].due_s is not None]
        if not self._is_at_work():
            delays.append(self._heard_s + self._idle_s)
        return min(delays, default=None)

    def receive(self, message: str | bytes, *, now_s: float) -> list[Action]:
        """Process a message of the client, and return the actions. An invalid message closes no socket."""
        if self._closed:
            return []
        self._heard_s = now_s
        parsed = parse_client_frame(message)
        frame = parsed.frame
        if frame is None:
            return [self._make_error(ErrorCode.INVALID_JSON, parsed.error or "", None)]
        key = frame.context_id
        turn = self._get_active_turn(key)
        actions: list[Action] = []
        if turn is None and self._is_opening(frame):
            if not self._slots.take():
                reason = "too many contexts are active; end one, or use its id again for the next turn"
                actions += [self._make_warning(one.code, one.message, key) for one in parsed.warnings]
                actions.append(self._make_error(ErrorCode.ACTIVE_CONTEXT_LIMIT_EXCEEDED, reason, key))
                return actions
            turn = self._open_turn(key)
        actions += [self._make_warning(one.code, one.message, key, turn) for one in parsed.warnings]
        self._store_settings(frame, turn)
        if frame.clear:
            actions += self._clear_turns(key, now_s)
        if turn is not None:
            actions += self._apply_frame(turn, frame, now_s)
        elif frame.end:
            self._failed.pop(key, None)
        return actions + self._enqueue_expired_text(now_s)

    def send_audio(self, generation: int, data: bytes, *, now_s: float) -> list[Action]:
        """Return the actions that send the next encoded bytes of a chunk. The turn has one audio file."""
        turn = self._generating.get(generation)
        if turn is None or not data:
            return []
        self._heard_s = now_s
        return [Send(make_audio_frame(data, **turn.get_frame_fields()))]

    def finish_chunk(self, generation: int, *, now_s: float) -> list[Action]:
        """Record the end of a chunk, and return the actions.

        All audio of the chunk must have been passed to `send_audio` before.
        """
        turn = self._generating.pop(generation, None)
        if turn is None:
            return []
        turn.generation = None
        return self._continue_turns(turn.context_id, now_s)

    def finish_turn(self, turn: int, data: bytes, *, now_s: float) -> list[Action]:
        """Return the actions that send the last bytes of a turn's audio file and its final frame."""
        first = next((turns[0] for turns in self._turns.values() if turns[0].number == turn), None)
        if first is None or not first.finishing:
            return []
        self._heard_s = now_s
        audio: list[Action] = [Send(make_audio_frame(data, **first.get_frame_fields()))] if data else []
        return audio + self._make_final_frame(first) + self._continue_turns(first.context_id, now_s)

    def fail_turn(
        self, turn: int, message: str, *, now_s: float, code: str = ErrorCode.INTERNAL_ERROR
    ) -> list[Action]:
        """End a turn and the later turns of its id with a fatal error, and return the actions."""
        found = next((turns for turns in self._turns.values() if turns[0].number == turn), None)
        if found is None:
            return []
        self._heard_s = now_s
        first, *behind = found
        for one in behind:
            self._end_turn(one, failed=True)
            self._forget_turn(one)
        self._fail_turn(first, code, message)
        return self._continue_turns(first.context_id, now_s)

    def take_due_actions(self, *, now_s: float) -> list[Action]:
        """Return the actions that synthesise text after its buffer delay, or that close an idle socket."""
        actions = self._enqueue_expired_text(now_s)
        if not self._closed and not self._is_at_work() and self._heard_s + self._idle_s <= now_s:
            actions += [*self.close(), Close(CloseCode.NORMAL)]
        return actions

    def close(self) -> list[Action]:
        """Free all slots, drop all turns, and return the actions that cancel their chunks.

        Call this method when the socket is closed, or before it is closed.
        """
        turns = list(chain.from_iterable(self._turns.values()))
        actions: list[Action] = [
            Cancel(turn.generation, turn.number) for turn in turns if turn.generation is not None
        ]
        for turn in turns:
            if not turn.ended:
                self._slots.free()
        self._turns.clear()
        self._failed.clear()
        self._generating.clear()
        self._closed = True
        return actions

    def _is_at_work(self) -> bool:
        return any(turns[0].generation is not None or turns[0].finishing for turns in self._turns.values())

    def _enqueue_expired_text(self, now_s: float) -> list[Action]:
        actions: list[Action] = []
        for turn in [turns[-1] for turns in self._turns.values()]:
            if turn.due_s is not None and turn.due_s <= now_s:
                actions += self._enqueue_chunks(turn, [turn.chunker.take_expired_text()], now_s)
        return actions

    def _get_active_turn(self, key: str | None) -> Turn | None:
        turns = self._turns.get(key)
        return turns[-1] if turns and not turns[-1].ended else None

    def _is_opening(self, frame: ClientFrame) -> bool:
        """Return whether a frame begins a turn. The caller has checked that its id has no active context."""
        if frame.voice_config is not None:
            return True
        if frame.context_id in self._failed:
            return False
        names_settings = frame.context_id is not None and bool(
            frame.model_fields_set.intersection(_BUFFER_SETTINGS)
        )
        return frame.text is not None or names_settings or frame.model_fields_set == {"context_id"}

    def _open_turn(self, key: str | None) -> Turn:
        self._failed.pop(key, None)
        self._numbers += 1
        turn = Turn(self._numbers, key, f"{self._trace_id}-{self._numbers}", Chunker())
        self._turns.setdefault(key, deque()).append(turn)
        turn.apply(self._settings)
        return turn

    def _store_settings(self, frame: ClientFrame, turn: Turn | None) -> None:
        """Store the settings of a frame. Settings of a context override those of the socket."""
        given = {name: getattr(frame, name) for name in _BUFFER_SETTINGS if name in frame.model_fields_set}
        if frame.context_id is None:
            self._settings |= given
            for turns in self._turns.values():
                turns[-1].apply(self._settings)
        elif turn is not None:
            turn.settings |= given
            turn.apply(self._settings)

    def _clear_turns(self, key: str | None, now_s: float) -> list[Action]:
        """Drop text whose synthesis has not begun, also of ended turns of the id."""
        for turn in self._turns.get(key, ()):
            turn.drop()
        return self._continue_turns(key, now_s)

    def _apply_frame(self, turn: Turn, frame: ClientFrame, now_s: float) -> list[Action]:
        """Apply a frame to an active context: first its voice, then its text, then its end."""
        actions: list[Action] = []
        if frame.voice_config is not None:
            # Earlier text is spoken in the voice that was set when the text arrived.
            actions += self._enqueue_chunks(turn, [turn.chunker.flush()], now_s)
            problem = self._voice_problem(frame.voice_config) if frame.voice_config.voice_id else None
            if problem is not None:
                self._fail_turn(turn, ErrorCode.INVALID_VOICE, problem)
                return actions + self._continue_turns(turn.context_id, now_s)
            turn.voice_config = frame.voice_config
            if not frame.voice_config.voice_id:
                message = "voice_config has no voiceId; the default voice is used"
                actions.append(self._make_warning(WarningCode.NO_VOICE_ID, message, turn.context_id, turn))
        if frame.text:
            if turn.voice_config is None and not turn.warned_no_config:
                turn.warned_no_config = True
                message = "text came before a voice_config; the default voice is used"
                code = WarningCode.NO_VOICE_CONFIG
                actions.append(self._make_warning(code, message, turn.context_id, turn))
            actions += self._enqueue_chunks(turn, turn.chunker.add(frame.text), now_s)
        elif turn.chunker.waiting:
            # With a new setting, the waiting text may be long enough for a chunk.
            actions += self._enqueue_chunks(turn, turn.chunker.take_ready_chunks(), now_s)
        if frame.end:
            rest = turn.chunker.flush()
            self._end_turn(turn)
            actions += self._enqueue_chunks(turn, [rest], now_s)
        return actions

    def _enqueue_chunks(self, turn: Turn, chunks: list[str], now_s: float) -> list[Action]:
        """Append chunks to the queue, set the delay of the remaining text, and continue the turn."""
        # Whitespace alone cannot be spoken.
        ready = [(chunk, turn.voice_config) for chunk in chunks if chunk and not chunk.isspace()]
        turn.queue.extend(ready)
        turn.queued_characters += sum(len(chunk) for chunk, _ in ready)
        turn.set_due_time(now_s, anew=any(chunks))
        actions = self._count_request(turn, now_s) if ready else []
        return actions + self._continue_turns(turn.context_id, now_s)

    def _count_request(self, turn: Turn, now_s: float) -> list[Action]:
        """Count a generation request. Warn at most once a second if there are too many."""
        # Count frames and not chunks, because the client can reduce the number of frames.
        turn.requests_s.append(now_s)
        while turn.requests_s[0] <= now_s - 1:
            turn.requests_s.popleft()
        if len(turn.requests_s) <= MAX_GENERATION_REQUESTS_PER_S:
            return []
        turn.requests_s.popleft()
        if turn.warned_rate_s is not None and now_s < turn.warned_rate_s + 1:
            return []
        turn.warned_rate_s = now_s
        message = (
            f"more than {MAX_GENERATION_REQUESTS_PER_S} generation requests a second; "
            "send more text at a time"
        )
        return [self._make_warning(WarningCode.TOO_MANY_GENERATION_REQUESTS, message, turn.context_id, turn)]

    def _continue_turns(self, key: str | None, now_s: float) -> list[Action]:
        """Continue the first turn of an id with its next chunk or its end, then the turns after it."""
        actions: list[Action] = []
        while turns := self._turns.get(key):
            turn = turns[0]
            if turn.failure is not None:
                actions += self._finish_failed_turn(turn, turn.failure)
                continue
            if turn.generation is not None or turn.finishing:
                break
            if turn.queue:
                text, voice_config = turn.queue.popleft()
                turn.queued_characters -= len(text)
                self._numbers += 1
                turn.generation, turn.has_file = self._numbers, True
                self._generating[turn.generation] = turn
                actions.append(Generate(turn.generation, turn.number, key, text, voice_config))
                break
            if not turn.ended:
                break
            if turn.has_file:
                turn.finishing = True
                actions.append(Finish(turn.number))
                break
            self._heard_s = now_s
            actions += self._make_final_frame(turn)
        return actions

    def _make_final_frame(self, turn: Turn) -> list[Action]:
        self._forget_turn(turn)
        return [Send(FinalFrame(**turn.get_frame_fields()))]

    def _fail_turn(self, turn: Turn, code: str, message: str) -> None:
        """End a turn with an error. The error frame is sent after the earlier turns of the id are over."""
        turn.failure = ErrorFrame(error=message, error_code=code, fatal=True, **turn.get_frame_fields())
        turn.drop()
        self._end_turn(turn, failed=True)

    def _finish_failed_turn(self, turn: Turn, frame: ErrorFrame) -> list[Action]:
        actions: list[Action] = [Send(frame)]
        if turn.generation is not None:
            del self._generating[turn.generation]
            actions.append(Cancel(turn.generation, turn.number))
        self._forget_turn(turn)
        return actions

    def _end_turn(self, turn: Turn, *, failed: bool = False) -> None:
        if turn.ended:
            return
        turn.ended = True
        self._slots.free()
        if failed:
            # Frames that the client sent before it received the error must not begin a new turn.
            self._failed[turn.context_id] = None
            if len(self._failed) > _MAX_FAILED_IDS:
                self._failed.popitem(last=False)

    def _forget_turn(self, turn: Turn) -> None:
        turns = self._turns[turn.context_id]
        turns.remove(turn)
        if not turns:
            del self._turns[turn.context_id]

    def _make_warning(
        self, code: WarningCode, message: str, context_id: str | None, turn: Turn | None = None
    ) -> Action:
        trace_id = turn.trace_id if turn is not None else self._trace_id
        about = {"context_id": context_id, "trace_id": trace_id}
        return Send(WarningFrame(warning=message, warning_code=code, **about))

    def _make_error(self, code: ErrorCode, message: str, context_id: str | None) -> Action:
        """Return the action that sends an error which does not end a turn."""
        about = {"context_id": context_id, "trace_id": self._trace_id}
        return Send(ErrorFrame(error=message, error_code=code, fatal=False, **about))
