"""Count the spending of budgets that many runs share, in one small SQLite file.

A run is allotted an amount of a budget before it spends. No amount is allotted that would make the sum over
all runs exceed a hard budget.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from speechframe.errors import StoreError
from speechframe.settings.spending import BudgetRule
from speechframe.store.folder import Folder
from speechframe.store.ledger import (
    AMOUNT_COLUMNS,
    ATTEMPTS_FOLDER,
    compute_billed_millicredits,
    make_time_filter,
    read_attempts,
)
from speechframe.store.open_runs import find_open_attempts

BUDGETS_FILE = "budgets.sqlite3"
MAX_BUSY_S = 10.0
"""Longest wait in seconds while another process writes to the file. A write takes milliseconds."""

REST_DIVISOR, SOFT_BUDGET_DIVISOR = 20, 100
"""Divisors for the amount that a run is allotted at a time. Of a hard budget a run gets 1/`REST_DIVISOR` of
what is left. Of a soft budget, which may be exceeded, a run gets 1/`SOFT_BUDGET_DIVISOR` of the whole. An
amount per call would mean a write to the file for each call. With these shares a run writes a few hundred
times at most."""

_UPSERT = (
    "INSERT INTO allotted VALUES (?, ?, ?, ?) "
    "ON CONFLICT (budget, period, run) DO UPDATE SET millicredits = {}"
)
_UPSERT_SUM = _UPSERT.format("millicredits + excluded.millicredits")

_TABLE_DEFINITIONS = (
    "allotted (budget TEXT, period TEXT, run TEXT, millicredits INTEGER, PRIMARY KEY (budget, period, run))",
    "counted (budget TEXT, period TEXT, PRIMARY KEY (budget, period))",
)

BUDGET_COLUMNS = ("time", *AMOUNT_COLUMNS, "tags", "run_id", "service", "key_fingerprint")
"""Columns of the ledger (the table of attempts) that decide how much an attempt counts in which budgets."""


class Allowance:
    """The amount of a shared budget that is allotted to a run, in thousandths of a credit.

    The allotted amount has three parts: spent, `reserved` for calls under way, and `free`. The file has the
    allotment of each run in each period, which is named by its first day. The allotment of a killed process
    stays, so the sum of a budget is never too low. :meth:`correct_allotments` reduces the allotment to what
    the run has spent.
    """

    def __init__(self, rule: BudgetRule, folder: Path, run: str, clock: Callable[[], float]) -> None:
        self.rule, self.path, self._run, self._clock = rule, folder / BUDGETS_FILE, run, clock
        self._id, self.period = rule.id, rule.find_period_start(clock())
        self.reserved = self.free = self._total = 0
        self._reserved_before = 0  # the part of `reserved` that counts in earlier periods
        # Periods that this process has seen in the file. If the file lacks one of them later, somebody has
        # moved the file away.
        self._seen: set[date] = set()

    @property
    def used(self) -> int:
        """Amount allotted to all runs in this period when last read, less the free amount of this run."""
        return self._total - self.free

    def compute_left(self) -> int:
        """Return the amount of the budget that this run could still reserve."""
        allotted = self.sum_allotments(self.rule.find_period_start(self._clock()))
        return self.rule.millicredits - allotted + self.free

    def allot(self, price: int) -> bool:
        """Allot more of the budget to this run if needed. Return whether the free amount covers `price`.

        Nothing is allotted if this would exceed a hard budget, otherwise the missing amount or somewhat more.
        StoreError is raised if the file was moved away.
        """
        if (period := self.rule.find_period_start(self._clock())) != self.period:
            # A call under way counts in the period in which its price was reserved.
            self.close()
            self.period, self._reserved_before, self._total = period, self.reserved, 0
        if (needed := price - self.free) > 0:
            limit, hard, amount = self.rule.millicredits, self.rule.hard, 0
            with self._open_transaction() as file:
                self._check_file(file)
                total = self._read_total(file, period)
                if not hard or needed <= limit - total:
                    usual = (
                        (limit - total) // REST_DIVISOR if hard else max(limit, total) // SOFT_BUDGET_DIVISOR
                    )
                    amount = max(needed, usual)
                    file.execute(_UPSERT_SUM, (self._id, str(period), self._run, amount))
                    self._seen.add(period)
            self._total, self.free = total + amount, self.free + amount
        return price <= self.free

    def reserve(self, price: int) -> None:
        """Reserve `price`. Call only after `allot(price)` returned True."""
        self.free -= price
        self.reserved += price

    def settle(self, reserved: int, cost: int) -> None:
        """Replace the reserved price of a call by the cost of the call."""
        self.reserved -= reserved
        before = min(reserved, self._reserved_before)
        self._reserved_before -= before
        self.free += reserved - before - max(0, cost - before)

    def close(self) -> None:
        """Give the free amount back to the budget. Amounts that are still reserved stay counted."""
        if self.free:
            with self._open_transaction() as file:
                file.execute(_UPSERT_SUM, (self._id, str(self.period), self._run, -self.free))
        self.free = 0

    def correct_allotments(self, spent: Mapping[date, int]) -> None:
        """Replace the run's allotment by its spending in each period."""
        with self._open_transaction() as file:
            file.execute("DELETE FROM allotted WHERE budget = ? AND run = ?", (self._id, self._run))
            rows = ((self._id, str(period), self._run, amount) for period, amount in spent.items())
            file.executemany("INSERT INTO allotted VALUES (?, ?, ?, ?)", rows)

    def learn_spending(self, spent: Mapping[str, int]) -> None:
        """Raise the allotment of each other run to at least its spending in the ledger, which is `spent`.

        Then mark the budget as counted in this period.
        """
        period = str(self.period)
        others = ((self._id, period, run, amount) for run, amount in spent.items() if run != self._run)
        with self._open_transaction() as file:
            file.executemany(_UPSERT.format("MAX(millicredits, excluded.millicredits)"), others)
            file.execute("INSERT OR IGNORE INTO counted VALUES (?, ?)", (self._id, period))
        self._seen.add(self.period)

    def is_counted(self) -> bool:
        """Return whether the file already includes the ledger's spending of the budget in this period.

        If so, this object remembers the period as seen.
        """
        with self._open_file() as file:
            wanted = "SELECT 1 FROM counted WHERE budget = ? AND period = ?"
            is_counted = file.execute(wanted, (self._id, str(self.period))).fetchone() is not None
        if is_counted:
            self._seen.add(self.period)
        return is_counted

    def sum_allotments(self, period: date) -> int:
        """Return the sum of the allotments of all runs in a period."""
        with self._open_file() as file:
            return self._read_total(file, period)

    def _read_total(self, file: sqlite3.Connection, period: date) -> int:
        wanted = "SELECT COALESCE(SUM(millicredits), 0) FROM allotted WHERE budget = ? AND period = ?"
        found: int = file.execute(wanted, (self._id, str(period))).fetchone()[0]
        return found

    def _check_file(self, file: sqlite3.Connection) -> None:
        """Raise StoreError if the file lacks this period, although this process has seen it in the file."""
        wanted = (
            "SELECT 1 FROM counted WHERE budget = ?1 AND period = ?2 UNION "
            "SELECT 1 FROM allotted WHERE budget = ?1 AND period = ?2 AND run = ?3"
        )
        if self.period not in self._seen:
            return
        if file.execute(wanted, (self._id, str(self.period), self._run)).fetchone() is None:
            raise StoreError(
                f"{self.path}, which counts budgets, was moved away while this run went on: resume the run, "
                "and the file is made anew from the ledger"
            )

    @contextmanager
    def _open_transaction(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction. No other process can write to the file meanwhile."""
        with self._open_file() as file:
            file.execute("BEGIN IMMEDIATE")
            yield file
            file.execute("COMMIT")

    @contextmanager
    def _open_file(self) -> Iterator[sqlite3.Connection]:
        """Open the file, or create it with empty tables. Raise StoreError if the file is unusable."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Keep SQLite's default, a rollback journal. Its other mode, WAL, fails on network file systems.
            with closing(sqlite3.connect(self.path, timeout=MAX_BUSY_S, isolation_level=None)) as file:
                # With the tables present, this neither writes nor waits for other processes.
                for table in _TABLE_DEFINITIONS:
                    file.execute(f"CREATE TABLE IF NOT EXISTS {table} WITHOUT ROWID")
                yield file
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise StoreError(
                f"{self.path}, the file that counts budgets, cannot be used ({error}); nothing more is sent. "
                "Make its folder writable and free disk space, or name another folder (SPEECHFRAME_LEDGER). "
                "Move a damaged file away while no run is under way: it is made anew from the ledger."
            ) from error


def find_earliest_start(rules: Iterable[BudgetRule], unix_time: float) -> datetime | None:
    """Return the start of the earliest current period of these budgets.

    Return None if a budget has no periods, or if there are no budgets.
    """
    first = min((rule.find_period_start(unix_time) for rule in rules), default=date.min)
    return None if first == date.min else datetime.combine(first, time(), UTC)


class LedgerSums:
    """The spending of all runs in some budgets, read from the ledger, from the current period on.

    The journals of runs that are under way or were killed count, too. An attempt without an end counts with
    its price, because it may have been billed. Each file of the ledger is read only once, because files never
    change.
    """

    def __init__(self, ledger: Folder, rules: Sequence[BudgetRule], unix_time: float) -> None:
        self._ledger, self._rules, self._start = ledger, rules, find_earliest_start(rules, unix_time)
        self._read: set[str] = set()
        self._in_files, self._in_journals = self._sum(()), self._sum(())

    def read(self) -> None:
        """Read the new files of the ledger and all journals. Raise StoreError if a file cannot be read."""
        if not self._rules:
            return
        # Read the journals before the files. An attempt that leaves a journal meanwhile is then found in a
        # file.
        open_runs = [*find_open_attempts(self._ledger)]
        names = self._ledger.list_names(ATTEMPTS_FOLDER)
        files = [name for name in names if name not in self._read]
        in_files = read_attempts(self._ledger, BUDGET_COLUMNS, self._start, files=files)
        self._in_files.update(self._sum(in_files))  # `+=` would drop negative sums, which are refunds
        self._read.update(files)
        in_journals = [
            batch
            for run in open_runs
            for batch in (run.under_way, *(run.ended[name] for name in run.ended.keys() - {*names}))
        ]
        time_filter = make_time_filter(self._start, None)
        self._in_journals = self._sum(batch.filter(time_filter) for batch in in_journals)

    def _sum(self, batches: Iterable[pa.RecordBatch]) -> Counter[tuple[str, date, str]]:
        """Return the spending in some attempts by budget, period and run."""
        found: Counter[tuple[str, date, str]] = Counter()
        for batch in batches:
            for rule in self._rules:
                found.update({(rule.id, *key): spent for key, spent in sum_spending(rule, batch).items()})
        return found

    def get_spending(self, rule: BudgetRule, period: date) -> dict[str, int]:
        """Return the spending of each run in a budget and period, in thousandths of a credit."""
        sums, wanted = self._in_files + self._in_journals, (rule.id, period)
        return {run: spent for (*of_budget, run), spent in sums.items() if (*of_budget,) == wanted}


def sum_spending(rule: BudgetRule, attempts: Any) -> Counter[tuple[date, str]]:
    """Return the cost of the attempts that count in a budget, in thousandths of a credit, by period and run.

    Parameters
    ----------
    rule
        The budget.
    attempts
        Rows of the ledger with :data:`BUDGET_COLUMNS`, as a table or a batch.
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
            "millis": compute_billed_millicredits(chosen),
        }
    )
    found: Counter[tuple[date, str]] = Counter()
    for row in sums.group_by(["day", "run"]).aggregate([("millis", "sum")]).to_pylist():
        noon = datetime.combine(row["day"], time(12), UTC).timestamp()
        found[rule.find_period_start(noon), str(row["run"])] += row["millis_sum"]
    return found
