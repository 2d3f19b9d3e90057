"""Register service processes as owners of reservations and dubbing jobs. Release what dead processes owned.

A reservation is the price of a request, held back from the quota of a key.

Each process holds a lock on its own file. The kernel frees the lock when the process ends. A pid would not
be enough, because pids are reused, and another container may have the same pids.
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

FOLDER_NAME = "owners"
"""Folder of the lock files, below the data folder."""


class Owner:
    """An owner of reservations and dubbing jobs: this process.

    The owner locks a file in the data folder until :meth:`close`.

    Parameters
    ----------
    data_folder
        The data folder of the service.
    """

    def __init__(self, data_folder: Path) -> None:
        self.name = secrets.token_hex(8)
        self._folder = data_folder / FOLDER_NAME
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._path = self._folder / self.name
        # Lock the file before `register` adds the owner to the database. Otherwise another process could
        # find the owner without a lock, and treat it as dead.
        self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def register(self, connection: sqlite3.Connection) -> None:
        """Add this process to the table of owners."""
        connection.execute("INSERT INTO owners VALUES (?, ?, ?)", (self.name, os.getpid(), now()))

    def release_dead_owners(self, connection: sqlite3.Connection) -> int:
        """Release the reservations and jobs of dead processes. Return the number of dead processes."""
        others = connection.execute("SELECT owner FROM owners WHERE owner != ?", (self.name,)).fetchall()
        dead = [name for (name,) in others if self.remove_lock_if_dead(name)]
        for name in dead:
            _release_owner(connection, name)
        return len(dead)

    def remove_lock_if_dead(self, name: str) -> bool:
        """Remove the lock file of an owner whose process has ended. Return whether the process has ended."""
        path = self._folder / name
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except (OSError, ValueError) as error:
            # The file may belong to another user. Its process counts as alive and keeps its reservations.
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

    def unregister(self, connection: sqlite3.Connection) -> None:
        """Release the reservations and jobs of this process, and remove its lock file."""
        _release_owner(connection, self.name)
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        """Release the lock."""
        os.close(self._file)


def _release_owner(connection: sqlite3.Connection, name: str) -> None:
    quota.release_owner(connection, name)
    dub_jobs.release_owner(connection, name)
    connection.execute("DELETE FROM owners WHERE owner = ?", (name,))
