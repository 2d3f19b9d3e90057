"""Actions of WebSocket contexts, the counter of active contexts, and the state of one turn."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from speechframe.spec.codes import CloseCode
from speechframe.spec.limits import BUFFER_DELAY_MS, BUFFER_SIZE
from speechframe.spec.socket import (
    AudioFrame,
    ErrorFrame,
    FinalFrame,
    PredictiveChunking,
    VoiceConfig,
    WarningFrame,
)
from speechframe.wire.chunking import Chunker

_MIN_MARKER_WAIT_S = (BUFFER_DELAY_MS.default or 0) / 1000
"""Least wait in seconds for the rest of an unfinished pause marker."""


@dataclass(frozen=True, slots=True)
class Send:
    """Action: send a frame to the client."""

    frame: AudioFrame | FinalFrame | ErrorFrame | WarningFrame


@dataclass(frozen=True, slots=True)
class Generate:
    """Action: synthesise a chunk of text. A turn has at most one chunk in synthesis.

    Parameters
    ----------
    generation
        Number of the chunk, for calls of `Contexts.send_audio` and `Contexts.finish_chunk`. It is never used
        twice.
    turn
        Number of the turn. All chunks of a turn are one audio file, which ends with a `Finish`.
    context_id
        Context id of the client. None is the default context.
    text
        Text to speak, with its pause markers.
    voice_config
        Voice and its settings. None is the default voice of the service.
    """

    generation: int
    turn: int
    context_id: str | None
    text: str
    voice_config: VoiceConfig | None


@dataclass(frozen=True, slots=True)
class Finish:
    """Action: finish the encoder of a turn, and call `Contexts.finish_turn` with its last bytes."""

    turn: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Action: stop the synthesis of a chunk. Further audio of the chunk is ignored."""

    generation: int
    turn: int


@dataclass(frozen=True, slots=True)
class Close:
    """Action: close the socket. Its slots are already free."""

    code: CloseCode


Action = Send | Generate | Finish | Cancel | Close


class SlotPool(Protocol):
    """Slots for the active contexts of a key. All sockets of the key share them."""

    def take(self) -> bool:
        """Take a slot. Return False if none is free."""

    def free(self) -> None:
        """Return a slot to the pool."""


class TurnSlots:
    """A slot pool with a fixed number of slots.

    Examples
    --------
    >>> slots = TurnSlots(1)
    >>> slots.take(), slots.take(), slots.active
    (True, False, 1)
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.active = 0

    def take(self) -> bool:
        """Take a slot. Return False if none is free."""
        if self.active >= self.cap:
            return False
        self.active += 1
        return True

    def free(self) -> None:
        """Return a slot to the pool."""
        self.active -= 1


@dataclass(eq=False, slots=True)
class Turn:
    """The state of a turn, which is the time of a context from its first frame to its final frame.

    Attributes
    ----------
    number : int
        Number of the turn on its socket.
    settings : dict
        Buffer settings of the turn, which override those of the socket.
    queue : deque
        Chunks that wait for synthesis, each with its voice.
    queued_characters : int
        Number of characters in `queue`.
    generation : int or None
        Number of the chunk in synthesis.
    has_file : bool
        Whether the synthesis of a chunk was begun, so that there is an audio file.
    ended : bool
        Whether the turn has no slot any more and gets no more text.
    finishing : bool
        Whether a `Finish` was returned.
    due_s : float or None
        Time at which the text in `chunker` must be synthesised.
    delay_s : float
        Longest wait of text for more text, in seconds.
    warned_no_config : bool
        Whether the client was warned about text without a voice_config.
    requests_s : deque of float
        Times of the generation requests of the last second.
    warned_rate_s : float or None
        Time of the last warning about too many generation requests.
    failure : ErrorFrame or None
        Fatal error that will be sent after the earlier turns of the id.
    """

    number: int
    context_id: str | None
    trace_id: str
    chunker: Chunker
    settings: dict[str, Any] = field(default_factory=dict)
    voice_config: VoiceConfig | None = None
    queue: deque[tuple[str, VoiceConfig | None]] = field(default_factory=deque)
    queued_characters: int = 0
    generation: int | None = None
    has_file: bool = False
    ended: bool = False
    finishing: bool = False
    due_s: float | None = None
    delay_s: float = 0.0
    warned_no_config: bool = False
    requests_s: deque[float] = field(default_factory=deque)
    warned_rate_s: float | None = None
    failure: ErrorFrame | None = None

    def apply(self, settings: Mapping[str, Any]) -> None:
        """Use the settings of the socket, except those that the turn's own settings override."""
        chosen = {**settings, **self.settings}
        self.chunker.min_buffer_size = int(chosen.get("min_buffer_size", BUFFER_SIZE.default or 0))
        self.chunker.mode = PredictiveChunking(chosen.get("predictive_chunking", PredictiveChunking.STRICT))
        self.delay_s = int(chosen.get("max_buffer_delay_in_ms", BUFFER_DELAY_MS.default or 0)) / 1000

    def set_due_time(self, now_s: float, *, anew: bool) -> None:
        """Set the time at which waiting text must be synthesised. If `anew`, the delay starts again."""
        if anew or not self.chunker.waiting:
            self.due_s = None
        if self.chunker.waiting:
            # Wait for the rest of a pause marker even if the client set no delay.
            delay_s = max(self.delay_s, _MIN_MARKER_WAIT_S) if self.chunker.is_in_marker else self.delay_s
            self.due_s = min(self.due_s if self.due_s is not None else inf, now_s + delay_s)

    def drop(self) -> None:
        """Drop all text whose synthesis has not begun."""
        self.chunker.flush()
        self.queue.clear()
        self.queued_characters = 0
        self.due_s = None

    def get_frame_fields(self) -> dict[str, Any]:
        """Return the fields that every frame of the turn contains."""
        return {"context_id": self.context_id, "trace_id": self.trace_id}
