"""How long a row is waited for, and a service that answers nobody or lets nobody in."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from speechframe.errors import SpeechframeError
from speechframe.old_batch.job import Job, Ways
from speechframe.old_batch.limiter import Lane

UNREACHABLE_S = 60.0
"""How long a service may give no answer at all before the run stops: a router restarts within that."""

ENOUGH_SILENCES = 6
"""So many attempts without any answer tell that a service is away, however many a row may take."""

OUTAGE_S = 300.0
"""How long a service may answer every call with 503 before the run stops."""

MOST_ASKED = 4
"""So many new rows are tried before a run stops because those that were are all refused."""


@dataclass
class Patience:
    """The patience of one run.

    Parameters
    ----------
    ways
        How the run behaves.
    lanes
        Where its calls go.
    """

    ways: Ways
    lanes: Sequence[Lane]
    _asked_at: list[float] = field(default_factory=list)

    def left_s(self, job: Job) -> float:
        """Return how many seconds `job` may still take."""
        return max(0.0, self.ways.patience_s - job.seconds)

    def told_s(self, job: Job, error: SpeechframeError) -> float | None:
        """Return the seconds that the service asked `job` to wait, those it may still take at most."""
        told_s = getattr(error, "retry_after_s", None)
        return None if told_s is None else min(told_s, self.left_s(job))

    @property
    def silence_s(self) -> float:
        """How many seconds a service may give no answer at all."""
        return min(UNREACHABLE_S, self.ways.patience_s)

    @property
    def is_unreachable(self) -> bool:
        """Whether no lane has given any answer for so long that the run is to stop."""
        silences = min(self.ways.max_attempts, ENOUGH_SILENCES)
        return all(lane.silences >= silences and lane.silent_s >= self.silence_s for lane in self.lanes)

    def puts_off_everybody(self, job: Job) -> bool:
        """Whether nothing was answered since `job` began but that it is too much, or too early."""
        return self._passed_at < job.started

    def is_over(self, job: Job, *, is_outage: bool) -> bool:
        """Whether `job`, one of many that were put off, tells that the run is to stop."""
        asked_at = max(self._asked, default=None)
        if asked_at is not None and job.started > asked_at and not is_outage:
            # It was taken to find out whether only some rows are put off.
            return True
        limit_s = min(OUTAGE_S, self.ways.patience_s) if is_outage else self.ways.patience_s
        is_asking = asked_at is not None and time.monotonic() < asked_at + self.ways.patience_s
        return job.seconds > limit_s and not is_asking

    def asks_another(self) -> bool:
        """Whether a row that was never put off is to find out before the run stops."""
        self._asked_at = [*self._asked, time.monotonic()]
        return len(self._asked_at) <= MOST_ASKED

    @property
    def _passed_at(self) -> float:
        return max(lane.passed_at for lane in self.lanes)

    @property
    def _asked(self) -> list[float]:
        """When rows were asked, as long as nothing has passed since: that answered it."""
        passed_at = self._passed_at
        return [asked_at for asked_at in self._asked_at if asked_at > passed_at]
