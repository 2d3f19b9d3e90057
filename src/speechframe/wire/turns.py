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

_MARKER_S = (BUFFER_DELAY_MS.default or 0) / 1000


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame to the client, in the order of the actions."""

    frame: AudioFrame | FinalFrame | ErrorFrame | WarningFrame


@dataclass(frozen=True, slots=True)
class Generate:
    """Synthesise a chunk of a turn. A turn has at most one chunk in synthesis.

    Parameters
    ----------
    generation
        Number of the chunk, for calls of `audio` and `generated`. It is never used twice.
    turn
        Number of the turn. Each turn has one audio file, which its `Finish` completes.
    context_id
        Context id as the client wrote it. None is the default context.
    text
        Text to speak, with its pause markers.
    voice_config
        Voice and its settings. None is the default voice.
    """

    generation: int
    turn: int
    context_id: str | None
    text: str
    voice_config: VoiceConfig | None


@dataclass(frozen=True, slots=True)
class Finish:
    """Finish the encoder of a turn after its last chunk, and call `finished` with the last bytes."""

    turn: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop the synthesis of a chunk. Audio that still arrives is ignored."""

    generation: int
    turn: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket. Its slots are free already."""

    code: CloseCode


Action = Send | Generate | Finish | Cancel | Close


class SlotPool(Protocol):
    """Counter of the active contexts of a key, over all of its sockets."""

    def take(self) -> bool:
        """Take a slot. Return False if none is free."""

    def free(self) -> None:
        """Return a slot to the pool."""


class TurnSlots:
    """A pool with a fixed number of slots.

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
    """The state of a context from its first frame to its final frame."""

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
        """Apply the settings of the socket. The turn's own settings override them."""
        chosen = {**settings, **self.settings}
        self.chunker.min_buffer_size = int(chosen.get("min_buffer_size", BUFFER_SIZE.default or 0))
        self.chunker.mode = PredictiveChunking(chosen.get("predictive_chunking", PredictiveChunking.STRICT))
        self.delay_s = int(chosen.get("max_buffer_delay_in_ms", BUFFER_DELAY_MS.default or 0)) / 1000

    def arm(self, now_s: float, *, anew: bool) -> None:
        """Set the time when waiting text must be spoken. `anew` restarts the delay."""
        if anew or not self.chunker.waiting:
            self.due_s = None
        if self.chunker.waiting:
            # Wait for the rest of a pause marker even if the client set no delay.
            delay_s = max(self.delay_s, _MARKER_S) if self.chunker.in_marker else self.delay_s
            self.due_s = min(self.due_s if self.due_s is not None else inf, now_s + delay_s)

    def drop(self) -> None:
        """Drop all text that is not being synthesised yet."""
        self.chunker.flush()
        self.queue.clear()
        self.queued_characters = 0
        self.due_s = None

    def about(self) -> dict[str, Any]:
        """Return the fields that every frame of the turn contains."""
        return {"context_id": self.context_id, "trace_id": self.trace_id}
