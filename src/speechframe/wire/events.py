"""What happens to the turns of a WebSocket, as their user is told."""

from dataclasses import dataclass

from speechframe.spec.codes import WarningCode

__all__ = ["Audio", "Ended", "Event", "Failed", "Odd", "Retried", "Warned"]


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
    """What nothing was heard of is sent again: a turn from its beginning, or from where 1000 closed it."""

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
