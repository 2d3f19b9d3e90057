"""What the attempts of a run came to, looked at again and again: each file of its ledger is read once."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.batch.live import Run
from speechframe.spec.billing import CREDIT
from speechframe.store.records import FAILED_STATUSES, attempts
from speechframe.store.schema import CHARGED_UNKNOWN, FAILED
from speechframe.widgets.figures import POINTS

__all__ = ["AttemptReader", "Attempts"]

_COLUMNS = (
    "request_key", "time", "status", "credits", "audio_seconds", "balance_after", "error_code",
)  # fmt: skip
_LOST = frozenset({FAILED, CHARGED_UNKNOWN})

Numbers = npt.NDArray[np.int64]
Times = npt.NDArray[np.datetime64]


@dataclass(frozen=True)
class Attempts:
    """What all attempts of a run came to.

    Parameters
    ----------
    points
        Some moments, the first and the last among them, and thousandths of credits that were spent by then.
    audio_seconds
        Of all of them.
    balance
        What the service last said is left on the key, in characters.
    failed_by
        Calls that have no answer, by the error code of the last attempt of each.
    retried_by
        All other attempts that brought no answer, by error code.
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
    """What the attempts of one segment come to.

    `codes` are those of all attempts that brought no answer, `lost` the last one of each call that had none
    when the segment ended.
    """

    times: Times
    millis: Numbers
    audio_seconds: float
    balance: tuple[Any, Any] | None
    codes: Counter[str]
    lost: dict[str, str]


class AttemptReader:
    """Reads the attempts of a run again and again; files that were read before are not read once more."""

    def __init__(self) -> None:
        self._files: dict[int, _Sums] = {}

    def read(self, run: Run) -> Attempts:
        """Return what the attempts that have ended came to."""
        growing = []
        for number, table in attempts(run.snapshot(), _COLUMNS, known=self._files):
            if number is None:
                growing.append(_sums(table))
            else:
                self._files[number] = _sums(table)
        every = [*(self._files[number] for number in sorted(self._files)), *growing]
        times = np.concatenate([np.empty(0, "datetime64[us]"), *(some.times for some in every)])
        millis = np.concatenate([np.empty(0, np.int64), *(some.millis for some in every)])
        order = np.argsort(times, kind="stable")
        told = [some.balance for some in every if some.balance is not None]
        failed_by = _still_lost(run, {key: code for some in every for key, code in some.lost.items()})
        return Attempts(
            _spending(times[order], millis[order]),
            audio_seconds=sum(some.audio_seconds for some in every),
            balance=max(told, key=lambda said: said[0])[1] if told else None,
            failed_by=failed_by,
            retried_by=sum((some.codes for some in every), Counter[str]()) - failed_by,
        )


def _still_lost(run: Run, lost: dict[str, str]) -> Counter[str]:
    """Return the codes of those calls that no later attempt has answered."""
    index = run.snapshot().index
    is_lost = index.having(index.find(pa.array(list(lost), pa.string())), _LOST)
    return Counter(code for code, counts in zip(lost.values(), is_lost.tolist(), strict=True) if counts)


def _sums(ledger: pa.Table) -> _Sums:
    wanted = pa.array(sorted(FAILED_STATUSES))
    failed = ledger.filter(pc.is_in(ledger.column("status"), wanted))
    rows = failed.select(["request_key", "status", "error_code"]).to_pylist()
    told = ledger.filter(ledger.column("balance_after").is_valid()).sort_by("time")
    credits = np.nan_to_num(ledger.column("credits").to_numpy())
    balances = told.column("balance_after").to_pylist()
    return _Sums(
        ledger.column("time").to_numpy(),
        np.round(CREDIT * credits).astype(np.int64),
        float(np.nansum(ledger.column("audio_seconds").to_numpy())),
        balance=(told.column("time").to_numpy()[-1], balances[-1]) if balances else None,
        codes=Counter(str(row["error_code"]) for row in rows),
        lost={row["request_key"]: str(row["error_code"]) for row in rows if row["status"] in _LOST},
    )


def _spending(times: Times, millis: Numbers) -> list[tuple[float, int]]:
    """Return some moments, the first and the last among them, and what was spent by then."""
    if not len(times):
        return []
    spent = np.cumsum(millis)
    chosen = np.unique(np.linspace(0, len(spent) - 1, POINTS).astype(np.int64))
    seconds = (times[chosen] - times[0]) / np.timedelta64(1, "s")
    return [(0.0, 0), *zip(seconds.tolist(), spent[chosen].tolist(), strict=True)]
