"""What the attempts of a run came to, looked at again and again: each file of its ledger is read once.

A file of a ledger has its name when it is whole and never changes after. What is
kept of it are sums, and of each attempt what the order of all of them needs: its
time and what it cost, 16 bytes. Of those in vain the key and the code as well.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from speechframe.old_batch.books import IN_VAIN
from speechframe.old_batch.outcome import LOST
from speechframe.old_store import RunFolder
from speechframe.old_store.index import KeyIndex, halves_of
from speechframe.old_store.ledger import read_ledger
from speechframe.spec.billing import CREDIT
from speechframe.widgets.figures import POINTS

__all__ = ["AttemptReader", "Attempts"]

_COLUMNS = (
    "request_key", "time", "status", "credits", "audio_seconds", "balance_after", "error_code",
)  # fmt: skip
_NO_CODE = str(None)

Numbers = npt.NDArray[np.int64]
Times = npt.NDArray[np.datetime64]


class _InVain(NamedTuple):
    """Attempts that brought nothing, by time; their codes as numbers."""

    times: Times
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    codes: Numbers


class _Sums(NamedTuple):
    """What some attempts come to, by time."""

    times: Times
    millis: Numbers
    audio_seconds: float
    balance: tuple[np.datetime64, int] | None
    in_vain: _InVain


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
    in_vain
        Those that brought nothing.
    names
        The codes of these, by their numbers.
    """

    points: Sequence[tuple[float, int]]
    audio_seconds: float
    balance: int | None
    in_vain: _InVain
    names: Sequence[str]

    @property
    def spent_millis(self) -> int:
        """Thousandths of credits that were spent."""
        return self.points[-1][1] if self.points else 0

    @property
    def codes(self) -> Counter[str]:
        """How many attempts were in vain, by code."""
        return _counted(self.in_vain.codes, self.names)

    def last_codes(self, index: KeyIndex) -> Counter[str]:
        """Return how many calls came to nothing, by the code of the last attempt of each."""
        at = index.find_halves((self.in_vain.high, self.in_vain.low))
        lost = index.with_status(at, LOST)
        at, codes = at[lost], self.in_vain.codes[lost]
        # Both in the order of the calls; then in that of their first attempts in vain.
        _, first = np.unique(at, return_index=True)
        _, last = np.unique(at[::-1], return_index=True)
        return _counted(codes[::-1][last][np.argsort(first)], self.names)


class AttemptReader:
    """Reads the attempts of a run again and again; files that were read before are not read once more."""

    def __init__(self) -> None:
        self._files: dict[Path, _Sums] = {}
        self._numbers: dict[str, int] = {}

    def read(self, folder: RunFolder) -> Attempts:
        """Return what the attempts that have ended came to."""
        paths, others = folder.ledger_parts(_COLUMNS)
        self._files = {path: self._files.get(path) or self._read(path) for path in paths}
        every = [*self._files.values(), self._sums(others)]
        times = np.concatenate([some.times for some in every])
        # As a table of all attempts has them: by time, and of one time in the order of the files.
        order = np.argsort(times, kind="stable")
        millis = np.concatenate([some.millis for some in every])
        told = [some.balance for some in every if some.balance is not None]
        return Attempts(
            _spending(times[order], millis[order]),
            audio_seconds=math.fsum(some.audio_seconds for some in every),
            # Of equal ones max() takes the first: the last file has the last word.
            balance=max(reversed(told), key=lambda said: said[0])[1] if told else None,
            in_vain=_joined([some.in_vain for some in every]),
            names=list(self._numbers),
        )

    def _read(self, path: Path) -> _Sums:
        return self._sums(read_ledger([path], _COLUMNS))

    def _sums(self, ledger: Any) -> _Sums:
        """Return the sums of attempts that are ordered by time."""
        import pyarrow.compute as pc

        told = ledger.filter(ledger.column("balance_after").is_valid())
        credits = np.nan_to_num(ledger.column("credits").to_numpy())
        return _Sums(
            ledger.column("time").to_numpy(),
            np.round(CREDIT * credits).astype(np.int64),
            float(pc.sum(ledger.column("audio_seconds")).as_py() or 0.0),
            balance=_last(told),
            in_vain=self._in_vain(ledger),
        )

    def _in_vain(self, ledger: Any) -> _InVain:
        import pyarrow.compute as pc

        rows = ledger.filter(pc.is_in(ledger.column("status"), pa.array(sorted(IN_VAIN))))
        codes = rows.column("error_code").fill_null(_NO_CODE).combine_chunks().dictionary_encode()
        names = codes.dictionary.to_pylist()
        numbers = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names], np.int64)
        return _InVain(
            rows.column("time").to_numpy(),
            *halves_of(rows.column("request_key")),
            numbers[np.asarray(codes.indices)],
        )


def _last(told: Any) -> tuple[np.datetime64, int] | None:
    if not told.num_rows:
        return None
    return told.column("time").to_numpy()[-1], told.column("balance_after")[-1].as_py()


def _joined(parts: Sequence[_InVain]) -> _InVain:
    columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return _InVain(*(column[order] for column in columns))


def _spending(times: Times, millis: Numbers) -> list[tuple[float, int]]:
    """Return some moments, the first and the last among them, and what was spent by then."""
    if not len(times):
        return []
    spent = np.cumsum(millis)
    chosen = np.unique(np.linspace(0, len(spent) - 1, POINTS).astype(np.int64))
    seconds = (times[chosen] - times[0]) / np.timedelta64(1, "s")
    return [(0.0, 0), *zip(seconds.tolist(), spent[chosen].tolist(), strict=True)]


def _counted(codes: Numbers, names: Sequence[str]) -> Counter[str]:
    """Return how many there are of each, what came first first."""
    found, first, counts = np.unique(codes, return_index=True, return_counts=True)
    order = np.argsort(first)
    return Counter(dict(zip([names[code] for code in found[order]], counts[order].tolist(), strict=True)))
