"""The live service processes. Reservations of a dead process are released.

Each process holds a lock on a file of its own while it lives. The kernel frees the lock when the process
ends. A pid would not be enough, because pids are used again, and another container has the same pids.
"""

import contextlib
import fcntl
import logging
import os
import secrets
import sqlite3
from pathlib import Path

from speechframe.local.service.books import quota
from speechframe.local.service.books.database import now
from speechframe.local.service.dubbing import jobs as dub_jobs

log = logging.getLogger("speechframe.service")

FOLDER = "owners"


class Owner:
    """The mark of this process on the data folder, a file that it locks from start to end.

    Parameters
    ----------
    data
        The data folder.
    """

    def __init__(self, data: Path) -> None:
        self.name = secrets.token_hex(8)
        self._folder = data / FOLDER
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._path = self._folder / self.name
        # Locked before it is in the database, so that no other process can take it for a dead one's.
        self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def register(self, connection: sqlite3.Connection) -> None:
        """Make this process known as an owner of reservations."""
        connection.execute("INSERT INTO owners VALUES (?, ?, ?)", (self.name, os.getpid(), now()))

    def reap(self, connection: sqlite3.Connection) -> int:
        """Release the reservations and jobs of dead processes. Return the number of these processes."""
        others = connection.execute("SELECT owner FROM owners WHERE owner != ?", (self.name,)).fetchall()
        dead = [name for (name,) in others if self.is_dead(name)]
        for name in dead:
            _release(connection, name)
        return len(dead)

    def is_dead(self, name: str) -> bool:
        """Return True if the process of this name has ended."""
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except (OSError, ValueError) as error:
            # Perhaps another user's process. It counts as alive, and its reservations stay.
            log.warning("the owner file %r cannot be opened: %s", name, error)
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        else:
            path.unlink(missing_ok=True)
            return True
        finally:
            os.close(file)

    def leave(self, connection: sqlite3.Connection) -> None:
        """Release the reservations of this process and remove its mark."""
        _release(connection, self.name)
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        """Let the lock go."""
        os.close(self._file)


def _release(connection: sqlite3.Connection, name: str) -> None:
    quota.release_owner(connection, name)
    dub_jobs.release_owner(connection, name)
    connection.execute("DELETE FROM owners WHERE owner = ?", (name,))
