"""Read the figures of a run: from its counters if this process runs it, otherwise from its folder."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from speechframe.batch.backend import Backend
from speechframe.batch.live import RUNNING, Run
from speechframe.spec.billing import convert_to_credits
from speechframe.verbs import RUN_VERBS
from speechframe.widgets.attempts import AttemptReader
from speechframe.widgets.figures import COUNTED_OUTCOMES, MAX_POINTS, USER_STOP_TEXTS, BurnDown, RunFigures

_KEPT_OUTCOMES = ("done", "cached", "suspect")
"""Outcomes of calls that a resume does not make again. It makes failed calls again."""


class _Rest(NamedTuple):
    """The rest of a live run: its seconds, credits and calls. `total` is the number of all calls."""

    seconds: float
    credits: float
    calls: int
    total: int
    unit: str


class Watcher:
    """Reader of a run's figures. It keeps earlier results, so that repeated reads are fast.

    Parameters
    ----------
    run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._points: list[tuple[float, int]] = []
        self._seen: tuple[float, int] | None = None
        self._attempts = AttemptReader()
        self._progress: Any = None
        self._earlier: dict[str, Any] = {}
        self._earlier_retries: Counter[str] = Counter()

    @property
    def max_credits(self) -> float | None:
        """Budget of the run in credits. None if it has no budget."""
        budget = self.run.manifest.max_credits
        return None if budget is None or math.isinf(budget) else budget

    def compute_spent_credits(self) -> float:
        """Return the credits that the run has spent, including those before a resume."""
        return convert_to_credits(self._attempts.read(self.run).spent_millis)

    def read_figures(self) -> RunFigures:
        """Return the current figures of the run."""
        return self._read_counters() if self.run.progress is not None else self._read_folder()

    def _read_counters(self) -> RunFigures:
        """Return the figures from the counters of this process."""
        run, progress = self.run, self.run.progress
        assert progress is not None  # noqa: S101 - the caller has checked this
        if progress is not self._progress:
            if self._progress is not None:
                self._keep_earlier_counts(self._progress)
            self._progress = progress
        # The status is read before the counters, so that the figures of an ended run are final.
        status = run.status
        counts = self._add_earlier_counts(progress)
        _add_point(self._points, counts["seconds"], progress.credits_millis)
        estimate = run.estimate
        ahead, planned = None, 0.0 if estimate is None else estimate.credits
        if status == RUNNING and progress.eta_s is not None:
            calls = progress.total - progress.ended
            # Failed calls cost nothing, but the planned price includes them. So their share is removed.
            spent = convert_to_credits(progress.credits_millis - progress.spent_before)
            price = max(0.0, planned - spent) * calls / max(1, calls + progress.failed)
            ahead = _Rest(progress.eta_s, price, calls, counts["total"], progress.unit)
        credits_before = convert_to_credits(progress.spent_before)
        balance: float | None
        if estimate is not None and estimate.balance is not None:
            balance = estimate.balance + credits_before
        else:
            # If the balance before the first call is unknown, add the spent credits to the latest balance.
            balance = (
                None
                if progress.balance is None
                else progress.balance + convert_to_credits(progress.credits_millis)
            )
        start = _choose_limit(progress.budget, balance, planned + credits_before)
        return RunFigures(
            status,
            *_explain_stop(run, status),
            is_here=True,
            counts=counts,
            failed_by=dict(progress.failed_by),
            retried_by=dict(self._earlier_retries + progress.retried_by),
            unit=progress.unit,
            burn=_make_burn(self._points, *start, ahead=ahead),
        )

    def _add_earlier_counts(self, progress: Any) -> dict[str, Any]:
        """Return the counters, plus those from before a resume if this watcher has read them.

        So the page of a resumed run continues from its earlier figures instead of zero.
        """
        counts: dict[str, Any] = progress.to_dict()
        for name, value in self._earlier.items():
            counts[name] = round(counts[name] + value, 3)
        if self._earlier and self.run.estimate is not None:
            counts["charged_unknown"] += self.run.estimate.unknown
            counts["total"] += self.run.estimate.unknown
        return counts

    def _keep_earlier_counts(self, progress: Any) -> None:
        """Keep the counters from before a resume, without calls that the resume makes again."""
        counts = self._add_earlier_counts(progress)
        names = (*_KEPT_OUTCOMES, "retries", "audio_seconds", "seconds")
        self._earlier = {name: counts[name] for name in names}
        self._earlier["total"] = sum(counts[name] for name in _KEPT_OUTCOMES)
        self._earlier_retries += progress.retried_by

    def _read_folder(self) -> RunFigures:
        """Return the figures from the folder of the run."""
        run = self.run.refresh()
        status = run.status
        attempts = self._attempts.read(run)
        of_status = Counter(run.call_counts())
        total = of_status.total()
        by_status = {name: of_status.get(name, 0) for name in COUNTED_OUTCOMES}
        ended = sum(by_status.values())
        failed_by, retried_by = attempts.failed_by, attempts.retried_by
        rate = self._measure_rate(ended) if status == RUNNING else None
        credits = convert_to_credits(attempts.spent_millis)
        counts = {
            "total": total,
            **by_status,
            "retries": retried_by.total(),
            "credits": credits,
            "budget": self.max_credits,
            "balance": attempts.balance,
            "audio_seconds": round(attempts.audio_seconds, 3),
            "seconds": attempts.points[-1][0] if attempts.points else None,
            "rate": rate,
            "eta_s": round((total - ended) / rate, 1) if rate else None,
        }
        balance = None if attempts.balance is None else attempts.balance + credits
        points: list[tuple[float, int]] = []
        for seconds, spent in attempts.points:
            _add_point(points, seconds, spent)
        return RunFigures(
            status,
            *_explain_stop(run, status),
            is_here=False,
            counts=counts,
            failed_by=failed_by,
            retried_by=retried_by,
            unit=RUN_VERBS[run.operation].backend().unit if run.operation in RUN_VERBS else Backend.unit,
            burn=_make_burn(points, *_choose_limit(self.max_credits, balance, credits)),
        )

    def _measure_rate(self, ended: int) -> float | None:
        """Return the calls a second since the first read, or None if none has ended since then."""
        # The folder does not contain the start time of a resumed run. So the first read is the start.
        now = time.monotonic()
        if self._seen is None:
            self._seen = now, ended
        since, before = self._seen
        return None if ended == before else round((ended - before) / (now - since), 2)


