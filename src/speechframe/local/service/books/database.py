"""The service's SQLite file, with one thread that writes and one thread that reads.

Every use is one transaction. Writes begin with ``BEGIN IMMEDIATE``, so that two service processes with the
same data folder wait for each other instead of failing half-way. Reads see a consistent snapshot, and wait
for no writer. A read sees all writes that its caller has awaited.

The file is in WAL mode with ``synchronous=NORMAL``. Committed writes survive a kill -9 of the process. A
power cut may lose the last writes, but the file stays consistent.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from speechframe.errors import SettingsError
from speechframe.spec import chosen

log = logging.getLogger("speechframe.service")

T = TypeVar("T")

FILE_NAME = "service.sqlite3"
"""Name of the file in the data folder."""
LAYOUT_NUMBER = 2
"""Number of the table layout, stored as ``user_version``."""
BUSY_TIMEOUT_S = 30.0
"""Seconds to wait for another process that holds the file."""
_OPEN_RETRY_S = 0.01
"""Seconds between two attempts to open the file."""

# Tables of layout 1.
SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE keys (
    key_hash BLOB PRIMARY KEY, quota_millis INTEGER NOT NULL, seen_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE usage (
    key_hash BLOB NOT NULL, cycle TEXT NOT NULL, used_millis INTEGER NOT NULL,
    PRIMARY KEY (key_hash, cycle)
) WITHOUT ROWID;
CREATE TABLE owners (owner TEXT PRIMARY KEY, pid INTEGER NOT NULL, seen_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE reservations (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, key_hash BLOB NOT NULL, cycle TEXT NOT NULL,
    millis INTEGER NOT NULL, idempotency BLOB, body_hash BLOB, made_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX reservations_by_key ON reservations (key_hash);
CREATE TABLE idempotency (
    key_hash BLOB NOT NULL, idempotency BLOB NOT NULL, body_hash BLOB NOT NULL,
    status INTEGER NOT NULL, billed_millis INTEGER NOT NULL, made_at REAL NOT NULL,
    PRIMARY KEY (key_hash, idempotency)
) WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (made_at);
CREATE TABLE tokens (
    token_hash BLOB PRIMARY KEY, key_hash BLOB NOT NULL, expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE shelf (
    id TEXT PRIMARY KEY, file_name TEXT NOT NULL, content_type TEXT NOT NULL,
    size INTEGER NOT NULL, made_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX shelf_by_age ON shelf (made_at);
"""

BILLED_SCHEMA = """
CREATE TABLE IF NOT EXISTS billed (
    key_hash BLOB NOT NULL, day TEXT NOT NULL, operation TEXT NOT NULL, millis INTEGER NOT NULL,
    PRIMARY KEY (key_hash, day, operation)
) WITHOUT ROWID
"""
"""Billed thousandths of a credit, for each key, UTC day of the settlement, and operation."""

DUBBING_SCHEMA = """
CREATE TABLE IF NOT EXISTS dub_projects (
    number INTEGER PRIMARY KEY AUTOINCREMENT, project_id TEXT NOT NULL UNIQUE,
    key_hash BLOB NOT NULL, project TEXT NOT NULL, used_at REAL
);
CREATE INDEX IF NOT EXISTS dub_projects_by_key ON dub_projects (key_hash);
CREATE TABLE IF NOT EXISTS dubs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL UNIQUE, key_hash BLOB NOT NULL,
    idempotency BLOB, body_hash BLOB, made_at REAL NOT NULL, priority TEXT NOT NULL,
    link TEXT NOT NULL UNIQUE, status TEXT NOT NULL, owner TEXT, job TEXT NOT NULL, expires_at REAL
);
CREATE INDEX IF NOT EXISTS dubs_by_owner ON dubs (owner, status);
CREATE INDEX IF NOT EXISTS dubs_by_idempotency ON dubs (key_hash, idempotency);
CREATE INDEX IF NOT EXISTS dubs_waiting ON dubs (key_hash) WHERE status IN ('QUEUED', 'IN_PROGRESS');
CREATE INDEX IF NOT EXISTS dubs_failed ON dubs (key_hash) WHERE status = 'FAILED';
CREATE TABLE IF NOT EXISTS dub_turns (
    key_hash BLOB PRIMARY KEY, turn INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS webhooks (
    id TEXT PRIMARY KEY, url TEXT NOT NULL, secret TEXT, body BLOB NOT NULL,
    tries INTEGER NOT NULL, due_at REAL NOT NULL
) WITHOUT ROWID
"""
"""Projects, jobs, the last turn of each key, and webhooks to deliver.

A turn is the number of a start: the key whose turn is the smallest starts the next job. The secret of a
webhook is stored in plain text, because the service signs with it. The column
``job`` contains the whole job (:class:`speechframe.local.service.dubbing.jobs.JobRow`). ``owner`` is the
service process whose worker does the job. ``expires_at`` is NULL until the job ends.
"""

