"""What became of one call: a value, never an exception that leaves its row."""

from dataclasses import dataclass
from typing import Any

from speechframe.errors import SpeechframeError
from speechframe.old_store.schema import FINISHED, CallStatus

# As plain strings: to read the value of an enum is a call of Python, and every row is compared with some.
PENDING = CallStatus.PENDING.value
DONE = CallStatus.DONE.value
CACHED = CallStatus.CACHED.value
SUSPECT = CallStatus.SUSPECT.value
FAILED = CallStatus.FAILED.value
INVALID = CallStatus.INVALID.value
CHARGED_UNKNOWN = CallStatus.CHARGED_UNKNOWN.value

STATES = (PENDING, DONE, CACHED, SUSPECT, FAILED, INVALID, CHARGED_UNKNOWN)
"""Row states, in the order a summary lists them."""

HEARD = FINISHED
"""States of a row that has audio."""

SENT = frozenset({DONE, SUSPECT, CHARGED_UNKNOWN})
"""States of a row whose call was surely sent: the ledger has an attempt of it."""

LOST = frozenset({FAILED, CHARGED_UNKNOWN})
"""States of a row whose call was made and brought nothing."""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is on disk.

    Attributes
    ----------
    request_key, row_id
        The call, and the first row of the table that has it.
    attempts
        Attempts that counted.
    audio_seconds, credits_millis
        What came and what it cost.
    status
        ``done``, ``cached`` or ``suspect``.
    reason
        Why it is suspect.
    """

    request_key: str
    row_id: str
    attempts: int
    audio_seconds: float
    credits_millis: int
    status: str = DONE
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Every allowed attempt failed, or the request was refused for good."""

    request_key: str
    row_id: str
    attempts: int
    error: SpeechframeError
    status: str = FAILED


@dataclass(frozen=True, slots=True)
class ChargedUnknown:
    """Sent, no answer: it may have been billed, so it is not silently sent again."""

    request_key: str
    row_id: str
    attempts: int
    error: SpeechframeError
    credits_millis: int
    status: str = CHARGED_UNKNOWN


Outcome = Done | Failed | ChargedUnknown


def error_fields(error: SpeechframeError) -> dict[str, Any]:
    """Return ``error_code``, ``error_message``, ``error_status`` and ``trace_id`` of `error`.

    Examples
    --------
    >>> from speechframe.errors import TimedOut
    >>> error_fields(TimedOut("no answer", sent=True))["error_code"]
    'TimedOut'
    """
    return {
        "error_code": getattr(error, "code", None) or type(error).__name__,
        "error_message": getattr(error, "message", None) or str(error),
        "error_status": getattr(error, "status", None),
        "trace_id": getattr(error, "trace_id", None),
    }
