"""What each run was allotted of budgets over many runs: one small SQLite file, shared by processes."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import StoreError
from speechframe.settings.budgets import BudgetRule
from speechframe.store.folder import Folder
from speechframe.store.ledger import ATTEMPTS, scan

FILE = "budgets.sqlite3"
BUSY_S = 10.0
"""Seconds to wait while another process writes; it writes for milliseconds."""

SHARE, SHARE_OF_SOFT = 20, 100
"""A run takes one part in so many of what is left of a budget at a time, instead of each call's price: the
file is written some hundred times at most. Of one that is only counted it takes less, of all of it."""

COLUMNS = ("time", "credits", "tags", "run_id", "service", "key_fingerprint")
"""Of the ledger: what tells which budgets an attempt counts in."""


class Allotments:
    """How much each run was allotted of each budget in each period, in thousandths of a credit.

    A process that is killed keeps all of its allotment, so a sum is never too low, until :meth:`correct`.
    A period is named by its first day.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.path = folder / FILE
        self._run = run

    def correct(self, budget: str, spent: Mapping[date, int]) -> None:
        """Replace what the run was allotted by what it has spent, by period."""
        with self._transaction() as file:
            file.execute("DELETE FROM allotted WHERE budget = ? AND run = ?", (budget, self._run))
            rows = ((budget, str(period), self._run, amount) for period, amount in spent.items())
            file.executemany("INSERT INTO allotted VALUES (?, ?, ?, ?)", rows)

    def learn(self, budget: str, period: date, spent: Mapping[str, int]) -> None:
        """Count what runs have spent by the ledger, where this file knows of less."""
        with self._transaction() as file:
            file.executemany(
                "INSERT INTO allotted VALUES (?, ?, ?, ?) ON CONFLICT (budget, period, run) "
                "DO UPDATE SET millicredits = MAX(millicredits, excluded.millicredits)",
                ((budget, str(period), run, amount) for run, amount in spent.items() if run != self._run),
            )

    def is_known(self, budget: str, period: date) -> bool:
        """Return whether any run was allotted something."""
        with self._transaction() as file:
            wanted = "SELECT 1 FROM allotted WHERE budget = ? AND period = ? LIMIT 1"
            return file.execute(wanted, (budget, str(period))).fetchone() is not None

    def allot(
        self, budget: str, period: date, needed: int, *, limit: int, hard: bool = True
    ) -> tuple[int, int]:
        """Allot what is `needed` or somewhat more; return how much, and the total.

        Nothing where it would pass a limit that is `hard`.
        """
        with self._transaction() as file:
            total = self._total(file, budget, period)
            if hard and needed > limit - total:
                return 0, total
            more = (limit - total) // SHARE if hard else max(limit, total) // SHARE_OF_SOFT
            amount = max(needed, more)
            self._add(file, budget, period, amount)
            return amount, total + amount

    def give_back(self, budget: str, period: date, amount: int) -> None:
        """Take from what the run was allotted what it will not spend."""
        with self._transaction() as file:
            self._add(file, budget, period, -amount)

    def total(self, budget: str, period: date) -> int:
        """Return what all runs were allotted."""
        with self._transaction() as file:
            return self._total(file, budget, period)

    def _total(self, file: sqlite3.Connection, budget: str, period: date) -> int:
        wanted = "SELECT COALESCE(SUM(millicredits), 0) FROM allotted WHERE budget = ? AND period = ?"
        return int(file.execute(wanted, (budget, str(period))).fetchone()[0])

    def _add(self, file: sqlite3.Connection, budget: str, period: date, amount: int) -> None:
        file.execute(
            "INSERT INTO allotted VALUES (?, ?, ?, ?) ON CONFLICT (budget, period, run) "
            "DO UPDATE SET millicredits = millicredits + excluded.millicredits",
            (budget, str(period), self._run, amount),
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open the file, or make it, for one transaction, which no other process can interrupt."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A rollback journal, not WAL, which does not work on network file systems.
            with closing(sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)) as file:
                file.execute("BEGIN IMMEDIATE")
                file.execute(
                    "CREATE TABLE IF NOT EXISTS allotted (budget TEXT, period TEXT, run TEXT, "
                    "millicredits INTEGER, PRIMARY KEY (budget, period, run)) WITHOUT ROWID"
                )
                yield file
                file.execute("COMMIT")
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise StoreError(
                f"{self.path}, the count of what budgets have left, cannot be used ({error}); nothing more "
                "is sent. Make its folder writable and make room, or name another (SPEECHFRAME_LEDGER); a "
                "damaged file can be moved away: it is counted anew from the ledger."
            ) from error


class LedgerSums:
    """What runs have spent of some budgets by the ledger, from the period of today on.

    A file of the ledger is read once: it never changes.
    """

    def __init__(self, ledger: Folder, rules: Sequence[BudgetRule], unix_time: float) -> None:
        self._ledger, self._rules = ledger, rules
        self._read: set[str] = set()
        self._spent: list[Counter[tuple[date, str]]] = [Counter() for _ in rules]
        first = min((rule.start(unix_time) for rule in rules), default=date.max)
        self._start = None if first == date.min else datetime.combine(first, time(), UTC)

    def read(self) -> None:
        """Read the files that are new; StoreError where that cannot be done."""
        files = [name for name in self._ledger.names(ATTEMPTS) if name not in self._read]
        for batch in scan(self._ledger, COLUMNS, self._start, files=files) if self._rules else ():
            for rule, sums in zip(self._rules, self._spent, strict=True):
                sums.update(spent_in(rule, batch))
        self._read.update(files)

    def of(self, rule: BudgetRule, period: date) -> dict[str, int]:
        """Return by run what was spent of a budget in a period, in thousandths of a credit."""
        sums = self._spent[self._rules.index(rule)]
        return {run: spent for (start, run), spent in sums.items() if start == period}


def spent_in(rule: BudgetRule, attempts: Any) -> dict[tuple[date, str], int]:
    """Return what attempts cost a budget, in thousandths of a credit, by period and run.

    Parameters
    ----------
    rule
        The budget.
    attempts
        Rows of the ledger with :data:`COLUMNS`, as a table or a batch.
    """
    counts: Any = pc.is_finite(pc.fill_null(attempts.column("credits"), pa.scalar(np.nan)))
    for name, value in rule.match.items():
        tag: Any = pc.map_lookup(attempts.column("tags"), pa.scalar(name), "last")
        counts = pc.and_(counts, pc.fill_null(pc.equal(tag, pa.scalar(value)), pa.scalar(False)))
    if rule.account is not None:
        for name, value in zip(("service", "key_fingerprint"), rule.account, strict=True):
            same: Any = pc.equal(attempts.column(name), pa.scalar(value))
            counts = pc.and_(counts, pc.fill_null(same, pa.scalar(False)))
    chosen: Any = attempts.filter(counts)
    chosen = pa.table(
        {
            "day": pc.cast(pc.floor_temporal(chosen.column("time"), unit="day"), pa.date32(), safe=False),
            "run": chosen.column("run_id"),
            "millis": pc.cast(pc.round(pc.multiply(chosen.column("credits"), pa.scalar(1000.0))), pa.int64()),
        }
    )
    found: dict[tuple[date, str], int] = {}
    for row in chosen.group_by(["day", "run"]).aggregate([("millis", "sum")]).to_pylist():
        noon = datetime.combine(row["day"], time(12), UTC).timestamp()
        place = rule.start(noon), str(row["run"])
        found[place] = found.get(place, 0) + row["millis_sum"]
    return found
