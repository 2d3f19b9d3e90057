"""What the runs of a key may spend this month: one small SQLite file for each key, shared by processes."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path

from speechframe.errors import StoreError

BUSY_S = 10.0
"""Seconds to wait while another process writes; it writes for milliseconds."""


def month_of(unix_time: float) -> str:
    """Return the calendar month of a time in UTC, such as ``2026-11``."""
    return datetime.fromtimestamp(unix_time, UTC).strftime("%Y-%m")


class MonthFile:
    """How much each run of a key was allotted in each month, in thousandths of a credit.

    A process that is killed keeps all of its allotment, so the sum is never too low, until :meth:`correct`.
    `account` tells this key of this service from others, without being the key; `run` is the run's id.
    """

    def __init__(self, folder: Path, account: str, run: str) -> None:
        self.path = folder / f"{blake2b(account.encode(), digest_size=16).hexdigest()}.sqlite3"
        self._run = run

    def correct(self, spent: Mapping[str, int]) -> None:
        """Replace what the run was allotted by what it has spent, by month."""
        with self._transaction() as file:
            file.execute("DELETE FROM allotted WHERE run = ?", (self._run,))
            rows = ((month, self._run, amount) for month, amount in spent.items())
            file.executemany("INSERT INTO allotted VALUES (?, ?, ?)", rows)

    def allot(self, month: str, needed: int, *, limit: int, share: int = 1) -> int:
        """Allot `needed` of the month's `limit`, or one part in `share` of what is left; return how much."""
        with self._transaction() as file:
            left = limit - self._total(file, month)
            if needed > left:
                return 0
            amount = max(needed, left // share) if share > 1 else needed
            self._add(file, month, amount)
            return amount

    def give_back(self, month: str, amount: int) -> None:
        """Take from what the run was allotted what it will not spend."""
        with self._transaction() as file:
            self._add(file, month, -amount)

    def total(self, month: str) -> int:
        """Return what all runs of the key were allotted."""
        with self._transaction() as file:
            return self._total(file, month)

    def _total(self, file: sqlite3.Connection, month: str) -> int:
        rows = file.execute("SELECT COALESCE(SUM(millicredits), 0) FROM allotted WHERE month = ?", (month,))
        return int(rows.fetchone()[0])

    def _add(self, file: sqlite3.Connection, month: str, amount: int) -> None:
        file.execute(
            "INSERT INTO allotted VALUES (?, ?, ?) "
            "ON CONFLICT (month, run) DO UPDATE SET millicredits = millicredits + excluded.millicredits",
            (month, self._run, amount),
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
                    "CREATE TABLE IF NOT EXISTS allotted (month TEXT, run TEXT, millicredits INTEGER, "
                    "PRIMARY KEY (month, run)) WITHOUT ROWID"
                )
                yield file
                file.execute("COMMIT")
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise StoreError(
                f"{self.path}, the count of what this key has spent this month, cannot be used ({error}); "
                "nothing more is sent. Make its folder writable and make room, or name another folder "
                "(SPEECHFRAME_LEDGER); a damaged file can be moved away: each run that goes on counts anew."
            ) from error
