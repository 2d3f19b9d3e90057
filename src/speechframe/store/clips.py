"""Clips that were handed to a run without a file of their own: kept in its folder, each under its hash."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from speechframe.store import files
from speechframe.store.remote import Remote
from speechframe.store.table import FOLDER_NAME as INPUT

FOLDER_NAME = f"{INPUT}/audio"


def keep(folder: Path, sha256: str, data: bytes) -> str:
    """Keep a clip in a run folder, and return its name below that; the same clip is kept once.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    name = f"{FOLDER_NAME}/{sha256}"
    path = folder / name
    with files.storing(folder, "keeping a clip"):
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, data)
    return name


def take(folder: Path, draft: Path) -> None:
    """Move the clips of a local run into another one on the same disk.

    Raises
    ------
    StoreError
        When the folder cannot be written.
    """
    place = folder / FOLDER_NAME
    with files.storing(folder, "keeping clips"):
        for path in (draft / FOLDER_NAME).glob("[!.]*"):
            place.mkdir(parents=True, exist_ok=True)
            path.replace(place / path.name)
        if place.is_dir():
            files.sync_folder(place)


@dataclass(frozen=True)
class KeptClip:
    """A clip in a run folder, wherever that is.

    Parameters
    ----------
    folder
        The run folder.
    name
        What :func:`keep` returned.
    """

    folder: Path
    name: str

    def __str__(self) -> str:
        return str(self.folder / self.name)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Return the clip to be read; one on another machine is fetched.

        Raises
        ------
        OSError
            When it is not there.
        """
        path = self.folder / self.name
        if isinstance(path, Remote):
            return io.BytesIO(path.read_bytes())
        return path.open(mode)
