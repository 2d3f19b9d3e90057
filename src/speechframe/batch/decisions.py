"""What becomes of a call after an attempt that failed: one table, read from the top."""

from dataclasses import dataclass
from enum import Enum

from speechframe import errors
from speechframe.errors import ConnectionFailed, ServiceError, SpeechframeError
from speechframe.store.schema import StopReason


class Verdict(Enum):
    """What becomes of a call."""

    NOW = "refused by a cap: to the front of the queue"
    LATER = "failed for now, and surely not billed: again after a delay"
    FAIL = "refused for good: its row fails, the others go on"
    LOST = "sent without an answer: it may have been billed"
    UNUSABLE = "billed, and its answer is of no use"
    STOP = "would fail every row: the run stops and keeps what it has"


VERDICTS: tuple[tuple[type[SpeechframeError], Verdict], ...] = (
    (errors.RateLimited, Verdict.NOW),
    (errors.RequestTimeout, Verdict.LATER),
    (errors.ServerError, Verdict.LATER),
    (errors.Unavailable, Verdict.LATER),
    (errors.PaymentRequired, Verdict.STOP),
    (errors.PermissionDenied, Verdict.STOP),
    (errors.ServiceError, Verdict.FAIL),
    (errors.BadAnswer, Verdict.UNUSABLE),
    (errors.SpeechframeError, Verdict.FAIL),
)

GATEWAYS = frozenset({502, 504, 520, 522, 524})
"""Whoever answers with one of these does not know what the service behind it did."""

BACKOFF_S, LONGEST_BACKOFF_S = 0.25, 30.0


def verdict_of(error: SpeechframeError) -> Verdict:
    """Return what becomes of a call whose attempt ended with `error`.

    Examples
    --------
    >>> verdict_of(errors.service_error("busy", status=503)).name
    'LATER'
    >>> verdict_of(ConnectionFailed("reset", sent=True)).name
    'LOST'
    """
    if isinstance(error, ConnectionFailed):
        return Verdict.LOST if error.sent else Verdict.LATER
    if isinstance(error, ServiceError) and error.status in GATEWAYS:
        return Verdict.LOST
    return next(verdict for kind, verdict in VERDICTS if isinstance(error, kind))


def reason_of(error: SpeechframeError) -> StopReason:
    """Return why a run stops that :data:`Verdict.STOP` ends."""
    return StopReason.QUOTA if isinstance(error, errors.PaymentRequired) else StopReason.REFUSED


@dataclass(frozen=True)
class Policy:
    """How long a run tries, and what the service promises for it.

    Parameters
    ----------
    max_attempts
        Attempts of one call; refusals by a cap and attempts that were not sent do not count.
    patience_s
        Seconds one call may take from its first attempt.
    timeout_s
        Seconds one attempt may take; None for the backend's own limit.
    repeats_are_free
        The service bills a repeat with the same idempotency key once.
    retries_unknown
        What may have been billed is sent again (``on_unknown="retry"``).
    max_retakes
        Further takes of an answer that is suspect.
    """

    max_attempts: int = 6
    patience_s: float = 900.0
    timeout_s: float | None = None
    repeats_are_free: bool = False
    retries_unknown: bool = False
    max_retakes: int = 0

    def sends_again(self, verdict: Verdict) -> bool:
        """Return whether a call is tried again, as far as its attempts and patience allow."""
        if verdict in {Verdict.NOW, Verdict.LATER}:
            return True
        if verdict is Verdict.LOST:
            return self.repeats_are_free or self.retries_unknown
        return verdict is Verdict.UNUSABLE and self.repeats_are_free


def counts(error: SpeechframeError) -> bool:
    """Return whether an attempt counts among ``max_attempts``."""
    is_unsent = isinstance(error, ConnectionFailed) and not error.sent
    return not is_unsent and not isinstance(error, errors.RateLimited)


def error_columns(error: SpeechframeError) -> dict[str, str | int | None]:
    """Return what a row's record says of an error.

    Examples
    --------
    >>> error_columns(errors.BadAnswer("no audio"))["error_code"]
    'BadAnswer'
    """
    return {
        "error_code": getattr(error, "code", None) or type(error).__name__,
        "error_message": getattr(error, "message", None) or str(error),
        "error_status": getattr(error, "status", None),
        "trace_id": getattr(error, "trace_id", None),
    }
