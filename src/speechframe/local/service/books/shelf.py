"""The shelf: the audio files behind ``audioFile`` links, and their index in the database.

The names of the files cannot be guessed. Files are removed after 24 hours, or if the shelf exceeds its size
limit. Audio of base64 answers is never on the shelf (zero retention). It is in the folder of uploads while
the answer is sent.
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

FOLDER_NAME = "audio"
"""Folder of the audio files, below the data folder."""

# Seconds. A file that is this old and not in the index was left by a killed service, because no job takes
# this long.
_ORPHAN_S = 3600.0


@dataclass(frozen=True)
class ServableFile:
    """A file that may be served.

    Parameters
    ----------
    path
        Path of the file.
    content_type
        Media type of the file.
    expires_at
        Unix time in seconds at which the link expires.
    """

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
        Total size above which the oldest files are removed.
    """

    def __init__(self, data: Path, limit_bytes: int) -> None:
        self.folder = data / FOLDER_NAME
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._limit_bytes = limit_bytes

    def make_path(self, extension: str) -> Path:
        """Return the path of a new file, whose name cannot be guessed. The caller writes the file."""
        return self.folder / f"{secrets.token_hex(16)}.{extension}"

    @staticmethod
    def put(connection: sqlite3.Connection, clip: Path, content_type: str, size_bytes: int) -> None:
        """Add a written file to the index. From now on its link works."""
        connection.execute(
            "INSERT INTO shelf VALUES (?, ?, ?, ?, ?)",
            (clip.stem, clip.name, content_type, size_bytes, now()),
        )

    def find(self, connection: sqlite3.Connection, file_name: str) -> ServableFile | None:
        """Return the file of this name, or None if it is unknown or has expired.

        The path is made from the name in the index, never from the caller's text.
        """
        row = connection.execute(
            "SELECT file_name, content_type, made_at FROM shelf "
            "WHERE id = ? AND file_name = ? AND made_at > ?",
            (file_name.partition(".")[0], file_name, now() - chosen.AUDIO_LINK_SECONDS),
        ).fetchone()
        if row is None:
            return None
        return ServableFile(self.folder / row[0], row[1], row[2] + chosen.AUDIO_LINK_SECONDS)

    def remove_expired(self, connection: sqlite3.Connection, old_files: Iterable[str] = ()) -> list[str]:
        """Remove old files, and the oldest above the size limit, from the index. Return the names to delete.

        Names in `old_files` that the index does not contain are returned, too.
        """
        removed = connection.execute(
            "DELETE FROM shelf WHERE made_at <= ? RETURNING file_name", (now() - chosen.AUDIO_LINK_SECONDS,)
        ).fetchall()
        # Add up the sizes, the newest file first. The files at which the sum exceeds the limit are removed.
        removed += connection.execute(
            "DELETE FROM shelf WHERE id IN (SELECT id FROM (SELECT id, SUM(size) OVER "
            "(ORDER BY made_at DESC, id) AS total FROM shelf) WHERE total > ?) RETURNING file_name",
            (self._limit_bytes,),
        ).fetchall()
        known = {name for (name,) in connection.execute("SELECT file_name FROM shelf")}
        return [name for (name,) in removed] + [name for name in old_files if name not in known]

    def list_old_files(self) -> list[str]:
        """Return the names of files that were written more than an hour ago."""
        before = time.time() - _ORPHAN_S
        found = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before:
                    found.append(path.name)
        return found

    def remove(self, file_names: Iterable[str]) -> None:
        """Delete files. Ignore files that cannot be deleted."""
        for name in file_names:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
