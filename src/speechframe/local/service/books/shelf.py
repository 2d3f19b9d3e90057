"""The audio behind ``audioFile`` links: files under unguessable names, an index, 24 hours, a size limit.

Base64 answers never come here (zero retention); their audio lies among the uploads while it is sent.
"""

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from speechframe.local.service.books.database import now
from speechframe.spec import chosen

FOLDER = "audio"

# A file that no index row names after this long was left by a service that was killed: longer than any job.
_ORPHAN_S = 3600.0


@dataclass(frozen=True)
class ShelvedFile:
    """A file on the shelf.

    Parameters
    ----------
    id
        The unguessable part of its address.
    file_name
        Its name in the folder: id and extension.
    """

    id: str
    file_name: str


@dataclass(frozen=True)
class Found:
    """What the index says of a clip that may be served."""

    path: Path
    content_type: str
    expires_at: float


class Shelf:
    """The folder of audio files and its index in the database.

    Parameters
    ----------
    data
        The data folder.
    limit_bytes
        Above it the oldest files go.
    """

    def __init__(self, data: Path, limit_bytes: int) -> None:
        self.folder = data / FOLDER
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._limit_bytes = limit_bytes

    @staticmethod
    def new_clip(extension: str) -> ShelvedFile:
        """Return a name for a file that is still to be written."""
        clip_id = secrets.token_hex(16)
        return ShelvedFile(clip_id, f"{clip_id}.{extension}")

    def path(self, clip: ShelvedFile) -> Path:
        """Return where the clip's bytes are, or are to be written."""
        return self.folder / clip.file_name

    @staticmethod
    def put(connection: sqlite3.Connection, clip: ShelvedFile, content_type: str, size_bytes: int) -> None:
        """Make a written file known: from here on it is served."""
        connection.execute(
            "INSERT INTO shelf VALUES (?, ?, ?, ?, ?)",
            (clip.id, clip.file_name, content_type, size_bytes, now()),
        )

    def find(self, connection: sqlite3.Connection, file_name: str) -> Found | None:
        """Return the clip of this name while it lives.

        The path is made of the index's own words, never of the caller's.
        """
        row = connection.execute(
            "SELECT file_name, content_type, made_at FROM shelf "
            "WHERE id = ? AND file_name = ? AND made_at > ?",
            (file_name.partition(".")[0], file_name, now() - chosen.SHELF_SECONDS),
        ).fetchone()
        if row is None:
            return None
        return Found(self.folder / row[0], row[1], row[2] + chosen.SHELF_SECONDS)

    def drop_old(self, connection: sqlite3.Connection, long_there: Iterable[str] = ()) -> list[str]:
        """Take what is too old, or too much, out of the index; return the file names to remove.

        Of the files that are `long_there`, those that the index does not name are to be removed too.
        """
        gone = connection.execute(
            "DELETE FROM shelf WHERE made_at <= ? RETURNING file_name", (now() - chosen.SHELF_SECONDS,)
        ).fetchall()
        # A running sum from the newest on: what lies beyond the limit is the oldest.
        gone += connection.execute(
            "DELETE FROM shelf WHERE id IN (SELECT id FROM (SELECT id, SUM(size) OVER "
            "(ORDER BY made_at DESC, id) AS total FROM shelf) WHERE total > ?) RETURNING file_name",
            (self._limit_bytes,),
        ).fetchall()
        known = {name for (name,) in connection.execute("SELECT file_name FROM shelf")}
        return [name for (name,) in gone] + [name for name in long_there if name not in known]

    def long_there(self) -> list[str]:
        """Return the names of files that are older than any job in flight."""
        before = time.time() - _ORPHAN_S
        found = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before:
                    found.append(path.name)
        return found

    def remove(self, file_names: Iterable[str]) -> None:
        """Remove files that the index no longer names."""
        for name in file_names:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
