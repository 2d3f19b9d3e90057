"""The folders of neural voices that a user names. Piper's and Kokoro's files may lie side by side in them."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from speechframe.engines.faults import readable
from speechframe.errors import EngineFault

__all__ = ["FOLDERS_VARIABLE", "check_folder", "files_in", "voice_folders"]

FOLDERS_VARIABLE = "SPEECHFRAME_VOICES"
"""Folders with voices, separated as in PATH."""


def voice_folders() -> list[Path]:
    """Return the folders, in order."""
    named = os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)
    return [Path(folder).expanduser() for folder in named if folder]


def check_folder(folder: Path) -> None:
    """Raise EngineFault if a folder is missing or cannot be read."""
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise EngineFault(f"the voice folder {folder} cannot be read: {error.strerror}") from error


def files_in(
    folders: Iterable[Path], is_wanted: Callable[[Path], bool]
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the wanted files of folders by name, and a sentence for each entry that cannot be read.

    Folders below them are not searched.

    Parameters
    ----------
    folders
        The folders, in order.
    is_wanted
        Decides by the name of an entry.
    """
    files, left_out = [], []
    for folder in folders:
        try:
            check_folder(folder)
            entries = sorted(filter(is_wanted, folder.iterdir()))
        except (EngineFault, OSError) as error:
            left_out.append(str(error))
            continue
        for path in entries:
            try:
                readable(path)
            except EngineFault as error:
                left_out.append(str(error))
            else:
                files.append(path)
    return tuple(files), tuple(left_out)
