"""The user's folders with neural voices. A folder may contain voices of both Piper and Kokoro."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from speechframe.engines.faults import read_file_facts
from speechframe.errors import EngineFault

FOLDERS_VARIABLE = "SPEECHFRAME_VOICES"
"""Environment variable with the folders, separated as in PATH."""


def list_voice_folders() -> list[Path]:
    """Return the folders that the environment variable names, in order. A folder may not exist."""
    named = os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)
    return [Path(folder).expanduser() for folder in named if folder]


def check_folder(folder: Path) -> None:
    """Raise EngineFault if a folder is missing or cannot be read."""
    try:
        next(folder.iterdir(), None)
    except OSError as error:
        raise EngineFault(f"the voice folder {folder} cannot be read: {error.strerror}") from error


def find_files(
    folders: Iterable[Path], is_wanted: Callable[[Path], bool]
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return the wanted files of folders, and a sentence for each folder or wanted file that is unreadable.

    The files of a folder are sorted by name. Folders inside the folders are not searched.

    Parameters
    ----------
    folders
        The folders, in order.
    is_wanted
        A function that returns whether the path of an entry is wanted.
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
                read_file_facts(path)
            except EngineFault as error:
                left_out.append(str(error))
            else:
                files.append(path)
    return tuple(files), tuple(left_out)
