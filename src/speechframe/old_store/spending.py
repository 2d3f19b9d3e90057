"""The month's count: what every run of this user on this machine has spent or may spend, by key.

One SQLite file for all processes, one row a service, key, month and run. A
row is ``spent`` (for certain) plus ``held``: what a running process has taken
in advance and may spend. The sum over a key's rows never passes the limit of
its month, because more is held only in a transaction that looks at the sum
first. A process that is killed leaves what it held; that is an upper bound,
until the next start of that run says what its own ledger says
(:meth:`Spending.correct`). Rows of runs whose folders are gone keep counting:
the money was spent.

The file has a rollback journal instead of WAL: state folders lie on network
file systems too, where WAL does not work.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self, TypeVar

from speechframe.errors import StoreError
from speechframe.spec.billing import Millicredits, to_credits

T = TypeVar("T")

FILE_NAME = "spending.sqlite3"
LAYOUT = 1
BUSY_S = 10.0
"""How long a transaction of others may take: they are short, and calls in flight wait for this one."""

SHARE = 8
"""At most one part in so many of what is left is taken in advance: near the limit, no more than is needed."""

_SCHEMA = """
CREATE TABLE spending (
    service TEXT NOT NULL, key_fingerprint TEXT NOT NULL, month TEXT NOT NULL, run_id TEXT NOT NULL,
    spent_millis INTEGER NOT NULL DEFAULT 0, held_millis INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (service, key_fingerprint, month, run_id)
) WITHOUT ROWID
"""


def month_of(moment: datetime) -> str:
    """Return the calendar month of a moment, in UTC.

    Examples
    --------
    >>> from datetime import timedelta, timezone
    >>> month_of(datetime(2026, 12, 1, 0, 30, tzinfo=timezone(timedelta(hours=1))))
    '2026-11'
    """
    return moment.astimezone(UTC).strftime("%Y-%m")


@dataclass(frozen=True, slots=True)
class Account:
    """Whose count it is: a key of a service, in a month."""

    service: str
    key_fingerprint: str
    month: str


@dataclass(frozen=True, slots=True)
class MonthSpent:
    """What a key has spent in a month, on this machine, by this user.

    Attributes
    ----------
    account
        Service, fingerprint of the key, month.
    spent_millis
        Thousandths of a credit, for certain.
    held_millis
        What runs under way, or killed and not gone on with, may have spent beside it.
    runs
        How many runs there were.
    """

    account: Account
    spent_millis: Millicredits
    held_millis: Millicredits
    runs: int

    @property
    def credits(self) -> float:
        """Credits spent at most."""
        return to_credits(self.spent_millis + self.held_millis)


class Spending:
    """The count, open for this process. Thread-safe; a context manager that closes it.

    Parameters
    ----------
    folder
        Where the count lies; made when it is not there.
    busy_s
        Seconds to wait while other processes write.

    Raises
    ------
    StoreError
        When it cannot be used. So do all methods.

    Examples
    --------
    >>> import tempfile
    >>> key = Account("api.example.com", "0f3a", "2026-11")
    >>> with tempfile.TemporaryDirectory() as folder, Spending(Path(folder)) as spending:
    ...     spending.lease(key, "run-1", 900, limit=1000), spending.lease(key, "run-2", 200, limit=1000)
    (900, 0)
    """

    def __init__(self, folder: Path, *, busy_s: float = BUSY_S) -> None:
        self.path = folder / FILE_NAME
        self._lock = threading.Lock()
        with _named(self.path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Opened in one thread, used in another, never by two at once.
            self._connection = sqlite3.connect(
                self.path, timeout=busy_s, isolation_level=None, check_same_thread=False
            )
        try:
            with _named(self.path):
                # The journal's file stays: making and removing one costs a third of a transaction.
                self._connection.execute("PRAGMA journal_mode = PERSIST")
                layout = self._run(_layout)
            self._check_layout(layout)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock:
            self._connection.close()

    def lease(
        self,
        account: Account,
        run_id: str,
        needed: Millicredits,
        *,
        wanted: Millicredits = 0,
        limit: Millicredits | None,
    ) -> Millicredits:
        """Let a run spend more; return how much more, 0 where `needed` does not fit.

        Parameters
        ----------
        account, run_id
            Who spends.
        needed
            Thousandths of a credit, the least that is of use; more than 0.
        wanted
            What would save the run asking again soon. It gets that where plenty is left.
        limit
            Of the month, over all runs of the key; None counts without a limit.
        """

        def work(connection: sqlite3.Connection) -> Millicredits:
            granted = max(needed, wanted)
            if limit is not None:
                room = limit - _total(connection, account)
                granted = max(needed, min(wanted, room // SHARE)) if needed <= room else 0
            if granted:
                _add(connection, account, run_id, spent=0, held=granted)
            return granted

        return self._transaction(work)

    def settle(self, account: Account, run_id: str, *, spent: Millicredits, given_back: Millicredits) -> None:
        """Turn what a run held into what it spent, and give the rest back."""
        self._transaction(lambda c: _add(c, account, run_id, spent=spent, held=-spent - given_back))

    def correct(self, service: str, run_id: str, ledger: Mapping[tuple[str, str], Millicredits]) -> None:
        """Put what a run's own ledger says in place of its rows. Only while nobody drives that run.

        A ledger that says less than the run had spent for certain is not
        believed: it is that of an older copy of the folder, or was cut.

        Parameters
        ----------
        service, run_id
            The run.
        ledger
            (key fingerprint, month) to thousandths of a credit: all the run has ever spent.
        """

        def work(connection: sqlite3.Connection) -> None:
            where = "WHERE service = ? AND run_id = ?"
            known = {
                (fingerprint, month): spent
                for fingerprint, month, spent in connection.execute(
                    f"SELECT key_fingerprint, month, spent_millis FROM spending {where}",  # noqa: S608
                    (service, run_id),
                )
            }
            right = dict(ledger)
            if sum(right.values()) < sum(known.values()):
                right = {k: max(known.get(k, 0), ledger.get(k, 0)) for k in known | right}
            connection.execute(f"DELETE FROM spending {where}", (service, run_id))  # noqa: S608
            for (fingerprint, month), spent in right.items():
                if spent:
                    _add(connection, Account(service, fingerprint, month), run_id, spent=spent, held=0)

        self._transaction(work)

    def total(self, account: Account) -> Millicredits:
        """Return what all runs of a key have spent or hold in a month."""
        return self._transaction(lambda c: _total(c, account))

    def months(self, service: str | None = None) -> list[MonthSpent]:
        """Return what was spent, by service, month (the newest first) and key.

        Parameters
        ----------
        service
            Only this one.
        """

        def work(connection: sqlite3.Connection) -> list[MonthSpent]:
            rows = connection.execute(
                "SELECT service, key_fingerprint, month, SUM(spent_millis), SUM(held_millis), COUNT(*) "
                "FROM spending WHERE ?1 IS NULL OR service = ?1 "
                "GROUP BY service, key_fingerprint, month ORDER BY service, month DESC, key_fingerprint",
                (service,),
            ).fetchall()
            return [MonthSpent(Account(*names), spent, held, runs) for *names, spent, held, runs in rows]

        return self._transaction(work)

    def _check_layout(self, layout: int) -> None:
        if layout > LAYOUT:
            raise StoreError(
                f"{self.path} was made by a newer release (layout {layout}, this one knows {LAYOUT}); "
                "nothing was sent. Upgrade speechframe, or give another folder (SPEECHFRAME_LEDGER)."
            )

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, _named(self.path):
            return self._run(work)

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        # IMMEDIATE: who has looked at the sum is the only one that may add to it.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(self._connection)
            self._connection.execute("COMMIT")
        except BaseException:
            # A full disk has rolled it back already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return result


def _layout(connection: sqlite3.Connection) -> int:
    layout: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if layout == 0:
        connection.execute(_SCHEMA)
        connection.execute(f"PRAGMA user_version = {LAYOUT}")
    return layout


def _total(connection: sqlite3.Connection, account: Account) -> Millicredits:
    total: int = connection.execute(
        "SELECT COALESCE(SUM(spent_millis + held_millis), 0) FROM spending "
        "WHERE service = ? AND key_fingerprint = ? AND month = ?",
        (account.service, account.key_fingerprint, account.month),
    ).fetchone()[0]
    return total


def _add(
    connection: sqlite3.Connection, account: Account, run_id: str, *, spent: Millicredits, held: Millicredits
) -> None:
    connection.execute(
        "INSERT INTO spending VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (service, key_fingerprint, month, run_id) DO UPDATE SET "
        "spent_millis = spent_millis + excluded.spent_millis, "
        "held_millis = held_millis + excluded.held_millis",
        (account.service, account.key_fingerprint, account.month, run_id, spent, held),
    )


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn what fails in the block into a StoreError that says what to do."""
    try:
        yield
    except (sqlite3.Error, OSError, OverflowError) as error:
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode & 0xFF in {
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
        }:
            hint = "another process has held it for long: run again, and if that stays so, end that process"
        elif isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            hint = "it is damaged: move it away, and each run that goes on counts again what it has spent"
        else:
            hint = "make the folder writable and make room, or give another one (SPEECHFRAME_LEDGER)"
        raise StoreError(
            f"{path}, the count of what was spent this month, cannot be used ({error}); "
            f"nothing more is sent. {hint[0].upper()}{hint[1:]}."
        ) from error