_ADDED_COLUMNS = (
    ("dub_projects", "used_at", "UPDATE dub_projects SET used_at = CAST(strftime('%s', 'now') AS REAL)"),
    (
        "dubs",
        "expires_at",
        f"""UPDATE dubs SET expires_at = json_extract(job, '$.ended_at') +
        CASE WHEN json_extract(job, '$.project_id') IS NULL
        THEN {chosen.DUB_LINK_LIFETIME_SECONDS} ELSE {chosen.PROJECT_JOB_LIFETIME_SECONDS} END
        WHERE CASE WHEN json_valid(job) THEN status NOT IN ('QUEUED', 'IN_PROGRESS') END""",  # noqa: S608 - figures of ours
    ),
)
"""Columns that files of earlier releases lack: table, column, and the statement that fills the column."""
# Index for the search for expired jobs.
_EXPIRY_INDEX = "CREATE INDEX IF NOT EXISTS dubs_by_expiry ON dubs (expires_at) WHERE expires_at IS NOT NULL"

WEBHOOK_KEY_UPGRADE = """
ALTER TABLE webhooks ADD COLUMN key_hash BLOB NOT NULL DEFAULT x'';
CREATE INDEX webhooks_by_key ON webhooks (key_hash, due_at)
"""
"""Change from layout 1 to 2: each webhook stores the key of its job. Older webhooks get an empty key."""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file for reading and writing. Create a missing file, and upgrade an older one.

    Raises
    ------
    SettingsError
        The folder cannot be written, the file is not a database of the service, or a newer release made it.
    """
    try:
        connection, layout = _open_prepared(path)
    except sqlite3.Error as error:
        raise SettingsError(
            f"{path} cannot be used: {error}. The service keeps balances and audio there; give another "
            "folder (--data, SPEECHFRAME_SERVICE), or move the file away if it is damaged."
        ) from None
    if layout > LAYOUT_NUMBER:
        connection.close()
        raise SettingsError(
            f"{path} was made by a newer release (layout {layout}; this release reads {LAYOUT_NUMBER}): "
            "upgrade speechframe or give another folder (--data, SPEECHFRAME_SERVICE)."
        )
    return connection


def _open_prepared(path: Path) -> tuple[sqlite3.Connection, int]:
    connection = _open_connection(path)
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            return connection, _prepare_file(connection)
        except sqlite3.OperationalError as error:
            # SQLite waits for other processes, except while it changes to WAL mode. If several processes
            # create the file at the same time, some of them get SQLITE_BUSY at once and try again here.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                connection.close()
                raise
        except sqlite3.Error:
            connection.close()
            raise
        time.sleep(_OPEN_RETRY_S)


def _open_connection(path: Path) -> sqlite3.Connection:
    # check_same_thread is off because one thread opens the connection, and later a thread of `Database`
    # uses it. They never use it at the same time.
    return sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Return a connection that only reads. A write raises an error."""
    connection = _open_connection(path)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _prepare_file(connection: sqlite3.Connection) -> int:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    return run_transaction(connection, _upgrade_layout)


def _upgrade_layout(connection: sqlite3.Connection) -> int:
    layout: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if layout == 0:
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
    if layout > LAYOUT_NUMBER:
        return layout
    for statement in (BILLED_SCHEMA, *DUBBING_SCHEMA.split(";")):
        connection.execute(statement)
    if layout < LAYOUT_NUMBER:
        for statement in WEBHOOK_KEY_UPGRADE.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {LAYOUT_NUMBER}")
    for table, column, fill in _ADDED_COLUMNS:
        if column not in {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} REAL")
            connection.execute(fill)
    connection.execute(_EXPIRY_INDEX)
    return layout


def run_transaction(
    connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T], begin: str = "BEGIN IMMEDIATE"
) -> T:
    """Return the result of `work`, which may write. If `work` raises, none of its writes is stored.

    With ``BEGIN``, `work` only reads. It sees one moment, and does not wait for writers.
    """
    connection.execute(begin)
    try:
        result = work(connection)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
    return result


class Database:
    """Two connections, one for writes and one for reads, each in its own thread.

    So the event loop never waits for the disk.

    Parameters
    ----------
    path
        The SQLite file.
    """

    def __init__(self, path: Path) -> None:
        self._writing, self._reading = connect(path), _open_read_only(path)
        self._write_thread = ThreadPoolExecutor(1, thread_name_prefix="speechframe-sqlite")
        self._read_thread = ThreadPoolExecutor(1, thread_name_prefix="speechframe-sqlite-read")

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, run as one transaction that may write.

        Once the transaction has begun, it goes on even if the caller is cancelled.
        """
        return await asyncio.wrap_future(self._write_thread.submit(run_transaction, self._writing, work))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of `work`, run on a snapshot, without waiting for any writer.

        Raises
        ------
        sqlite3.OperationalError
            `work` tried to write.
        """
        return await asyncio.wrap_future(
            self._read_thread.submit(run_transaction, self._reading, work, "BEGIN")
        )

    def queue_write(self, work: Callable[[sqlite3.Connection], object]) -> "Future[object]":
        """Queue `work` behind all writes so far and return its future at once. Log a failure.

        A caller that needs the result awaits the future inside ``asyncio.shield``, because cancelling the
        future removes waiting work from the queue.
        """
        posted = self._write_thread.submit(run_transaction, self._writing, work)
        posted.add_done_callback(_log_failure)
        return posted

    def close(self) -> None:
        """Wait for all queued work, then close the file."""
        for thread, connection in (
            (self._read_thread, self._reading),
            (self._write_thread, self._writing),
        ):
            thread.shutdown(wait=True)
            connection.close()


def _log_failure(done: "Future[object]") -> None:
    if (error := done.exception()) is not None:
        log.error("a change to the service's database failed: %s", error)


def now() -> float:
    """Return the Unix time in seconds. All records use this function, so that tests can change the time."""
    return time.time()
