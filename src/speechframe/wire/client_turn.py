"""What a client knows of a turn over a WebSocket; what follows from it is in ``wire.client_contexts``."""

from dataclasses import dataclass, field
from itertools import islice
from math import inf

from speechframe.spec.socket import ClientFrame
from speechframe.spec.texts import speaks

__all__ = ["ClientTurn"]

_FIRST_WAIT_S = 0.1


@dataclass(eq=False, slots=True)
class ClientTurn:
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
    """Whether anything of it was heard."""
    attempt_heard: bool = False
    """Whether anything of this attempt was heard: then nothing of it is ever sent again."""
    is_owed: bool = False
    """Whether text was sent since the last audio, or since it was said that some cannot be spoken."""
    rests: bool = False
    """Whether what is to be sent again waits for more: there is nothing in it that the service spoke."""
    spoke_s: float = -inf
    """When the last text to pronounce was sent in this attempt, unless it was cleared."""
    warned: str = ""
    """The last warning of this attempt."""
    not_before_s: float = -inf
    refused_since_s: float | None = None
    wait_s: float = _FIRST_WAIT_S

    @property
    def has_text(self) -> bool:
        """Whether there is text to be sent."""
        # Asked at every piece: what was sent is not gone through again.
        waiting = range(self.sent, len(self.frames))
        return not self.rests and any(self.frames[index].text is not None for index in waiting)

    @property
    def end_is_sent(self) -> bool:
        """Whether the service was told that there is no more text."""
        return self.ended and self.sent == len(self.frames)

    @property
    def is_to_be_heard(self) -> bool:
        """Whether there is text to pronounce of which nothing was heard."""
        return not self.heard and self.speaks(0)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be heard of what was sent, nor is there anything else to be pronounced."""
        return not (self.ended or self.is_owed or self.speaks(self.sent))

    def speaks(self, start: int) -> bool:
        """Return whether there is text to pronounce in its frames, from one of them on."""
        return speaks("".join(one.text or "" for one in islice(self.frames, start, None)))

    def next_frame(self, now_s: float) -> ClientFrame:
        """Return the next frame to be sent; it counts as sent."""
        frame = self.frames[self.sent]
        self.sent += 1
        if self.attempt_heard and self.sent == len(self.frames):
            self._forget_sent()
        if frame.clear:
            self.is_owed, self.spoke_s = False, -inf
        elif speaks(frame.text or ""):
            self.is_owed, self.spoke_s = True, now_s
        return frame

    def begin(self) -> None:
        """Begin an attempt, with what is to be sent."""
        self._forget_sent()
        self.attempts += 1
        self.attempt_heard = self.is_owed = False
        self.warned, self.spoke_s = "", -inf
        self.not_before_s = -inf

    def hear(self) -> None:
        """Take that there is audio: of what comes later, each failure and refusal is the first."""
        self.is_owed = False
        if not self.attempt_heard:
            self.heard = self.attempt_heard = True
            self.failures, self.refused_since_s, self.wait_s = 0, None, _FIRST_WAIT_S
            self._forget_sent()

    def rewind(self) -> None:
        """Have all that was sent in this attempt be sent again, without what was cleared."""
        self.sent = 0
        self.frames = [one for one in self.frames if not one.clear]

    def _forget_sent(self) -> None:
        self.frames, self.sent = self.frames[self.sent :], 0
