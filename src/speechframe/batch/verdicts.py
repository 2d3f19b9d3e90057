"""The verdict on a failed attempt, which is the next step for its call."""

from enum import Enum

from speechframe import errors
from speechframe.errors import ConnectionFailed, ServiceError, SpeechframeError


class Verdict(Enum):
    """The next step for a call whose attempt failed."""

    NOW = "A concurrency cap refused the call. Repeat it at once."
    LATER = "The call failed and was not billed. Repeat it after a delay."
    FAIL = "The service refused the call and would refuse it again. Its row fails, and the run goes on."
    LOST = "The call was sent and got no answer. It may have been billed."
    UNUSABLE = "The call was billed, but its answer is unusable."
    STOP = "Every further call would fail, too. The run stops and keeps its answers."


VERDICT_BY_ERROR: tuple[tuple[type[SpeechframeError], Verdict], ...] = (
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
"""The verdict on each class of errors. The first class that matches counts."""

GATEWAY_STATUSES = frozenset({502, 504, 520, 522, 524})
"""HTTP statuses that a gateway sends in place of the service. The service may still have billed the call."""


def judge_error(error: SpeechframeError) -> Verdict:
    """Return the verdict on a call whose attempt ended with `error`."""
    if isinstance(error, ConnectionFailed):
        return Verdict.LOST if error.sent else Verdict.LATER
    if isinstance(error, ServiceError) and error.status in GATEWAY_STATUSES:
        return Verdict.LOST
    return next(verdict for kind, verdict in VERDICT_BY_ERROR if isinstance(error, kind))
