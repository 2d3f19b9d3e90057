"""Looks at a run: at its counters where it is made here, at its folder where another process makes it."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from speechframe.batch.run import TRANSLATE, Run
from speechframe.spec.billing import CREDIT, to_credits
from speechframe.store.index import Halves, halves_of
from speechframe.store.run_state import RUNNING
from speechframe.widgets.attempts import AttemptReader
from speechframe.widgets.figures import COUNTED, POINTS, Burn, Figures

__all__ = ["Watcher"]

_NO_CALLS: Halves = (np.empty(0, np.uint64), np.empty(0, np.uint64))


class Watcher:
    """Looks at a run again and again.

    Parameters
    ----------
    run
        The run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._burn = _Line()
        self._seen: tuple[float, int] | None = None
        self._table: tuple[str, Halves] | None = None
        self._attempts = AttemptReader()
        self._progress: Any = None

    def look(self) -> Figures:
        """Return the run as it is now."""
        return self._here() if self.run.progress is not None else self._elsewhere()

    def _here(self) -> Figures:
        run, p = self.run, self.run.progress
        assert p is not None  # noqa: S101 - asked before
        if p is not self._progress:
            # Another drive of the run counts anew.
            self._progress, self._burn = p, _Line()
        # Asked first: the figures of a run that has ended are its last ones.
        status = run.status
        counts = p.to_dict()
        spent = round(CREDIT * counts["credits"])
        self._burn.add(counts["seconds"], spent)
        ahead = None if status != RUNNING or p.eta_s is None else (p.eta_s, p.planned_millis - p.ended_millis)
        return Figures(
            status,
            run.stopped_because if status != RUNNING else None,
            is_here=True,
            counts=counts,
            failed_by=dict(p.failed_by),
            retried_by=dict(p.retried_by),
            unit=p.unit,
            burn=self._burn.of(*_start(run, counts["balance"], spent, p.planned_millis), ahead=ahead),
        )

    def _elsewhere(self) -> Figures:
        run = self.run.refresh()
        status = run.status
        folder = run._folder  # noqa: SLF001 - no method of a run tells the states of calls without reading rows
        calls, index, books = self._calls(), folder.index(), self._attempts.read(folder)
        total, of_status = len(calls[0]), index.counts(index.find_halves(calls))
        by_status = {name: of_status.get(name, 0) for name in COUNTED}
        ended = sum(by_status.values())
        failed_by = books.last_codes(index)
        retried_by = books.codes - failed_by
        rate = self._rate(ended) if status == RUNNING else None
        credits = to_credits(books.spent_millis)
        counts = {
            "total": total,
            **by_status,
            "retries": retried_by.total(),
            "credits": credits,
            "balance": books.balance,
            "audio_seconds": round(books.audio_seconds, 3),
            "seconds": books.points[-1][0] if books.points else None,
            "rate": rate,
            "eta_s": round((total - ended) / rate, 1) if rate else None,
        }
        line = _Line()
        for seconds, spent in books.points:
            line.add(seconds, spent)
        return Figures(
            status,
            run.stopped_because if status != RUNNING else None,
            is_here=False,
            counts=counts,
            failed_by=failed_by,
            retried_by=retried_by,
            unit="text" if run.operation == TRANSLATE else "call",
            burn=line.of(*_start(run, books.balance, books.spent_millis, books.spent_millis), ahead=None),
        )

    def _calls(self) -> Halves:
        """Return the calls of the run's table, each once; read once for each table."""
        entry = self.run._folder.tables()[-1]  # noqa: SLF001
        if self._table is None or self._table[0] != entry.file:
            name = entry.name_of("request_key")
            with self.run._folder.table() as file:  # noqa: SLF001
                batches = file.iter_batches(columns=[name])
                keys = [_NO_CALLS, *(halves_of(batch.column(0).drop_null()) for batch in batches)]
            self._table = entry.file, _each_once(keys)
        return self._table[1]

    def _rate(self, ended: int) -> float | None:
        # Whoever writes it tells no times of this drive: what was seen from here counts.
        now = time.monotonic()
        if self._seen is None:
            self._seen = now, ended
        since, before = self._seen
        return None if ended == before else round((ended - before) / (now - since), 2)


def _each_once(keys: Sequence[Halves]) -> Halves:
    """Return every key once, in order: an index finds ordered ones several times faster."""
    high, low = map(np.concatenate, zip(*keys, strict=True))
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return high[begins], low[begins]


def _start(run: Run, balance: int | None, spent_millis: int, planned_millis: int) -> tuple[str, str, float]:
    """Return what is left of what, and how much of it there was at the start."""
    if run.estimate is not None and run.estimate.balance is not None:
        return "characters", "balance", run.estimate.balance
    if balance is not None:
        # Not told before the first call: what is left now, and what was spent until now.
        return "characters", "balance", balance + to_credits(spent_millis)
    if run.estimate is not None and run.estimate.budget is not None:
        return "credits", "budget", run.estimate.budget
    return "credits", "price", to_credits(planned_millis)


class _Line:
    """What was spent over time, thinned so that a page can hold it."""

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def add(self, seconds: float, spent_millis: int) -> None:
        """Add a moment; of equal ones the first and the last are kept."""
        points = self._points
        if len(points) > 1 and points[-1][1] == points[-2][1] == spent_millis:
            points.pop()
        points.append((seconds, spent_millis))
        if len(points) > POINTS:
            self._points = [*points[:-1:2], points[-1]]

    def of(self, unit: str, of: str, start: float, *, ahead: tuple[float, int] | None) -> Burn:
        """Return what was left, of so much at the start, and where it goes on.

        Parameters
        ----------
        unit, of, start
            Of the line.
        ahead
            Seconds to go, and thousandths of credits that will be spent in them; None where none are.
        """
        points = tuple((round(at, 2), round(start - to_credits(spent), 3)) for at, spent in self._points)
        forecast: tuple[tuple[float, float], ...] = ()
        if points and ahead is not None and ahead[0] > 0:
            at, left = points[-1]
            forecast = (at, left), (round(at + ahead[0], 2), round(left - to_credits(ahead[1]), 3))
        return Burn(unit, of, points, forecast)
