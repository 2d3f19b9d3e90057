"""What becomes of a call after an attempt that failed: one table, read from the top."""

from enum import Enum
from typing import Any

from speechframe import errors
from speechframe.errors import ConnectionFailed, ServiceError, SpeechframeError


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


def counts(error: SpeechframeError) -> bool:
    """Return whether an attempt counts among ``max_attempts``: not if refused by a cap, or never sent."""
    is_unsent = isinstance(error, ConnectionFailed) and not error.sent
    return not is_unsent and not isinstance(error, errors.RateLimited)


def error_columns(error: SpeechframeError) -> dict[str, Any]:
    """Return what a row's record says of an error."""
    return {
        "error_code": getattr(error, "code", None) or type(error).__name__,
        "error_message": getattr(error, "message", None) or str(error),
        "error_status": getattr(error, "status", None),
        "trace_id": getattr(error, "trace_id", None),
    }
