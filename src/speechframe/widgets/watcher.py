"""Read the figures of a run: from its counters if this process runs it, otherwise from its folder."""

import math
import time
from collections import Counter
from typing import Any, NamedTuple

from speechframe.batch.backend import Backend
from speechframe.batch.live import RUNNING, Run
from speechframe.spec.billing import to_credits
from speechframe.verbs import VERBS
from speechframe.widgets.attempts import AttemptReader
from speechframe.widgets.figures import BY_HAND, COUNTED, POINTS, Burn, RunFigures

__all__ = ["Watcher"]

_MADE = ("done", "cached", "suspect")
"""Outcomes of calls that a resume does not make again. It makes failed calls again."""


class _Ahead(NamedTuple):
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
        self._burn = _Line()
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

    def spent_credits(self) -> float:
        """Return the credits that the run has spent, including those before a resume."""
        return to_credits(self._attempts.read(self.run).spent_millis)

    def look(self) -> RunFigures:
        """Return the current figures of the run."""
        return self._here() if self.run.progress is not None else self._elsewhere()

    def _here(self) -> RunFigures:
        """Return the figures from the counters of this process."""
        run, p = self.run, self.run.progress
        assert p is not None  # noqa: S101 - the caller has checked this
        if p is not self._progress:
            if self._progress is not None:
                self._keep_earlier(self._progress)
            self._progress = p
        # The status is read before the counters, so that the figures of an ended run are final.
        status = run.status
        counts = self._with_earlier(p)
        self._burn.add(counts["seconds"], p.credits_millis)
        estimate = run.estimate
        ahead, planned = None, 0.0 if estimate is None else estimate.credits
        if status == RUNNING and p.eta_s is not None:
            calls = p.total - p.ended
            # Failed calls cost nothing, but the planned price includes them. So their share is removed.
            spent = to_credits(p.credits_millis - p.spent_before)
            price = max(0.0, planned - spent) * calls / max(1, calls + p.failed)
            ahead = _Ahead(p.eta_s, price, calls, counts["total"], p.unit)
        before = to_credits(p.spent_before)
        balance: float | None
        if estimate is not None and estimate.balance is not None:
            balance = estimate.balance + before
        else:
            # If the balance before the first call is unknown, add the spent credits to the latest balance.
            balance = None if p.balance is None else p.balance + to_credits(p.credits_millis)
        start = _start(p.budget, balance, planned + before)
        return RunFigures(
            status,
            *_why(run, status),
            is_here=True,
            counts=counts,
            failed_by=dict(p.failed_by),
            retried_by=dict(self._earlier_retries + p.retried_by),
            unit=p.unit,
            burn=self._burn.of(*start, ahead=ahead),
        )

    def _with_earlier(self, progress: Any) -> dict[str, Any]:
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

    def _keep_earlier(self, progress: Any) -> None:
        """Keep the counters from before a resume, without calls that the resume makes again."""
        counts = self._with_earlier(progress)
        names = (*_MADE, "retries", "audio_seconds", "seconds")
        self._earlier = {name: counts[name] for name in names}
        self._earlier["total"] = sum(counts[name] for name in _MADE)
        self._earlier_retries += progress.retried_by

    def _elsewhere(self) -> RunFigures:
        """Return the figures from the folder of the run."""
        run = self.run.refresh()
        status = run.status
        books = self._attempts.read(run)
        of_status = Counter(run.call_counts())
        total = of_status.total()
        by_status = {name: of_status.get(name, 0) for name in COUNTED}
        ended = sum(by_status.values())
        failed_by, retried_by = books.failed_by, books.retried_by
        rate = self._rate(ended) if status == RUNNING else None
        credits = to_credits(books.spent_millis)
        counts = {
            "total": total,
            **by_status,
            "retries": retried_by.total(),
            "credits": credits,
            "budget": self.max_credits,
            "balance": books.balance,
            "audio_seconds": round(books.audio_seconds, 3),
            "seconds": books.points[-1][0] if books.points else None,
            "rate": rate,
            "eta_s": round((total - ended) / rate, 1) if rate else None,
        }
        balance = None if books.balance is None else books.balance + credits
        line = _Line()
        for seconds, spent in books.points:
            line.add(seconds, spent)
        return RunFigures(
            status,
            *_why(run, status),
            is_here=False,
            counts=counts,
            failed_by=failed_by,
            retried_by=retried_by,
            unit=VERBS[run.operation].backend().unit if run.operation in VERBS else Backend.unit,
            burn=line.of(*_start(self.max_credits, balance, credits)),
        )

    def _rate(self, ended: int) -> float | None:
        """Return the calls a second since the first read, or None if none has ended since then."""
        # The folder does not contain the start time of a resumed run. So the first read is the start.
        now = time.monotonic()
        if self._seen is None:
            self._seen = now, ended
        since, before = self._seen
        return None if ended == before else round((ended - before) / (now - since), 2)


def _why(run: Run, status: str) -> tuple[str | None, str]:
    """Return the reason for an early end as a code and as text, or None and an empty text."""
    if status == RUNNING or (because := run.stopped_because) is None:
        return None, ""
    return because, BY_HAND.get(because) or run.manifest.stopped_words or "see the log for details"


def _start(budget: float | None, balance: float | None, price: float) -> tuple[str, str, float]:
    """Return unit, kind and first amount of the lower limit. Without limits, return those of the price."""
    limits = [("credits", "budget", budget), ("characters", "balance", balance)]
    known = [(unit, of, start) for unit, of, start in limits if start is not None]
    return min(known, key=lambda limit: limit[2], default=("credits", "price", price))


class _Line:
    """Spending over time. If there are too many points for a page, every second point is removed."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def add(self, seconds: float, spent_millis: int) -> None:
        """Add a point. Of neighbouring points with equal spending, only the first and the last are kept."""
        points = self._points
        if len(points) > 1 and points[-1][1] == points[-2][1] == spent_millis:
            points.pop()
        points.append((seconds, spent_millis))
        if len(points) > POINTS:
            self._points = [*points[:-1:2], points[-1]]

    def of(self, unit: str, of: str, start: float, *, ahead: _Ahead | None = None) -> Burn:
        """Return the amount left over time, with its forecast.

        Parameters
        ----------
        unit, of, start
            Unit, kind and first amount of the line.
        ahead
            The rest of the run. None if the run has ended or its rest is not known.
        """
        points = tuple((round(at, 2), round(start - to_credits(spent), 3)) for at, spent in self._points)
        if not points or ahead is None or ahead.seconds <= 0:
            return Burn(unit, of, points)
        at, left = points[-1]
        price = ahead.credits
        # The run stops early if the amount left is too small for all calls.
        part = max(0.0, left) / price if price > left else 1.0
        end = round(at + part * ahead.seconds, 2), round(max(0.0, left - part * price), 3)
        made = ahead.total - ahead.calls + round(part * ahead.calls)
        stops_at = "" if of == "price" or part == 1.0 else f"{ahead.unit} {made:,} of {ahead.total:,}"
        return Burn(unit, of, points, ((at, left), end), stops_at)
