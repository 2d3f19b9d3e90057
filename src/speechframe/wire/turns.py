"""What a WebSocket's contexts ask to be done, where active ones are counted, and what is known of one."""

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
    """Send a frame to the client; frames are sent in the order of the actions."""

    frame: AudioFrame | FinalFrame | ErrorFrame | WarningFrame


@dataclass(frozen=True, slots=True)
class Generate:
    """Synthesise a chunk of a turn; at most one of a turn is under way.

    Parameters
    ----------
    generation
        Names the chunk in `audio`, `generated` and `failed`; never used twice.
    turn
        Names the turn: a file of audio begins with it and is finished at its `Finish`.
    context_id
        As the client wrote it; None is the default context.
    text
        What is to be spoken, pause markers included.
    voice_config
        How; None is the default voice.
    """

    generation: int
    turn: int
    context_id: str | None
    text: str
    voice_config: VoiceConfig | None


@dataclass(frozen=True, slots=True)
class Finish:
    """All of a turn is synthesised: finish its encoder and call `finished` with what that still gives."""

    turn: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Stop a chunk that is being synthesised; what it still gives is ignored."""

    generation: int
    turn: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket; its contexts are freed already."""

    code: CloseCode


Action = Send | Generate | Finish | Cancel | Close


class SlotPool(Protocol):
    """The active contexts of a key, counted over all of its sockets."""

    def take(self) -> bool:
        """Take a slot, or say that there is none."""

    def free(self) -> None:
        """Give a slot back."""


class Slots:
    """A pool of so many slots.

    Examples
    --------
    >>> slots = Slots(1)
    >>> slots.take(), slots.take(), slots.active
    (True, False, 1)
    """

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.active = 0

    def take(self) -> bool:
        """Take a slot, or say that there is none."""
        if self.active >= self.cap:
            return False
        self.active += 1
        return True

    def free(self) -> None:
        """Give a slot back."""
        self.active -= 1


@dataclass(eq=False, slots=True)
class Turn:
    """A context from its first frame to its final one."""

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
        """Cut text by the socket's settings, and before them by the turn's own."""
        chosen = {**settings, **self.settings}
        self.chunker.min_buffer_size = int(chosen.get("min_buffer_size", BUFFER_SIZE.default or 0))
        self.chunker.mode = PredictiveChunking(chosen.get("predictive_chunking", PredictiveChunking.STRICT))
        self.delay_s = int(chosen.get("max_buffer_delay_in_ms", BUFFER_DELAY_MS.default or 0)) / 1000

    def arm(self, now_s: float, *, anew: bool) -> None:
        """Set when the text that waits has waited longest; `anew` where what waited before is gone."""
        if anew or not self.chunker.waiting:
            self.due_s = None
        if self.chunker.waiting:
            # Even where no wait is wanted, the rest of a pause marker is given its time.
            delay_s = max(self.delay_s, _MARKER_S) if self.chunker.in_marker else self.delay_s
            self.due_s = min(self.due_s if self.due_s is not None else inf, now_s + delay_s)

    def drop(self) -> None:
        """Forget what is not being synthesised."""
        self.chunker.flush()
        self.queue.clear()
        self.queued_characters = 0
        self.due_s = None

    def about(self) -> dict[str, Any]:
        """Return what stands on each of the turn's frames."""
        return {"context_id": self.context_id, "trace_id": self.trace_id}
