"""Looks at a run: at its counters where it is made here, at its folder where another process makes it."""

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from speechframe.batch.books import ERROR, REFUSED
from speechframe.batch.keys import KeyColumn, Keys, among, first_of_each
from speechframe.batch.outcome import CHARGED_UNKNOWN, FAILED
from speechframe.batch.run import RUNNING, TRANSLATE, Run, retries_in
from speechframe.spec.billing import CREDIT, to_credits
from speechframe.widgets.figures import COUNTED, Burn, Figures

__all__ = ["Watcher"]

_POINTS = 200
_BOOKED = (
    "request_key", "time", "attempt", "status", "credits", "audio_seconds", "balance_after", "error_code",
)  # fmt: skip
_IN_VAIN = frozenset({ERROR, REFUSED, CHARGED_UNKNOWN})


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
        self._table: tuple[str, Keys] | None = None
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
        keys, index, books = self._keys(), folder.index(), _Books.of(folder.ledger(_BOOKED))
        by_status = {name: int(among(keys, index.packed({name})).sum()) for name in COUNTED}
        ended = sum(by_status.values())
        lost = {bytes(key).hex() for key in index.packed({FAILED, CHARGED_UNKNOWN})}
        failed_by = Counter(code for key, code in books.last_codes.items() if key in lost)
        rate = self._rate(ended) if status == RUNNING else None
        credits = to_credits(books.spent_millis)
        counts = {
            "total": len(keys),
            **by_status,
            "retries": books.retries,
            "credits": credits,
            "balance": books.balance,
            "audio_seconds": round(books.audio_seconds, 3),
            "seconds": books.points[-1][0] if books.points else None,
            "rate": rate,
            "eta_s": round((len(keys) - ended) / rate, 1) if rate else None,
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
            retried_by=books.codes - failed_by,
            unit="text" if run.operation == TRANSLATE else "call",
            burn=line.of(*_start(run, books.balance, books.spent_millis, books.spent_millis), ahead=None),
        )

    def _keys(self) -> Keys:
        """Return the calls of the run's table, each once; read once for each table."""
        entry = self.run._folder.tables()[-1]  # noqa: SLF001
        if self._table is None or self._table[0] != entry.file:
            name = entry.name_of("request_key")
            column = KeyColumn()
            with self.run._folder.table() as file:  # noqa: SLF001
                for batch in file.iter_batches(columns=[name]):
                    for key in batch.column(0).to_pylist():
                        column.append(key)
            keys = column.to_array()
            self._table = entry.file, keys[first_of_each(keys)]
        return self._table[1]

    def _rate(self, ended: int) -> float | None:
        # Whoever writes it tells no times of this drive: what was seen from here counts.
        now = time.monotonic()
        if self._seen is None:
            self._seen = now, ended
        since, before = self._seen
        return None if ended == before else round((ended - before) / (now - since), 2)


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


@dataclass(frozen=True)
class _Books:
    """What a run's ledger says of it."""

    points: list[tuple[float, int]]
    codes: Counter[str]
    last_codes: dict[str, str]
    retries: int
    audio_seconds: float
    balance: int | None

    @classmethod
    def of(cls, ledger: Any) -> "_Books":
        """Read a ledger, which is ordered by time."""
        import pyarrow.compute as pc

        in_vain = ledger.filter(pc.is_in(ledger.column("status"), pa.array(sorted(_IN_VAIN))))
        codes = [str(code) for code in in_vain.column("error_code").to_pylist()]
        told = ledger.column("balance_after").drop_null()
        return cls(
            _spending(ledger),
            codes=Counter(codes),
            last_codes=dict(zip(in_vain.column("request_key").to_pylist(), codes, strict=True)),
            retries=retries_in(ledger),
            audio_seconds=float(pc.sum(ledger.column("audio_seconds")).as_py() or 0.0),
            balance=told[-1].as_py() if len(told) else None,
        )

    @property
    def spent_millis(self) -> int:
        """Thousandths of credits that were spent."""
        return self.points[-1][1] if self.points else 0


def _spending(ledger: Any) -> list[tuple[float, int]]:
    """Return some moments of a ledger, its first and last among them, and what was spent by then."""
    if not ledger.num_rows:
        return []
    spent = np.cumsum(np.round(CREDIT * np.nan_to_num(ledger.column("credits").to_numpy()))).astype(np.int64)
    times = ledger.column("time").to_numpy()
    seconds = (times - times[0]) / np.timedelta64(1, "s")
    chosen = np.unique(np.linspace(0, len(spent) - 1, _POINTS).astype(np.int64))
    return [(0.0, 0), *zip(seconds[chosen].tolist(), spent[chosen].tolist(), strict=True)]


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
        if len(points) > _POINTS:
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
