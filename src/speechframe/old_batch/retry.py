"""What an error means for its call: one table of decisions, no input or output."""

from dataclasses import dataclass
from enum import Enum

from tenacity import RetryCallState, wait_random_exponential

from speechframe.errors import (
    BadAnswer,
    ConnectionFailed,
    PaymentRequired,
    PermissionDenied,
    RateLimited,
    ServiceError,
    SpeechframeError,
    Unavailable,
)
from speechframe.spec.codes import Status

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 30.0

_backoff = wait_random_exponential(multiplier=FIRST_DELAY_S, max=LONGEST_DELAY_S)


class Verdict(Enum):
    """What becomes of a call after a failed attempt."""

    AGAIN_FIRST = "refused: back to the front of the queue"
    AGAIN_LATER = "failed for now: again after a delay"
    FAIL = "failed for good: the row fails, its neighbours go on"
    UNKNOWN = "sent, no answer: may have been billed"
    STOP = "would fail every row: the run stops, everything is kept"
    UNREACHED = "never reached the service: again, and the run stops when nothing gets through"


class Charge(Enum):
    """What an attempt cost, as far as its answer tells."""

    NONE = "none"
    COMPUTED = "computed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on one failed attempt."""

    verdict: Verdict
    charge: Charge = Charge.NONE
    pauses_lane: bool = False


def decide(error: SpeechframeError, *, repeat_is_free: bool, retry_unknown: bool) -> Decision:
    """Return what `error` means.

    Parameters
    ----------
    error
        What the attempt raised.
    repeat_is_free
        The service honours ``Idempotency-Key``: a repeat bills nothing.
    retry_unknown
        ``on_unknown="retry"``: the caller accepts to pay twice.

    Examples
    --------
    >>> from speechframe.errors import TimedOut
    >>> decide(TimedOut("", sent=True), repeat_is_free=False, retry_unknown=False).verdict.name
    'UNKNOWN'
    >>> decide(TimedOut("", sent=True), repeat_is_free=True, retry_unknown=False).verdict.name
    'AGAIN_LATER'
    """
    again = repeat_is_free or retry_unknown
    unknown = Decision(Verdict.AGAIN_LATER if again else Verdict.UNKNOWN, Charge.UNKNOWN)
    if isinstance(error, ServiceError):
        return unknown if _is_between(error) else _of_status(error)
    if isinstance(error, ConnectionFailed):
        return unknown if error.sent else Decision(Verdict.UNREACHED)
    if isinstance(error, BadAnswer):
        # A 200 was billed; asking again costs again unless the repeat is free.
        return Decision(Verdict.AGAIN_LATER, Charge.COMPUTED)
    return Decision(Verdict.FAIL)


def _is_between(error: ServiceError) -> bool:
    # A gateway does not know what the service behind it did with the call.
    return Status.is_gateways(error.status)


def _of_status(error: ServiceError) -> Decision:
    if isinstance(error, (PaymentRequired, PermissionDenied)):
        return Decision(Verdict.STOP)
    if isinstance(error, RateLimited):
        return Decision(Verdict.AGAIN_FIRST)
    if isinstance(error, Unavailable):
        return Decision(Verdict.AGAIN_LATER, pauses_lane=True)
    return Decision(Verdict.AGAIN_LATER if error.retryable else Verdict.FAIL)


def delay_s(attempt: int, *, told_s: float | None = None) -> float:
    """Return seconds to wait before the next attempt.

    Jittered exponential growth from :data:`FIRST_DELAY_S` to
    :data:`LONGEST_DELAY_S`, and never less than the service asked for.

    Parameters
    ----------
    attempt
        Attempts made so far, from 1.
    told_s
        ``Retry-After`` in seconds, if the service sent one.
    """
    # tenacity's wait strategies take the state of a retried call; only its attempt number counts here.
    state = RetryCallState(retry_object=None, fn=None, args=(), kwargs={})  # type: ignore[arg-type]
    state.attempt_number = attempt
    return max(_backoff(state), told_s or 0.0)
