"""Sum up the attempts (calls of the service, with retries) of a run, as often as a dashboard needs them.

Attempts are rows of the run's ledger. Each finished file of the ledger is read only once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.batch.live import Run
from speechframe.spec.billing import MILLICREDITS_PER_CREDIT
from speechframe.store.records import FAILED_STATUSES, read_attempts
from speechframe.store.schema import CHARGED_UNKNOWN, FAILED
from speechframe.widgets.figures import MAX_POINTS

_LEDGER_COLUMNS = (
    "request_key", "time", "status", "credits", "audio_seconds", "balance_after", "error_code",
)  # fmt: skip
"""Columns of the ledger that are read."""

_LOST_STATUSES = frozenset({FAILED, CHARGED_UNKNOWN})
"""Statuses of a call that ended without an answer."""

Numbers = npt.NDArray[np.int64]
Times = npt.NDArray[np.datetime64]


@dataclass(frozen=True)
class Attempts:
    """Sums over all attempts of a run.

    Parameters
    ----------
    points
        Pairs of seconds since the first attempt and thousandths of credits spent by then, few enough for a
        page.
    audio_seconds
        Total length of the audio of all attempts, in seconds.
    balance
        Latest balance of the key in characters. None if the service did not return a balance.
    failed_by
        Number of calls that ended without an answer, by error code of their last attempt.
    retried_by
        Number of all other attempts without an answer, by error code.
    """

    points: Sequence[tuple[float, int]]
    audio_seconds: float
    balance: int | None
    failed_by: Counter[str]
    retried_by: Counter[str]

    @property
    def spent_millis(self) -> int:
        """Thousandths of credits that were spent."""
        return self.points[-1][1] if self.points else 0


@dataclass(frozen=True)
class _Sums:
    """Sums over the attempts in one file of the ledger.

    `times` and `millis` have the time and the thousandths of credits of each attempt. `balance` is the latest
    time with a balance, and this balance. `codes` counts the error codes of all attempts without an answer.
    `lost` has an error code for each call, by request key, that ended in this file without an answer.
    """

    times: Times
    millis: Numbers
    audio_seconds: float
    balance: tuple[Any, Any] | None
    codes: Counter[str]
    lost: dict[str, str]


class AttemptReader:
    """Reader of a run's attempts. It keeps the sums of finished files, so that these are not read again."""

    def __init__(self) -> None:
        self._files: dict[int, _Sums] = {}

    def read(self, run: Run) -> Attempts:
        """Return the sums over all attempts that have ended."""
        growing = []
        for number, table in read_attempts(run.snapshot(), _LEDGER_COLUMNS, known=self._files):
            if number is None:
                growing.append(_sum_attempts(table))
            else:
                self._files[number] = _sum_attempts(table)
        all_sums = [*(self._files[number] for number in sorted(self._files)), *growing]
        times = np.concatenate([np.empty(0, "datetime64[us]"), *(some.times for some in all_sums)])
        millis = np.concatenate([np.empty(0, np.int64), *(some.millis for some in all_sums)])
        order = np.argsort(times, kind="stable")
        balances = [some.balance for some in all_sums if some.balance is not None]
        failed_by = _count_lost_calls(
            run, {key: code for some in all_sums for key, code in some.lost.items()}
        )
        return Attempts(
            _sample_spending(times[order], millis[order]),
            audio_seconds=sum(some.audio_seconds for some in all_sums),
            balance=max(balances, key=lambda timed: timed[0])[1] if balances else None,
            failed_by=failed_by,
            retried_by=sum((some.codes for some in all_sums), Counter[str]()) - failed_by,
        )


def _count_lost_calls(run: Run, lost: dict[str, str]) -> Counter[str]:
    """Return the number of lost calls by error code. Calls that have an answer by now are not counted."""
    index = run.snapshot().index
    is_lost = index.have_status(index.find(pa.array(list(lost), pa.string())), _LOST_STATUSES)
    return Counter(code for code, counts in zip(lost.values(), is_lost.tolist(), strict=True) if counts)


def _sum_attempts(ledger: pa.Table) -> _Sums:
    """Return the sums over a table of attempts."""
    failed_statuses = pa.array(sorted(FAILED_STATUSES))
    failed = ledger.filter(pc.is_in(ledger.column("status"), failed_statuses))
    rows = failed.select(["request_key", "status", "error_code"]).to_pylist()
    with_balance = ledger.filter(ledger.column("balance_after").is_valid()).sort_by("time")
    credits = np.nan_to_num(ledger.column("credits").to_numpy())
    balances = with_balance.column("balance_after").to_pylist()
    return _Sums(
        ledger.column("time").to_numpy(),
        np.round(MILLICREDITS_PER_CREDIT * credits).astype(np.int64),
        float(np.nansum(ledger.column("audio_seconds").to_numpy())),
        balance=(with_balance.column("time").to_numpy()[-1], balances[-1]) if balances else None,
        codes=Counter(str(row["error_code"]) for row in rows),
        lost={row["request_key"]: str(row["error_code"]) for row in rows if row["status"] in _LOST_STATUSES},
    )


def _sample_spending(times: Times, millis: Numbers) -> list[tuple[float, int]]:
    """Return pairs of seconds and spending so far, at most :data:`MAX_POINTS` and a first pair of zeros."""
    if not len(times):
        return []
    spent = np.cumsum(millis)
    chosen = np.unique(np.linspace(0, len(spent) - 1, MAX_POINTS).astype(np.int64))
    seconds = (times[chosen] - times[0]) / np.timedelta64(1, "s")
    return [(0.0, 0), *zip(seconds.tolist(), spent[chosen].tolist(), strict=True)]