def _explain_stop(run: Run, status: str) -> tuple[str | None, str]:
    """Return the reason for an early end as a code and as text, or None and an empty text."""
    if status == RUNNING or (because := run.stopped_because) is None:
        return None, ""
    return because, USER_STOP_TEXTS.get(because) or run.manifest.stopped_words or "see the log for details"


def _choose_limit(budget: float | None, balance: float | None, price: float) -> tuple[str, str, float]:
    """Return unit, kind and first amount of the lower limit. Without limits, return those of the price."""
    limits = [("credits", "budget", budget), ("characters", "balance", balance)]
    known = [(unit, of, start) for unit, of, start in limits if start is not None]
    return min(known, key=lambda limit: limit[2], default=("credits", "price", price))


def _add_point(points: list[tuple[float, int]], seconds: float, spent_millis: int) -> None:
    """Add a point to a line of spending over time. Points that a page does not need are removed.

    Of neighbouring points with equal spending, only the first and the last are kept. If there are too many
    points for a page, every second point is removed.
    """
    if len(points) > 1 and points[-1][1] == points[-2][1] == spent_millis:
        points.pop()
    points.append((seconds, spent_millis))
    if len(points) > MAX_POINTS:
        points[:] = [*points[:-1:2], points[-1]]


def _make_burn(
    spending: Sequence[tuple[float, int]], unit: str, kind: str, start: float, *, ahead: _Rest | None = None
) -> BurnDown:
    """Return the amount left over time, with its forecast.

    Parameters
    ----------
    spending
        Pairs of seconds and thousandths of credits spent by then.
    unit, kind, start
        Unit, kind and first amount of the line.
    ahead
        The rest of the run. None if the run has ended or its rest is not known.
    """
    points = tuple((round(at, 2), round(start - convert_to_credits(spent), 3)) for at, spent in spending)
    if not points or ahead is None or ahead.seconds <= 0:
        return BurnDown(unit, kind, points)
    at, left = points[-1]
    price = ahead.credits
    # The run stops early if the amount left is too small for all calls.
    part = max(0.0, left) / price if price > left else 1.0
    end = round(at + part * ahead.seconds, 2), round(max(0.0, left - part * price), 3)
    made = ahead.total - ahead.calls + round(part * ahead.calls)
    stops_at = "" if kind == "price" or part == 1.0 else f"{ahead.unit} {made:,} of {ahead.total:,}"
    return BurnDown(unit, kind, points, ((at, left), end), stops_at)
