"""The next step for a call whose attempt failed."""

from enum import Enum

from speechframe import errors
from speechframe.errors import ConnectionFailed, ServiceError, SpeechframeError


class Verdict(Enum):
    """The next step for a call whose attempt failed."""

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
"""Statuses of gateways. With such an answer the service behind the gateway may still have billed the call."""


def verdict_of(error: SpeechframeError) -> Verdict:
    """Return the verdict on a call whose attempt ended with `error`."""
    if isinstance(error, ConnectionFailed):
        return Verdict.LOST if error.sent else Verdict.LATER
    if isinstance(error, ServiceError) and error.status in GATEWAYS:
        return Verdict.LOST
    return next(verdict for kind, verdict in VERDICTS if isinstance(error, kind))
