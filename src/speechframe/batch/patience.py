"""How long a row is waited for, and a service that answers nobody."""

from collections.abc import Sequence

from speechframe.batch.job import Job, Ways
from speechframe.batch.limiter import Lane

UNREACHABLE_S = 60.0
"""How long a service may give no answer at all before the run stops: a router restarts within that."""

ENOUGH_SILENCES = 6
"""So many attempts without any answer tell that a service is away, however many a row may take."""

OUTAGE_S = 300.0
"""How long a service may answer every call with 503 before the run stops."""


def left_s(job: Job, ways: Ways) -> float:
    """Return how many seconds `job` may still take."""
    return max(0.0, ways.patience_s - job.seconds)


def unreachable_s(ways: Ways) -> float:
    """Return how many seconds a service may give no answer at all."""
    return min(UNREACHABLE_S, ways.patience_s)


def is_unreachable(lanes: Sequence[Lane], ways: Ways) -> bool:
    """Whether no lane has given any answer for so long that the run is to stop."""
    silences, seconds = min(ways.max_attempts, ENOUGH_SILENCES), unreachable_s(ways)
    return all(lane.silences >= silences and lane.silent_s >= seconds for lane in lanes)


def puts_off_everybody(job: Job, lanes: Sequence[Lane]) -> bool:
    """Whether nothing was answered since `job` began but that it is too much, or too early."""
    return all(lane.passed_at < job.started for lane in lanes)
