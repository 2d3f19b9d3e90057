"""The folders of neural voices that a user names: Piper's and Kokoro's files may lie side by side in them."""

import os
from pathlib import Path

from speechframe.errors import EngineError

__all__ = ["FOLDERS_VARIABLE", "files_in", "voice_folders"]

FOLDERS_VARIABLE = "SPEECHFRAME_VOICES"
"""Folders with voices, separated as in PATH."""


def voice_folders() -> list[Path]:
    """Return the folders, in order."""
    named = os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)
    return [Path(folder).expanduser() for folder in named if folder]


def files_in(folder: Path) -> list[Path]:
    """Return what lies in a folder, by name; folders below it are not looked at.

    Raises
    ------
    EngineError
        When it cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.is_file())
    except OSError as error:
        raise EngineError(f"the voice folder {folder} cannot be read: {error.strerror}") from error
