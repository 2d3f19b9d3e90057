"""Shares that runs were allotted of common budgets, in a small SQLite file that processes share."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import StoreError
from speechframe.settings.spending import BudgetRule
from speechframe.store.folder import Folder
from speechframe.store.ledger import AMOUNTS, ATTEMPTS, billed_millis, scan

FILE = "budgets.sqlite3"
BUSY_S = 10.0
"""Seconds to wait for another process that writes. A write takes milliseconds."""

SHARE, SHARE_OF_SOFT = 20, 100
"""A run takes one part in so many of the rest of a budget at a time, instead of the price of each call. So
the file is written some hundred times at most. A budget without a hard limit gives a smaller part, of the
whole."""

_PUT = (
    "INSERT INTO allotted VALUES (?, ?, ?, ?) "
    "ON CONFLICT (budget, period, run) DO UPDATE SET millicredits = {}"
)
_ADD = _PUT.format("millicredits + excluded.millicredits")

COLUMNS = ("time", *AMOUNTS, "tags", "run_id", "service", "key_fingerprint")
"""Columns of the ledger that decide which budgets an attempt counts towards."""


class Allotments:
    """How much each run was allotted of each budget in each period, in thousandths of a credit.

    A process that is killed keeps all of its allotment, so a sum is never too low, until :meth:`correct`.
    A period is named by its first day.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.path = folder / FILE
        self._run = run

    def correct(self, budget: str, spent: Mapping[date, int]) -> None:
        """Replace the allotments of this run by its spending, by period."""
        with self._transaction() as file:
            file.execute("DELETE FROM allotted WHERE budget = ? AND run = ?", (budget, self._run))
            rows = ((budget, str(period), self._run, amount) for period, amount in spent.items())
            file.executemany("INSERT INTO allotted VALUES (?, ?, ?, ?)", rows)

    def learn(self, budget: str, period: date, spent: Mapping[str, int]) -> None:
        """Raise allotments of other runs to their spending by the ledger, if that is more."""
        others = ((budget, str(period), run, amount) for run, amount in spent.items() if run != self._run)
        with self._transaction() as file:
            file.executemany(_PUT.format("MAX(millicredits, excluded.millicredits)"), others)

    def is_known(self, budget: str, period: date) -> bool:
        """Return whether any run was allotted something."""
        return self._read(budget, period) is not None

    def allot(
        self, budget: str, period: date, needed: int, *, limit: int, hard: bool = True
    ) -> tuple[int, int]:
        """Allot `needed` or somewhat more. Return the allotted amount, and the total of all runs.

        The amount is 0 if `needed` would pass a limit that is `hard`.
        """
        with self._transaction() as file:
            total = _sum(file, budget, period) or 0
            if hard and needed > limit - total:
                return 0, total
            more = (limit - total) // SHARE if hard else max(limit, total) // SHARE_OF_SOFT
            amount = max(needed, more)
            file.execute(_ADD, (budget, str(period), self._run, amount))
            return amount, total + amount

    def give_back(self, budget: str, period: date, amount: int) -> None:
        """Reduce the allotment of this run by an amount that it will not spend."""
        with self._transaction() as file:
            file.execute(_ADD, (budget, str(period), self._run, -amount))

    def total(self, budget: str, period: date) -> int:
        """Return the allotments of all runs together."""
        return self._read(budget, period) or 0

    def _read(self, budget: str, period: date) -> int | None:
        """Return the sum of all runs, without waiting for a process that is about to write."""
        with self._opened() as file:
            file.execute("PRAGMA query_only = ON")
            is_there = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'allotted'").fetchone()
            return _sum(file, budget, period) if is_there else None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open the file, or make it, for one transaction, which no other process can interrupt."""
        with self._opened() as file:
            file.execute("BEGIN IMMEDIATE")
            file.execute(
                "CREATE TABLE IF NOT EXISTS allotted (budget TEXT, period TEXT, run TEXT, "
                "millicredits INTEGER, PRIMARY KEY (budget, period, run)) WITHOUT ROWID"
            )
            yield file
            file.execute("COMMIT")

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file, or make an empty one."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A rollback journal, not WAL, which does not work on network file systems.
            with closing(sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)) as file:
                yield file
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise StoreError(
                f"{self.path}, the count of what budgets have left, cannot be used ({error}); nothing more "
                "is sent. Make its folder writable and make room, or name another (SPEECHFRAME_LEDGER); a "
                "damaged file can be moved away: it is counted anew from the ledger."
            ) from error


def _sum(file: sqlite3.Connection, budget: str, period: date) -> int | None:
    """Return the allotments of all runs together, or None if there are none."""
    wanted = "SELECT SUM(millicredits) FROM allotted WHERE budget = ? AND period = ?"
    found: int | None = file.execute(wanted, (budget, str(period))).fetchone()[0]
    return found


def begin_of(rules: Iterable[BudgetRule], unix_time: float) -> datetime | None:
    """Return the start of the earliest period around a time, or None if a period has no start."""
    first = min((rule.start(unix_time) for rule in rules), default=date.min)
    return None if first == date.min else datetime.combine(first, time(), UTC)


class LedgerSums:
    """Spending of runs by the ledger, for some budgets, from the current period on.

    Each file of the ledger is read once, because files never change.
    """

    def __init__(self, ledger: Folder, rules: Sequence[BudgetRule], unix_time: float) -> None:
        self._ledger, self._rules, self._start = ledger, rules, begin_of(rules, unix_time)
        self._read: set[str] = set()
        self._spent: list[Counter[tuple[date, str]]] = [Counter() for _ in rules]

    def read(self) -> None:
        """Read the new files. Raise StoreError if that fails."""
        files = [name for name in self._ledger.names(ATTEMPTS) if name not in self._read]
        for batch in scan(self._ledger, COLUMNS, self._start, files=files) if self._rules else ():
            for rule, sums in zip(self._rules, self._spent, strict=True):
                sums.update(spent_in(rule, batch))
        self._read.update(files)

    def of(self, rule: BudgetRule, period: date) -> dict[str, int]:
        """Return the spending of each run from a budget in a period, in thousandths of a credit."""
        sums = self._spent[self._rules.index(rule)]
        return {run: spent for (start, run), spent in sums.items() if start == period}


def spent_in(rule: BudgetRule, attempts: Any) -> Counter[tuple[date, str]]:
    """Return the cost of attempts to a budget, in thousandths of a credit, by period and run.

    Parameters
    ----------
    rule
        The budget.
    attempts
        Rows of the ledger with :data:`COLUMNS`, as a table or a batch.
    """
    chosen: Any = attempts
    for name, value in rule.match.items():
        tag = pc.map_lookup(chosen.column("tags"), pa.scalar(name), "last")
        chosen = chosen.filter(pc.equal(tag, pa.scalar(value)))
    if rule.account is not None:
        for name, value in zip(("service", "key_fingerprint"), rule.account, strict=True):
            chosen = chosen.filter(pc.equal(chosen.column(name), pa.scalar(value)))
    days: Any = pc.floor_temporal(chosen.column("time"), unit="day")
    sums = pa.table(
        {
            "day": pc.cast(days, pa.date32(), safe=False),
            "run": chosen.column("run_id"),
            "millis": billed_millis(chosen),
        }
    )
    found: Counter[tuple[date, str]] = Counter()
    for row in sums.group_by(["day", "run"]).aggregate([("millis", "sum")]).to_pylist():
        noon = datetime.combine(row["day"], time(12), UTC).timestamp()
        found[rule.start(noon), str(row["run"])] += row["millis_sum"]
    return found
